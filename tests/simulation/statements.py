"""The projector's statements, read off their SQL: which table, which columns, which WHERE, what becomes of a row.

Nothing is assumed that the text does not say: the cursor's compare-and-set and the policy of every upsert are found in
it, so that a change of the product changes the simulation.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any

import orjson
from psycopg import sql
from sqlalchemy import LargeBinary

from loomlog.projections.engine.builds import TABLES

Row = tuple[Any, ...]
Key = tuple[Any, ...]
KEYS = {table.name: tuple(column.name for column in table.primary_key.columns) for table in TABLES}
COLUMNS = {table.name: tuple(column.name for column in table.columns) for table in TABLES}
BINARY = {
    table.name: tuple(at for at, column in enumerate(table.columns) if isinstance(column.type, LargeBinary))
    for table in TABLES
}
"""Places of the columns that travel in hexadecimal."""


@dataclass(frozen=True, slots=True)
class Update:
    """UPDATE of one row by its key and what else the WHERE asks for. `sets` and `where` are places in the row, `key`
    is where in the values of the WHERE the key is."""

    schema: str
    name: str
    sets: tuple[int, ...]
    where: tuple[int, ...]
    key: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT, with what becomes of a row that is there; None: it is an error."""

    schema: str
    name: str
    key_of: Callable[[Row], Key]
    merge: Callable[[Row, Row], Row] | None


@dataclass(frozen=True, slots=True)
class Statement:
    """What a text asks for.

    `kind` is one of begin, commit, snapshot, nothing, update, claim, insert, open calls and select.
    """

    kind: str
    table: tuple[str, str]
    update: Update | None = None
    insert: Insert | None = None
    staging: str = ""


MOST_TEXTS = 1_000
_texts: dict[int, tuple[sql.Composable, str]] = {}
"""Of statements that were composed, with the statement itself, which so keeps its id."""


def text_of(query: Any) -> str:
    if isinstance(query, str):
        return query
    if isinstance(query, bytes):
        return query.decode()
    known = _texts.get(id(query))
    if known is None:
        if len(_texts) > MOST_TEXTS:
            _texts.clear()
        known = _texts[id(query)] = (query, query.as_string(None))
    return known[1]


@cache
def table_in(text: str) -> tuple[str, str]:
    """The first table that is named."""
    match = re.search(r'"(\w+)"\."(\w+)"', text)
    assert match is not None, text
    return match[1], match[2]


@cache
def staging_in(text: str) -> str:
    """The temporary table that rows are copied into or moved from; empty when there is none."""
    match = re.search(r'"(staging_\w+)"', text)
    return "" if match is None else match[1]


@cache
def statement_in(text: str) -> Statement:
    """What `ClientConnection.execute` is asked for."""
    if text in ("BEGIN", "COMMIT"):
        return Statement(text.lower(), ("", ""))
    if "REPEATABLE READ" in text:
        return Statement("snapshot", ("", ""))
    # There are no tables beside those of the builds: nothing was erased.
    if text.startswith(("SET ", "CREATE TEMPORARY TABLE", "SELECT to_regclass")) or "pg_notify" in text:
        return Statement("nothing", ("", ""))
    table = table_in(text)
    if text.startswith("UPDATE"):
        return Statement("update", table, update=update_in(text))
    if "c.epoch + 1" in text:
        return Statement("claim", table)
    if text.startswith("INSERT"):
        return Statement("insert", table, insert=insert_in(text), staging=staging_in(text))
    if " JOIN " in text:
        return Statement("open calls", table)
    assert text.startswith("SELECT * FROM"), f"the simulated Postgres does not know {text}"
    return Statement("select", table)


@cache
def update_in(text: str) -> Update:
    sets, _, where = text.partition(" WHERE ")
    placeholder = re.compile(r"(\w+) = %s")
    schema, name = table_in(text)
    columns, asked = COLUMNS[name], placeholder.findall(where)
    return Update(
        schema,
        name,
        tuple(columns.index(column) for column in placeholder.findall(sets)),
        tuple(columns.index(column) for column in asked),
        tuple(asked.index(column) for column in KEYS[name]),
    )


@cache
def insert_in(text: str) -> Insert:
    schema, name = table_in(text)
    columns = COLUMNS[name]
    key = tuple(columns.index(column) for column in KEYS[name])
    key_of: Callable[[Row], Key] = itemgetter(*key) if len(key) > 1 else lambda row: (row[key[0]],)
    _, conflict, policies = text.partition("DO UPDATE SET ")
    if not conflict:
        return Insert(schema, name, key_of, None)
    ways: dict[str, Callable[[Any, Any], Any]] = {}
    for column, policy in re.findall(r'"(\w+)" = (coalesce\([^)]*\)|[^,]+)', policies):
        ways[column] = _way(column, policy)
    kept = [(at, ways.get(column, _keep)) for at, column in enumerate(columns)]
    merges = [(at, way) for at, way in kept if way is not _take and at not in key]  # the keys of both are the same

    def merge(old: Row, new: Row) -> Row:
        merged = list(new)
        for at, way in merges:
            merged[at] = way(old[at], new[at])
        return tuple(merged)

    return Insert(schema, name, key_of, merge)


def rows_in(name: str, document: str) -> list[Row]:
    """The rows of a table that travel as one JSON document."""
    rows = [list(row.values()) for row in orjson.loads(document)]
    for row in rows:
        for at in BINARY[name]:
            row[at] = None if row[at] is None else bytes.fromhex(row[at].removeprefix("\\x"))
    return [tuple(row) for row in rows]


def _way(column: str, policy: str) -> Callable[[Any, Any], Any]:
    ways: dict[str, Callable[[Any, Any], Any]] = {
        f'excluded."{column}"': _take,
        f't."{column}" + excluded."{column}"': lambda old, new: old + new,
        f'coalesce(excluded."{column}", t."{column}")': lambda old, new: old if new is None else new,
        f'coalesce(t."{column}", excluded."{column}")': lambda old, new: new if old is None else old,
    }
    assert policy in ways, f"the simulated Postgres does not know the policy {policy}"
    return ways[policy]


def _keep(old: Any, new: Any) -> Any:
    del new
    return old


def _take(old: Any, new: Any) -> Any:
    del old
    return new
