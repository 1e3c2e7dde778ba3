"""Times in requests and answers.

Before: endpoints, and handlers of operations. After: milliseconds and nanoseconds since 1970, UTC.
"""

import re
from datetime import UTC, datetime

from loomlog.services.core.refusals import Refused

SHOWN_CHARACTERS_MAX = 60
TIME_PATTERN = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:?\d{2})?)?\Z")


def parse_time_ms(name: str, value: str) -> int:
    """Parse an RFC 3339 time (a date alone is its start, without a zone it is UTC) into milliseconds.

    Raises Refused(bad_request).
    """
    try:
        if not TIME_PATTERN.match(value):
            raise ValueError
        time = datetime.fromisoformat(value)
    except ValueError as error:
        text = f"{name} is {value[:SHOWN_CHARACTERS_MAX]!r}: expected a time like 2026-01-31T12:00:00Z"
        raise Refused("bad_request", text) from error
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


def format_ns(at_ns: int) -> str:
    """Return a time as RFC 3339 with nine digits after the second."""
    seconds, rest = divmod(at_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
