"""The Idempotency-Keys that were used, each with the digest of its first body: another body under a key is refused.

Owners of runs and aggregates recognise a key on what they own. Where the body names what is changed, another body leads
to another owner, which has never seen the key; so keys are kept here, in a schema that no rebuild of the read models
touches. A row has hashes only, and is forgotten a day after its last use with that body.

The first write creates the table. Raises ConnectorError.

Before: services/api/app.py, when the body of a keyed request has been read. After: side_table.py.
"""

from typing import Protocol

from psycopg import sql

from loomlog.connectors.storage.postgres import PostgresOptions
from loomlog.connectors.storage.side_table import SideTable

LIFETIME_S = 86_400
"""Lifetime of a key from its last use on, as others have it."""
CONNECTIONS = 2
SWEEP_EVERY = 500
"""Uses between two deletions of what is over."""
SCHEMA = "loom_requests"
TABLE_LOCK_ID = 4_718_305_118
"""Advisory lock under which the table is created; an otherwise unused number."""


class RequestKeys(Protocol):
    """Storage of keys."""

    async def first_body(self, key: str, body: str) -> str:
        """Return the body that the key was used with first: this one, unless there was another."""
        ...


class PostgresRequestKeys:
    """Protocol RequestKeys. Connections are opened when needed and closed by `close`."""

    def __init__(self, options: PostgresOptions, *, schema: str = SCHEMA, lifetime_s: float = LIFETIME_S) -> None:
        self._table = SideTable(
            options,
            schema=schema,
            name="request_keys",
            columns="key text PRIMARY KEY, body text NOT NULL, expires_at timestamptz NOT NULL",
            about="Idempotency-Keys",
            lock_id=TABLE_LOCK_ID,
            max_connections=CONNECTIONS,
        )
        self._lifetime_s = lifetime_s
        self._uses = 0

    async def first_body(self, key: str, body: str) -> str:
        statement = sql.SQL(
            "INSERT INTO {} AS t (key, body, expires_at) VALUES (%s, %s, now() + make_interval(secs => %s)) "
            "ON CONFLICT (key) DO UPDATE SET "
            "expires_at = CASE WHEN t.expires_at <= now() OR t.body = excluded.body THEN excluded.expires_at "
            "ELSE t.expires_at END, "
            "body = CASE WHEN t.expires_at <= now() THEN excluded.body ELSE t.body END RETURNING body"
        )
        rows = await self._table.write(statement, (key, body, self._lifetime_s))
        self._uses += 1
        if self._uses % SWEEP_EVERY == 0:
            await self._table.write(sql.SQL("DELETE FROM {} WHERE expires_at <= now()"), ())
        return str(rows[0][0])

    async def close(self) -> None:
        """Close the connections."""
        await self._table.close()
