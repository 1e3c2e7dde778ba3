"""Projection cursors: how far each partition is projected, and the epoch that fences its writers.

The rows of a poll and its cursors are written in one transaction, the cursors first:

    UPDATE cursors SET next_offset = new, term = ... WHERE ... AND next_offset = old AND epoch = ours

No updated row means that another projector has claimed the partition: `Fenced` is raised and nothing is written. This
alone makes rows exactly-once, with any number of projectors alive. A claim raises the epoch; the row lock makes it wait
for a transaction of the former writer that is under way. The cursor also stores the term of the records before it, so
that a reader resumes there instead of at the beginning of the log.

A cursor advances even when a poll changed no row, because readers wait for positions: every commit notifies a channel
(positions.py listens), and the response to a write names the position to wait for.

Not chosen: committed offsets of a consumer group (they cannot move together with rows).
Before: projection.py. After: positions.py, builds.py.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from sqlalchemy import BigInteger, Column, DateTime, PrimaryKeyConstraint, Table, Text, func, select

from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.engine.batch import Cursor
from loomlog.projections.engine.writer import render_statement
from loomlog.projections.tables import entity_metadata, in_schema, metadata

cursors = Table(
    "cursors",
    metadata,
    Column("topic", Text),
    Column("partition", BigInteger),
    Column("next_offset", BigInteger, nullable=False),
    Column("term", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("owner", Text, nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    PrimaryKeyConstraint("topic", "partition"),
    # Rewritten by every transaction: room for the new version on the same page.
    postgresql_with={"fillfactor": 50},
)
entity_cursors = cursors.to_metadata(entity_metadata)


BEGIN, COMMIT = b"BEGIN", b"COMMIT"
"""Plain statements, pipelined with the first and the last one of a transaction: two round trips less."""

CursorUpdates = Sequence[tuple[Cursor, psycopg.AsyncCursor[Any]]]
"""Cursors before an update, each with the result of its UPDATE."""


class Fenced(Exception):
    """Another projector has claimed the partition; the transaction wrote nothing."""

    def __init__(self, topic: str, partition: int, cursor: Cursor) -> None:
        self.partition = partition
        super().__init__(
            f"{topic}/{partition}: the cursor is no longer at offset {cursor.next_offset} in epoch {cursor.epoch}; "
            "another projector has claimed the partition"
        )


class BuildNotFound(Exception):
    """The build to write was dropped: at least two rebuilds have replaced it."""


class CursorRow(NamedTuple):
    """A row of `cursors`."""

    topic: str
    partition: int
    next_offset: int
    term: int
    epoch: int
    owner: str
    updated_at: Any
    """datetime."""


async def claim(
    connection: psycopg.AsyncConnection[Any], schema: str, topic: str, partitions: Iterable[int], owner: str
) -> dict[int, Cursor]:
    """Claims the partitions and fences their former writers, after waiting for their transactions under way."""
    statement = sql.SQL(
        "INSERT INTO {} AS c (topic, partition, next_offset, term, epoch, owner) VALUES (%s, %s, 0, -1, 1, %s) "
        "ON CONFLICT (topic, partition) DO UPDATE SET epoch = c.epoch + 1, owner = excluded.owner, updated_at = now() "
        "RETURNING next_offset, term, epoch"
    ).format(sql.Identifier(schema, "cursors"))
    claimed = {}
    async with connection.transaction():
        # An epoch must survive a crash of the server, or two projectors could hold the same one.
        await connection.execute("SET LOCAL synchronous_commit = on")
        for partition in sorted(partitions):
            result = await connection.execute(statement, (topic, partition, owner))
            row = await result.fetchone()
            assert row is not None
            claimed[partition] = Cursor(partition=partition, next_offset=row[0], term=row[1], epoch=row[2])
    return claimed


async def advance(
    connection: psycopg.AsyncConnection[Any],
    schema: str,
    topic: str,
    steps: Sequence[tuple[Cursor, Cursor]],
) -> CursorUpdates:
    """Advances the first cursor of each pair to the second; call it first in the transaction, in a pipeline.

    After the pipeline, call `require_advanced` before writing anything. Pairs are sorted by partition, so that two
    transactions cannot deadlock.
    """
    statement = _advance_statement(schema)
    return [
        (
            old,
            await connection.execute(
                statement, (new.next_offset, new.term, topic, old.partition, old.next_offset, old.epoch)
            ),
        )
        for old, new in sorted(steps, key=lambda step: step[0].partition)
    ]


@asynccontextmanager
async def rollback_on_error(connection: psycopg.AsyncConnection[Any]) -> AsyncIterator[None]:
    """Rolls back the transaction that the block began with BEGIN if it raises."""
    try:
        yield
    except BaseException:
        if not connection.closed:
            await connection.rollback()
        raise


def require_advanced(topic: str, advanced: CursorUpdates) -> None:
    """Raises Fenced if one of the UPDATEs matched no row."""
    for old, result in advanced:
        if result.rowcount != 1:
            raise Fenced(topic, old.partition, old)


@cache
def _advance_statement(schema: str) -> bytes:
    statement = sql.SQL(
        "UPDATE {} SET next_offset = %s, term = %s, updated_at = now() "
        "WHERE topic = %s AND partition = %s AND next_offset = %s AND epoch = %s"
    )
    return render_statement(statement.format(sql.Identifier(schema, "cursors")))


async def list_cursors(reader: PostgresReader, prefix: str = "") -> list[CursorRow]:
    """All cursors of the live build; of the reader's read model, or of another one."""
    table = in_schema(cursors, prefix)
    rows = await reader.fetch(select(table).order_by(table.c.topic, table.c.partition))
    return [CursorRow._make(row) for row in rows]
