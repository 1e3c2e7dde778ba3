"""The parts of a topic set over its rows, as an api and a runtime have them.

Before: services/application/bootstrap.py, services/runtime/entity_hosting.py. After: hosting.py, rows.py, reading.py.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from loomlog.connectors.protocols import LogAppender, LogRanges
from loomlog.connectors.storage.postgres import PostgresOptions, PostgresReader, open_reader
from loomlog.projections.engine.positions import PositionWatch
from loomlog.projections.entities import Seal
from loomlog.schemas.codec import Codec
from loomlog.services.core.families import Family
from loomlog.services.stream.entities.families import FamilySet
from loomlog.services.stream.entities.hosting import EntityParts, build_entity_parts, join_parts
from loomlog.services.stream.entities.reading import EntityReader
from loomlog.services.stream.entities.routed_reads import RoutedReads
from loomlog.services.stream.entities.rows import EntityRows
from loomlog.services.stream.family import Topics


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSet:
    """What a process has for the families of a topic set. `reader`: of its tables."""

    parts: EntityParts
    rows: EntityRows
    reads: EntityReader
    reader: PostgresReader


async def open_topic_set(
    stack: AsyncExitStack,
    families: Sequence[Family[Any, Any, Any]],
    topics: Topics,
    codec: Codec,
    appender: LogAppender,
    ranges: LogRanges,
    *,
    name: str,
    partitions: int,
    postgres: PostgresOptions,
    schema: str,
    connections: int,
    seals: Sequence[Seal],
    positions: PositionWatch | None = None,
) -> TopicSet:
    """Open the rows of a topic set until the stack is closed, with replicas that have read nothing yet."""
    reader = await open_reader(postgres, schema=schema, max_connections=connections)
    stack.push_async_callback(reader.close)
    rows = EntityRows(reader, FamilySet(families), events_topic=topics.events, seals=seals)
    parts = build_entity_parts(
        families, codec, appender=appender, ranges=ranges, partitions=partitions, topics=topics, rows=rows, name=name
    )
    reads = EntityReader(parts.family.families, parts.replicas, rows, reader, parts.client, positions=positions)
    return TopicSet(parts=parts, rows=rows, reads=reads, reader=reader)


def join_topic_sets(sets: Sequence[TopicSet]) -> tuple[EntityParts, RoutedReads]:
    """Return parts and reads that take commands and reads of the families of every topic set."""
    parts = join_parts(*(one.parts for one in sets))
    return parts, RoutedReads(parts, *(one.reads for one in sets))
