"""A lost call whose tool can be asked: a question first, then what the answer allows."""

import pytest

from schemas.run_events import ToolCallRequested, ToolReconcileRequested, ToolReturned
from services.core.run import limits
from services.core.run.orders import CANNOT_TELL, DID_NOT_HAPPEN, FAILED, HAPPENED
from services.core.run.react import CallTool, ReconcileTool
from services.core.run.state import AwaitingTools
from tests.services.core.run.given import NOW, Run, at_tools, kinds, reconciled, recover, returned


def lost(effect_class: str = "unsafe") -> Run:
    """A run whose only call was lost and whose tool is being asked."""
    run = at_tools("Pay", classes=(effect_class,), reconcilable=(True,))
    run.give(recover())
    return run


def at_tools_askable() -> Run:
    return at_tools("Pay", classes=("unsafe",), reconcilable=(True,))


def test_the_question_is_in_the_log_before_it_is_asked() -> None:
    run = at_tools_askable()
    (asked,) = run.give(recover())
    assert isinstance(asked, ToolReconcileRequested)
    assert (asked.turn, asked.index, asked.attempt, asked.ask) == (1, 0, 1, 1)
    effect = run.effects[-1]
    assert isinstance(effect, ReconcileTool)
    assert (effect.name, effect.attempt, effect.key) == ("Pay", 1, ("reconcile", 1, 0, 1))


@pytest.mark.parametrize("effect_class", ["pure", "read", "idempotent"])
def test_a_call_that_may_be_repeated_is_not_asked_about(effect_class: str) -> None:
    assert isinstance(lost(effect_class).events[-1], ToolCallRequested)


@pytest.mark.parametrize(("is_error", "outcome"), [(False, "ok"), (True, "error")])
def test_what_has_happened_is_the_result_marked_as_found_out(is_error: bool, outcome: str) -> None:
    run = lost()
    events = run.give(reconciled(run.state, 0, HAPPENED, "paid", is_error=is_error))
    assert kinds(events) == ["ToolReturned", "ModelCallRequested"]
    told = events[0]
    assert isinstance(told, ToolReturned)
    assert (told.text, told.outcome, told.settled_by, told.attempt) == ("paid", outcome, "reconciler", 1)


def test_what_has_not_happened_is_done_by_the_next_attempt_which_can_be_asked_about_too() -> None:
    run = lost()
    (again,) = run.give(reconciled(run.state, 0, DID_NOT_HAPPEN))
    assert again == ToolCallRequested(
        turn=1, index=0, call_id="c0", attempt=2, effect_class="unsafe", reconcilable=True
    )
    assert isinstance(run.effects[-1], CallTool)
    (asked,) = run.give(recover())
    assert isinstance(asked, ToolReconcileRequested)
    assert (asked.attempt, asked.ask) == (2, 2)


def test_a_tool_that_cannot_tell_leaves_the_outcome_unknown_and_its_words_are_kept() -> None:
    run = lost()
    told = run.give(reconciled(run.state, 0, CANNOT_TELL, "no such order number"))[0]
    assert isinstance(told, ToolReturned)
    assert told.outcome == "outcome_unknown"
    assert "no such order number" in told.text


def test_a_question_that_fails_is_asked_again_later_and_later_and_not_for_ever() -> None:
    run = lost()
    waits = []
    for _ in range(limits.RECONCILES_MAX - 1):
        (asked,) = run.give(reconciled(run.state, 0, FAILED, "no route"))
        assert isinstance(asked, ToolReconcileRequested)
        assert asked.reason == "no route"
        waits.append(asked.not_before_ms - NOW)
    assert waits == list(limits.RECONCILE_BACKOFF_MS[: len(waits)])
    told = run.give(reconciled(run.state, 0, FAILED, "no route"))[0]
    assert isinstance(told, ToolReturned)
    assert told.outcome == "outcome_unknown"


def test_a_question_lost_with_its_owner_is_asked_again_by_the_next_and_not_for_ever() -> None:
    run = lost()
    for ask in range(2, limits.RECONCILES_MAX + 1):
        assert kinds(run.give(recover())) == ["ToolReconcileRequested"]
        assert isinstance(run.state, AwaitingTools)
        assert run.state.open[0].asks == ask
    assert kinds(run.give(recover())) == ["ToolReturned", "ModelCallRequested"]


def test_a_question_of_this_very_process_goes_on() -> None:
    assert lost().give(recover(("reconcile", 1, 0, 1))) == []
    assert kinds(lost().give(recover(("reconcile", 1, 0, 2)))) == ["ToolReconcileRequested"]


def test_the_result_of_the_call_itself_counts_while_its_tool_is_being_asked() -> None:
    run = lost()
    late = reconciled(run.state, 0, DID_NOT_HAPPEN)
    assert kinds(run.give(returned(run.state, 0, "paid"))) == ["ToolReturned", "ModelCallRequested"]
    assert run.give(late) == []


@pytest.mark.parametrize("wrong", [{"ask": 2}, {"attempt": 2}, {"turn": 2}])
def test_an_answer_to_another_question_changes_nothing(wrong: dict[str, int]) -> None:
    run = lost()
    assert run.give(reconciled(run.state, 0, HAPPENED, "x", **wrong)) == []


def test_an_answer_nobody_asked_for_changes_nothing() -> None:
    run = at_tools_askable()
    assert run.give(reconciled(run.state, 0, HAPPENED)) == []
