from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.schemas.conversation import TextBlock
from loomlog.schemas.generated.run_events import (
    CommandRefused,
    ModelCallRequested,
    RunPaused,
    RunPauseRequested,
    RunResumed,
)
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import RunTimerFired
from loomlog.services.core.run.state import AwaitingModel, AwaitingTools, Ended, Parked, Paused
from loomlog.services.core.run.tools import unknown_outcome
from tests.services.core.run.asking import TERMS, asking, responds
from tests.services.core.run.given import (
    DEFINITION,
    NOW,
    Run,
    answered,
    at_tools,
    begun,
    calls,
    cancel,
    cancelled,
    completed,
    erred,
    kinds,
    obey,
    parked,
    pause,
    paused,
    recover,
    refused,
    resolve,
    resume,
    returned,
    says,
    start,
    wider,
)

# --- asking ----------------------------------------------------------------------------------------------------------


def test_a_call_under_way_is_finished_and_its_tools_run_before_the_run_stands_still() -> None:
    run = begun()
    assert run.give(pause("look")) == [RunPauseRequested(scope="run", reason="look", by="someone")]
    assert kinds(run.give(answered(run.state, "", *calls("A")))) == ["ModelReplied", "ToolCallRequested"]
    assert run.give(returned(run.state, 0))[1:] == [RunPaused(turn=2, reason="look")]
    assert isinstance(run.state, Paused)
    assert len(run.effects) == 2  # the first model call and the tool, nothing after it


def test_a_last_answer_ends_the_run_although_it_was_to_pause() -> None:
    run = begun()
    run.give(pause())
    assert kinds(run.give(answered(run.state, "done"))) == ["ModelReplied", "RunCompleted"]


def test_a_second_pause_of_a_run_is_refused() -> None:
    for run in (paused(), begun()):
        run.give(pause())
        (event,) = run.give(pause())
        assert isinstance(event, CommandRefused)
        assert event.code == "already_pausing"


@pytest.mark.parametrize("make", [Run, refused, completed, cancelled])
def test_what_is_not_live_neither_pauses_nor_resumes(make: Any) -> None:
    for order in (pause(), resume(), obey("all")):
        assert make().give(order) == []


def test_a_long_reason_is_cut() -> None:
    (event,) = begun().give(pause("x" * 10_000))
    assert isinstance(event, RunPauseRequested)
    assert len(event.reason) == limits.PAUSE_REASON_MAX


# --- going on --------------------------------------------------------------------------------------------------------


def test_a_paused_run_goes_on_with_the_call_that_was_held_back() -> None:
    run = paused()
    assert run.give(resume()) == [
        RunResumed(scope="run", by="someone"),
        ModelCallRequested(turn=2, attempt=1, provider="acme", model="large"),
    ]
    assert run.effects[-1].key == ("model", 2, 0, 1)  # type: ignore[union-attr]


def test_a_run_that_had_not_stopped_yet_just_goes_on() -> None:
    run = at_tools("A")
    run.give(pause())
    assert run.give(resume()) == [RunResumed(scope="run", by="someone")]
    assert kinds(run.give(returned(run.state, 0))) == ["ToolReturned", "ModelCallRequested"]


def test_resuming_what_is_not_paused_is_refused_and_names_what_holds_it() -> None:
    run = begun()
    (event,) = run.give(resume())
    assert isinstance(event, CommandRefused)
    assert event.code == "not_paused"
    run.give(obey("tenant"))
    (event,) = run.give(resume())
    assert isinstance(event, CommandRefused)
    assert "tenant" in event.message


def test_a_run_goes_on_only_when_nothing_holds_it_any_more() -> None:
    run = paused()
    assert run.give(obey("tenant", "all")) == [
        RunPauseRequested(scope="tenant", reason="the tenant waits", by="op"),
        RunPauseRequested(scope="all", reason="the all waits", by="op"),
    ]
    assert run.give(resume()) == [RunResumed(scope="run", by="someone", remaining=2)]
    assert run.give(obey("all")) == [RunResumed(scope="tenant", by="op", remaining=1)]
    assert kinds(run.give(obey())) == ["RunResumed", "ModelCallRequested"]


