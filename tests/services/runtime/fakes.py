"""A model, a tool, definitions and an index for a small runtime."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import (
    Capabilities,
    EffectClass,
    ModelItem,
    ModelRequest,
    Reply,
    TextDelta,
    ToolContext,
    ToolResult,
)
from loomlog.schemas.conversation import ToolResultBlock
from loomlog.schemas.generated.values import AgentDefinition, ToolCall, Usage
from loomlog.services.core.run.commands import CommandRefusal
from loomlog.services.runtime.models.definition_resolver import DefinitionResolver
from loomlog.services.runtime.run.run_index import EndedRun

AGENT = AgentDefinition(name="helper", sha256="ab12", provider="mock", model="m-1", tools=("Echo",), max_tokens=100)


SECRET = "the user's own words"


TURNS = (
    Reply(
        text=f"I think of {SECRET}",
        tool_calls=(ToolCall(id="call-1", name="Echo", input='{"text":"the user\'s own words"}'),),
        stop_reason="tool_use",
        usage=Usage(input_tokens=10, output_tokens=5, cache_read_input_tokens=3, cache_creation_input_tokens=2),
        model="m-1-exactly",
    ),
    Reply(
        text="the answer", stop_reason="end_turn", usage=Usage(input_tokens=20, output_tokens=7), model="m-1-exactly"
    ),
)


class Scripted:
    """A model that gives TURNS in order, whichever process asks. `held` makes its second turn wait for `let_go`."""

    provider = "mock"
    capabilities = Capabilities()

    def __init__(self, turns: Sequence[Reply] = TURNS) -> None:
        self.turns = turns
        self.failures = 0
        self.held = False
        self.holding = asyncio.Event()
        self.let_go = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        if self.failures:
            self.failures -= 1
            raise Transient(f"mock 503: busy with {SECRET}", kind="unavailable", status=503)
        done = sum(isinstance(block, ToolResultBlock) for message in request.messages for block in message.blocks)
        if done and self.held:
            self.holding.set()
            await self.let_go.wait()
        reply = self.turns[done]
        yield TextDelta(text=reply.text)
        yield reply

    async def list_models(self) -> list[str]:
        return []

    async def probe(self) -> None:
        """It is always there."""

    async def close(self) -> None:
        """Nothing is open."""


class Echo:
    name = "Echo"
    description = "Says it again."
    input_schema: Mapping[str, Any] = {"type": "object"}
    timeout_s = 5.0

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.PURE

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(text=str(arguments.get("text", "")))


class OneAgent(DefinitionResolver):
    """Definitions with one agent."""

    def __init__(self, definition: AgentDefinition = AGENT) -> None:
        self._definition = definition

    def resolve(self, agent: str, **_: object) -> AgentDefinition | CommandRefusal:
        known = self._definition
        return known if agent == known.name else CommandRefusal(code="unknown_agent", message=f"no agent {agent}")

    def providers(self) -> frozenset[str]:
        return frozenset({AGENT.provider})


class EmptyIndex:
    async def next_offset(self, partition: int) -> int:
        return 1 << 40

    async def find_run(self, run_id: str) -> EndedRun | None:
        return None

    async def last_run_of_session(self, session_id: str) -> EndedRun | None:
        return None
