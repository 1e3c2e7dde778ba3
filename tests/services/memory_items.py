"""Items in memory: what reads of items answer (protocol EntityReads), without a database."""

import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

from loomlog.projections.engine.entity_fold import FoldedItem
from loomlog.projections.entity_items import OFFSET_MAX, ItemPage, ItemRow, ItemSums
from loomlog.schemas.generated.values import Envelope
from loomlog.services.core.families import Family, name_in_tenant
from loomlog.services.families.entity_folds import FamilyFold


class MemoryItems:
    """The items of one family. A page token is the number of items before the page."""

    def __init__(self, family: Family[Any, Any, Any]) -> None:
        self.rows: dict[tuple[str, str, str], ItemRow] = {}
        """By tenant, kind and id."""
        self._family, self._fold = family, FamilyFold(family)

    def add(self, entity: Any, event: Any, envelope: Envelope, *, partition: int = 0, offset: int = 0) -> None:
        """Keep the items of an event, given the entity after it."""
        for item in self._fold.items(entity, event, envelope):
            self.rows.pop((envelope.tenant, item.kind, item.id), None)
            if item.document:
                row = self._row(item, envelope, partition, offset)
                self.rows[envelope.tenant, item.kind, item.id] = row

    def _row(self, item: FoldedItem, envelope: Envelope, partition: int, offset: int) -> ItemRow:
        return ItemRow(
            family=self._family.name,
            tenant=envelope.tenant,
            aggregate=envelope.aggregate,
            name=name_in_tenant(envelope.aggregate, envelope.tenant),
            partition=partition,
            offset=offset,
            seq=envelope.seq,
            **item._asdict(),
        )

    def load(self, tenant: str, kind: str, ids: Sequence[str]) -> list[ItemRow]:
        return [self.rows[tenant, kind, one] for one in dict.fromkeys(ids) if (tenant, kind, one) in self.rows]

    def list_by_id(self, tenant: str, kind: str, *, prefix: str = "", after: str = "", limit: int) -> list[ItemRow]:
        rows = sorted(self._matching(tenant, kind, None, None, None), key=lambda row: row.id.encode())
        after_bytes = after.encode()
        return [row for row in rows if row.id.startswith(prefix) and row.id.encode() > after_bytes][:limit]

    def list(
        self,
        tenant: str,
        kind: str,
        *,
        key_a: str = "",
        key_b: str = "",
        aggregate: str = "",
        newest_first: bool = True,
        limit: int,
        after: str = "",
    ) -> ItemPage:
        keys = [[key] if key else None for key in (key_a, key_b, aggregate)]
        rows = sorted(self._matching(tenant, kind, *keys), key=lambda row: (row.at_ms, row.id), reverse=newest_first)
        start = int(after or 0)
        end = start + limit
        return ItemPage(tuple(rows[start:end]), str(end) if end < len(rows) else "")

    def newest(
        self,
        tenant: str,
        kind: str,
        by: Literal["key_a", "key_b"],
        keys: Collection[str],
        *,
        number_max: float = math.inf,
        offset_max: int = OFFSET_MAX,
    ) -> Mapping[str, ItemRow]:
        rows: dict[str, ItemRow] = {}
        for row in sorted(self._matching(tenant, kind, None, None, None), key=lambda row: row.seq):
            key = getattr(row, by)
            if key and key in keys and row.offset <= offset_max and row.number is not None and row.number <= number_max:
                rows[key] = row
        return rows

    def sum(
        self,
        tenant: str,
        kind: str,
        *,
        keys_a: Collection[str] | None = None,
        keys_b: Collection[str] | None = None,
        aggregates: Collection[str] | None = None,
    ) -> ItemSums:
        return _sums(list(self._matching(tenant, kind, keys_a, keys_b, aggregates)))

    def sum_by_key(
        self,
        tenant: str,
        kind: str,
        by: Literal["key_a", "key_b"],
        *,
        keys_a: Collection[str] | None = None,
        keys_b: Collection[str] | None = None,
        aggregates: Collection[str] | None = None,
    ) -> Mapping[str, ItemSums]:
        groups: dict[str, list[ItemRow]] = {}
        for row in self._matching(tenant, kind, keys_a, keys_b, aggregates):
            if row.number is not None:
                groups.setdefault(getattr(row, by), []).append(row)
        return {key: _sums(groups[key]) for key in sorted(groups)}

    def _matching(
        self,
        tenant: str,
        kind: str,
        keys_a: Collection[str] | None,
        keys_b: Collection[str] | None,
        aggregates: Collection[str] | None,
    ) -> Iterator[ItemRow]:
        for row in self.rows.values():
            filters = ((row.key_a, keys_a), (row.key_b, keys_b), (row.aggregate, aggregates))
            if (row.tenant, row.kind) == (tenant, kind) and all(of is None or one in of for one, of in filters):
                yield row


def _sums(rows: Sequence[ItemRow]) -> ItemSums:
    ordered = sorted(rows, key=lambda row: (row.at_ms, row.id))
    numbers = [row.number for row in ordered if row.number is not None]
    if not numbers:
        return ItemSums()
    return ItemSums(
        count=len(numbers),
        mean=statistics.fmean(numbers),
        median=statistics.median(numbers),
        min=min(numbers),
        max=max(numbers),
        latest=numbers[-1],
    )
