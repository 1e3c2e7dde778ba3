"""A code agent over the real pieces of a runtime: its calls are events, and any owner goes on with them."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from loomlog.connectors.models.code_js import CodeModel
from loomlog.connectors.protocols import EffectClass, ToolContext, ToolResult
from loomlog.schemas.generated.run_commands import CancelTurn, PostInput, StartRun
from loomlog.schemas.generated.run_events import (
    ModelReplied,
    RunCompleted,
    RunFailed,
    RunParked,
    ToolCallRequested,
    ToolReturned,
)
from loomlog.schemas.generated.values import AgentDefinition, CommandEnvelope, RunOptions
from loomlog.schemas.reader import TermReader
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import CommandRefusal
from tests.run_options import grouped
from tests.services.runtime.fakes import AGENT, Echo, OneAgent
from tests.services.runtime.small_runtime import RUN, TOPICS, Stage

SCRIPT = """
function run(input) {
  const lines = [];
  for (let i = 0; i < 3; i++) {
    lines.push(Echo({ text: "<n>\\n" + i + " of " + input.metadata.board + "\\n</n>" }));
  }
  try { Broken({ at: Math.floor(Math.random() * 1e9), now: Date.now() }) } catch (e) { lines.push(e.message) }
  Memory.set({ key: "k", value: lines });
  return { final_text: JSON.stringify(lines) };
}
"""
CODE = replace(
    AGENT,
    model="code-js",
    code_body=SCRIPT,
    tools=("Echo", "Broken", "Memory"),
    unbounded_iterations=True,
    max_iterations=1,
)
CALLS = ["Echo", "Echo", "Echo", "Broken", "Memory"]
LINES = [f"<n>\n{number} of b-1\n</n>" for number in range(3)] + ["it is broken"]


class Broken(Echo):
    name = "Broken"

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(text="it is broken", is_error=True)


class Memory(Echo):
    name = "Memory"

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.IDEMPOTENT

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(text='{"ok":true}')


class One(OneAgent):
    def __init__(self, definition: AgentDefinition) -> None:
        self.definition = definition

    def resolve(self, agent: str, **_: object) -> AgentDefinition | CommandRefusal:
        return self.definition


class Scene(Stage):
    """A stage for one code agent."""

    def __init__(self, model: CodeModel, definition: AgentDefinition = CODE) -> None:
        super().__init__()
        self.instead = model
        self.tools: dict[str, Echo] = {"Echo": Echo(), "Broken": Broken(), "Memory": Memory()}
        self.definitions = One(definition)

    def ask(self, **more: Any) -> None:
        envelope = CommandEnvelope(command_id=RUN, tenant="acme", subject="someone", issued_at_ms=1)
        self.send(
            StartRun(
                envelope=envelope,
                agent="helper",
                prompt="go",
                run_id=RUN,
                **grouped({"metadata": {"board": '"b-1"'}, **more}),
            )
        )

    def asked(self) -> list[tuple[str, str, str]]:
        """The calls of the run, each once, however often it was begun."""
        replies = [event for event in self.events() if isinstance(event, ModelReplied)]
        return [(call.id, call.name, call.input) for reply in replies for call in reply.tool_calls]

    def started_at_ms(self) -> int:
        reader = TermReader()
        events = [reader.read(record.offset, record.value) for record in self.log.records[TOPICS.events, 0]]
        return next(event for event in events if event is not None).decode().envelope.at_ms

    def final_text(self) -> str:
        return next(event.text for event in reversed(self.events()) if isinstance(event, ModelReplied))


@pytest_asyncio.fixture(scope="module")
async def model() -> AsyncIterator[CodeModel]:
    model = CodeModel(provider="mock")
    yield model
    await model.close()


async def test_a_script_runs_to_its_end_through_the_log(model: CodeModel) -> None:
    scene = Scene(model)
    scene.ask()
    async with scene.owner("one"):
        await scene.until(lambda: scene.has(RunCompleted, RunFailed))
    assert [name for _, name, _ in scene.asked()] == CALLS
    assert [call_id for call_id, _, _ in scene.asked()] == [f"cj-{at + 1}-{at}" for at in range(5)]
    # Results reach the script as the tools gave them: nothing is wrapped around them for a model's sake.
    assert json.loads(scene.final_text()) == LINES
    (ended,) = [event for event in scene.events() if isinstance(event, RunCompleted)]
    assert (ended.stop_reason, ended.usage.input_tokens, ended.cost_micros) == ("end_turn", 0, 0)


@pytest.mark.parametrize("after", range(1, 17))
async def test_a_crash_at_any_point_leads_to_the_same_calls(model: CodeModel, after: int) -> None:
    """The first owner dies when its log has so many events; chance and time come from the run, not from the owner."""
    scene = Scene(model)
    scene.ask()
    async with scene.owner("one"):
        await scene.until(lambda: len(scene.events()) >= after)
    async with scene.owner("two"):
        await scene.until(lambda: scene.has(RunCompleted, RunFailed))
    assert [name for _, name, _ in scene.asked()] == CALLS
    assert json.loads(scene.asked()[3][2])["now"] == scene.started_at_ms()
    assert json.loads(scene.final_text()) == LINES
    returned = [event for event in scene.events() if isinstance(event, ToolReturned)]
    assert [event.call_id for event in returned] == [call_id for call_id, _, _ in scene.asked()]


async def test_a_run_that_fails_says_why_with_the_code_of_code_agents(model: CodeModel) -> None:
    scene = Scene(model, replace(CODE, code_body="function run() { throw new Error('not like this') }"))
    scene.ask()
    async with scene.owner("one"):
        await scene.until(lambda: scene.has(RunCompleted, RunFailed))
    failed = scene.events()[-1]
    assert (failed.code, "Error: not like this" in failed.error) == ("code_agent_threw", True)


async def test_the_time_limit_of_the_request_stops_a_script(model: CodeModel) -> None:
    scene = Scene(model, replace(CODE, code_body="function run() { Echo({text: 'x'}); for (;;); }", run_timeout_s=100))
    scene.ask(run_timeout_s=1)
    async with scene.owner("one"):
        await scene.until(lambda: scene.has(RunCompleted, RunFailed))
    failed = scene.events()[-1]
    assert failed.code == "code_agent_timeout"
    assert sum(isinstance(event, ToolCallRequested) for event in scene.events()) == 1


class Slow(Echo):
    """Notes what it was called for, and does not return from `old-1`."""

    def __init__(self) -> None:
        self.made: list[str] = []

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        self.made.append(str(arguments["text"]))
        if self.made[-1] == "old-1":
            await asyncio.Event().wait()
        return await super().call(arguments, context)


CAREFUL = """
function run(input) {
  const said = [];
  for (let at = 1; at < 3; at++) {
    try { said.push(Echo({ text: input.prompt + "-" + at })) } catch (e) { said.push(e.message) }
  }
  return said.join(" ");
}
"""
CARELESS = 'function run(input) { return Echo({text: input.prompt + "-1"}) + " " + Echo({text: input.prompt + "-2"}) }'


@pytest.mark.parametrize("script", [CAREFUL, CARELESS])
async def test_a_script_whose_turn_is_stopped_makes_no_further_call_and_the_next_text_is_executed(
    model: CodeModel, script: str
) -> None:
    scene = Scene(model, replace(CODE, code_body=script))
    scene.tools["Echo"] = slow = Slow()

    def envelope(name: str) -> CommandEnvelope:
        return CommandEnvelope(command_id=name, tenant="acme", subject="someone", issued_at_ms=1)

    scene.send(
        StartRun(envelope=envelope(RUN), agent="helper", prompt="old", run_id=RUN, options=RunOptions(interactive=True))
    )
    async with scene.owner("one"):
        await scene.until(lambda: bool(slow.made))
        scene.send(CancelTurn(envelope=envelope("stop"), run_id=RUN))
        await scene.until(lambda: scene.has(RunParked))
        scene.send(PostInput(envelope=envelope("say"), run_id=RUN, text="new"))
        await scene.until(lambda: sum(isinstance(event, RunParked) for event in scene.events()) == 2)
    assert slow.made == ["old-1", "new-1", "new-2"]
    assert scene.final_text() == "new-1 new-2"
