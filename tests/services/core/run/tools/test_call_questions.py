"""Calls whose tools ask a person first: they wait in the log, and are made again with the answer."""

from typing import Any

import pytest

from loomlog.schemas.generated.run_events import (
    CommandRefused,
    InterruptionClosed,
    InterruptionOpened,
    RunCancelled,
    ToolCallRequested,
    ToolReturned,
)
from loomlog.services.core.canonical import StateCodec
from loomlog.services.core.run.commands import CallAsks, RunTimerFired
from loomlog.services.core.run.interrupts.questions import CALL_QUESTION
from loomlog.services.core.run.lifecycle.activity import is_active, may_rest
from loomlog.services.core.run.lifecycle.timers import next_timer_at
from loomlog.services.core.run.state import AwaitingModel, AwaitingTools, State, find_open_call
from tests.services.core.run.asking import responds
from tests.services.core.run.given import NOW, Run, at_tools, cancel, kinds, pause, recover, returned
from tests.services.core.run.waiting import stops_turn

ASK_MS = 60_000


def asks(index: int = 0, *, attempt: int = 1, turn: int = 1, held: bool = False, **more: Any) -> CallAsks:
    fields = {"question": "Which colour?", "context": "{}", "options": (), "call_state": f"state {attempt}", **more}
    return CallAsks(at_ms=NOW, turn=turn, index=index, attempt=attempt, timeout_ms=ASK_MS, is_held=held, **fields)


def asking_call(*names: str, held: bool = False, effect: str = "unsafe") -> Run:
    names = names or ("mcp__crm__paint",)
    run = at_tools(*names, classes=(effect,) * len(names))
    run.give(asks(held=held))
    return run


def open_id(run: Run) -> str:
    assert isinstance(run.state, AwaitingTools)
    return run.state.questions[-1].interrupt_id


def test_a_call_that_asks_is_a_question_and_nothing_is_under_way() -> None:
    run = asking_call()
    event = run.events[-1]
    assert isinstance(event, InterruptionOpened)
    assert (event.kind, event.attempt, event.call_state, event.expires_at_ms) == (
        CALL_QUESTION,
        1,
        "state 1",
        NOW + ASK_MS,
    )
    assert not is_active(run.state)
    assert may_rest(run.state)
    assert next_timer_at(run.state) == NOW + ASK_MS
    assert StateCodec(State).decode(StateCodec(State).encode(run.state)) == run.state


@pytest.mark.parametrize("order", [asks(attempt=2), asks(1), asks(turn=2)], ids=["attempt", "call", "turn"])
def test_a_question_of_an_attempt_that_is_not_open_changes_nothing(order: CallAsks) -> None:
    assert at_tools("mcp__crm__paint").give(order) == []


def test_the_call_is_made_again_with_the_answer_and_may_ask_once_more() -> None:
    run = asking_call()
    first = open_id(run)
    events = run.give(responds('{"colour": "red"}', to=first))
    assert kinds(events) == ["InterruptionClosed", "ToolCallRequested"]
    assert isinstance(events[1], ToolCallRequested)
    assert (events[1].attempt, events[1].effect_class) == (2, "unsafe")
    run.give(asks(attempt=2))
    assert open_id(run) != first
    run.give(responds(to=open_id(run), disposition="declined", command_id="k2"))
    assert isinstance(run.state, AwaitingTools)
    opened = find_open_call(run.state, 0)
    assert opened is not None
    assert [(one.call_state, one.status, one.answer) for one in opened.answers] == [
        ("state 1", "resolved", '{"colour": "red"}'),
        ("state 2", "declined", ""),
    ]
    assert is_active(run.state)
    run.give(returned(run.state, 0))
    assert isinstance(run.state, AwaitingModel)
    assert run.state.facts.losses.count == 0


def test_an_answer_that_is_not_valid_is_refused_and_the_question_waits() -> None:
    run = asking_call()
    [refused] = run.give(responds("green", to=open_id(run), problem="/colour"))
    assert isinstance(refused, CommandRefused)
    assert refused.code == "invalid_answer"
    assert open_id(run)


def test_a_paused_run_makes_no_call_again() -> None:
    run = asking_call()
    run.give(pause())
    [refused] = run.give(responds("red", to=open_id(run)))
    assert isinstance(refused, CommandRefused)
    assert refused.code == "run_paused"


def test_when_its_time_is_over_the_call_is_made_again_without_an_answer() -> None:
    run = asking_call()
    events = run.give(RunTimerFired(at_ms=NOW + ASK_MS))
    assert kinds(events) == ["InterruptionClosed", "ToolCallRequested"]
    assert isinstance(run.state, AwaitingTools)
    assert [one.status for one in run.state.open[0].answers] == ["timed_out"]


def test_a_new_owner_waits_on_for_a_question_that_no_process_holds() -> None:
    run = asking_call()
    assert run.give(recover()) == []
    assert kinds(run.give(responds("red", to=open_id(run)))) == ["InterruptionClosed", "ToolCallRequested"]


def test_a_call_that_the_lost_owner_held_open_has_an_unknown_outcome_and_its_question_is_closed() -> None:
    run = asking_call(held=True)
    interrupt_id = open_id(run)
    events = run.give(recover())
    assert kinds(events)[:2] == ["InterruptionClosed", "ToolReturned"]
    closed, lost = events[:2]
    assert isinstance(closed, InterruptionClosed)
    assert isinstance(lost, ToolReturned)
    assert (closed.interrupt_id, closed.status, lost.outcome) == (interrupt_id, "cancelled", "outcome_unknown")
    [refused] = run.give(responds("red", to=interrupt_id))
    assert isinstance(refused, CommandRefused)
    assert refused.code == "interrupt_closed"


def test_a_held_call_that_may_be_repeated_is_made_anew() -> None:
    run = asking_call(held=True, effect="read")
    events = run.give(recover())
    assert kinds(events) == ["InterruptionClosed", "ToolCallRequested"]
    assert isinstance(run.state, AwaitingTools)
    assert [(one.status, one.is_held) for one in run.state.open[0].answers] == [("cancelled", True)]


@pytest.mark.parametrize("held", [False, True])
def test_cancelling_the_turn_or_the_run_closes_the_question(held: bool) -> None:
    run = asking_call(held=held)
    run.give(cancel())
    assert [type(event) for event in run.events[-2:]] == [InterruptionClosed, RunCancelled]


def test_a_cancelled_turn_says_that_a_held_call_may_have_happened() -> None:
    for held in (False, True):
        run = at_tools("mcp__crm__paint", interactive=True)
        run.give(asks(held=held))
        events = run.give(stops_turn())
        [result] = [event for event in events if isinstance(event, ToolReturned)]
        assert ("may or may not" in result.text) is held


def test_other_calls_of_the_turn_go_on_meanwhile() -> None:
    run = asking_call("mcp__crm__paint", "Read")
    assert is_active(run.state)
    run.give(returned(run.state, 1))
    assert not is_active(run.state)
    run.give(responds("red", to=open_id(run)))
    run.give(returned(run.state, 0))
    assert isinstance(run.state, AwaitingModel)
