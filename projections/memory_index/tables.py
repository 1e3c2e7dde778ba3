"""Schemas and tables of the search index.

    loom_memory_index      what outlives a version: sets of embeddings, their cache, access counters
    loom_memory_index_1    version 1: entries, vectors, the queue, cursors

Another version of the tables is a schema of its own that is filled from the log, beside the one that readers of the
older version still use; it is dropped once the new one has passed it. Embeddings are not computed again: they come from
the cache.

Vectors need the extension pgvector, in whatever schema it is. Without it the index has words only. All vectors are
halfvec: half the bytes, up to 4,000 dimensions in an index, and a cosine that differs by less than 0.001.

Not chosen: a table for each set (HNSW indexes are partial, by set and scope, so one table does); vector beside halfvec
(a scan of 20,000 vectors of 1,536 dimensions would read 120 MB).
Before: services/projector/memory_indexer.py, reads.py. After: entries.py, vectors.py.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import psycopg
from psycopg import sql
from psycopg_pool import AsyncConnectionPool
from sqlalchemy import MetaData

from loomlog.connectors.storage.postgres import create_tables, translate_errors
from loomlog.projections.engine.builds import PREFIX
from loomlog.projections.engine.cursors import cursors
from loomlog.projections.engine.writer import render_statement

VERSION = 1
"""Version of the tables, the tokenizer and the texts. Raise it whenever the same events give other rows."""
SUFFIX = "_memory_index"
NOTE, FACT, DOCUMENT = 0, 1, 2
"""Kinds of entries: written by key, with provenance, part of a document."""
DOCUMENT_PREFIX = "doc.chunk:"
UNTRIED, GIVEN_UP = 0, 5
"""Attempts of an entry in the queue: none yet, and no more."""

cursors_metadata = MetaData()
cursors.to_metadata(cursors_metadata)

KEPT_TABLES = (
    """
    CREATE TABLE IF NOT EXISTS {kept}.access (
        scope text NOT NULL, key text COLLATE "C" NOT NULL, count bigint NOT NULL, at_ms bigint NOT NULL,
        PRIMARY KEY (scope, key)
    )""",
)
TABLES = (
    "CREATE TABLE IF NOT EXISTS {schema}.state (id int PRIMARY KEY CHECK (id = 1), key_check text NOT NULL)",
    """
    CREATE TABLE IF NOT EXISTS {schema}.entries (
        scope text NOT NULL, key text COLLATE "C" NOT NULL, tenant text NOT NULL, revision bigint NOT NULL,
        kind smallint NOT NULL, at_ms bigint NOT NULL, expires_at_ms bigint NOT NULL, sample int NOT NULL,
        length int NOT NULL, lexemes bigint[] NOT NULL, counts smallint[] NOT NULL, embed boolean NOT NULL,
        key_id text NOT NULL, subject text NOT NULL, text_key bytea NOT NULL,
        PRIMARY KEY (scope, key)
    )""",
    """
    CREATE INDEX IF NOT EXISTS entries_lexemes ON {schema}.entries USING gin (lexemes)
        WITH (gin_pending_list_limit = 512)""",
    "CREATE INDEX IF NOT EXISTS entries_sample ON {schema}.entries (scope, sample)",
    "CREATE INDEX IF NOT EXISTS entries_subject ON {schema}.entries (tenant, subject) WHERE subject <> ''",
    "CREATE INDEX IF NOT EXISTS entries_key_id ON {schema}.entries (key_id) WHERE key_id <> ''",
    """
    CREATE TABLE IF NOT EXISTS {schema}.pending (
        scope text NOT NULL, key text COLLATE "C" NOT NULL, tenant text NOT NULL, revision bigint NOT NULL,
        attempts smallint NOT NULL, retry_at_ms bigint NOT NULL,
        PRIMARY KEY (scope, key)
    )""",
    "CREATE INDEX IF NOT EXISTS pending_time ON {schema}.pending (retry_at_ms) WHERE attempts < 5",
)
KEPT_VECTOR_TABLES = (
    """
    CREATE TABLE IF NOT EXISTS {kept}.sets (
        id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, provider text NOT NULL, model text NOT NULL,
        dimension int NOT NULL, is_active boolean NOT NULL, is_target boolean NOT NULL,
        UNIQUE (provider, model, dimension)
    )""",
    """
    CREATE TABLE IF NOT EXISTS {kept}.embeddings (
        set_id int NOT NULL, text_key bytea NOT NULL, tenant text NOT NULL, key_id text NOT NULL,
        subject text NOT NULL, embedding {vector}.halfvec NOT NULL,
        PRIMARY KEY (text_key, set_id)
    )""",
    "CREATE INDEX IF NOT EXISTS embeddings_subject ON {kept}.embeddings (tenant, subject) WHERE subject <> ''",
    "CREATE INDEX IF NOT EXISTS embeddings_key_id ON {kept}.embeddings (key_id) WHERE key_id <> ''",
)
VECTOR_TABLES = (
    """
    CREATE TABLE IF NOT EXISTS {schema}.vectors (
        set_id int NOT NULL, scope text NOT NULL, key text COLLATE "C" NOT NULL, tenant text NOT NULL,
        revision bigint NOT NULL, kind smallint NOT NULL, embedding {vector}.halfvec NOT NULL,
        PRIMARY KEY (scope, key, set_id)
    )""",
    # Vectors of up to 4,000 dimensions stay in their row: read out of line, each costs a further look-up.
    "ALTER TABLE {schema}.vectors SET (toast_tuple_target = 8160)",
)


OF_PLACES = """
    DELETE FROM {table} t USING unnest(%s::text[], %s::text[]) AS p(scope, key)
    WHERE (t.scope, t.key) = (p.scope, p.key)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSchemas:
    """Where the index is. `vector`: schema of pgvector; empty: there is none, and no vectors."""

    kept: str
    schema: str
    vector: str

    def statement(self, template: str, **more: sql.Composable) -> sql.Composed:
        """Return a statement with the names of the schemas filled in: {kept}, {schema} and {vector}."""
        names = {name: sql.Identifier(getattr(self, name) or "public") for name in ("kept", "schema", "vector")}
        return sql.SQL(template).format(**names, **more)

    @cache  # noqa: B019 - a process has one of these
    def rendered(self, template: str) -> bytes:
        """Return `statement` as bytes, made once."""
        return render_statement(self.statement(template))

    @cache  # noqa: B019 - a process has one of these
    def delete_places(self, table: str) -> bytes:
        """Return the statement that deletes rows of a table by arrays of scopes and keys."""
        schema = self.kept if table == "access" else self.schema
        return render_statement(sql.SQL(OF_PLACES).format(table=sql.Identifier(schema, table)))

    @property
    def place_tables(self) -> tuple[str, ...]:
        """The tables of this version with rows of an entry, in the order in which they are locked."""
        return ("entries", "pending", "vectors") if self.vector else ("entries", "pending")


