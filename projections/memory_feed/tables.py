"""Tables of the feed of changes of memory: coordinates of each change, never its value.

    loom_memory_feed.changes        a row for each change, numbered by seq, kept for the retention
    loom_memory_feed.state          one row: version of the tables, the last seq, and where the kept rows begin
    loom_memory_feed.cursors        how far the events were read
    loom_memory_feed.push_cursors   how far each subscription was delivered; survives another version

Another version of the tables is filled again from the log. Its rows continue the numbers, so a seq that a reader has is
never that of another change; what was before them counts as gone.

Before: services/projector/memory_feed.py. After: changes.py, reads.py.
"""

from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from sqlalchemy import BigInteger, Column, DateTime, Index, Integer, MetaData, Table, Text, UniqueConstraint, func

from loomlog.connectors.errors import Transient
from loomlog.connectors.storage.postgres import create_tables
from loomlog.projections.engine.builds import PREFIX
from loomlog.projections.engine.cursors import cursors

VERSION = 1
"""Version of the tables and of what an event becomes. Raise it whenever the same events give other rows."""
FEED_SUFFIX = "_memory_feed"
MEMORY_SET, MEMORY_DELETE, MEMORY_SCOPE_DELETED = "memory.set", "memory.delete", "memory.scope_deleted"
CHUNK_UPDATED, CHUNK_DELETED = "document.chunk.updated", "document.chunk.deleted"
MEMORY_TYPES = frozenset({MEMORY_SET, MEMORY_DELETE, MEMORY_SCOPE_DELETED})
DOCUMENT_TYPES = frozenset({CHUNK_UPDATED, CHUNK_DELETED})


class ChangeRow(NamedTuple):
    """One change of a key or a scope."""

    seq: int
    tenant: str
    type: str
    """One of MEMORY_TYPES or DOCUMENT_TYPES."""
    scope: str
    """agent, user or tenant."""
    scope_id: str
    key: str
    """Empty for a change of a whole scope."""
    at_ms: int
    """Time of the event, UTC milliseconds."""
    partition: int
    offset: int
    part: int
    """Number of the change within its event."""


kept_metadata = MetaData()
metadata = MetaData()
changes = Table(
    "changes",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    *(Column(name, Text, nullable=False) for name in ("tenant", "type", "scope", "scope_id", "key")),
    Column("at_ms", BigInteger, nullable=False),
    Column("partition", BigInteger, nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("part", Integer, nullable=False),
    UniqueConstraint("partition", "offset", "part"),
    Index("changes_at", "at_ms"),
    Index("changes_of_tenant", "tenant", "seq"),
)
feed_cursors = cursors.to_metadata(metadata)
state = Table(
    "state",
    kept_metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", BigInteger, nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("floor_seq", BigInteger, nullable=False),
)
push_cursors = Table(
    "push_cursors",
    kept_metadata,
    Column("subscription", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)


def feed_schema(prefix: str = PREFIX) -> str:
    """Return the name of the schema beside those of the projections with that prefix."""
    return prefix + FEED_SUFFIX


async def prepare_feed(connection: psycopg.AsyncConnection[Any], schema: str) -> None:
    """Create what is missing; empty the tables of an older version. Idempotent; only the writer may call it.

    Raises Transient when a newer version has made the tables.
    """
    async with connection.transaction():
        await connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
        await create_tables(connection, kept_metadata, schema)
        state_table = sql.Identifier(schema, state.name)
        await connection.execute(
            sql.SQL("INSERT INTO {} VALUES (1, %s, 0, 0) ON CONFLICT DO NOTHING").format(state_table), (VERSION,)
        )
        result = await connection.execute(sql.SQL("SELECT version FROM {}").format(state_table))
        row = await result.fetchone()
        assert row is not None
        if row[0] > VERSION:
            raise Transient(
                f"the feed of memory is of version {row[0]}, this process writes version {VERSION}: it is older and "
                "writes nothing; upgrade it",
                kind="unavailable",
            )
        if row[0] < VERSION:
            for table in metadata.tables:
                await connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(schema, table)))
            await connection.execute(
                sql.SQL("UPDATE {} SET version = %s, floor_seq = last_seq").format(state_table), (VERSION,)
            )
        await create_tables(connection, metadata, schema)
