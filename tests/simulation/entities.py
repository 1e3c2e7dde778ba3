"""Entities in the simulation: in every runtime process beside its runs in one host, and who changes them.

Some changes are asked for by a client through the topic, others by the runtime processes, in memory where they own the
partition. Any of them may be asked for by two processes at a time: a paused one wakes up and goes on. Rows are written
by the projection's own fold from the simulated log; they may be away, and behind.

Before: counters.py, definitions.py, memory.py, channels.py, triggers.py. After: the ledger of each checks the log.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace as changed
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import LogRecord
from loomlog.projections.entity_items import ItemRow
from loomlog.schemas.codec import local_codec
from loomlog.services.core.families import Family, Item, Reads
from loomlog.services.runtime.models.definition_resolver import DefinitionResolver
from loomlog.services.runtime.run_host import StandbyEdges, build_standby
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.entities.answers import Answer, CommandUnanswered
from loomlog.services.stream.entities.cold import ColdAggregate, HandledCommand
from loomlog.services.stream.entities.hosting import EntityParts, HostedEntities, build_entity_parts
from loomlog.services.stream.host import Host
from tests.services.families.contract.world import ContractWorld, ProjectedRows
from tests.simulation.books import LogRecords
from tests.simulation.broker import Tail, Wire
from tests.simulation.entity_ledger import INTRUDER, EntityLedger, Order
from tests.simulation.faults import CALM_S, MOST_DELAY_S, MOST_FUSE, Act, Faults
from tests.simulation.log import ENTITIES, TOPICS, Record, SimulatedLog

ORDERS_UNTIL = 0.8
"""Of the time of faults: orders are given up to then, so that some come after checkpoints."""
WAIT_S = 2.0
"""How long a process waits for an answer before it asks again."""
LOOK_S = 0.2
OPEN_AGAIN_S = 0.1
BEHIND_SHARE = 0.3
"""Of the looks at the rows: those at which the projector has not gone on."""
ENTITY_ACTS = ("clock", "rows away", "rows behind", "crash sender", "crash sender", *("entity checkpoint",) * 4)
MOST_ENTITY_ACTS = 10
MOST_STEP_MS = 4_000
"""How far a clock is set back or forward; with the skew, less than the product's CLOCK_SKEW_MS."""
MOST_AWAY_S = 1.5


def plan_acts(faults: Faults, random: Random, what: str) -> None:
    """Add the acts that strike entities to the faults of a seed; `what` begins their names."""
    for number in range(random.randint(0, MOST_ENTITY_ACTS)):
        act = Act(
            name=f"{what} act {number} ({random.choice(ENTITY_ACTS)})",
            kind="",
            at_s=random.uniform(0.0, CALM_S),
            place=random.random(),
            amount=random.random(),
            fuse=random.randrange(1, MOST_FUSE),
        )
        if act.name not in faults.without:
            faults.acts.append(changed(act, kind=f"entities: {act.name.partition('(')[2].rstrip(')')}"))


class SharedRows(ProjectedRows):
    """The rows of the world, which a projector writes that lags now and then."""

    def __init__(
        self, log: SimulatedLog, families: Sequence[Family[Any, Any, Any]], partitions: int, random: Random
    ) -> None:
        super().__init__(log, families, partitions)  # type: ignore[arg-type]  # only `records` reads it
        self.calm = False
        self._random = random

    def records(self, partition: int) -> Sequence[LogRecord]:
        return self._log.records(ENTITIES.events, partition)  # type: ignore[operator,no-any-return]  # it is a SimulatedLog

    def project(self, partition: int) -> None:
        if self.calm or self._random.random() >= BEHIND_SHARE:
            super().project(partition)


class WiredRows:
    """The way of a process to the rows (protocol ColdRows)."""

    def __init__(self, wire: Wire, rows: SharedRows) -> None:
        self._wire = wire
        self._rows = rows

    async def next_offset(self, partition: int) -> int:
        await self.reach()
        return await self._rows.next_offset(partition)

    async def load(self, partition: int, aggregates: Sequence[str]) -> tuple[int, Mapping[str, ColdAggregate]]:
        await self.reach()
        return await self._rows.load(partition, aggregates)

    async def find_command(self, partition: int, aggregate: str, command_id: str) -> tuple[int, HandledCommand | None]:
        await self.reach()
        return await self._rows.find_command(partition, aggregate, command_id)

    async def due_timers(self, partition: int, before_ms: int, limit: int) -> Sequence[tuple[str, int]]:
        await self.reach()
        return await self._rows.due_timers(partition, before_ms, limit)

    async def reach(self) -> None:
        fate, amount = self._wire.fates.draw("tables")
        if fate in ("crash", "pause"):
            self._wire.strike(fate, amount)
        await asyncio.sleep(MOST_DELAY_S * amount if fate == "slow" else self._wire.fates.latency_s())
        if fate == "connection lost":
            raise Transient("the connection to the rows broke", kind="unavailable")


