"""Blue-green builds: every build of the projections has a Postgres schema of its own, and readers see one of them.

    loom_1, loom_2, ...   the tables of a build (tables.metadata), written by one projector
    loom                  a view for each table, onto the live build; `builds`, the list; `projector_status`
    loom_entities, ...    the same for the entity topics, which are projected and rebuilt by themselves
    loom_channels, ...    the same tables for the channel topics, with cursors and versions of their own

A new build is filled from offset 0 while the live one serves, compared with it and switched to (rebuild.py). The switch
replaces all views in one transaction, so readers never see two builds at once. The previous build is kept for a
rollback, older ones are dropped. A build carries the version of the fold that made it: a projector never writes into a
build of another version.

Rows are derived from the log alone (no now(), nothing random), so two builds of one version at one position are equal
to the byte. `table_hashes` proves it; the hash of a table does not depend on the order of its rows.

Not chosen: emptying and refilling in place (readers would see a hole), a rename of schemas (it waits for every reader).
Before: connectors/storage/postgres.py. After: projection.py writes, the API reads.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from sqlalchemy import BigInteger, Column, DateTime, MetaData, Table, Text, func, select

from loomlog.connectors.storage.postgres import PostgresReader, create_tables
from loomlog.projections import audit, entities, entity_items, interrupts, problems, runs, transcript, usage
from loomlog.projections.engine import cursors
from loomlog.projections.engine.batch import Cursor
from loomlog.projections.tables import entity_metadata, in_schema, metadata

VERSION = 15
"""Version of tables and fold. Raise it whenever the same events give other rows; the projector then rebuilds."""
PREFIX = "loom"
ENTITY_SUFFIX = "_entities"
"""Added to a prefix it names the schemas of entities beside those of runs."""
TABLES = (
    runs.runs,
    transcript.transcript,
    usage.usage,
    interrupts.interrupts,
    audit.audit,
    problems.problems,
    cursors.cursors,
)
COMPARED = tuple(table.name for table in TABLES if table is not cursors.cursors)
"""Tables that are equal in two builds at one position; `cursors` differs by its writer."""
ENTITY_VERSION = 3
"""Version of the tables of entities; each family's fold has a version of its own (Rules.version)."""
CHANNEL_SUFFIX = "_channels"
"""The same for the aggregates of the channel topics."""
CHANNEL_VERSION = 1
"""Version of their tables. Their rows cannot be made from events that are deleted (decision 42)."""
LIVE, BUILDING, PREVIOUS = "live", "building", "previous"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSet:
    """The tables of one kind of build."""

    prefix: str
    """First part of the names of its schemas."""
    metadata: MetaData
    version: int
    compared: tuple[str, ...]
    """Tables that are equal in two builds at one position."""
    by_family: Mapping[str, str] = field(default_factory=dict)
    """Tables whose rows a fold of a family makes, with the SQL expression for the family of a row."""

    expiring: frozenset[str] = frozenset()
    """Tables with rows that may be deleted after their `expires_at_ms`, so that one build may lack them."""

    is_log_kept: bool = True
    """Whether the topic has every event; False: old ones are deleted, and the rows outlive them."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.metadata.tables)


RUN_TABLES = TableSet(prefix=PREFIX, metadata=metadata, version=VERSION, compared=COMPARED)
ENTITY_TABLES = TableSet(
    prefix=PREFIX + ENTITY_SUFFIX,
    metadata=entity_metadata,
    version=ENTITY_VERSION,
    compared=(
        entities.entities.name,
        entities.entity_commands.name,
        entity_items.entity_items.name,
        problems.entity_problems.name,
    ),
    # Not the commands: they are read from the envelopes, which no fold changes.
    expiring=frozenset({entity_items.entity_items.name}),
    by_family={
        entities.entities.name: "family",
        entity_items.entity_items.name: "family",
        problems.entity_problems.name: "split_part(run_id, ':', 1)",
        entities.entity_folds.name: "family",
    },
)
CHANNEL_TABLES = dataclasses.replace(
    ENTITY_TABLES, prefix=PREFIX + CHANNEL_SUFFIX, version=CHANNEL_VERSION, is_log_kept=False
)

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
    """A row of `builds`."""

    number: int
    state: str
    """live, building or previous."""
    version: int
    made_at: Any
    switched_at: Any


class StatusRow(NamedTuple):
    """The projector's last status report; an old `at` means that it is not running."""

    topic: str
    owner: str
    build: int
    state: str
    events_behind: int
    lag_ms: int
    """Greatest delay from a record to its row since the previous status."""
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
    """Names that belong to one build."""

    prefix: str
    number: int

    @property
    def schema(self) -> str:
        return f"{self.prefix}_{self.number}"

    @property
    def channel(self) -> str:
        """NOTIFY channel for commits."""
        return f"{self.prefix}_positions"

    def announcement(self, topic: str, advanced: Sequence[Cursor]) -> str:
        """NOTIFY payload of a commit: build, topic, then partition:next_offset of each advanced partition."""
        return f"{self.number} {topic} {' '.join(f'{c.partition}:{c.next_offset}' for c in advanced)}"


