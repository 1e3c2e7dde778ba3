"""Postgres: connections, reads over a bounded pool, tables from their definitions, and error translation.

There are two ways in. `connect` returns a plain psycopg connection for the projector's hot writes and for LISTEN.
`open_reader` returns a reader: statements of SQLAlchemy Core, compiled here and sent by psycopg over a pool. Both
connect in the same way, with a bounded connect time, TCP keepalives (a vanished server is noticed in about half a
minute; nothing else bounds a wait on a socket) and TLS as the connection string or the given parameters configure it.

`json` columns are returned as text, not parsed: they were stored in the form clients receive.

`translate_errors` turns every driver error into Transient or Permanent, by SQLSTATE where there is one. A violated
constraint or type (a duplicate key, a text in a number column) is Permanent too: the same call will fail again.

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
"""Connection timeout."""
KEEPALIVE = {"keepalives": "1", "keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "3"}
"""A dead peer is noticed after 10 + 3 * 5 seconds."""
POOL_WAIT_S = 5.0
"""A read that gets no connection within this time fails as overloaded."""
WAITING_READS_MAX = 1_000
"""Maximum reads waiting for a connection; more fail at once, so that a stalled server does not fill our memory."""
STATEMENTS_MAX = 1_000
"""Maximum statements kept compiled; there are some hundred shapes."""
LOCK_TIMEOUT_MS = 10_000
"""A lock held this long is a fault; the waiter fails and retries."""
IDLE_IN_TRANSACTION_TIMEOUT_MS = 30_000
"""An idle client loses its transaction after this time, so that it cannot block others forever."""

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
    """sslmode, sslrootcert, sslcert, sslkey; they override those in the connection string."""
    application_name: str = "loomlog"

    def conninfo(self) -> str:
        """Return the complete connection string. Raises Permanent when `dsn` cannot be parsed."""
        parameters = self._parse_dsn()
        bounds = (
            f"-c lock_timeout={LOCK_TIMEOUT_MS} "
            f"-c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_TIMEOUT_MS} "
            # The server's side of the keepalive: resources of a vanished client are released as soon.
            "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"
        )
        parameters["options"] = f"{bounds} {parameters.get('options', '')}".strip()
        defaults = {
            **KEEPALIVE,
            "connect_timeout": str(CONNECT_TIMEOUT_S),
            "application_name": self.application_name,
        }
        return make_conninfo(**{**defaults, **parameters, **self.tls})

    @property
    def address(self) -> str:
        """Return host, port and database, for messages."""
        parameters = self._parse_dsn()
        return f"{parameters.get('host', 'localhost')}:{parameters.get('port', '5432')}/{parameters.get('dbname', '')}"

    def _parse_dsn(self) -> dict[str, str]:
        try:
            return {name: str(value) for name, value in conninfo_to_dict(self.dsn).items() if value is not None}
        except psycopg.Error:
            # Without the driver's message, which quotes the string, and that may contain a password.
            raise Permanent(
                "the Postgres connection string cannot be read: expected postgresql://user@host:port/database "
                "or key=value pairs; see LOOMLOG_POSTGRES",
                kind="invalid",
            ) from None


async def connect(options: PostgresOptions) -> psycopg.AsyncConnection[Any]:
    """Open a connection in autocommit mode: transactions are begun explicitly. Raises Transient or Permanent."""
    conninfo = options.conninfo()
    async with translate_errors(f"connect to Postgres at {options.address}"):
        connection = await psycopg.AsyncConnection.connect(conninfo, autocommit=True)
    connection.adapters.register_loader("json", TextLoader)
    return connection


class StatementCache:
    """Compiles SELECTs, each shape once: 0.05 ms instead of 0.5 for a row of runs (measured with SQLAlchemy 2.1 on
    Python 3.11), on a road that every read takes.
    """

    def __init__(self, schema: str) -> None:
        """`schema` is searched for tables without a schema."""
        self.compilations = 0
        self._options: dict[str, Any] = {
            "dialect": DIALECT(),
            "schema_translate_map": {None: schema},
            "render_schema_translate": True,
            "compile_kwargs": {"render_postcompile": True},
        }
        self._compiled: dict[Any, Any] = {}

    def compile(self, statement: Select[Any]) -> tuple[str, Mapping[str, Any]]:
        """Return the text and the parameters of a statement."""
        key = statement._generate_cache_key()
        compiled = None if key is None else self._compiled.get(key.key)
        if compiled is None or key is None:
            self.compilations += 1
            compiled = statement.compile(**self._options, cache_key=key)
            if key is not None and not compiled.post_compile_params:  # those depend on the number of values
                if len(self._compiled) >= STATEMENTS_MAX:
                    self._compiled.clear()
                self._compiled[key.key] = compiled
            return compiled.string, compiled.params
        return compiled.string, compiled.construct_params(extracted_parameters=key.bindparams)


class PostgresReader:
    """Reads rows. `schema` is searched for tables without a schema. Create it with `open_reader`."""

    def __init__(self, pool: AsyncConnectionPool[Any], schema: str) -> None:
        self._pool = pool
        self.schema = schema
        self.statements = StatementCache(schema)

    async def fetch(self, statement: Select[Any]) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT, which is a transaction of its own. Raises Transient or Permanent."""
        text, parameters = self.statements.compile(statement)
        async with translate_errors("read from the projections"):
            async with self._pool.connection() as connection:
                try:
                    return await _fetch_all(connection, text, parameters)
                except psycopg.OperationalError:
                    if not connection.closed:
                        raise
            # The connection died while it was idle, as all do when the server restarts.
            await self._pool.check()
            async with self._pool.connection() as connection:
                return await _fetch_all(connection, text, parameters)

    async def close(self) -> None:
        """Close the connections; reads in progress fail."""
        await self._pool.close()


