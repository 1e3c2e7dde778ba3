"""Cancel and input: what comes from outside to a run that is there, or not."""

from collections.abc import Callable

import pytest

from loomlog.schemas.generated.run_events import (
    CommandRefused,
    InputReceived,
    ModelCallRequested,
    RunCancelled,
    RunCompleted,
)
from loomlog.schemas.generated.values import Usage
from loomlog.schemas.ids import with_body
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.react import StopCalls
from loomlog.services.core.run.state import Absent, AwaitingModel, Ended, Parked
from tests.services.core.run.given import (
    DEFINITION,
    RUN,
    Run,
    answered,
    at_tools,
    begun,
    cancel,
    cancelled,
    completed,
    failed,
    kinds,
    parked,
    recover,
    refused,
    returned,
    says,
)

LIVE = {
    "awaiting the model": begun,
    "awaiting tools": lambda: at_tools("Read", "Read"),
    "parked": parked,
}
QUIET = {
    "absent": Run,
    "refused": refused,
    "completed": completed,
    "failed": failed,
    "cancelled": cancelled,
}


@pytest.mark.parametrize("make", LIVE.values(), ids=LIVE.keys())
def test_a_live_run_is_cancelled_with_its_sums_and_its_calls_are_stopped(make: Callable[[], Run]) -> None:
    run = make()
    run.effects.clear()
    facts = run.live.facts
    events = run.give(cancel("not needed"))
    assert events == [
        RunCancelled(
            reason="not needed",
            iterations=facts.turns,
            usage=facts.usage,
            cost_micros=facts.cost_micros,
            currency=facts.currency,
        )
    ]
    assert isinstance(run.state, Ended)
    assert (run.state.status, run.state.reason) == ("cancelled", "not needed")
    assert run.effects == [StopCalls(run_id=RUN)]


@pytest.mark.parametrize("make", QUIET.values(), ids=QUIET.keys())
def test_cancel_and_input_change_nothing_where_no_run_is_live(make: Callable[[], Run]) -> None:
    run = make()
    before = run.state
    assert run.give(cancel()) == []
    assert run.give(says("hello?")) == []
    assert run.give(recover()) == []
    assert run.state == before


def test_a_long_reason_is_cut() -> None:
    events = begun().give(cancel("x" * 10_000))
    assert isinstance(events[0], RunCancelled)
    assert len(events[0].reason) == limits.ERROR_TEXT_MAX


def test_an_interactive_run_parks_after_its_turn() -> None:
    run = parked()
    assert kinds(run.events) == ["RunStarted", "ModelCallRequested", "ModelReplied", "RunParked"]
    assert isinstance(run.state, Parked)


def test_input_wakes_a_parked_run_with_the_next_turn() -> None:
    run = parked()
    events = run.give(says("go on", source="webui"))
    assert events == [
        InputReceived(text="go on", source="webui", input_id="say go on"),
        ModelCallRequested(turn=2, attempt=1, provider="acme", model="large"),
    ]
    assert isinstance(run.state, AwaitingModel)
    last = run.state.facts.messages[-1]
    assert (last.role, getattr(last.blocks[0], "text", "")) == ("user", "go on")
    assert run.state.facts.waiting_inputs == ()


def test_input_during_a_model_call_waits_for_the_next_turn() -> None:
    run = begun()
    assert kinds(run.give(says("one"))) == ["InputReceived"]
    assert kinds(run.give(says("two"))) == ["InputReceived"]
    assert len(run.live.facts.messages) == 1
    assert kinds(run.give(answered(run.state, "hm"))) == ["ModelReplied", "ModelCallRequested"]
    texts = [getattr(message.blocks[0], "text", "") for message in run.live.facts.messages]
    assert texts == ["go", "hm", "one", "two"]


