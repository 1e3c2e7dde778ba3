"""A turn that is stopped from outside: what stays, what the model is told, and how the run goes on."""

import pytest

from loomlog.schemas.conversation import TextBlock
from loomlog.schemas.generated.run_events import CommandRefused, ToolReturned, TurnCancelled
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.records import replace
from loomlog.services.core.run.react import CallModel, StopCalls
from loomlog.services.core.run.state import AwaitingModel, Parked
from tests.services.core.run.asking import ASKER, QUESTION, asking, results, stops, turn
from tests.services.core.run.given import (
    DEFINITION,
    Run,
    answered,
    assert_legal,
    at_tools,
    begun,
    calls,
    cancelled,
    erred,
    kinds,
    parked,
    pause,
    recover,
    returned,
    says,
)


def test_a_model_call_is_stopped_and_what_it_had_said_stays() -> None:
    run = begun(interactive=True)
    events = run.give(stops(run, text="I was about to"))
    assert kinds(events) == ["TurnCancelled", "RunParked"]
    stopped = events[0]
    assert isinstance(stopped, TurnCancelled)
    assert (stopped.reason, stopped.by, stopped.turn, stopped.attempt) == ("stop talking", "someone", 1, 1)
    assert isinstance(run.effects[-1], StopCalls)
    assert isinstance(run.state, Parked)
    last = run.live.facts.messages[-1]
    assert (last.role, last.blocks) == ("assistant", (TextBlock(text="I was about to"),))
    assert run.live.facts.model_errors == 0


def test_a_long_text_stays_as_a_blob() -> None:
    run = begun(interactive=True)
    ref = BlobRef(sha256="ab", size_bytes=9, media_type="text/plain")
    run.give(stops(run, text_blob=ref))
    assert run.live.facts.messages[-1].blocks == (TextBlock(text="", blob=ref),)


def test_a_turn_in_which_nothing_was_said_leaves_no_message() -> None:
    run = begun(interactive=True)
    before = run.live.facts.messages
    run.give(stops(run))
    assert run.live.facts.messages == before


def test_the_next_word_begins_a_new_turn_and_the_conversation_is_legal() -> None:
    run = begun(interactive=True)
    run.give(stops(run, text="half"))
    events = run.give(says("go on"))
    assert kinds(events) == ["InputReceived", "ModelCallRequested"]
    assert isinstance(run.state, AwaitingModel)
    assert (run.state.turn, run.state.attempt) == (2, 1)
    assert_legal(run.live.facts.messages)


def test_tools_under_way_are_stopped_with_the_words_clients_know() -> None:
    run = at_tools("A", "B", interactive=True)
    run.give(returned(run.state, 1, "done"))
    events = run.give(stops(run))
    assert kinds(events) == ["ToolReturned", "TurnCancelled", "RunParked"]
    result = events[0]
    assert isinstance(result, ToolReturned)
    assert (result.index, result.text, result.is_error, result.outcome) == (
        0,
        "cancelled by operator",
        True,
        "cancelled",
    )
    assert isinstance(run.effects[-1], StopCalls)
    assert_legal(run.live.facts.messages)


def test_a_stopped_call_that_must_not_be_repeated_says_that_it_may_have_happened() -> None:
    run = at_tools("A", classes=("unsafe",), interactive=True)
    [result, *_] = run.give(stops(run))
    assert isinstance(result, ToolReturned)
    assert result.text == "cancelled by operator; the call may or may not have had its effect"


def test_questions_of_the_turn_are_taken_back() -> None:
    run = asking(QUESTION, "Read", definition=ASKER, interactive=True)
    events = run.give(stops(run))
    assert kinds(events) == ["ToolReturned", "InterruptionClosed", "ToolReturned", "TurnCancelled", "RunParked"]
    assert [result.text for result in results(run)] == ["cancelled by operator"] * 2


def test_a_text_that_waits_is_taken_up_at_once() -> None:
    run = begun(interactive=True)
    run.give(says("rather this"))
    events = run.give(stops(run))
    assert kinds(events) == ["TurnCancelled", "ModelCallRequested"]
    assert [type(effect) for effect in run.effects[-2:]] == [StopCalls, CallModel]


def test_a_paused_run_stays_paused_when_a_text_waits() -> None:
    run = begun(interactive=True)
    run.give(pause())
    run.give(says("rather this"))
    assert kinds(run.give(stops(run))) == ["TurnCancelled", "RunPaused"]


def test_the_last_turn_a_run_may_have_ends_it_as_it_would_have() -> None:
    run = begun(replace(DEFINITION, max_iterations=1), interactive=True)
    assert kinds(run.give(stops(run))) == ["TurnCancelled", "RunCompleted"]


def test_of_a_stop_and_an_answer_at_the_same_time_the_first_in_the_log_wins() -> None:
    stopped = begun(interactive=True)
    answer = answered(stopped.state, "done")
    stopped.give(stops(stopped))
    assert stopped.give(answer) == []
    done = begun(interactive=True)
    stop = stops(done)
    done.give(answered(done.state, "done"))
    before = done.state
    [refusal] = done.give(stop)
    assert isinstance(refusal, CommandRefused)
    assert refusal.code == "not_mid_turn"
    assert done.state == before


def test_a_late_failure_or_tool_result_changes_nothing_after_a_stop() -> None:
    run = begun(interactive=True)
    failure = erred(run.state, "unavailable", transient=True)
    run.give(stops(run))
    assert run.give(failure) == []
    run = at_tools("A", interactive=True)
    result = returned(run.state, 0)
    run.give(stops(run))
    assert run.give(result) == []


def test_a_stop_that_finds_the_tools_of_the_answer_stops_those_and_forgets_its_text() -> None:
    run = begun(interactive=True)
    stop = stops(run, text="half")
    run.give(answered(run.state, "whole", *calls("A")))
    events = run.give(stop)
    assert kinds(events) == ["ToolReturned", "TurnCancelled", "RunParked"]
    assert isinstance(events[1], TurnCancelled)
    assert events[1].text == ""


def test_nothing_is_recovered_of_a_stopped_turn() -> None:
    run = begun(interactive=True)
    run.give(stops(run))
    assert run.give(recover()) == []


@pytest.mark.parametrize(
    ("run", "code"),
    [
        (begun(), "not_interactive"),
        (at_tools("A"), "not_interactive"),
        (parked(), "not_mid_turn"),
    ],
)
def test_a_stop_without_a_turn_to_stop_is_refused(run: Run, code: str) -> None:
    [refusal] = run.give(stops(run))
    assert isinstance(refusal, CommandRefused)
    assert refusal.code == code


def test_a_stop_after_the_end_changes_nothing() -> None:
    run = cancelled()
    assert run.give(stops(run)) == []


def test_turns_go_on_counting_after_a_stop() -> None:
    run = begun(interactive=True)
    run.give(stops(run))
    run.give(says("again"))
    turn(run, "Read")
    assert run.live.facts.turns == 2
