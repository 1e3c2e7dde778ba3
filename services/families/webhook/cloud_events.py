"""CloudEvents 1.0 as loom.ingress and POST /v1/events take them: binary and structured mode. Pure.

Attributes beyond those of the standard say where an event goes, exactly one of the first two:

    webhook    name of a webhook, which takes it without a signature: who may write there has been checked before
    channel    name of a channel, to which its data is published
    scopeid    user or agent, of a channel with such a scope
    tenant     tenant of either; only over Kafka, by default `default`

The data is JSON, or text, which becomes a JSON text; in structured mode a text stays one, as the standard says. The id
of its delivery is made of source and id, which together are unique.

Before: ingress_records.py, cloud_event_endpoints.py. After: SubmitDelivery.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from loomlog.schemas.records import Value
from loomlog.services.families.webhook.bodies import BodyInvalid, parse_body
from loomlog.services.families.webhook.limits import ATTRIBUTE_CHARACTERS_MAX, BODY_BYTES, DELIVERY_ID_CHARACTERS_MAX

STRUCTURED, BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"
REQUIRED = ("id", "source", "type")
TENANT_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z", re.ASCII)
DEFAULT_TENANT = "default"


class CloudEvent(Value, frozen=True, kw_only=True):
    """An event and where it goes."""

    id: str
    source: str
    type: str
    text: str
    """Its data as JSON."""
    webhook: str = ""
    channel: str = ""
    scope_id: str = ""
    tenant: str = DEFAULT_TENANT

    @property
    def delivery_id(self) -> str:
        """Return the id of its delivery."""
        text = f"{self.source}#{self.id}"
        if len(text) <= DELIVERY_ID_CHARACTERS_MAX:
            return text
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def structured_event(value: Any) -> CloudEvent:
    """Return the event of a JSON object. Raises BodyInvalid."""
    if not isinstance(value, Mapping):
        raise BodyInvalid("a CloudEvent must be a JSON object")
    if "data_base64" in value:
        raise BodyInvalid("data_base64: only JSON and text are taken; send them as data")
    attributes = {name: text for name, text in value.items() if isinstance(text, str) and name != "data"}
    data = value.get("data")
    return _event(attributes, json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def binary_event(attributes: Mapping[str, str], data: bytes, content_type: str) -> CloudEvent:
    """Return the event of attributes (without their prefix) and data. Raises BodyInvalid."""
    if not data:
        text = "null"
    elif _is_json(content_type or "application/json"):
        try:
            parse_body(data)
        except BodyInvalid as error:
            raise BodyInvalid(f"data: {error}") from error
        text = data.decode()
    elif content_type.partition("/")[0].strip().lower() == "text":
        try:
            text = json.dumps(data.decode().replace("\0", "\ufffd"), ensure_ascii=False)
        except UnicodeDecodeError as error:
            raise BodyInvalid(f"data: it is not UTF-8: {error.reason} at byte {error.start}") from error
    else:
        raise BodyInvalid(f"the content type is {content_type[:80]!r}: only JSON and text are taken")
    return _event(attributes, text)


def _event(attributes: Mapping[str, str], text: str) -> CloudEvent:
    if attributes.get("specversion") != "1.0":
        shown = attributes.get("specversion", "")[:20]
        raise BodyInvalid(f"specversion is {shown!r}: expected '1.0'")
    for name in (*REQUIRED, "webhook", "channel", "scopeid", "tenant"):
        value = attributes.get(name, "")
        if name in REQUIRED and not value:
            raise BodyInvalid(f"{name} is missing")
        if len(value) > ATTRIBUTE_CHARACTERS_MAX or not value.isprintable():
            raise BodyInvalid(f"{name}: expected at most {ATTRIBUTE_CHARACTERS_MAX} printable characters")
    webhook, channel = attributes.get("webhook", ""), attributes.get("channel", "")
    if bool(webhook) == bool(channel):
        raise BodyInvalid("expected one of the attributes webhook and channel, which say where the event goes")
    tenant = attributes.get("tenant", "") or DEFAULT_TENANT
    if not TENANT_NAME.match(tenant):
        raise BodyInvalid("tenant: expected at most 64 letters, digits, _ and -")
    if len(text.encode("utf-8", "replace")) > BODY_BYTES:
        raise BodyInvalid(f"data: at most {BODY_BYTES} bytes are taken")
    return CloudEvent(
        id=attributes["id"],
        source=attributes["source"],
        type=attributes["type"],
        text=text,
        webhook=webhook,
        channel=channel,
        scope_id=attributes.get("scopeid", ""),
        tenant=tenant,
    )


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind in ("application/json", "text/json") or kind.endswith("+json")
