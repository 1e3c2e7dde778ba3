"""Reads of the feed of memory.

Before: services/application/queries/change_feed.py, services/projector/change_push.py. After: tables.py.
"""

from collections.abc import Collection
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Table, select

from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.memory_feed import tables
from loomlog.projections.memory_feed.tables import ChangeRow
from loomlog.projections.tables import Scope, in_schema, in_scope, one_of

PAGE_MAX = 500
"""Most rows of one read."""


class FeedBounds(NamedTuple):
    """Where the kept changes begin and end."""

    floor_seq: int
    """The last seq that is not kept any more: who has read less has missed something."""
    last_seq: int
    """The newest seq; 0: there was none."""


async def read_bounds(reader: PostgresReader, schema: str) -> FeedBounds:
    """Return the bounds of the feed."""
    columns = _table(tables.state, schema).c
    rows = await reader.fetch(select(columns.floor_seq, columns.last_seq))
    return FeedBounds._make(rows[0]) if rows else FeedBounds(0, 0)


async def read_changes(
    reader: PostgresReader, schema: str, tenant: Scope, types: Collection[str], *, after: int, limit: int = PAGE_MAX
) -> list[ChangeRow]:
    """Return the first changes of these types behind a seq, in their order."""
    table = _table(tables.changes, schema)
    query = (
        select(table)
        .where(table.c.seq > after, in_scope(table.c.tenant, tenant), one_of(table.c.type, types))
        .order_by(table.c.seq)
        .limit(max(1, min(limit, PAGE_MAX)))
    )
    return [ChangeRow._make(row) for row in await reader.fetch(query)]


def change_json(row: ChangeRow) -> dict[str, Any]:
    """Return a change as readers get it; without a tenant and a key where there is none."""
    fields = {
        "seq": row.seq,
        "tenant": row.tenant,
        "type": row.type,
        "scope": row.scope,
        "scope_id": row.scope_id,
        "key": row.key,
        "at": format_rfc3339(row.at_ms),
    }
    return {name: value for name, value in fields.items() if value != "" or name == "scope_id"}


@cache
def _table(table: Table, schema: str) -> Table:
    return in_schema(table, schema)
