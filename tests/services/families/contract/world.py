"""Processes with entities that die where a test wants it, and rows as the projector writes them."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest.mock import patch

from loomlog.connectors.crypto.content_encryption import KeyEncryptionKeys, key_encryption_key_id
from loomlog.connectors.errors import Transient, UnknownOutcome
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import LogRecord, ProducerRecord
from loomlog.projections.engine.batch import ENTITY_EVENTS, Cursor, read_records
from loomlog.projections.engine.entity_fold import EntityState, ItemKey, fold_entities
from loomlog.projections.entities import EntityCommandRow, EntityRow, plain_seal
from loomlog.projections.entity_items import ItemRow
from loomlog.schemas.codec import DecodedRecord
from loomlog.schemas.generated.entity_commands import RepairAggregate
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.reader import TermReader
from loomlog.schemas.records import replace
from loomlog.services.core.entity import GENERIC_EVENTS, Entity
from loomlog.services.core.families import Family, Item, aggregate_id, aggregate_key
from loomlog.services.families.entity_folds import entity_folds
from loomlog.services.stream.encryption.subject_keys import SubjectKeys
from loomlog.services.stream.entities.answers import Answer
from loomlog.services.stream.entities.cold import ColdAggregate, HandledCommand
from loomlog.services.stream.entities.content import encrypt_content
from loomlog.services.stream.entities.families import EntityFamilies, FamilySet
from loomlog.services.stream.entities.hosting import EntityParts
from loomlog.services.stream.entities.rows import EntityRows
from loomlog.services.stream.partition.asked import OwnerLost
from tests.projections.counters import apply_items
from tests.services.families.contract.cases import Case
from tests.services.stream.entities.world import CODEC, PATIENCE_S, TOPICS, EntityWorld, Process
from tests.services.stream.outside import Wire

TENANT, OTHER = "acme", "other"
KEYS_TOPIC = "loom.subject.keys"
INSTALLATION_KEY = b"k" * 32
ENTITIES = "loomlog.services.stream.entities"


@contextmanager
def impatient() -> Iterator[None]:
    """Retries and polls wait for nothing, and aggregates rest after each checkpoint."""
    changes = {
        f"{ENTITIES}.client.LOOK_UP_EVERY_S": 0.001,
        f"{ENTITIES}.client.RETRY_S": 0,
        "loomlog.connectors.retries.RETRY_S": 0,
        f"{ENTITIES}.hosting.HOT_AGGREGATES_MAX": 0,
        f"{ENTITIES}.checkpoints.PROJECTOR_WAIT_S": 0,
        f"{ENTITIES}.checkpoints.DELIVERY_WAIT_S": 0,
        "loomlog.services.stream.partition.lookups.LOOKUP_RETRY_S": 0,
        "loomlog.services.stream.ownership.assignment.RECLAIM_BACKOFF_S": (0.0,),
    }
    with ExitStack() as stack:
        for name, value in changes.items():
            stack.enter_context(patch(name, value))
        yield


class ProjectedRows(EntityRows):
    """The rows, folded by the projection's own code from the log; only the database between is missing."""

    def __init__(self, log: MemoryLog, families: Sequence[Family[Any, Any, Any]], partitions: int) -> None:
        super().__init__(None, FamilySet(families), events_topic=TOPICS.events, seals=(plain_seal,))  # type: ignore[arg-type]  # nothing is read by it
        self.away = False
        self.behind: dict[int, int] = {}
        """Offset at which the projector of a partition stands still."""
        self.rows: dict[str, EntityRow] = {}
        self.commands: dict[tuple[str, str], EntityCommandRow] = {}
        self.items: dict[ItemKey, ItemRow] = {}
        self.loads = 0
        self._log = log
        self._folds = entity_folds(families)
        self._states: dict[str, EntityState] = {}
        self._cursors = {number: Cursor(partition=number, next_offset=0, term=-1) for number in range(partitions)}

    async def next_offset(self, partition: int) -> int:
        await asyncio.sleep(0)
        if self.away:
            raise Transient("the database is away", kind="unavailable")
        self.project(partition)
        return self._cursors[partition].next_offset

    def positions(self) -> dict[int, Cursor]:
        """How far the rows of each partition are."""
        return dict(self._cursors)

    def records(self, partition: int) -> Sequence[LogRecord]:
        """The events of a partition."""
        return self._log.records[TOPICS.events, partition]

    def project(self, partition: int) -> None:
        """Fold what is new in the log, as far as the projector may."""
        in_log = self.records(partition)
        records = in_log[self._cursors[partition].next_offset : self.behind.get(partition, len(in_log))]
        if not records:
            return
        batch = read_records(self._cursors, {partition: records}, CODEC, ENTITY_EVENTS)
        known = {name: self._states[name] for name in batch.aggregates if name in self._states}
        changes = fold_entities(TOPICS.events, batch, known, folds=self._folds, seal=plain_seal)
        self._states.update(changes.states)
        self.rows.update((row.aggregate, row) for row in changes.entities)
        apply_items(self.items, changes)
        for row in changes.commands:
            before = self.commands.get((row.command_id, row.aggregate))
            first = row.first_offset if before is None else before.first_offset
            self.commands[row.command_id, row.aggregate] = row._replace(first_offset=first)
        for cursor in batch.new_cursors:
            self._cursors[cursor.partition] = cursor

    def restart(self) -> None:
        """Another projector goes on from the rows alone."""
        self._states = {
            name: EntityState(row=row, state=self._folds[row.family].decode(row.state.encode()))
            for name, row in self.rows.items()
        }

    def rebuild(self) -> None:
        """The database was lost: everything is folded from the log again."""
        self.rows, self.commands, self.items, self._states = {}, {}, {}, {}
        self._cursors = {number: Cursor(partition=number, next_offset=0, term=-1) for number in self._cursors}

    async def load(self, partition: int, aggregates: Sequence[str]) -> tuple[int, dict[str, ColdAggregate]]:
        below = await self.next_offset(partition)
        self.loads += len(aggregates)
        return below, {name: self.verified(self.rows[name]) for name in aggregates if name in self.rows}

    async def find_command(self, partition: int, aggregate: str, command_id: str) -> tuple[int, HandledCommand | None]:
        below = await self.next_offset(partition)
        row = self.commands.get((command_id, aggregate))
        if row is None:
            return below, None
        return below, HandledCommand(first_offset=row.first_offset, last_offset=row.last_offset)

    async def due_timers(self, partition: int, before_ms: int, limit: int) -> list[tuple[str, int]]:
        await self.next_offset(partition)
        due = [row for row in self.rows.values() if row.partition == partition and 0 < row.due_ms < before_ms]
        return [(row.aggregate, row.due_ms) for row in sorted(due, key=lambda row: row.due_ms)[:limit]]


