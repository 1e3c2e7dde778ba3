"""Instants of schedules: many zones, the changes to and from summer time, and bounds."""

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.connectors.cron import LAST_MS, Times, find_cron_problem, is_time_zone

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/St_Johns",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Africa/Casablanca",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Antarctica/Troll",
)
EXPRESSIONS = (
    "* * * * *",
    "*/5 * * * *",
    "30 2 * * *",
    "15,45 1-3 * * *",
    "0 */2 * * *",
    "0 9 * * mon-fri",
    "0 0 29 2 *",
    "0 0 1,15 * 3",
    "@hourly",
    "@weekly",
    "CRON_TZ=Asia/Tokyo 0 6 * * *",
)


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def local(times: Times, after: str, count: int) -> list[str]:
    """Return the next instants in their zone."""
    zone = ZoneInfo(times.zone)
    instants = islice(times.after(ms(after)), count)
    return [datetime.fromtimestamp(one / 1000, zone).isoformat(timespec="minutes") for one in instants]


@pytest.mark.parametrize(
    ("text", "zone", "after", "expected"),
    [
        # A time that is left out comes when the clock has moved on.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00+01:00", ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"]),
        (
            "15,45 2 * * *",
            "Europe/Berlin",
            "2026-03-29T00:00+01:00",
            ["2026-03-29T03:00+02:00", "2026-03-30T02:15+02:00"],
        ),
        # A time that is repeated comes once.
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00+02:00", ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]),
        (
            "30 1 * * *",
            "America/New_York",
            "2026-10-31T12:00-04:00",
            ["2026-11-01T01:30-04:00", "2026-11-02T01:30-05:00"],
        ),
        # Asked between the two: the second one does not come.
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T02:45+02:00", ["2026-10-26T02:30+01:00"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T02:15+01:00", ["2026-10-26T02:30+01:00"]),
        # With a star the clock is followed: both hours have their minutes.
        (
            "*/30 * * * *",
            "Europe/Berlin",
            "2026-10-25T01:45+02:00",
            ["2026-10-25T02:00+02:00", "2026-10-25T02:30+02:00", "2026-10-25T02:00+01:00", "2026-10-25T02:30+01:00"],
        ),
        ("@hourly", "Europe/Berlin", "2026-03-29T01:30+01:00", ["2026-03-29T03:00+02:00", "2026-03-29T04:00+02:00"]),
        # Half an hour of summer time.
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T12:00+10:30",
            ["2026-10-04T02:30+11:00", "2026-10-05T02:15+11:00"],
        ),
        # A zone that left out a whole day.
        ("0 9 * * *", "Pacific/Apia", "2011-12-29T12:00-10:00", ["2011-12-31T00:00+14:00", "2011-12-31T09:00+14:00"]),
        ("0 9 * * 1-5", "Asia/Kathmandu", "2026-05-01T10:00+05:45", ["2026-05-04T09:00+05:45"]),
        ("CRON_TZ=Asia/Tokyo 0 6 * * *", "Europe/Berlin", "2026-01-01T00:00+09:00", ["2026-01-01T06:00+09:00"]),
        ("0 0 29 2 *", "", "2026-01-01T00:00+00:00", ["2028-02-29T00:00+00:00", "2032-02-29T00:00+00:00"]),
        # Seven is Sunday, alone, in lists and at the end of ranges, and so is the name; tabs are blanks.
        ("0 9 * * 7", "", "2026-01-01T00:00+00:00", ["2026-01-04T09:00+00:00", "2026-01-11T09:00+00:00"]),
        ("0 9 * * 0,7", "", "2026-01-01T00:00+00:00", ["2026-01-04T09:00+00:00", "2026-01-11T09:00+00:00"]),
        *(
            (f"0 9 * * {days}", "", "2026-01-01T00:00+00:00", [f"2026-01-0{day}T09:00+00:00" for day in (2, 3, 4, 9)])
            for days in ("5-7", "fri-sun", "FRI-7", "5-sun", "fri,6-sun", "5,6,0")
        ),
        ("0 9 * * sun-mon", "", "2026-01-01T00:00+00:00", ["2026-01-04T09:00+00:00", "2026-01-05T09:00+00:00"]),
        ("0 9 * * sun-sun", "", "2026-01-01T00:00+00:00", ["2026-01-04T09:00+00:00", "2026-01-11T09:00+00:00"]),
        ("0 9\t*\t* *", "", "2026-01-01T00:00+00:00", ["2026-01-01T09:00+00:00"]),
        # A star in a day's field: both must fit; without, either.
        ("0 0 */2 * sun", "", "2026-11-01T00:00+00:00", ["2026-11-15T00:00+00:00"]),
        ("0 0 13 * fri", "", "2026-11-01T00:00+00:00", ["2026-11-06T00:00+00:00", "2026-11-13T00:00+00:00"]),
    ],
)
def test_instants(text: str, zone: str, after: str, expected: list[str]):
    assert find_cron_problem(text) == ""
    assert local(Times(text, zone), after, len(expected)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@every 90m", ["2026-01-01T02:30+00:00", "2026-01-01T04:00+00:00"]),
        ("@every 1h30m", ["2026-01-01T02:30+00:00", "2026-01-01T04:00+00:00"]),
        ("@every 24h", ["2026-01-02T01:00+00:00"]),
    ],
)
def test_intervals_begin_at_the_anchor(text: str, expected: list[str]):
    times = Times(text, "", ms("2026-01-01T01:00+00:00"))
    assert local(times, "2026-01-01T01:00+00:00", len(expected)) == expected


