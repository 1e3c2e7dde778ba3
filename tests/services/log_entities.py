"""Commands and reads of entities over a log in memory: real owners, and rows and items as the projector folds them.

entities = LogEntities()
async with served(tmp_path, entity_commands=entities, entity_reads=entities, files=...) as here:
    entities.attach(here.world.log, here.world.layer.resources.entities)
"""

from collections.abc import Mapping, Sequence
from typing import Any

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.projections.entity_items import ItemPage, ItemRow, ItemSums
from loomlog.services.core.families import aggregate_id
from loomlog.services.families.registry import all_families
from loomlog.services.stream.entities.answers import Answer
from loomlog.services.stream.entities.hosting import EntityParts
from loomlog.services.stream.entities.reads import EntityRow
from tests.services.application.owner import PARTITIONS
from tests.services.families.contract.world import ProjectedRows
from tests.services.memory_items import MemoryItems
from tests.services.stream.entities.world import TOPICS


class LogEntities:
    """EntityCommands and EntityReads of a process that owns nothing, so nothing is `local`."""

    topic = TOPICS.events

    def __init__(self, partitions: int = PARTITIONS) -> None:
        self.partitions = partitions
        self.error: Exception | None = None
        """What every command and every read raises."""
        self.waited: list[tuple[str, ...]] = []
        """Positions that reads waited for."""
        self._items = {family.name: MemoryItems(family) for family in all_families()}

    def attach(self, log: MemoryLog, parts: EntityParts) -> None:
        self._parts = parts
        self._rows = ProjectedRows(log, all_families(), self.partitions)

    async def ask(self, command: Any, *, wait_s: float) -> Answer:
        if self.error is not None:
            raise self.error
        return await self._parts.client.ask(command, wait_s=wait_s)

    async def wait(self, partition: int, offset: int, *, timeout_s: float) -> int:
        return await self._parts.replicas.wait(partition, offset, timeout_s=timeout_s)

    async def local(self, family: str, tenant: str, name: str, *, positions: Sequence[str] = ()) -> EntityRow | None:
        return None

    async def show(self, family: str, tenant: str, name: str, *, positions: Sequence[str] = ()) -> EntityRow | None:
        row = self._projected(positions).rows.get(aggregate_id(family, tenant, name))
        return None if row is None else EntityRow(name=row.name, entity=self._rows.shown(row))

    async def list(
        self, family: str, tenant: str, *, prefix: str = "", after: str = "", limit: int, positions: Sequence[str] = ()
    ) -> Sequence[EntityRow]:
        rows = self._projected(positions).rows.values()
        page = sorted(
            (row for row in rows if (row.family, row.tenant) == (family, tenant) and row.name.startswith(prefix)),
            key=lambda row: row.name.encode(),
        )
        following = [row for row in page if row.name.encode() > after.encode()][:limit]
        return [EntityRow(name=row.name, entity=self._rows.shown(row)) for row in following]

    async def load_items(
        self, family: str, tenant: str, kind: str, ids: Sequence[str], *, positions: Sequence[str] = ()
    ) -> Sequence[ItemRow]:
        return self._items_of(family, positions).load(tenant, kind, ids)

    async def list_items(
        self, family: str, tenant: str, kind: str, *, positions: Sequence[str] = (), **more: Any
    ) -> ItemPage:
        return self._items_of(family, positions).list(tenant, kind, **more)

    async def list_items_by_id(
        self, family: str, tenant: str, kind: str, *, positions: Sequence[str] = (), **more: Any
    ) -> Sequence[ItemRow]:
        return self._items_of(family, positions).list_by_id(tenant, kind, **more)

    async def newest_items(
        self,
        family: str,
        tenant: str,
        kind: str,
        by: Any,
        keys: Any,
        *,
        lag_max: int = 0,
        positions: Sequence[str] = (),
        **bounds: Any,
    ) -> Mapping[str, ItemRow]:
        return self._items_of(family, positions).newest(tenant, kind, by, keys, **bounds)

    async def sum_items(
        self, family: str, tenant: str, kind: str, *, positions: Sequence[str] = (), **keys: Any
    ) -> ItemSums:
        return self._items_of(family, positions).sum(tenant, kind, **keys)

    async def sum_items_by_key(
        self, family: str, tenant: str, kind: str, by: Any, *, positions: Sequence[str] = (), **keys: Any
    ) -> Mapping[str, ItemSums]:
        return self._items_of(family, positions).sum_by_key(tenant, kind, by, **keys)

    def _projected(self, positions: Sequence[str]) -> ProjectedRows:
        """The rows of everything that is in the log."""
        if self.error is not None:
            raise self.error
        self.waited.append(tuple(positions))
        for partition in range(self.partitions):
            self._rows.project(partition)
        return self._rows

    def _items_of(self, family: str, positions: Sequence[str]) -> MemoryItems:
        rows = [row for row in self._projected(positions).items.values() if row.family == family]
        self._items[family].rows = {(row.tenant, row.kind, row.id): row for row in rows}
        return self._items[family]
