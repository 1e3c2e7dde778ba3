"""A lost call: its tool or a person is asked, and the answer decides; the question is in the log before it is asked."""

from collections.abc import Callable
from typing import Any

import pytest

from loomlog.schemas.generated.run_events import (
    CommandRefused,
    RunFailed,
    ToolCallRequested,
    ToolOutcomeAsked,
    ToolReconcileRequested,
    ToolReturned,
)
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import (
    CANNOT_TELL,
    DID_NOT_HAPPEN,
    FAILED,
    HAPPENED,
    CallKey,
    CallsUnstarted,
    ToolCompleted,
)
from loomlog.services.core.run.react import CallTool, ReconcileTool
from loomlog.services.core.run.state import AwaitingModel, AwaitingTools
from loomlog.services.core.run.tools import unknown_outcome
from tests.services.core.run.given import (
    DEFINITION,
    NOW,
    Run,
    at_tools,
    begun,
    cancelled,
    completed,
    kinds,
    reconciled,
    recover,
    resolve,
    returned,
)


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
    event = events[0]
    assert isinstance(event, ToolReturned)
    assert (event.text, event.outcome, event.settled_by, event.attempt) == ("paid", outcome, "reconciler", 1)


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
    event = run.give(reconciled(run.state, 0, CANNOT_TELL, "no such order number"))[0]
    assert isinstance(event, ToolReturned)
    assert event.outcome == "outcome_unknown"
    assert "no such order number" in event.text


def test_a_question_that_fails_is_asked_again_later_and_later_and_not_for_ever() -> None:
    run = lost()
    waits = []
    for _ in range(limits.RECONCILES_MAX - 1):
        (asked,) = run.give(reconciled(run.state, 0, FAILED, "no route"))
        assert isinstance(asked, ToolReconcileRequested)
        assert asked.reason == "no route"
        waits.append(asked.not_before_ms - NOW)
    assert waits == list(limits.RECONCILE_BACKOFF_MS[: len(waits)])
    event = run.give(reconciled(run.state, 0, FAILED, "no route"))[0]
    assert isinstance(event, ToolReturned)
    assert event.outcome == "outcome_unknown"


def test_a_question_lost_with_its_owner_is_asked_again_by_the_next_and_not_for_ever() -> None:
    run = lost()
    for ask in range(2, limits.RECONCILES_MAX + 1):
        assert kinds(run.give(recover())) == ["ToolReconcileRequested"]
        assert isinstance(run.state, AwaitingTools)
        assert run.state.open[0].reconcile_attempts == ask
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


# --- policy ----------------------------------------------------------------------------------------------------------


def waiting(*names: str, **more: Any) -> Run:
    """A run whose unsafe calls were lost and whose definition wants a person to be asked."""
    run = at_tools(
        *(names or ("Pay",)),
        classes=("unsafe",) * max(1, len(names)),
        definition=replace(DEFINITION, unknown_outcome="ask"),
        **more,
    )
    run.give(recover())
    return run


def test_a_person_is_asked_and_the_run_waits_whatever_happens_to_its_owners() -> None:
    run = waiting()
    asked = run.events[-1]
    assert isinstance(asked, ToolOutcomeAsked)
    assert (asked.turn, asked.index, asked.attempt) == (1, 0, 1)
    assert run.give(recover()) == []
    assert isinstance(run.state, AwaitingTools)


@pytest.mark.parametrize(("result", "text"), [("paid on Monday", "paid on Monday"), ("", "an operator has checked")])
def test_a_call_that_somebody_says_is_done_has_that_result(result: str, text: str) -> None:
    run = waiting()
    events = run.give(resolve(result=result))
    assert kinds(events) == ["ToolReturned", "ModelCallRequested"]
    event = events[0]
    assert isinstance(event, ToolReturned)
    assert text in event.text
    assert (event.outcome, event.is_error, event.settled_by) == ("ok", False, "operator")


def test_a_call_that_somebody_says_is_not_done_is_made_again() -> None:
    run = waiting()
    (again,) = run.give(resolve(done=False))
    assert isinstance(again, ToolCallRequested)
    assert again.attempt == 2
    assert isinstance(run.effects[-1], CallTool)
    assert kinds(run.give(recover())) == ["ToolOutcomeAsked"], "a further loss is a further question"


def test_the_other_calls_of_the_turn_are_waited_for_too() -> None:
    run = waiting("Pay", "Ship")
    assert kinds(run.give(resolve(1, 1))) == ["ToolReturned"]
    assert kinds(run.give(resolve(1, 0))) == ["ToolReturned", "ModelCallRequested"]


def test_a_result_that_comes_late_after_all_needs_no_person_any_more() -> None:
    run = waiting()
    assert kinds(run.give(returned(run.state, 0, "paid"))) == ["ToolReturned", "ModelCallRequested"]