def index_schema(prefix: str = PREFIX) -> str:
    """Return the schema of this version, beside those of the projections with that prefix."""
    return f"{prefix}{SUFFIX}_{VERSION}"


async def prepare_index(connection: psycopg.AsyncConnection[Any], key_check: str, prefix: str = PREFIX) -> IndexSchemas:
    """Create what is missing, and empty what was made with another key of the hashes (`key_check`: LexemeHasher.check).
    Idempotent; only the writer calls it.
    """
    await _make_extension(connection)
    schemas = await find_schemas(connection, prefix)
    async with connection.transaction():
        for name in (schemas.kept, schemas.schema):
            await connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(name)))
        await create_tables(connection, cursors_metadata, schemas.schema)
        vector_tables = (*KEPT_VECTOR_TABLES, *VECTOR_TABLES) if schemas.vector else ()
        for statement in (*KEPT_TABLES, *TABLES, *vector_tables):
            await connection.execute(schemas.statement(statement))
        result = await connection.execute(
            schemas.statement(
                "INSERT INTO {schema}.state AS s VALUES (1, %s) ON CONFLICT (id) DO UPDATE "
                "SET key_check = excluded.key_check WHERE s.key_check <> excluded.key_check RETURNING (xmax <> 0)"
            ),
            (key_check,),
        )
        row = await result.fetchone()
        if row is not None and row[0]:
            await empty_index(connection, schemas)
            if schemas.vector:
                await connection.execute(schemas.statement("TRUNCATE {kept}.embeddings"))
    return schemas


async def find_schemas(connection: psycopg.AsyncConnection[Any], prefix: str = PREFIX) -> IndexSchemas:
    """Return where the index is, or will be."""
    result = await connection.execute(
        "SELECT nspname FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'vector'"
    )
    row = await result.fetchone()
    return IndexSchemas(kept=prefix + SUFFIX, schema=index_schema(prefix), vector=row[0] if row else "")


async def drop_older_versions(connection: psycopg.AsyncConnection[Any], schemas: IndexSchemas) -> list[str]:
    """Drop the schemas of older versions that this one has passed; return their names."""
    result = await connection.execute(
        "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s) ORDER BY nspname", (f"{schemas.kept}_",)
    )
    dropped = []
    for (name,) in await result.fetchall():
        number = name.removeprefix(f"{schemas.kept}_")
        if not number.isdecimal() or int(number) >= VERSION:
            continue
        behind = await connection.execute(
            schemas.statement(
                "SELECT FROM {older}.cursors o LEFT JOIN {schema}.cursors n USING (topic, partition) "
                "WHERE n.next_offset IS NULL OR n.next_offset < o.next_offset",
                older=sql.Identifier(name),
            )
        )
        if behind.rowcount == 0:
            await connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))
            dropped.append(name)
    return dropped


async def empty_index(connection: psycopg.AsyncConnection[Any], schemas: IndexSchemas) -> None:
    """Empty the tables of this version and fence its writer, which then fills them from the log again."""
    async with connection.transaction():
        tables = sql.SQL(", ").join(sql.Identifier(schemas.schema, name) for name in schemas.place_tables)
        await connection.execute(
            schemas.statement("UPDATE {schema}.cursors SET next_offset = 0, term = -1, epoch = epoch + 1")
        )
        await connection.execute(schemas.statement("TRUNCATE {tables}", tables=tables))


@asynccontextmanager
async def connection_of(pool: AsyncConnectionPool[Any]) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Lend a connection of a pool. Raises Transient or Permanent."""
    async with translate_errors("use the search index of memory"), pool.connection() as connection:
        yield connection


async def _make_extension(connection: psycopg.AsyncConnection[Any]) -> None:
    """Create pgvector if it can be; a server without it, or a user without the right, leaves the index without it."""
    result = await connection.execute(
        "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector' AND installed_version IS NULL)"
    )
    row = await result.fetchone()
    if row is not None and row[0]:
        try:
            await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UniqueViolation):
            return
