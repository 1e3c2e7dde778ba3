"""Entities in the simulation: counters in every runtime process, beside its runs in one host, and who increments them.

    plain    an increment
    chain    an increment that sends another one to a counter of another partition: the outbox
    timer    an increment of a counter of its own, which is set to zero a while later

Half of the orders are given by a client through the topic, half by the runtime processes, in memory where they own the
partition. Any of them may be given by two processes at a time: a paused one wakes up and goes on. Rows are written by
the projection's own fold from the simulated log; they may be away, and behind.

Before: owners.py and world.py, in the seeds with counters. After: counter_ledger.py checks what is in the log.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from random import Random
from typing import Any

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import LogRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.counter_commands import IncrementCounter
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.families import Family, Reads
from loomlog.services.runtime.run_host import StandbyEdges, build_standby
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.entities.answers import CommandUnanswered
from loomlog.services.stream.entities.cold import ColdAggregate, HandledCommand
from loomlog.services.stream.entities.hosting import EntityParts, HostedEntities, build_entity_parts
from loomlog.services.stream.host import Host
from tests.services.families.contract.world import ProjectedRows
from tests.services.stream.entities.counters import FAMILY
from tests.simulation.broker import Tail, Wire
from tests.simulation.counter_ledger import CounterLedger, Order
from tests.simulation.faults import CALM_S, MOST_DELAY_S, MOST_FUSE, Act, Faults
from tests.simulation.log import ENTITIES, TOPICS, SimulatedLog

COUNTER_SHARE = 0.3
"""Of the seeds: those with counters. They cost about as much again as the runs of a seed."""
MOST_ORDERS = 12
KINDS = ("plain", "chain", "chain", "timer")
ORDERS_UNTIL = 0.8
"""Of the time of faults: orders are given up to then, so that some come after checkpoints."""
NAMES = ("hits", "misses", "far")
TENANT = "t"
RESET_AFTER_MS = 400
WAIT_S = 2.0
"""How long a process waits for an answer before it asks again."""
LOOK_S = 0.2
OPEN_AGAIN_S = 0.1
BEHIND_SHARE = 0.3
"""Of the looks at the rows: those at which the projector has not gone on."""
COUNTER_ACTS = ("clock", "rows away", "rows behind", "crash sender", "crash sender", *("entity checkpoint",) * 4)
MOST_COUNTER_ACTS = 10
MOST_STEP_MS = 4_000
"""How far a clock is set back or forward; with the skew, less than the product's CLOCK_SKEW_MS."""
MOST_AWAY_S = 1.5


def counters_of(faults: Faults) -> "Counters | None":
    """The counters of a seed, if it has any."""
    random = Random(f"{faults.seed}/counters")
    if random.random() >= COUNTER_SHARE:
        return None
    family = FAMILY if random.random() < 0.5 else changed(FAMILY, reads=Reads.REPLICATED)
    orders = []
    for number in range(random.randint(1, MOST_ORDERS)):
        kind = random.choice(KINDS)
        order = Order(
            name=f"counter {number} ({kind})",
            id=f"o{number}",
            counter=f"timed{number}" if kind == "timer" else random.choice(NAMES),
            by=random.randint(1, 5),
            also=random.choice(NAMES) if kind == "chain" else "",
            reset_after_ms=RESET_AFTER_MS if kind == "timer" else 0,
            at_s=random.uniform(0.0, CALM_S * ORDERS_UNTIL),
            by_topic=random.random() < 0.5,
        )
        if order.name not in faults.without:
            orders.append(order)
    for number in range(random.randint(0, MOST_COUNTER_ACTS)):
        act = Act(
            name=f"counter act {number} ({random.choice(COUNTER_ACTS)})",
            kind="",
            at_s=random.uniform(0.0, CALM_S),
            place=random.random(),
            amount=random.random(),
            fuse=random.randrange(1, MOST_FUSE),
        )
        if act.name not in faults.without:
            faults.acts.append(changed(act, kind=f"counters: {act.name.partition('(')[2].rstrip(')')}"))
    return Counters(family, orders)


