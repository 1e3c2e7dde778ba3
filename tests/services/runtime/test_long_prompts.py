"""Runs of an agent with a long prompt: events refer to it, models read it, and it is stored once."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from loomlog.connectors.protocols import ModelItem, ModelRequest
from loomlog.connectors.tools.agent import AgentTool
from loomlog.schemas.generated.run_commands import ForkRun
from loomlog.schemas.generated.run_events import RunCompleted, RunStarted
from loomlog.schemas.generated.values import AgentDefinition, CommandEnvelope, DefinitionOverrides, ToolCall
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import CommandRefusal
from loomlog.services.stream.partition import lookups
from tests.services.runtime.content.counting_blobs import CountingBlobs
from tests.services.runtime.fakes import AGENT, TURNS, OneAgent, Scripted
from tests.services.runtime.small_runtime import RUN, Stage

PROMPT = "Be kind. " * 8_000
LONG = replace(AGENT, system_prompt=PROMPT)


class Reader(Scripted):
    """A model that remembers the system texts it was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.systems: list[tuple[str, ...]] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        self.systems.append(tuple(block.text for block in request.system))
        async for item in super().stream(request):
            yield item


class LongPrompts(Stage):
    """A stage whose agent has a long prompt, with a blob store that counts."""

    def __init__(self, agent: AgentDefinition = LONG, **more: Any) -> None:
        super().__init__(agent, **more)
        self.reader = Reader()
        self.model = self.reader
        self.blobs = CountingBlobs()

    def started(self) -> list[RunStarted]:
        return [event for event in self.events() if isinstance(event, RunStarted)]

    async def until_completed(self, runs: int) -> None:
        await self.until(lambda: sum(isinstance(event, RunCompleted) for event in self.events()) == runs)

    def fork(self, overrides: DefinitionOverrides | None = None) -> None:
        envelope = CommandEnvelope(command_id="f", tenant="acme", subject="someone", issued_at_ms=1)
        at_seq = len(self.events()) - 2  # after the last result: without the claim, the answer and the end
        self.send(ForkRun(envelope=envelope, origin_run_id=RUN, at_seq=at_seq, run_id="r_one-f", overrides=overrides))


async def test_the_events_of_all_runs_refer_to_one_stored_prompt_and_their_models_read_it() -> None:
    stage = LongPrompts()
    async with stage.owner("one", blobs=stage.blobs):
        for number in (1, 2):
            stage.start(run_id=f"r_one-{number}")
            await stage.until_completed(number)
    assert [event.definition.system_prompt for event in stage.started()] == ["", ""]
    (ref,) = {event.definition.system_prompt_blob for event in stage.started()}
    assert ref is not None
    assert stage.reader.systems == [(PROMPT,)] * 4
    assert (stage.blobs.writes, stage.blobs.reads) == (1, 0)
    assert (await stage.blobs.get(ref)).decode() == PROMPT


async def test_the_next_owner_reads_the_prompt_that_the_run_is_pinned_to() -> None:
    stage = LongPrompts()
    stage.reader.held = True
    stage.start()
    async with stage.owner("one", blobs=stage.blobs):
        await stage.reader.holding.wait()
    stage.agent = replace(LONG, system_prompt="Another one.")
    stage.reader.let_go.set()
    async with stage.owner("two", blobs=stage.blobs):
        await stage.until_completed(1)
    assert set(stage.reader.systems) == {(PROMPT,)}
    assert (stage.blobs.writes, stage.blobs.reads) == (1, 1)


async def test_a_start_waits_while_the_blob_store_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "LOOKUP_RETRY_S", 0.01)
    stage = LongPrompts()
    stage.blobs.is_down = True
    stage.start()
    async with stage.owner("one", blobs=stage.blobs):
        await stage.until(lambda: stage.blobs.refused > 1)
        assert not stage.started()
        stage.blobs.is_down = False
        await stage.until_completed(1)
    assert stage.started()[0].definition.system_prompt_blob is not None


@pytest.mark.parametrize(
    ("overrides", "read"),
    [
        (None, PROMPT),
        (DefinitionOverrides(max_tokens=7), PROMPT),
        (DefinitionOverrides(system_prompt="Be brief."), "Be brief."),
        (DefinitionOverrides(system_prompt="Be stern. " * 2_000), "Be stern. " * 2_000),
    ],
    ids=["as it was", "other sampling", "a short prompt", "a long prompt"],
)
async def test_a_fork_reads_the_prompt_of_its_definition(overrides: DefinitionOverrides | None, read: str) -> None:
    stage = LongPrompts()
    stage.start()
    async with stage.owner("one", blobs=stage.blobs):
        await stage.until_completed(1)
        stage.fork(overrides)
        await stage.until_completed(2)
    fork = stage.started()[1].definition
    assert stage.reader.systems[-1] == (read,)
    assert (fork.system_prompt, fork.system_prompt_blob is None) == ((read, True) if len(read) < 100 else ("", False))


class Family(OneAgent):
    """helper starts child, which has a long prompt."""

    def resolve(self, agent: str, **_: object) -> AgentDefinition | CommandRefusal:
        return {"helper": replace(AGENT, tools=("Agent",)), "child": replace(LONG, name="child", tools=())}[agent]


class Delegating(Reader):
    """Who has the tool Agent starts child; the child answers."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        call = ToolCall(id="c", name="Agent", input=json.dumps({"name": "child", "prompt": "go"}))
        answer = TURNS[-1]
        self.turns = (
            (replace(answer, tool_calls=(call,), stop_reason="tool_use"), answer) if request.tools else (answer,)
        )
        async for item in super().stream(request):
            yield item


async def test_a_child_has_its_long_prompt_by_reference() -> None:
    stage = LongPrompts(tools={"Agent": AgentTool()})
    stage.definitions = Family()
    stage.model = stage.reader = Delegating()
    stage.start()
    async with stage.owner("one", blobs=stage.blobs):
        await stage.until_completed(2)
    parent, child = (event.definition for event in stage.started())
    assert (parent.system_prompt, parent.system_prompt_blob) == ("", None)
    assert (child.system_prompt, child.system_prompt_blob is None) == ("", False)
    assert stage.reader.systems == [(), (PROMPT,), ()]
