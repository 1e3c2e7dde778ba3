"""Answers, failures and results: what comes back from calls, in time, late or twice."""

from collections.abc import Callable
from typing import Any

import pytest

from loomlog.schemas.generated.run_events import (
    ModelCallFailed,
    ModelReplied,
    RunCompleted,
    RunFailed,
    ToolCallRequested,
    ToolReturned,
)
from loomlog.schemas.generated.values import BlobRef, Usage
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.react import CallModel, CallTool, StopCalls
from loomlog.services.core.run.state import AwaitingModel, AwaitingTools, Ended
from loomlog.services.core.run.turns.completion import iteration_cap
from tests.services.core.run.given import (
    DEFINITION,
    RUN,
    USAGE,
    Run,
    answered,
    at_tools,
    begun,
    calls,
    cancelled,
    completed,
    erred,
    failed,
    kinds,
    parked,
    returned,
)

# --- answers ---------------------------------------------------------------------------------------------------------


def test_an_answer_without_calls_completes_the_run_with_its_sums() -> None:
    run = begun()
    events = run.give(answered(run.state, "done", reasoning="because", reasoning_signature="sig"))
    replied, ended = events
    assert isinstance(replied, ModelReplied)
    assert (replied.text, replied.reasoning, replied.reasoning_signature) == ("done", "because", "sig")
    assert ended == RunCompleted(stop_reason="end_turn", usage=USAGE, iterations=1, cost_micros=3, currency="USD")
    assert isinstance(run.state, Ended)
    assert run.state.facts.usage == USAGE


@pytest.mark.parametrize("stop_reason", ["end_turn", "max_tokens", "stop_sequence"])
def test_the_stop_reason_of_the_last_turn_is_that_of_the_run(stop_reason: str) -> None:
    run = begun()
    events = run.give(answered(run.state, "done", stop_reason=stop_reason))
    assert isinstance(events[-1], RunCompleted)
    assert events[-1].stop_reason == stop_reason


def test_an_answer_with_calls_asks_for_each_of_them_in_the_same_decision() -> None:
    run = begun()
    events = run.give(answered(run.state, "", *calls("Read", "Bash"), classes=("read", "unsafe")))
    assert events[1:] == [
        ToolCallRequested(turn=1, index=0, call_id="c0", effect_class="read"),
        ToolCallRequested(turn=1, index=1, call_id="c1", effect_class="unsafe"),
    ]
    assert run.effects[1:] == [
        CallTool(
            run_id=RUN, turn=1, index=index, attempt=1, call_id=f"c{index}", name=name, input="{}", effect_class=kind
        )
        for index, (name, kind) in enumerate([("Read", "read"), ("Bash", "unsafe")])
    ]


def test_sums_grow_over_the_turns() -> None:
    run = at_tools("Read")
    run.give(returned(run.state, 0))
    events = run.give(answered(run.state, "done", usage=Usage(input_tokens=1, cache_read_input_tokens=7)))
    assert isinstance(events[-1], RunCompleted)
    assert events[-1].usage == Usage(input_tokens=11, output_tokens=5, cache_read_input_tokens=7)
    assert (events[-1].iterations, events[-1].cost_micros) == (2, 6)


def test_an_unpriced_turn_keeps_the_currency_of_the_others() -> None:
    run = at_tools("Read")
    run.give(returned(run.state, 0))
    events = run.give(answered(run.state, "done", cost_micros=0, currency=""))
    assert isinstance(events[-1], RunCompleted)
    assert (events[-1].cost_micros, events[-1].currency) == (3, "USD")


def test_calls_over_the_bound_of_a_turn_get_an_error_result_at_once() -> None:
    run = begun()
    names = ["Read"] * (limits.MAX_TOOL_CALLS_PER_TURN + 2)
    events = run.give(answered(run.state, "", *calls(*names)))
    assert kinds(events).count("ToolCallRequested") == limits.MAX_TOOL_CALLS_PER_TURN
    over = [event for event in events if isinstance(event, ToolReturned)]
    assert [event.index for event in over] == [128, 129]
    assert all(event.is_error for event in over)
    for index in range(limits.MAX_TOOL_CALLS_PER_TURN):
        assert isinstance(run.state, AwaitingTools)
        run.give(returned(run.state, index))
    assert isinstance(run.state, AwaitingModel)
    assert len(run.live.facts.messages[-1].blocks) == len(names)


@pytest.mark.parametrize(
    "make",
    [cancelled, failed, completed, parked, lambda: at_tools("Read")],
    ids=["cancelled", "failed", "completed", "parked", "already answered"],
)
def test_an_answer_that_nobody_awaits_changes_nothing(make: Callable[[], Run]) -> None:
    run = make()
    first = begun().state
    assert run.give(answered(first, "late")) == []
    assert run.give(erred(first)) == []


@pytest.mark.parametrize(("turn", "attempt"), [(1, 2), (2, 1), (0, 0)])
def test_an_answer_of_another_turn_or_attempt_changes_nothing(turn: int, attempt: int) -> None:
    run = begun()
    assert run.give(answered(run.state, "late", turn=turn, attempt=attempt)) == []
    assert run.give(erred(run.state, turn=turn, attempt=attempt)) == []
    assert isinstance(run.state, AwaitingModel)


# --- results ---------------------------------------------------------------------------------------------------------