def test_a_run_that_changes_what_holds_it_does_not_move() -> None:
    run = begun()
    run.give(obey("tenant"))
    run.give(answered(run.state, "", *calls("A")))
    run.give(returned(run.state, 0))
    assert kinds(run.give(obey("all"))) == ["RunPauseRequested", "RunResumed"]
    assert isinstance(run.state, Paused)


def test_what_it_obeys_already_says_nothing() -> None:
    run = paused()
    assert run.give(obey()) == []
    run.give(obey("all"))
    assert run.give(obey("all")) == []


# --- other orders meanwhile ------------------------------------------------------------------------------------------


def test_a_run_started_while_paused_makes_no_call_and_loses_nothing() -> None:
    run = Run()
    assert kinds(run.give(replace(start(), pauses=wider("all")))) == ["RunStarted", "RunPauseRequested", "RunPaused"]
    assert run.effects == []
    assert kinds(run.give(obey())) == ["RunResumed", "ModelCallRequested"]


def test_a_parked_run_stays_parked_and_input_waits_for_the_end_of_the_pause() -> None:
    run = parked()
    run.give(pause())
    assert isinstance(run.state, Parked)
    assert kinds(run.give(says("hello"))) == ["InputReceived", "RunPaused"]
    assert kinds(run.give(says("and"))) == ["InputReceived"]
    run.give(resume())
    assert isinstance(run.state, AwaitingModel)
    output = [block.text for m in run.state.facts.messages[-2:] for block in m.blocks if isinstance(block, TextBlock)]
    assert output == ["hello", "and"]


def test_a_parked_run_that_is_resumed_without_input_waits_on() -> None:
    run = parked()
    run.give(pause())
    assert kinds(run.give(resume())) == ["RunResumed"]
    assert isinstance(run.state, Parked)


def test_the_inputs_of_a_paused_run_are_bounded() -> None:
    run = paused()
    for number in range(limits.MAX_WAITING_INPUTS):
        run.give(says(f"more {number}"))
    assert kinds(run.give(says("too much"))) == ["CommandRefused"]


def test_a_paused_run_can_be_cancelled() -> None:
    run = paused()
    assert kinds(run.give(cancel())) == ["RunCancelled"]
    assert isinstance(run.state, Ended)


def test_a_retry_is_held_back_and_goes_on_counting() -> None:
    run = begun(replace(DEFINITION, retry_attempts=2))
    run.give(pause())
    assert kinds(run.give(erred(run.state, "overloaded", transient=True))) == ["ModelCallFailed", "RunPaused"]
    (_, requested) = run.give(resume())
    assert isinstance(requested, ModelCallRequested)
    assert (requested.turn, requested.attempt) == (1, 2)
    assert requested.not_before_ms == NOW + limits.RETRY_BACKOFF_MS[0]
    assert isinstance(run.state, AwaitingModel)
    assert run.state.failures == 1


# --- runs that wait for people ---------------------------------------------------------------------------------------


def test_an_answer_is_recorded_during_a_pause_and_the_model_hears_it_after_it() -> None:
    run = asking()
    run.give(pause("look"))
    assert unknown_outcome.open_call_keys(run.state) == []
    assert kinds(run.give(responds("yes"))) == ["InterruptionClosed", "ToolReturned", "RunPaused"]
    assert kinds(run.give(resume())) == ["RunResumed", "ModelCallRequested"]


def test_a_question_whose_time_is_over_during_a_pause_lets_nothing_begin() -> None:
    run = asking()
    run.give(pause())
    assert kinds(run.give(RunTimerFired(at_ms=NOW + TERMS.default_timeout_ms))) == [
        "InterruptionClosed",
        "ToolReturned",
        "RunPaused",
    ]