@dataclass
class Fault:
    """What happens at the `at`-th append of all processes, from the start; 0: nothing does."""

    at: int = 0
    kind: str = ""
    """`dies before` and `dies after` the batch is in the log; `unacknowledged`: it is, and its sender does not hear."""
    appends: int = 0
    happened: int = 0


class MortalWire(Wire):
    """A process's way to the log, on which it may die."""

    def __init__(self, log: MemoryLog, random: Random, fault: Fault) -> None:
        super().__init__(log, random)
        self.tasks: list[asyncio.Task[Any]] = []
        self.is_dead = asyncio.Event()
        self._fault = fault

    async def append(self, topic: str, partition: int, records: Sequence[ProducerRecord]) -> int:
        self._fault.appends += 1
        kind = self._fault.kind if self._fault.appends == self._fault.at else ""
        self._fault.happened += bool(kind)
        if kind == "dies before":
            await self._die()
        base = await super().append(topic, partition, records)
        if kind == "dies after":
            await self._die()
        if kind == "unacknowledged":
            raise UnknownOutcome("the acknowledgement was lost on request")
        return base

    async def _die(self) -> None:
        self.is_dead.set()
        for task in self.tasks:
            task.cancel()
        await asyncio.get_running_loop().create_future()


@dataclass
class ContractWorld(EntityWorld):
    """A log, processes over it that share the partitions, and a client that asks until it is answered."""

    fault: Fault = field(default_factory=Fault)
    shares: tuple[frozenset[int], ...] = (frozenset({0, 1}),)
    """Partitions of each owner. A dead one is replaced by another with the same."""
    owners: list[Process] = field(default_factory=list)
    by_topic: bool = False
    """Whether commands are sent by their topic, although this process owns the partition."""
    readers: dict[int, tuple[TermReader, list[tuple[int, DecodedRecord] | None]]] = field(default_factory=dict)
    """The reader of each partition's events, with what it made of each record."""

    def make_rows(self) -> ProjectedRows:
        return ProjectedRows(self.log, self.families, self.partitions)

    def make_wire(self) -> MortalWire:
        return MortalWire(self.log, Random(len(self.processes)), self.fault)

    async def start(self, *owns: int, name: str) -> Process:
        process = await super().start(*owns, name=name)
        assert isinstance(process.wire, MortalWire)
        process.wire.tasks = process.tasks
        return process

    # --- owners ------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Start an owner for each share, and replace those that are dead, until all have their partitions."""
        while True:
            for number, share in enumerate(self.shares):
                if number == len(self.owners):
                    self.owners.append(await self.start(*share, name=f"{number}.{len(self.processes)}"))
                elif self.owners[number].wire.is_dead.is_set():
                    await asyncio.wait(self.owners[number].tasks)
                    self.owners[number] = await self.start(*share, name=f"{number}.{len(self.processes)}")
            await self.until(lambda: any(map(_is_dead, self.owners)) or all(map(_has_partitions, self.owners)))
            if not any(map(_is_dead, self.owners)):
                return

    async def take_over(self) -> None:
        """Kill every owner, and start others."""
        for process in self.owners:
            await process.kill()
        self.owners.clear()
        await self.open()

    async def settle(self) -> None:
        """Until nothing is left to do: every command handled, every delivery carried out."""
        read_ahead: set[Any] = set()
        while True:
            await self.open()
            for process in self.owners:
                for owner in list(process.entities.topic_set.owners.values()):
                    if owner.handler not in read_ahead:  # as once in TIMERS_EVERY_S
                        read_ahead.add(owner.handler)
                        await process.entities.read_ahead(owner)
            await self.until(lambda: self._is_changed(read_ahead) or all(map(self._is_settled, self.owners)))
            if not self._is_changed(read_ahead):
                await self.read_by_senders()
                return

    def _is_changed(self, known: set[Any]) -> bool:
        """Whether a process died, or took a partition again."""
        if any(map(_is_dead, self.owners)):
            return True
        owners = [owner for process in self.owners for owner in process.entities.topic_set.owners.values()]
        return any(owner.partition is not None and owner.handler not in known for owner in owners)

    def _is_settled(self, process: Process) -> bool:
        topic_set = process.entities.topic_set
        if topic_set.pending_commands or process.entities.outbox.pending_count():
            return False
        for number, owner in topic_set.owners.items():
            partition = owner.partition
            if partition is None or not partition.is_idle or process.handler(number).untouched():
                return False
            if partition.progress.low < len(self.log.records[TOPICS.commands, number]):
                return False
        return True

    async def checkpoint(self) -> None:
        """Make a checkpoint of every partition, if its owner lives."""
        for process in list(self.owners):
            topic_set = process.entities.topic_set
            making = [asyncio.ensure_future(topic_set.checkpoints.make(owner)) for owner in topic_set.owners.values()]
            dying = asyncio.ensure_future(process.wire.is_dead.wait())  # type: ignore[attr-defined]  # of MortalWire
            await asyncio.wait({dying, asyncio.ensure_future(asyncio.wait(making))}, return_when="FIRST_COMPLETED")
            for task in (*making, dying):
                task.cancel()
        await self.open()

    async def fire_timers(self) -> None:
        """Let every timer fire that is due, of aggregates in memory and at rest."""
        await self.settle()
        for process in self.owners:
            process.host.fire_due_timers()
        await self.settle()

    # --- commands ----------------------------------------------------------------------------------------------------

    def full_id(self, command: Any) -> str:
        if isinstance(command, RepairAggregate):
            return command.aggregate
        # Looked for here, because a set of families takes a hundred times as long to make, and this is asked often.
        rows = ((family, row) for family in self.families for row in family.commands)
        family, row = next((family, row) for family, row in rows if row.record is type(command))
        return aggregate_id(family.name, command.envelope.tenant, row.aggregate(command))

    def partition_of(self, command: Any) -> int:
        return partition_of(aggregate_key(self.full_id(command)), self.partitions)

    def put_command(self, command: Any, *, key: bytes | None = None, partition: int | None = None) -> None:
        """A command in the topic, as any service may write it."""
        key = aggregate_key(self.full_id(command)) if key is None else key
        number = partition_of(key, self.partitions) if partition is None else partition
        self.log.put(TOPICS.commands, number, [ProducerRecord(key=key, value=CODEC.encode(command))])

    async def answer(self, command: Any) -> Answer:
        """Ask until there is an answer, whoever dies meanwhile."""
        while True:
            await self.open()
            owner = next(
                process for process in self.owners if self.partition_of(command) in process.entities.topic_set.owners
            )
            parts = owner.entities.parts
            asking = asyncio.ensure_future(self.sender_of(parts).client.ask(command, wait_s=PATIENCE_S))
            deaths = [asyncio.ensure_future(process.wire.is_dead.wait()) for process in self.owners]  # type: ignore[attr-defined]
            try:
                await asyncio.wait({asking, *deaths}, return_when="FIRST_COMPLETED")
                if asking.done():
                    return asking.result()
            except OwnerLost:
                continue
            finally:
                for task in (asking, *deaths):
                    task.cancel()
                await asyncio.wait({asking})

    def sender_of(self, parts: EntityParts) -> EntityParts:
        """The way by which a command is sent."""
        if self.by_topic:
            parts.client.ask_owner = lambda partition, asked: False
        return parts

    # --- what is in the log ------------------------------------------------------------------------------------------

    def accepted(self) -> list[tuple[int, DecodedRecord]]:
        """The accepted events of all partitions, each with its offset. What was read before is not read again."""
        events = []
        for number in range(self.partitions):
            reader, known = self.readers.setdefault(number, (TermReader(codec=CODEC), []))
            for record in self.log.records[TOPICS.events, number][len(known) :]:
                event = reader.read(record.offset, record.value)
                known.append(None if event is None else (record.offset, event.decode()))
            events += filter(None, known)
        return events

    def decisions(self, aggregate: str, command_id: str) -> list[tuple[int, Any]]:
        """The accepted events of a command, each with its offset."""
        return [
            (offset, decoded.record)
            for offset, decoded in self.accepted()
            if decoded.envelope is not None
            and (decoded.envelope.aggregate, decoded.envelope.cause_id) == (aggregate, command_id)
        ]

    def folded(self) -> dict[str, Entity[Any]]:
        """Every aggregate, folded from its first event by its rules alone."""
        family, states = EntityFamilies(FamilySet(self.families)), dict[str, Any]()
        for _, decoded in self.accepted():
            envelope = decoded.envelope
            assert envelope is not None
            before = states.get(envelope.aggregate) or family.absent(envelope.aggregate)
            assert envelope.seq == before.seq + 1, f"{envelope.aggregate} has a gap at {envelope.seq}"
            states[envelope.aggregate] = family.evolve(before, decoded.record, envelope.at_ms)
        return states

    def encoded(self) -> dict[str, bytes]:
        """The canonical bytes of every aggregate."""
        families = FamilySet(self.families)
        return {name: families.of(name).states.encode(state) for name, state in self.folded().items()}

    def folded_items(self) -> dict[ItemKey, tuple[Item, int, int, int]]:
        """The items of every event, by the rules alone: each with partition, offset and seq of the event."""
        families, states = FamilySet(self.families), dict[str, Any]()
        items: dict[ItemKey, tuple[Item, int, int, int]] = {}
        for offset, decoded in self.accepted():
            envelope = decoded.envelope
            assert envelope is not None
            family = families.of(envelope.aggregate)
            before = states.get(envelope.aggregate) or family.rules.initial(envelope.aggregate)
            after = states[envelope.aggregate] = family.rules.evolve(before, decoded.record, envelope.at_ms)
            if isinstance(decoded.record, GENERIC_EVENTS):
                continue
            for item in family.declaration.items(after.state, decoded.record, envelope):
                key = (family.declaration.name, envelope.tenant, item.kind, item.id)
                number = partition_of(aggregate_key(envelope.aggregate), self.partitions)
                if item.document:
                    items[key] = (item, number, offset, envelope.seq)
                else:
                    items.pop(key, None)
        return items

    def all_bytes(self) -> bytes:
        """Every key, value and header in the log."""
        parts = []
        for records in self.log.records.values():
            for record in records:
                parts += [record.key or b"", record.value or b"", *(value or b"" for _, value in record.headers)]
        return b"\n".join(parts)


