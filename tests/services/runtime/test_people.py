"""Runs and people, through whole runtimes over a log in memory: questions that outlive their owner, turns that are
stopped whatever the provider does.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any, TypeVar

import pytest

from loomlog.connectors.protocols import ModelItem, ModelRequest, Reply, TextDelta
from loomlog.connectors.tools.interruption import InterruptionTool
from loomlog.schemas.generated.run_commands import CancelTurn, PostInput, ResolveInterruption
from loomlog.schemas.generated.run_events import (
    CommandRefused,
    InterruptionClosed,
    InterruptionOpened,
    ModelCallFailed,
    ModelReplied,
    RunCompleted,
    RunParked,
    ToolReturned,
    TurnCancelled,
)
from loomlog.schemas.generated.values import CommandEnvelope, InterruptionTerms, ToolCall, Usage
from loomlog.schemas.records import replace
from loomlog.services.core.run.interrupts.interruptions import TOOL_NAME
from loomlog.services.core.run.run_facts import RunFacts
from tests.services.runtime.fakes import AGENT, Echo, Scripted
from tests.services.runtime.small_runtime import RUN, Stage

ASKER = replace(AGENT, tools=("Echo", TOOL_NAME), interruption=InterruptionTerms(enabled=True))
Kind = TypeVar("Kind")
DONE = Reply(text="the answer", stop_reason="end_turn", usage=Usage())


def asks(*questions: dict[str, Any]) -> Reply:
    return Reply(
        text="",
        tool_calls=tuple(
            ToolCall(id=f"c{at}", name=TOOL_NAME, input=json.dumps({"op": "ask", **one}))
            for at, one in enumerate(questions)
        ),
        stop_reason="tool_use",
        usage=Usage(),
    )


def stage_with(*questions: dict[str, Any]) -> Stage:
    """Its model asks these in its first turn; once they have results it is done."""
    stage = Stage(ASKER, {"Echo": Echo(), TOOL_NAME: InterruptionTool()})
    replies = {0: asks(*questions), len(questions): DONE}
    stage.model = Scripted([replies.get(at, DONE) for at in range(len(questions) + 1)])
    return stage


def envelope(command_id: str) -> CommandEnvelope:
    return CommandEnvelope(command_id=command_id, tenant="acme", subject="ada", issued_at_ms=2)


def answer(stage: Stage, question: str, text: str = "yes", command_id: str = "a1") -> None:
    stage.send(ResolveInterruption(envelope=envelope(command_id), run_id=RUN, interrupt_id=question, answer=text))


def of(stage: Stage, kind: type[Kind]) -> list[Kind]:
    return [event for event in stage.events() if isinstance(event, kind)]


async def test_a_question_holds_nothing_and_is_answered_before_another_owner() -> None:
    stage = stage_with({"question": "Shall I?", "options": ["yes", "no"]})
    async with stage.owner("first") as first:
        stage.start()
        await stage.until(lambda: stage.has(InterruptionOpened))
        await stage.until(lambda: first.calls.running_count == 0)
    [opened] = of(stage, InterruptionOpened)
    async with stage.owner("second") as second:
        assert second.calls.running_count == 0
        answer(stage, opened.interrupt_id)
        await stage.until(lambda: stage.has(RunCompleted))
    [result] = of(stage, ToolReturned)
    assert json.loads(result.text)["answer"] == "yes"
    assert not result.is_error


async def test_questions_are_told_to_the_channels_when_they_are_in_the_log_and_again_after_a_takeover() -> None:
    stage = stage_with({"question": "Shall I?"})
    told: list[tuple[str, str, type[Any], bool]] = []

    def on_interruption(tenant: str, facts: RunFacts, event: Any, is_repeated: bool) -> None:
        assert stage.has(type(event))
        told.append((tenant, facts.run_id, type(event), is_repeated))

    async with stage.owner("first", on_interruption=[on_interruption]):
        stage.start()
        await stage.until(lambda: bool(told))
    assert told == [("acme", RUN, InterruptionOpened, False)]
    async with stage.owner("second", on_interruption=[on_interruption]):
        answer(stage, of(stage, InterruptionOpened)[0].interrupt_id)
        await stage.until(lambda: len(told) == 3)
    assert told[1:] == [("acme", RUN, InterruptionOpened, True), ("acme", RUN, InterruptionClosed, False)]


async def test_a_question_that_was_asked_before_an_owner_died_times_out_before_the_next() -> None:
    stage = stage_with({"question": "quick?", "timeout_ms": 30})
    async with stage.owner("first"):
        stage.start()
        await stage.until(lambda: stage.has(InterruptionOpened))
    async with stage.owner("second"):
        await stage.until(lambda: stage.has(RunCompleted))
    [closed] = of(stage, InterruptionClosed)
    assert closed.status == "timed_out"
    assert [result.outcome for result in of(stage, ToolReturned)] == ["timeout"]


async def test_an_answer_that_was_not_offered_leaves_the_question_and_the_right_one_ends_it() -> None:
    stage = stage_with({"question": "Shall I?", "options": ["yes", "no"]})
    async with stage.owner("only"):
        stage.start()
        await stage.until(lambda: stage.has(InterruptionOpened))
        question = of(stage, InterruptionOpened)[0].interrupt_id
        answer(stage, question, "maybe", "a1")
        await stage.until(lambda: stage.has(CommandRefused))
        answer(stage, question, "no", "a2")
        await stage.until(lambda: stage.has(RunCompleted))
    assert [refusal.code for refusal in of(stage, CommandRefused)] == ["invalid_answer"]


async def test_two_people_answer_two_questions_of_one_turn() -> None:
    stage = stage_with({"question": "first?"}, {"question": "second?"})
    async with stage.owner("only"):
        stage.start()
        await stage.until(lambda: len(of(stage, InterruptionOpened)) == 2)
        first, second = [opened.interrupt_id for opened in of(stage, InterruptionOpened)]
        answer(stage, second, "two", "a2")
        answer(stage, first, "one", "a1")
        await stage.until(lambda: stage.has(RunCompleted))
    assert [closed.answer for closed in of(stage, InterruptionClosed)] == ["two", "one"]


async def test_an_agent_that_was_not_given_the_tool_hears_that_there_is_none() -> None:
    stage = Stage(replace(ASKER, tools=("Echo",)), {"Echo": Echo(), TOOL_NAME: InterruptionTool()})
    stage.model = Scripted([asks({"question": "Shall I?"}), DONE])
    async with stage.owner("only"):
        stage.start()
        await stage.until(lambda: stage.has(RunCompleted))
    [result] = of(stage, ToolReturned)
    assert "not found" in result.text
    assert not stage.has(InterruptionOpened)


# --- turns -----------------------------------------------------------------------------------------------------------


class Slow(Scripted):
    """Says `said` in pieces and then nothing more; its second turn answers."""

    def __init__(self, *said: str) -> None:
        super().__init__()
        self.said = said
        self.asked = 0
        self.stopped = 0
        self.has_said = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        self.asked += 1
        if self.asked > 1:
            yield DONE
            return
        try:
            for piece in self.said:
                yield TextDelta(text=piece)
            self.has_said.set()
            await asyncio.get_running_loop().create_future()
        finally:
            self.stopped += 1


@pytest.mark.parametrize("said", [(), ("I was ", "about to")])
async def test_a_turn_is_stopped_before_the_first_byte_or_in_the_middle_and_the_run_goes_on(
    said: tuple[str, ...],
) -> None:
    stage = Stage()
    model = stage.model = Slow(*said)
    async with stage.owner("only") as runtime:
        stage.start(interactive=True)
        await stage.until(model.has_said.is_set)
        stage.send(CancelTurn(envelope=envelope("x1"), run_id=RUN, reason="stop talking"))
        await stage.until(lambda: stage.has(RunParked))
        await stage.until(lambda: runtime.calls.running_count == 0 and model.stopped == 1)
        stage.send(PostInput(envelope=envelope("i1"), run_id=RUN, text="again"))
        await stage.until(lambda: stage.has(ModelReplied))
    [stopped] = of(stage, TurnCancelled)
    assert (stopped.text, stopped.reason, stopped.by) == ("".join(said), "stop talking", "ada")
    assert not stage.has(ModelCallFailed)
    assert model.asked == 2


async def test_a_long_text_of_a_stopped_turn_goes_to_the_blob_store() -> None:
    stage = Stage()
    model = stage.model = Slow("word " * 20_000)
    async with stage.owner("only"):
        stage.start(interactive=True)
        await stage.until(model.has_said.is_set)
        stage.send(CancelTurn(envelope=envelope("x1"), run_id=RUN))
        await stage.until(lambda: stage.has(RunParked))
    [stopped] = of(stage, TurnCancelled)
    assert stopped.text == ""
    assert stopped.text_blob is not None
    assert stopped.text_blob.size_bytes == 100_000
