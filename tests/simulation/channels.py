"""Channels in the simulation: runs whose tool is the real one, and requests that publish and read.

A run publishes, some messages for later, subscribes with a wait and without, alone or with the others' cursor, and
awaits. Some runs are cancelled while they do so. What waits holds no task; queues report to the runs by their outbox,
runs settle leases beside their events, and every owner may die in between.

Before: world.py, in the seeds with channels. After: entities.py; channel_ledger.py checks what is in the log.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.channel_commands import PublishMessage
from loomlog.schemas.generated.run_commands import CancelRun, StartRun
from loomlog.schemas.generated.values import AgentDefinition, AgentGrants, ApprovalPolicy, CommandEnvelope, ToolCall
from loomlog.schemas.ids import partition_key
from loomlog.schemas.records import replace
from loomlog.services.core.families import aggregate_id
from loomlog.services.core.refusals import Unavailable
from loomlog.services.core.run.commands import CommandRefusal, ModelAnswered
from loomlog.services.core.run.react import CallTool
from loomlog.services.families.channel import FAMILY
from loomlog.services.families.channel.api import TOOL as CHANNEL_TOOL
from loomlog.services.families.channel.api import ChannelSubscribe
from loomlog.services.families.channel.call_waits import ChannelWaits
from loomlog.services.families.channel.caller import ChannelCaller, Declaration, Origin, Queue
from loomlog.services.families.channel.message_cache import MessageCache
from loomlog.services.families.channel.operations import ChannelOperations
from loomlog.services.families.channel.store import ChannelStore
from loomlog.services.runtime.models.definition_resolver import DefinitionResolver
from loomlog.services.runtime.run.wait_answers import WaitAnswers
from loomlog.services.runtime.run_host import StandbyEdges
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from loomlog.services.runtime.tools.tool_calls import ToolCalls
from loomlog.services.runtime.tools.toolset import ProcessToolset
from loomlog.services.stream.entities.hosting import EntityParts
from loomlog.services.stream.entities.reads import EntityRow
from tests.services.families.channel.tool import channel_tool, nobody
from tests.simulation.answers import AGENT, answered
from tests.simulation.broker import Wire
from tests.simulation.channel_ledger import AWAIT, PUBLISH, SUBSCRIBE, ChannelLedger, ChannelOrder, ChannelRun
from tests.simulation.entities import LOOK_S, ORDERS_UNTIL, EntityHost, EntityLoad, plan_acts
from tests.simulation.entity_ledger import Order
from tests.simulation.faults import CALM_S, Faults
from tests.simulation.log import TOPICS, SimulatedLog
from tests.simulation.memory import WiredReads

CHANNEL_SHARE = 0.45
"""Of the seeds with neither a limit nor counters nor definitions nor memory: those with channels."""
MOST_RUNS, MOST_TURNS, MOST_CALLS = 4, 3, 3
MOST_ORDERS = 4
TENANT, USER_ID = "t", "ada"
AGENT_NAME, TOOL = "talker", CHANNEL_TOOL.name
CHANNELS = ("jobs", "news")
TALKER = replace(
    AGENT,
    name=AGENT_NAME,
    tools=(TOOL,),
    grants=AgentGrants(channels_publish=CHANNELS, channels_subscribe=CHANNELS),
)
PARALLEL_CALLS = 8
ANSWER_S = 0.8
"""How long a tool or a request waits for the owner of a queue; the product waits much longer."""
MOST_DELAY_MS = 4_000
MOST_WAIT_MS = 2_500
CANCELLED_SHARE = 0.4
OWN_READER_SHARE = 0.2
START_MS = 1_700_000_000_000
"""When the world begins (world.py)."""


def channels_of(faults: Faults) -> "Channels | None":
    """The channels of a seed, if it has any."""
    random = Random(f"{faults.seed}/channels")
    if random.random() >= CHANNEL_SHARE:
        return None
    runs, orders = [], []
    for number in range(random.randint(2, MOST_RUNS)):
        is_cancelled = random.random() < CANCELLED_SHARE
        run = ChannelRun(
            name=f"channels {number}",
            id=f"r_{'cancelled' if is_cancelled else 'channel'}{number}",
            at_s=random.uniform(0.0, CALM_S * ORDERS_UNTIL / 2),
            by_topic=True,
            turns=[],
            cancel_at_s=random.uniform(0.1, CALM_S / 2) if is_cancelled else 0.0,
        )
        run.turns = [
            [_call(random, run, f"{run.id} {turn}.{index}") for index in range(random.randint(1, MOST_CALLS))]
            for turn in range(random.randint(1, MOST_TURNS))
        ]
        if run.name not in faults.without:
            runs.append(run)
    for number in range(random.randint(0, MOST_ORDERS)):
        at_s = random.uniform(0.0, CALM_S * ORDERS_UNTIL)
        is_read = random.random() < 0.5
        order = ChannelOrder(
            name=f"request {number}",
            id=f"o_request{number}",
            at_s=at_s,
            by_topic=not is_read and random.random() < 0.5,
            fields=_subscribe(random, "") if is_read else _publish(random, at_s, f"request {number}"),
        )
        if order.name not in faults.without:
            orders.append(order)
    plan_acts(faults, random, "channels")
    return Channels(orders, runs)


def _call(random: Random, run: ChannelRun, value: str) -> Mapping[str, Any]:
    """Return the input of a call of a run."""
    kind = random.random()
    if kind < 0.5:
        return _publish(random, run.at_s, value)
    if kind < 0.9:
        return _subscribe(random, run.id if random.random() < OWN_READER_SHARE else "")
    return {"op": AWAIT, "channels": list(CHANNELS), "wait_ms": random.randint(0, MOST_WAIT_MS)}


def _publish(random: Random, at_s: float, value: str) -> Mapping[str, Any]:
    fields: dict[str, Any] = {"op": PUBLISH, "channel": random.choice(CHANNELS), "value": value}
    if random.random() < 0.3:
        at = START_MS / 1_000 + at_s + random.randint(0, MOST_DELAY_MS) / 1_000
        fields["deliver_at"] = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return fields


def _subscribe(random: Random, reader: str) -> Mapping[str, Any]:
    fields = {"op": SUBSCRIBE, "channel": random.choice(CHANNELS), "max_messages": random.randint(1, 3)}
    if random.random() < 0.7:
        fields["wait_ms"] = random.randint(200, MOST_WAIT_MS)
    if reader:
        fields["reader"] = reader
    return fields


class Declared:
    """The channels of every process (protocol Declarations)."""

    def find(self, tenant: str, name: str) -> Declaration | None:
        return Declaration(name=name, scope="tenant") if name in CHANNELS else None

    def list(self, tenant: str) -> Sequence[Declaration]:
        return [Declaration(name=name, scope="tenant") for name in CHANNELS]


class Channels(EntityLoad):
    """The channels of a seed."""

    ledger: ChannelLedger

    def __init__(self, orders: Sequence[ChannelOrder], runs: Sequence[ChannelRun]) -> None:
        super().__init__(FAMILY, orders)
        self.runs = runs
        self.operations: dict[int, ChannelOperations] = {}
        """Of each process, by the id of its parts."""

    def open(self, log: SimulatedLog, partitions: int, seed: int, complain: Callable[[str, str], None]) -> None:
        super().open(log, partitions, seed, complain)
        self.log = log
        self.unsent = len(self.runs)
        """Runs whose commands are not sent yet."""

    def make_ledger(self, log: SimulatedLog, complain: Callable[[str, str], None]) -> ChannelLedger:
        return ChannelLedger(self.orders, self.runs, complain)

    def host(self, wire: Wire, edges: StandbyEdges, clock_ms: Callable[[], int]) -> "ChannelHost":
        return ChannelHost(wire, self, edges, clock_ms)

    def command(self, order: ChannelOrder) -> PublishMessage:
        queue, fields = Queue(TENANT, str(order.fields["channel"]), "tenant"), order.fields
        at = fields.get("deliver_at")
        return PublishMessage(
            envelope=self._caller(order).envelope(queue),
            channel=queue.channel,
            scope=queue.scope,
            scope_id="",
            value=json.dumps(fields["value"]),
            deliver_at_ms=0 if at is None else round(datetime.fromisoformat(at).timestamp() * 1_000),
        )

    def _caller(self, order: ChannelOrder) -> ChannelCaller:
        return ChannelCaller(
            tenant=TENANT, origin=Origin.MEMBER, subject="app", command_id=order.id, issued_at_ms=order.issued_at_ms
        )

    async def give(self, parts: EntityParts, order: Order, clock_ms: Callable[[], int]) -> None:
        assert isinstance(order, ChannelOrder)
        if order.op == PUBLISH:
            await super().give(parts, order, clock_ms)
            return
        order.issued_at_ms = order.issued_at_ms or clock_ms()
        fields = {name: value for name, value in order.fields.items() if name != "op"}
        try:
            batch = await self.operations[id(parts)].subscribe(ChannelSubscribe(**fields), self._caller(order))
            self.ledger.read(order, [message.id for message in batch.value.messages])
        except Unavailable:
            await asyncio.sleep(LOOK_S)

    # --- the runs ----------------------------------------------------------------------------------------------------

    async def client(self, wire: Wire, clock_ms: Callable[[], int]) -> None:
        """Start every run at its time, and cancel some; and publish for others by the topic."""
        async with asyncio.TaskGroup() as group:
            group.create_task(super().client(wire, clock_ms))
            for run in self.runs:
                group.create_task(self._start(run, wire, clock_ms))

    async def _start(self, run: ChannelRun, wire: Wire, clock_ms: Callable[[], int]) -> None:
        await asyncio.sleep(run.at_s)
        envelope = CommandEnvelope(command_id=f"start-{run.id}", tenant=TENANT, issued_at_ms=clock_ms())
        start = StartRun(envelope=envelope, agent=AGENT_NAME, prompt="go", run_id=run.id, user_id=USER_ID)
        await self._send(run, start, wire)
        if run.cancel_at_s:
            await asyncio.sleep(run.cancel_at_s)
            envelope = CommandEnvelope(command_id=f"cancel-{run.id}", tenant=TENANT, issued_at_ms=clock_ms())
            await self._send(run, CancelRun(envelope=envelope, run_id=run.id), wire)
        self.unsent -= 1

    async def _send(self, run: ChannelRun, command: Any, wire: Wire) -> None:
        key = partition_key(run.id).encode()
        record = ProducerRecord(key=key, value=local_codec().encode(command))
        while True:
            try:
                await wire.append(TOPICS.commands, partition_of(key, self.partitions), [record])
                return
            except UnknownOutcome:
                continue  # again: the command's id makes that safe

    # --- the end -----------------------------------------------------------------------------------------------------

    def open_ends(self, hosts: Sequence[EntityHost]) -> str:
        if self.unsent:
            return f"{self.unsent} runs with channels are not started"
        return super().open_ends(hosts)

    def compare(self, hosts: Sequence[EntityHost]) -> None:
        """Complain about rows that differ from the log, and about what readers may have next."""
        states, _ = self.compare_rows(self.log)
        for name, queue in self.ledger.queues.items():
            for reader in queue.readers:
                state = states[name].state
                positions = list(state.next_positions(state.reader(reader), len(queue.visible) + 1, START_MS))
                if positions != queue.free(reader):
                    text = f"{name} shows {positions} to {reader!r}; the log leaves {queue.free(reader)}"
                    self.ledger.complain("lost", text)


class ChannelHost(EntityHost):
    """The queues of one runtime process, and the tool of its runs."""

    def __init__(self, wire: Wire, load: Channels, edges: StandbyEdges, clock_ms: Callable[[], int]) -> None:
        super().__init__(wire, load, edges, clock_ms)
        self._runs = load.ledger.runs
        cache = MessageCache(local_codec(), topic=self.parts.replicas.topic)
        self.parts.replicas.on_event(FAMILY.name, cache.read)
        store = ChannelStore(
            self.parts.client,
            ChannelReads(self, wire, load),
            cache,
            clock_ms=clock_ms,
            decrypt=_plain,
            wait_s=ANSWER_S,
        )
        operations = load.operations[id(self.parts)] = ChannelOperations(Declared(), store, clock_ms=clock_ms)
        tool = channel_tool(operations, clock_ms=clock_ms)
        self._waits = ChannelWaits(operations, clock_ms=clock_ms)
        self._results = WaitAnswers(self._waits, {TOOL: tool}, is_isolated=nobody)
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
        return TalkersToo(static)

    def run_context(self) -> Mapping[str, Any]:
        return {
            "wait_results": self._results,
            "complete_call": self._calls.complete,
            "release_lease": self._waits.release_lease,
        }

    async def outside(self, effect: Any, state: Any) -> Any:
        run = self._runs.get(effect.run_id)
        if run is None:
            return None
        if isinstance(effect, CallTool) and effect.name == TOOL:
            return await self._calls.run(effect, state, TENANT)
        answer = answered(effect, state, self._clock_ms())
        return self._with_calls(answer, run) if isinstance(answer, ModelAnswered) else answer

    def _with_calls(self, answer: ModelAnswered, run: ChannelRun) -> ModelAnswered:
        """Return the answer of a model with the calls of the turn instead of those of the script."""
        calls = [json.dumps(one) for one in run.turns[answer.turn - 1]] if answer.turn <= len(run.turns) else []
        return replace(
            answer,
            tool_calls=tuple(
                ToolCall(id=f"t{answer.turn}c{index}", name=TOOL, input=text) for index, text in enumerate(calls)
            ),
            effect_classes=tuple(self._tools.effect_class(TOOL, text) for text in calls),
            stop_reason="tool_use" if calls else "end_turn",
        )


async def _plain(value: Any, tenant: str) -> Any:
    return value


class TalkersToo:
    """Resolves the agent of the load, and all others as before (protocol DefinitionResolver)."""

    def __init__(self, static: DefinitionResolver) -> None:
        self._static = static

    def resolve(self, agent: str, **request: Any) -> AgentDefinition | CommandRefusal:
        return TALKER if agent == AGENT_NAME else self._static.resolve(agent, **request)

    def is_loaded(self, agent: str, **request: Any) -> bool:
        return agent == AGENT_NAME or self._static.is_loaded(agent, **request)

    async def load(self, agent: str, **request: Any) -> None:
        await self._static.load(agent, **request)

    def policies_in_force(self, agent: str, tenant: str) -> tuple[ApprovalPolicy, ...]:
        return self._static.policies_in_force(agent, tenant)

    def providers(self) -> frozenset[str]:
        return frozenset(self._static.providers())


class ChannelReads(WiredReads):
    """The reads of a process: states and items from the simulated rows."""

    def __init__(self, host: EntityHost, wire: Wire, load: EntityLoad) -> None:
        super().__init__(host, wire, load)
        self._simulated = load.rows

    async def show(self, family: str, tenant: str, name: str, *, positions: Sequence[str] = ()) -> EntityRow | None:
        await self._wait_for_rows(family, tenant, positions)
        await self._wired.reach()
        row = self._simulated.rows.get(aggregate_id(family, tenant, name))
        return None if row is None else EntityRow(name=name, entity=self._simulated.shown(row))
