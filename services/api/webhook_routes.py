"""The routes of webhooks for their senders, and of CloudEvents.

Before: routes.py. After: webhook_endpoints.py, cloud_event_endpoints.py.
"""

from dataclasses import replace
from functools import partial

from loomlog.services.api import cloud_event_endpoints, webhook_endpoints
from loomlog.services.api.operation_routes import operation_route
from loomlog.services.api.request_shares import Takes
from loomlog.services.api.route import Handler, NamedSchema, QueryParameter, Route, Tag
from loomlog.services.core.access.rules import PUBLIC, requires, requires_any
from loomlog.services.core.access.scopes import ADMIN, CHANNEL_PUBLISH, RUNS_CREATE
from loomlog.services.core.operation_input import record_schemas
from loomlog.services.families.webhook.api import (
    PATH,
    REPLAY,
    TENANT_PATH,
    CloudEventAnswer,
    CloudEventFields,
    CloudEventResults,
    WebhookAnswer,
    WebhookRefusal,
    WebhookReplayed,
    WebhookReport,
)
from loomlog.services.families.webhook.api import TAG as WEBHOOKS

TAG = Tag(name=WEBHOOKS.name, description=WEBHOOKS.description)
ANY = NamedSchema(name="WebhookBody", schema={}, example={"goal": "look at this"})
RECEIVER_STATUSES = (400, 401, 404, 413, 429, 503, 504)
SYNC = QueryParameter(name="sync", description="true: wait for the end of the run, if the webhook allows it.")
EVENT = NamedSchema(
    name="CloudEvent",
    schema=record_schemas((CloudEventFields,))["CloudEventFields"],
    example={
        "specversion": "1.0",
        "id": "1",
        "source": "/shop",
        "type": "order.placed",
        "channel": "orders",
        "data": {"order": 1},
    },
)


def _receiver(path: str, handler: Handler, summary: str) -> Route:
    return Route(
        method="POST",
        path=path,
        access=PUBLIC,
        handler=handler,
        tag=TAG,
        summary=summary,
        body=ANY,
        response=WebhookAnswer,
        refusal_form=WebhookRefusal,
        query=(SYNC,),
        status=202,
        alternative_status=200,
        refusal_statuses=RECEIVER_STATUSES,
        takes_instead=Takes.WAIT,
    )


TEST = "Tell what would become of a request, without doing anything."
EITHER_STATUSES = (400, 401, 403, 404, 413, 429, 503, 504)
REPLAY_OF_FILES = replace(
    operation_route(REPLAY, webhook_endpoints.REPLAY_OF_FILES),
    access=PUBLIC,
    handler=webhook_endpoints.replay_webhook,
    response=(WebhookReplayed, WebhookAnswer),
    refusal_form=WebhookRefusal,
    query=(SYNC,),
    alternative_status=200,
    refusal_statuses=(*EITHER_STATUSES, 415),
    takes_instead=Takes.WAIT,
)
_test_route = partial(Route, method="POST", tag=TAG, summary=TEST, body=ANY)

WEBHOOK_ROUTES: tuple[Route, ...] = (
    _test_route(
        path=PATH + "/test",
        access=PUBLIC,
        handler=webhook_endpoints.test_webhook,
        response=(WebhookReport, WebhookAnswer),
        refusal_form=WebhookRefusal,
        query=(SYNC,),
        alternative_status=202,
        refusal_statuses=EITHER_STATUSES,
        takes_instead=Takes.WAIT,
    ),
    REPLAY_OF_FILES,
    _receiver(PATH, webhook_endpoints.receive_webhook, "Take a request for a webhook of the files."),
    _receiver(TENANT_PATH, webhook_endpoints.receive_tenant_webhook, "Take a request for a webhook of a tenant."),
    _test_route(
        path=TENANT_PATH + "/test",
        access=requires(ADMIN),
        handler=webhook_endpoints.test_tenant_webhook,
        response=WebhookReport,
        refusal_statuses=(404, 413, 503),
        act="",  # it changes nothing
    ),
    Route(
        method="POST",
        path="/v1/events",
        access=requires_any(RUNS_CREATE, CHANNEL_PUBLISH),
        handler=cloud_event_endpoints.publish_events,
        tag=TAG,
        summary="Give CloudEvents to webhooks or channels.",
        body=EVENT,
        response=(CloudEventAnswer, CloudEventResults),
        status=202,
        refusal_statuses=(400, 403, 404, 413, 429, 503),
    ),
)
