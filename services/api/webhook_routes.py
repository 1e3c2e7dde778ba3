"""The routes of webhooks and of CloudEvents.

Before: routes.py. After: webhook_endpoints.py, cloud_event_endpoints.py.
"""

from collections.abc import Sequence

from loomlog.services.api import cloud_event_endpoints, webhook_endpoints
from loomlog.services.api.request_shares import Takes
from loomlog.services.api.route import Handler, NamedSchema, QueryParameter, Route, Tag
from loomlog.services.core.access.rules import PUBLIC, Access, requires, requires_any
from loomlog.services.core.access.scopes import ADMIN, CHANNEL_PUBLISH, RUNS_CREATE

TAG = Tag(
    name="Webhooks", description="Requests from outside that start runs or are published to channels; CloudEvents."
)
PATH, TENANT_PATH = "/v1/_webhooks/{name}", "/v1/_webhooks/{tenant}/{name}"
OBJECT = {"type": "object"}
ANY = NamedSchema(name="WebhookBody", schema={}, example={"goal": "look at this"})
RECEIVER_STATUSES = (400, 401, 404, 413, 429, 503, 504)
SYNC = QueryParameter(name="sync", description="true: wait for the end of the run, if the webhook allows it.")
LIMIT = QueryParameter(
    name="limit",
    description="Most deliveries.",
    schema={"type": "integer", "minimum": 1, "maximum": 50},
)
REPLAY = NamedSchema(
    name="WebhookReplay",
    schema={
        "type": "object",
        "properties": {"delivery_id": {"type": "string", "minLength": 1, "maxLength": 256}},
        "required": ["delivery_id"],
    },
    example={"delivery_id": "72d3162e-cc78-11e3-81ab-4c9367dc0958"},
)
EVENT = NamedSchema(
    name="CloudEvent",
    schema={"type": "object", "description": "A CloudEvent in structured mode; binary mode and batches are taken too."},
    example={
        "specversion": "1.0",
        "id": "1",
        "source": "/shop",
        "type": "order.placed",
        "channel": "orders",
        "data": {"order": 1},
    },
)

ADMINISTRATORS = requires(ADMIN)


def _receiver(path: str, handler: Handler, summary: str) -> Route:
    return Route(
        method="POST",
        path=path,
        access=PUBLIC,
        handler=handler,
        tag=TAG,
        summary=summary,
        body=ANY,
        response=NamedSchema(name="WebhookAnswer", schema=OBJECT),
        query=(SYNC,),
        status=202,
        alternative_status=200,
        refusal_statuses=RECEIVER_STATUSES,
        takes_instead=Takes.WAIT,
    )


def _admin(
    method: str,
    path: str,
    handler: Handler,
    summary: str,
    *,
    access: Access = ADMINISTRATORS,
    body: NamedSchema | None = None,
    query: Sequence[QueryParameter] = (),
    status: int = 200,
    alternative: int = 0,
    statuses: Sequence[int] = (400, 404, 503),
) -> Route:
    return Route(
        method=method,
        path=path,
        access=access,
        handler=handler,
        tag=TAG,
        summary=summary,
        body=body,
        response=NamedSchema(name="WebhookReport", schema=OBJECT),
        query=query,
        status=status,
        alternative_status=alternative,
        refusal_statuses=statuses,
        takes_instead=Takes.WAIT if access.is_public else None,
    )


TEST, REPLAYS = "Tell what would become of a request, without doing anything.", "Give a delivery again."
RECENT = "List the last deliveries of a webhook, newest first, with what became of them."
EITHER_STATUSES = (400, 401, 403, 404, 413, 429, 503, 504)

WEBHOOK_ROUTES: tuple[Route, ...] = (
    _admin(
        "POST",
        PATH + "/test",
        webhook_endpoints.test_webhook,
        TEST,
        access=PUBLIC,
        body=ANY,
        query=(SYNC,),
        alternative=202,
        statuses=EITHER_STATUSES,
    ),
    _admin(
        "POST",
        PATH + "/replay",
        webhook_endpoints.replay_webhook,
        REPLAYS,
        access=PUBLIC,
        body=REPLAY,
        query=(SYNC,),
        status=202,
        alternative=200,
        statuses=(*EITHER_STATUSES, 415),
    ),
    _receiver(PATH, webhook_endpoints.receive_webhook, "Take a request for a webhook of the files."),
    _receiver(TENANT_PATH, webhook_endpoints.receive_tenant_webhook, "Take a request for a webhook of a tenant."),
    _admin(
        "POST", TENANT_PATH + "/test", webhook_endpoints.test_tenant_webhook, TEST, body=ANY, statuses=(404, 413, 503)
    ),
    _admin("POST", TENANT_PATH + "/replay", webhook_endpoints.replay_tenant_webhook, REPLAYS, body=REPLAY, status=202),
    _admin("GET", PATH + "/recent-deliveries", webhook_endpoints.list_recent_deliveries, RECENT, query=(LIMIT,)),
    _admin(
        "GET",
        TENANT_PATH + "/recent-deliveries",
        webhook_endpoints.list_recent_tenant_deliveries,
        RECENT,
        query=(LIMIT,),
    ),
    Route(
        method="POST",
        path="/v1/events",
        access=requires_any(RUNS_CREATE, CHANNEL_PUBLISH),
        handler=cloud_event_endpoints.publish_events,
        tag=TAG,
        summary="Give CloudEvents to webhooks or channels.",
        body=EVENT,
        response=NamedSchema(name="CloudEventAnswer", schema=OBJECT),
        status=202,
        refusal_statuses=(400, 403, 404, 413, 429, 503),
    ),
)
