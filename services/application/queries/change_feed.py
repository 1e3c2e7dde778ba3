"""The feed of changes of memory in Postgres.

Before: services/application/bootstrap.py. After: projections/memory_feed/reads.py.
"""

import asyncio
from collections.abc import Awaitable, Collection
from typing import TypeVar

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.memory_feed.reads import FeedBounds, read_bounds, read_changes
from loomlog.projections.memory_feed.tables import ChangeRow
from loomlog.projections.tables import Scope
from loomlog.services.application import limits
from loomlog.services.application.errors import unavailable

ResultT = TypeVar("ResultT")


class SqlChangeFeed:
    """Protocol ChangeFeed of services/families/ports/change_feed.py; empty until a projector has made its tables."""

    def __init__(self, reader: PostgresReader, schema: str, *, wait_s: float = limits.PROJECTION_WAIT_S) -> None:
        self._reader, self._schema, self._wait_s = reader, schema, wait_s

    async def bounds(self) -> FeedBounds:
        return await self._bounded(read_bounds(self._reader, self._schema), FeedBounds(0, 0))

    async def changes(self, tenant: Scope, types: Collection[str], *, after: int) -> list[ChangeRow]:
        return await self._bounded(read_changes(self._reader, self._schema, tenant, types, after=after), [])

    async def _bounded(self, read: Awaitable[ResultT], absent: ResultT) -> ResultT:
        try:
            async with asyncio.timeout(self._wait_s):
                return await read
        except TimeoutError as error:
            late = Transient(f"read the feed of memory: no answer in {self._wait_s:g} s", kind="timeout")
            raise unavailable("projection", late) from error
        except ConnectorError as error:
            if isinstance(error, Permanent) and error.kind == "not_found":
                return absent
            raise unavailable("projection", error) from error
