"""Items: rows for single facts in the history of aggregates, such as a version or a judgement (decision 36).

A family declares which events give which rows (Family.items); here they are found by id, by the beginning of an id, by
either of two keys, by aggregate, or by time, and their numbers are summed up. Rows are complete below the cursor of a
partition, as those of entities.py are, and carry no seal: no owner continues from them.

Before: engine/entity_projection.py. After: services/stream/entities/reading.py.
"""

import math
from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple

from sqlalchemy import ARRAY, ColumnElement, Float, Index, Numeric, Text, cast, func, select, text, true, tuple_
from sqlalchemy.dialects.postgresql import aggregate_order_by

from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.entities import IDS_MAX, PAGE_MAX, storable
from loomlog.projections.tables import (
    Json,
    OrderedText,
    Scope,
    define_table,
    entity_metadata,
    in_scope,
    one_of,
    page_token,
    parse_page_token,
    parse_token_number,
)
from loomlog.schemas.records import Value

OFFSET_MAX = 2**63 - 1
GROUPS_MAX = 1_000
"""Most keys of one sum by key."""


class ItemRow(NamedTuple):
    """A fact of the history of an aggregate."""

    family: str
    tenant: str
    aggregate: str
    """Full id: `<family>:<tenant>/<name>`."""
    name: str
    kind: str
    id: OrderedText
    key_a: str
    key_b: str
    number: float | None
    partition: int
    offset: int
    """Offset of the event that gave the row its present form."""
    seq: int
    at_ms: int
    """When that event happened, UTC milliseconds; of an imported one, where it happened first."""
    document: Json
    expires_at_ms: int = 0
    """When the row may be deleted, UTC milliseconds; 0: only an event removes it."""


class ItemPage(NamedTuple):
    """One page of a list, by time. `next` is the token of the next page, empty at the end."""

    rows: tuple[ItemRow, ...]
    next: str


class ItemSums(Value, frozen=True, kw_only=True):
    """The numbers of some items; all zero without any. `latest` is the number of the newest one."""

    count: int = 0
    mean: float = 0.0
    median: float = 0.0
    min: float = 0.0
    max: float = 0.0
    latest: float = 0.0


# By bytes, so that pages have one order whatever the database's collation. Read backwards for the newest first.
_BY_TIME = ("at_ms", text('id COLLATE "C"'))
entity_items = define_table(
    "entity_items",
    ItemRow,
    Index("entity_items_a", "family", "tenant", "kind", "key_a", *_BY_TIME, postgresql_where=text("key_a <> ''")),
    Index("entity_items_b", "family", "tenant", "kind", "key_b", *_BY_TIME, postgresql_where=text("key_b <> ''")),
    Index("entity_items_aggregate", "aggregate", "kind", *_BY_TIME),
    Index("entity_items_time", "family", "tenant", "kind", *_BY_TIME),
    Index("entity_items_expiry", "expires_at_ms", postgresql_where=text("expires_at_ms > 0")),
    key=["family", "tenant", "kind", "id"],
    metadata=entity_metadata,
)
columns = entity_items.c
by_id = columns.id.collate("C")


async def load_items(
    reader: PostgresReader, family: str, tenant: Scope, kind: str, ids: Sequence[str]
) -> list[ItemRow]:
    """Return those of the items that there are, in no order."""
    rows: list[ItemRow] = []
    for start in range(0, len(ids), IDS_MAX):
        some = storable(ids[start : start + IDS_MAX])
        query = select(entity_items).where(*_of_kind(family, tenant, kind), one_of(columns.id, some))
        rows += [ItemRow._make(row) for row in await reader.fetch(query)]
    return rows


async def list_items(
    reader: PostgresReader,
    family: str,
    tenant: Scope,
    kind: str,
    *,
    key_a: str = "",
    key_b: str = "",
    aggregate: str = "",
    newest_first: bool = True,
    limit: int = PAGE_MAX,
    after: str = "",
) -> ItemPage:
    """Return a page of the items with these keys and of this aggregate (its full id), by time; empty: of any.

    `after` is `next` of an earlier page. Raises InvalidPageToken for one that this list did not issue.
    """
    limit = max(1, min(limit, PAGE_MAX))
    keys = {columns.key_a: key_a, columns.key_b: key_b, columns.aggregate: aggregate}
    conditions = _of_kind(family, tenant, kind)
    for column, key in keys.items():
        conditions += _in_keys(column, [key] if key else None)
    order = (columns.at_ms, by_id, columns.tenant)
    position = tuple_(*order)
    if after:
        at_ms, after_id, after_tenant = parse_page_token(after, 3)
        edge = tuple_(parse_token_number(at_ms), after_id, after_tenant)
        conditions.append(position < edge if newest_first else position > edge)
    query = select(entity_items).where(*conditions).limit(limit + 1)
    query = query.order_by(*(column.desc() if newest_first else column for column in order))
    rows = tuple(ItemRow._make(row) for row in await reader.fetch(query))
    if len(rows) <= limit:
        return ItemPage(rows, "")
    last = rows[limit - 1]
    return ItemPage(rows[:limit], page_token(last.at_ms, last.id, last.tenant))


