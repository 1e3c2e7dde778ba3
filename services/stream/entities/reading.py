"""Reads of entities in a process: replicated families from memory, the others from their rows.

A read includes everything that this process has written to the aggregate, and every position it is given. Rows are
waited for by the positions that the process follows, if it does, and by asking for their cursor; the owner's memory is
not read, because a row is at most tens of milliseconds behind it. Items are rows for replicated families too.

Before: services/families/entity_handlers.py. After: replicas.py; rows.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections import entity_items
from loomlog.projections.engine.positions import PositionWatch
from loomlog.projections.entities import list_entities, load_entities
from loomlog.projections.tables import page_token
from loomlog.schemas.position import Position
from loomlog.services.core.families import aggregate_id, aggregate_key
from loomlog.services.stream.entities.client import EntityClient
from loomlog.services.stream.entities.families import FamilySet
from loomlog.services.stream.entities.reads import EntityReads, EntityRow, PositionNotRead
from loomlog.services.stream.entities.replicas import Replicas
from loomlog.services.stream.entities.rows import EntityRows, tables_may_be_missing

WAIT_S = 2.0
"""How long a read waits for a position."""
POLL_S = 0.02
FOLLOW_S = 0.1
"""How long the positions that the process follows are waited for before the cursor is asked for."""


ReadT = TypeVar("ReadT", bound=Callable[..., Awaitable[Any]])


def _of_items(read: ReadT) -> ReadT:
    """Return a method that waits for the rows and asks the query of its name in projections/entity_items.py."""
    query: Callable[..., Awaitable[Any]] = getattr(entity_items, read.__name__)

    @wraps(read)
    async def ask(
        self: "EntityReader",
        family: str,
        tenant: str,
        *args: Any,
        positions: Sequence[str] = (),
        lag_max: int = 0,
        **options: Any,
    ) -> Any:
        await self._wait_for_rows(family, tenant, positions, lag_max=lag_max)
        with tables_may_be_missing():
            return await query(self._reader, family, tenant, *args, **options)

    return cast(ReadT, ask)


class EntityReader:
    """Protocol loomlog.services.stream.entities.reads.EntityReads."""

    def __init__(
        self,
        families: FamilySet,
        replicas: Replicas,
        rows: EntityRows,
        reader: PostgresReader,
        client: EntityClient,
        *,
        positions: PositionWatch | None = None,
        wait_s: float = WAIT_S,
    ) -> None:
        """`positions`: the positions of the rows, when this process follows them."""
        self.topic = replicas.topic
        self.partitions = replicas.partitions
        self._families = families
        self._replicas = replicas
        self._rows = rows
        self._reader = reader
        self._client = client
        self._positions = positions
        self._wait_s = wait_s

    async def show(self, family: str, tenant: str, name: str, *, positions: Sequence[str] = ()) -> EntityRow | None:
        full = aggregate_id(family, tenant, name)
        partition = partition_of(aggregate_key(full), self._replicas.partitions)
        offsets = _offsets(positions, self._replicas.topic)
        written = self._client.last_offset(full)
        if written >= 0:
            offsets[partition] = max(written, offsets.get(partition, -1))
        await self._wait(offsets, in_memory=self._is_replicated(family))
        if self._is_replicated(family):
            entity = self._replicas.entity(full)
            return None if entity is None else EntityRow(name=name, entity=entity)
        rows = await load_entities(self._reader, [full])
        return EntityRow(name=name, entity=self._rows.shown(rows[0])) if rows else None

    async def local(self, family: str, tenant: str, name: str, *, positions: Sequence[str] = ()) -> EntityRow | None:
        full = aggregate_id(family, tenant, name)
        partition = partition_of(aggregate_key(full), self._replicas.partitions)
        after = _offsets(positions, self._replicas.topic).get(partition, -1)
        entity = await self._client.local_entity(partition, full, after)
        return None if entity is None else EntityRow(name=name, entity=entity)

    async def list(
        self, family: str, tenant: str, *, prefix: str = "", after: str = "", limit: int, positions: Sequence[str] = ()
    ) -> Sequence[EntityRow]:
        await self._wait(self._tenant_offsets(family, tenant, positions), in_memory=self._is_replicated(family))
        start = len(aggregate_id(family, tenant, ""))
        if self._is_replicated(family):
            rows = [EntityRow(name=one.id[start:], entity=one) for one in self._replicas.entities(family, tenant)]
            rows.sort(key=lambda row: row.name.encode())
            return [
                row for row in rows if row.name.startswith(prefix) and (not after or row.name.encode() > after.encode())
            ][:limit]
        token = page_token(tenant, after) if after else ""
        page = await list_entities(self._reader, family, tenant, prefix=prefix, limit=limit, after=token)
        return [EntityRow(name=row.name, entity=self._rows.shown(row)) for row in page.rows]

    load_items = _of_items(EntityReads.load_items)
    list_items = _of_items(EntityReads.list_items)
    list_items_by_id = _of_items(EntityReads.list_items_by_id)
    newest_items = _of_items(EntityReads.newest_items)
    sum_items = _of_items(EntityReads.sum_items)
    sum_items_by_key = _of_items(EntityReads.sum_items_by_key)

    async def wait(self, partition: int, offset: int, *, timeout_s: float) -> int:
        deadline = asyncio.get_running_loop().time() + timeout_s
        lag = await self._replicas.wait(partition, offset, timeout_s=timeout_s)
        while (missing := await self._rows_lag(partition, offset, FOLLOW_S if timeout_s > 0 else 0.0)) > 0:
            if asyncio.get_running_loop().time() >= deadline:
                return max(lag, missing)
            await asyncio.sleep(POLL_S)
        return lag

    async def _rows_lag(self, partition: int, offset: int, follow_s: float) -> int:
        """Return how many records the rows lack up to the offset, after waiting a little when that is known to help."""
        if self._positions is not None:
            position = Position(topic=self.topic, partition=partition, offset=offset)
            if (await self._positions.wait(position, timeout_s=follow_s)).is_reached:
                return 0
        return max(0, offset + 1 - await self._rows.next_offset(partition))

    def _is_replicated(self, family: str) -> bool:
        return self._families.by_name[family].is_replicated

    def _tenant_offsets(self, family: str, tenant: str, positions: Sequence[str]) -> dict[int, int]:
        """Return what a read of any aggregate of a tenant includes: the positions, and what this process wrote."""
        offsets = _offsets(positions, self._replicas.topic)
        for partition, offset in self._client.last_offsets(family, tenant).items():
            offsets[partition] = max(offset, offsets.get(partition, -1))
        return offsets

    async def _wait_for_rows(self, family: str, tenant: str, positions: Sequence[str], *, lag_max: int = 0) -> None:
        await self._wait(self._tenant_offsets(family, tenant, positions), in_memory=False, lag_max=lag_max)

    async def _wait(self, offsets: dict[int, int], *, in_memory: bool, lag_max: int = 0) -> None:
        """Wait until what answers the read has passed the offsets, or lacks no more records. Raises PositionNotRead."""
        deadline = asyncio.get_running_loop().time() + self._wait_s
        for partition, offset in offsets.items():
            while True:
                rest_s = deadline - asyncio.get_running_loop().time()
                if in_memory:
                    lag = await self._replicas.wait(partition, offset, timeout_s=max(0.0, rest_s))
                else:
                    follow_s = 0.0 if lag_max else min(FOLLOW_S, max(0.0, rest_s))
                    lag = await self._rows_lag(partition, offset, follow_s)
                if lag <= lag_max:
                    break
                if rest_s <= 0:
                    raise PositionNotRead(f"{self._replicas.topic}/{partition}:{offset} is not read yet", lag)
                await asyncio.sleep(POLL_S)


def _offsets(positions: Sequence[str], topic: str) -> dict[int, int]:
    """Return the newest offset of each partition of the topic that the positions name. Raises PositionNotRead."""
    offsets: dict[int, int] = {}
    for text in positions:
        try:
            position = Position.parse(text)
        except ValueError as error:
            raise PositionNotRead(str(error)) from error
        if position.topic == topic:
            offsets[position.partition] = max(position.offset, offsets.get(position.partition, -1))
    return offsets
