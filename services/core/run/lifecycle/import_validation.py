"""Range checks for the numbers of an imported event: amounts are summed and times are sorted, for all runs.

A fold does not check the cost or the time of an answer, so a valid history may still contain a negative cost, or the
year 2262. Values that no installation could have written are not imported.

Before: services/application/transfer/imports.py has decoded an event. After: the import continues, or reports the
invalid value.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from loomlog.schemas.generated.run_events import Event
from loomlog.schemas.records import Record

AMOUNT_MAX = 10**12
"""Largest amount in one event, in tokens or millionths of a currency: a million of a currency. A million such events
fit 64 bits.
"""
SPAN_MS_MAX = 100 * 366 * 86_400_000
"""Longest duration or timeout, in milliseconds: a hundred years."""
CLOCK_AHEAD_MS_MAX = 86_400_000
"""Milliseconds that the clock of another installation may be ahead: a day."""
AMOUNTS = ("_tokens", "_micros", "iterations")


def value_error(event: Event, at_ms: int, now_ms: int) -> str:
    """Return the first invalid value of the event; empty if there is none."""
    if not 0 < at_ms <= now_ms + CLOCK_AHEAD_MS_MAX:
        return f"at_ms is {at_ms}: expected a time after 1970 and at most a day from now"
    for path, value in _numbers(event, type(event).__name__):
        if path.endswith(AMOUNTS):
            if not 0 <= value <= AMOUNT_MAX:
                return f"{path} is {value}: expected 0 to {AMOUNT_MAX}"
        elif path.endswith(("_at_ms", "not_before_ms")):
            if not 0 <= value <= now_ms + SPAN_MS_MAX:
                return f"{path} is {value}: expected a time in milliseconds within the next hundred years, or 0"
        elif path.endswith("_ms") and abs(value) > SPAN_MS_MAX:
            return f"{path} is {value}: expected at most {SPAN_MS_MAX}"
        elif path.endswith("_s") and not 0 <= value <= SPAN_MS_MAX // 1000:
            return f"{path} is {value}: expected 0 to {SPAN_MS_MAX // 1000}"
    return ""


def _numbers(value: Any, path: str) -> Iterator[tuple[str, int]]:
    """Yield every integer in a record, with its path."""
    if type(value) is int:
        yield path, value
    elif isinstance(value, Record):
        for name in value.__struct_fields__:
            yield from _numbers(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for number, item in enumerate(value):
            yield from _numbers(item, f"{path}[{number}]")
