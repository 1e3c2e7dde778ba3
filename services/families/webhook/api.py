"""The operations of webhooks for administrators: what was delivered, and giving it again. Pure.

Receiving a delivery, trying one and CloudEvents have the form of their senders, and are endpoints.

Before: __init__.py. After: handlers.py carries operations out, endpoints.py and
cloud_event_endpoints.py answer the rest.
"""

from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from loomlog.services.core.access.rules import PUBLIC, requires, requires_any
from loomlog.services.core.access.scopes import ADMIN, CHANNEL_PUBLISH, RUNS_CREATE
from loomlog.services.core.endpoints import Endpoint, EndpointBody
from loomlog.services.core.operations import Effect, Http, Input, Operation, Output, Tag
from loomlog.services.families.webhook.limits import ATTRIBUTE_CHARACTERS_MAX, DELIVERY_ID_CHARACTERS_MAX, RECENT_MAX

TAG = Tag(
    name="Webhooks", description="Requests from outside that start runs or are published to channels; CloudEvents."
)
PATH, TENANT_PATH = "/v1/_webhooks/{name}", "/v1/_webhooks/{tenant}/{name}"
REPLAY_BODY_BYTES_MAX = 4_096

Name = Annotated[str, Meta(description="Name of the webhook.")]
Tenant = Annotated[str, Meta(description="Tenant in the address of the webhook; absent: one of the files.")]
Position = Annotated[str, Meta(description="Position of a record in the log.")]


class WebhookListDeliveries(Input, frozen=True, kw_only=True):
    name: Name
    tenant: Tenant = ""
    limit: Annotated[int, Meta(ge=1, le=RECENT_MAX, description="Most deliveries.")] = RECENT_MAX


class WebhookReplay(Input, frozen=True, kw_only=True):
    name: Name
    tenant: Tenant = ""
    delivery_id: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=DELIVERY_ID_CHARACTERS_MAX,
            description="Id of the delivery, as recent-deliveries shows it.",
        ),
    ]


class WebhookDelivery(Output, frozen=True, kw_only=True):
    """A delivery, or several that were refused alike; what does not apply is absent."""

    delivery_id: str | UnsetType = UNSET
    verdict: str
    received_at: Annotated[str, Meta(description="RFC 3339, with milliseconds.")]
    run_id: str | UnsetType = UNSET
    channel: str | UnsetType = UNSET
    def_id: Annotated[str, Meta(description="Version of the definition that took it.")] | UnsetType = UNSET
    status: Annotated[str, Meta(description="How its run has ended, or refused.")] | UnsetType = UNSET
    code: str | UnsetType = UNSET
    detail: str | UnsetType = UNSET
    replay_of: str | UnsetType = UNSET
    by: Annotated[str, Meta(description="Who gave it again, or sent the event.")] | UnsetType = UNSET
    run_metadata: Any = UNSET
    position: Position | UnsetType = UNSET
    source_position: Position | UnsetType = UNSET
    count: Annotated[int, Meta(description="How many they are.")] | UnsetType = UNSET


class WebhookDeliveries(Output, frozen=True, kw_only=True):
    webhook_name: str
    tenant_id: str
    deliveries: list[WebhookDelivery]


class WebhookReplayed(Output, frozen=True, kw_only=True):
    """What became of a delivery that was given again; `pending`: it is not decided yet."""

    webhook_name: str
    replay_of: str
    delivery_id: str | UnsetType = UNSET
    run_id: str | UnsetType = UNSET
    channel: str | UnsetType = UNSET
    pending: bool | UnsetType = UNSET


class WebhookRunPreview(Output, frozen=True, kw_only=True):
    """The run that a request would start."""

    agent: str
    user_id: str
    goal: str
    run_metadata: dict[str, Any]
    credential_keys: list[str]


class WebhookReport(Output, frozen=True, kw_only=True):
    """What would become of a request; rate limits and repeated ids are not looked at."""

    would_accept: bool
    verdict: str
    detail: str | UnsetType = UNSET
    delivery_id: str | UnsetType = UNSET
    run_input_preview: WebhookRunPreview | None = None
    channel: str | UnsetType = UNSET


