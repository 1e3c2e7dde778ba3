"""Checks of the fields of operations: each returns the value or raises Refused(invalid_request) that names it.

Before: operations.py. After: nothing. Pure.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from loomlog.connectors.configuration.channel_block import MAX_TTL_S, parse_duration_s
from loomlog.services.core.refusals import Refused
from loomlog.services.families.channel import limits
from loomlog.services.families.operation import json_text, whole_number

CHANNELS_MAX = 32
"""Channels of one await or broadcast."""
MESSAGES_MAX = limits.READ_MAX
WAIT_MS_MAX = 24 * 3_600_000
"""Longest wait that may be asked for; the cap of the installation applies."""
CURSOR_CHARACTERS_MAX = 200
MODES = ("any", "all", "at_least")
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")


def refuse(message: str) -> Refused:
    """Return the refusal of a field."""
    return Refused("invalid_request", message)


def text_field(fields: Mapping[str, Any], name: str, *, default: str | None = None, most: int) -> str:
    """Return a text of at most `most` characters; without a default it is required and not empty."""
    value = fields.get(name)
    if value is None:
        value = default
    if not isinstance(value, str) or (default is None and not value):
        problem = "it is missing" if value is None else f"not {type(value).__name__}" if value != "" else "it is empty"
        raise refuse(f"{name}: expected text; {problem}")
    if len(value) > most or not value.isprintable():
        raise refuse(f"{name}: expected at most {most} characters that can be printed, not {value[:60]!r}")
    return value


def integer_field(fields: Mapping[str, Any], name: str, *, default: int | None, least: int, most: int) -> int:
    """Return a whole number within the bounds; 3.0 is one, as in JSON Schema."""
    value = default if fields.get(name) is None else fields[name]
    return whole_number(name, value, least=least, most=most, code="invalid_request")


def channel_name(value: Any) -> str:
    """Return the name of a channel. Whether it is declared is asked later."""
    if not isinstance(value, str) or not value:
        raise refuse(f"channel: expected the name of a channel, not {str(value)[:60]!r}")
    if ".." in value or "//" in value:
        raise refuse(f"channel: {value[:60]!r} has .. or //; expected a name such as orders/new")
    if len(value) > limits.NAME_CHARACTERS_MAX or not value.isprintable():
        raise refuse(
            f"channel: expected at most {limits.NAME_CHARACTERS_MAX} characters that can be printed, not {value[:60]!r}"
        )
    return value


def channel_names(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of `channels`, each once."""
    names = fields.get("channels")
    if not isinstance(names, Sequence) or isinstance(names, str) or not names:
        raise refuse("channels: expected a list of names")
    unique = tuple(dict.fromkeys(channel_name(name) for name in names))
    if len(unique) > CHANNELS_MAX:
        raise refuse(f"channels: {len(unique)} are named, at most {CHANNELS_MAX} are taken")
    return unique


def value_text(value: Any, bytes_max: int) -> str:
    """Return the JSON text of a value. Raises Refused(payload_too_large) too."""
    if value is None:
        raise refuse("value: it is missing or null; expected any other JSON")
    text = json_text(value, code="invalid_request")
    size = len(text.encode())
    if size > bytes_max:
        raise Refused("payload_too_large", f"value: it has {size} bytes as JSON, at most {bytes_max} are taken")
    return text


def ttl_field(fields: Mapping[str, Any], default_s: int) -> int:
    """Return milliseconds until a message is gone: seconds, or a duration such as 90s; absent or 0: the default."""
    value = fields.get("ttl")
    try:
        value = parse_duration_s(value)
    except ValueError as error:
        raise refuse(f"ttl: {error}, not {str(fields['ttl'])[:60]!r}") from error
    return 1000 * (integer_field({"ttl": value}, "ttl", default=0, least=0, most=MAX_TTL_S) or default_s)


def deliver_at_field(fields: Mapping[str, Any], now_ms: int) -> int:
    """Return when a message becomes visible, UTC milliseconds; 0: at once, also for a time that is past."""
    value = fields.get("deliver_at")
    if value is None or value == "":
        return 0
    at_ms = _parse_rfc3339(value) if isinstance(value, str) else None
    if at_ms is None:
        raise refuse(f"deliver_at: expected a time of RFC 3339 such as 2026-01-31T12:00:00Z, not {str(value)[:60]!r}")
    if at_ms > now_ms + limits.DELAY_MS_MAX:
        raise refuse(f"deliver_at: {value[:60]} is more than 30 days ahead")
    return at_ms if at_ms > now_ms else 0


def _parse_rfc3339(text: str) -> int | None:
    if _RFC3339.fullmatch(text) is None:
        return None
    try:
        return int(datetime.fromisoformat(text.upper().replace(" ", "T")).astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def mode_field(fields: Mapping[str, Any], channels: int) -> tuple[str, int]:
    """Return how an await ends, and how many messages at_least needs (0 for the other modes)."""
    mode = fields.get("mode")
    if mode is None or mode == "":
        mode = "any"
    if mode not in MODES:
        raise refuse(f"mode: expected one of {', '.join(MODES)}, not {str(mode)[:60]!r}")
    most = limits.READ_MAX * channels
    if mode != "at_least":
        integer_field(fields, "n", default=0, least=0, most=most)
        return mode, 0
    return mode, integer_field(fields, "n", default=None, least=1, most=most)


def format_ns(at_ns: int) -> str:
    """Return a time as RFC 3339 with nine digits after the second."""
    seconds, rest = divmod(at_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
