"""CloudEvents over HTTP: binary mode (ce-* headers), structured mode, and batches.

Each event is acknowledged by the log before it is answered. One for a webhook waits a second for the decision: beyond
the rate of the webhook it is refused with 429. Of a batch each event has its own result, in order; one that is refused
does not affect the others. An event with the attribute `webhook` or `channel` goes there, in the tenant of the caller.

Before: webhook_routes.py. After: services/application/webhooks.py.
"""

import asyncio
from typing import Any

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from loomlog.services.api.request_parsing import raw_body
from loomlog.services.api.responses import record_response
from loomlog.services.api.service import Service
from loomlog.services.application.errors import bad_request
from loomlog.services.application.webhooks import PublishedEvent
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused
from loomlog.services.families.webhook.api import CloudEventResult, CloudEventResults
from loomlog.services.families.webhook.bodies import BodyInvalid, parse_body
from loomlog.services.families.webhook.cloud_events import (
    BATCH,
    STRUCTURED,
    CloudEvent,
    CloudEventInvalid,
    binary_event,
    structured_event,
)
from loomlog.services.families.webhook.limits import BODY_BYTES

PREFIX = "ce-"
EVENTS_MAX = 100
"""Events of one batch."""
BATCH_BYTES_MAX = 8 * 1024 * 1024
ENVELOPE_BYTES = 64 * 1024
"""What an event may have beside its data."""


async def publish_events(service: Service, caller: Caller, request: Request) -> Response:
    content_type = request.headers.get("content-type", "")
    kind = content_type.partition(";")[0].strip().lower()
    if kind == BATCH:
        return await _publish_batch(service, caller, request)
    raw = await raw_body(request, limit=BODY_BYTES + ENVELOPE_BYTES)
    try:
        event = structured_event(parse_body(raw)) if kind == STRUCTURED else _binary(request, raw, content_type)
    except (BodyInvalid, CloudEventInvalid) as error:
        raise bad_request(f"the event: {error}") from error
    published = await service.application.webhooks.publish(caller, event)
    return record_response(await published.outcome(), status=202)


def _binary(request: Request, raw: bytes, content_type: str) -> CloudEvent:
    attributes = {
        name.lower().removeprefix(PREFIX): value
        for name, value in request.headers.items()
        if name.lower().startswith(PREFIX)
    }
    if not attributes:
        expected = f"headers ce-<attribute>, or the content type {STRUCTURED} or {BATCH}"
        raise CloudEventInvalid(f"expected {expected}")
    return binary_event(attributes, raw, content_type)


async def _publish_batch(service: Service, caller: Caller, request: Request) -> Response:
    raw = await raw_body(request, limit=BATCH_BYTES_MAX)
    try:
        values = parse_body(raw)
    except BodyInvalid as error:
        raise bad_request(f"the batch: {error}") from error
    if not isinstance(values, list) or not 1 <= len(values) <= EVENTS_MAX:
        raise bad_request(f"the batch: expected a list of 1 to {EVENTS_MAX} events")
    published = [await _publish_one(service, caller, value) for value in values]
    results = await asyncio.gather(*map(_outcome, published))
    accepted = sum(result.status == "accepted" for result in results)
    return record_response(CloudEventResults(results=results, accepted=accepted), status=202)


async def _publish_one(service: Service, caller: Caller, value: Any) -> PublishedEvent | Refused:
    try:
        return await service.application.webhooks.publish(caller, structured_event(value))
    except CloudEventInvalid as error:
        return bad_request(str(error))
    except Refused as refused:
        return refused


async def _outcome(published: PublishedEvent | Refused) -> CloudEventResult:
    """Return the result of an event of a batch; one that may be sent again later says when."""
    try:
        if isinstance(published, PublishedEvent):
            return CloudEventResult(status="accepted", **msgspec.structs.asdict(await published.outcome()))
    except Refused as refused:
        published = refused
    assert isinstance(published, Refused)
    later = published.retry_after_s or UNSET
    return CloudEventResult(status="refused", code=published.code, error=published.message, retry_after_s=later)