def test_the_next_turn_begins_when_all_results_are_in_and_not_before() -> None:
    run = at_tools("A", "B", "C")
    assert kinds(run.give(returned(run.state, 2, "third"))) == ["ToolReturned"]
    assert kinds(run.give(returned(run.state, 0, "first"))) == ["ToolReturned"]
    assert kinds(run.give(returned(run.state, 1, "second"))) == ["ToolReturned", "ModelCallRequested"]
    results = run.live.facts.messages[-1].blocks
    assert [getattr(block, "text", "") for block in results] == ["first", "second", "third"]
    assert [getattr(block, "tool_use_id", "") for block in results] == ["c0", "c1", "c2"]


def test_one_failed_call_does_not_stop_its_siblings() -> None:
    run = at_tools("A", "B")
    run.give(returned(run.state, 0, "broken", is_error=True, outcome="error"))
    assert isinstance(run.state, AwaitingTools)
    run.give(returned(run.state, 1, "fine"))
    blocks = run.live.facts.messages[-1].blocks
    assert [getattr(block, "is_error", None) for block in blocks] == [True, False]


def test_a_second_result_of_a_call_changes_nothing() -> None:
    run = at_tools("A", "B")
    first = returned(run.state, 0, "first")
    run.give(first)
    assert run.give(replace(first, text="again")) == []
    run.give(returned(run.state, 1))
    assert run.give(first) == []
    assert getattr(run.live.facts.messages[-1].blocks[0], "text", "") == "first"


@pytest.mark.parametrize("wrong", [{"turn": 2}, {"attempt": 2}, {"index": 7}, {"index": -1}])
def test_a_result_of_another_call_changes_nothing(wrong: dict[str, Any]) -> None:
    run = at_tools("A")
    assert run.give(replace(returned(run.state, 0), **wrong)) == []


@pytest.mark.parametrize("make", [cancelled, completed, parked, begun])
def test_a_result_that_nobody_awaits_changes_nothing(make: Callable[[], Run]) -> None:
    late = returned(at_tools("A").state, 0)
    run = make()
    assert run.give(late) == []


def test_a_result_in_the_blob_store_is_named_in_the_conversation() -> None:
    ref = BlobRef(sha256="0" * 64, size_bytes=99)
    run = at_tools("A")
    run.give(returned(run.state, 0, "", text_blob=ref))
    assert getattr(run.live.facts.messages[-1].blocks[0], "blob", None) == ref


# --- the cap ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "unbounded", "interactive", "cap"),
    [
        (0, False, False, limits.MAX_ITERATIONS_DEFAULT),
        (3, False, False, 3),
        (3, False, True, 3),
        (0, False, True, limits.ITERATIONS_BACKSTOP),
        (3, True, False, limits.ITERATIONS_BACKSTOP),
        (1 << 30, False, False, limits.ITERATIONS_BACKSTOP),
    ],
)
def test_the_cap_of_turns(asked: int, unbounded: bool, interactive: bool, cap: int) -> None:
    definition = replace(DEFINITION, max_iterations=asked, unbounded_iterations=unbounded)
    assert iteration_cap(begun(definition, interactive=interactive).live.facts) == cap


def test_a_run_that_only_calls_tools_is_completed_at_its_cap_after_the_last_results() -> None:
    run = begun(replace(DEFINITION, max_iterations=2))
    for _ in range(2):
        run.give(answered(run.state, "", *calls("A")))
        assert isinstance(run.state, AwaitingTools)
        events = run.give(returned(run.state, 0))
    assert kinds(events) == ["ToolReturned", "RunCompleted"]
    assert isinstance(events[-1], RunCompleted)
    assert (events[-1].stop_reason, events[-1].iterations) == ("max_iterations", 2)


# --- failures --------------------------------------------------------------------------------------------------------


def test_a_permanent_failure_ends_the_run_and_stops_its_calls() -> None:
    run = begun()
    events = run.give(erred(run.state, "unauthorised", message="acme 401: who are you?"))
    assert kinds(events) == ["ModelCallFailed", "RunFailed"]
    failure, end = events
    assert isinstance(failure, ModelCallFailed)
    assert isinstance(end, RunFailed)
    assert (failure.kind, failure.provider, failure.model) == ("unauthorised", "acme", "large")
    assert (end.code, end.error) == ("model_error", "acme 401: who are you?")
    assert run.effects[-1] == StopCalls(run_id=RUN)


def test_a_whole_page_of_an_error_is_cut() -> None:
    run = begun()
    failure, end = run.give(erred(run.state, message="x" * 100_000))
    assert isinstance(failure, ModelCallFailed)
    assert isinstance(end, RunFailed)
    assert len(failure.message) == len(end.error) == limits.ERROR_TEXT_MAX


def test_a_retry_asks_for_the_same_turn_again() -> None:
    run = begun(replace(DEFINITION, retry_attempts=1))
    events = run.give(erred(run.state, "overloaded", transient=True))
    assert kinds(events) == ["ModelCallFailed", "ModelCallRequested"]
    effect = run.effects[-1]
    assert isinstance(effect, CallModel)
    assert (effect.turn, effect.attempt) == (1, 2)
    assert kinds(run.give(answered(run.state, "done"))) == ["ModelReplied", "RunCompleted"]
    assert run.state.facts.model_errors == 1  # type: ignore[union-attr]  # it has ended, so it has facts
