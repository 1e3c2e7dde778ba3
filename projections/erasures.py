"""Erasures: which runs no read model has any more, in a schema of its own beside the builds.

    loom_erasures_1.erasures   each erasure whose rows are deleted
    loom_erasures_1.erased     ids of runs, and of aggregates of memory, of which no rows are kept
    loom_erasures_1.cursors    how far the events were read

A loop of the projector deletes the rows of all builds that there are, in one transaction with its cursor. A rebuild
folds the whole log, so the rows of what was erased come again in its build; `delete_erased` removes them before it is
compared with the live one, and before it takes its place. Readers never ask here.

Before: services/projector/erasures.py. After: services/application/admin/erasure.py waits for it.
"""

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from sqlalchemy import ColumnElement, MetaData, Text, any_, cast, literal, or_, select
from sqlalchemy.dialects.postgresql import ARRAY

from loomlog.connectors.errors import Permanent
from loomlog.connectors.storage.postgres import PostgresReader, create_tables
from loomlog.projections.engine.batch import PositionedEvent
from loomlog.projections.engine.builds import CHANNEL_SUFFIX, ENTITY_SUFFIX, PREFIX
from loomlog.projections.engine.cursors import cursors
from loomlog.projections.engine.writer import Statement, render_statement
from loomlog.projections.tables import OrderedText, define_table, in_schema
from loomlog.projections.transcript import transcript
from loomlog.schemas.generated.erasure_events import RunsErased
from loomlog.schemas.position import Position

VERSION = 1
"""Version of the tables and of what an event deletes; another one is filled from the log again."""
RECORDS: tuple[type[Any], ...] = (RunsErased,)
RUN_TABLES = ("runs", "transcript", "interrupts", "audit", "projection_problems")
"""Tables of runs whose rows are of one run. Usage is not: what was spent stays."""


class ErasureRow(NamedTuple):
    """An erasure whose rows are deleted."""

    tenant: str
    erasure_id: OrderedText
    at_ms: int
    subject: str
    asked_by: str
    reason: str
    in_clear: bool
    """Whether texts of it stay in clear in the log."""
    position: str
    """Position of the event."""


class ErasedRow(NamedTuple):
    """A run, or an aggregate, of which no rows are kept that are as old as the erasure."""

    id: OrderedText
    at_ms: int


metadata = MetaData()
erasures = define_table("erasures", ErasureRow, key=["tenant", "erasure_id"], metadata=metadata)
erased = define_table("erased", ErasedRow, key=["id"], metadata=metadata)
cursors.to_metadata(metadata)


def erasures_schema(prefix: str = PREFIX, version: int = VERSION) -> str:
    """Return the name of the schema beside those of the projections with that prefix."""
    return f"{prefix}_erasures_{version}"


async def prepare_erasures(connection: psycopg.AsyncConnection[Any], prefix: str) -> None:
    """Create the tables and what deletes rows. Idempotent; only the writer may call it."""
    schema = erasures_schema(prefix)
    async with connection.transaction():
        await connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
        await create_tables(connection, metadata, schema)
        await connection.execute(_delete_function(schema, prefix))


def _delete_function(schema: str, prefix: str) -> sql.Composed:
    """Return the statement that makes a function: it deletes rows by ids from every build."""
    return sql.SQL(
        """
        CREATE OR REPLACE FUNCTION {function}(ids text[], upto bigint) RETURNS void LANGUAGE plpgsql AS $$
        DECLARE place record;
        BEGIN
            FOR place IN
                SELECT n.nspname AS schema_name, c.relname AS table_name
                FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE c.relkind = 'r' AND (
                    (n.nspname ~ {of_runs} AND c.relname = ANY ({tables}))
                    OR (n.nspname ~ {of_entities} AND c.relname = 'entity_items'))
            LOOP
                IF place.table_name = 'entity_items' THEN
                    EXECUTE format('DELETE FROM %I.%I WHERE aggregate = ANY ($1) AND at_ms <= $2',
                        place.schema_name, place.table_name)
                    USING ids, upto;
                ELSE
                    EXECUTE format('DELETE FROM %I.%I WHERE run_id = ANY ($1)', place.schema_name, place.table_name)
                    USING ids;
                END IF;
            END LOOP;
        END $$
        """
    ).format(
        function=sql.Identifier(schema, "delete_rows"),
        of_runs=sql.Literal(f"^{prefix}_[0-9]+$"),
        of_entities=sql.Literal(f"^{prefix}{ENTITY_SUFFIX}_[0-9]+$"),
        tables=sql.Literal(list(RUN_TABLES)),
    )


