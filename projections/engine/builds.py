"""Blue and green: every build of the projections lives in a Postgres schema of its own, readers see one of them.

    loom_1, loom_2, ...   the tables of a build (tables.metadata), written by one projector
    loom                  a view for each table, onto the live build; `builds`, the list; `projector_status`

A build is made beside the live one, filled from offset 0, compared and switched to (rebuild.py); the switch replaces
all views in one transaction, so that readers never see two builds at once. The build before stays for a way back, older
ones are dropped. A build carries the version of the fold that made it: a projector never writes into a build of another
version.

Rows hold nothing but what the log says (no now(), nothing random), so two builds of one version at one position are
equal to the byte. `table_hashes` proves it; the hash of a table does not depend on the order of its rows.

Not chosen: emptying and refilling in place (readers would see a hole), a rename of schemas (it waits for every reader).
Before: connectors/storage/postgres.py. After: run_projection.py writes, the API reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from sqlalchemy import BigInteger, Column, DateTime, MetaData, Table, Text, func, select

from loomlog.connectors.storage.postgres import PostgresReader, create_tables
from loomlog.projections import audit, interrupts, problems, runs, steps, transcript, usage
from loomlog.projections.engine import cursors
from loomlog.projections.engine.batch import Cursor
from loomlog.projections.tables import metadata

VERSION = 9
"""Of the tables and the fold. Raise it whenever the same events give other rows; the projector then rebuilds."""
PREFIX = "loom"
TABLES = (
    runs.runs,
    steps.steps,
    transcript.transcript,
    usage.usage,
    interrupts.interrupts,
    audit.audit,
    problems.problems,
    cursors.cursors,
)
COMPARED = tuple(table.name for table in TABLES if table is not cursors.cursors)
"""Tables that two builds have in common at one position; cursors tell who wrote."""
LIVE, BUILDING, PREVIOUS = "live", "building", "previous"

shared = MetaData()
"""The tables of the schema `loom` itself."""

builds = Table(
    "builds",
    shared,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("made_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("switched_at", DateTime(timezone=True)),
)
projector_status = Table(
    "projector_status",
    shared,
    Column("topic", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("build", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("events_behind", BigInteger, nullable=False),
    Column("lag_ms", BigInteger, nullable=False),
    Column("applied_events", BigInteger, nullable=False),
    Column("stale_records", BigInteger, nullable=False),
    Column("problems", BigInteger, nullable=False),
    Column("at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)


class BuildRow(NamedTuple):
    """A build as it is listed."""

    number: int
    state: str
    """live, building or previous."""
    version: int
    made_at: Any
    switched_at: Any


class StatusRow(NamedTuple):
    """What the projector last said of itself; an old `at` means that it is not running."""

    topic: str
    owner: str
    build: int
    state: str
    events_behind: int
    lag_ms: int
    """Greatest time from a record to its row since the status before."""
    applied_events: int
    stale_records: int
    problems: int
    at: Any


class TableHash(NamedTuple):
    """Number of rows and a digest of them."""

    rows: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One build, by name."""

    prefix: str
    number: int

    @property
    def schema(self) -> str:
        return f"{self.prefix}_{self.number}"

    @property
    def channel(self) -> str:
        """Where commits are announced."""
        return f"{self.prefix}_positions"

    def announcement(self, topic: str, moved: Sequence[Cursor]) -> str:
        """What a commit says: build, topic, then partition:next_offset of each partition it moved."""
        return f"{self.number} {topic} {' '.join(f'{c.partition}:{c.next_offset}' for c in moved)}"


