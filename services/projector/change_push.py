"""Signed push of the changes of memory: each subscription of the configuration is sent what it has not had yet.

    POST <callback_url>  {"subscription": "<name>", "changes": [...]}
    X-Loomcycle-Subscription: <name>
    X-Loomcycle-Signature: <hex>        HMAC-SHA256 over the body; X-Loomlog-Signature has the time too

A subscription reads a window of the feed past its cursor, posts what passes its filter, and moves the cursor over the
whole window only after a 2xx: each change is sent at least once, and receivers drop repeats by seq. `gap: true` in the
body says that changes before these are not kept any more. A receiver that hangs or fails delays only itself.

One process pushes at a time. A lost Postgres ends the session, never the process. The cursors survive rebuilds.

Before: main.py. After: connectors/http/signed_callbacks.py, projections/memory_feed/tables.py.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson
import psycopg
from psycopg import sql

from loomlog.connectors.configuration.memory_block import ChangeSubscriptionBlock
from loomlog.connectors.configuration.secret_registry import ANY, Purpose, SecretRefused, SecretRegistry, host_of
from loomlog.connectors.errors import ConnectorError, Transient
from loomlog.connectors.http.signed_callbacks import CallbackClient, signature_headers
from loomlog.connectors.storage.postgres import connect, translate_errors
from loomlog.projections.engine.rebuild import Connect
from loomlog.projections.memory_feed.reads import change_json
from loomlog.projections.memory_feed.tables import ChangeRow, changes, feed_schema, push_cursors, state
from loomlog.services.projector.settings import ProjectorSettings

log = logging.getLogger("loomlog.projector")

WINDOW = 200
"""Rows of the feed that one request may come from (parity: reference surfaces 8.2)."""
RETRY_PAUSES_S = (0.1, 0.7, 5.0)
"""Pauses before the three retries of a request; then the next look into the feed tries again."""
POST_TIMEOUT_S = 10.0
TABLES_POLL_S = 1.0
"""How often tables that no writer has made yet, or the lock of another process, are tried."""
SESSION_RETRY_S = 1.0

Connection = psycopg.AsyncConnection[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSubscription:
    """A subscription with the key of its signatures."""

    name: str
    block: ChangeSubscriptionBlock
    secret: str = field(repr=False)

    def create_client(self) -> CallbackClient:
        """Return a client that may connect to a private address only where the configuration allows it."""
        host = urlsplit(self.block.callback_url).hostname or ""
        return CallbackClient(private_hosts=[host] if self.block.allow_private_host else ())


class Window(NamedTuple):
    """What the feed has past the cursor of a subscription."""

    rows: Sequence[ChangeRow]
    has_gap: bool
    """Whether changes between the cursor and these rows are gone."""
    end_seq: int
    """The cursor behind the window."""


def change_subscriptions(
    blocks: Mapping[str, ChangeSubscriptionBlock], secrets: SecretRegistry
) -> list[ChangeSubscription]:
    """Return the subscriptions that are not disabled. One without its key is left out with a warning."""
    subscriptions = []
    for name, block in blocks.items():
        if block.disabled:
            continue
        tenant, host = block.tenant_id or ANY, host_of(block.callback_url)
        try:
            secret = secrets.resolve(block.secret_env, Purpose.FEED_SIGNATURE, tenant=tenant, host=host).strip()
        except SecretRefused as refused:
            log.warning("change_subscriptions.%s: nothing is sent, because nothing is sent unsigned: %s", name, refused)
            continue
        subscriptions.append(ChangeSubscription(name=name, block=block, secret=secret))
    return subscriptions


def build_change_push(settings: ProjectorSettings, subscriptions: Sequence[ChangeSubscription]) -> "ChangePush":
    """Return the loop that pushes what the feed of this process' prefix has."""
    return ChangePush(
        feed_schema(settings.prefix),
        subscriptions,
        connect=partial(connect, settings.postgres),
        interval_s=settings.change_sub_interval_s,
    )