def erasure_statements(schema: str, topic: str, items: Sequence[PositionedEvent]) -> list[Statement]:
    """Return the statements that note what was erased, and delete its rows."""
    insert = (
        "INSERT INTO {}.erased SELECT unnest(%s::text[]), %s::bigint "
        "ON CONFLICT (id) DO UPDATE SET at_ms = GREATEST(erased.at_ms, EXCLUDED.at_ms)"
    )
    note = "INSERT INTO {}.erasures VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
    statements: list[Statement] = []
    for item in items:
        event: RunsErased = item.event
        ids, at_ms = list(event.run_ids), item.envelope.at_ms
        if event.in_clear:
            ids.append(f"memory:{item.envelope.tenant}/user/{event.subject}")
        statements += [
            (_statement(schema, insert), (ids, at_ms)),
            (_statement(schema, "SELECT {}.delete_rows(%s::text[], %s::bigint)"), (ids, at_ms)),
            (
                _statement(schema, note),
                ErasureRow(
                    tenant=item.envelope.tenant,
                    erasure_id=event.erasure_id,
                    at_ms=at_ms,
                    subject=event.subject,
                    asked_by=event.by,
                    reason=event.reason,
                    in_clear=event.in_clear,
                    position=str(Position(topic=topic, partition=item.partition, offset=item.offset)),
                ),
            ),
        ]
    return statements


@cache
def _statement(schema: str, text: str) -> bytes:
    return render_statement(sql.SQL(text).format(sql.Identifier(schema)))


async def delete_erased(connection: psycopg.AsyncConnection[Any], build_schema: str, prefix: str) -> None:
    """Delete from a build what was erased; `prefix` is that of its builds."""
    base = prefix.removesuffix(ENTITY_SUFFIX).removesuffix(CHANNEL_SUFFIX)
    schema = erasures_schema(base)
    exists = await connection.execute("SELECT to_regclass(%s)", (f'"{schema}".erased',))
    row = await exists.fetchone()
    if row is None or row[0] is None:
        return  # nothing was ever erased
    of_entities = prefix != base
    for table in ("entity_items",) if of_entities else RUN_TABLES:
        # A person who comes back has new rows of memory; the ids of runs are never used again.
        same = sql.SQL("kept.aggregate = e.id AND kept.at_ms <= e.at_ms" if of_entities else "kept.run_id = e.id")
        places = (sql.Identifier(build_schema, table), sql.Identifier(schema, erased.name))
        await connection.execute(sql.SQL("DELETE FROM {} AS kept USING {} AS e WHERE {}").format(*places, same))


class SqlErasures:
    """Reads of erasures, and of who else has a blob. `reader` reads the live build of runs."""

    def __init__(self, reader: PostgresReader, schema: str) -> None:
        self._reader, self._table = reader, in_schema(erasures, schema)

    async def is_done(self, tenant: str, erasure_id: str) -> bool:
        """Return whether the rows of an erasure are deleted. Raises ConnectorError."""
        columns = self._table.c
        return bool(await self._fetch(columns.tenant == tenant, columns.erasure_id == erasure_id))

    async def of_subject(self, tenant: str, subject: str) -> list[ErasureRow]:
        """Return the erasures of a subject whose rows are deleted, oldest first. Raises ConnectorError."""
        columns = self._table.c
        return await self._fetch(columns.tenant == tenant, columns.subject == subject)

    async def _fetch(self, *conditions: ColumnElement[bool]) -> list[ErasureRow]:
        query = select(self._table).where(*conditions).order_by(self._table.c.at_ms)
        try:
            return [ErasureRow._make(row) for row in await self._reader.fetch(query)]
        except Permanent as error:
            if error.kind == "not_found":  # the projector has not made the table yet
                return []
            raise

    async def shared_blobs(self, hashes: Collection[str], run_ids: Collection[str]) -> set[str]:
        """Return those of the blobs that runs other than these have too. Reads all texts. Raises ConnectorError."""
        columns = transcript.c
        of_others = ~(columns.run_id == any_(literal(list(run_ids), ARRAY(Text))))
        shared = set[str]()
        for sha256 in hashes:
            texts = (cast(columns.event, Text), cast(columns.payload, Text))
            named = or_(*(text.contains(sha256, autoescape=True) for text in texts))
            if await self._reader.fetch(select(columns.run_id).where(of_others, named).limit(1)):
                shared.add(sha256)
        return shared