class EntityLoad(ABC):
    """The entities of a seed, and what is ordered of them."""

    def __init__(self, family: Family[Any, Any, Any], orders: Sequence[Any], *beside: Family[Any, Any, Any]) -> None:
        self.family = family
        self.families = (family, *beside)
        self.orders = orders
        self.ledger: EntityLedger
        self.rows: SharedRows
        self.partitions = 0
        self.crash_sender: Act | None = None
        """The next process crashes that has an event in the log which sends a command to another aggregate."""

    def open(self, log: SimulatedLog, partitions: int, seed: int, complain: Callable[[str, str], None]) -> None:
        self.partitions = partitions
        self.ledger = self.make_ledger(log, complain)
        self.rows = SharedRows(log, self.families, partitions, Random(f"{seed}/rows"))

    @abstractmethod
    def make_ledger(self, log: SimulatedLog, complain: Callable[[str, str], None]) -> EntityLedger: ...

    @abstractmethod
    def command(self, order: Any) -> Any:
        """Return the command of an order, with the time at which it was first given."""

    def host(self, wire: Wire, edges: StandbyEdges, clock_ms: Callable[[], int]) -> "EntityHost":
        return EntityHost(wire, self, edges, clock_ms)

    async def client(self, wire: Wire, clock_ms: Callable[[], int]) -> None:
        """Run a process without partitions that gives its orders by the topic, all at their time."""
        parts = self.parts(wire)
        await open_replicas(parts)
        async with asyncio.TaskGroup() as group:
            group.create_task(follow(wire, parts, self.partitions))
            for order in self.orders:
                if order.by_topic:
                    group.create_task(self._give_until_answered(parts, order, clock_ms))

    async def _give_until_answered(self, parts: EntityParts, order: Order, clock_ms: Callable[[], int]) -> None:
        await asyncio.sleep(order.at_s)
        while not self.ledger.is_answered(order):
            await self.give(parts, order, clock_ms)

    async def give(self, parts: EntityParts, order: Order, clock_ms: Callable[[], int]) -> None:
        """Give an order once, always with its first time: a repetition is the same command."""
        order.issued_at_ms = order.issued_at_ms or clock_ms()
        try:
            answer: Answer = await parts.client.ask(self.command(order), wait_s=WAIT_S)
            self.ledger.answered(order, answer)
        except (CommandUnanswered, Transient):
            await asyncio.sleep(LOOK_S)

    # --- the rows ----------------------------------------------------------------------------------------------------

    def calm(self) -> None:
        """No more faults."""
        self.rows.calm, self.rows.away, self.rows.behind = True, False, {}
        self.crash_sender = None

    def away(self, is_away: bool) -> None:
        self.rows.away = is_away and not self.rows.calm

    def behind(self, is_behind: bool) -> None:
        """The projector stands still where it is, or goes on."""
        offsets = {number: cursor.next_offset for number, cursor in self.rows.positions().items()}
        self.rows.behind = offsets if is_behind and not self.rows.calm else {}

    def parts(self, wire: Wire) -> EntityParts:
        return build_entity_parts(
            self.families,
            local_codec(),
            appender=wire,
            ranges=wire,
            partitions=self.partitions,
            topics=ENTITIES,
            rows=WiredRows(wire, self.rows),
        )

    # --- the end -----------------------------------------------------------------------------------------------------

    def open_ends(self, hosts: Sequence["EntityHost"]) -> str:
        """What has not come to its end yet; empty when all has."""
        if left := self.ledger.open_ends():
            return left
        for host in hosts:
            for number in range(self.partitions):
                end = len(self.rows.records(number))
                if host.parts.replicas.next_offsets.get(number, 0) < end:
                    return f"a replica of {ENTITIES.events}/{number} is behind {end}"
        return ""

    def finish(self, hosts: Sequence["EntityHost"]) -> None:
        """All has come to its end: do rows and replicas say what the log says?"""
        for number in range(self.partitions):
            self.rows.project(number)
        self.ledger.finish()
        self.compare(hosts)

    @abstractmethod
    def compare(self, hosts: Sequence["EntityHost"]) -> None:
        """Complain about rows and replicas that differ from the ledger."""

    def compare_rows(self, log: SimulatedLog) -> tuple[Mapping[str, Any], Mapping[str, bytes]]:
        """Complain about rows and items that differ from the fold of the whole log; return it, plain and encoded."""
        whole = ContractWorld(families=self.families, partitions=self.partitions)
        whole.log = cast(Any, SimpleNamespace(records=_Readable(log)))
        states = whole.encoded()
        rows = {name: row.state.encode() for name, row in self.rows.rows.items()}
        if rows != states:
            self.ledger.complain("rows", f"the rows say {rows}; the log folds to {states}")
        items = {key: (_item(row), row.partition, row.offset, row.seq) for key, row in self.rows.items.items()}
        if items != whole.folded_items():
            self.ledger.complain("rows", f"the items say {items}; the log folds to {whole.folded_items()}")
        return whole.folded(), states

    @property
    def is_replicated(self) -> bool:
        return self.family.reads is Reads.REPLICATED


