"""Postgres: connections, reads over a bounded pool, tables from their definitions, and the two kinds of errors.

Two ways in. `connect` gives a plain psycopg connection for the projector's hot writes and for LISTEN. `open_reader`
gives reads: statements of SQLAlchemy Core, compiled here and sent by psycopg over a pool. Both reach the server in the
same way, with a bounded connect time, TCP keepalives (a server that vanished is noticed in about half a minute, a wait
on a socket has no other end) and TLS as the connection string or the given parameters say.

`json` columns come back as text, not parsed: what a client is to get was stored as it is to be sent.

`translate_errors` turns every error of the drivers into Transient or Permanent, by SQLSTATE where there is one. A
broken promise of our own (a unique key twice, a text in a number column) is Permanent too: the same call will fail
again.

Not chosen: SQLAlchemy's async engine (it needs greenlet and a second layer of connections for nothing we use), asyncpg
(no pipeline mode, and no COPY that takes rows as they are).
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.string import TextLoader
from psycopg_pool import AsyncConnectionPool, PoolTimeout, TooManyRequests
from sqlalchemy import MetaData, Select
from sqlalchemy.dialects.postgresql import psycopg as dialect_of_psycopg
from sqlalchemy.schema import CreateIndex, CreateTable

from loomlog.connectors.errors import ConnectorError, Permanent, Transient

CONNECT_TIMEOUT_S = 5
"""A server that does not answer for this long is away."""
KEEPALIVE = {"keepalives": "1", "keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "3"}
"""A dead peer is noticed after 10 + 3 * 5 seconds."""
POOL_WAIT_S = 5.0
"""A read that gets no connection for this long fails as overloaded."""
WAITING_READS_MAX = 1_000
"""Reads that wait for a connection; more fail at once, so that a stalled server does not fill our memory."""
LOCK_TIMEOUT_MS = 10_000
"""A lock that is held this long is a fault; the waiter gives up and comes again."""
IDLE_IN_TRANSACTION_TIMEOUT_MS = 30_000
"""A client that sleeps in a transaction loses it, so that it cannot hold up the others for ever."""

DIALECT: Any = dialect_of_psycopg.dialect  # untyped in SQLAlchemy

PERMANENT_STATES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("28",), "unauthorised"),
    (("3D", "3F000", "42P01", "42703", "42883"), "not_found"),  # database, schema, table, column, function
    (("42501",), "forbidden"),
)
TRANSIENT_STATES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("53", "57P03"), "overloaded"),  # resources, starting up
    (("57014", "55P03", "25P03", "25P04", "57P05"), "timeout"),  # of a statement, lock, transaction, idle session
    (("08", "40", "57", "58", "XX"), "broken_off"),  # connection, rollback and deadlock, shutdown, I/O, internal
)
"""SQLSTATE by prefix, the first that fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresOptions:
    """How to reach the server. `dsn` may hold a password, so it never shows in repr."""

    dsn: str = field(repr=False)
    """A libpq connection string, key=value or postgresql:// URL."""
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)
    """sslmode, sslrootcert, sslcert, sslkey; they win over those in the connection string."""
    application_name: str = "loomlog"

    def conninfo(self) -> str:
        """The connection string in full. Raises Permanent when the given one cannot be read."""
        given = self._parse_dsn()
        bounds = (
            f"-c lock_timeout={LOCK_TIMEOUT_MS} "
            f"-c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_TIMEOUT_MS} "
            # The server's side of the keepalive: what a vanished client held is free again as soon.
            "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"
        )
        given["options"] = f"{bounds} {given.get('options', '')}".strip()
        defaults = {
            **KEEPALIVE,
            "connect_timeout": str(CONNECT_TIMEOUT_S),
            "application_name": self.application_name,
        }
        return make_conninfo(**{**defaults, **given, **self.tls})

    @property
    def address(self) -> str:
        """Host, port and database, for messages."""
        given = self._parse_dsn()
        return f"{given.get('host', 'localhost')}:{given.get('port', '5432')}/{given.get('dbname', '')}"

    def _parse_dsn(self) -> dict[str, str]:
        try:
            return {name: str(value) for name, value in conninfo_to_dict(self.dsn).items() if value is not None}
        except psycopg.Error:
            # Without the driver's words, which quote the string, and that may be a password.
            raise Permanent(
                "the Postgres connection string cannot be read: expected postgresql://user@host:port/database "
                "or key=value pairs; see LOOMLOG_POSTGRES",
                kind="invalid",
            ) from None


