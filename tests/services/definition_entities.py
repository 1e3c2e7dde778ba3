"""Commands and reads of definitions over a log in memory: real owners, and items as the projector folds them.

entities = LogEntities()
async with served(tmp_path, entity_commands=entities, entity_reads=entities, files=...) as here:
    entities.attach(here.world.log, here.world.layer.entity_parts)
"""

from collections.abc import Mapping, Sequence
from typing import Any

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.projections.entity_items import ItemPage, ItemRow, ItemSums
from loomlog.services.families.definition import FAMILY
from loomlog.services.families.registry import all_families
from loomlog.services.stream.entities.answers import Answer
from loomlog.services.stream.entities.hosting import EntityParts
from tests.services.application.owner import PARTITIONS
from tests.services.families.contract.world import ProjectedRows
from tests.services.memory_items import MemoryItems
from tests.services.stream.entities.world import TOPICS


class LogEntities:
    """EntityCommands and EntityReads of a process, for definitions. `show` and `list` are not there."""

    topic = TOPICS.events

    def __init__(self, partitions: int = PARTITIONS) -> None:
        self.partitions = partitions
        self.error: Exception | None = None
        """What every command and every read raises."""
        self.waited: list[tuple[str, ...]] = []
        """Positions that reads waited for."""
        self._items = MemoryItems(FAMILY)

    def attach(self, log: MemoryLog, parts: EntityParts) -> None:
        self._parts = parts
        self._rows = ProjectedRows(log, all_families(), self.partitions)

    async def ask(self, command: Any, *, wait_s: float) -> Answer:
        if self.error is not None:
            raise self.error
        return await self._parts.client.ask(command, wait_s=wait_s)

    async def wait(self, partition: int, offset: int, *, timeout_s: float) -> int:
        return await self._parts.replicas.wait(partition, offset, timeout_s=timeout_s)

    def items(self, positions: Sequence[str] = ()) -> MemoryItems:
        """The items of everything that is in the log."""
        if self.error is not None:
            raise self.error
        self.waited.append(tuple(positions))
        for partition in range(self.partitions):
            self._rows.project(partition)
        rows = [row for row in self._rows.items.values() if row.family == FAMILY.name]
        self._items.rows = {(row.tenant, row.kind, row.id): row for row in rows}
        return self._items

    async def load_items(
        self, family: str, tenant: str, kind: str, ids: Sequence[str], *, positions: Sequence[str] = ()
    ) -> Sequence[ItemRow]:
        return self.items(positions).load(tenant, kind, ids)

    async def list_items(
        self, family: str, tenant: str, kind: str, *, positions: Sequence[str] = (), **more: Any
    ) -> ItemPage:
        return self.items(positions).list(tenant, kind, **more)

    async def newest_items(
        self, family: str, tenant: str, kind: str, by: Any, keys: Any, *, positions: Sequence[str] = (), **bounds: Any
    ) -> Mapping[str, ItemRow]:
        return self.items(positions).newest(tenant, kind, by, keys, **bounds)

    async def sum_items(
        self, family: str, tenant: str, kind: str, *, positions: Sequence[str] = (), **keys: Any
    ) -> ItemSums:
        return self.items(positions).sum(tenant, kind, **keys)

    async def sum_items_by_key(
        self, family: str, tenant: str, kind: str, by: Any, *, positions: Sequence[str] = (), **keys: Any
    ) -> Mapping[str, ItemSums]:
        return self.items(positions).sum_by_key(tenant, kind, by, **keys)
