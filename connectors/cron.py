"""The times of a schedule: five fields, a name such as @hourly, or @every with a duration; and the instants they name.

The language of the reference: minute, hour, day of the month, month, day of the week (0, 7 or sun is Sunday); lists,
ranges and steps, with blanks or tabs between the fields; an optional `CRON_TZ=Europe/Berlin` in front. Instants are
those of Debian's cron: a time that the change to summer time leaves out comes when the clock has moved on, and a time
that the change back repeats comes once, if neither minute nor hour begins with a star.

Not chosen: arithmetic of our own. cronsim has these rules, and its tests compare it with Debian's cron.

After: schedule.py; services/families/schedule/instants.py.
"""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from importlib import resources
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

JITTER_MS_MAX = 3_600_000
"""Most milliseconds by which a fire is moved, an hour: more is another schedule."""
CATCH_UP_MAX = 100
"""Instants that are made up for one by one; all of them are in the state while they wait."""
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAY_OF_WEEK, SUNDAY = "day of the week", 7
"""The last day of a week that begins on Monday; 0 is Sunday too."""
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    (DAY_OF_WEEK, 0, SUNDAY, {name: number for number, name in enumerate(_DAYS)}),
)
_ZONE = re.compile(r"(?:CRON_)?TZ=(\S+)\s+")
_TIME_ZONE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*\Z")
_DURATION = re.compile(r"(?=.{1,32}\Z)(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+\Z", re.ASCII)
_UNIT_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_PART = re.compile(r"(\*|\?|[a-z0-9]+)(?:-([a-z0-9]+))?(?:/(\d+))?\Z", re.ASCII)
EVERY = "@every "
EVERY_S_MAX = 10 * 366 * 86_400
"""Longest interval of @every, ten years."""
LAST_MS = 4_102_444_800_000
"""The year 2100: later instants are never reached, and calendars end somewhere."""
FIRST_WINDOW_MS = 60_000
SHOWN_CHARACTERS = 20
"""Characters of a wrong part that a message repeats."""
DAY_MS = 86_400_000
SAMPLE_DAY_MS = 1_735_689_600_000
"""1 January 2025: a day of which instants are counted."""


def find_cron_problem(text: str) -> str:
    """Return what is wrong with the times of a schedule, or an empty text."""
    if zone := _ZONE.match(text):
        if not is_time_zone(zone[1]):
            return "expected the name of a time zone after TZ="
        text = text[zone.end() :]
    text = text.strip()
    if text.startswith(EVERY):
        return _find_duration_problem(text.removeprefix(EVERY).strip())
    if text.startswith("@"):
        known = ", ".join(sorted(_DESCRIPTORS))
        return "" if text in _DESCRIPTORS else f"expected @every or one of {known}"
    parts = text.split()
    if len(parts) != len(_FIELDS):
        return "expected five fields (minute, hour, day of the month, month, day of the week), @hourly or @every 90m"
    problems = (_find_field_problem(part, *field) for part, field in zip(parts, _FIELDS, strict=True))
    return next(filter(None, problems), "") or _find_date_problem(parts)


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    return frozenset(resources.files("tzdata").joinpath("zones").read_text(encoding="utf-8").split())


def is_time_zone(name: str) -> bool:
    """Return whether a text is the name of a time zone of the IANA database, such as Europe/Berlin."""
    return len(name) <= 64 and bool(_TIME_ZONE_NAME.match(name)) and name in _zone_names()


def _duration_s(text: str) -> float:
    return sum(float(number) * _UNIT_S[unit] for number, unit in re.findall(r"([\d.]+)([a-zµ]+)", text))


def _find_duration_problem(text: str) -> str:
    if not _DURATION.match(text):
        return "expected a duration such as 90m or 1h30m after @every"
    seconds = _duration_s(text)
    if seconds > EVERY_S_MAX:
        return "expected a duration of at most ten years after @every"
    return "" if seconds >= 1 else "expected a duration of at least a second after @every"


def _find_field_problem(text: str, name: str, low: int, high: int, words: dict[str, int]) -> str:
    sundays = " (0 and 7 are Sunday)" if name == DAY_OF_WEEK else ""
    for part in (_end_on_sunday(part) if sundays else part for part in text.lower().split(",")):
        examples = f"as in {low}, {low}-{high}, */2 or {low},{high}"
        expected = (
            f"{name}: expected numbers from {low} to {high}{sundays}, {examples}; got {part[:SHOWN_CHARACTERS]!a}"
        )
        match = _PART.match(part)
        if not match or (match[1] in "*?" and match[2]):
            return expected
        ends = [words.get(end, end) for end in (match[1], match[2]) if end and end not in "*?"]
        if not all(isinstance(end, int) or (end.isdecimal() and len(end) <= 4) for end in ends):
            return expected
        numbers = [int(end) for end in ends]
        if not all(low <= number <= high for number in numbers):
            return expected
        if numbers != sorted(numbers):
            return f"{name}: expected a range that goes up, from the smaller number to the larger; got {part!a}"
        if match[3] is not None and int(match[3][:9]) < 1:
            return f"{name}: expected a step of at least 1"
    return ""