def test_an_interval_of_a_fraction_of_a_second_is_kept_and_a_clock_before_the_anchor_waits_for_it():
    times = Times("@every 1.5s", "", 10_000)
    assert list(islice(times.after(10_000), 3)) == [11_500, 13_000, 14_500]
    assert times.next(0) == 11_500


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0 0 30 2 *", "no month of these has such a day"),
        ("0 0 31 2,4,6 *", "no month of these has such a day"),
        ("CRON_TZ=Mars/Base * * * * *", "expected the name of a time zone"),
        ("TZ=Europe/Berlin\t99 * * * *", "minute: expected"),
        ("0 9 * * 8", "numbers from 0 to 7 (0 and 7 are Sunday), as in 0, 0-7, */2 or 0,7; got '8'"),
        ("0 9 * * sat-fri", "expected a range that goes up, from the smaller number to the larger; got 'sat-fri'"),
        ("0 9 * * mon-", "day of the week: expected numbers"),
        ("0 9 * sun *", "month: expected numbers from 1 to 12, as in 1, 1-12, */2 or 1,12; got 'sun'"),
        ("@every 1ns", "at least a second"),
        ("@every 999999999999h", "at most ten years"),
    ],
)
def test_times_that_never_come_are_refused_with_what_is_wrong(text: str, problem: str):
    assert problem in find_cron_problem(text)


@pytest.mark.parametrize(
    "name", ["europe/berlin", "Europe/Berlim", "../UTC", "", "Europe/Berlin\n", "zone.tab", "posix"]
)
def test_what_is_no_zone(name: str):
    assert not is_time_zone(name)


@pytest.mark.parametrize("zone", ZONES)
def test_zones_there_are(zone: str):
    assert is_time_zone(zone)


def test_there_is_an_end():
    assert Times("* * * * *").next(LAST_MS) == 0
    assert Times("* * * * *").next(1 << 62) == 0
    assert Times("@every 1s").next(LAST_MS - 1) == 0
    assert Times("").next(0) == 0
    assert Times("* * * * *").next(-5) == 60_000


@given(
    text=st.sampled_from(EXPRESSIONS),
    zone=st.sampled_from(ZONES),
    after=st.datetimes(datetime(2000, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
@settings(max_examples=200, deadline=None)
def test_instants_increase_and_follow_from_any_of_them(text: str, zone: str, after: datetime):
    times, after_ms = Times(text, zone), int(after.timestamp() * 1000)
    instants = list(islice(times.after(after_ms), 8))
    assert all(one < other for one, other in zip([after_ms, *instants], instants, strict=False))
    # One by one, as a schedule asks, or all at once: the same.
    asked, last = [], after_ms
    for _ in instants:
        last = times.next(last)
        asked.append(last)
    assert asked == instants


@given(
    text=st.sampled_from((*EXPRESSIONS, "@every 7s", "@every 36h")),
    zone=st.sampled_from(ZONES),
    after=st.datetimes(datetime(2010, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    passed=st.timedeltas(timedelta(0), timedelta(days=2)),
    count=st.integers(1, 5),
)
@settings(max_examples=150, deadline=None)
def test_the_latest_are_the_end_of_all(text: str, zone: str, after: datetime, passed: timedelta, count: int):
    times, after_ms = Times(text, zone, 1_000_000_000_000), int(after.timestamp() * 1000)
    until_ms = after_ms + int(passed.total_seconds() * 1000)
    everything = []
    for instant in times.after(after_ms):
        if instant > until_ms or len(everything) > 30_000:
            break
        everything.append(instant)
    assert times.latest(after_ms, until_ms, count) == everything[-count:]


def test_the_latest_of_decades_cost_little():
    times = Times("* * * * *", "Europe/Berlin")
    until_ms = ms("2026-11-25T10:00:30+00:00")
    assert times.latest(0, until_ms, 2) == [ms("2026-11-25T09:59+00:00"), ms("2026-11-25T10:00+00:00")]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("@every 1s", 86_400),
        ("@every 90m", 16),
        ("@every 48h", 1),
        ("* * * * *", 1_440),
        ("@daily", 1),
        ("0 9 * * 6", 1),
    ],
)
def test_how_often_times_fire_in_a_day(text: str, count: int) -> None:
    assert Times(text).fires_a_day() == count