def _item(row: ItemRow) -> Item:
    """Return the item of a row."""
    fields = ("kind", "id", "key_a", "key_b", "number", "document")
    kept_ms = row.expires_at_ms - row.at_ms if row.expires_at_ms else 0
    return Item(**{name: getattr(row, name) for name in fields}, kept_ms=kept_ms)


class _Readable(LogRecords):
    """The records of a log that are records."""

    def __getitem__(self, place: tuple[str, int]) -> list[Record]:
        return [record for record in super().__getitem__(place) if record.writer != INTRUDER]


class EntityHost:
    """The entities of one runtime process: its topic set, and the orders it gives."""

    def __init__(self, wire: Wire, load: EntityLoad, edges: StandbyEdges, clock_ms: Callable[[], int]) -> None:
        codec, name = local_codec(), wire.process.name
        self.parts = load.parts(wire)
        self._load = load
        self._wire = wire
        self._clock_ms = clock_ms
        self.entities = HostedEntities(
            self.parts,
            codec,
            appender=wire,
            ranges=wire,
            commands=_tail(wire, ENTITIES.commands, load.partitions),
            dead_letters=DeadLetters(codec, wire, topic=ENTITIES.dead_letters, service=name, clock_ms=clock_ms),
            rows=WiredRows(wire, load.rows),
            run_topics=TOPICS,
            clock_ms=clock_ms,
            name=name,
            liveness_address=edges.liveness_address,
            make_standby=lambda context: build_standby(context, edges),
        )

    def resolver(self, static: DefinitionResolver) -> DefinitionResolver:
        """Return what resolves the agents of the runs; `static`: the ones that nobody changes."""
        return static

    def run_context(self) -> Mapping[str, Any]:
        """Return what the runs of this process share (RunContext) because of these entities."""
        return {}

    async def outside(self, effect: Any, state: Any) -> Any:
        """Return the answer to a call of a run; None: that of the script."""
        return None

    async def beside(self, host: Host, work: Awaitable[None]) -> None:
        """The work, once the events are read, and everything about the entities."""
        self.entities.attach(host)
        await open_replicas(self.parts)
        async with asyncio.TaskGroup() as group:
            group.create_task(follow(self._wire, self.parts, self._load.partitions))
            group.create_task(self.entities.run())
            group.create_task(self._give_orders())
            await work

    async def _give_orders(self) -> None:
        """Give the orders that are this process's, one after the other, until it ends."""
        own = [order for order in self._load.orders if not order.by_topic]
        for order in own:
            while not self._load.ledger.is_answered(order):
                if asyncio.get_running_loop().time() >= order.at_s:
                    await self._load.give(self.parts, order, self._clock_ms)
                else:
                    await asyncio.sleep(LOOK_S)


async def open_replicas(parts: EntityParts) -> None:
    while True:
        try:
            await parts.replicas.open()
            return
        except Transient:
            await asyncio.sleep(OPEN_AGAIN_S)  # the real process ends, and is started again


async def follow(wire: Wire, parts: EntityParts, partitions: int) -> None:
    await parts.replicas.follow(Tail(wire, ENTITIES.events, dict.fromkeys(range(partitions), 0)))


def _tail(wire: Wire, topic: str, partitions: int) -> Tail:
    tail = Tail(wire, topic, dict.fromkeys(range(partitions), 0))
    tail.pause(range(partitions))
    return tail
