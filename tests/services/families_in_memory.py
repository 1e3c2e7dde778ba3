"""Entities of several families in one process, in memory: commands go to the rules of their family.

With `encrypt` content is encrypted before a family decides, as a process does.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from loomlog.projections.entity_items import ItemPage, ItemRow, ItemSums
from loomlog.services.core.families import Family
from loomlog.services.stream.entities.answers import Answer
from loomlog.services.stream.entities.reads import EntityRow
from tests.services.entities import TOPIC, MemoryEntities


class FamiliesInMemory:
    """EntityCommands and EntityReads of families."""

    topic = TOPIC
    partitions = 2

    def __init__(self, *families: Family[Any, Any, Any]) -> None:
        self.families = {family.name: MemoryEntities(family) for family in families}
        self._of_record = {command.record: self.families[one.name] for one in families for command in one.commands}
        self.encrypt: Callable[[Any, Any], Awaitable[Any]] | None = None
        self.asked: list[Any] = []
        self.failing: dict[type[Any], BaseException] = {}
        """What commands raise, before they are carried out."""

    async def ask(self, command: Any, *, wait_s: float) -> Answer:
        self.asked.append(command)
        if type(command) in self.failing:
            raise self.failing[type(command)]
        entities = self._of_record[type(command)]
        if self.encrypt is not None:
            command = await self.encrypt(entities.family, command)
        # Offsets are those of one log.
        entities.offset = max(one.offset for one in self.families.values())
        return await entities.ask(command, wait_s=wait_s)

    async def show(self, family: str, tenant: str, name: str, *, positions: Sequence[str] = ()) -> EntityRow | None:
        return await self.families[family].show(family, tenant, name, positions=positions)

    async def local(self, family: str, tenant: str, name: str, *, positions: Sequence[str] = ()) -> EntityRow | None:
        return await self.families[family].local(family, tenant, name, positions=positions)

    async def load_items(self, family: str, *of: Any, **more: Any) -> Sequence[ItemRow]:
        return await self.families[family].load_items(family, *of, **more)

    async def list_items(self, family: str, *of: Any, **more: Any) -> ItemPage:
        return await self.families[family].list_items(family, *of, **more)

    async def list_items_by_id(self, family: str, *of: Any, **more: Any) -> Sequence[ItemRow]:
        return await self.families[family].list_items_by_id(family, *of, **more)

    async def newest_items(self, family: str, *of: Any, **more: Any) -> Any:
        return await self.families[family].newest_items(family, *of, **more)

    async def wait(self, partition: int, offset: int, *, timeout_s: float) -> int:
        return 0

    async def sum_items(self, family: str, *of: Any, **more: Any) -> ItemSums:
        return await self.families[family].sum_items(family, *of, **more)

    async def sum_items_by_key(self, family: str, *of: Any, **more: Any) -> Mapping[str, ItemSums]:
        return await self.families[family].sum_items_by_key(family, *of, **more)

    async def list(self, family: str, *of: Any, **more: Any) -> Sequence[EntityRow]:
        return await self.families[family].list(family, *of, **more)
