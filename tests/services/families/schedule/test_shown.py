"""What the list of schedules says of one that does not fire when its times say so."""

import pytest

from loomlog.schemas.generated.schedule_commands import PauseSchedule
from loomlog.services.families.schedule.shown import OVERDUE_MS, in_force
from loomlog.services.families.schedule.state import due_ms
from tests.services.families.schedule.given import ENVELOPE, MINUTE, START, Given

DAY = 86_400_000


def problem(schedule: Given, now_ms: int) -> str:
    return in_force(schedule.state, now_ms).problem


@pytest.mark.parametrize("times", ["@every 2s", "@hourly", "0 9 * * *"])
def test_a_schedule_that_waits_for_its_time_has_no_problem(times: str) -> None:
    schedule = Given(times)
    assert problem(schedule, START) == ""
    assert problem(schedule, due_ms(schedule.state) + OVERDUE_MS) == ""


def test_an_instant_that_is_overdue_is_a_problem_until_it_is_decided() -> None:
    schedule = Given("@hourly")
    late_ms = due_ms(schedule.state) + OVERDUE_MS + 1
    assert "it was due at 2027-01-15T09:00:00.000Z and is not decided" in problem(schedule, late_ms)
    schedule.timer(late_ms)
    assert problem(schedule, late_ms) == ""


def test_what_a_clock_ahead_has_decided_is_a_problem_until_it_begins_again() -> None:
    schedule = Given("@every 2s")
    schedule.timer(START + DAY)
    assert "a clock was ahead" in problem(schedule, START + MINUTE)
    assert problem(schedule, START + DAY) == ""


def test_a_pause_and_a_schedule_that_cannot_start_say_their_own() -> None:
    schedule = Given("@hourly")
    schedule.give(PauseSchedule(envelope=ENVELOPE, name="nightly"))
    assert problem(schedule, START + DAY) == ""
    assert problem(Given("@hourly", problem="no credential"), START + DAY) == "no credential"
