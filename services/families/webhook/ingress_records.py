"""What a record of loom.ingress says: a SubmitDelivery of ours, or a CloudEvent of anything else.

    ours         Avro in Confluent framing
    binary       the attributes in headers `ce_<name>`, the data as value
    structured   the header content-type is application/cloudevents+json, the event as value

Before: reader.py. After: deliveries.py.
"""

from collections.abc import Mapping

from loomlog.connectors.protocols import LogRecord
from loomlog.schemas.codec import Codec, Undecodable
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.generated.webhook_commands import SubmitDelivery
from loomlog.services.families.webhook.bodies import BodyInvalid, parse_body
from loomlog.services.families.webhook.cloud_events import (
    STRUCTURED,
    TENANT_NAME,
    CloudEvent,
    binary_event,
    structured_event,
)
from loomlog.services.families.webhook.limits import BODY_BYTES

MAGIC = b"\0"
"""First byte of Confluent framing; no JSON begins with it."""
PREFIX = "ce_"
COMMAND_ID_CHARACTERS_MAX = 200
VALUE_BYTES_MAX = BODY_BYTES + 64 * 1024


class Unreadable(Exception):
    """A record that is neither; the text says why."""


def read_record(record: LogRecord, codec: Codec) -> SubmitDelivery:
    """Return what a record submits. Raises Unreadable."""
    value = record.value or b""
    if value[:1] == MAGIC:
        try:
            submitted = codec.decode(value).record
        except Undecodable as error:
            raise Unreadable(str(error)) from error
        if not isinstance(submitted, SubmitDelivery):
            raise Unreadable(f"a {type(submitted).__name__} is nothing that comes from outside")
        return _checked(submitted)
    if len(value) > VALUE_BYTES_MAX:
        raise Unreadable(f"the value has {len(value)} bytes: at most {VALUE_BYTES_MAX} are read")
    try:
        return _submission(record, _cloud_event(value, _headers(record)))
    except BodyInvalid as error:
        raise Unreadable(f"it is no CloudEvent that can be taken: {error}") from error


def _checked(submitted: SubmitDelivery) -> SubmitDelivery:
    """Return a record of ours whose ids an owner takes: one that it does not even answer would be asked about for ever.

    Raises Unreadable.
    """
    envelope = submitted.envelope
    if not 1 <= len(envelope.command_id) <= COMMAND_ID_CHARACTERS_MAX or not envelope.command_id.isprintable():
        raise Unreadable(f"command_id: expected 1 to {COMMAND_ID_CHARACTERS_MAX} printable characters")
    if not TENANT_NAME.match(envelope.tenant):
        raise Unreadable("tenant: expected 1 to 64 letters, digits, _ and -")
    return submitted


def _headers(record: LogRecord) -> Mapping[str, str]:
    """Return the headers that an event is made of. Raises BodyInvalid for one that is not UTF-8."""
    headers = {}
    for name, value in record.headers:
        known = name.lower()
        if known == "content-type" or known.startswith(PREFIX):
            try:
                headers[known] = (value or b"").decode()
            except UnicodeDecodeError as error:
                raise BodyInvalid(f"the header {known[:80]} is not UTF-8") from error
    return headers


def _cloud_event(value: bytes, headers: Mapping[str, str]) -> CloudEvent:
    content_type = headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() == STRUCTURED:
        return structured_event(parse_body(value))
    attributes = {name.removeprefix(PREFIX): text for name, text in headers.items() if name.startswith(PREFIX)}
    if not attributes:
        raise BodyInvalid("it has neither headers ce_<attribute> nor the content-type " + STRUCTURED)
    return binary_event(attributes, value, content_type)


def _submission(record: LogRecord, event: CloudEvent) -> SubmitDelivery:
    # The offsets of a topic that was made again begin at 0, so the time is part of the id.
    command_id = f"ingress:{record.partition}:{record.offset}:{record.timestamp}"
    return SubmitDelivery(
        envelope=CommandEnvelope(
            command_id=command_id, tenant=event.tenant, subject="", issued_at_ms=max(0, record.timestamp)
        ),
        name=event.webhook,
        address=event.tenant,
        channel=event.channel,
        scope_id=event.scope_id,
        delivery_id=event.delivery_id,
        received_at_ms=max(0, record.timestamp),
        body=event.text,
    )
