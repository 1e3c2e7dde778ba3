"""Runs whose agent is a script: no bound of turns, texts that wait, time, failures."""

import pytest

from loomlog.connectors.errors import CODE_AGENT_KINDS
from loomlog.connectors.models.code_replay import recorded_calls
from loomlog.schemas.conversation import TextBlock, ToolResultBlock
from loomlog.schemas.generated.run_events import CommandRefused, ModelCallRequested, RunFailed
from loomlog.schemas.generated.values import AgentDefinition, BlobRef, Compaction
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import InputCommand, RunTimerFired
from loomlog.services.core.run.conversation.compaction import request_compaction
from loomlog.services.core.run.state import AwaitingModel, Parked, Paused
from loomlog.services.core.run.turns.code_agents import is_code_agent
from tests.services.core.run.asking import stops
from tests.services.core.run.given import (
    DEFINITION,
    NOW,
    Run,
    answered,
    begun,
    calls,
    erred,
    kinds,
    pause,
    resume,
    returned,
    says,
)

SCRIPT = replace(DEFINITION, code_body="function run() {}", unbounded_iterations=True)
IN_BLOB = replace(DEFINITION, code_blob=BlobRef(sha256="ab" * 32, size_bytes=70_000, media_type="text/plain"))


def mid_script() -> Run:
    """A script has asked for a tool, and got its result."""
    run = begun(SCRIPT)
    run.give(answered(run.state, "", *calls("A")))
    return run


def stopped(*, at_call: bool) -> Run:
    """A script whose turn is stopped after its first call: while the next is under way, or while it is executed."""
    run = begun(SCRIPT, interactive=True)
    run.give(answered(run.state, "", *calls("A")))
    run.give(returned(run.state, 0))
    if at_call:
        run.give(answered(run.state, "", *calls("A", "B")[1:]))
    return run


def texts(run: Run) -> list[str]:
    assert isinstance(run.state, AwaitingModel)
    return [
        block.text for message in run.state.facts.messages for block in message.blocks if isinstance(block, TextBlock)
    ]


def test_a_definition_with_a_script_is_a_code_agent_wherever_the_script_lies() -> None:
    assert [is_code_agent(one) for one in (SCRIPT, IN_BLOB, DEFINITION)] == [True, True, False]


def test_a_text_waits_until_the_script_has_returned() -> None:
    run = mid_script()
    run.give(says("and then?"))
    run.give(returned(run.state, 0))
    assert texts(run) == ["go"]
    assert run.live.facts.waiting_inputs == ("and then?",)
    events = run.give(answered(run.state, "done"))
    assert kinds(events) == ["ModelReplied", "ModelCallRequested"]
    assert texts(run) == ["go", "done", "and then?"]
    assert kinds(run.give(answered(run.state, "done again"))) == ["ModelReplied", "RunCompleted"]


def test_a_script_that_returns_nothing_is_executed_for_the_next_text_all_the_same() -> None:
    run = mid_script()
    run.give(says("and then?"))
    run.give(returned(run.state, 0))
    run.give(answered(run.state, ""))
    assert texts(run) == ["go", "and then?"]
    assert run.live.facts.waiting_inputs == ()


def test_a_pause_in_the_middle_of_a_script_lets_no_text_in() -> None:
    run = mid_script()
    run.give(pause())
    run.give(says("and then?"))
    run.give(returned(run.state, 0))
    run.give(resume())
    assert isinstance(run.state, AwaitingModel)
    assert isinstance(run.state.facts.messages[-1].blocks[0], ToolResultBlock)
    assert run.state.facts.waiting_inputs == ("and then?",)


@pytest.mark.parametrize("at_call", [True, False])
def test_a_stopped_turn_ends_the_script_and_the_next_text_is_executed_for_itself(at_call: bool) -> None:
    run = stopped(at_call=at_call)
    run.give(stops(run))
    assert isinstance(run.state, Parked)
    run.give(says("rather this"))
    assert texts(run) == ["go", "rather this"]
    assert recorded_calls(run.live.facts.messages) == ()


@pytest.mark.parametrize("at_call", [True, False])
def test_a_text_that_waits_when_the_turn_is_stopped_is_executed_for_itself(at_call: bool) -> None:
    run = stopped(at_call=at_call)
    run.give(says("rather this"))
    run.give(stops(run))
    assert texts(run) == ["go", "rather this"]
    assert run.live.facts.waiting_inputs == ()


@pytest.mark.parametrize("at_call", [True, False])
@pytest.mark.parametrize("is_parked", [True, False])
def test_a_pause_after_a_stopped_turn_does_not_bring_the_script_back(at_call: bool, is_parked: bool) -> None:
    run = stopped(at_call=at_call)
    if is_parked:
        run.give(stops(run))
        run.give(pause())
        run.give(says("rather this"))
    else:
        run.give(pause())
        run.give(says("rather this"))
        run.give(stops(run))
    assert isinstance(run.state, Paused)
    run.give(resume())
    assert texts(run) == ["go", "rather this"]


