"""Rows into tables, fast: one statement shape a table, and two ways to send it.

Few rows go as one pipelined executemany. Many go by COPY into a temporary table and one INSERT ... SELECT from there,
which is several times cheaper a row (measured: design.md 8); rows that are only ever inserted are copied into their
table directly. Rows come sorted by key, so that two writers lock shared rows in the same order.

What happens to a row that exists is the table's policy: `insert` (it must not exist), `replace`, `add` (numbers that
are not of the key), `cover` (what is new wins where it is not null, but for the columns named).

Not chosen: unnest of arrays (half as fast), one statement a row, an ORM.
Before: run_projection.py folds. After: Postgres.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import psycopg
from psycopg import sql
from sqlalchemy import Table

COPY_FROM_ROWS = 200
"""Rows of a table from which COPY pays."""
REPLACEMENT = "\ufffd"
"""Stands for the zero character, which Postgres cannot hold in a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """How rows of one table are written; make it with `writer`."""

    name: str
    executemany: bytes
    copy: bytes
    make_staging: bytes | None
    """None: rows are copied straight into the table."""
    move: bytes | None

    async def write(self, connection: psycopg.AsyncConnection[Any], rows: Sequence[tuple[Any, ...]]) -> None:
        """Writes the rows in the transaction under way. They must be sorted by key and have no key twice."""
        if not rows:
            return
        if len(rows) < COPY_FROM_ROWS:
            async with connection.cursor() as cursor:
                await cursor.executemany(self.executemany, [_clean(row) for row in rows])
            return
        async with connection.cursor() as cursor:
            if self.make_staging is not None:
                await cursor.execute(self.make_staging)
            async with cursor.copy(self.copy) as copy:
                for row in rows:
                    await copy.write_row(_clean(row))
            if self.move is not None:
                await cursor.execute(self.move)


def writer(
    schema: str,
    table: Table,
    policy: Literal["insert", "replace", "add", "cover"],
    *,
    keep: frozenset[str] = frozenset(),
) -> Writer:
    """The writer of a table in a schema. `keep` names the columns that `cover` leaves as they are."""
    target = sql.Identifier(schema, table.name)
    names = [column.name for column in table.columns]
    columns = sql.SQL(", ").join(map(sql.Identifier, names))
    insert = sql.SQL("INSERT INTO {} AS t ({}) ").format(target, columns)
    conflict = _conflict(table, policy, keep)
    values = sql.SQL("VALUES ({}) ").format(sql.SQL(", ").join([sql.Placeholder()] * len(names)))
    staging = sql.Identifier(f"staging_{schema}_{table.name}")
    straight = policy == "insert"
    return Writer(
        name=table.name,
        executemany=rendered(sql.Composed([insert, values, conflict])),
        copy=rendered(sql.SQL("COPY {} ({}) FROM STDIN").format(target if straight else staging, columns)),
        make_staging=None
        if straight
        else rendered(
            sql.SQL("CREATE TEMPORARY TABLE IF NOT EXISTS {} (LIKE {}) ON COMMIT DELETE ROWS").format(staging, target)
        ),
        move=None
        if straight
        else rendered(sql.Composed([insert, sql.SQL("SELECT {} FROM {} ").format(columns, staging), conflict])),
    )


def rendered(statement: sql.Composable) -> bytes:
    """The statement as it is sent: putting it together again for every transaction took 6 % of the projector's time."""
    return statement.as_bytes(None)


def _conflict(table: Table, policy: str, keep: frozenset[str]) -> sql.Composable:
    if policy == "insert":
        return sql.SQL("")
    key = [column.name for column in table.primary_key.columns]
    changes = {
        "replace": "{0} = excluded.{0}",
        "add": "{0} = t.{0} + excluded.{0}",
        "cover": "{0} = coalesce(excluded.{0}, t.{0})",
    }[policy]
    sets = [
        sql.SQL("{0} = coalesce(t.{0}, excluded.{0})" if name in keep else changes).format(sql.Identifier(name))
        for name in (column.name for column in table.columns)
        if name not in key
    ]
    return sql.SQL("ON CONFLICT ({}) DO UPDATE SET {}").format(
        sql.SQL(", ").join(map(sql.Identifier, key)), sql.SQL(", ").join(sets)
    )


def _clean(row: tuple[Any, ...]) -> tuple[Any, ...]:
    for value in row:
        if type(value) is str and "\x00" in value:
            return tuple(v.replace("\x00", REPLACEMENT) if type(v) is str else v for v in row)
    return row