class Builds:
    """The builds under one prefix, over a connection in autocommit mode. Errors are the driver's."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], prefix: str = PREFIX) -> None:
        self._connection = connection
        self._prefix = prefix

    def build(self, number: int) -> Build:
        return Build(prefix=self._prefix, number=number)

    async def prepare(self) -> None:
        """Makes the shared schema and, the very first time, build 1 with its views. Harmless when repeated."""
        async with self._connection.transaction():
            await self._lock_builds()
            await self._execute("CREATE SCHEMA IF NOT EXISTS {}", self._prefix)
            await create_tables(self._connection, shared, self._prefix)
            if not await self.list_builds():
                build = await self._make(1)
                await self._switch(build)

    async def list_builds(self) -> list[BuildRow]:
        """All builds, oldest first."""
        found = await self._execute("SELECT * FROM {} ORDER BY number", self._prefix, "builds")
        return [BuildRow._make(row) for row in await found.fetchall()]

    async def live(self) -> BuildRow:
        """The build that readers see. `prepare` must have been called once."""
        return next(build for build in await self.list_builds() if build.state == LIVE)

    async def reserve_rebuild(self) -> bool:
        """Whether this connection may rebuild: one does at a time, until its connection is closed."""
        return await self._reserve(f"{self._prefix}.rebuild")

    async def reserve_projecting(self, topic: str) -> bool:
        """Whether this connection is the one that projects the topic. A hint that keeps a second projector waiting
        until the first one's connection is gone; what makes it safe is the epoch (cursors.py).
        """
        return await self._reserve(f"{self._prefix}.projector.{topic}")

    async def make(self) -> Build:
        """A new, empty build. One that an earlier rebuild left unfinished is dropped."""
        async with self._connection.transaction():
            await self._lock_builds()
            known = await self.list_builds()
            for row in known:
                if row.state == BUILDING:
                    await self._drop(row.number)
            return await self._make(max(row.number for row in known) + 1)

    async def switch(self, build: Build) -> None:
        """Lets readers see that build; call it in a transaction. The live build before becomes the previous one."""
        await self._lock_builds()
        await self._switch(build)

    async def drop_unused(self) -> list[int]:
        """Drops all but the live build and the newest previous one; gives the numbers dropped."""
        async with self._connection.transaction():
            await self._lock_builds()
            previous = [row.number for row in await self.list_builds() if row.state == PREVIOUS]
            for number in previous[:-1]:
                await self._drop(number)
            return previous[:-1]

    async def drop(self, build: Build) -> None:
        """Drops a build that is not live."""
        async with self._connection.transaction():
            await self._lock_builds()
            assert (await self.live()).number != build.number, "the live build is never dropped"
            await self._drop(build.number)

    async def table_hashes(self, number: int) -> dict[str, TableHash]:
        """Rows and digest of every table that two builds have in common. Reads them whole."""
        found = {}
        for name in COMPARED:
            answer = await self._execute(
                "SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0)::text FROM {} t",
                self.build(number).schema,
                name,
            )
            row = await answer.fetchone()
            assert row is not None
            found[name] = TableHash._make(row)
        return found

    async def positions(self, number: int, topic: str, *, lock: bool = False) -> dict[int, int]:
        """Next offset of each partition of a build. `lock` holds its writer up until the transaction ends."""
        query = "SELECT partition, next_offset FROM {} WHERE topic = %s ORDER BY partition"
        found = await self._connection.execute(
            sql.SQL(query + (" FOR UPDATE" if lock else "")).format(
                sql.Identifier(self.build(number).schema, "cursors")
            ),
            (topic,),
        )
        return dict(await found.fetchall())

    async def write_status(self, status: StatusRow) -> None:
        """Replaces the projector's status of its topic."""
        names = StatusRow._fields[:-1]
        await self._connection.execute(
            sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT (topic) DO UPDATE SET {}, at = now()").format(
                sql.Identifier(self._prefix, "projector_status"),
                sql.SQL(", ").join(map(sql.Identifier, names)),
                sql.SQL(", ").join([sql.Placeholder()] * len(names)),
                sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in names),
            ),
            status[:-1],
        )

    async def _reserve(self, name: str) -> bool:
        found = await self._connection.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", (name,))
        row = await found.fetchone()
        assert row is not None
        return bool(row[0])

    async def _make(self, number: int) -> Build:
        build = self.build(number)
        await self._execute("CREATE SCHEMA {}", build.schema)
        await create_tables(self._connection, metadata, build.schema)
        await self._connection.execute(
            sql.SQL("INSERT INTO {} (number, state, version) VALUES (%s, %s, %s)").format(
                sql.Identifier(self._prefix, "builds")
            ),
            (number, BUILDING, VERSION),
        )
        return build

    async def _switch(self, build: Build) -> None:
        for table in TABLES:
            view = sql.Identifier(self._prefix, table.name)
            # Not CREATE OR REPLACE: the columns of another version may differ.
            await self._connection.execute(sql.SQL("DROP VIEW IF EXISTS {}").format(view))
            await self._connection.execute(
                sql.SQL("CREATE VIEW {} AS SELECT * FROM {}").format(view, sql.Identifier(build.schema, table.name))
            )
        listed = sql.Identifier(self._prefix, "builds")
        await self._connection.execute(
            sql.SQL("UPDATE {} SET state = %s WHERE state = %s").format(listed), (PREVIOUS, LIVE)
        )
        await self._connection.execute(
            sql.SQL("UPDATE {} SET state = %s, switched_at = now() WHERE number = %s").format(listed),
            (LIVE, build.number),
        )

    async def _drop(self, number: int) -> None:
        await self._execute("DROP SCHEMA IF EXISTS {} CASCADE", self.build(number).schema)
        await self._connection.execute(
            sql.SQL("DELETE FROM {} WHERE number = %s").format(sql.Identifier(self._prefix, "builds")), (number,)
        )

    async def _lock_builds(self) -> None:
        """Changes of the list happen one after the other; the lock ends with the transaction."""
        await self._connection.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"{self._prefix}.builds",)
        )

    async def _execute(self, template: str, *name: str) -> psycopg.AsyncCursor[Any]:
        return await self._connection.execute(sql.SQL(template).format(sql.Identifier(*name)))


async def has_status(reader: PostgresReader, prefix: str = PREFIX) -> bool:
    """Whether a projector has made its tables. To read one that is not there is an error in the server's log."""
    found = await reader.fetch(select(func.to_regclass(f"{prefix}.{projector_status.name}").is_not(None)))
    return bool(found[0][0])


async def read_status(reader: PostgresReader) -> list[StatusRow]:
    """What the projectors last said of themselves, one row a topic."""
    found = await reader.fetch(select(projector_status).order_by(projector_status.c.topic))
    return [StatusRow._make(row) for row in found]
