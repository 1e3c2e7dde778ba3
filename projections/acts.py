"""Acts: who did what, as rows in a schema of their own that a loop of the projector fills from the events of entities.

    loom_acts_1.acts      a row for each act, and one for the refusals of a kind in a minute
    loom_acts_1.cursors   how far the events were read

The version is in the name of the schema. Another version is filled again from the log, which has every act, and the
schemas of earlier ones are dropped. Every list is an index read backwards, so a page of a million acts takes as long
as one of a hundred.

Before: services/projector/acts.py. After: services/families/act/handlers.py.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

import orjson
import psycopg
from psycopg import sql
from sqlalchemy import ColumnElement, Index, MetaData, Table, select, tuple_

from loomlog.connectors.errors import Permanent
from loomlog.connectors.storage.postgres import PostgresReader, create_tables
from loomlog.projections.engine.batch import PositionedEvent
from loomlog.projections.engine.builds import PREFIX
from loomlog.projections.engine.cursors import cursors
from loomlog.projections.engine.writer import Statement, render_statement
from loomlog.projections.entities import UNSTORABLE
from loomlog.projections.tables import (
    EVERY_TENANT,
    OrderedText,
    Scope,
    define_table,
    in_schema,
    in_scope,
    page_token,
    parse_page_token,
    parse_token_number,
)
from loomlog.schemas.generated.act_events import ActBegun, ActEnded, ActRefused

VERSION = 1
"""Version of the table and of what an event becomes. Raise it whenever the same events give other rows."""
RECORDS: tuple[type[Any], ...] = (ActBegun, ActEnded, ActRefused)
PAGE_MAX = 500
BEGUN, REFUSED = "begun", "refused"


class ActRow(NamedTuple):
    """An act, or refusals of one kind. Times in UTC milliseconds."""

    act_id: OrderedText
    tenant: str
    at_ms: int
    who: str
    token: str
    token_id: str
    operation: str
    family: str
    """First part of the operation."""
    transport: str
    request_id: str
    target: str
    request: str
    """JSON, encrypted where content is; as `before` and `after`."""
    outcome: str = BEGUN
    code: str = ""
    times: int = 1
    """Refusals that the row stands for."""
    ended_at_ms: int = 0
    """0: it has not ended."""
    before: str = ""
    after: str = ""


class ActPage(NamedTuple):
    """One page, newest first. `next` is the token of the next page, empty at the end."""

    rows: tuple[ActRow, ...]
    next: str


class ActFilter(NamedTuple):
    """Which acts are listed; empty: any. `what` is an operation or a family, `until_ms` is not included."""

    tenant: Scope = EVERY_TENANT
    who: str = ""
    what: str = ""
    since_ms: int | None = None
    until_ms: int | None = None


metadata = MetaData()
_NEWEST = ("at_ms", "act_id")
acts = define_table(
    "acts",
    ActRow,
    Index("acts_at", *_NEWEST),
    Index("acts_tenant", "tenant", *_NEWEST),
    Index("acts_who", "who", *_NEWEST),
    Index("acts_who_operation", "who", "operation", *_NEWEST),
    Index("acts_operation", "operation", *_NEWEST),
    Index("acts_family", "family", *_NEWEST),
    Index("acts_tenant_operation", "tenant", "operation", *_NEWEST),
    Index("acts_tenant_family", "tenant", "family", *_NEWEST),
    key=["tenant", "act_id"],
    fillfactor=70,
    metadata=metadata,
)
cursors.to_metadata(metadata)


def acts_schema(prefix: str = PREFIX, version: int = VERSION) -> str:
    """Return the name of the schema beside those of the projections with that prefix."""
    return f"{prefix}_acts_{version}"


async def prepare_acts(connection: psycopg.AsyncConnection[Any], prefix: str) -> None:
    """Create the tables and drop those of earlier versions. Idempotent; only the writer may call it."""
    schema = acts_schema(prefix)
    async with connection.transaction():
        await connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
        await create_tables(connection, metadata, schema)
        for version in range(1, VERSION):
            former = sql.Identifier(acts_schema(prefix, version))
            await connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(former))


# --- what an event makes ---------------------------------------------------------------------------------------------


def act_statements(schema: str, items: Sequence[PositionedEvent]) -> list[Statement]:
    """Return the statements for some events, in their order: an act begins before it ends."""
    return [statement for item in items for statement in _statements(schema, item)]


def _statements(schema: str, item: PositionedEvent) -> list[Statement]:
    event, tenant = item.event, item.envelope.tenant
    match event:
        case ActEnded():
            fields = (event.outcome, event.code, item.envelope.at_ms, event.before, event.after)
            return [(_end_statement(schema), (*map(_storable, fields), _storable(tenant), event.act_id))]
        case ActBegun() | ActRefused():
            return [(_insert_statement(schema), tuple(map(_storable, _row(event, tenant))))]
    return []


def _row(event: ActBegun | ActRefused, tenant: str) -> ActRow:
    row = ActRow(
        act_id=event.act_id,
        tenant=tenant,
        at_ms=event.at_ms,
        who=event.who,
        token=event.token,
        token_id=event.token_id,
        operation=event.operation,
        family=event.operation.partition(".")[0],
        transport=event.transport,
        request_id=event.request_id,
        target=event.target,
        request=event.request if isinstance(event, ActBegun) else "",
    )
    if isinstance(event, ActRefused):
        return row._replace(outcome=REFUSED, code=event.code, times=event.count, ended_at_ms=event.at_ms)
    return row


def _storable(value: Any) -> Any:
    """Return a value that a column can hold: what it cannot comes from another writer than ours."""
    return UNSTORABLE.sub("\ufffd", value) if isinstance(value, str) else value


@cache
def _insert_statement(schema: str) -> bytes:
    names = sql.SQL(", ").join(map(sql.Identifier, ActRow._fields))
    values = sql.SQL(", ").join(sql.Placeholder() for _ in ActRow._fields)
    statement = sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT DO NOTHING")
    return render_statement(statement.format(sql.Identifier(schema, acts.name), names, values))


@cache
def _end_statement(schema: str) -> bytes:
    statement = sql.SQL(
        "UPDATE {} SET outcome = %s, code = %s, ended_at_ms = %s, before = %s, after = %s "
        "WHERE tenant = %s AND act_id = %s"
    )
    return render_statement(statement.format(sql.Identifier(schema, acts.name)))


def act_line(item: PositionedEvent) -> bytes:
    """Return an event as a line of the audit file: JSON with a line break. Details are as they are in the log."""
    event = item.event
    fields = {name: getattr(event, name) for name in event.__struct_fields__ if name != "envelope"}
    position = {"partition": item.partition, "offset": item.offset}
    line = {"event": type(event).__name__, "tenant": item.envelope.tenant, "recorded_at_ms": item.envelope.at_ms}
    return orjson.dumps({**line, **fields, **position}, option=orjson.OPT_APPEND_NEWLINE)


# --- reads -----------------------------------------------------------------------------------------------------------


class ActReads(Protocol):
    """Reads of acts."""

    async def list(self, chosen: ActFilter, *, limit: int, after: str = "") -> ActPage:
        """Return a page. Raises InvalidPageToken, ConnectorError."""
        ...


class SqlActReads:
    """The acts in Postgres (protocol ActReads); there are none until a projector has made the table."""

    def __init__(self, reader: PostgresReader, schema: str) -> None:
        self._reader, self._table = reader, in_schema(acts, schema)

    async def list(self, chosen: ActFilter, *, limit: int, after: str = "") -> ActPage:
        """Return a page. Raises InvalidPageToken, ConnectorError."""
        limit = max(1, min(limit, PAGE_MAX))
        columns = self._table.c
        order = (columns.at_ms, columns.act_id)
        conditions = _conditions(self._table, chosen)
        if after:
            at_ms, act_id = parse_page_token(after, 2)
            conditions.append(tuple_(*order) < tuple_(parse_token_number(at_ms), act_id))
        query = select(self._table).where(*conditions).order_by(*(one.desc() for one in order)).limit(limit + 1)
        try:
            rows = tuple(ActRow._make(row) for row in await self._reader.fetch(query))
        except Permanent as error:
            if error.kind == "not_found":
                return ActPage((), "")
            raise
        if len(rows) <= limit:
            return ActPage(rows, "")
        last = rows[limit - 1]
        return ActPage(rows[:limit], page_token(last.at_ms, last.act_id))


def _conditions(table: Table, chosen: ActFilter) -> list[ColumnElement[bool]]:
    columns = table.c
    conditions = [in_scope(columns.tenant, chosen.tenant)]
    if chosen.who:
        conditions.append(columns.who == chosen.who)
    if chosen.what:
        column = columns.operation if "." in chosen.what else columns.family
        conditions.append(column == chosen.what)
    if chosen.since_ms is not None:
        conditions.append(columns.at_ms >= chosen.since_ms)
    if chosen.until_ms is not None:
        conditions.append(columns.at_ms < chosen.until_ms)
    return conditions