def _is_dead(process: Process) -> bool:
    assert isinstance(process.wire, MortalWire)
    return process.wire.is_dead.is_set()


def _has_partitions(process: Process) -> bool:
    owners = process.entities.topic_set.owners
    return bool(owners) and all(owner.partition is not None for owner in owners.values())


def world_of(case: Case, **more: Any) -> ContractWorld:
    return ContractWorld(families=case.families, **more)


def subject_keys(world: EntityWorld) -> SubjectKeys:
    """The keys of subjects, in the same log."""
    key_id = key_encryption_key_id(INSTALLATION_KEY)
    wrapping = KeyEncryptionKeys(current=key_id, keys={key_id: INSTALLATION_KEY})
    return SubjectKeys(CODEC, world.log, world.log, wrapping, topic=KEYS_TOPIC, clock_ms=world.clock)


def encrypt_with(keys: SubjectKeys) -> Any:
    return encrypt_content(keys.cipher_for, keys.is_encrypted)


def script(case: Case, world: EntityWorld, tenant: str = TENANT) -> list[Any]:
    """The example commands of a case, with ids of their own."""
    blank = CommandEnvelope(command_id="", tenant=tenant, subject="ada", issued_at_ms=world.now)
    return [
        replace(command, envelope=replace(blank, command_id=f"c{number}"))
        for number, command in enumerate(case.examples(blank))
    ]