def test_the_script_of_the_text_after_a_stop_goes_on_from_its_own_results() -> None:
    run = stopped(at_call=True)
    run.give(stops(run))
    run.give(says("rather this"))
    run.give(answered(run.state, "", *calls("C")))
    run.give(says("and then?"))
    run.give(returned(run.state, 0, "of C"))
    assert texts(run) == ["go", "rather this"]
    assert [call.text for call in recorded_calls(run.live.facts.messages)] == ["of C"]
    run.give(answered(run.state, "done"))
    assert texts(run) == ["go", "rather this", "done", "and then?"]


def test_texts_that_wait_together_are_executed_one_after_the_other() -> None:
    run = begun(SCRIPT)
    run.give(says("second"))
    run.give(says("third"))
    run.give(answered(run.state, "done"))
    assert texts(run) == ["go", "done", "second"]
    run.give(answered(run.state, "done too"))
    assert texts(run) == ["go", "done", "second", "done too", "third"]
    assert kinds(run.give(answered(run.state, "done as well"))) == ["ModelReplied", "RunCompleted"]


def test_of_texts_that_wait_the_first_is_executed_after_a_stop_and_then_the_next() -> None:
    run = stopped(at_call=True)
    run.give(says("second"))
    run.give(says("third"))
    run.give(stops(run))
    assert texts(run) == ["go", "second"]
    run.give(answered(run.state, "done"))
    assert texts(run) == ["go", "second", "done", "third"]


def test_a_script_that_returned_nothing_is_not_executed_again_after_a_pause_or_for_the_next_text() -> None:
    run = begun(SCRIPT, interactive=True)
    run.give(answered(run.state, "", *calls("A")))
    run.give(returned(run.state, 0))
    run.give(answered(run.state, ""))
    run.give(pause())
    run.give(says("and then?"))
    run.give(resume())
    assert texts(run) == ["go", "and then?"]


def test_agents_with_a_model_read_texts_at_the_next_turn() -> None:
    run = begun()
    run.give(answered(run.state, "", *calls("A")))
    run.give(says("and then?"))
    run.give(returned(run.state, 0))
    assert texts(run) == ["go", "and then?"]


@pytest.mark.parametrize(("definition", "code"), [(SCRIPT, "code_agent_timeout"), (DEFINITION, "run_timeout")])
def test_a_run_whose_time_is_over_ends_under_a_code_of_its_kind(definition: AgentDefinition, code: str) -> None:
    run = begun(replace(definition, run_timeout_s=9))
    (failed,) = run.give(RunTimerFired(at_ms=NOW + 9_000))
    assert isinstance(failed, RunFailed)
    assert failed.code == code


@pytest.mark.parametrize("kind", sorted(CODE_AGENT_KINDS))
def test_a_script_that_fails_ends_its_run_under_the_reasons_own_code(kind: str) -> None:
    run = begun(SCRIPT)
    events = run.give(erred(run.state, kind))
    assert kinds(events) == ["ModelCallFailed", "RunFailed"]
    assert isinstance(events[1], RunFailed)
    assert events[1].code == kind


def test_other_failures_keep_their_code() -> None:
    run = begun()
    failed = run.give(erred(run.state, "invalid"))[-1]
    assert isinstance(failed, RunFailed)
    assert failed.code == "model_error"


def test_metadata_is_in_the_words_of_a_model_and_not_in_those_of_a_script() -> None:
    more = {"metadata": {"board": '"b-1"'}, "payload_metadata": {"from": '"<outside>"'}}
    model, script = begun(**more).live.facts, begun(SCRIPT, **more).live.facts
    assert "board" in model.system[-1]
    first = model.messages[0].blocks[0]
    assert isinstance(first, TextBlock)
    assert first.text == '<run_metadata>\n{\n  "from": "&lt;outside>"\n}\n</run_metadata>'
    assert script.messages[0].blocks == (TextBlock(text="go"),)
    assert not any("board" in text for text in script.system)
    assert (script.options.metadata, script.options.payload_metadata) == (
        {"board": '"b-1"'},
        {"from": '"<outside>"'},
    )


def test_each_turn_is_one_call_however_many_there_are() -> None:
    run = begun(replace(SCRIPT, max_iterations=2))
    for turn in range(2, 40):
        run.give(answered(run.state, "", *calls("A")))
        (_, intent) = run.give(returned(run.state, 0))
        assert isinstance(intent, ModelCallRequested)
        assert intent.turn == turn


def test_the_same_text_sent_again_is_still_known_when_it_waited() -> None:
    run = mid_script()
    text: InputCommand = says("and then?", input_id="once")
    run.give(text)
    (answer,) = run.give(text)
    assert isinstance(answer, CommandRefused)
    assert answer.code == "already_applied"


def test_the_record_that_a_script_goes_on_from_is_never_compacted() -> None:
    definition = replace(SCRIPT, compaction=Compaction(enabled=True, keep_last_n=0))
    run = begun(definition, interactive=True)
    for _ in range(12):
        run.give(answered(run.state, "", *calls("A")))
        run.give(returned(run.state, 0, "x" * 10_000))
    run.give(answered(run.state, "done"))
    assert isinstance(run.state, Parked)
    assert request_compaction(run.state.facts, "self") is None
    assert request_compaction(
        replace(run.state.facts, definition=replace(DEFINITION, compaction=definition.compaction)), "self"
    )
