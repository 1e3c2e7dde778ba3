"""Previews of the messages that a tool call published or returned, for the frames of its run.

A frame shows the beginning of a message's value. It is taken while the value is at hand in plaintext, so that neither
the stream nor the transcript has to load the result of the call.

Before: tool_result.py has a result. After: ToolReturned.details, and from it the frames channel_publish and
channel_delivery.
"""

import json
from collections.abc import Mapping
from typing import Any

from loomlog.connectors.crypto.secret_patterns import redact_secrets
from loomlog.schemas.generated.values import ChannelUse
from loomlog.schemas.records import replace

PREVIEW_CHARACTERS = 200
"""Characters of a value that a frame shows (parity)."""
PUBLISH = "publish"


def with_previews(uses: tuple[ChannelUse, ...], arguments: str, text: str) -> tuple[ChannelUse, ...]:
    """Return the uses with the beginnings of their values, likely secrets masked.

    `arguments` and `text` are the input and the result of the call in plaintext. A use without a value among them, or
    with a preview, stays as it is.
    """
    published = _parse(arguments).get("value")
    values = {message.get("id"): message.get("value") for message in _messages(_parse(text))}
    return tuple(
        [
            use
            if use.preview
            else replace(use, preview=preview_of(published if use.kind == PUBLISH else values.get(use.message_id)))
            for use in uses
        ]
    )


def preview_of(value: Any) -> str:
    """Return the beginning of a JSON value; empty for null."""
    if value is None:
        return ""
    return redact_secrets(json.dumps(value, ensure_ascii=False, separators=(",", ":")))[:PREVIEW_CHARACTERS]


def _parse(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _messages(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    messages = result.get("messages")
    return [message for message in messages if isinstance(message, dict)] if isinstance(messages, list) else []
