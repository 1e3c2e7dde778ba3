"""Processes with entities over a log in memory: real hosts, clients and outbox; rows that are folded from the log."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import Undecodable, local_codec, read_envelope
from loomlog.schemas.generated.counter_commands import IncrementCounter, ResetCounter
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.ids import command_identity
from loomlog.schemas.reader import RawEvent, TermReader
from loomlog.services.core.families import Family, aggregate_id, aggregate_key
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.entities.answers import Answer
from loomlog.services.stream.entities.cold import ColdAggregate, HandledCommand
from loomlog.services.stream.entities.families import EntityFamilies, FamilySet
from loomlog.services.stream.entities.handler import EntityCommandHandler
from loomlog.services.stream.entities.hosting import EntityParts, HostedEntities, build_entity_parts
from loomlog.services.stream.family import Topics
from loomlog.services.stream.host import Host
from loomlog.services.stream.partition.fold import fold_events
from loomlog.services.stream.partition.partition import Aggregate
from tests.services.stream.entities.counters import FAMILY
from tests.services.stream.membership import FixedMembership
from tests.services.stream.outside import Wire

CODEC = local_codec()
TOPICS, RUNS = Topics.of("entity"), Topics.of("run")
NOW = 1_700_000_000_000
PATIENCE_S = 30.0


class FoldedRows:
    """Rows of resting aggregates, folded from the log when they are asked for (protocol ColdRows)."""

    def __init__(self, log: MemoryLog, family: EntityFamilies, topic: str = TOPICS.events) -> None:
        self.away = False
        self.behind: dict[int, int] = {}
        """Offset below which the rows are complete, where that is less than everything."""
        self.loads = 0
        self.edited: dict[str, ColdAggregate] = {}
        self._log = log
        self._family = family
        self._topic = topic

    async def next_offset(self, partition: int) -> int:
        await asyncio.sleep(0)
        if self.away:
            raise Transient("the database is away", kind="unavailable")
        return self.behind.get(partition, len(self._log.records[self._topic, partition]))

    def _events(self, partition: int, below: int) -> dict[str, list[RawEvent]]:
        reader, found = TermReader(codec=CODEC), dict[str, list[RawEvent]]()
        for record in self._log.records[self._topic, partition][:below]:
            try:
                event = reader.read(record.offset, record.value)
            except Undecodable:
                continue  # a dead letter of the projector
            if event is not None:
                found.setdefault(event.aggregate, []).append(event)
        return found

    async def _folded(self, partition: int, below: int) -> dict[str, Aggregate]:
        found = {}
        for name, events in self._events(partition, below).items():
            found[name] = Aggregate(id=name, state=self._family.absent(name), key=aggregate_key(name), tenant="")
            restatements = CODEC.schema_ids_of(self._family.restatements)
            await fold_events(found[name], events, family=self._family, codec=CODEC, restatements=restatements)
        return found

    async def load(self, partition: int, aggregates: Sequence[str]) -> tuple[int, dict[str, ColdAggregate]]:
        below = await self.next_offset(partition)
        self.loads += len(aggregates)
        folded = await self._folded(partition, below)
        rows = {
            name: ColdAggregate(
                aggregate=name,
                tenant=one.tenant,
                state=one.state,
                seq=one.seq,
                digest=one.digest,
                first_offset=one.first_offset,
                last_offset=one.last_offset,
            )
            for name, one in folded.items()
            if name in aggregates
        }
        return below, rows | {name: row for name, row in self.edited.items() if name in aggregates}

    async def find_command(self, partition: int, aggregate: str, command_id: str) -> tuple[int, HandledCommand | None]:
        below = await self.next_offset(partition)
        offsets = [
            event.offset
            for event in self._events(partition, below).get(aggregate, ())
            if command_identity(read_envelope(event.value)[0].cause_id) == command_id
        ]
        return below, HandledCommand(first_offset=offsets[0], last_offset=offsets[-1]) if offsets else None

    async def due_timers(self, partition: int, before_ms: int, limit: int) -> list[tuple[str, int]]:
        folded = await self._folded(partition, await self.next_offset(partition))
        due = [(name, self._family.next_timer_at(one.state)) for name, one in folded.items()]
        return [(name, at_ms) for name, at_ms in due if 0 < at_ms < before_ms][:limit]


@dataclass(slots=True)
class Process:
    """One runtime process."""

    entities: HostedEntities
    host: Host
    wire: Wire
    tasks: list[asyncio.Task[Any]]

    def handler(self, partition: int) -> EntityCommandHandler:
        handler = self.entities.topic_set.owners[partition].handler
        assert isinstance(handler, EntityCommandHandler)
        return handler

    async def kill(self) -> None:
        """As kill -9: nothing is drained; what is on the wire may still land."""
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)


@dataclass
class EntityWorld:
    """A log, and the processes over it."""

    partitions: int = 2
    families: tuple[Family[Any, Any, Any], ...] = (FAMILY,)
    now: int = NOW
    encrypt: Any = None
    """As HostedEntities takes it."""
    log: MemoryLog = field(init=False)
    rows: Any = field(init=False)
    processes: list[Process] = field(default_factory=list)
    senders: list[EntityParts] = field(default_factory=list)

    def __post_init__(self) -> None:
        topics = (TOPICS.commands, TOPICS.events, TOPICS.snapshots, TOPICS.dead_letters, RUNS.commands)
        self.log = MemoryLog(dict.fromkeys(topics, self.partitions))
        self.rows = self.make_rows()

    def make_rows(self) -> Any:
        return FoldedRows(self.log, EntityFamilies(FamilySet(self.families)))

    def make_wire(self) -> Wire:
        return Wire(self.log, Random(len(self.processes)))

    def clock(self) -> int:
        return self.now

    def parts(self, appender: Any) -> EntityParts:
        return build_entity_parts(
            self.families,
            CODEC,
            appender=appender,
            ranges=self.log,
            partitions=self.partitions,
            topics=TOPICS,
            rows=self.rows,
        )

    async def process(self, *owns: int, name: str = "a") -> Process:
        """Start a process that owns these partitions, all without a number; returns when it has them."""
        process = await self.start(*owns, name=name)
        owners = process.entities.topic_set.owners
        await self.until(lambda: owners and all(owner.partition is not None for owner in owners.values()))
        return process

    async def start(self, *owns: int, name: str) -> Process:
        wire = self.make_wire()
        commands = self.log.tail(TOPICS.commands, dict.fromkeys(range(self.partitions), 0))
        commands.pause(list(range(self.partitions)))
        parts = self.parts(wire)
        await parts.replicas.open()
        entities = HostedEntities(
            parts,
            CODEC,
            appender=wire,
            ranges=self.log,
            commands=commands,
            dead_letters=DeadLetters(CODEC, wire, topic=TOPICS.dead_letters, service="test", clock_ms=self.clock),
            rows=self.rows,
            run_topics=RUNS,
            clock_ms=self.clock,
            name=name,
            encrypt=self.encrypt,
        )
        membership = FixedMembership(frozenset(owns or range(self.partitions)))
        host = Host(entities.topic_set, membership=membership)
        entities.attach(host)
        events = self.log.tail(TOPICS.events, dict.fromkeys(range(self.partitions), 0))
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(host.run()), loop.create_task(parts.replicas.follow(events))]
        process = Process(entities, host, wire, tasks)
        self.processes.append(process)
        return process

    async def sender(self) -> EntityParts:
        """A process that owns nothing, as an api."""
        parts = self.parts(self.log)
        await parts.replicas.open()
        events = self.log.tail(TOPICS.events, dict.fromkeys(range(self.partitions), 0))
        task = asyncio.get_running_loop().create_task(parts.replicas.follow(events))
        self.processes.append(Process(None, None, None, [task]))  # type: ignore[arg-type]  # only to be closed
        self.senders.append(parts)
        return parts

    async def read_by_senders(self) -> None:
        """Wait until the processes that own nothing have read all there is."""
        for parts in self.senders:
            for partition in range(self.partitions):
                end = len(self.log.records[TOPICS.events, partition])
                assert await parts.replicas.wait(partition, end - 1, timeout_s=PATIENCE_S) == 0

    async def until(self, holds: Any) -> None:
        """Let the loop turn until it holds; an error of a process comes out at once."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                for process in self.processes:
                    for task in process.tasks:
                        if task.done() and not task.cancelled():
                            task.result()
                await asyncio.sleep(0)

    async def close(self) -> None:
        for process in self.processes:
            if not all(task.done() for task in process.tasks):
                await process.kill()

    # --- commands ----------------------------------------------------------------------------------------------------

    def envelope(self, command_id: str, tenant: str = "acme") -> CommandEnvelope:
        return CommandEnvelope(command_id=command_id, tenant=tenant, subject="ada", issued_at_ms=self.now)

    def increment(self, name: str, command_id: str, by: int = 1, *, tenant: str = "acme", **fields: Any) -> Any:
        return IncrementCounter(envelope=self.envelope(command_id, tenant), name=name, by=by, **fields)

    def reset(self, name: str, command_id: str) -> ResetCounter:
        return ResetCounter(envelope=self.envelope(command_id), name=name)

    def put(self, command: Any, key: bytes | None = None) -> int:
        """A command in the topic, as a service would produce it; its offset."""
        raw = aggregate_key(aggregate_id("counter", command.envelope.tenant, command.name)) if key is None else key
        record = ProducerRecord(key=raw, value=CODEC.encode(command))
        return self.log.put(TOPICS.commands, partition_of(raw, self.partitions), [record])

    async def ask(self, process: Process | EntityParts, command: Any, wait_s: float = PATIENCE_S) -> Answer:
        parts = process.entities.parts if isinstance(process, Process) else process
        return await parts.client.ask(command, wait_s=wait_s)

    def events(self, name: str, tenant: str = "acme") -> list[Any]:
        """The accepted events of a counter."""
        full, found = aggregate_id("counter", tenant, name), list[Any]()
        reader = TermReader(codec=CODEC)
        number = partition_of(aggregate_key(full), self.partitions)
        for record in self.log.records[TOPICS.events, number]:
            event = reader.read(record.offset, record.value)
            if event is not None and event.aggregate == full:
                found.append(event.decode().record)
        return found
