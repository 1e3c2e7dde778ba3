from collections.abc import Callable

import pytest

from loomlog.schemas.generated.run_events import RunQuarantined
from loomlog.services.core.run.commands import ModelFailed, RecoverCommand, ToolCompleted
from loomlog.services.core.run.conversation.conversation import build_conversation
from loomlog.services.core.run.react import CallModel, CallTool, ReconcileTool, StopCalls
from loomlog.services.core.run.state import Absent
from loomlog.services.runtime.run.family import RunFamily
from tests.services.core.run.given import (
    NOW,
    RUN,
    Run,
    at_tools,
    begun,
    cancelled,
    completed,
    failed,
    kinds,
    parked,
    recover,
    refused,
    start,
)

FAMILY = RunFamily()
MODEL = CallModel(run_id=RUN, turn=1, attempt=1, provider="p", model="m", not_before_ms=0)
TOOL = CallTool(run_id=RUN, turn=1, index=0, attempt=1, call_id="c0", name="A", input="{}", effect_class="read")
OVER: dict[str, Callable[[], Run]] = {
    "refused": refused,
    "completed": completed,
    "failed": failed,
    "cancelled": cancelled,
}
LIVE: dict[str, Callable[[], Run]] = {"model": begun, "tools": lambda: at_tools("A"), "parked": parked}


@pytest.mark.parametrize("make", OVER.values(), ids=OVER.keys())
def test_a_run_is_over_exactly_after_one_of_the_endings(make: Callable[[], Run]) -> None:
    run = make()
    assert FAMILY.is_ended(run.state)
    assert [event.SCHEMA in FAMILY.endings for event in run.events] == [False] * (len(run.events) - 1) + [True]


@pytest.mark.parametrize("make", LIVE.values(), ids=LIVE.keys())
def test_a_live_run_has_had_no_ending(make: Callable[[], Run]) -> None:
    run = make()
    assert not FAMILY.is_ended(run.state)
    assert not any(event.SCHEMA in FAMILY.endings for event in run.events)


def test_a_run_goes_on_with_the_conversation_of_the_one_it_continues() -> None:
    history = FAMILY.lineage.history(completed().state)
    assert history == build_conversation(completed().state)
    assert FAMILY.lineage.with_history("r_2", history) == Absent(run_id="r_2", history=history)
    assert FAMILY.absent("r_2") == Absent(run_id="r_2")


def test_a_crashed_model_call_fails_the_run_with_its_reason() -> None:
    run = begun()
    order = FAMILY.effects.crashed(MODEL, "ZeroDivisionError: a bug", NOW)
    assert isinstance(order, ModelFailed)
    assert kinds(run.give(order)) == ["ModelCallFailed", "RunFailed"]
    assert "crashed in loomlog: ZeroDivisionError: a bug" in order.message


def test_a_crashed_tool_call_is_a_result_the_model_sees() -> None:
    run = at_tools("A")
    order = FAMILY.effects.crashed(TOOL, "ZeroDivisionError: a bug", NOW)
    assert isinstance(order, ToolCompleted)
    assert kinds(run.give(order)) == ["ToolReturned", "ModelCallRequested"]
    assert order.text == "the tool A crashed: ZeroDivisionError: a bug"


def test_a_crashed_question_about_a_call_is_asked_again() -> None:
    run = at_tools("A", classes=("unsafe",), reconcilable=(True,))
    run.give(recover())
    asked = run.effects[-1]
    assert isinstance(asked, ReconcileTool)
    assert kinds(run.give(FAMILY.effects.crashed(asked, "ZeroDivisionError: a bug", NOW))) == ["ToolReconcileRequested"]


def test_stopping_calls_is_no_call() -> None:
    stop = StopCalls(run_id=RUN)
    assert FAMILY.effects.stops_calls(stop)
    assert not FAMILY.effects.stops_calls(MODEL)
    assert not FAMILY.effects.stops_calls(TOOL)
    with pytest.raises(AssertionError):
        FAMILY.effects.crashed(stop, "x", NOW)


def test_recovery_is_told_which_calls_go_on() -> None:
    assert FAMILY.effects.recover(NOW, frozenset({MODEL.key})) == RecoverCommand(
        at_ms=NOW, still_running=frozenset({MODEL.key})
    )


@pytest.mark.parametrize("make", LIVE.values(), ids=LIVE.keys())
def test_a_quarantine_is_told_by_its_event_and_its_state(make: Callable[[], Run]) -> None:
    run = make()
    assert FAMILY.quarantined(run.state) == ""
    event = FAMILY.quarantine("a bug", "topic", 7)
    assert event == RunQuarantined(error="a bug", record_topic="topic", record_offset=7)
    assert (
        FAMILY.quarantined(
            FAMILY.evolve(run.state, RunQuarantined(error="a bug", record_topic="t", record_offset=7), NOW)
        )
        == "a bug"
    )


def test_the_trace_of_a_run_is_known_while_and_after_it_lives() -> None:
    from loomlog.schemas.records import replace

    run = Run()
    run.give(replace(start(), traceparent="00-x"))
    assert FAMILY.traceparent(run.state) == "00-x"
    assert FAMILY.traceparent(Absent(run_id=RUN)) == ""
    assert FAMILY.traceparent(refused().state) == ""


@pytest.mark.parametrize("make", [*LIVE.values(), *OVER.values(), Run])
def test_every_state_can_be_written_down(make: Callable[[], Run]) -> None:
    state = make().state
    assert FAMILY.states.decode(FAMILY.states.encode(state)) == state