def test_a_call_of_unknown_outcome_is_settled_during_a_pause_and_made_again_only_after_it() -> None:
    run = at_tools("Pay", classes=("unsafe",), definition=replace(DEFINITION, unknown_outcome="ask"))
    run.give(recover())
    run.give(pause())
    assert unknown_outcome.open_call_keys(run.state) == []
    (event,) = run.give(resolve(done=False))
    assert isinstance(event, CommandRefused)
    assert (event.code, "resume it first" in event.message) == ("run_paused", True)
    assert kinds(run.give(resolve(done=True))) == ["ToolReturned", "RunPaused"]
    assert kinds(run.give(resume())) == ["RunResumed", "ModelCallRequested"]


def test_a_call_that_did_not_happen_is_made_again_when_the_pause_is_over() -> None:
    run = at_tools("Pay", classes=("unsafe",), definition=replace(DEFINITION, unknown_outcome="ask"))
    run.give(recover())
    run.give(pause())
    run.give(resume())
    assert kinds(run.give(resolve(done=False))) == ["ToolCallRequested"]


# --- after a take-over -----------------------------------------------------------------------------------------------


def test_a_paused_run_needs_nothing_after_a_take_over() -> None:
    assert paused().give(recover()) == []


def test_a_call_that_was_lost_with_its_owner_is_not_made_again_while_paused() -> None:
    run = begun()
    run.give(pause())
    assert kinds(run.give(recover())) == ["ModelCallFailed", "RunPaused"]
    assert kinds(run.give(resume())) == ["RunResumed", "ModelCallRequested"]
    assert isinstance(run.state, AwaitingModel)
    assert (run.state.turn, run.state.attempt, run.state.lost_attempts) == (1, 2, 1)


def test_a_pause_that_came_while_nobody_owned_the_run_is_obeyed_before_anything_is_made_again() -> None:
    run = begun()
    events = run.give(replace(recover(), wide_pauses=obey("all")))
    assert kinds(events) == ["RunPauseRequested", "ModelCallFailed", "RunPaused"]


def test_a_pause_that_ended_while_nobody_owned_the_run_lets_it_go_on_once() -> None:
    run = Run()
    run.give(replace(start(), pauses=wider("all")))
    assert kinds(run.give(replace(recover(), wide_pauses=obey()))) == ["RunResumed", "ModelCallRequested"]


def test_tool_calls_under_way_are_finished_before_a_pause_also_after_a_take_over() -> None:
    run = at_tools("A", classes=("read",))
    run.give(replace(recover(), wide_pauses=obey("all")))
    assert isinstance(run.state, AwaitingTools)
    assert kinds(run.give(returned(run.state, 0))) == ["ToolReturned", "RunPaused"]


# --- always ----------------------------------------------------------------------------------------------------------

PAUSING = frozenset({"RunPauseRequested", "RunPaused", "RunResumed", "CommandRefused"})


@settings(max_examples=200, deadline=None)
@given(turns=st.lists(st.integers(min_value=0, max_value=2), max_size=4), data=st.data())
def test_pauses_change_nothing_but_the_time(turns: list[int], data: st.DataObject) -> None:
    orders = (pause(), resume(), obey("all"), obey("tenant"), obey())

    def story(*, pausing: bool) -> Run:
        def maybe_pause() -> None:
            if pausing:
                for number in data.draw(st.lists(st.integers(min_value=0, max_value=4), max_size=3)):
                    run.give(orders[number])

        def go_on() -> None:
            if isinstance(run.state, Paused):
                run.give(obey())
            if isinstance(run.state, Paused):
                run.give(resume())

        run = begun()
        for count in (*turns, 0):
            maybe_pause()
            go_on()
            run.give(answered(run.state, "so", *calls(*("T" * count))))
            for index in range(count):
                maybe_pause()
                run.give(returned(run.state, index))
            if count == 0:
                break
        return run

    plain, interrupted = story(pausing=False), story(pausing=True)
    assert isinstance(interrupted.state, Ended)
    assert [e for e in interrupted.events if type(e).__name__ not in PAUSING] == plain.events
    assert interrupted.effects == plain.effects
