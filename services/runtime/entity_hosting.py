"""Entities in a runtime process: opened here, hosted beside its runs.

Before: resources.py opens, main.py passes what its host needs. After: services/stream/entities/hosting.py.
"""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from loomlog.connectors.errors import Permanent
from loomlog.connectors.kafka import FETCH_MAX_WAIT_MS, KafkaTail, open_tail
from loomlog.connectors.protocols import LogAppender, LogRanges
from loomlog.connectors.storage.postgres import open_reader
from loomlog.projections.engine.builds import ENTITY_TABLES
from loomlog.projections.entities import Seal
from loomlog.schemas.codec import Codec
from loomlog.services.families.registry import all_families
from loomlog.services.runtime.content.encryption import ContentEncryption
from loomlog.services.runtime.run_host import StandbyEdges, StandbyReaders, build_standby
from loomlog.services.runtime.settings import RuntimeSettings
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.entities.content import encrypt_content
from loomlog.services.stream.entities.families import FamilySet
from loomlog.services.stream.entities.hosting import EntityParts, HostedEntities, build_entity_parts
from loomlog.services.stream.entities.reading import EntityReader
from loomlog.services.stream.entities.rows import EntityRows
from loomlog.services.stream.family import Topics

READER_CONNECTIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityResources:
    """What is open for entities. `readers`: of a standby that folds, if there is one."""

    parts: EntityParts
    rows: EntityRows
    reads: EntityReader
    commands_tail: KafkaTail
    events_tail: KafkaTail
    readers: StandbyReaders | None


async def open_entities(
    stack: AsyncExitStack,
    settings: RuntimeSettings,
    codec: Codec,
    appender: LogAppender,
    ranges: LogRanges,
    topics: Topics,
    *,
    partitions: int,
    readers: StandbyReaders | None,
    seals: Sequence[Seal],
) -> EntityResources:
    """Open everything for entities, to be closed with the stack, and read the replicated families.

    Raises Transient; Permanent when the topics are not made for this number of partitions.
    """
    count = await appender.partitions(topics.commands)
    if count != partitions:
        raise Permanent(
            f"{topics.commands} has {count} partitions and the topics of runs have {partitions}: they are assigned "
            "together; make the topics again with `loomlog.redpanda.apply`",
            kind="invalid",
        )
    reader = await open_reader(settings.postgres, schema=ENTITY_TABLES.prefix, max_connections=READER_CONNECTIONS)
    stack.push_async_callback(reader.close)
    rows = EntityRows(reader, FamilySet(all_families()), events_topic=topics.events, seals=seals)
    parts = build_entity_parts(
        all_families(), codec, appender=appender, ranges=ranges, partitions=partitions, topics=topics, rows=rows
    )
    await parts.replicas.open()
    commands = await open_tail(
        settings.kafka, topics.commands, dict.fromkeys(range(partitions), 0), fetch_max_wait_ms=FETCH_MAX_WAIT_MS
    )
    stack.push_async_callback(commands.close)
    commands.pause(range(partitions))
    events = await open_tail(settings.kafka, topics.events, parts.replicas.next_offsets)
    stack.push_async_callback(events.close)
    reads = EntityReader(parts.family.families, parts.replicas, rows, reader, parts.client)
    return EntityResources(
        parts=parts, rows=rows, reads=reads, commands_tail=commands, events_tail=events, readers=readers
    )


def host_entities(
    resources: EntityResources,
    settings: RuntimeSettings,
    codec: Codec,
    appender: LogAppender,
    ranges: LogRanges,
    *,
    dead_letters: DeadLetters,
    run_topics: Topics,
    encryption: ContentEncryption,
    standby: StandbyEdges | None,
    clock_ms: Callable[[], int],
) -> HostedEntities:
    """Build the host of the entity partitions."""
    return HostedEntities(
        resources.parts,
        codec,
        appender=appender,
        ranges=ranges,
        commands=resources.commands_tail,
        dead_letters=dead_letters,
        rows=resources.rows,
        run_topics=run_topics,
        clock_ms=clock_ms,
        name=settings.name,
        liveness_address="" if standby is None else standby.liveness_address,
        encrypt=encrypt_content(encryption.cipher, encryption.is_encrypted) if encryption.is_enabled else None,
        make_standby=None if standby is None else lambda context: build_standby(context, standby),
        request_handover=None if standby is None else standby.request_handover,
        drain_s=settings.drain_timeout_s,
    )
