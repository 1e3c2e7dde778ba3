"""Syntax of the times of a schedule: five fields, a name such as @hourly, or @every with a duration.

The language of the reference: minute, hour, day of the month, month, day of the week (0 or sun is Sunday); lists,
ranges and steps; an optional `CRON_TZ=Europe/Berlin` in front.

After: schedule.py.
"""

import re

_DESCRIPTORS = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    ("day of the week", 0, 6, {name: number for number, name in enumerate(_DAYS)}),
)
_ZONE = re.compile(r"(?:CRON_)?TZ=(\S+)\s+")
_TIME_ZONE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*\Z")
_DURATION = re.compile(r"(?=.{1,32}\Z)(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+\Z", re.ASCII)
_UNIT_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_PART = re.compile(r"(\*|\?|[a-z0-9]+)(?:-([a-z0-9]+))?(?:/(\d+))?\Z", re.ASCII)


def find_cron_problem(text: str) -> str:
    """Return what is wrong with the times of a schedule, or an empty text."""
    if zone := _ZONE.match(text):
        if not is_time_zone(zone[1]):
            return "expected the name of a time zone after TZ="
        text = text[zone.end() :]
    text = text.strip()
    if text.startswith("@every "):
        return _find_duration_problem(text.removeprefix("@every ").strip())
    if text.startswith("@"):
        return "" if text in _DESCRIPTORS else f"expected @every or one of {', '.join(sorted(_DESCRIPTORS))}"
    parts = text.split()
    if len(parts) != len(_FIELDS):
        return "expected five fields (minute, hour, day of the month, month, day of the week), @hourly or @every 90m"
    problems = (_find_field_problem(part, *field) for part, field in zip(parts, _FIELDS, strict=True))
    return next(filter(None, problems), "")


def is_time_zone(name: str) -> bool:
    """Return whether a text has the form of the name of a time zone, such as Europe/Berlin."""
    return len(name) <= 64 and bool(_TIME_ZONE_NAME.match(name))


def _find_duration_problem(text: str) -> str:
    if not _DURATION.match(text):
        return "expected a duration such as 90m or 1h30m after @every"
    seconds = sum(float(number) * _UNIT_S[unit] for number, unit in re.findall(r"([\d.]+)([a-zµ]+)", text))
    return "" if seconds >= 1 else "expected a duration of at least a second after @every"


def _find_field_problem(text: str, name: str, low: int, high: int, words: dict[str, int]) -> str:
    for part in text.lower().split(","):
        expected = f"{name}: expected numbers from {low} to {high}, as in {low}, {low}-{high}, */2 or {low},{high}"
        match = _PART.match(part)
        if not match or (match[1] in "*?" and match[2]):
            return expected
        ends = [words.get(end, end) for end in (match[1], match[2]) if end and end not in "*?"]
        if not all(isinstance(end, int) or (end.isdecimal() and len(end) <= 4) for end in ends):
            return expected
        numbers = [int(end) for end in ends]
        if not all(low <= number <= high for number in numbers) or numbers != sorted(numbers):
            return expected
        if match[3] is not None and int(match[3][:9]) < 1:
            return f"{name}: expected a step of at least 1"
    return ""
