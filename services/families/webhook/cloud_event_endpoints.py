"""CloudEvents over HTTP: binary mode (ce-* headers), structured mode, and batches.

Each event is acknowledged by the log before it is answered. One for a webhook waits a second for the decision: beyond
the rate of the webhook it is refused with 429. Of a batch each event has its own result, in order; one that is refused
does not affect the others. An event with the attribute `webhook` or `channel` goes there, in the tenant of the caller.

Before: api.py declares them. After: receiving.py.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused, request_refusal
from loomlog.services.families.ports.requests import EndpointAnswer, EndpointRequest
from loomlog.services.families.webhook.api import CloudEventResult, CloudEventResults
from loomlog.services.families.webhook.bodies import BodyInvalid, parse_body
from loomlog.services.families.webhook.cloud_events import (
    BATCH,
    STRUCTURED,
    CloudEvent,
    binary_event,
    structured_event,
)
from loomlog.services.families.webhook.limits import BODY_BYTES
from loomlog.services.families.webhook.receiving import PublishedEvent, WebhookReceiver

PREFIX = "ce-"
EVENTS_MAX = 100
"""Events of one batch."""
BATCH_BYTES_MAX = 8 * 1024 * 1024
ENVELOPE_BYTES = 64 * 1024
"""What an event may have beside its data."""


class CloudEventEndpoint:
    """Answers requests with CloudEvents. Raises Refused and Unavailable."""

    def __init__(self, receiver: WebhookReceiver) -> None:
        self._receiver = receiver

    async def publish(self, request: EndpointRequest) -> EndpointAnswer:
        content_type = request.headers.get("content-type", "")
        kind = content_type.partition(";")[0].strip().lower()
        if kind == BATCH:
            return await self._publish_batch(request)
        raw = await request.body(BODY_BYTES + ENVELOPE_BYTES)
        try:
            event = (
                structured_event(parse_body(raw)) if kind == STRUCTURED else _binary(request.headers, raw, content_type)
            )
        except BodyInvalid as error:
            raise Refused("bad_request", f"the event: {error}") from error
        published = await self._receiver.publish(request.caller, event)
        return EndpointAnswer(record=await published.outcome(), status=202)

    async def _publish_batch(self, request: EndpointRequest) -> EndpointAnswer:
        raw = await request.body(BATCH_BYTES_MAX)
        try:
            values = parse_body(raw)
        except BodyInvalid as error:
            raise Refused("bad_request", f"the batch: {error}") from error
        if not isinstance(values, list) or not 1 <= len(values) <= EVENTS_MAX:
            raise Refused("bad_request", f"the batch: expected a list of 1 to {EVENTS_MAX} events")
        published = [await self._publish_one(request.caller, value) for value in values]
        results = await asyncio.gather(*map(_outcome, published))
        accepted = sum(result.status == "accepted" for result in results)
        return EndpointAnswer(record=CloudEventResults(results=results, accepted=accepted), status=202)

    async def _publish_one(self, caller: Caller, value: Any) -> PublishedEvent | Refused:
        try:
            return await self._receiver.publish(caller, structured_event(value))
        except BodyInvalid as error:
            return Refused("bad_request", str(error))
        except Refused as refused:
            return request_refusal(refused)


def _binary(headers: Mapping[str, str], raw: bytes, content_type: str) -> CloudEvent:
    attributes = {name.removeprefix(PREFIX): value for name, value in headers.items() if name.startswith(PREFIX)}
    if not attributes:
        expected = f"headers ce-<attribute>, or the content type {STRUCTURED} or {BATCH}"
        raise BodyInvalid(f"expected {expected}")
    return binary_event(attributes, raw, content_type)


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
