"""Final answers of runs with an output schema: the record, the correction, the failure."""

from typing import Any

from loomlog.schemas.conversation import TextBlock
from loomlog.schemas.generated.run_events import (
    ModelCallRequested,
    ModelReplied,
    OutputRejected,
    RunCompleted,
    RunFailed,
    RunPaused,
)
from loomlog.schemas.generated.values import OutputCheck
from loomlog.schemas.records import replace
from loomlog.services.core.run.evolve import evolve
from loomlog.services.core.run.lifecycle.fork import content_sha256
from loomlog.services.core.run.state import AwaitingModel, Ended, State
from loomlog.services.core.run.subagents.children import last_output
from tests.services.core.run.given import DEFINITION, NOW, Run, answered, begun, calls, pause, returned, says

TYPED = replace(DEFINITION, output_schema='{"type":"object"}', output_schema_sha256="ab" * 32, output_retries=2)
RECORD = '{"total":3}'
GOOD = OutputCheck(result=RECORD)
BAD = OutputCheck(path="$.total", problem="Answer again.", error="$.total: 3 is expected")


def typed(**more: Any) -> Run:
    """A run that owes a record and awaits its model."""
    return begun(replace(TYPED, **more))


def answer(run: Run, output: OutputCheck | None, text: str = "x") -> list[str]:
    """Give the run a final answer; returns the names of the events that follow it."""
    assert isinstance(run.state, AwaitingModel)
    return [type(event).__name__ for event in run.give(answered(run.state, text, output=output))]


def test_a_record_completes_the_run_and_is_in_its_end() -> None:
    run = typed()
    assert answer(run, GOOD, RECORD) == ["ModelReplied", "RunCompleted"]
    end = run.events[-1]
    assert isinstance(end, RunCompleted)
    assert (end.result, end.stop_reason, end.iterations) == (RECORD, "end_turn", 1)


def test_a_parent_and_a_hook_are_given_the_record() -> None:
    run = typed()
    answer(run, GOOD, RECORD)
    assert last_output(run.state) == (RECORD, None)


def test_an_answer_that_is_no_record_is_told_to_the_model_in_a_further_turn() -> None:
    run = typed()
    assert answer(run, BAD) == ["ModelReplied", "OutputRejected", "ModelCallRequested"]
    assert isinstance(run.state, AwaitingModel)
    assert run.state.turn == 2
    assert run.state.facts.messages[-1].role == "user"
    assert run.state.facts.messages[-1].blocks == (TextBlock(text="Answer again."),)
    assert answer(run, GOOD, RECORD) == ["ModelReplied", "RunCompleted"]


def test_a_run_fails_when_its_corrections_are_used_up() -> None:
    run = typed()
    answer(run, BAD)
    answer(run, BAD)
    assert answer(run, BAD) == ["ModelReplied", "OutputRejected", "RunFailed"]
    failed = run.events[-1]
    assert isinstance(failed, RunFailed)
    assert failed.code == "output_invalid"
    assert failed.error == (
        "output_invalid: the last of 3 answers does not meet the output schema: $.total: 3 is expected"
    )
    assert (failed.iterations, failed.cost_micros) == (3, 9)
    assert [event.number for event in run.events if isinstance(event, OutputRejected)] == [1, 2, 3]


def test_without_corrections_the_first_answer_counts() -> None:
    run = typed(output_retries=0)
    assert answer(run, BAD) == ["ModelReplied", "OutputRejected", "RunFailed"]


def test_a_script_is_not_asked_again() -> None:
    run = typed(code_body="x", output_retries=5)
    assert answer(run, BAD) == ["ModelReplied", "OutputRejected", "RunFailed"]


def test_an_answer_that_nobody_has_checked_is_not_taken() -> None:
    run = typed()
    assert answer(run, None) == ["ModelReplied", "OutputRejected", "ModelCallRequested"]


def test_a_call_of_a_tool_is_no_final_answer() -> None:
    run = typed()
    assert isinstance(run.state, AwaitingModel)
    run.give(answered(run.state, "", *calls("Read")))
    run.give(returned(run.state, 0))
    assert answer(run, GOOD, RECORD) == ["ModelReplied", "RunCompleted"]


def test_a_run_that_has_used_its_turns_and_gave_no_record_has_failed() -> None:
    run = typed(max_iterations=1)
    assert isinstance(run.state, AwaitingModel)
    run.give(answered(run.state, "", *calls("Read")))
    failed = run.give(returned(run.state, 0))[-1]
    assert isinstance(failed, RunFailed)
    assert failed.code == "output_invalid"
    assert "used its 1 turns" in failed.error


def test_no_correction_is_begun_without_a_turn_for_it() -> None:
    run = typed(max_iterations=1)
    assert answer(run, BAD) == ["ModelReplied", "OutputRejected", "RunFailed"]


def test_a_pause_holds_back_the_correction() -> None:
    run = typed()
    run.give(pause())
    assert isinstance(run.state, AwaitingModel)
    assert isinstance(run.give(answered(run.state, "x", output=BAD))[-1], RunPaused)


def test_a_text_that_arrived_meanwhile_is_answered_first() -> None:
    run = typed()
    run.give(says("one thing more"))
    assert answer(run, GOOD, RECORD) == ["ModelReplied", "ModelCallRequested"]
    assert answer(run, GOOD, RECORD) == ["ModelReplied", "RunCompleted"]


def test_an_interactive_run_has_no_final_answer_to_check() -> None:
    run = begun(TYPED, interactive=True)
    assert answer(run, None) == ["ModelReplied", "RunParked"]


def test_a_replay_folds_to_the_same_end() -> None:
    run = typed()
    answer(run, BAD)
    answer(run, GOOD, RECORD)
    state: State = Run().state
    for event in run.events:
        state = evolve(state, event, NOW)
    assert state == run.state
    assert isinstance(state, Ended)


def test_without_a_schema_an_answer_completes_the_run_with_nothing_added() -> None:
    run = begun()
    assert answer(run, None) == ["ModelReplied", "RunCompleted"]
    end = run.events[-1]
    assert isinstance(end, RunCompleted)
    assert end.result == ""


def test_definitions_without_a_schema_keep_their_hash() -> None:
    assert content_sha256(DEFINITION) == "b2a054906a71ae2bdb5b7d41515c506f1f3e84dae7e8d3c4217c5ad3f31f7cb5"
    assert content_sha256(TYPED) != content_sha256(DEFINITION)


def test_intents_come_with_the_rejection() -> None:
    run = typed()
    assert isinstance(run.state, AwaitingModel)
    events = run.give(answered(run.state, "x", output=BAD))
    assert isinstance(events[0], ModelReplied)
    assert isinstance(events[2], ModelCallRequested)
    assert (events[2].turn, events[2].attempt) == (2, 1)
