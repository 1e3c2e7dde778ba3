"""Schedules that a clock ahead has decided: when they begin again from now, and what does not fire again."""

from typing import Any

import pytest

from loomlog.schemas.generated.schedule_commands import PauseSchedule, ResumeSchedule
from loomlog.schemas.records import replace
from loomlog.services.families.schedule import limits
from loomlog.services.families.schedule.state import Schedule, is_beyond_rule
from tests.services.families.schedule.given import ENVELOPE, MINUTE, START, Given, names

HOUR, DAY = 60 * MINUTE, 86_400_000
LATER = START + 10_000
"""When the clock is right again."""


def ahead(times: str, by_ms: int = DAY, fires: int = 1, **fields: Any) -> Given:
    """A schedule whose owner's clock was ahead for some fires, and is right again."""
    schedule = Given(times, **fields)
    schedule.timer(START + by_ms)
    for _ in range(fires - 1):
        schedule.end()
        schedule.timer()
    if schedule.state.running:
        schedule.end()
    schedule.at_ms = LATER
    return schedule


def again(schedule: Given) -> Any:
    """Let the schedule begin again, as the process does that owns it."""
    return schedule.give(replace(schedule.command, from_now=True))


@pytest.mark.parametrize(
    ("times", "by_ms", "fields", "expected"),
    [
        ("@every 2s", DAY, {}, True),
        ("@every 2s", limits.AHEAD_MS - 10_000, {}, False),
        ("@every 2s", limits.AHEAD_MS + 60_000, {}, True),
        ("@every 48h", 72 * HOUR, {}, True),
        ("@hourly", DAY, {}, True),
        ("@hourly", HOUR, {}, False),  # only the next one was decided, and it has fired
        ("0 9 * * *", DAY, {}, False),
        ("0 9 * * *", 7 * DAY, {}, True),
        ("0 9 * * *", 7 * DAY, {"catch_up_max": 3}, True),
        ("*/5 * * * *", DAY, {"is_enabled": False}, False),
        ("0 9 1 6 *", 3 * DAY, {}, False),  # a date that the clock has not reached
        ("0 9 1 6 *", 3 * DAY, {"max_fires": 1}, False),
        ("*/5 * * * *", DAY, {"max_fires": 1}, False),  # it has fired as often as it may
    ],
)
def test_a_schedule_is_beyond_its_rule_when_its_times_give_an_earlier_instant(
    times: str, by_ms: int, fields: dict[str, Any], expected: bool
) -> None:
    schedule = ahead(times, by_ms, **fields)
    assert is_beyond_rule(schedule.state, LATER) is expected
    assert names(again(schedule)) == (["ScheduleArmed"] if expected else [])


def test_a_schedule_that_nobody_decided_is_never_beyond_its_rule() -> None:
    for times in ("@every 2s", "@every 24h", "@hourly", "0 9 1 6 *"):
        schedule = Given(times)
        assert not is_beyond_rule(schedule.state, START), times
        assert not is_beyond_rule(schedule.state, START + 40 * DAY), times
    assert not is_beyond_rule(Schedule(), START)


def test_one_that_begins_again_fires_at_its_interval() -> None:
    schedule = ahead("@every 2s", fires=6)
    (armed,) = again(schedule)
    assert armed.next_ms == LATER + 2_000
    assert not is_beyond_rule(schedule.state, LATER)
    assert again(schedule) == []
    assert names(schedule.timer()) == ["ScheduleFired"]
    assert schedule.at_ms == LATER + 2_000


def test_one_that_was_armed_by_a_clock_ahead_begins_again() -> None:
    schedule = Given()
    schedule.at_ms = START + DAY
    schedule.arm("@every 1h")
    schedule.at_ms = START
    (armed,) = again(schedule)
    assert (armed.armed_ms, armed.next_ms) == (START, START + HOUR)


def test_only_who_asks_for_it_lets_a_schedule_begin_again() -> None:
    schedule = ahead("@hourly")
    next_ms = schedule.state.next_ms
    assert schedule.give(schedule.command) == []
    (armed,) = schedule.arm("@hourly", revision=2, jitter_ms=1)
    assert armed.next_ms == next_ms


def test_what_a_clock_ahead_has_fired_does_not_fire_again() -> None:
    schedule = ahead("@hourly", fires=3)
    fired = schedule.fired
    again(schedule)
    assert schedule.state.passed == ((START + fired[0] * MINUTE, START + fired[-1] * MINUTE),)
    for _ in range(30):
        schedule.timer()
        schedule.end()
    assert sorted(schedule.fired) == [60 * hour for hour in range(1, 34)]


def test_what_passes_unseen_leaves_out_what_has_fired_before_its_time() -> None:
    schedule = ahead("* * * * *", fires=2, catch_up_max=3, overlap="allow")
    fired = set(schedule.fired)
    again(schedule)
    schedule.timer(START + DAY + 3 * MINUTE)
    instants = schedule.fired
    assert len(set(instants)) == len(instants)
    assert fired <= set(instants)


def test_a_pause_stays_as_it_is_and_the_schedule_is_right_after_it() -> None:
    schedule = ahead("@hourly")
    schedule.give(PauseSchedule(envelope=ENVELOPE, name="nightly", until_ms=START + 3 * DAY))
    again(schedule)
    assert schedule.state.paused_until_ms == START + 3 * DAY
    schedule.give(ResumeSchedule(envelope=ENVELOPE, name="nightly"))
    assert schedule.state.next_ms == START + HOUR


def test_what_was_fired_in_time_before_does_not_keep_a_schedule_from_beginning_again() -> None:
    schedule = Given("@hourly")
    for _ in range(2):
        schedule.timer()
        schedule.end()
    schedule.timer(START + DAY)
    schedule.end()
    schedule.at_ms = START + 2 * HOUR + MINUTE
    (armed,) = again(schedule)
    assert armed.next_ms == START + 3 * HOUR
    assert schedule.state.passed == ((START + DAY, START + DAY),)


@pytest.mark.parametrize(("late_ms", "newest", "count"), [(0, 23, 22), (HOUR, 23, 22), (3 * HOUR, 27, 24)])
def test_few_instants_that_pass_unseen_leave_out_what_has_fired_before_its_time(
    late_ms: int, newest: int, count: int
) -> None:
    schedule = ahead("@hourly", fires=2)
    assert schedule.fired == [24 * 60, 25 * 60]
    again(schedule)
    skipped, fired = schedule.timer(START + DAY + late_ms)
    assert (fired.instant_ms, skipped.count) == (START + newest * HOUR, count)


@pytest.mark.parametrize("late_ms", [0, MINUTE, 3 * MINUTE])
def test_many_instants_that_pass_unseen_leave_out_what_has_fired_before_its_time(late_ms: int) -> None:
    schedule = ahead("* * * * *", fires=2)
    before = schedule.fired
    again(schedule)
    schedule.timer(START + DAY + late_ms)
    (newest,) = set(schedule.fired) - set(before)
    assert newest == (before[0] - 1 if late_ms < 2 * MINUTE else 1_443)
    assert schedule.state.next_ms == START + max(before[-1] + 1, newest + 1) * MINUTE