class Builds:
    """The builds under one prefix, over a connection in autocommit mode. Errors are the driver's."""

    def __init__(
        self, connection: psycopg.AsyncConnection[Any], prefix: str = "", tables: TableSet = RUN_TABLES
    ) -> None:
        """`prefix`: another one than that of the tables, for tests."""
        self._connection = connection
        self._tables = tables
        self._prefix = prefix or tables.prefix

    def build(self, number: int) -> Build:
        return Build(prefix=self._prefix, number=number)

    async def prepare(self) -> None:
        """Creates the shared schema and, the first time, build 1 with its views. Idempotent."""
        async with self._connection.transaction():
            await self._lock_builds()
            await self._execute("CREATE SCHEMA IF NOT EXISTS {}", self._prefix)
            await create_tables(self._connection, shared, self._prefix)
            if not await self.list_builds():
                build = await self._make(1)
                await self._switch(build)

    async def list_builds(self) -> list[BuildRow]:
        """All builds, oldest first."""
        result = await self._execute("SELECT * FROM {} ORDER BY number", self._prefix, "builds")
        return [BuildRow._make(row) for row in await result.fetchall()]

    async def live(self) -> BuildRow:
        """The build that readers see. `prepare` must have been called once."""
        return next(build for build in await self.list_builds() if build.state == LIVE)

    async def reserve_rebuild(self) -> bool:
        """Takes the rebuild lock, held until this connection closes; False if another connection has it."""
        return await self._reserve(f"{self._prefix}.rebuild")

    async def reserve_projecting(self, topic: str) -> bool:
        """Takes the lock to project the topic, held until this connection closes; False if another connection has it.

        Only a hint that keeps a standby waiting: the epoch (cursors.py) is what makes a takeover safe.
        """
        return await self._reserve(f"{self._prefix}.projector.{topic}")

    async def make(self) -> Build:
        """Creates an empty build, and drops one that an earlier rebuild left unfinished."""
        async with self._connection.transaction():
            await self._lock_builds()
            existing = await self.list_builds()
            for row in existing:
                if row.state == BUILDING:
                    await self._drop(row.number)
            return await self._make(max(row.number for row in existing) + 1)

    async def switch(self, build: Build) -> None:
        """Makes the build live; call it in a transaction. The former live build becomes a previous one."""
        await self._lock_builds()
        await self._switch(build)

    async def drop_unused(self) -> list[int]:
        """Drops all but the live build and the newest previous one; returns the dropped numbers."""
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

    async def move_families(self, build: Build, families: frozenset[str], topic: str) -> None:
        """Replaces the rows of these families in the live build by those of `build`; call it in a transaction.

        The projector of the topic is fenced, because the states it has cached are void.
        """
        live = self.build((await self.live()).number)
        for name, family in self._tables.by_family.items():
            target, source = sql.Identifier(live.schema, name), sql.Identifier(build.schema, name)
            condition = sql.SQL(family + " = ANY(%s)")
            await self._connection.execute(
                sql.SQL("DELETE FROM {} WHERE ").format(target) + condition, (sorted(families),)
            )
            await self._connection.execute(
                sql.SQL("INSERT INTO {} SELECT * FROM {} WHERE ").format(target, source) + condition,
                (sorted(families),),
            )
        await self._connection.execute(
            sql.SQL("UPDATE {} SET epoch = epoch + 1 WHERE topic = %s").format(sql.Identifier(live.schema, "cursors")),
            (topic,),
        )

    async def table_hashes(
        self, number: int, families: frozenset[str] | None = None, *, expired_before_ms: int = 0
    ) -> dict[str, TableHash]:
        """Row count and digest of every compared table, or of the rows that folds of these families make.

        Reads the tables whole, without the rows that have expired before a time: one of the builds may lack them.
        """
        hashes = {}
        by_family = self._tables.by_family
        for name in self._tables.compared:
            if families is not None and name not in by_family:
                continue
            query = "SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0)::text FROM {} t"
            conditions, parameters = list[str](), list[Any]()
            if families is not None:
                conditions.append(f"{by_family[name]} = ANY(%s)")
                parameters.append(sorted(families))
            if name in self._tables.expiring:
                conditions.append("(expires_at_ms = 0 OR expires_at_ms >= %s)")
                parameters.append(expired_before_ms)
            where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
            result = await self._connection.execute(
                sql.SQL(query + where).format(sql.Identifier(self.build(number).schema, name)), parameters
            )
            row = await result.fetchone()
            assert row is not None
            hashes[name] = TableHash._make(row)
        return hashes

    async def positions(self, number: int, topic: str, *, lock: bool = False) -> dict[int, int]:
        """Next offset of each partition of a build. `lock` blocks its writer until the transaction ends."""
        query = "SELECT partition, next_offset FROM {} WHERE topic = %s ORDER BY partition"
        result = await self._connection.execute(
            sql.SQL(query + (" FOR UPDATE" if lock else "")).format(
                sql.Identifier(self.build(number).schema, "cursors")
            ),
            (topic,),
        )
        return dict(await result.fetchall())

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
        result = await self._connection.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", (name,))
        row = await result.fetchone()
        assert row is not None
        return bool(row[0])

    async def _make(self, number: int) -> Build:
        build = self.build(number)
        await self._execute("CREATE SCHEMA {}", build.schema)
        await create_tables(self._connection, self._tables.metadata, build.schema)
        await self._connection.execute(
            sql.SQL("INSERT INTO {} (number, state, version) VALUES (%s, %s, %s)").format(
                sql.Identifier(self._prefix, "builds")
            ),
            (number, BUILDING, self._tables.version),
        )
        return build

    async def _switch(self, build: Build) -> None:
        for name in self._tables.names:
            view = sql.Identifier(self._prefix, name)
            # Not CREATE OR REPLACE: the columns of another version may differ.
            await self._connection.execute(sql.SQL("DROP VIEW IF EXISTS {}").format(view))
            await self._connection.execute(
                sql.SQL("CREATE VIEW {} AS SELECT * FROM {}").format(view, sql.Identifier(build.schema, name))
            )
        builds_table = sql.Identifier(self._prefix, "builds")
        await self._connection.execute(
            sql.SQL("UPDATE {} SET state = %s WHERE state = %s").format(builds_table), (PREVIOUS, LIVE)
        )
        await self._connection.execute(
            sql.SQL("UPDATE {} SET state = %s, switched_at = now() WHERE number = %s").format(builds_table),
            (LIVE, build.number),
        )

    async def _drop(self, number: int) -> None:
        await self._execute("DROP SCHEMA IF EXISTS {} CASCADE", self.build(number).schema)
        await self._connection.execute(
            sql.SQL("DELETE FROM {} WHERE number = %s").format(sql.Identifier(self._prefix, "builds")), (number,)
        )

    async def _lock_builds(self) -> None:
        """Serializes changes of the list; the lock ends with the transaction."""
        await self._connection.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"{self._prefix}.builds",)
        )

    async def _execute(self, template: str, *name: str) -> psycopg.AsyncCursor[Any]:
        return await self._connection.execute(sql.SQL(template).format(sql.Identifier(*name)))


async def has_status(reader: PostgresReader, prefix: str = PREFIX) -> bool:
    """Whether a projector has created its tables. Reading a missing table would be an error in the server's log."""
    rows = await reader.fetch(select(func.to_regclass(f"{prefix}.{projector_status.name}").is_not(None)))
    return bool(rows[0][0])


async def read_status(reader: PostgresReader, prefix: str = "") -> list[StatusRow]:
    """The projectors' last status reports, one row per topic; of the reader's read model, or of another one."""
    table = in_schema(projector_status, prefix)
    rows = await reader.fetch(select(table).order_by(table.c.topic))
    return [StatusRow._make(row) for row in rows]


async def read_builds(reader: PostgresReader) -> list[BuildRow]:
    """All builds of the reader's read model, oldest first."""
    rows = await reader.fetch(select(builds).order_by(builds.c.number))
    return [BuildRow._make(row) for row in rows]
