"""Deletes the items that have expired, such as old versions of memory, which the log has for ever, or messages.

Rows are deleted an hour after their time, so that a comparison of two builds that began before it counts them in both.

Before: main.py. After: projections/entity_items.py.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
from psycopg import sql

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.storage.postgres import translate_errors
from loomlog.projections.engine.builds import ENTITY_TABLES, Builds, TableSet
from loomlog.projections.entity_items import entity_items

log = logging.getLogger("loomlog.projector")

EVERY_S = 600.0
MARGIN_MS = 3_600_000
BATCH = 5_000
"""Rows of one transaction: a tenth of a second."""
DELETE = """
DELETE FROM {table} WHERE ctid IN (
    SELECT ctid FROM {table} WHERE expires_at_ms > 0 AND expires_at_ms < %s LIMIT %s
)"""


class ExpiredItems:
    """The loop."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[psycopg.AsyncConnection[Any]]],
        prefix: str,
        tables: TableSet = ENTITY_TABLES,
        *,
        every_s: float = EVERY_S,
    ) -> None:
        self._connect = connect
        self._prefix = prefix
        self._tables = tables
        self._every_s = every_s

    async def run(self, stop: asyncio.Event) -> None:
        """Delete from time to time until `stop`."""
        while not stop.is_set():
            try:
                async with translate_errors("delete expired items"):
                    await self.delete(int(time.time() * 1000))
            except (Transient, Permanent) as error:  # a build may be dropped meanwhile
                log.warning("%s; expired items wait", error)
            try:
                async with asyncio.timeout(self._every_s):
                    await stop.wait()
            except TimeoutError:
                continue

    async def delete(self, now_ms: int) -> int:
        """Delete what has expired an hour ago from the live build; return the number of rows."""
        deleted = 0
        async with await self._connect() as connection:
            builds = Builds(connection, self._prefix, self._tables)
            await builds.prepare()
            live = await builds.live()
            if live.version != self._tables.version:
                return 0  # the projector rebuilds it
            table = sql.Identifier(builds.build(live.number).schema, entity_items.name)
            while True:
                result = await connection.execute(sql.SQL(DELETE).format(table=table), (now_ms - MARGIN_MS, BATCH))
                deleted += result.rowcount
                if result.rowcount < BATCH:
                    return deleted
