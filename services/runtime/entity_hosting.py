"""Entities in a runtime process, the topic sets of entities and of channels: opened here, hosted beside its runs.

Before: resources.py opens, process.py hosts. After: services/stream/entities/hosting.py.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from loomlog.connectors.errors import Permanent
from loomlog.connectors.kafka import KafkaTail, open_tail
from loomlog.connectors.protocols import LogAppender, LogRanges
from loomlog.projections.entities import Seal
from loomlog.schemas.codec import Codec
from loomlog.services.families.entity_folds import TABLES
from loomlog.services.families.registry import families_of
from loomlog.services.runtime.run_host import StandbyReaders
from loomlog.services.runtime.settings import RuntimeSettings
from loomlog.services.stream.entities.hosting import EntityParts
from loomlog.services.stream.entities.routed_reads import RoutedReads
from loomlog.services.stream.entities.topic_sets import TopicSet, join_topic_sets, open_topic_set
from loomlog.services.stream.family import Topics

READER_CONNECTIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSetResources:
    """What is open for a topic set. `readers`: of a standby that folds, if there is one."""

    topic_set: TopicSet
    commands_tail: KafkaTail
    events_tail: KafkaTail
    readers: StandbyReaders | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityResources:
    """What is open for entities. `parts` and `reads` take commands and reads of the families of every topic set."""

    parts: EntityParts
    reads: RoutedReads
    sets: tuple[TopicSetResources, ...]


async def open_entities(
    stack: AsyncExitStack,
    settings: RuntimeSettings,
    codec: Codec,
    appender: LogAppender,
    ranges: LogRanges,
    topic_sets: Mapping[str, Topics],
    *,
    partitions: int,
    open_readers: Callable[[str], Awaitable[StandbyReaders | None]],
    seals: Sequence[Seal],
) -> EntityResources:
    """Open everything for entities, to be closed with the stack, and read the replicated families.

    `topic_sets`: by name, that of entities first; `open_readers` takes a topic of events. Raises Transient; Permanent
    when the topics are not made for this number of partitions.
    """
    opened = [
        await _open_set(
            stack,
            settings,
            codec,
            appender,
            ranges,
            name,
            topics,
            partitions=partitions,
            readers=await open_readers(topics.events),
            seals=seals,
        )
        for name, topics in topic_sets.items()
    ]
    parts, reads = join_topic_sets([one.topic_set for one in opened])
    return EntityResources(parts=parts, reads=reads, sets=tuple(opened))


async def _open_set(
    stack: AsyncExitStack,
    settings: RuntimeSettings,
    codec: Codec,
    appender: LogAppender,
    ranges: LogRanges,
    name: str,
    topics: Topics,
    *,
    partitions: int,
    readers: StandbyReaders | None,
    seals: Sequence[Seal],
) -> TopicSetResources:
    count = await appender.partitions(topics.commands)
    if count != partitions:
        raise Permanent(
            f"{topics.commands} has {count} partitions and the topics of runs have {partitions}: they are assigned "
            "together; make the topics again with `loomlog.redpanda.apply`",
            kind="invalid",
        )
    opened = await open_topic_set(
        stack,
        families_of(name),
        topics,
        codec,
        appender,
        ranges,
        name=name,
        partitions=partitions,
        postgres=settings.postgres,
        schema=TABLES[name].prefix,
        connections=READER_CONNECTIONS,
        seals=seals,
    )
    replicas = opened.parts.replicas
    await replicas.open()
    commands = await open_tail(settings.kafka, topics.commands, dict.fromkeys(range(partitions), 0))
    stack.push_async_callback(commands.close)
    commands.pause(range(partitions))
    events = await open_tail(settings.kafka, topics.events, replicas.next_offsets)
    stack.push_async_callback(events.close)
    return TopicSetResources(topic_set=opened, commands_tail=commands, events_tail=events, readers=readers)