class SharedRows(ProjectedRows):
    """The rows of the world, which a projector writes that lags now and then."""

    def __init__(self, log: SimulatedLog, family: Family[Any, Any, Any], partitions: int, random: Random) -> None:
        super().__init__(log, (family,), partitions)  # type: ignore[arg-type]  # only `records` reads it
        self.calm = False
        self._random = random

    def records(self, partition: int) -> Sequence[LogRecord]:
        return self._log.records(ENTITIES.events, partition)  # type: ignore[operator]  # it is a SimulatedLog

    def project(self, partition: int) -> None:
        if self.calm or self._random.random() >= BEHIND_SHARE:
            super().project(partition)


class WiredRows:
    """The way of a process to the rows (protocol ColdRows)."""

    def __init__(self, wire: Wire, rows: SharedRows) -> None:
        self._wire = wire
        self._rows = rows

    async def next_offset(self, partition: int) -> int:
        await self._reach()
        return await self._rows.next_offset(partition)

    async def load(self, partition: int, aggregates: Sequence[str]) -> tuple[int, Mapping[str, ColdAggregate]]:
        await self._reach()
        return await self._rows.load(partition, aggregates)

    async def find_command(self, partition: int, aggregate: str, command_id: str) -> tuple[int, HandledCommand | None]:
        await self._reach()
        return await self._rows.find_command(partition, aggregate, command_id)

    async def due_timers(self, partition: int, before_ms: int, limit: int) -> Sequence[tuple[str, int]]:
        await self._reach()
        return await self._rows.due_timers(partition, before_ms, limit)

    async def _reach(self) -> None:
        fate, amount = self._wire.fates.draw("tables")
        if fate in ("crash", "pause"):
            self._wire.strike(fate, amount)
        await asyncio.sleep(MOST_DELAY_S * amount if fate == "slow" else self._wire.fates.latency_s())
        if fate == "connection lost":
            raise Transient("the connection to the rows broke", kind="unavailable")


@dataclass(slots=True)
class Counters:
    """The counters of a seed. `family` is read from rows in half of the seeds, and from replicas in the others."""

    family: Family[Any, Any, Any]
    orders: list[Order]
    ledger: CounterLedger = field(init=False)
    rows: SharedRows = field(init=False)
    partitions: int = 0
    crash_sender: Act | None = None
    """The next process crashes that has an event in the log which sends a command to another counter."""

    def open(self, log: SimulatedLog, partitions: int, seed: int, complain: Callable[[str, str], None]) -> None:
        self.partitions = partitions
        self.ledger = CounterLedger({order.id: order for order in self.orders}, complain)
        self.rows = SharedRows(log, self.family, partitions, Random(f"{seed}/rows"))

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
            (self.family,),
            local_codec(),
            appender=wire,
            ranges=wire,
            partitions=self.partitions,
            topics=ENTITIES,
            rows=WiredRows(wire, self.rows),
        )

    def open_ends(self, owners: Sequence["CounterHost"]) -> str:
        """What has not come to its end yet; empty when all has."""
        if left := self.ledger.open_ends():
            return left
        for host in owners:
            for number in range(self.partitions):
                end = len(self.rows.records(number))
                if host.parts.replicas.next_offsets.get(number, 0) < end:
                    return f"a replica of {ENTITIES.events}/{number} is behind {end}"
        return ""

    def finish(self, owners: Sequence["CounterHost"]) -> None:
        """All has come to its end: do rows and replicas say what the log says?"""
        for number in range(self.partitions):
            self.rows.project(number)
        states = {name: row.state for name, row in self.rows.rows.items()}
        self.ledger.finish()
        for name, value in self.ledger.values.items():
            if f'"value":{value},' not in states.get(name, ""):
                self.ledger.complain("rows", f"{name} is {value}, its row says {states.get(name)}")
            for host in owners:
                entity = host.parts.replicas.entity(name)
                if self.family.reads is Reads.REPLICATED and (entity is None or entity.state.value != value):
                    self.ledger.complain("replica", f"{name} is {value}, a replica says {entity}")


