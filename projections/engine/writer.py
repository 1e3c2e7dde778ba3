"""Rows into tables, fast: one statement shape a table, and two ways to send it.

Few rows go as one JSON document, which Postgres takes apart: one statement a table, however many rows. Many go by COPY
into a temporary table and one INSERT ... SELECT from there, which costs Postgres less a row; rows that are only ever
inserted are copied into their table directly. COPY knows no pipeline, so it comes first for every table that needs it,
and all that is left goes together: `write_all`. Rows come sorted by key and tables in one order, so that two writers
lock shared rows in the same order.

What happens to a row that exists is the table's policy: `insert` (it must not exist), `replace`, `add` (numbers that
are not of the key), `cover` (what is new wins where it is not null, but for the columns named).

Not chosen: unnest of arrays (half as fast), a statement a row (executemany in a pipeline: 2.2 instead of 1.5 ms of CPU
for the eight events of a poll), an ORM.
Before: run_projection.py folds. After: Postgres.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson
import psycopg
from psycopg import sql
from sqlalchemy import LargeBinary, Table
from sqlalchemy.types import TypeEngine

from loomlog.projections.tables import JsonText

COPY_FROM_ROWS = 250
"""Rows of a table from which COPY pays, measured between 140 and 350. It is two round trips more."""
REPLACEMENT = "\ufffd"
"""Stands for the zero character, which Postgres cannot hold in a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWriter:
    """How rows of one table are written; make it with `make_writer`."""

    name: str
    insert: bytes
    """Of the rows in a JSON document."""
    to_object: Callable[[tuple[Any, ...]], dict[str, Any]]
    """A row as an object of that document."""
    copy: bytes
    make_staging: bytes | None
    """None: rows are copied straight into the table."""
    move: bytes | None

    async def prepare(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Makes what writing needs, once for each connection, outside of a transaction that may be rolled back."""
        if self.make_staging is not None:
            await connection.execute(self.make_staging)

    async def copy_rows(self, connection: psycopg.AsyncConnection[Any], rows: Sequence[tuple[Any, ...]]) -> None:
        async with connection.cursor() as cursor, cursor.copy(self.copy) as copy:
            # Rows gather in the formatter's buffer; it gives back what is due to be sent, most times nothing.
            format_row = copy.formatter.write_row
            for row in rows:
                if data := format_row(_replace_nul(row)):
                    await copy.write(data)

    def document(self, rows: Sequence[tuple[Any, ...]]) -> str:
        """The rows as JSON. Raises DataError, as Postgres would, for a value that JSON cannot hold."""
        try:
            return orjson.dumps([self.to_object(_replace_nul(row)) for row in rows]).decode()
        except orjson.JSONEncodeError as error:
            raise psycopg.DataError(f"a row of {self.name} cannot be sent: {error}") from error

    async def send(self, connection: psycopg.AsyncConnection[Any], rows: Sequence[tuple[Any, ...]]) -> None:
        """Sends what COPY has not done: the rows, or their move from where they were copied to."""
        if len(rows) < COPY_FROM_ROWS:
            await connection.execute(self.insert, (self.document(rows),))
        elif self.move is not None:
            await connection.execute(self.move)


async def write_all(
    connection: psycopg.AsyncConnection[Any],
    rows: Sequence[tuple[TableWriter, Sequence[tuple[Any, ...]]]],
    *,
    last: Sequence[tuple[bytes, Sequence[Any]]] = (),
) -> None:
    """Writes the rows of some tables in the transaction under way, then does the `last` statements.

    Rows of a table must be sorted by key and have no key twice. Each writer was prepared on this connection.
    """
    for table, changed in rows:
        if len(changed) >= COPY_FROM_ROWS:
            await table.copy_rows(connection, changed)
    async with connection.pipeline():
        for table, changed in rows:
            if changed:
                await table.send(connection, changed)
        for statement, parameters in last:
            await connection.execute(statement, parameters)


def make_writer(
    schema: str,
    table: Table,
    policy: Literal["insert", "replace", "add", "cover"],
    *,
    keep: frozenset[str] = frozenset(),
) -> TableWriter:
    """The writer of a table in a schema. `keep` names the columns that `cover` leaves as they are."""
    target = sql.Identifier(schema, table.name)
    names = [column.name for column in table.columns]
    columns = sql.SQL(", ").join(map(sql.Identifier, names))
    insert = sql.SQL("INSERT INTO {} AS t ({}) ").format(target, columns)
    conflict = _conflict(table, policy, keep)
    staging = sql.Identifier(f"staging_{schema}_{table.name}")
    straight = policy == "insert"
    return TableWriter(
        name=table.name,
        insert=render_statement(sql.Composed([insert, _select_from_document(table), conflict])),
        to_object=_make_row_mapper(table),
        copy=render_statement(sql.SQL("COPY {} ({}) FROM STDIN").format(target if straight else staging, columns)),
        make_staging=None
        if straight
        else render_statement(
            sql.SQL("CREATE TEMPORARY TABLE IF NOT EXISTS {} (LIKE {}) ON COMMIT DELETE ROWS").format(staging, target)
        ),
        move=None
        if straight
        else render_statement(sql.Composed([insert, sql.SQL("SELECT {} FROM {} ").format(columns, staging), conflict])),
    )


def render_statement(statement: sql.Composable) -> bytes:
    """The statement as it is sent: putting it together again for every transaction took 6 % of the projector's time."""
    return statement.as_bytes(None)


def _select_from_document(table: Table) -> sql.Composable:
    """The rows of a document."""
    names = [(sql.Identifier(column.name), column.type) for column in table.columns]
    taken = [sql.SQL("{}::json").format(name) if isinstance(kind, JsonText) else name for name, kind in names]
    shape = [sql.SQL("{} {}").format(name, sql.SQL(_type_in_document(kind))) for name, kind in names]
    return sql.SQL("SELECT {} FROM json_to_recordset(%s) AS r({}) ").format(
        sql.SQL(", ").join(taken), sql.SQL(", ").join(shape)
    )


def _type_in_document(kind: TypeEngine[Any]) -> str:
    if isinstance(kind, JsonText):
        return "text"  # as JSON inside of JSON, Postgres would refuse \\u0000 and lone surrogates in it
    return "bytea" if isinstance(kind, LargeBinary) else str(kind)


def _make_row_mapper(table: Table) -> Callable[[tuple[Any, ...]], dict[str, Any]]:
    names = [str(column.name) for column in table.columns]
    binary = [str(column.name) for column in table.columns if isinstance(column.type, LargeBinary)]

    def shaped(row: tuple[Any, ...]) -> dict[str, Any]:
        found = dict(zip(names, row, strict=True))
        for name in binary:
            if found[name] is not None:
                found[name] = "\\x" + found[name].hex()
        return found

    return shaped


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


def _replace_nul(row: tuple[Any, ...]) -> tuple[Any, ...]:
    for value in row:
        if type(value) is str and "\x00" in value:
            return tuple(v.replace("\x00", REPLACEMENT) if type(v) is str else v for v in row)
    return row
