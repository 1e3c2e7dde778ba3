"""What the events of entities hold of a subject: those that refer to one of its keys.

Content of an aggregate is encrypted before its family decides, so a token in a record names the key, and a search in
the stored bytes finds it wherever the family has copied it, in imported events too. Rows and snapshots are folds of
these events and hold no other content. Destroying the keys makes all of it unreadable.

Two things stay readable and are counted: names that hold the name of the subject (what the schemas class as name:
scopes, readers of channels, keys of memory, ...), and definitions that its runs have written.

Before: erasure.py. After: loomlog.connectors.protocols.LogRanges.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from itertools import product

from loomlog.connectors.protocols import LogRanges
from loomlog.schemas.codec import Codec, Undecodable, peek
from loomlog.schemas.generated.definition_events import DefVersionCreated
from loomlog.schemas.records import Value
from loomlog.services.stream.entities.hosting import EntityParts

DEFINITIONS = b"definition:"
"""Beginning of the ids of the aggregates of definitions, as their events have it."""
RECORDS_EXAMINED_MAX = 1_000_000
"""Limit over all partitions: some ten seconds of reading."""


class EntityReferences(Value, frozen=True, kw_only=True):
    """Records that refer to keys of a subject, stale ones too, and the aggregates they are of."""

    events: int = 0
    aggregates: int = 0
    named: int = 0
    """Events of the tenant with the subject's name in clear."""
    definitions: int = 0
    """Versions of definitions that runs of the subject have written; their texts stay in clear."""
    truncated: bool = False
    """There are more records than were examined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedSubject:
    """What is searched for. `user_id` is empty for the tenant itself, which every record names."""

    tenant: str
    user_id: str
    key_ids: Collection[str]
    run_ids: Collection[str]


class EntityContent:
    """The events of entities as an erasure examines them."""

    def __init__(self, parts: EntityParts, ranges: LogRanges, codec: Codec) -> None:
        self._topics, self._partitions = [one.topics.events for one in parts.each], parts.replicas.partitions
        self._ranges = ranges
        self._codec = codec

    async def find_references(self, subject: SearchedSubject) -> EntityReferences:
        """Count what refers to any of its keys, to its name and to its runs. Raises Transient."""
        keys = [key_id.encode() for key_id in subject.key_ids]
        name, left = subject.user_id.encode(), RECORDS_EXAMINED_MAX
        events, named, definitions = 0, 0, 0
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
                        if name and name in value:
                            named += f":{subject.tenant}/" in _aggregate_of(value)
                        if subject.run_ids and DEFINITIONS in value:
                            definitions += self._is_definition_of(value, subject)
                    left -= len(chunk)
                    if left <= 0:
                        break
                    await asyncio.sleep(0)  # other requests share this event loop
            if left <= 0:
                break
        return EntityReferences(
            events=events, aggregates=len(aggregates), named=named, definitions=definitions, truncated=left <= 0
        )

    def _is_definition_of(self, value: bytes, subject: SearchedSubject) -> bool:
        try:
            decoded = self._codec.decode(value)
        except Undecodable:
            return False
        event, envelope = decoded.record, decoded.envelope
        is_own = isinstance(event, DefVersionCreated) and event.created_by_run_id in subject.run_ids
        return is_own and envelope is not None and envelope.tenant == subject.tenant


def _aggregate_of(value: bytes) -> str:
    try:
        return peek(value).aggregate
    except Undecodable:
        return ""