class ChangePush:
    """Pushes the changes in a feed. `connect` raises Transient when Postgres is away."""

    def __init__(
        self,
        schema: str,
        subscriptions: Sequence[ChangeSubscription],
        *,
        connect: Connect,
        interval_s: float,
        create_client: Callable[[ChangeSubscription], CallbackClient] = ChangeSubscription.create_client,
    ) -> None:
        """`interval_s`: time between two looks into the feed."""
        self._schema = schema
        self._subscriptions = subscriptions
        self._connect = connect
        self._interval_s = interval_s
        self._create_client = create_client
        self._failures: dict[str, str] = {}
        """The last failure by subscription, so that it is logged once."""

    async def run(self, stop: asyncio.Event) -> None:
        """Push until `stop`. Raises Permanent of Postgres, and any unexpected error."""
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                session = asyncio.create_task(self._session())
                await asyncio.wait({session, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not session.done():
                    await _cancel([session])
                    return
                error = session.exception()
                assert error is not None, "a session ends with an error only"
                # Tables that are missing again are about to be created for another version.
                if not isinstance(error, Transient) and getattr(error, "kind", "") != "not_found":
                    raise error
                log.warning("pushing changes waits: %s", error)
                await asyncio.wait({stopping}, timeout=SESSION_RETRY_S)
        finally:
            stopping.cancel()

    async def _session(self) -> None:
        """Push with one connection until an error."""
        async with await self._connect() as connection:
            async with translate_errors("begin to push changes"):
                await self._wait_for_turn(connection)
            tasks = [asyncio.create_task(self._push(connection, one)) for one in self._subscriptions]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
                for task in done:
                    task.result()
            finally:
                await _cancel(tasks)

    async def _wait_for_turn(self, connection: Connection) -> None:
        has_tables = "SELECT to_regclass(%s) IS NOT NULL"
        takes_lock = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
        while True:
            if await _is_true(connection, has_tables, f"{self._schema}.{changes.name}") and await _is_true(
                connection, takes_lock, f"{self._schema}.push"
            ):
                return
            await asyncio.sleep(TABLES_POLL_S)

    async def _push(self, connection: Connection, subscription: ChangeSubscription) -> None:
        """Push to one subscription until an error of Postgres."""
        client = self._create_client(subscription)
        try:
            while True:
                is_behind = False
                async with translate_errors("push changes"):
                    window = await self._read_window(connection, subscription.name)
                    if window is not None and await self._deliver(client, subscription, window):
                        await self._move(connection, subscription.name, window.end_seq)
                        is_behind = len(window.rows) == WINDOW
                if not is_behind:
                    await asyncio.sleep(self._interval_s)
        finally:
            await client.close()

    async def _read_window(self, connection: Connection, name: str) -> Window | None:
        """Return the next window; None when there is nothing new."""
        cursor = await self._fetch(connection, "SELECT seq FROM {} WHERE subscription = %s", push_cursors.name, name)
        after = cursor[0][0] if cursor else 0
        query = "SELECT * FROM {} WHERE seq > %s ORDER BY seq LIMIT %s"
        rows = [ChangeRow._make(row) for row in await self._fetch(connection, query, changes.name, after, WINDOW)]
        # After the rows: what was deleted before they were read is below it.
        ((floor,),) = await self._fetch(connection, "SELECT floor_seq FROM {}", state.name)
        has_gap = bool(cursor) and after < floor
        if not rows and not has_gap:
            return None
        return Window(rows, has_gap, rows[-1].seq if rows else floor)

    async def _deliver(self, client: CallbackClient, subscription: ChangeSubscription, window: Window) -> bool:
        """Send what the subscription takes of the window; return whether the receiver has it."""
        accepts = subscription.block.accepts
        accepted = [
            change_json(row) for row in window.rows if accepts(tenant=row.tenant, scope=row.scope, change_type=row.type)
        ]
        if not accepted and not window.has_gap:
            return True
        content: dict[str, Any] = {"subscription": subscription.name, "changes": accepted}
        if window.has_gap:
            content["gap"] = True
        try:
            await self._post(client, subscription, orjson.dumps(content))
        except ConnectorError as error:
            if self._failures.get(subscription.name) != str(error):
                log.warning("change_subscriptions.%s is not delivered and tried again: %s", subscription.name, error)
            self._failures[subscription.name] = str(error)
            return False
        if self._failures.pop(subscription.name, None):
            log.info("change_subscriptions.%s is delivered again", subscription.name)
        return True

    async def _post(self, client: CallbackClient, subscription: ChangeSubscription, body: bytes) -> None:
        """Post the body, with retries. Raises Transient after the last one, and Permanent at once."""
        for pause_s in (*RETRY_PAUSES_S, None):
            headers = {
                "X-Loomcycle-Subscription": subscription.name,
                **signature_headers(body, [subscription.secret], int(time.time())),
            }
            try:
                await client.post(subscription.block.callback_url, body, headers, timeout_s=POST_TIMEOUT_S)
                return
            except Transient:
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)

    async def _move(self, connection: Connection, name: str, seq: int) -> None:
        await connection.execute(
            sql.SQL(
                "INSERT INTO {} (subscription, seq) VALUES (%s, %s) "
                "ON CONFLICT (subscription) DO UPDATE SET seq = excluded.seq, updated_at = now()"
            ).format(sql.Identifier(self._schema, push_cursors.name)),
            (name, seq),
        )

    async def _fetch(self, connection: Connection, query: str, table: str, *values: Any) -> list[tuple[Any, ...]]:
        statement = sql.SQL(query).format(sql.Identifier(self._schema, table))
        result = await connection.execute(statement, values)
        return await result.fetchall()


async def _is_true(connection: Connection, query: str, value: str) -> bool:
    result = await connection.execute(query, (value,))
    row = await result.fetchone()
    return row is not None and bool(row[0])


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
