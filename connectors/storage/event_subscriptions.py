"""Subscriptions of others to events, for which we send requests: outside the log, sealed, until their time is over.

A row has the address and its secret, sealed with the installation's key; where its events go on; and which process
delivers them. A process takes a row for some seconds at a time, so another one goes on soon after its death. A row that
is lost is made again by the client's next refresh, with the cursor that the client has (SEP-3415).

Not chosen: the log, because it keeps secrets for ever, and would have a record for each renewal.

Before: services/application/event_webhooks.py. After: side_table.py.
"""

from typing import NamedTuple, Protocol

from psycopg import sql

from loomlog.connectors.storage.postgres import PostgresOptions
from loomlog.connectors.storage.side_table import SideTable

CONNECTIONS = 2
SCHEMA = "loom_secrets"
TABLE_LOCK_ID = 4_718_305_119
"""Advisory lock under which the table is created; an otherwise unused number."""


class SubscriptionRow(NamedTuple):
    """A subscription: what is sealed has everything that a delivery needs."""

    id: str
    sealed: bytes
    cursor: str
    error: str
    """Category of the last failed delivery; empty after one that was taken."""


class SubscriptionRows(Protocol):
    """Storage of subscriptions. All methods raise ConnectorError."""

    async def put(self, row: SubscriptionRow, owner: str, lifetime_s: float) -> SubscriptionRow:
        """Store a subscription, or renew it: a live one keeps its cursor. Returns the row as it is."""
        ...

    async def find(self, subscription_id: str) -> SubscriptionRow | None:
        """Return a live subscription."""
        ...

    async def count(self, owner: str) -> int:
        """Return how many live ones an owner has."""
        ...

    async def delete(self, subscription_id: str) -> bool:
        """Delete a subscription; returns whether it was live."""
        ...

    async def claim(self, process: str, lease_s: float, limit: int) -> list[SubscriptionRow]:
        """Take live subscriptions that no process has."""
        ...

    async def advance(self, row: SubscriptionRow, process: str, lease_s: float) -> SubscriptionRow | None:
        """Keep the cursor, and the row for a while longer; None when it is over or another process has it."""
        ...


class PostgresSubscriptionRows:
    """Protocol SubscriptionRows. Connections are opened when needed and closed by `close`."""

    def __init__(self, options: PostgresOptions, *, schema: str = SCHEMA) -> None:
        self._table = SideTable(
            options,
            schema=schema,
            name="event_subscriptions",
            columns="id text PRIMARY KEY, owner text NOT NULL, sealed bytea NOT NULL, cursor text NOT NULL, "
            "error text NOT NULL DEFAULT '', process text NOT NULL DEFAULT '', "
            "held_until timestamptz NOT NULL DEFAULT now(), expires_at timestamptz NOT NULL",
            about="subscriptions to events",
            lock_id=TABLE_LOCK_ID,
            max_connections=CONNECTIONS,
        )

    async def put(self, row: SubscriptionRow, owner: str, lifetime_s: float) -> SubscriptionRow:
        statement = sql.SQL(
            "INSERT INTO {} AS t (id, owner, sealed, cursor, expires_at) "
            "VALUES (%s, %s, %s, %s, now() + make_interval(secs => %s)) ON CONFLICT (id) DO UPDATE SET "
            "sealed = excluded.sealed, expires_at = excluded.expires_at, "
            "cursor = CASE WHEN t.expires_at <= now() THEN excluded.cursor ELSE t.cursor END "
            "RETURNING id, sealed, cursor, error"
        )
        return _row((await self._table.write(statement, (row.id, owner, row.sealed, row.cursor, lifetime_s)))[0])

    async def find(self, subscription_id: str) -> SubscriptionRow | None:
        statement = sql.SQL("SELECT id, sealed, cursor, error FROM {} WHERE id = %s AND expires_at > now()")
        rows = await self._table.read(statement, (subscription_id,))
        return _row(rows[0]) if rows else None

    async def count(self, owner: str) -> int:
        statement = sql.SQL("SELECT count(*) FROM {} WHERE owner = %s AND expires_at > now()")
        rows = await self._table.read(statement, (owner,))
        return int(rows[0][0]) if rows else 0

    async def delete(self, subscription_id: str) -> bool:
        statement = sql.SQL("DELETE FROM {} WHERE id = %s AND expires_at > now() RETURNING id")
        return bool(await self._table.write(statement, (subscription_id,)))

    async def claim(self, process: str, lease_s: float, limit: int) -> list[SubscriptionRow]:
        await self._table.read(sql.SQL("DELETE FROM {} WHERE expires_at <= now() RETURNING id"), ())
        statement = sql.SQL(
            "UPDATE {0} SET process = %s, held_until = now() + make_interval(secs => %s) WHERE id IN "
            "(SELECT id FROM {0} WHERE held_until <= now() ORDER BY held_until LIMIT %s FOR UPDATE SKIP LOCKED) "
            "RETURNING id, sealed, cursor, error"
        )
        return [_row(row) for row in await self._table.read(statement, (process, lease_s, limit))]

    async def advance(self, row: SubscriptionRow, process: str, lease_s: float) -> SubscriptionRow | None:
        statement = sql.SQL(
            "UPDATE {} SET cursor = %s, error = %s, held_until = now() + make_interval(secs => %s) "
            "WHERE id = %s AND process = %s AND expires_at > now() RETURNING id, sealed, cursor, error"
        )
        rows = await self._table.read(statement, (row.cursor, row.error, lease_s, row.id, process))
        return _row(rows[0]) if rows else None

    async def close(self) -> None:
        """Close the connections."""
        await self._table.close()


def _row(values: tuple[object, ...]) -> SubscriptionRow:
    identity, sealed, cursor, error = values
    assert isinstance(sealed, bytes)
    return SubscriptionRow(str(identity), sealed, str(cursor), str(error))
