"""Calendar months in UTC, computed without a clock: milliseconds since 1970 in, YYYY-MM out."""

from datetime import UTC, datetime
from functools import lru_cache

DAY_MS = 86_400_000
LAST_DAY = 2_932_896
"""Last day of the year 9999, in days since 1970; a later time, from a wrong clock, counts as that day."""


def month_of(at_ms: int) -> str:
    """Return the month of a time; months sort as strings."""
    return _month_of_day(min(max(at_ms // DAY_MS, 0), LAST_DAY))


@lru_cache(maxsize=64)
def _month_of_day(day: int) -> str:
    return datetime.fromtimestamp(day * 86_400, UTC).strftime("%Y-%m")


def day_of(at_ms: int) -> str:
    """Return the day of a time, YYYY-MM-DD."""
    day = min(max(at_ms // DAY_MS, 0), LAST_DAY)
    return datetime.fromtimestamp(day * 86_400, UTC).date().isoformat()


def first_day(month: str) -> str:
    """Return the first day of a month, YYYY-MM-01."""
    return f"{month}-01"
