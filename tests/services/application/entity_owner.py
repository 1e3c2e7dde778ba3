"""An owner of all entity partitions over a log in memory, and the parts of a process that owns none."""

import asyncio
from collections.abc import Callable
from typing import Any

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.services.families.registry import all_families
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.entities.families import EntityFamilies, FamilySet
from loomlog.services.stream.entities.hosting import EntityParts, HostedEntities, build_entity_parts
from loomlog.services.stream.host import Host
from tests.services.stream.entities.world import CODEC, RUNS, TOPICS, FoldedRows
from tests.services.stream.membership import FixedMembership


def entity_parts(log: MemoryLog, partitions: int) -> EntityParts:
    """Parts of one process; the log gets the topics of entities."""
    for topic in (TOPICS.commands, TOPICS.events, TOPICS.snapshots, TOPICS.dead_letters):
        log._partitions[topic] = partitions
    return build_entity_parts(
        all_families(),
        CODEC,
        appender=log,
        ranges=log,
        partitions=partitions,
        topics=TOPICS,
        rows=FoldedRows(log, EntityFamilies(FamilySet(all_families()))),
    )


async def follow(parts: EntityParts, log: MemoryLog) -> None:
    """Keep the replicas of a process up to date, until cancelled."""
    await parts.replicas.open()
    await parts.replicas.follow(log.tail(TOPICS.events, dict.fromkeys(range(parts.replicas.partitions), 0)))


async def own(log: MemoryLog, partitions: int, clock_ms: Callable[[], int]) -> None:
    """Own every entity partition, until cancelled."""
    parts = entity_parts(log, partitions)
    commands = log.tail(TOPICS.commands, dict.fromkeys(range(partitions), 0))
    commands.pause(list(range(partitions)))
    entities = HostedEntities(
        parts,
        CODEC,
        appender=log,
        ranges=log,
        commands=commands,
        dead_letters=DeadLetters(CODEC, log, topic=TOPICS.dead_letters, service="test", clock_ms=clock_ms),
        rows=FoldedRows(log, parts.family),
        run_topics=RUNS,
        clock_ms=clock_ms,
        name="entities",
    )
    host = Host(entities.topic_set, membership=FixedMembership(frozenset(range(partitions))))
    entities.attach(host)
    async with asyncio.TaskGroup() as group:
        group.create_task(host.run())
        group.create_task(follow(parts, log))


def event_at(log: MemoryLog, position: str) -> Any:
    """The event that a position token names."""
    place, _, offset = position.rpartition(":")
    topic, _, partition = place.rpartition("/")
    return CODEC.decode(log.records[topic, int(partition)][int(offset)].value or b"").record