async def _fetch_all(
    connection: psycopg.AsyncConnection[Any], text: str, parameters: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    answer = await connection.execute(text, parameters)
    return await answer.fetchall()


async def open_reader(
    options: PostgresOptions, *, schema: str, max_connections: int = 10, min_connections: int = 1
) -> PostgresReader:
    """Open a reader with a number of connections. An unreachable server fails the reads, not this call."""
    pool = await open_pool(
        options, max_connections=max_connections, min_connections=min_connections, check_each_use=False
    )
    return PostgresReader(pool, schema)


async def open_pool(
    options: PostgresOptions,
    *,
    max_connections: int = 10,
    min_connections: int = 1,
    session: Mapping[str, str] | None = None,
    check_each_use: bool = True,
) -> AsyncConnectionPool[Any]:
    """Open a pool of connections in autocommit mode. `session`: parameters of Postgres, set in each of them.

    `check_each_use`: a connection that died while idle is replaced before it is used, at the price of a round trip.
    """

    async def configure(connection: psycopg.AsyncConnection[Any]) -> None:
        await _configure_connection(connection)
        for name, value in (session or {}).items():
            await connection.execute("SELECT set_config(%s, %s, false)", (name, value))

    pool = AsyncConnectionPool(
        options.conninfo(),
        kwargs={"autocommit": True},
        min_size=min(min_connections, max_connections),
        max_size=max_connections,
        timeout=POOL_WAIT_S,
        max_waiting=WAITING_READS_MAX,
        configure=configure,
        check=AsyncConnectionPool.check_connection if check_each_use else None,
        open=False,
    )
    await pool.open()
    return pool


async def _configure_connection(connection: psycopg.AsyncConnection[Any]) -> None:
    connection.adapters.register_loader("json", TextLoader)
    # Prepared plans would not survive a switch of the views to another build.
    connection.prepare_threshold = None


async def create_tables(connection: psycopg.AsyncConnection[Any], metadata: MetaData, schema: str) -> None:
    """Create the tables and indexes in that schema; existing ones are unchanged."""
    async with translate_errors(f"make tables in schema {schema}"), connection.transaction():
        await connection.execute(sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(schema)))
        dialect = DIALECT()
        for table in metadata.sorted_tables:
            await connection.execute(str(CreateTable(table, if_not_exists=True).compile(dialect=dialect)))
            for index in sorted(table.indexes, key=lambda index: str(index.name)):
                await connection.execute(str(CreateIndex(index, if_not_exists=True).compile(dialect=dialect)))


@asynccontextmanager
async def translate_errors(action: str) -> AsyncIterator[None]:
    """Translate driver errors inside into Transient or Permanent; `action` is named in the message."""
    try:
        yield
    except (psycopg.Error, OSError) as error:
        raise to_connector_error(action, error) from error


def to_connector_error(action: str, error: psycopg.Error | OSError) -> ConnectorError:
    """Return the ConnectorError for a driver error."""
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
    """Return the SQLSTATE of a failed connect, which libpq reports as text only; empty when unknown."""
    text = str(error)
    if "authentication failed" in text or "no pg_hba.conf entry" in text or "no password supplied" in text:
        return "28000"
    if "does not exist" in text and ("database" in text or "role" in text):
        return "3D000"
    if "too many clients" in text or "remaining connection slots" in text:
        return "53300"
    return ""
