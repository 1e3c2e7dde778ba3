"""Runtimes in this process over a log in memory, which own runs and the queues of channels; rows are folded from it."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.models.mock.model import MockModel, MockOptions
from loomlog.connectors.protocols import EffectClass, ProducerRecord, Tool, ToolContext, ToolResult
from loomlog.projections.entity_items import ItemRow
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_commands import CancelRun, StartRun
from loomlog.schemas.generated.values import AgentDefinition, AgentGrants, CommandEnvelope
from loomlog.schemas.ids import partition_key
from loomlog.schemas.reader import TermReader
from loomlog.services.core.entity import Entity, entity_rules
from loomlog.services.core.families import aggregate_id, aggregate_key
from loomlog.services.core.operation_input import parse_input
from loomlog.services.core.run.commands import CommandRefusal
from loomlog.services.families.channel import FAMILY
from loomlog.services.families.channel.call_waits import ChannelWaits
from loomlog.services.families.channel.caller import ChannelCaller, Declaration, Origin, Queue
from loomlog.services.families.channel.message_cache import MessageCache
from loomlog.services.families.channel.operations import ChannelOperations
from loomlog.services.families.channel.state import QueueState
from loomlog.services.families.channel.store import ChannelStore
from loomlog.services.families.operation import RunAnswer
from loomlog.services.runtime.clock import clock_ms
from loomlog.services.runtime.run.wait_answers import WaitAnswers
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from loomlog.services.stream.entities.hosting import EntityParts
from loomlog.services.stream.entities.reads import EntityRow, PositionNotRead
from tests.run_options import grouped
from tests.services.families.channel.callers import DECLARED
from tests.services.families.channel.tool import channel_tool, nobody
from tests.services.memory_items import MemoryItems
from tests.services.runtime.fakes import OneAgent
from tests.services.runtime.small_runtime import TOPICS, SmallRuntime, running
from tests.services.stream.entities.hosts import TOPICS as ENTITIES
from tests.services.stream.entities.hosts import Entities
from tests.waiting import until


class Declared:
    """Every channel is declared, with a queue for each user."""

    def find(self, tenant: str, name: str) -> Declaration | None:
        return Declaration(name=name, scope="user")

    def list(self, tenant: str) -> Sequence[Declaration]:
        return ()


class Agents(OneAgent):
    """Agents on the mock models of their names; all may use all channels."""

    def resolve(self, agent: str, **_: object) -> AgentDefinition | CommandRefusal:
        patterns = ("research-done/*", "editing-done/*", "parts/*")
        return AgentDefinition(
            name=agent,
            sha256="ab12",
            provider="mock",
            model=f"mock-{agent}",
            tools=("Channel", "Memory", "Context", "Evaluation"),
            max_tokens=100,
            grants=AgentGrants(channels_publish=patterns, channels_subscribe=patterns),
        )


class Noted:
    """A tool that notes its calls; Context answers with the run."""

    description = "Notes its calls."
    input_schema: Mapping[str, Any] = {"type": "object"}
    timeout_s = 5.0

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: list[Mapping[str, Any]] = []

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.READ

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        self.calls.append(arguments)
        return ToolResult(text=f'{{"run_id": "{context.run_id}"}}')


class FoldedReads:
    """The part of EntityReads that channels use: states and rows of everything that is in the log."""

    topic, partitions = ENTITIES.events, 1

    def __init__(self, log: MemoryLog, parts: EntityParts) -> None:
        self._log, self._parts = log, parts
        self._entities: dict[str, Entity[Any]] = {}
        self._items = MemoryItems(FAMILY)
        self._reader = TermReader()

    def _fold(self) -> None:
        rules = entity_rules(FAMILY)
        for record in self._log.records[self.topic, 0][self._reader.next_offset :]:
            event = self._reader.read(record.offset, record.value)
            if event is None:
                continue
            decoded = event.decode()
            assert decoded.envelope is not None
            name = decoded.envelope.aggregate
            entity = self._entities.get(name) or rules.initial(name)
            self._entities[name] = entity = rules.evolve(entity, decoded.record, decoded.envelope.at_ms)
            self._items.add(entity, decoded.record, decoded.envelope, offset=record.offset)

    async def local(self, family: str, tenant: str, name: str, *, positions: Sequence[str] = ()) -> EntityRow | None:
        full = aggregate_id(family, tenant, name)
        entity = await self._parts.client.local_entity(partition_of(aggregate_key(full), 1), full, -1)
        return None if entity is None else EntityRow(name=name, entity=entity)

    async def show(self, family: str, tenant: str, name: str, *, positions: Sequence[str] = ()) -> EntityRow | None:
        self._fold()
        entity = self._entities.get(aggregate_id(family, tenant, name))
        return None if entity is None else EntityRow(name=name, entity=entity)

    async def load_items(
        self, family: str, tenant: str, kind: str, ids: Sequence[str], *, positions: Sequence[str] = ()
    ) -> Sequence[ItemRow]:
        self._fold()
        for position in positions:
            if int(position.rpartition(":")[2]) >= self._reader.next_offset:
                raise PositionNotRead(position)
        return self._items.load(tenant, kind, ids)


async def plaintext(value: Any, tenant: str) -> Any:
    return value


class Runtime:
    """A process that owns everything; leaving its context is a crash."""

    def __init__(self, small: SmallRuntime, operations: ChannelOperations) -> None:
        self.small, self.operations = small, operations
        self.numbers = 0

    async def ask(self, op: str, *, user_id: str = "ann", **fields: Any) -> RunAnswer[Any]:
        """An operation of an application."""
        self.numbers += 1
        caller = ChannelCaller(
            tenant="acme",
            origin=Origin.MEMBER,
            subject="app",
            command_id=f"{id(self)}.{self.numbers}",
            issued_at_ms=clock_ms(),
            user_id=user_id,
        )
        operation: Any = getattr(self.operations, op)
        asked = parse_input(DECLARED[op].input, fields, code="invalid_request")
        answer: RunAnswer[Any] = await operation(asked, caller)
        return answer

    def queue(self, channel: str) -> QueueState | None:
        """The state of a queue of ann, as its owner has it."""
        name = aggregate_id("channel", "acme", Queue("acme", channel, "user", "ann").aggregate)
        owners = [owner for topic_set in self.small.host.topic_sets[1:] for owner in topic_set.owners.values()]
        for owner in owners:
            if owner.partition is not None and name in owner.partition.aggregates:
                state: QueueState = owner.partition.aggregates[name].state.state
                return state
        return None


class ChannelWorld:
    """A log with the topics of runs and of entities, and the processes over it."""

    def __init__(self) -> None:
        self.log = MemoryLog({TOPICS.commands: 1, TOPICS.events: 1, **Entities.partitions})
        self.entities = Entities(self.log, (FAMILY,), clock_ms)
        self.memory, self.context, self.evaluation = Noted("Memory"), Noted("Context"), Noted("Evaluation")
        self.model: Any = MockModel(options=MockOptions(latency_ms=0, latency_jitter_ms=0))

    @asynccontextmanager
    async def runtime(self, name: str, **more: Any) -> AsyncIterator[Runtime]:
        """A process that owns runs and queues. `more` as SmallRuntime takes it."""
        parts = self.entities.parts()
        hosted = self.entities.hosted(parts, name)
        await parts.replicas.open()
        cache = MessageCache(local_codec(), topic=ENTITIES.events)
        parts.replicas.on_event("channel", cache.read)
        reads: Any = FoldedReads(self.log, parts)
        store = ChannelStore(parts.client, reads, cache, clock_ms=clock_ms, decrypt=plaintext)
        operations = ChannelOperations(Declared(), store, clock_ms=clock_ms)
        tool = channel_tool(operations, clock_ms=clock_ms)
        waits = ChannelWaits(operations, clock_ms=clock_ms)
        tools: dict[str, Tool] = {tool.name: tool for tool in (self.memory, self.context, self.evaluation)}
        tools["Channel"] = tool
        commands = self.log.tail(TOPICS.commands, {0: 0})
        commands.pause([0])
        small = SmallRuntime(
            self.log,
            self.log,
            commands,
            partitions=1,
            topics=TOPICS,
            model=self.model,
            tracing=NO_TRACING,
            name=name,
            tools=tools,
            definitions=Agents(),
            entities=[hosted.topic_set],
            wait_results=WaitAnswers(waits, {tool.name: tool}, is_isolated=nobody),
            release_lease=waits.release_lease,
            **more,
        )
        hosted.attach(small.host)
        tail = self.log.tail(ENTITIES.events, parts.replicas.next_offsets)
        following = asyncio.create_task(parts.replicas.follow(tail))
        try:
            async with running(small):
                owners = [small.host.owners, hosted.topic_set.owners]
                await until(lambda: all(0 in of and of[0].partition is not None for of in owners))
                yield Runtime(small, operations)
        finally:
            following.cancel()
            await operations.close()

    def start(self, agent: str, prompt: str, run_id: str) -> None:
        envelope = CommandEnvelope(command_id=run_id, tenant="acme", subject="app", issued_at_ms=1)
        options = grouped({"user_id": "ann"})
        self._send(StartRun(envelope=envelope, agent=agent, prompt=prompt, run_id=run_id, **options))

    def cancel(self, run_id: str) -> None:
        envelope = CommandEnvelope(command_id=f"cancel {run_id}", tenant="acme", subject="app", issued_at_ms=1)
        self._send(CancelRun(envelope=envelope, run_id=run_id))

    def _send(self, command: Any) -> None:
        key = partition_key(command.run_id).encode()
        self.log.put(TOPICS.commands, 0, [ProducerRecord(key=key, value=local_codec().encode(command))])

    def events(self, kind: type[Any], *, topic: str = TOPICS.events, of: str = "") -> list[Any]:
        """The accepted events of a kind, of all aggregates or of one."""
        reader, events = TermReader(), list[Any]()
        for record in self.log.records[topic, 0]:
            event = reader.read(record.offset, record.value)
            if event is not None and (not of or event.aggregate.endswith(of)):
                decoded = event.decode().record
                events += [decoded] if isinstance(decoded, kind) else []
        return events

    def queue_events(self, kind: type[Any]) -> list[Any]:
        return self.events(kind, topic=ENTITIES.events)
