"""Changes of memory as rows of the feed: which ones an event makes, their numbers, and how long they are kept.

The numbers come from the row `state`, which each transaction locks, so they become visible in their order and a reader
that has seen one has seen all below it. An event that is older than the retention gets no row; like deleted rows, it
raises the floor, below which a reader has missed something.

Before: services/projector/memory_feed.py. After: tables.py.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import orjson
import psycopg
from psycopg import sql

from loomlog.projections.engine.batch import PositionedEvent
from loomlog.projections.engine.writer import Statement, render_statement
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


def statements_of(schema: str, items: Sequence[PositionedEvent], *, kept_from_ms: int) -> list[Statement]:
    """Return the statement that numbers and writes the changes, if there are any. Repeated events add no row."""
    rows = [row for item in items for row in changes_of(item)]
    if not rows:
        return []
    kept = [row for row in rows if row.at_ms >= kept_from_ms]
    document = orjson.dumps([row._replace(seq=number)._asdict() for number, row in enumerate(kept, 1)]).decode()
    gone = int(len(kept) < len(rows))
    return [(_write_statement(schema), (gone + len(kept), gone, len(kept), document))]


@cache
def _write_statement(schema: str) -> bytes:
    names = sql.SQL(", ").join(map(sql.Identifier, ChangeRow._fields[1:]))
    statement = sql.SQL(
        "WITH numbered AS (UPDATE {state} SET last_seq = last_seq + %s, "
        "floor_seq = CASE WHEN %s > 0 THEN last_seq + 1 ELSE floor_seq END RETURNING last_seq - %s AS before) "
        "INSERT INTO {changes} (seq, {names}) SELECT before + seq, {names} "
        "FROM numbered, json_populate_recordset(NULL::{changes}, %s) ON CONFLICT DO NOTHING"
    )
    tables = {"state": sql.Identifier(schema, state.name), "changes": sql.Identifier(schema, changes.name)}
    return render_statement(statement.format(names=names, **tables))


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
