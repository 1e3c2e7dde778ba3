"""How far each partition is projected, and who may move it on.

The rows of a poll and its cursor move in one transaction, the cursor first:

    UPDATE cursors SET next_offset = new, term = ... WHERE ... AND next_offset = old AND epoch = mine

No row means that somebody else has taken the partition: `Fenced`, nothing was written, stop. That alone makes rows
exactly-once, with any number of projectors alive. Taking a partition is raising its epoch; the row lock makes the
taker wait for a transaction of its predecessor that is under way. The cursor also keeps the term it was read under, so
that a reader starts from it instead of from the beginning of the log.

A cursor moves even when a poll changed no row, because readers wait for positions: every commit notifies a channel
(positions.py listens), and the answer to a write names the position to wait for.

Not chosen: committed offsets of a consumer group (they cannot move together with rows).
Before: run_projection.py. After: positions.py, builds.py.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from sqlalchemy import BigInteger, Column, DateTime, PrimaryKeyConstraint, Table, Text, func, select

from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.engine.batch import Cursor
from loomlog.projections.engine.writer import render_statement
from loomlog.projections.tables import metadata
from loomlog.schemas.records import Value

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


CursorUpdates = Sequence[tuple[Cursor, psycopg.AsyncCursor[Any]]]
"""Where cursors stood, and the answers to moving them on."""


class Fenced(Exception):
    """Somebody else has taken the partition; what was about to be written was not."""

    def __init__(self, topic: str, partition: int, cursor: Cursor) -> None:
        self.partition = partition
        super().__init__(
            f"{topic}/{partition}: the cursor is no longer at offset {cursor.next_offset} in epoch {cursor.epoch}; "
            "another projector has taken the partition"
        )


class BuildNotFound(Exception):
    """The build that was to be written is gone; another one is live since at least two rebuilds."""


class Position(Value, frozen=True, kw_only=True):
    """A place in the log: the answer to a write, and what a reader waits for. Written `topic:partition:offset`."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Raises ValueError, naming what was expected."""
        topic, _, rest = text.partition(":")
        partition, _, offset = rest.partition(":")
        if not (topic and partition.isdecimal() and offset.isdecimal()):
            raise ValueError(f"{text[:80]!r} is not a position: expected topic:partition:offset")
        return cls(topic=topic, partition=int(partition), offset=int(offset))


class CursorRow(NamedTuple):
    """A cursor as it is shown."""

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
    """Takes the partitions: whoever had them is fenced. Waits for a transaction of theirs that is under way."""
    statement = sql.SQL(
        "INSERT INTO {} AS c (topic, partition, next_offset, term, epoch, owner) VALUES (%s, %s, 0, -1, 1, %s) "
        "ON CONFLICT (topic, partition) DO UPDATE SET epoch = c.epoch + 1, owner = excluded.owner, updated_at = now() "
        "RETURNING next_offset, term, epoch"
    ).format(sql.Identifier(schema, "cursors"))
    found = {}
    async with connection.transaction():
        # An epoch must not be lost with the server's memory, or two projectors could hold the same one.
        await connection.execute("SET LOCAL synchronous_commit = on")
        for partition in sorted(partitions):
            answer = await connection.execute(statement, (topic, partition, owner))
            row = await answer.fetchone()
            assert row is not None
            found[partition] = Cursor(partition=partition, next_offset=row[0], term=row[1], epoch=row[2])
    return found


async def advance(
    connection: psycopg.AsyncConnection[Any],
    schema: str,
    topic: str,
    steps: Sequence[tuple[Cursor, Cursor]],
) -> CursorUpdates:
    """Moves cursors from the first to the second of each pair; call it first in the transaction, in a pipeline.

    When the pipeline is over, ask `require_advanced` before anything is written. Pairs are taken in the order of their
    partitions, so that two transactions never wait for each other.
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


def require_advanced(topic: str, advanced: CursorUpdates) -> None:
    """Raises Fenced when a cursor was not where we thought it was."""
    for old, answer in advanced:
        if answer.rowcount != 1:
            raise Fenced(topic, old.partition, old)


@cache
def _advance_statement(schema: str) -> bytes:
    statement = sql.SQL(
        "UPDATE {} SET next_offset = %s, term = %s, updated_at = now() "
        "WHERE topic = %s AND partition = %s AND next_offset = %s AND epoch = %s"
    )
    return render_statement(statement.format(sql.Identifier(schema, "cursors")))


async def list_cursors(reader: PostgresReader) -> list[CursorRow]:
    """All cursors of the live build."""
    found = await reader.fetch(select(cursors).order_by(cursors.c.topic, cursors.c.partition))
    return [CursorRow._make(row) for row in found]