class WebhookAnswer(Output, frozen=True, kw_only=True):
    """What became of a request; what does not apply is absent."""

    webhook_name: str
    delivery_id: str
    run_id: (
        Annotated[str, Meta(description="The run it starts; of a repeated delivery, that of the first one.")]
        | UnsetType
    ) = UNSET
    channel: Annotated[str, Meta(description="The channel that it is published to.")] | UnsetType = UNSET
    pending: Annotated[bool, Meta(description="true: it is kept, and nothing more is known yet.")] | UnsetType = UNSET
    deduped: Annotated[str, Meta(description="`true`: the delivery was there before.")] | UnsetType = UNSET
    agent_id: str | UnsetType = UNSET
    status: Annotated[str, Meta(description="How the run has ended, of a request that waits for it.")] | UnsetType = (
        UNSET
    )
    final_text: str | UnsetType = UNSET
    result: Annotated[Any, Meta(description="The record of a run with an output schema.")] | UnsetType = UNSET


class WebhookRefusal(Output, frozen=True, kw_only=True):
    """Why a request is not taken, in the form of the senders of webhooks."""

    error: Annotated[str, Meta(description="The code.")]
    detail: str | UnsetType = UNSET
    secret_env: Annotated[str, Meta(description="The environment variable without a secret.")] | UnsetType = UNSET
    webhook_name: str | UnsetType = UNSET
    delivery_id: str | UnsetType = UNSET
    run_id: Annotated[str, Meta(description="The run whose end was not seen in time.")] | UnsetType = UNSET
    code: Annotated[str, Meta(description="The code, as other routes name it.")]


class CloudEventAnswer(Output, frozen=True, kw_only=True):
    """An event that is in the log."""

    id: str
    source: str
    delivery_id: str
    webhook: str | UnsetType = UNSET
    channel: str | UnsetType = UNSET
    pending: Annotated[bool, Meta(description="true: its webhook has not decided yet.")] | UnsetType = UNSET
    deduped: Annotated[bool, Meta(description="true: the delivery was there before.")] | UnsetType = UNSET


class CloudEventResult(Output, frozen=True, kw_only=True):
    """What became of an event of a batch: the fields of an answer, or those of a refusal."""

    status: Literal["accepted", "refused"]
    id: str | UnsetType = UNSET
    source: str | UnsetType = UNSET
    delivery_id: str | UnsetType = UNSET
    webhook: str | UnsetType = UNSET
    channel: str | UnsetType = UNSET
    pending: bool | UnsetType = UNSET
    deduped: bool | UnsetType = UNSET
    code: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    retry_after_s: Annotated[int, Meta(description="Send it again after so many seconds.")] | UnsetType = UNSET


class CloudEventResults(Output, frozen=True, kw_only=True):
    """What became of the events of a batch, in their order."""

    results: list[CloudEventResult]
    accepted: int


class CloudEventFields(Struct, frozen=True, kw_only=True):
    """A CloudEvent in structured mode; binary mode and batches are taken too. Further attributes are not looked at."""

    specversion: Literal["1.0"]
    id: Annotated[str, Meta(min_length=1, max_length=ATTRIBUTE_CHARACTERS_MAX)]
    source: Annotated[str, Meta(min_length=1, max_length=ATTRIBUTE_CHARACTERS_MAX)]
    type: Annotated[str, Meta(min_length=1, max_length=ATTRIBUTE_CHARACTERS_MAX)]
    webhook: Annotated[str, Meta(description="The webhook it is for; either this or channel.")] = ""
    channel: Annotated[str, Meta(description="The channel that its data is published to.")] = ""
    scopeid: Annotated[str, Meta(description="User or agent, of a channel with such a scope.")] = ""
    data: Annotated[Any, Meta(description="What it says: JSON of any form.")] = None


_operation = partial(Operation, tag=TAG, access=requires(ADMIN))
_http = partial(Http, takes_tenant=False)

