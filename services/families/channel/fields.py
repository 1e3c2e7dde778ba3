"""Checks of the fields of operations: each returns the value or raises Refused(invalid_request) that names it.

Before: operations.py. After: nothing. Pure.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from loomlog.connectors.configuration.channel_block import MAX_TTL_S, parse_duration_s
from loomlog.services.core.refusals import Refused
from loomlog.services.families.channel import limits
from loomlog.services.families.operation import json_text, whole_number

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")


def refuse(message: str) -> Refused:
    """Return the refusal of a field."""
    return Refused("invalid_request", message)


def channel_name(name: str) -> str:
    """Return the name of a channel. Whether it is declared is asked later."""
    if ".." in name or "//" in name:
        raise refuse(f"channel: {name[:60]!r} has .. or //; expected a name such as orders/new")
    return name


def channel_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return names of channels, each once."""
    return tuple(dict.fromkeys(map(channel_name, names)))


def value_text(value: Any, bytes_max: int) -> str:
    """Return the JSON text of a value. Raises Refused(payload_too_large) too."""
    if value is None:
        raise refuse("value: it is missing or null; expected any other JSON")
    text = json_text(value, code="invalid_request")
    size = len(text.encode())
    if size > bytes_max:
        raise Refused("payload_too_large", f"value: it has {size} bytes as JSON, at most {bytes_max} are taken")
    return text


def ttl_ms(ttl: Any, default_s: int) -> int:
    """Return milliseconds until a message is gone: seconds, or a duration such as 90s; absent or 0: the default."""
    try:
        seconds = parse_duration_s(ttl)
    except ValueError as error:
        raise refuse(f"ttl: {error}, not {str(ttl)[:60]!r}") from error
    if seconds is None:
        return 1000 * default_s
    return 1000 * (whole_number("ttl", seconds, least=0, most=MAX_TTL_S, code="invalid_request") or default_s)


def deliver_at_ms(text: str, now_ms: int) -> int:
    """Return when a message becomes visible, UTC milliseconds; 0: at once, also for a time that is past."""
    if not text:
        return 0
    at_ms = _parse_rfc3339(text)
    if at_ms is None:
        raise refuse(f"deliver_at: expected a time of RFC 3339 such as 2026-01-31T12:00:00Z, not {text[:60]!r}")
    if at_ms > now_ms + limits.DELAY_MS_MAX:
        raise refuse(f"deliver_at: {text[:60]} is more than 30 days ahead")
    return at_ms if at_ms > now_ms else 0


def _parse_rfc3339(text: str) -> int | None:
    if _RFC3339.fullmatch(text) is None:
        return None
    try:
        return int(datetime.fromisoformat(text.upper().replace(" ", "T")).astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