async def list_items_by_id(
    reader: PostgresReader, family: str, tenant: Scope, kind: str, *, prefix: str = "", after: str = "", limit: int
) -> list[ItemRow]:
    """Return at most `limit` items whose ids begin with `prefix` and come after `after`, by the bytes of their ids."""
    prefix, after = storable([prefix, after])
    conditions = _of_kind(family, tenant, kind)
    if prefix:
        conditions += [columns.id >= prefix, columns.id.startswith(prefix, autoescape=True)]
        if end := _next_prefix(prefix):
            conditions.append(columns.id < end)
    if after:
        conditions.append(columns.id > after)
    query = select(entity_items).where(*conditions).order_by(by_id).limit(max(1, min(limit, PAGE_MAX)))
    return [ItemRow._make(row) for row in await reader.fetch(query)]


def _next_prefix(prefix: str) -> str:
    """Return the first text after all that begin with the prefix, in the order of code points; empty: there is none."""
    last = ord(prefix[-1])
    following = 0xE000 if last == 0xD7FF else last + 1
    return prefix[:-1] + chr(following) if following <= 0x10FFFF else ""


async def newest_items(
    reader: PostgresReader,
    family: str,
    tenant: Scope,
    kind: str,
    by: Literal["key_a", "key_b"],
    keys: Collection[str],
    *,
    number_max: float = math.inf,
    offset_max: int = OFFSET_MAX,
) -> dict[str, ItemRow]:
    """Return for each key the item of the highest seq, among those with a number and an offset up to these; keys
    without one are left out.
    """
    rows: dict[str, ItemRow] = {}
    texts = storable(list(keys))
    for start in range(0, len(texts), IDS_MAX):
        some = func.unnest(cast(texts[start : start + IDS_MAX], ARRAY(Text)))
        listed = some.table_valued("value").render_derived(name="listed")
        of_key = [columns[by] == listed.c.value, columns[by] != "", *_of_kind(family, tenant, kind)]
        bounds = [columns.number <= number_max, columns.offset <= offset_max]
        newest = select(entity_items).where(*of_key, *bounds).order_by(columns.seq.desc()).limit(1).lateral("newest")
        for row in await reader.fetch(select(newest).select_from(listed.join(newest, true()))):
            item = ItemRow._make(row)
            rows[getattr(item, by)] = item
    return rows


async def sum_items(
    reader: PostgresReader,
    family: str,
    tenant: Scope,
    kind: str,
    *,
    keys_a: Collection[str] | None = None,
    keys_b: Collection[str] | None = None,
    aggregates: Collection[str] | None = None,
) -> ItemSums:
    """Sum up the numbers of the items that have one of these keys and are of one of these aggregates; None: of any."""
    conditions = _summed(family, tenant, kind, keys_a, keys_b, aggregates)
    (sums,) = await reader.fetch(select(*_SUMS).where(*conditions))
    return _item_sums(sums)


async def sum_items_by_key(
    reader: PostgresReader,
    family: str,
    tenant: Scope,
    kind: str,
    by: Literal["key_a", "key_b"],
    *,
    keys_a: Collection[str] | None = None,
    keys_b: Collection[str] | None = None,
    aggregates: Collection[str] | None = None,
) -> dict[str, ItemSums]:
    """Sum up as `sum_items`, for each value of a key; the first GROUPS_MAX in the order of their bytes."""
    conditions = _summed(family, tenant, kind, keys_a, keys_b, aggregates)
    key = columns[by].collate("C")
    query = select(key, *_SUMS).where(*conditions).group_by(key).order_by(key).limit(GROUPS_MAX)
    return {value: _item_sums(sums) for value, *sums in await reader.fetch(query)}


_NEWEST_FIRST = aggregate_order_by(
    columns.number,
    columns.at_ms.desc(),
    by_id.desc(),
    columns.tenant.desc(),
)
_SUMS = (
    func.count(),
    # A sum of float8 depends on the order of the rows, and overflows for numbers that are finite.
    func.avg(cast(cast(columns.number, Text), Numeric)),
    func.percentile_disc(0.5).within_group(columns.number),
    func.percentile_disc(0.5).within_group(columns.number.desc()),
    func.min(columns.number),
    func.max(columns.number),
    func.array_agg(_NEWEST_FIRST, type_=ARRAY(Float))[1],
)


def _item_sums(sums: Sequence[Any]) -> ItemSums:
    count, mean, low, high, least, greatest, latest = sums
    if not count:
        return ItemSums()
    median = low if low == high else low / 2 + high / 2
    return ItemSums(count=count, mean=float(mean), median=median, min=least, max=greatest, latest=latest)


def _summed(
    family: str,
    tenant: Scope,
    kind: str,
    keys_a: Collection[str] | None,
    keys_b: Collection[str] | None,
    aggregates: Collection[str] | None,
) -> list[ColumnElement[bool]]:
    keys = {columns.key_a: keys_a, columns.key_b: keys_b, columns.aggregate: aggregates}
    conditions = _of_kind(family, tenant, kind)
    for column, values in keys.items():
        conditions += _in_keys(column, values)
    return [*conditions, columns.number.is_not(None)]


def _of_kind(family: str, tenant: Scope, kind: str) -> list[ColumnElement[bool]]:
    return [columns.family == family, in_scope(columns.tenant, tenant), columns.kind == kind]


def _in_keys(column: ColumnElement[str], values: Collection[str] | None) -> list[ColumnElement[bool]]:
    """`<> ''` lets the planner use the indexes that leave out empty keys."""
    return [] if values is None else [one_of(column, storable(list(values))), column != ""]
