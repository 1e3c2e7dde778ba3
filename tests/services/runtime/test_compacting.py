"""Compactions by a runtime over a log: the summary is asked for, survives its owner, and the run goes on."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import orjson

from loomlog.connectors.protocols import Capabilities, ModelItem, ModelRequest, Reply
from loomlog.schemas.conversation import TextBlock
from loomlog.schemas.generated.run_commands import CompactRun, PostInput, StartRun
from loomlog.schemas.generated.run_events import (
    CompactionFailed,
    CompactionRequested,
    ContextCompacted,
    ModelCallRequested,
    ModelReplied,
    RunCompleted,
    RunParked,
)
from loomlog.schemas.generated.values import AgentGrants, CommandEnvelope, Compaction, MemoryBanked, RunOptions, Usage
from loomlog.schemas.records import replace
from loomlog.services.core.run.conversation.summary_prompt import SYSTEM
from loomlog.services.core.run.evolve import evolve
from loomlog.services.core.run.state import Absent, Parked, State
from tests.services.families.consolidation.test_compactions import Here, shown
from tests.services.runtime.fakes import AGENT
from tests.services.runtime.small_runtime import RUN, Stage

LONG = "long words " * 40
WINDOW = 1_000


class Talker:
    """Answers at length, and summarises when it is let go. `used` is what it counts as the prompt."""

    provider = "mock"
    capabilities = Capabilities(max_context_tokens=WINDOW)

    def __init__(self) -> None:
        self.used = 10
        self.summary = "they talked"
        self.requests: list[ModelRequest] = []
        self.summaries: list[ModelRequest] = []
        self.holding = asyncio.Event()
        self.let_go = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        text = f"answer {LONG}"
        if request.system and request.system[0].text == SYSTEM:
            self.summaries.append(request)
            self.holding.set()
            await self.let_go.wait()
            text = self.summary
        else:
            self.requests.append(request)
        yield Reply(text=text, stop_reason="end_turn", usage=Usage(input_tokens=self.used, output_tokens=1))

    async def list_models(self) -> list[str]:
        return []

    async def close(self) -> None:
        """Nothing is open."""


def stage_with(model: Talker) -> Stage:
    stage = Stage()
    stage.model = model  # type: ignore[assignment]  # it wants what streams
    return stage


def envelope(command_id: str) -> CommandEnvelope:
    return CommandEnvelope(command_id=command_id, tenant="acme", subject="someone", issued_at_ms=1)


def count(stage: Stage, kind: type[Any]) -> int:
    return sum(isinstance(event, kind) for event in stage.events())


async def talk(stage: Stage, texts: int = 4, compaction: Compaction | None = None, user_id: str = "") -> None:
    """An interactive run that has answered its task and that many texts, and is parked."""
    stage.send(
        StartRun(
            envelope=envelope("start"),
            agent=AGENT.name,
            prompt=f"task {LONG}",
            run_id=RUN,
            user_id=user_id,
            options=RunOptions(interactive=True),
            compaction=compaction,
        )
    )
    await stage.until(lambda: count(stage, RunParked) == 1)
    for number in range(texts):
        await say(stage, f"text {number} {LONG}")


async def say(stage: Stage, text: str) -> None:
    parked = count(stage, RunParked)
    stage.send(PostInput(envelope=envelope(text), run_id=RUN, text=text))
    await stage.until(lambda: count(stage, RunParked) == parked + 1)


def folded(stage: Stage) -> State:
    state: State = Absent(run_id=RUN)
    for event in stage.events():
        state = evolve(state, event, 1)
    return state


async def test_a_summary_that_was_lost_with_its_owner_is_made_again_and_the_run_parks_again() -> None:
    model = Talker()
    stage = stage_with(model)
    async with stage.owner("one"):
        await talk(stage)
        stage.send(CompactRun(envelope=envelope("compact"), run_id=RUN))
        await model.holding.wait()
    model.let_go.set()
    async with stage.owner("two"):
        await stage.until(lambda: stage.has(ContextCompacted) and isinstance(stage.events()[-1], RunParked))
        await say(stage, "and now?")
    attempts = [event.attempt for event in stage.events() if isinstance(event, CompactionRequested)]
    assert attempts == [1, 2]
    assert len({request.idempotency_key for request in model.summaries}) == 1
    shown = model.requests[-1].messages
    assert [message.role for message in shown[:2]] == ["user", "assistant"]
    head = "".join(block.text for block in shown[0].blocks if isinstance(block, TextBlock))
    assert head.startswith("task")
    assert "they talked" in head
    state = folded(stage)
    assert isinstance(state, Parked)
    assert state.facts.messages[:-1] == shown


async def test_what_is_left_out_goes_to_memory_once_although_the_owner_is_lost_and_a_replay_keeps_nothing() -> None:
    memory = Here()
    memory.frames = [shown("user", f"text 0 {LONG}", 7)]
    model = Talker()
    stage = stage_with(model)
    stage.agent = replace(AGENT, grants=AgentGrants(memory_scopes=("user",)))
    summary = asyncio.Event()

    async def hold(*_: Any, **__: Any) -> None:
        summary.set()
        await asyncio.Event().wait()

    async with stage.owner("one", compaction_memory=memory.memory):
        await talk(stage, compaction=Compaction(keep_last_n=2, memory_flush=True), user_id="ada")
        model.let_go.set()
        ask, answers = memory.entities.ask, memory.entities.answers

        async def lose_the_answer(command: Any, *, wait_s: float) -> Any:
            await ask(command, wait_s=wait_s)
            await hold()

        memory.entities.ask = lose_the_answer  # type: ignore[method-assign]
        stage.send(CompactRun(envelope=envelope("compact"), run_id=RUN))
        await summary.wait()
    memory.entities.ask = ask  # type: ignore[method-assign]
    async with stage.owner("two", compaction_memory=memory.memory):
        await stage.until(lambda: stage.has(ContextCompacted) and isinstance(stage.events()[-1], RunParked))
    (done,) = [event for event in stage.events() if isinstance(event, ContextCompacted)]
    ((_, answer),) = answers.items()
    assert done.attempt == 2
    assert done.memory_banked == MemoryBanked(pending_id=answer.events[0].pending_id, messages=7)
    payload = orjson.loads(memory.commands[0].payload)["messages"]
    assert [one["content"].split(" long")[0] for one in payload[:3]] == ["answer", "text 0", "answer"], "not the task"
    assert [one["seq"] for one in payload[:3]] == [0, 7, 0]
    asked = len(memory.commands)
    async with stage.owner("three", compaction_memory=memory.memory):
        await say(stage, "and now?")
    assert len(memory.commands) == asked


async def test_nothing_goes_to_memory_unless_it_is_asked_for_and_the_summary_is_used() -> None:
    memory = Here()
    model = Talker()
    model.let_go.set()
    stage = stage_with(model)
    stage.agent = replace(AGENT, grants=AgentGrants(memory_scopes=("user",)))
    async with stage.owner("one", compaction_memory=memory.memory):
        await talk(stage, user_id="ada")
        stage.send(CompactRun(envelope=envelope("compact"), run_id=RUN))
        await stage.until(lambda: stage.has(ContextCompacted))
    assert not memory.commands
    stage = stage_with(model)
    stage.agent = replace(AGENT, grants=AgentGrants(memory_scopes=("user",)))
    model.summary = LONG * 1_000
    async with stage.owner("one", compaction_memory=memory.memory):
        await talk(stage, compaction=Compaction(memory_flush=True), user_id="ada")
        stage.send(CompactRun(envelope=envelope("compact"), run_id=RUN))
        await stage.until(lambda: stage.has(CompactionFailed))
    assert not memory.commands, "the conversation has stayed as it was"


async def test_a_context_that_fills_up_is_compacted_before_the_call_that_would_be_too_much() -> None:
    model = Talker()
    model.let_go.set()
    stage = stage_with(model)
    async with stage.owner("one"):
        await talk(stage, compaction=Compaction(enabled=True, autocompact_at_pct=60))
        assert not model.summaries
        model.used = 590
        await say(stage, "one more")
        await say(stage, "x" * 200)
    events = [event for event in stage.events() if isinstance(event, CompactionRequested)]
    assert [event.trigger for event in events] == ["auto"]
    kinds = [type(event) for event in stage.events()]
    at = kinds.index(CompactionRequested)
    assert kinds[at + 1 : at + 4] == [ContextCompacted, ModelCallRequested, ModelReplied]
    assert len(model.requests[-1].messages) < len(model.requests[-2].messages)


async def test_runs_of_one_turn_each_compact_their_session_and_another_owner_reads_the_same() -> None:
    model = Talker()
    model.let_go.set()
    stage = stage_with(model)

    async def ask(number: int) -> None:
        stage.send(
            StartRun(
                envelope=envelope(f"start {number}"),
                agent=AGENT.name,
                prompt=f"text {number} {LONG}",
                run_id=f"{RUN}-{number}",
                session_id="" if number == 0 else f"s_{RUN[2:]}-0",
                compaction=Compaction(enabled=True),
            )
        )
        await stage.until(lambda: count(stage, RunCompleted) == number + 1)

    async with stage.owner("one"):
        await ask(0)
        await ask(1)
        model.used = 790
        await ask(2)
        assert not model.summaries
        model.used = 300
        await ask(3)
        shown = model.requests[-1].messages
    async with stage.owner("two"):
        await ask(4)
    events = [event for event in stage.events() if isinstance(event, CompactionRequested)]
    assert [(event.trigger, event.turn) for event in events] == [("auto", 1)]
    head = "".join(block.text for block in shown[0].blocks if isinstance(block, TextBlock))
    assert head.startswith("text 0")
    assert "they talked" in head
    assert "text 3" in str(shown[-1])
    assert model.requests[-1].messages[: len(shown)] == shown
