"""Reads of entities, from where their family's reads are answered: the replicas of this process, or rows in Postgres.

A position is included once the replicas have folded it, or the rows' projector has passed it. A read of one aggregate
waits for the positions of its own partition only: no other event can be about it.

Before: services/application/entities.py, services/runtime/tools/entity_tools.py. After: replicas.py,
projections/entities.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections import entities
from loomlog.projections.tables import page_token
from loomlog.schemas.position import Position
from loomlog.schemas.records import replace
from loomlog.services.core.canonical import UnreadableState
from loomlog.services.core.entity import Entity
from loomlog.services.core.families import aggregate_id, aggregate_key, name_in_tenant
from loomlog.services.stream.entities.families import FamilySet, HostedFamily
from loomlog.services.stream.entities.reads import EntityRow, PositionNotRead
from loomlog.services.stream.entities.replicas import Replicas

WAIT_S = 2.0
"""Seconds a read waits for positions; the projector is milliseconds behind the log."""
LOOK_S = 0.02
"""Interval at which the position of the rows is read while a read waits for it."""


class StoredEntityReads:
    """Protocol loomlog.services.stream.entities.reads.EntityReads."""

    def __init__(
        self,
        families: FamilySet,
        replicas: Replicas,
        reader: PostgresReader,
        *,
        wait_s: float = WAIT_S,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.topic = replicas.topic
        self.partitions = replicas.partitions
        self._families = families
        self._replicas = replicas
        self._reader = reader
        self._wait_s = wait_s
        self._sleep = sleep

    async def wait(self, partition: int, offset: int, *, timeout_s: float) -> int:
        missing = await self._replicas.wait(partition, offset, timeout_s=timeout_s)
        return max(missing, await self._wait_for_rows(partition, offset, timeout_s))

    async def show(self, family: str, tenant: str, name: str, *, positions: Sequence[str] = ()) -> EntityRow | None:
        hosted = self._families.by_name[family]
        aggregate = aggregate_id(family, tenant, name)
        own = partition_of(aggregate_key(aggregate), self.partitions)
        await self._include(hosted, [one for one in _positions_of(self.topic, positions) if one.partition == own])
        if hosted.is_replicated:
            entity = self._replicas.entity(aggregate)
            return None if entity is None else EntityRow(name=name, entity=entity)
        rows = await entities.load_entities(self._reader, [aggregate])
        return self._row(hosted, rows[0]) if rows else None

    async def list(
        self, family: str, tenant: str, *, prefix: str = "", after: str = "", limit: int, positions: Sequence[str] = ()
    ) -> Sequence[EntityRow]:
        hosted = self._families.by_name[family]
        await self._include(hosted, _positions_of(self.topic, positions))
        if hosted.is_replicated:
            return self._list_replicas(family, tenant, prefix, after, limit)
        token = page_token(tenant, after) if after else ""
        rows: list[EntityRow] = []
        while len(rows) < limit:  # a page of rows may be smaller than ours
            page = await entities.list_entities(
                self._reader, family, tenant, prefix=prefix, limit=limit - len(rows), after=token
            )
            rows += [self._row(hosted, row) for row in page.rows]
            token = page.next
            if not token:
                break
        return rows

    def _list_replicas(self, family: str, tenant: str, prefix: str, after: str, limit: int) -> Sequence[EntityRow]:
        rows = [
            EntityRow(name=name_in_tenant(entity.id, tenant), entity=entity)
            for entity in self._replicas.entities(family, tenant)
        ]
        start = after.encode()
        matching = [row for row in rows if row.name.startswith(prefix) and (not after or row.name.encode() > start)]
        return sorted(matching, key=lambda row: row.name.encode())[:limit]

    def _row(self, hosted: HostedFamily, row: entities.EntityRow) -> EntityRow:
        """Return a row as a read shows it. Raises Transient for one that another version of the fold made."""
        if row.seq == 0 and row.quarantine:
            entity: Entity[Any] = hosted.rules.initial(row.aggregate)
        elif row.version != hosted.rules.version:
            raise Transient(
                f"{row.aggregate} was folded by version {row.version} of {hosted.name}, this is "
                f"{hosted.rules.version}; the projector is folding it again",
                kind="unavailable",
            )
        else:
            try:
                entity = hosted.states.decode(row.state.encode())
            except UnreadableState as error:
                raise Transient(f"the row of {row.aggregate} cannot be read: {error}", kind="unavailable") from error
        return EntityRow(name=row.name, entity=replace(entity, quarantine=row.quarantine or entity.quarantine))

    async def _include(self, hosted: HostedFamily, positions: Iterable[Position]) -> None:
        wait = self._wait_for_replicas if hosted.is_replicated else self._wait_for_rows
        deadline = asyncio.get_running_loop().time() + self._wait_s
        for position in positions:
            left = max(0.0, deadline - asyncio.get_running_loop().time())
            if missing := await wait(position.partition, position.offset, left):
                raise PositionNotRead(f"the position {position} is not read yet", missing)

    async def _wait_for_replicas(self, partition: int, offset: int, timeout_s: float) -> int:
        return await self._replicas.wait(partition, offset, timeout_s=timeout_s)

    async def _wait_for_rows(self, partition: int, offset: int, timeout_s: float) -> int:
        deadline = asyncio.get_running_loop().time() + timeout_s
        while (missing := offset + 1 - await entities.next_offset(self._reader, self.topic, partition)) > 0:
            if asyncio.get_running_loop().time() >= deadline:
                return missing
            await self._sleep(LOOK_S)
        return 0


def _positions_of(topic: str, tokens: Iterable[str]) -> Sequence[Position]:
    """Return the positions of a topic; others cannot be of an entity. Raises PositionNotRead."""
    positions = []
    for token in tokens:
        try:
            position = Position.parse(token)
        except ValueError as error:
            raise PositionNotRead(str(error)) from error
        if position.topic == topic:
            positions.append(position)
    return positions
