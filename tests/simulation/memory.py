"""Memory in the simulation: runs whose tool is the real one, over the scope of a user that all of them change.

Every turn has six calls at once (memory_ledger.calls_of): two that count with a key of all runs, one that adds to a
list of all, two that set the run's own key, one that reads it. What the tool returns depends on the process: the owner
of the scope answers from its memory, the others by the topic and from rows that are away, or behind.

Before: world.py, in the seeds with memory. After: entities.py; memory_ledger.py checks what is in the log.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.projections.entity_items import ItemRow
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.values import AgentDefinition, AgentGrants, CommandEnvelope, ToolCall
from loomlog.schemas.ids import partition_key
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import CommandRefusal, ModelAnswered
from loomlog.services.core.run.react import CallTool
from loomlog.services.families.memory import FAMILY
from loomlog.services.families.memory.api import TOOL as TOOL_OF_MEMORY
from loomlog.services.families.memory.entry_operations import EntryLimits, EntryOperations
from loomlog.services.families.memory.store import MemoryStore
from loomlog.services.runtime.models.definition_resolver import DefinitionResolver
from loomlog.services.runtime.run_host import StandbyEdges
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from loomlog.services.runtime.tools.tool_calls import ToolCalls
from loomlog.services.runtime.tools.toolset import ProcessToolset
from loomlog.services.stream.entities.reading import EntityReader
from tests.services.families.memory.calls import memory_tool
from tests.simulation.answers import AGENT, answered
from tests.simulation.broker import Wire
from tests.simulation.entities import ORDERS_UNTIL, EntityHost, EntityLoad, WiredRows, plan_acts
from tests.simulation.faults import CALM_S, Faults
from tests.simulation.log import TOPICS, SimulatedLog
from tests.simulation.memory_ledger import MemoryLedger, RememberingRun, calls_of

MEMORY_SHARE = 0.35
"""Of the seeds with neither a limit nor counters nor definitions: those with memory."""
MOST_RUNS = 4
MOST_TURNS = 2
TENANT, USER_ID = "t", "ada"
AGENT_NAME, TOOL = "rememberer", TOOL_OF_MEMORY.name
REMEMBERER = replace(AGENT, name=AGENT_NAME, tools=(TOOL,), grants=AgentGrants(memory_scopes=("user",)))
PARALLEL_CALLS = 8


def memory_of(faults: Faults) -> "Memory | None":
    """The memory of a seed, if it has any."""
    random = Random(f"{faults.seed}/memory")
    if random.random() >= MEMORY_SHARE:
        return None
    orders = []
    for number in range(random.randint(2, MOST_RUNS)):
        order = RememberingRun(
            name=f"memory {number}",
            id=f"r_mem{number}",
            at_s=random.uniform(0.0, CALM_S * ORDERS_UNTIL / 2),
            by_topic=True,
            turns=random.randint(1, MOST_TURNS),
        )
        if order.name not in faults.without:
            orders.append(order)
    plan_acts(faults, random, "memory")
    return Memory(FAMILY, orders)


class Memory(EntityLoad):
    """The runs of a seed that use memory."""

    ledger: MemoryLedger

    def open(self, log: SimulatedLog, partitions: int, seed: int, complain: Callable[[str, str], None]) -> None:
        super().open(log, partitions, seed, complain)
        self.log = log
        self.unsent = len(self.orders)
        """Runs that are not started yet."""

    def make_ledger(self, log: SimulatedLog, complain: Callable[[str, str], None]) -> MemoryLedger:
        return MemoryLedger(self.orders, complain)

    def host(self, wire: Wire, edges: StandbyEdges, clock_ms: Callable[[], int]) -> "MemoryHost":
        return MemoryHost(wire, self, edges, clock_ms)

    def command(self, order: RememberingRun) -> StartRun:
        envelope = CommandEnvelope(command_id=f"start-{order.id}", tenant=TENANT, issued_at_ms=order.issued_at_ms)
        return StartRun(envelope=envelope, agent=AGENT_NAME, prompt="go", run_id=order.id, user_id=USER_ID)

    async def client(self, wire: Wire, clock_ms: Callable[[], int]) -> None:
        """Start every run at its time."""
        async with asyncio.TaskGroup() as group:
            for order in self.orders:
                group.create_task(self._start(order, wire, clock_ms))

    async def _start(self, order: RememberingRun, wire: Wire, clock_ms: Callable[[], int]) -> None:
        await asyncio.sleep(order.at_s)
        order.issued_at_ms = clock_ms()
        key = partition_key(order.id).encode()
        record = ProducerRecord(key=key, value=local_codec().encode(self.command(order)))
        while True:
            try:
                await wire.append(TOPICS.commands, partition_of(key, self.partitions), [record])
                break
            except UnknownOutcome:
                continue  # again: the command's id makes that safe
        self.unsent -= 1

    def open_ends(self, hosts: Sequence[EntityHost]) -> str:
        if self.unsent:
            return f"{self.unsent} runs with memory are not started"
        return super().open_ends(hosts)

    def compare(self, hosts: Sequence[EntityHost]) -> None:
        self.compare_rows(self.log)


class MemoryHost(EntityHost):
    """The scopes of one runtime process, and the tool of its runs."""

    def __init__(self, wire: Wire, load: Memory, edges: StandbyEdges, clock_ms: Callable[[], int]) -> None:
        super().__init__(wire, load, edges, clock_ms)
        self._turns = {order.id: order.turns for order in load.orders}
        store = MemoryStore(self.parts.client, WiredReads(self, wire, load), clock_ms=clock_ms)
        tool = memory_tool(EntryOperations(store, EntryLimits()), clock_ms=clock_ms)
        self._tools = ProcessToolset({TOOL: tool})
        self._calls = ToolCalls(
            self._tools,
            volumes={},
            operator_hosts=(),
            parallelism=PARALLEL_CALLS,
            blobs=MemoryBlobs(),
            tracing=NO_TRACING,
            clock_ms=clock_ms,
        )

    def resolver(self, static: DefinitionResolver) -> DefinitionResolver:
        return RememberersToo(static)

    async def outside(self, effect: Any, state: Any) -> Any:
        if effect.run_id not in self._turns:
            return None
        if isinstance(effect, CallTool) and effect.name == TOOL:
            return await self._calls.run(effect, state, TENANT)
        answer = answered(effect, state, self._clock_ms())
        return self._with_calls(answer, effect.run_id) if isinstance(answer, ModelAnswered) else answer

    def _with_calls(self, answer: ModelAnswered, run_id: str) -> ModelAnswered:
        """Return the answer of a model with the calls of the turn instead of those of the script."""
        calls: Sequence[Any] = ()
        if answer.turn <= self._turns[run_id]:
            calls = [json.dumps({**one, "scope": "user"}) for one in calls_of(run_id, answer.turn)]
        return replace(
            answer,
            tool_calls=tuple(
                ToolCall(id=f"t{answer.turn}c{index}", name=TOOL, input=text) for index, text in enumerate(calls)
            ),
            effect_classes=tuple(self._tools.effect_class(TOOL, text) for text in calls),
            stop_reason="tool_use" if calls else "end_turn",
        )


class RememberersToo:
    """Resolves the agent of the load, and all others as before (protocol DefinitionResolver)."""

    def __init__(self, static: DefinitionResolver) -> None:
        self._static = static

    def resolve(self, agent: str, **request: Any) -> AgentDefinition | CommandRefusal:
        return REMEMBERER if agent == AGENT_NAME else self._static.resolve(agent, **request)

    def is_loaded(self, agent: str, **request: Any) -> bool:
        return agent == AGENT_NAME or self._static.is_loaded(agent, **request)

    async def load(self, agent: str, **request: Any) -> None:
        await self._static.load(agent, **request)

    def providers(self) -> frozenset[str]:
        return frozenset(self._static.providers())


class WiredReads(EntityReader):
    """The reads of a process; its items come from the simulated rows, the rest is real."""

    def __init__(self, host: EntityHost, wire: Wire, load: EntityLoad) -> None:
        self._wired = WiredRows(wire, load.rows)
        self._items = load.rows.items
        families, replicas, client = host.parts.family.families, host.parts.replicas, host.parts.client
        super().__init__(families, replicas, self._wired, None, client)  # type: ignore[arg-type]  # only `next_offset` is asked for

    async def load_items(
        self, family: str, tenant: str, kind: str, ids: Sequence[str], *, positions: Sequence[str] = ()
    ) -> Sequence[ItemRow]:
        await self._wait_for_rows(family, tenant, positions)
        await self._wired.reach()
        keys = ((family, tenant, kind, one) for one in ids)
        return [self._items[key] for key in keys if key in self._items]
