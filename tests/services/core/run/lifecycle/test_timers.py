from collections.abc import Callable

import pytest

from loomlog.schemas.generated.run_events import RunFailed
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import RunTimerFired
from loomlog.services.core.run.lifecycle.timers import next_timer_at
from loomlog.services.core.run.react import CallModel, CallTool
from loomlog.services.core.run.state import AwaitingModel, AwaitingTools, Ended, Parked, Paused
from tests.services.core.run.given import (
    DEFINITION,
    NOW,
    Run,
    answered,
    at_tools,
    begun,
    calls,
    parked,
    pause,
    recover,
    resolve,
    resume,
    returned,
    says,
    start,
)

MINUTE_MS = 60_000


def at_tools_once() -> Run:
    return at_tools("Read")


def limited(seconds: int = 60, *, interactive: bool = False, agents: int = 0) -> Run:
    run = Run()
    definition = replace(DEFINITION, run_timeout_s=agents)
    run.give(start(definition=definition, interactive=interactive, run_timeout_s=seconds))
    return run


def test_a_run_fails_when_its_time_is_over_and_what_is_under_way_is_stopped() -> None:
    run = limited()
    assert next_timer_at(run.state) == NOW + MINUTE_MS
    [failed] = run.give(RunTimerFired(at_ms=NOW + MINUTE_MS))
    assert isinstance(failed, RunFailed)
    assert (failed.code, failed.error) == ("run_timeout", "the run took longer than its 60 s")
    assert isinstance(run.state, Ended)


def test_its_time_goes_on_while_tools_work() -> None:
    run = limited()
    run.give(answered(run.state, "", *calls("A")))
    assert next_timer_at(run.state) == NOW + MINUTE_MS
    assert [type(event) for event in run.give(RunTimerFired(at_ms=NOW + MINUTE_MS))] == [RunFailed]


@pytest.mark.parametrize("early_ms", [1, MINUTE_MS])
def test_an_alarm_that_rings_early_changes_nothing(early_ms: int) -> None:
    run = limited()
    assert run.give(RunTimerFired(at_ms=NOW + MINUTE_MS - early_ms)) == []


def test_a_run_without_a_bound_is_never_woken() -> None:
    run = limited(0)
    assert next_timer_at(run.state) == 0
    assert run.give(RunTimerFired(at_ms=NOW + 10**12)) == []


@pytest.mark.parametrize("make", [begun, at_tools_once, parked])
def test_a_slow_run_is_never_taken_for_a_dead_one(make: Callable[[], Run]) -> None:
    """There is no pulse to miss: what takes long is under way as long as its owner says so, and nobody else ends it."""
    run = make()
    much_later = NOW + 365 * 24 * 60 * MINUTE_MS
    under_way = [effect.key for effect in run.effects if isinstance(effect, CallModel | CallTool)]
    assert run.give(RunTimerFired(at_ms=much_later)) == []
    assert run.give(recover(*under_way, at_ms=much_later)) == []


@pytest.mark.parametrize(("request_s", "agent_s", "seconds"), [(5, 60, 5), (0, 60, 60), (90, 60, 90), (0, 0, 0)])
def test_what_the_request_says_goes_before_what_the_agent_says(request_s: int, agent_s: int, seconds: int) -> None:
    run = limited(request_s, agents=agent_s)
    assert next_timer_at(run.state) == (NOW + 1000 * seconds if seconds else 0)


def test_time_in_which_a_run_is_paused_does_not_count() -> None:
    run = limited()
    run.give(pause())
    run.give(answered(run.state, "", *calls("A")))
    run.give(returned(run.state, 0))
    assert isinstance(run.state, Paused)
    assert next_timer_at(run.state) == 0
    run.give(replace(resume(), at_ms=NOW + 10 * MINUTE_MS))
    assert isinstance(run.state, AwaitingModel)
    assert next_timer_at(run.state) == NOW + 11 * MINUTE_MS


def test_time_in_which_a_run_waits_for_somebody_does_not_count() -> None:
    run = limited(interactive=True)
    run.give(answered(run.state, "your turn"))
    assert isinstance(run.state, Parked)
    assert next_timer_at(run.state) == 0
    run.give(replace(says("go on"), at_ms=NOW + 10 * MINUTE_MS))
    assert next_timer_at(run.state) == NOW + 11 * MINUTE_MS


def test_time_in_which_a_parked_run_is_paused_counts_neither_as_the_one_nor_as_the_other() -> None:
    run = limited(interactive=True)
    run.give(answered(run.state, "your turn"))
    run.give(replace(pause(), at_ms=NOW + MINUTE_MS))
    run.give(replace(says("go on"), at_ms=NOW + 2 * MINUTE_MS))
    assert isinstance(run.state, Paused)
    run.give(replace(resume(), at_ms=NOW + 5 * MINUTE_MS))
    assert next_timer_at(run.state) == NOW + 6 * MINUTE_MS


def unknown(*names: str) -> Run:
    """A run of a minute whose calls were lost half a minute after its beginning; a person has to say what became of
    them."""
    run = Run()
    definition = replace(DEFINITION, unknown_outcome="ask")
    run.give(start(definition=definition, run_timeout_s=60))
    run.give(answered(run.state, "", *calls(*names), classes=("unsafe",) * len(names)))
    run.give(recover(at_ms=NOW + MINUTE_MS // 2))
    return run


@pytest.mark.parametrize("done", [True, False])
def test_time_in_which_somebody_has_to_say_what_became_of_a_call_does_not_count(*, done: bool) -> None:
    run = unknown("Pay")
    assert next_timer_at(run.state) == 0
    assert run.give(RunTimerFired(at_ms=NOW + 10 * MINUTE_MS)) == []
    run.give(replace(resolve(done=done), at_ms=NOW + 10 * MINUTE_MS))
    assert isinstance(run.state, AwaitingModel if done else AwaitingTools)
    assert next_timer_at(run.state) == NOW + 10 * MINUTE_MS + MINUTE_MS // 2


def test_it_counts_again_when_the_first_of_two_lost_calls_is_made_again() -> None:
    run = unknown("Pay", "Ship")
    assert next_timer_at(run.state) == 0
    run.give(replace(resolve(1, 0, done=True), at_ms=NOW + 5 * MINUTE_MS))
    assert next_timer_at(run.state) == 0, "the other one waits still"
    run.give(replace(resolve(1, 1, done=False), at_ms=NOW + 10 * MINUTE_MS))
    assert next_timer_at(run.state) == NOW + 10 * MINUTE_MS + MINUTE_MS // 2
