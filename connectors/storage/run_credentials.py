"""Credentials that come with the request of a run: outside the log, encrypted, until the run ends.

There is a row for each run, in a schema that no rebuild of the read models touches. The api writes it before the
command to start the run is in the log, so the owner of the run finds it; the runtime deletes it when the end of the run
is in the log. Leftover rows expire after LIFETIME_S. The values are encrypted for the tenant and the run, so a row that
is copied to another run decrypts to nothing, and a copy of the database without LOOMLOG_SECRET_KEY contains no secret.

Not chosen: the log (it keeps everything), memory of one process (the next owner would not have them), a lease that
owners extend (an installation that is down for a day would lose what its runs need).

Before: services/application/runs/start.py writes, services/runtime/content/run_credentials.py reads.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import orjson
from psycopg import sql

from loomlog.connectors.crypto.installation_key import SecretDecryptionError, SecretKey
from loomlog.connectors.errors import Permanent
from loomlog.connectors.storage.postgres import PostgresOptions
from loomlog.connectors.storage.side_table import SideTable

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
        self._table = SideTable(
            options,
            schema=schema,
            name="run_credentials",
            columns="run_id text PRIMARY KEY, sealed bytea NOT NULL, expires_at timestamptz NOT NULL",
            about="the credentials of runs",
            lock_id=TABLE_LOCK_ID,
            max_connections=CONNECTIONS,
        )

    async def put(self, run_id: str, sealed: bytes, lifetime_s: float) -> None:
        statement = sql.SQL(
            "INSERT INTO {} (run_id, sealed, expires_at) VALUES (%s, %s, now() + make_interval(secs => %s)) "
            "ON CONFLICT (run_id) DO NOTHING"
        )
        await self._table.write(statement, (run_id, sealed, lifetime_s))

    async def get(self, run_id: str) -> bytes | None:
        statement = sql.SQL("SELECT sealed FROM {} WHERE run_id = %s AND expires_at > now()")
        rows = await self._table.read(statement, (run_id,))
        return bytes(rows[0][0]) if rows else None

    async def delete(self, run_ids: Sequence[str]) -> None:
        await self._table.read(sql.SQL("DELETE FROM {} WHERE run_id = ANY(%s)"), (list(run_ids),))

    async def sweep(self) -> int:
        return len(await self._table.read(sql.SQL("DELETE FROM {} WHERE expires_at <= now() RETURNING run_id"), ()))

    async def close(self) -> None:
        await self._table.close()