class CounterHost:
    """The counters of one runtime process: its topic set, and the orders it gives."""

    def __init__(self, wire: Wire, counters: Counters, edges: StandbyEdges, clock_ms: Callable[[], int]) -> None:
        codec, name = local_codec(), wire.process.name
        self.parts = counters.parts(wire)
        self._counters = counters
        self._wire = wire
        self._clock_ms = clock_ms
        self.entities = HostedEntities(
            self.parts,
            codec,
            appender=wire,
            ranges=wire,
            commands=_tail(wire, ENTITIES.commands, counters.partitions),
            dead_letters=DeadLetters(codec, wire, topic=ENTITIES.dead_letters, service=name, clock_ms=clock_ms),
            rows=WiredRows(wire, counters.rows),
            run_topics=TOPICS,
            clock_ms=clock_ms,
            name=name,
            liveness_address=edges.liveness_address,
            make_standby=lambda context: build_standby(context, edges),
        )

    async def beside(self, host: Host, work: Awaitable[None]) -> None:
        """The work, once the events are read, and everything about the counters."""
        self.entities.attach(host)
        await _open(self.parts)
        async with asyncio.TaskGroup() as group:
            group.create_task(_follow(self._wire, self.parts, self._counters.partitions))
            group.create_task(self.entities.run())
            group.create_task(self._give_orders())
            await work

    async def _give_orders(self) -> None:
        """Give the orders that are this process's, one after the other, until it ends."""
        own = [order for order in self._counters.orders if not order.by_topic]
        for order in own:
            while not self._counters.ledger.is_answered(order):
                if asyncio.get_running_loop().time() >= order.at_s:
                    await give(self.parts, order, self._counters, self._clock_ms)
                else:
                    await asyncio.sleep(LOOK_S)


async def client(wire: Wire, counters: Counters, clock_ms: Callable[[], int]) -> None:
    """A process without partitions that gives its orders by the topic, all at their time."""
    parts = counters.parts(wire)
    await _open(parts)
    async with asyncio.TaskGroup() as group:
        group.create_task(_follow(wire, parts, counters.partitions))
        for order in counters.orders:
            if order.by_topic:
                group.create_task(_give_until_answered(parts, order, counters, clock_ms))


async def _give_until_answered(
    parts: EntityParts, order: Order, counters: Counters, clock_ms: Callable[[], int]
) -> None:
    await asyncio.sleep(order.at_s)
    while not counters.ledger.is_answered(order):
        await give(parts, order, counters, clock_ms)


async def give(parts: EntityParts, order: Order, counters: Counters, clock_ms: Callable[[], int]) -> None:
    """Give an order once, always with its first time: a repetition is the same command."""
    order.issued_at_ms = order.issued_at_ms or clock_ms()
    envelope = CommandEnvelope(command_id=order.id, tenant=TENANT, issued_at_ms=order.issued_at_ms)
    command = IncrementCounter(
        envelope=envelope,
        name=order.counter,
        by=order.by,
        also=order.also,
        reset_after_ms=order.reset_after_ms,
    )
    try:
        counters.ledger.answered(order, await parts.client.ask(command, wait_s=WAIT_S))
    except (CommandUnanswered, Transient):
        await asyncio.sleep(LOOK_S)


async def _open(parts: EntityParts) -> None:
    while True:
        try:
            await parts.replicas.open()
            return
        except Transient:
            await asyncio.sleep(OPEN_AGAIN_S)  # the real process ends, and is started again


async def _follow(wire: Wire, parts: EntityParts, partitions: int) -> None:
    await parts.replicas.follow(Tail(wire, ENTITIES.events, dict.fromkeys(range(partitions), 0)))


def _tail(wire: Wire, topic: str, partitions: int) -> Tail:
    tail = Tail(wire, topic, dict.fromkeys(range(partitions), 0))
    tail.pause(range(partitions))
    return tail
