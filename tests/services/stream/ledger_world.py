"""A world whose tool is the real Ledger over a real file: what happened to the outside can be counted.

world = LedgerWorld(folder, reconciles=True)
await world.killed_in_a_call(after_the_effect=True)     # host a is gone, its call of turn 1 was under way
world.host("b")
"""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

from loomlog.connectors.protocols import EffectClass, ToolContext, ToolResult
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.connectors.tools.ledger import LedgerTool, ReconcilingLedgerTool
from loomlog.connectors.tools.thread_pool import ThreadPool
from loomlog.schemas.generated.run_commands import ResolveCall
from loomlog.schemas.generated.run_events import ToolReturned
from loomlog.schemas.generated.values import AgentDefinition, CommandEnvelope, ToolCall
from loomlog.schemas.records import replace
from loomlog.services.core.run.react import CallModel, CallTool, ReconcileTool
from loomlog.services.core.run.state import AwaitingTools
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from loomlog.services.runtime.tools.tool_calls import ToolCalls
from loomlog.services.runtime.tools.toolset import ProcessToolset
from tests.services.stream.hosted import Hosted
from tests.services.stream.script import answer
from tests.services.stream.world import World

RUN = "r_pays"


class LedgerWorld(World):
    """Each run has two turns; the first calls Ledger once. `gate` holds calls before or after their effect."""

    def __init__(
        self,
        folder: Path,
        *,
        reconciles: bool = False,
        effect: EffectClass = EffectClass.UNSAFE,
        definition: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(turns=2)
        self.path = folder / "ledger"
        helper = AgentDefinition(name="helper", provider="acme", model="large", tools=("Ledger",))
        self.definitions.known["helper"] = replace(helper, **(definition or {}))
        self.gate: asyncio.Event | None = None
        self.gate_is_after_the_effect = False
        self.model_gate: asyncio.Event | None = None
        self.at_the_gate = 0
        tool = (ReconcilingLedgerTool if reconciles else LedgerTool)(ThreadPool(), path=str(self.path), effect=effect)
        self.shelf = ProcessToolset({"Ledger": Gated(tool, self) if not reconciles else GatedAskable(tool, self)})
        self.tools = ToolCalls(
            self.shelf,
            volumes={},
            operator_hosts=(),
            parallelism=8,
            blobs=MemoryBlobs(),
            tracing=NO_TRACING,
            clock_ms=self.clock,
            sleep=self.no_wait,
        )

    async def no_wait(self, seconds: float) -> None:
        """Waits are the core's to ask for; here they take no time."""
        self.now += int(seconds * 1000)

    @property
    def lines(self) -> Counter[str]:
        """How often each key is in the file."""
        result = self.path.read_text().splitlines() if self.path.exists() else []
        return Counter(line.split(" ")[0] for line in result)

    async def effect(self, effect: Any, state: Any, tenant: str) -> Any:
        self._look()
        assert (effect.run_id, effect.key) in self._intents, f"{effect} began before its intent was in the log"
        self.begun[effect.run_id, effect.key] += 1
        match effect:
            case CallModel(turn=1):
                asked = replace(answer(effect, 1, self.now), stop_reason="tool_use")
                calls = (ToolCall(id="t1", name="Ledger", input="{}"),)
                return replace(
                    asked,
                    tool_calls=calls,
                    effect_classes=(self.shelf.effect_class("Ledger", "{}"),),
                    reconcilable=(self.shelf.is_reconcilable("Ledger"),),
                )
            case CallModel():
                if self.model_gate is not None:
                    await self.model_gate.wait()
                return answer(effect, self.turns, self.now)
            case CallTool():
                assert isinstance(state, AwaitingTools)
                return await self.tools.run(effect, state, tenant)
            case ReconcileTool():
                assert isinstance(state, AwaitingTools)
                return await self.tools.reconcile(effect, state, tenant)

    async def wait_at_the_gate(self, *, after: bool) -> None:
        if self.gate is not None and self.gate_is_after_the_effect == after:
            self.at_the_gate += 1
            await self.gate.wait()

    def hold_calls(self, *, after_the_effect: bool) -> None:
        self.gate, self.gate_is_after_the_effect = asyncio.Event(), after_the_effect

    async def killed_in_a_call(self, *, after_the_effect: bool) -> Hosted:
        """Host a was killed while its one call was under way; calls are not held any more."""
        self.hold_calls(after_the_effect=after_the_effect)
        hosted = self.host("a")
        self.start_run(RUN)
        await self.until(lambda: self.at_the_gate == 1)
        await hosted.kill()
        self.gate = None
        return hosted

    def resolve(self, *, done: bool) -> None:
        """An operator says what became of the call."""
        envelope = CommandEnvelope(command_id="resolve", tenant="t", issued_at_ms=self.now)
        self.put(ResolveCall(envelope=envelope, run_id=RUN, turn=1, index=0, done=done))

    def result(self, run_id: str = RUN) -> ToolReturned:
        """The one result of the run's first turn."""
        (result,) = [event for event in self.story().runs[run_id].events if isinstance(event, ToolReturned)]
        return result


class Gated:
    """A tool behind the gate of its world."""

    def __init__(self, tool: Any, world: LedgerWorld) -> None:
        self._tool, self._world = tool, world
        self.name, self.description, self.input_schema = tool.name, tool.description, tool.input_schema
        self.timeout_s: float = tool.timeout_s

    def effect_class(self, arguments: Any) -> EffectClass:
        result: EffectClass = self._tool.effect_class(arguments)
        return result

    async def call(self, arguments: Any, context: ToolContext) -> ToolResult:
        await self._world.wait_at_the_gate(after=False)
        result: ToolResult = await self._tool.call(arguments, context)
        await self._world.wait_at_the_gate(after=True)
        return result


class GatedAskable(Gated):
    """The same for a tool that can be asked; questions are not held."""

    async def reconcile(self, arguments: Any, context: ToolContext) -> Any:
        return await self._tool.reconcile(arguments, context)