def _find_date_problem(parts: Sequence[str]) -> str:
    try:
        CronSim(_simple(parts), datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError:
        return "day of the month: no month of these has such a day"
    return ""


def _simple(parts: Sequence[str]) -> str:
    """Return the fields as cronsim reads them, which has no `?` and no range from a weekday to sun."""
    *others, days = " ".join(parts).replace("?", "*").lower().split()
    return " ".join((*others, ",".join(map(_end_on_sunday, days.split(",")))))


def _end_on_sunday(part: str) -> str:
    """Return a part of the days of the week in which a range that ends on Sunday ends with 7: fri-sun is fri-7."""
    match = _PART.match(part)
    is_range = match is not None and match[2] == _DAYS[0] and match[1] not in (_DAYS[0], "0")
    return part.replace(f"-{_DAYS[0]}", f"-{SUNDAY}") if is_range else part


# --- instants --------------------------------------------------------------------------------------------------------


class Times:
    """Times that have no problem, with their zone. All instants are UTC milliseconds.

    `anchor_ms`: where the intervals of @every begin.
    """

    __slots__ = ("_anchor_ms", "_every_ms", "_expression", "zone")

    def __init__(self, text: str, zone: str = "", anchor_ms: int = 0) -> None:
        if named := _ZONE.match(text):
            zone, text = named[1], text[named.end() :]
        text = text.strip()
        self._every_ms = 0
        self._expression = ""
        self._anchor_ms = anchor_ms
        self.zone = zone or "UTC"
        if text.startswith(EVERY):
            self._every_ms = max(1_000, round(_duration_s(text.removeprefix(EVERY).strip()) * 1000))
        elif text:
            self._expression = _DESCRIPTORS.get(text) or _simple(text.split())

    def next(self, after_ms: int) -> int:
        """Return the first instant after a time; 0 when there is none before the year 2100."""
        return next(self.after(after_ms), 0)

    def after(self, after_ms: int) -> Iterator[int]:
        """Yield the instants after a time, ascending."""
        if after_ms >= LAST_MS:
            return
        if self._every_ms:
            yield from self._intervals(after_ms)
        elif self._expression:
            yield from self._dates(max(0, after_ms))

    def fires_a_day(self) -> int:
        """Return the number of instants of a day: for dates those of 1 January 2025, a Wednesday, and at least one."""
        if self._every_ms:
            return max(1, DAY_MS // self._every_ms)
        return max(1, sum(1 for _ in self._up_to(SAMPLE_DAY_MS - 1, SAMPLE_DAY_MS + DAY_MS - 1)))

    def _intervals(self, after_ms: int) -> Iterator[int]:
        passed = max(0, (after_ms - self._anchor_ms) // self._every_ms)
        instant = self._anchor_ms + (passed + 1) * self._every_ms
        while instant < LAST_MS:
            yield instant
            instant += self._every_ms

    def _dates(self, after_ms: int) -> Iterator[int]:
        zone: Any = UTC if self.zone == "UTC" else ZoneInfo(self.zone)
        # Of an hour that comes twice cronsim takes the first, also after the second: hence the comparison.
        start, last = datetime.fromtimestamp(after_ms // 1000, zone), after_ms
        for date in CronSim(self._expression, start):
            instant = int(date.timestamp()) * 1000
            if instant >= LAST_MS:
                return
            if instant > last:
                yield instant
                last = instant

    def latest(self, after_ms: int, until_ms: int, count: int) -> list[int]:
        """Return the last `count` instants after a time, up to and with another; costs little however far it is."""
        until_ms = min(until_ms, LAST_MS - 1)
        if self._every_ms:
            newest = self._anchor_ms + (until_ms - self._anchor_ms) // self._every_ms * self._every_ms
            earliest = max(after_ms, self._anchor_ms, newest - count * self._every_ms)
            return [instant for instant in self._up_to(earliest, newest) if instant > after_ms]
        window_ms = FIRST_WINDOW_MS
        while True:
            start_ms = max(after_ms, until_ms - window_ms)
            instants = deque(self._up_to(start_ms, until_ms), maxlen=count)
            if len(instants) == count or start_ms == after_ms:
                return list(instants)
            window_ms *= 2

    def _up_to(self, after_ms: int, until_ms: int) -> Iterator[int]:
        for instant in self.after(after_ms):
            if instant > until_ms:
                return
            yield instant


@lru_cache(maxsize=10_000)
def parse_times(text: str, zone: str = "", anchor_ms: int = 0) -> Times:
    """Return times that were checked with find_cron_problem; an empty text has no instants."""
    return Times(text, zone, anchor_ms)