def test_input_is_never_put_between_a_call_and_its_result() -> None:
    run = at_tools("Read", "Read")
    run.give(says("by the way"))
    run.give(returned(run.state, 0))
    run.give(returned(run.state, 1))
    roles = [(message.role, type(message.blocks[0]).__name__) for message in run.live.facts.messages]
    assert roles == [
        ("user", "TextBlock"),
        ("assistant", "TextBlock"),
        ("user", "ToolResultBlock"),
        ("user", "TextBlock"),
    ]


def test_a_repeated_text_is_answered_and_changes_nothing_whatever_the_run_does_meanwhile() -> None:
    run = parked()
    run.give(says("go on", input_id="first"))
    assert kinds(run.give(says("go on", input_id="first"))) == ["CommandRefused"]
    run.give(answered(run.state, "well"))
    assert isinstance(run.state, Parked)
    assert kinds(run.give(says("go on", input_id="first"))) == ["CommandRefused"]
    assert kinds(run.give(says("go on", input_id="second"))) == ["InputReceived", "ModelCallRequested"]


def test_another_text_under_the_key_of_one_that_was_received_is_refused() -> None:
    run = parked()
    run.give(says("go on", input_id=with_body("key", "go on")))
    (refused,) = run.give(says("stop", input_id=with_body("key", "stop")))
    assert isinstance(refused, CommandRefused)
    assert refused.code == "idempotency_key_reused"
    (repeated,) = run.give(says("go on", input_id=with_body("key", "go on")))
    assert isinstance(repeated, CommandRefused)
    assert repeated.code != refused.code


def test_a_run_remembers_the_latest_texts_only() -> None:
    run = parked()
    for number in range(limits.INPUT_IDS_KEPT + 1):
        run.give(says(f"text {number}"))
        run.give(answered(run.state, "well"))
    assert len(run.live.facts.input_ids) == limits.INPUT_IDS_KEPT
    assert run.live.facts.input_ids[-1] == f"say text {limits.INPUT_IDS_KEPT}"


def test_too_many_waiting_inputs_are_refused_and_the_run_goes_on() -> None:
    run = begun()
    for number in range(limits.MAX_WAITING_INPUTS):
        assert kinds(run.give(says(f"text {number}"))) == ["InputReceived"]
    events = run.give(says("one too many"))
    assert kinds(events) == ["CommandRefused"]
    assert isinstance(events[0], CommandRefused)
    assert events[0].code == "queue_full"
    assert len(run.live.facts.waiting_inputs) == limits.MAX_WAITING_INPUTS
    run.give(answered(run.state, "so much to do"))
    assert run.live.facts.waiting_inputs == ()
    assert kinds(run.give(says("now there is room"))) == ["InputReceived"]


def test_an_interactive_run_without_a_bound_goes_on_past_the_default() -> None:
    run = parked()
    for number in range(limits.MAX_ITERATIONS_DEFAULT + 4):
        run.give(says(f"text {number}"))
        run.give(answered(run.state, "yes"))
    assert isinstance(run.state, Parked)


def bounded(turns: int) -> Run:
    return begun(replace(DEFINITION, max_iterations=turns), interactive=True)


def test_an_interactive_run_ends_with_its_last_turn_instead_of_waiting_for_what_it_could_not_answer() -> None:
    run = bounded(2)
    run.give(answered(run.state, "one"))
    run.give(says("more"))
    events = run.give(answered(run.state, "two"))
    assert kinds(events) == ["ModelReplied", "RunCompleted"]
    assert isinstance(events[1], RunCompleted)
    assert (events[1].stop_reason, events[1].iterations) == ("max_iterations", 2)
    assert events[1].usage == Usage(input_tokens=20, output_tokens=10)


def test_input_that_comes_during_the_last_turn_is_not_answered_and_the_end_says_why() -> None:
    run = begun(replace(DEFINITION, max_iterations=1))
    run.give(says("wait"))
    events = run.give(answered(run.state, "done"))
    assert isinstance(events[-1], RunCompleted)
    assert events[-1].stop_reason == "max_iterations"


def test_an_absent_run_stays_absent() -> None:
    run = Run()
    run.give(cancel())
    assert run.state == Absent(run_id=RUN)