async def connect(options: PostgresOptions) -> psycopg.AsyncConnection[Any]:
    """A connection in autocommit mode: transactions are begun where they are meant. Raises Transient or Permanent."""
    conninfo = options.conninfo()
    async with translate_errors(f"connect to Postgres at {options.address}"):
        connection = await psycopg.AsyncConnection.connect(conninfo, autocommit=True)
    connection.adapters.register_loader("json", TextLoader)
    return connection


class PostgresReader:
    """Reads rows. `schema` is where tables without a schema are looked for. Make it with `open_reader`."""

    def __init__(self, pool: AsyncConnectionPool[Any], schema: str) -> None:
        self._pool = pool
        self._options: dict[str, Any] = {
            "dialect": DIALECT(),
            "schema_translate_map": {None: schema},
            "render_schema_translate": True,
            "compile_kwargs": {"render_postcompile": True},
        }

    async def fetch(self, statement: Select[Any]) -> list[tuple[Any, ...]]:
        """The rows of a SELECT, which is a transaction of its own. Raises Transient or Permanent."""
        compiled = statement.compile(**self._options)
        async with translate_errors("read from the projections"), self._pool.connection() as connection:
            answer = await connection.execute(str(compiled), compiled.params)
            rows: list[tuple[Any, ...]] = await answer.fetchall()
            return rows

    async def close(self) -> None:
        """Closes the connections; reads under way fail."""
        await self._pool.close()


async def open_reader(
    options: PostgresOptions, *, schema: str, max_connections: int = 10, min_connections: int = 1
) -> PostgresReader:
    """A reader with that many connections. A server that is away shows in the reads, not here."""
    pool = AsyncConnectionPool(
        options.conninfo(),
        kwargs={"autocommit": True},
        min_size=min(min_connections, max_connections),
        max_size=max_connections,
        timeout=POOL_WAIT_S,
        max_waiting=WAITING_READS_MAX,
        configure=_configure_connection,
        # A connection that died while it was idle is replaced before it is given to a read.
        check=AsyncConnectionPool.check_connection,
        open=False,
    )
    await pool.open()
    return PostgresReader(pool, schema)


async def _configure_connection(connection: psycopg.AsyncConnection[Any]) -> None:
    connection.adapters.register_loader("json", TextLoader)
    # Plans the server has kept would not survive a switch of the views to another build.
    connection.prepare_threshold = None


async def create_tables(connection: psycopg.AsyncConnection[Any], metadata: MetaData, schema: str) -> None:
    """Makes the tables and indexes in that schema; those that exist stay as they are."""
    async with translate_errors(f"make tables in schema {schema}"), connection.transaction():
        await connection.execute(sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(schema)))
        dialect = DIALECT()
        for table in metadata.sorted_tables:
            await connection.execute(str(CreateTable(table, if_not_exists=True).compile(dialect=dialect)))
            for index in sorted(table.indexes, key=lambda index: str(index.name)):
                await connection.execute(str(CreateIndex(index, if_not_exists=True).compile(dialect=dialect)))


@asynccontextmanager
async def translate_errors(action: str) -> AsyncIterator[None]:
    """Errors of the drivers inside become Transient or Permanent; `what` says what was tried."""
    try:
        yield
    except (psycopg.Error, OSError) as error:
        raise to_connector_error(action, error) from error


def to_connector_error(action: str, error: psycopg.Error | OSError) -> ConnectorError:
    """The error of ours for one of a driver."""
    if isinstance(error, PoolTimeout | TooManyRequests):
        return Transient(
            f"{action}: no connection came free in {POOL_WAIT_S:g} s; Postgres is away or slow, or the pool "
            "is too small",
            kind="overloaded",
        )
    text = f"{action}: {type(error).__name__}: {' '.join(str(error).split())}"
    if isinstance(error, OSError):
        return Transient(text, kind="network")
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return Transient(text, kind="timeout")
    state = error.sqlstate or _infer_sqlstate(error)
    for states, kind in PERMANENT_STATES:
        if state.startswith(states):
            return Permanent(text, kind=kind)
    for states, kind in TRANSIENT_STATES:
        if state.startswith(states):
            return Transient(text, kind=kind)
    if not state and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return Transient(text, kind="unavailable")
    return Permanent(text, kind="invalid")


def _infer_sqlstate(error: psycopg.Error) -> str:
    """SQLSTATE of a failed connect, which libpq gives as text only; empty when the text does not say."""
    text = str(error)
    if "authentication failed" in text or "no pg_hba.conf entry" in text or "no password supplied" in text:
        return "28000"
    if "does not exist" in text and ("database" in text or "role" in text):
        return "3D000"
    if "too many clients" in text or "remaining connection slots" in text:
        return "53300"
    return ""
