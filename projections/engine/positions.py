"""Waiting until the projections have passed a place in the log, so that a caller reads its own writes.

An answer to a write names its position; a read that accepts one waits here, bounded, and then either reads rows that
include it or says clearly how far behind they are. One PositionWatch a process listens for the projector's commits on
one connection, however many readers wait. A notification can be lost with a connection and says nothing after a switch
of builds, so the cursors themselves are read as well: often while somebody waits, seldom otherwise.

Before: the projector's commits. After: the API, which answers or says "not yet, lag N".
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.storage.postgres import translate_errors
from loomlog.projections.engine.builds import PREFIX, Build
from loomlog.projections.engine.cursors import Position

LOOK_WAITING_S = 0.1
"""How often the cursors are read while somebody waits: the most a lost notification can cost."""
LOOK_IDLE_S = 1.0
"""How often when nobody does."""
RECONNECT_S = 1.0
"""Pause before a lost connection is made anew; waiters go on waiting."""
WAITERS_MAX = 10_000
"""Readers that wait at once; more are told at once that it is not there yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitResult:
    """What became of a wait. `lag` is the number of records still missing, 0 when the position was passed."""

    is_reached: bool
    lag: int


class PositionWatch:
    """Knows how far the live build is. `run` must be running as a task of its own."""

    def __init__(self, connect: Callable[[], Awaitable[psycopg.AsyncConnection[Any]]], prefix: str = PREFIX) -> None:
        self._connect = connect
        self._prefix = prefix
        self._build = -1
        self._next: dict[tuple[str, int], int] = {}
        self._waiters: dict[asyncio.Future[None], Position] = {}

    async def wait(self, position: Position, *, timeout_s: float) -> WaitResult:
        """Until the projections have passed the position, at most `timeout_s`."""
        if self._has_passed(position):
            return WaitResult(is_reached=True, lag=0)
        if timeout_s > 0 and len(self._waiters) < WAITERS_MAX:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters[waiter] = position
            try:
                async with asyncio.timeout(timeout_s):
                    await waiter
            except TimeoutError:
                pass  # the answer below says how far it got
            finally:
                self._waiters.pop(waiter, None)
        known = self._next.get((position.topic, position.partition), 0)
        return WaitResult(is_reached=self._has_passed(position), lag=max(0, position.offset + 1 - known))

    async def run(self) -> None:
        """Listens until cancelled; a lost connection is made anew. Raises Permanent when that can never work."""
        while True:
            try:
                async with translate_errors("watch the positions of the projections"):
                    await self._listen()
            except Transient:
                await asyncio.sleep(RECONNECT_S)
            except Permanent as error:
                # Nothing to watch yet: the projector has not made the tables.
                if error.kind != "not_found":
                    raise
                await asyncio.sleep(RECONNECT_S)

    async def _listen(self) -> None:
        async with await self._connect() as connection:
            await connection.execute(
                sql.SQL("LISTEN {}").format(sql.Identifier(Build(prefix=self._prefix, number=0).channel))
            )
            while True:
                await self._read_cursors(connection)
                await self._read_notifications(connection)

    async def _read_notifications(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Takes notifications until it is time to read the cursors again."""
        clock = asyncio.get_running_loop().time
        began = clock()
        understood = True
        while understood and (left := began + (LOOK_WAITING_S if self._waiters else LOOK_IDLE_S) - clock()) > 0:
            async for notification in connection.notifies(timeout=left, stop_after=1):
                understood &= self._apply_notification(notification.payload)

    def _apply_notification(self, payload: str) -> bool:
        """Moves positions on as a commit announced it; False when it does not say enough."""
        build, _, rest = payload.partition(" ")
        topic, _, moved = rest.partition(" ")
        if not build.isdecimal() or int(build) != self._build:
            return False
        for part in moved.split():
            partition, _, offset = part.partition(":")
            self._next[topic, int(partition)] = int(offset)
        self._wake()
        return True

    async def _read_cursors(self, connection: psycopg.AsyncConnection[Any]) -> None:
        found = await connection.execute(
            sql.SQL(
                "SELECT b.number, c.topic, c.partition, c.next_offset FROM {} b LEFT JOIN {} c ON true "
                "WHERE b.state = 'live'"
            ).format(sql.Identifier(self._prefix, "builds"), sql.Identifier(self._prefix, "cursors"))
        )
        positions = {}
        for build, topic, partition, next_offset in await found.fetchall():
            self._build = build
            if topic is not None:
                positions[topic, partition] = next_offset
        self._next = positions
        self._wake()

    def _has_passed(self, position: Position) -> bool:
        return self._next.get((position.topic, position.partition), 0) > position.offset

    def _wake(self) -> None:
        for waiter, position in self._waiters.items():
            if not waiter.done() and self._has_passed(position):
                waiter.set_result(None)
