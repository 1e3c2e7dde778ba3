"""The values of stored credentials: outside the log, encrypted, one row for each version.

The log has the name and the version that counts (services/families/identity); a row is written before its event, so a
version that the log names has its row, and one that it does not name is not used. Values are encrypted
for tenant, scope, owner, name and version: a row that is copied elsewhere decrypts to nothing.

Before: services/families/identity/credentials.py. After: side_table.py.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol
from weakref import WeakValueDictionary

from psycopg import sql

from loomlog.connectors.crypto.installation_key import SecretDecryptionError, SecretKey
from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.storage.postgres import PostgresOptions
from loomlog.connectors.storage.side_table import SideTable
from loomlog.schemas.records import Value, replace

CONNECTIONS = 4
SCHEMA = "loom_secrets"
ENCRYPTION_PURPOSE = "stored credentials"
TABLE_LOCK_ID = 4_718_305_131
"""Advisory lock under which the table is created; an otherwise unused number."""
ROWS_OF_A_READ = 200
LOCK_S = 45.0
"""Seconds after which a lock is free again whose process died: longer than a renewal takes."""
LOCK_TRIES = 600
LOCK_POLL_S = 0.1
"""Looks at a lock of another process, and the seconds between two. It is a row, because a lock of Postgres would take a
connection. Its version is 0, which no credential has.
"""


class CredentialKey(Value, frozen=True, kw_only=True, order=True):
    """The owner and the name of a credential. `scope_id`: subject of the user or name of the agent; empty for the
    tenant.
    """

    tenant: str
    scope: str
    scope_id: str = ""
    name: str


class SealedCredential(Value, frozen=True, kw_only=True):
    """A row."""

    key: CredentialKey
    version: int
    sealed: bytes


class StoredCredentialRows(Protocol):
    """Storage of the encrypted bytes. Raises ConnectorError."""

    async def put(self, row: SealedCredential) -> None:
        """Insert a row. Raises Transient when there is one of that version."""
        ...

    async def get(self, key: CredentialKey, version: int) -> bytes | None: ...
    async def newest(self, key: CredentialKey) -> int:
        """Return the newest version that has a row, whether the log names it or not; 0: there is none."""
        ...

    async def delete(self, key: CredentialKey, *, below: int) -> None:
        """Delete the versions below one."""
        ...

    async def delete_version(self, key: CredentialKey, version: int) -> None: ...

    async def take(self, key: CredentialKey, version: int) -> bytes | None:
        """Return a version and delete it: of several callers at once one gets it."""
        ...

    def lock(self, key: CredentialKey) -> AbstractAsyncContextManager[None]:
        """Hold the credential: no other process of the installation does so meanwhile."""

    async def delete_owned(self, tenant: str, scope: str, scope_id: str | None) -> None:
        """Delete all rows of an owner; None: of each of that scope."""
        ...

    async def after(self, last: SealedCredential | None) -> Sequence[SealedCredential]:
        """Return some rows after one, in an order of their own, without locks; none after the last."""
        ...

    async def replace(self, row: SealedCredential, *, old: bytes) -> None:
        """Replace the bytes of a row unless they have changed meanwhile."""
        ...


class StoredCredentials:
    """Encrypts and decrypts stored credentials. All methods raise ConnectorError."""

    def __init__(self, rows: StoredCredentialRows, secret: SecretKey) -> None:
        self.rows = rows
        self._secret = secret

    async def put(self, key: CredentialKey, version: int, value: str) -> None:
        """Store a value; durable when it returns."""
        await self.rows.put(SealedCredential(key=key, version=version, sealed=self._encrypt(key, version, value)))

    async def get(self, key: CredentialKey, version: int) -> str | None:
        """Return a value; None when it is not there."""
        sealed = await self.rows.get(key, version)
        return None if sealed is None else self._decrypt(key, version, sealed)

    async def take(self, key: CredentialKey, version: int) -> str | None:
        """Return a value and delete it; None when it is not there, or was taken."""
        sealed = await self.rows.take(key, version)
        return None if sealed is None else self._decrypt(key, version, sealed)

    async def newest(self, key: CredentialKey) -> tuple[int, str] | None:
        """Return the newest version and its value; None when there is none."""
        version = await self.rows.newest(key)
        value = await self.get(key, version) if version else None
        return None if value is None else (version, value)

    async def rewrap(self, row: SealedCredential) -> None:
        """Encrypt a row under the current key."""
        value = self._decrypt(row.key, row.version, row.sealed)
        new = SealedCredential(key=row.key, version=row.version, sealed=self._encrypt(row.key, row.version, value))
        await self.rows.replace(new, old=row.sealed)

    def _encrypt(self, key: CredentialKey, version: int, value: str) -> bytes:
        return self._secret.encrypt(value.encode(), ENCRYPTION_PURPOSE, *_context(key, version))

    def _decrypt(self, key: CredentialKey, version: int, sealed: bytes) -> str:
        try:
            return self._secret.decrypt(sealed, ENCRYPTION_PURPOSE, *_context(key, version)).decode()
        except SecretDecryptionError as error:
            raise Permanent(f"the stored credential {key.name} cannot be opened: {error}", kind="invalid") from error


def _context(key: CredentialKey, version: int) -> tuple[str, ...]:
    return key.tenant, key.scope, key.scope_id, key.name, str(version)


def _values(key: CredentialKey) -> tuple[str, str, str, str]:
    return key.tenant, key.scope, key.scope_id, key.name


def _written_elsewhere(row: SealedCredential) -> Transient:
    return Transient(f"another process stores the credential {row.key.name} now; try again", kind="unavailable")


class PostgresStoredCredentialRows:
    """Protocol StoredCredentialRows. Connections are opened when needed and closed by `close`."""

    def __init__(self, options: PostgresOptions, *, schema: str = SCHEMA) -> None:
        self._table = SideTable(
            options,
            schema=schema,
            name="stored_credentials",
            columns="tenant text NOT NULL, scope text NOT NULL, scope_id text NOT NULL, name text NOT NULL, "
            "version bigint NOT NULL, sealed bytea NOT NULL, expires_at timestamptz, "
            "PRIMARY KEY (tenant, scope, scope_id, name, version)",
            about="stored credentials",
            lock_id=TABLE_LOCK_ID,
            max_connections=CONNECTIONS,
        )
        self._locks: WeakValueDictionary[CredentialKey, asyncio.Lock] = WeakValueDictionary()

    async def put(self, row: SealedCredential) -> None:
        statement = sql.SQL(
            "INSERT INTO {} (tenant, scope, scope_id, name, version, sealed) VALUES (%s, %s, %s, %s, %s, %s) "
            "ON CONFLICT DO NOTHING RETURNING version"
        )
        if not await self._table.write(statement, (*_values(row.key), row.version, row.sealed)):
            raise _written_elsewhere(row)

    async def get(self, key: CredentialKey, version: int) -> bytes | None:
        statement = sql.SQL(
            "SELECT sealed FROM {} WHERE (tenant, scope, scope_id, name) = (%s, %s, %s, %s) AND version = %s"
        )
        rows = await self._table.read(statement, (*_values(key), version))
        return bytes(rows[0][0]) if rows else None

    async def newest(self, key: CredentialKey) -> int:
        statement = sql.SQL("SELECT max(version) FROM {} WHERE (tenant, scope, scope_id, name) = (%s, %s, %s, %s)")
        rows = await self._table.read(statement, _values(key))
        return rows[0][0] or 0 if rows else 0

    async def delete(self, key: CredentialKey, *, below: int) -> None:
        await self._table.read(
            sql.SQL("DELETE FROM {} WHERE (tenant, scope, scope_id, name) = (%s, %s, %s, %s) AND version < %s"),
            (*_values(key), below),
        )

    async def delete_version(self, key: CredentialKey, version: int) -> None:
        await self._table.read(
            sql.SQL("DELETE FROM {} WHERE (tenant, scope, scope_id, name) = (%s, %s, %s, %s) AND version = %s"),
            (*_values(key), version),
        )

    async def take(self, key: CredentialKey, version: int) -> bytes | None:
        statement = sql.SQL(
            "DELETE FROM {} WHERE (tenant, scope, scope_id, name) = (%s, %s, %s, %s) AND version = %s RETURNING sealed"
        )
        rows = await self._table.read(statement, (*_values(key), version))
        return bytes(rows[0][0]) if rows else None

    @asynccontextmanager
    async def lock(self, key: CredentialKey) -> AsyncIterator[None]:
        row, token = replace(key, name=f"{key.name}.lock"), os.urandom(16)
        claim = sql.SQL(
            "INSERT INTO {} AS held (tenant, scope, scope_id, name, version, sealed, expires_at) "
            "VALUES (%s, %s, %s, %s, 0, %s, now() + make_interval(secs => %s)) "
            "ON CONFLICT (tenant, scope, scope_id, name, version) DO UPDATE "
            "SET sealed = EXCLUDED.sealed, expires_at = EXCLUDED.expires_at WHERE held.expires_at < now() RETURNING 1"
        )
        release = sql.SQL(
            "DELETE FROM {} WHERE (tenant, scope, scope_id, name) = (%s, %s, %s, %s) AND version = 0 AND sealed = %s"
        )
        async with self._locks.setdefault(key, asyncio.Lock()):
            for _ in range(LOCK_TRIES):
                if await self._table.write(claim, (*_values(row), token, LOCK_S)):
                    break
                await asyncio.sleep(LOCK_POLL_S)
            else:
                raise Transient(f"another process does not release the credential {key.name}", kind="overloaded")
            try:
                yield
            finally:
                await self._table.read(release, (*_values(row), token))

    async def delete_owned(self, tenant: str, scope: str, scope_id: str | None) -> None:
        await self._table.read(
            sql.SQL("DELETE FROM {} WHERE tenant = %s AND scope = %s AND scope_id = coalesce(%s, scope_id)"),
            (tenant, scope, scope_id),
        )

    async def after(self, last: SealedCredential | None) -> Sequence[SealedCredential]:
        statement = sql.SQL(
            "SELECT tenant, scope, scope_id, name, version, sealed FROM {} "
            "WHERE version <> 0 AND (tenant, scope, scope_id, name, version) > (%s, %s, %s, %s, %s) "
            "ORDER BY tenant, scope, scope_id, name, version LIMIT %s"
        )
        start = ("", "", "", "", -1) if last is None else (*_values(last.key), last.version)
        rows = await self._table.read(statement, (*start, ROWS_OF_A_READ))
        return [
            SealedCredential(
                key=CredentialKey(tenant=tenant, scope=scope, scope_id=scope_id, name=name),
                version=version,
                sealed=bytes(sealed),
            )
            for tenant, scope, scope_id, name, version, sealed in rows
        ]

    async def replace(self, row: SealedCredential, *, old: bytes) -> None:
        statement = sql.SQL(
            "UPDATE {} SET sealed = %s "
            "WHERE (tenant, scope, scope_id, name, version) = (%s, %s, %s, %s, %s) AND sealed = %s"
        )
        await self._table.read(statement, (row.sealed, *_values(row.key), row.version, old))

    async def close(self) -> None:
        await self._table.close()


class MemoryStoredCredentialRows:
    """Encrypted credentials in memory, for tests and for embedding loomlog."""

    def __init__(self) -> None:
        self.rows: dict[tuple[CredentialKey, int], bytes] = {}
        self._locks: dict[CredentialKey, asyncio.Lock] = {}

    async def put(self, row: SealedCredential) -> None:
        if (row.key, row.version) in self.rows:
            raise _written_elsewhere(row)
        self.rows[row.key, row.version] = row.sealed

    async def get(self, key: CredentialKey, version: int) -> bytes | None:
        return self.rows.get((key, version))

    async def newest(self, key: CredentialKey) -> int:
        return max((version for known, version in self.rows if known == key), default=0)

    async def delete(self, key: CredentialKey, *, below: int) -> None:
        for known, version in list(self.rows):
            if known == key and version < below:
                del self.rows[known, version]

    async def delete_version(self, key: CredentialKey, version: int) -> None:
        self.rows.pop((key, version), None)

    async def take(self, key: CredentialKey, version: int) -> bytes | None:
        return self.rows.pop((key, version), None)

    def lock(self, key: CredentialKey) -> AbstractAsyncContextManager[None]:
        return self._locks.setdefault(key, asyncio.Lock())

    async def delete_owned(self, tenant: str, scope: str, scope_id: str | None) -> None:
        for key, version in list(self.rows):
            if (key.tenant, key.scope) == (tenant, scope) and scope_id in (None, key.scope_id):
                del self.rows[key, version]

    async def after(self, last: SealedCredential | None) -> Sequence[SealedCredential]:
        start = None if last is None else (last.key, last.version)
        places = sorted(place for place in self.rows if start is None or place > start)[:ROWS_OF_A_READ]
        return [SealedCredential(key=key, version=version, sealed=self.rows[key, version]) for key, version in places]

    async def replace(self, row: SealedCredential, *, old: bytes) -> None:
        if self.rows.get((row.key, row.version)) == old:
            self.rows[row.key, row.version] = row.sealed

    async def close(self) -> None:
        """Close nothing."""
