"""Processes with two topic sets over a log in memory: counters among the channels, tallies among the entities.

A counter that is raised with `also` resets the tally of that name, and a tally tells the counter `echo`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.schemas.generated.counter_commands import IncrementCounter, ResetCounter
from loomlog.schemas.generated.counter_events import CounterIncremented
from loomlog.services.core.families import CHANNEL_SET, ENTITY_SET, FROM_OUTBOX, Family, Send, aggregate_id
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.entities.families import EntityFamilies, FamilySet
from loomlog.services.stream.entities.hosting import EntityParts, HostedEntities, build_entity_parts, join_parts
from loomlog.services.stream.family import Topics
from loomlog.services.stream.host import Host
from tests.services.stream.entities.counters import FAMILY, Counter
from tests.services.stream.entities.world import CODEC, RUNS, TOPICS, EntityWorld, FoldedRows, Process
from tests.services.stream.membership import FixedMembership

CHANNELS = Topics.of("channel")
SETS = {ENTITY_SET: TOPICS, CHANNEL_SET: CHANNELS}


def tell_tally(counter: Counter, event: Any) -> Sequence[Send]:
    if isinstance(event, CounterIncremented) and event.also:
        return [Send(to="tally", command=ResetCounter(envelope=FROM_OUTBOX, name=event.also))]
    return ()


def tell_echo(tally: Counter, event: Any) -> Sequence[Send]:
    return [Send(to="counter", command=IncrementCounter(envelope=FROM_OUTBOX, name="echo", by=event.value))]


COUNTER: Family[Any, Any, Any] = replace(FAMILY, topics=CHANNEL_SET, commands=FAMILY.commands[:1], sends=tell_tally)
TALLY: Family[Any, Any, Any] = replace(
    FAMILY,
    name="tally",
    commands=FAMILY.commands[1:],
    rules=replace(FAMILY.rules, decide=lambda tally, command, at: [CounterIncremented(by=1, value=tally.value + 1)]),
    sends=tell_echo,
)
BOTH = {ENTITY_SET: TALLY, CHANNEL_SET: COUNTER}


@dataclass(slots=True)
class TwoSetProcess(Process):
    """`entities` is the set of entities, `channels` the other."""

    channels: HostedEntities


@dataclass
class TwoSets(EntityWorld):
    """A log with both topic sets, and the processes over it; `rows` are those of channels."""

    partitions: int = 1
    rows_of: dict[str, FoldedRows] = field(init=False)
    counter: Family[Any, Any, Any] = COUNTER

    def __post_init__(self) -> None:
        self.families = (TALLY, self.counter)
        names = [one for topics in SETS.values() for one in (topics.commands, topics.events, topics.snapshots)]
        self.log = MemoryLog(dict.fromkeys((*names, TOPICS.dead_letters, RUNS.commands), self.partitions))
        self.rows_of = {
            name: FoldedRows(self.log, EntityFamilies(FamilySet(self.declared(name))), topics.events)
            for name, topics in SETS.items()
        }
        self.rows = self.rows_of[CHANNEL_SET]

    def family(self, name: str) -> Family[Any, Any, Any]:
        return self.counter if name == CHANNEL_SET else TALLY

    def declared(self, name: str) -> tuple[Family[Any, Any, Any], ...]:
        """The families of a topic set."""
        return (self.family(name),)

    def parts(self, appender: Any) -> EntityParts:
        return join_parts(
            *(
                build_entity_parts(
                    self.declared(name),
                    CODEC,
                    appender=appender,
                    ranges=self.log,
                    partitions=self.partitions,
                    topics=topics,
                    rows=self.rows_of[name],
                    name=name,
                )
                for name, topics in SETS.items()
            )
        )

    async def start(self, *owns: int, name: str) -> Process:
        wire = self.make_wire()
        parts = self.parts(wire)
        hosted = [await self._hosted(one, wire, name) for one in parts.each]
        host = Host(
            *(one.topic_set for one in hosted),
            membership=FixedMembership(frozenset(owns or range(self.partitions))),
        )
        for one in hosted:
            one.attach(host)
        entities, channels = hosted
        process = TwoSetProcess(entities, host, wire, [self._task(host.run()), *self._follow(parts)], channels)
        self.processes.append(process)
        return process

    async def _hosted(self, parts: EntityParts, wire: Any, name: str) -> HostedEntities:
        commands = self.log.tail(parts.topics.commands, dict.fromkeys(range(self.partitions), 0))
        commands.pause(list(range(self.partitions)))
        await parts.replicas.open()
        return HostedEntities(
            parts,
            CODEC,
            appender=wire,
            ranges=self.log,
            commands=commands,
            dead_letters=DeadLetters(CODEC, wire, topic=TOPICS.dead_letters, service="test", clock_ms=self.clock),
            rows=self.rows_of[parts.family.name],
            run_topics=RUNS,
            clock_ms=self.clock,
            name=name,
        )

    async def sender(self) -> EntityParts:
        parts = self.parts(self.log)
        for one in parts.each:
            await one.replicas.open()
        self.processes.append(Process(None, None, None, self._follow(parts)))  # type: ignore[arg-type]  # only to be closed
        return parts

    def _follow(self, parts: EntityParts) -> list[asyncio.Task[Any]]:
        return [
            self._task(one.replicas.follow(self.log.tail(one.topics.events, dict.fromkeys(range(self.partitions), 0))))
            for one in parts.each
        ]

    @staticmethod
    def _task(work: Any) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(work)

    async def owner(self, name: str = "a") -> TwoSetProcess:
        """Start a process that owns every partition of both sets; returns when it has them."""
        process = await self.start(name=name)
        assert isinstance(process, TwoSetProcess)
        for hosted in (process.entities, process.channels):
            owners = hosted.topic_set.owners
            await self.until(lambda owners=owners: owners and all(one.partition is not None for one in owners.values()))
        return process

    def delete_before(self, offset: int) -> None:
        """Delete events of channels as their retention does."""
        self.log.delete_before(CHANNELS.events, 0, offset)

    def counted(self, family: str, name: str) -> list[int]:
        """The values of the increments of an aggregate, deleted ones too."""
        topic = CHANNELS.events if family == "counter" else TOPICS.events
        wanted = aggregate_id(family, "acme", name)
        decoded = [CODEC.decode(record.value or b"") for record in self.log.records[topic, 0]]
        return [
            one.record.value
            for one in decoded
            if isinstance(one.record, CounterIncremented) and one.envelope and one.envelope.aggregate == wanted
        ]
