"""Times on the command line: one parser for all options that take one."""

import re
import time
from datetime import UTC, datetime

from loomlog.services.cli.errors import UsageError

RELATIVE_TIME = re.compile(r"(\d{1,6})([smhdw])\Z")
UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def parse_since(text: str, now_ms: int, *, option: str = "--since") -> int:
    """Parse a time, or an age, into epoch milliseconds. A time without a zone is UTC. Raises UsageError."""
    if match := RELATIVE_TIME.match(text.strip()):
        return now_ms - int(match[1]) * UNIT_S[match[2]] * 1_000
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(
            f"{option} is {text[:80]!r}; expected an age like 90s, 10m, 24h, 7d, or a time like 2026-01-31T12:00:00Z."
        ) from error
    return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1_000)


def to_rfc3339(text: str, *, option: str) -> str:
    """Return a time or an age as the API takes it; empty for empty. Raises UsageError."""
    if not text:
        return ""
    at_ms = parse_since(text, time.time_ns() // 1_000_000, option=option)
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
