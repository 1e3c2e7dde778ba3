"""Credentials that come with the request of a run: outside the log, encrypted, until the run ends.

There is a row for each run, in a schema that no rebuild of the read models touches. The api writes it before the
command to start the run is in the log, so the owner of the run finds it; the runtime deletes it when the end of the run
is in the log. Leftover rows expire after LIFETIME_S. The values are encrypted for the tenant and the run, so a row that
is copied to another run decrypts to nothing, and a copy of the database without LOOMLOG_SECRET_KEY contains no secret.

The first write creates the table.

Not chosen: the log (it keeps everything), memory of one process (the next owner would not have them), a lease that
owners extend (an installation that is down for a day would lose what its runs need).

Before: services/application/runs/start.py writes, services/runtime/content/run_credentials.py reads.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import orjson
from psycopg import sql
from psycopg_pool import AsyncConnectionPool

from loomlog.connectors.crypto.installation_key import SecretDecryptionError, SecretKey
from loomlog.connectors.errors import Permanent
from loomlog.connectors.storage.postgres import POOL_WAIT_S, PostgresOptions, create_once, translate_errors

LIFETIME_S = 7 * 86_400
"""Lifetime from the request on. A run that takes longer, or is parked longer, continues without them."""
CONNECTIONS = 4
SCHEMA = "loom_secrets"
ENCRYPTION_PURPOSE = "run credentials"
TABLE_LOCK_ID = 4_718_305_117
"""Advisory lock under which the table is created; an otherwise unused number."""


class EncryptedCredentialRows(Protocol):
    """Storage of the encrypted bytes. Raises ConnectorError."""

    async def put(self, run_id: str, sealed: bytes, lifetime_s: float) -> None:
        """Store the row of a run unless there is one: a repeated request brings the same values."""
        ...

    async def get(self, run_id: str) -> bytes | None: ...
    async def delete(self, run_ids: Sequence[str]) -> None: ...
    async def sweep(self) -> int:
        """Delete expired rows; return how many."""
        ...


class RunCredentials:
    """Encrypts and decrypts the credentials of runs. All methods raise ConnectorError."""

    def __init__(self, rows: EncryptedCredentialRows, secret: SecretKey) -> None:
        self._rows = rows
        self._secret = secret

    async def put(self, tenant: str, run_id: str, credentials: Mapping[str, str]) -> None:
        """Store credentials; durable when it returns."""
        sealed = self._secret.encrypt(orjson.dumps(dict(credentials)), ENCRYPTION_PURPOSE, tenant, run_id)
        await self._rows.put(run_id, sealed, LIFETIME_S)

    async def get(self, tenant: str, run_id: str) -> Mapping[str, str]:
        """Return credentials by name; empty when they no longer exist."""
        sealed = await self._rows.get(run_id)
        if sealed is None:
            return {}
        try:
            opened: Mapping[str, str] = orjson.loads(self._secret.decrypt(sealed, ENCRYPTION_PURPOSE, tenant, run_id))
        except SecretDecryptionError as error:
            raise Permanent(f"the credentials of {run_id} cannot be opened: {error}", kind="invalid") from error
        return opened

    async def delete(self, run_ids: Sequence[str]) -> None:
        await self._rows.delete(run_ids)

    async def sweep(self) -> int:
        return await self._rows.sweep()


class PostgresCredentialRows:
    """Protocol EncryptedCredentialRows. Connections are opened when needed and closed by `close`."""

    def __init__(self, options: PostgresOptions, *, schema: str = SCHEMA) -> None:
        self._options = options
        self._schema = sql.Identifier(schema)
        self._table = sql.Identifier(schema, "run_credentials")
        self._pool: AsyncConnectionPool[Any] | None = None
        self._table_exists = False
        """Whether the table was seen. Most installations have none, and querying a missing table is an error in the
        server's log each time.
        """

    async def put(self, run_id: str, sealed: bytes, lifetime_s: float) -> None:
        statement = sql.SQL(
            "INSERT INTO {} (run_id, sealed, expires_at) VALUES (%s, %s, now() + make_interval(secs => %s)) "
            "ON CONFLICT (run_id) DO NOTHING"
        )
        values = (run_id, sealed, lifetime_s)
        if not await self._check_table():
            await self._create_table()
        try:
            await self._execute(statement, values)
        except Permanent as error:
            if error.kind != "not_found":
                raise
            await self._create_table()  # it was dropped meanwhile
            await self._execute(statement, values)

    async def get(self, run_id: str) -> bytes | None:
        rows = await self._execute_if_table_exists(
            sql.SQL("SELECT sealed FROM {} WHERE run_id = %s AND expires_at > now()"), (run_id,)
        )
        return bytes(rows[0][0]) if rows else None

    async def delete(self, run_ids: Sequence[str]) -> None:
        await self._execute_if_table_exists(
            sql.SQL("DELETE FROM {} WHERE run_id = ANY(%s) RETURNING run_id"), (list(run_ids),)
        )

    async def sweep(self) -> int:
        return len(
            await self._execute_if_table_exists(
                sql.SQL("DELETE FROM {} WHERE expires_at <= now() RETURNING run_id"), ()
            )
        )

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()

    async def _execute_if_table_exists(self, statement: sql.SQL, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Execute and return the rows; none before the table was created."""
        if not await self._check_table():
            return []
        try:
            return await self._execute(statement, values)
        except Permanent as error:
            if error.kind != "not_found":
                raise
            return []

    async def _check_table(self) -> bool:
        if not self._table_exists:
            rows = await self._execute(sql.SQL("SELECT to_regclass(%s) IS NOT NULL"), (self._table.as_string(),))
            self._table_exists = bool(rows[0][0])
        return self._table_exists

    async def _execute(self, statement: sql.SQL, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        pool = await self._open_pool()
        async with translate_errors("reach the credentials of runs"), pool.connection() as connection:
            answer = await connection.execute(statement.format(self._table), values)
            return await answer.fetchall() if answer.description is not None else []

    async def _create_table(self) -> None:
        pool = await self._open_pool()
        columns = "run_id text PRIMARY KEY, sealed bytea NOT NULL, expires_at timestamptz NOT NULL"
        async with translate_errors("make the table of the credentials of runs"):
            await create_once(
                pool,
                TABLE_LOCK_ID,
                sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(self._schema),
                sql.SQL(f"CREATE TABLE IF NOT EXISTS {{}} ({columns})").format(self._table),
                sql.SQL("CREATE INDEX IF NOT EXISTS run_credentials_expire ON {} (expires_at)").format(self._table),
            )
        self._table_exists = True

    async def _open_pool(self) -> AsyncConnectionPool[Any]:
        if self._pool is None:
            self._pool = AsyncConnectionPool(
                self._options.conninfo(),
                kwargs={"autocommit": True},
                min_size=0,
                max_size=CONNECTIONS,
                timeout=POOL_WAIT_S,
                check=AsyncConnectionPool.check_connection,
                open=False,
            )
            await self._pool.open()
        return self._pool


class MemoryCredentialRows:
    """Encrypted credentials in memory, for tests and for embedding loomlog. `clock_s` is monotonic."""

    def __init__(self, clock_s: Callable[[], float] = lambda: 0.0) -> None:
        self._clock_s = clock_s
        self.rows: dict[str, tuple[bytes, float]] = {}

    async def put(self, run_id: str, sealed: bytes, lifetime_s: float) -> None:
        self.rows.setdefault(run_id, (sealed, self._clock_s() + lifetime_s))

    async def get(self, run_id: str) -> bytes | None:
        row = self.rows.get(run_id)
        return row[0] if row is not None and row[1] > self._clock_s() else None

    async def delete(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            self.rows.pop(run_id, None)

    async def sweep(self) -> int:
        over = [run_id for run_id, (_, until) in self.rows.items() if until <= self._clock_s()]
        await self.delete(over)
        return len(over)
