"""What the events of entities hold of a subject: those that refer to one of its keys.

Content of an aggregate is encrypted before its family decides, so a token in a record names the key, and a search in
the stored bytes finds it wherever the family has copied it, in imported events too. Rows and snapshots are folds of
these events and hold no other content. Destroying the keys makes all of it unreadable.

Before: erasure.py. After: loomlog.connectors.protocols.LogRanges.
"""

import asyncio
from collections.abc import Collection
from itertools import product

from loomlog.connectors.protocols import LogRanges
from loomlog.schemas.codec import Undecodable, peek
from loomlog.schemas.records import Value
from loomlog.services.stream.entities.hosting import EntityParts

RECORDS_EXAMINED_MAX = 1_000_000
"""Limit over all partitions: some ten seconds of reading."""


class EntityReferences(Value, frozen=True, kw_only=True):
    """Records that refer to keys of a subject, stale ones too, and the aggregates they are of."""

    events: int = 0
    aggregates: int = 0
    truncated: bool = False
    """There are more records than were examined."""


class EntityContent:
    """The events of entities as an erasure examines them."""

    def __init__(self, parts: EntityParts, ranges: LogRanges) -> None:
        self._topics, self._partitions = [one.topics.events for one in parts.each], parts.replicas.partitions
        self._ranges = ranges

    async def find_references(self, key_ids: Collection[str]) -> EntityReferences:
        """Count what refers to any of the keys. Raises Transient."""
        if not key_ids:
            return EntityReferences()
        keys = [key_id.encode() for key_id in key_ids]
        events, left = 0, RECORDS_EXAMINED_MAX
        aggregates: set[str] = set()
        for topic, partition in product(self._topics, range(self._partitions)):
            first = await self._ranges.beginning_offset(topic, partition)
            end = await self._ranges.end_offset(topic, partition)
            if first >= end:
                continue
            async with await self._ranges.read(topic, partition, first, end) as chunks:
                async for chunk in chunks:
                    for record in chunk:
                        value = record.value or b""
                        if any(key in value for key in keys):
                            events += 1
                            aggregates.add(_aggregate_of(value))
                    left -= len(chunk)
                    if left <= 0:
                        return EntityReferences(events=events, aggregates=len(aggregates), truncated=True)
                    await asyncio.sleep(0)  # other requests share this event loop
        return EntityReferences(events=events, aggregates=len(aggregates))


def _aggregate_of(value: bytes) -> str:
    try:
        return peek(value).aggregate
    except Undecodable:
        return ""
