"""Changes of memory as rows of the feed: which ones an event makes, their numbers, and how long they are kept.

The numbers come from the row `state`, which each transaction locks, so they become visible in their order and a reader
that has seen one has seen all below it. An event that is older than the retention gets no row; like deleted rows, it
raises the floor, below which a reader has missed something.

Before: services/projector/memory_feed.py. After: tables.py.
"""

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

from loomlog.projections.engine.batch import PositionedEvent
from loomlog.projections.entities import UNSTORABLE
from loomlog.projections.memory_feed.tables import (
    MEMORY_DELETE,
    MEMORY_SCOPE_DELETED,
    MEMORY_SET,
    ChangeRow,
    changes,
    state,
)
from loomlog.schemas.generated.memory_events import (
    EntriesExpired,
    EntryDeleted,
    EntrySet,
    EntrySuperseded,
    ScopeDropped,
)

RECORDS: tuple[type[Any], ...] = (EntrySet, EntryDeleted, EntrySuperseded, EntriesExpired, ScopeDropped)
"""The events that change memory."""
COLUMN_TYPES = ("bigint", "text", "text", "text", "text", "text", "bigint", "bigint", "bigint", "int")


def changes_of(item: PositionedEvent) -> list[ChangeRow]:
    """Return the changes that an event makes, without numbers yet. A dropped scope is one change, at its last event."""
    event = item.event
    match event:
        case EntrySet(key=key):
            kind, keys = MEMORY_SET, [key]
        case EntryDeleted(key=key) | EntrySuperseded(key=key):
            kind, keys = MEMORY_DELETE, [key]
        case EntriesExpired(keys=expired):
            kind, keys = MEMORY_DELETE, list(expired)
        case ScopeDropped(more=False):
            kind, keys = MEMORY_SCOPE_DELETED, [""]
        case _:
            return []
    envelope = item.envelope
    rows = [
        ChangeRow(
            seq=0,
            tenant=envelope.tenant,
            type=kind,
            scope=event.scope,
            scope_id=event.scope_id,
            key=key,
            at_ms=envelope.at_ms,
            partition=item.partition,
            offset=item.offset,
            part=part,
        )
        for part, key in enumerate(keys)
    ]
    # The rules of the family refuse such names; a row cannot hold one that came another way.
    return [row for row in rows if not any(map(UNSTORABLE.search, (row.tenant, row.scope, row.scope_id, row.key)))]


async def write_changes(
    connection: psycopg.AsyncConnection[Any], schema: str, items: Sequence[PositionedEvent], *, kept_from_ms: int
) -> None:
    """Number and write the changes, in the caller's transaction. Repeated events add no row."""
    rows = [row for item in items for row in changes_of(item)]
    kept = [row for row in rows if row.at_ms >= kept_from_ms]
    if not rows:
        return
    state_table = sql.Identifier(schema, state.name)
    result = await connection.execute(sql.SQL("SELECT last_seq, floor_seq FROM {} FOR UPDATE").format(state_table))
    stored = await result.fetchone()
    assert stored is not None
    last_seq, floor_seq = stored
    if len(kept) < len(rows):
        last_seq = floor_seq = last_seq + 1
    if kept:
        numbered = [row._replace(seq=last_seq + number) for number, row in enumerate(kept, 1)]
        columns = sql.SQL(", ").join(sql.SQL("%s::" + kind + "[]") for kind in COLUMN_TYPES)
        await connection.execute(
            sql.SQL("INSERT INTO {} SELECT * FROM unnest({}) ON CONFLICT DO NOTHING").format(
                sql.Identifier(schema, changes.name), columns
            ),
            [list(column) for column in zip(*numbered, strict=True)],
        )
        last_seq += len(kept)
    await connection.execute(
        sql.SQL("UPDATE {} SET last_seq = %s, floor_seq = %s").format(state_table), (last_seq, floor_seq)
    )


async def delete_changes(connection: psycopg.AsyncConnection[Any], schema: str, *, before_ms: int) -> int:
    """Delete rows older than a time; return their number."""
    result = await connection.execute(
        sql.SQL(
            "WITH gone AS (DELETE FROM {} WHERE at_ms < %s RETURNING seq), "
            "raised AS (UPDATE {} SET floor_seq = greatest(floor_seq, (SELECT max(seq) FROM gone)) "
            "WHERE EXISTS (SELECT FROM gone)) SELECT count(*) FROM gone"
        ).format(sql.Identifier(schema, changes.name), sql.Identifier(schema, state.name)),
        (before_ms,),
    )
    row = await result.fetchone()
    assert row is not None
    return int(row[0])