LIST_DELIVERIES = _operation(
    name="webhook.deliveries",
    summary="List the last deliveries of a webhook, newest first, with what became of them.",
    input=WebhookListDeliveries,
    output=WebhookDeliveries,
    effect=Effect.READ,
    http=(
        _http(route=f"GET {PATH}/recent-deliveries", id="list_recent_deliveries", without=("tenant",)),
        _http(route=f"GET {TENANT_PATH}/recent-deliveries", id="list_recent_tenant_deliveries"),
    ),
)
REPLAY = _operation(
    name="webhook.replay",
    summary="Give a delivery again.",
    input=WebhookReplay,
    output=WebhookReplayed,
    effect=Effect.WRITE,
    http=(
        _http(
            route=f"POST {TENANT_PATH}/replay",
            id="replay_tenant_webhook",
            body_bytes_max=REPLAY_BODY_BYTES_MAX,
            status=202,
            example={"delivery_id": "72d3162e-cc78-11e3-81ab-4c9367dc0958"},
        ),
    ),
)
OPERATIONS = (LIST_DELIVERIES, REPLAY)

ANY = EndpointBody(name="WebhookBody", example={"goal": "look at this"})
EVENT = EndpointBody(
    name="CloudEvent",
    record=CloudEventFields,
    example={
        "specversion": "1.0",
        "id": "1",
        "source": "/shop",
        "type": "order.placed",
        "channel": "orders",
        "data": {"order": 1},
    },
)
SYNC = {"sync": "true: wait for the end of the run, if the webhook allows it."}
EITHER_STATUSES = (400, 401, 403, 404, 413, 429, 503, 504)
_endpoint = partial(Endpoint, tag=TAG, unavailable_code="projection_unavailable")
_receiver = partial(
    _endpoint,
    access=PUBLIC,
    body=ANY,
    refusal_form=WebhookRefusal,
    query=SYNC,
    waits=True,
)
_test = "Tell what would become of a request, without doing anything."
TEST = _receiver(
    id="test_webhook",
    route=f"POST {PATH}/test",
    summary=_test,
    response=(WebhookReport, WebhookAnswer),
    alternative_status=202,
    refusal_statuses=EITHER_STATUSES,
)
REPLAY_OF_FILES = _receiver(
    id="replay_webhook",
    route=f"POST {PATH}/replay",
    summary=REPLAY.summary,
    response=(WebhookReplayed, WebhookAnswer),
    alternative_status=200,
    refusal_statuses=(*EITHER_STATUSES, 415),
    operation=(REPLAY, replace(REPLAY.http[0], route=f"POST {PATH}/replay", without=("tenant",))),
)
_taking = partial(
    _receiver,
    response=WebhookAnswer,
    status=202,
    alternative_status=200,
    refusal_statuses=(400, 401, 404, 413, 429, 503, 504),
)
RECEIVE = _taking(id="receive_webhook", route=f"POST {PATH}", summary="Take a request for a webhook of the files.")
RECEIVE_OF_TENANT = _taking(
    id="receive_tenant_webhook", route=f"POST {TENANT_PATH}", summary="Take a request for a webhook of a tenant."
)
TEST_OF_TENANT = _endpoint(
    id="test_tenant_webhook",
    route=f"POST {TENANT_PATH}/test",
    access=requires(ADMIN),
    summary=_test,
    body=ANY,
    response=WebhookReport,
    refusal_statuses=(404, 413, 503),
    act="",  # it changes nothing
)
PUBLISH_EVENTS = _endpoint(
    id="publish_events",
    route="POST /v1/events",
    access=requires_any(RUNS_CREATE, CHANNEL_PUBLISH),
    summary="Give CloudEvents to webhooks or channels.",
    body=EVENT,
    response=(CloudEventAnswer, CloudEventResults),
    status=202,
    refusal_statuses=(400, 403, 404, 413, 429, 503),
)
ENDPOINTS = (TEST, REPLAY_OF_FILES, RECEIVE, RECEIVE_OF_TENANT, TEST_OF_TENANT, PUBLISH_EVENTS)
