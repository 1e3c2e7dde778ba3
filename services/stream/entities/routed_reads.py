"""Reads of entities in a process with several topic sets: each family is read where its topic set is.

Before: services/families/entity_handlers.py. After: reading.py, one for each set.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from loomlog.projections.entity_items import OFFSET_MAX, ItemPage, ItemRow, ItemSums
from loomlog.services.stream.entities.hosting import EntityParts
from loomlog.services.stream.entities.reads import EntityReads, EntityRow


class RoutedReads:
    """Protocol loomlog.services.stream.entities.reads.EntityReads. `topic`, `partitions` and `wait` are those of the
    first set; positions of another set's topic are waited for by reads of its families.
    """

    def __init__(self, parts: EntityParts, *reads: EntityReads) -> None:
        """`reads`: one for each of `parts.each`, in their order."""
        self._first = reads[0]
        self.beside = reads[1:]
        """The reads of the further topic sets, each with its topic."""
        self._by_family = {
            name: one for of, one in zip(parts.each, reads, strict=True) for name in of.family.families.by_name
        }
        self.topic, self.partitions = self._first.topic, self._first.partitions

    def of(self, family: str) -> EntityReads:
        """Return the reads of the topic set of a family."""
        return self._by_family.get(family, self._first)

    async def wait(self, partition: int, offset: int, *, timeout_s: float) -> int:
        return await self._first.wait(partition, offset, timeout_s=timeout_s)

    async def show(self, family: str, tenant: str, name: str, *, positions: Sequence[str] = ()) -> EntityRow | None:
        return await self.of(family).show(family, tenant, name, positions=positions)

    async def local(self, family: str, tenant: str, name: str, *, positions: Sequence[str] = ()) -> EntityRow | None:
        return await self.of(family).local(family, tenant, name, positions=positions)

    async def list(
        self, family: str, tenant: str, *, prefix: str = "", after: str = "", limit: int, positions: Sequence[str] = ()
    ) -> Sequence[EntityRow]:
        return await self.of(family).list(family, tenant, prefix=prefix, after=after, limit=limit, positions=positions)

    async def load_items(
        self, family: str, tenant: str, kind: str, ids: Sequence[str], *, positions: Sequence[str] = ()
    ) -> Sequence[ItemRow]:
        return await self.of(family).load_items(family, tenant, kind, ids, positions=positions)

    async def list_items(
        self,
        family: str,
        tenant: str,
        kind: str,
        *,
        key_a: str = "",
        key_b: str = "",
        aggregate: str = "",
        newest_first: bool = True,
        limit: int,
        after: str = "",
        positions: Sequence[str] = (),
    ) -> ItemPage:
        return await self.of(family).list_items(
            family,
            tenant,
            kind,
            key_a=key_a,
            key_b=key_b,
            aggregate=aggregate,
            newest_first=newest_first,
            limit=limit,
            after=after,
            positions=positions,
        )

    async def list_items_by_id(
        self,
        family: str,
        tenant: str,
        kind: str,
        *,
        prefix: str = "",
        after: str = "",
        limit: int,
        positions: Sequence[str] = (),
    ) -> Sequence[ItemRow]:
        return await self.of(family).list_items_by_id(
            family, tenant, kind, prefix=prefix, after=after, limit=limit, positions=positions
        )

    async def newest_items(
        self,
        family: str,
        tenant: str,
        kind: str,
        by: Literal["key_a", "key_b"],
        keys: Collection[str],
        *,
        number_max: float = math.inf,
        offset_max: int = OFFSET_MAX,
        lag_max: int = 0,
        positions: Sequence[str] = (),
    ) -> Mapping[str, ItemRow]:
        return await self.of(family).newest_items(
            family,
            tenant,
            kind,
            by,
            keys,
            number_max=number_max,
            offset_max=offset_max,
            lag_max=lag_max,
            positions=positions,
        )

    async def sum_items(
        self,
        family: str,
        tenant: str,
        kind: str,
        *,
        keys_a: Collection[str] | None = None,
        keys_b: Collection[str] | None = None,
        aggregates: Collection[str] | None = None,
        positions: Sequence[str] = (),
    ) -> ItemSums:
        return await self.of(family).sum_items(
            family, tenant, kind, keys_a=keys_a, keys_b=keys_b, aggregates=aggregates, positions=positions
        )

    async def sum_items_by_key(
        self,
        family: str,
        tenant: str,
        kind: str,
        by: Literal["key_a", "key_b"],
        *,
        keys_a: Collection[str] | None = None,
        keys_b: Collection[str] | None = None,
        aggregates: Collection[str] | None = None,
        positions: Sequence[str] = (),
    ) -> Mapping[str, ItemSums]:
        return await self.of(family).sum_items_by_key(
            family, tenant, kind, by, keys_a=keys_a, keys_b=keys_b, aggregates=aggregates, positions=positions
        )
