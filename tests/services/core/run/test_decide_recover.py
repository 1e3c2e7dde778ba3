"""A new owner has folded the run: what was under way is re-run visibly, or said to be unknown; never silently."""

import pytest

from loomlog.schemas.generated.run_events import (
    ModelCallFailed,
    ModelCallRequested,
    RunFailed,
    ToolCallRequested,
    ToolReturned,
)
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import ModelFailed
from loomlog.services.core.run.react import CallModel, CallTool
from loomlog.services.core.run.state import AwaitingModel, AwaitingTools, Ended
from tests.services.core.run.given import (
    DEFINITION,
    Run,
    answered,
    at_tools,
    begun,
    cancelled,
    completed,
    erred,
    kinds,
    parked,
    recover,
    refused,
    returned,
)


@pytest.mark.parametrize("make", [Run, refused, parked, completed, cancelled])
def test_nothing_is_recovered_where_no_call_was_under_way(make: type[Run]) -> None:
    run = make()
    assert run.give(recover()) == []


def test_a_lost_model_call_is_made_again_as_the_next_attempt() -> None:
    run = begun()
    events = run.give(recover())
    assert kinds(events) == ["ModelCallFailed", "ModelCallRequested"]
    lost, again = events
    assert isinstance(lost, ModelCallFailed)
    assert (lost.kind, lost.attempt) == ("interrupted", 1)
    assert again == ModelCallRequested(turn=1, attempt=2, provider="acme", model="large")
    effect = run.effects[-1]
    assert isinstance(effect, CallModel)
    assert effect.attempt == 2


def test_the_answer_to_the_lost_attempt_changes_nothing_any_more() -> None:
    run = begun()
    late = answered(run.state, "late")
    run.give(recover())
    assert run.give(late) == []
    assert kinds(run.give(answered(run.state, "in time"))) == ["ModelReplied", "RunCompleted"]


def test_a_model_call_of_this_very_process_goes_on() -> None:
    run = begun()
    assert run.give(recover(("model", 1, 0, 1))) == []
    assert kinds(run.give(answered(run.state, "done"))) == ["ModelReplied", "RunCompleted"]


@pytest.mark.parametrize("other", [("model", 1, 0, 2), ("model", 2, 0, 1), ("tool", 1, 0, 1)])
def test_another_call_of_this_process_does_not_count_as_this_one(other: tuple[str, int, int, int]) -> None:
    assert kinds(begun().give(recover(other))) == ["ModelCallFailed", "ModelCallRequested"]


def test_a_call_that_takes_its_owner_down_again_and_again_fails_the_run() -> None:
    run = begun()
    for _ in range(limits.LOST_ATTEMPTS_MAX):
        assert kinds(run.give(recover())) == ["ModelCallFailed", "ModelCallRequested"]
    events = run.give(recover())
    assert isinstance(events[0], RunFailed)
    assert events[0].code == "interrupted"
    assert isinstance(run.state, Ended)


def test_interruptions_of_one_turn_are_not_held_against_the_next() -> None:
    run = begun()
    for _ in range(limits.LOST_ATTEMPTS_MAX):
        run.give(recover())
    assert isinstance(run.state, AwaitingModel)
    run.give(answered(run.state, "", *at_tools("A").state.requested_calls))  # type: ignore[union-attr]  # it awaits tools
    run.give(returned(run.state, 0))
    assert kinds(run.give(recover())) == ["ModelCallFailed", "ModelCallRequested"]


@pytest.mark.parametrize("effect_class", ["pure", "read", "idempotent"])
def test_a_tool_call_that_may_be_repeated_is_made_again_as_the_next_attempt(effect_class: str) -> None:
    run = at_tools("A", classes=(effect_class,))
    assert run.give(recover()) == [
        ToolCallRequested(turn=1, index=0, call_id="c0", attempt=2, effect_class=effect_class)
    ]
    effect = run.effects[-1]
    assert isinstance(effect, CallTool)
    assert (effect.attempt, effect.name) == (2, "A")
    assert kinds(run.give(returned(run.state, 0))) == ["ToolReturned", "ModelCallRequested"]


def test_an_unsafe_tool_call_is_never_made_again_and_the_model_is_told() -> None:
    run = at_tools("Pay", classes=("unsafe",))
    effects = len(run.effects)
    events = run.give(recover())
    assert kinds(events) == ["ToolReturned", "ModelCallRequested"]
    event = events[0]
    assert isinstance(event, ToolReturned)
    assert (event.outcome, event.is_error, event.attempt) == ("outcome_unknown", True, 1)
    assert "outcome unknown" in event.text
    assert not any(isinstance(effect, CallTool) for effect in run.effects[effects:])


@pytest.mark.parametrize("unknown_class", ["", "other", "UNSAFE"])
def test_a_class_nobody_knows_is_repeated_only_when_it_is_known_to_be_harmless(unknown_class: str) -> None:
    run = at_tools("A", classes=(unknown_class,))
    events = run.give(recover())
    assert kinds(events) == ["ToolReturned", "ModelCallRequested"]


def test_each_call_of_a_turn_is_recovered_by_its_own_rule() -> None:
    run = at_tools("A", "Pay", "C", "D", classes=("read", "unsafe", "pure", "unsafe"))
    run.give(returned(run.state, 2, "answered before"))
    events = run.give(recover(("tool", 1, 3, 1)))
    assert [(type(event).__name__, event.index) for event in events] == [  # type: ignore[union-attr]  # of tools
        ("ToolCallRequested", 0),
        ("ToolReturned", 1),
    ]
    assert isinstance(run.state, AwaitingTools)
    assert [(call.index, call.attempt) for call in run.state.open] == [(3, 1), (0, 2)]
    run.give(returned(run.state, 3))
    assert kinds(run.give(returned(run.state, 0))) == ["ToolReturned", "ModelCallRequested"]


def test_the_late_result_of_a_lost_attempt_changes_nothing() -> None:
    run = at_tools("A")
    late = returned(run.state, 0, "late")
    run.give(recover())
    assert run.give(late) == []
    assert isinstance(run.state, AwaitingTools)


def test_a_tool_that_takes_its_owner_down_again_and_again_gets_no_further_attempt() -> None:
    run = at_tools("A")
    for _ in range(limits.LOST_ATTEMPTS_MAX):
        assert kinds(run.give(recover())) == ["ToolCallRequested"]
    events = run.give(recover())
    assert isinstance(events[0], ToolReturned)
    assert events[0].outcome == "outcome_unknown"


def test_recovery_at_the_cap_ends_the_run_when_nothing_is_open_any_more() -> None:
    run = at_tools("Pay", classes=("unsafe",), definition=replace(DEFINITION, max_iterations=1))
    assert kinds(run.give(recover())) == ["ToolReturned", "RunCompleted"]


def test_recovering_twice_in_a_row_is_two_visible_interruptions() -> None:
    run = begun()
    run.give(recover())
    run.give(recover())
    assert isinstance(run.state, AwaitingModel)
    assert (run.state.attempt, run.state.lost_attempts) == (3, 2)


def test_a_result_knows_the_call_it_belongs_to() -> None:
    run = begun()
    effect = run.effects[-1]
    assert isinstance(effect, CallModel)
    assert answered(run.state).key == effect.key
    failure: ModelFailed = erred(run.state)
    assert failure.key == effect.key
    run = at_tools("A", "B")
    assert {returned(run.state, index).key for index in (0, 1)} == {effect.key for effect in run.effects[1:]}  # type: ignore[union-attr]  # calls of tools