@pytest.mark.parametrize("make", [begun, lambda: at_tools("A"), waiting])
def test_what_waits_for_nobody_cannot_be_resolved(make: Callable[[], Run]) -> None:
    (refused,) = make().give(resolve(1, 1))
    assert isinstance(refused, CommandRefused)
    assert refused.code == "nothing_to_resolve"


@pytest.mark.parametrize("make", [Run, completed, cancelled])
def test_nothing_is_resolved_in_a_run_that_is_over_or_never_was(make: Callable[[], Run]) -> None:
    assert make().give(resolve()) == []


def test_a_tool_that_cannot_tell_leads_to_the_person() -> None:
    run = at_tools(
        "Pay", classes=("unsafe",), reconcilable=(True,), definition=replace(DEFINITION, unknown_outcome="ask")
    )
    run.give(recover())
    assert kinds(run.give(reconciled(run.state, 0, CANNOT_TELL))) == ["ToolOutcomeAsked"]
    assert run.give(reconciled(run.state, 0, CANNOT_TELL)) == []


def test_a_run_that_must_not_go_on_without_knowing_fails_and_begins_nothing() -> None:
    run = at_tools("Pay", "Look", classes=("unsafe", "read"), definition=replace(DEFINITION, unknown_outcome="fail"))
    effects = len(run.effects)
    events = run.give(recover())
    assert kinds(events) == ["ToolReturned", "RunFailed"]
    failed = events[-1]
    assert isinstance(failed, RunFailed)
    assert failed.code == "outcome_unknown"
    assert not any(isinstance(effect, CallTool) for effect in run.effects[effects:])


# --- a tool that says itself that nobody can know --------------------------------------------------------------------


def nobody_knows(run: Run) -> ToolCompleted:
    return replace(returned(run.state, 0, "the client went away"), is_error=True, outcome="outcome_unknown")


def test_a_tool_may_say_that_its_outcome_is_unknown_and_the_model_is_told() -> None:
    run = at_tools("Pay", classes=("unsafe",))
    events = run.give(nobody_knows(run))
    assert kinds(events) == ["ToolReturned", "ModelCallRequested"]
    event = events[0]
    assert isinstance(event, ToolReturned)
    assert (event.outcome, event.is_error, event.settled_by) == ("outcome_unknown", True, "tool")


def test_no_owner_was_lost_with_such_a_call() -> None:
    run = at_tools("Pay", classes=("unsafe",))
    run.give(nobody_knows(run))
    assert isinstance(run.state, AwaitingModel)
    assert run.state.facts.losses.count == 0


def test_policy_decides_about_it_as_about_any_other() -> None:
    asking = at_tools("Pay", classes=("unsafe",), definition=replace(DEFINITION, unknown_outcome="ask"))
    order = nobody_knows(asking)
    (asked,) = asking.give(order)
    assert isinstance(asked, ToolOutcomeAsked)
    assert asked.reason == "the client went away"
    assert asking.give(order) == [], "a person is asked once"
    failing = at_tools("Pay", classes=("unsafe",), definition=replace(DEFINITION, unknown_outcome="fail"))
    assert kinds(failing.give(nobody_knows(failing))) == ["ToolReturned", "RunFailed"]


# --- a planned stop --------------------------------------------------------------------------------------------------


def not_begun(*keys: CallKey) -> CallsUnstarted:
    return CallsUnstarted(at_ms=NOW, keys=frozenset(keys))


def test_a_model_call_that_was_not_begun_is_made_without_a_word_of_failure() -> None:
    run = begun()
    assert kinds(run.give(not_begun(("model", 1, 0, 1)))) == ["CallNotBegun"]
    assert unknown_outcome.costly_call_keys(run.state) == []
    assert kinds(run.give(recover())) == ["ModelCallRequested"]
    assert kinds(run.give(recover())) == ["ModelCallFailed", "ModelCallRequested"], "this attempt may have begun"


def test_an_unsafe_call_that_was_not_begun_is_made_by_the_next_owner() -> None:
    run = at_tools("Pay", "Ship", classes=("unsafe", "unsafe"))
    run.give(not_begun(("tool", 1, 0, 1)))
    events = run.give(recover())
    assert [(type(event).__name__, event.index) for event in events] == [  # type: ignore[union-attr]  # of tools
        ("ToolReturned", 1),
        ("ToolCallRequested", 0),
    ]
    assert kinds(run.give(recover())) == ["ToolReturned", "ModelCallRequested"], "this attempt may have begun"


@pytest.mark.parametrize("key", [("model", 1, 0, 2), ("model", 2, 0, 1), ("tool", 1, 0, 1)])
def test_a_call_that_is_not_open_is_not_said_not_to_have_begun(key: CallKey) -> None:
    assert begun().give(not_begun(key)) == []
