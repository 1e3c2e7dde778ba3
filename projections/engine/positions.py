"""Waits until the projections have passed a log position, so that a caller reads its own writes.

The response to a write names its position. A read that accepts one waits here, bounded, and then either reads rows that
include it or reports how far behind they are. One PositionWatch per process listens for the projector's commits on one
connection, for any number of readers. A notification can be lost with its connection and is void after a switch of
builds, so the cursors are read as well: often while a reader waits, seldom otherwise.

Before: the projector's commits. After: the API, which responds or reports "not yet, lag N".
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
from loomlog.schemas.position import Position

LOOK_WAITING_S = 0.1
"""How often the cursors are read while a reader waits: the longest delay by a lost notification."""
LOOK_IDLE_S = 1.0
"""How often the cursors are read while no reader waits."""
RECONNECT_S = 1.0
"""Pause before reconnecting; waiters keep waiting."""
WAITERS_MAX = 10_000
"""Most concurrent waiters; a further one gets `is_reached=False` at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitResult:
    """Result of a wait. `lag` is the number of records still missing, 0 when the position was passed."""

    is_reached: bool
    lag: int


class PositionWatch:
    """Tracks the positions of the live builds. `run` must be running as a task of its own."""

    def __init__(self, connect: Callable[[], Awaitable[psycopg.AsyncConnection[Any]]], *prefixes: str) -> None:
        """`prefixes`: of the read models to watch, by default that of runs. One that no projector has created yet is
        watched once it is there.
        """
        self._connect = connect
        self._channels = {Build(prefix=prefix, number=0).channel: prefix for prefix in prefixes or (PREFIX,)}
        self._builds: dict[str, int] = {}
        """Number of the live build by channel; none before its tables exist."""
        self._next: dict[tuple[str, int], int] = {}
        self._waiters: dict[asyncio.Future[None], Position] = {}

    async def wait(self, position: Position, *, timeout_s: float) -> WaitResult:
        """Waits until the projections have passed the position, at most `timeout_s`."""
        if self._has_passed(position):
            return WaitResult(is_reached=True, lag=0)
        if timeout_s > 0 and len(self._waiters) < WAITERS_MAX:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters[waiter] = position
            try:
                async with asyncio.timeout(timeout_s):
                    await waiter
            except TimeoutError:
                pass  # the result below has the lag
            finally:
                self._waiters.pop(waiter, None)
        next_offset = self._next.get((position.topic, position.partition), 0)
        return WaitResult(is_reached=self._has_passed(position), lag=max(0, position.offset + 1 - next_offset))

    async def run(self) -> None:
        """Listens until cancelled; reconnects after a loss. Raises Permanent for an error that a retry cannot fix."""
        while True:
            try:
                async with translate_errors("watch the positions of the projections"):
                    await self._listen()
            except Transient:
                await asyncio.sleep(RECONNECT_S)
            except Permanent as error:
                # Nothing to watch yet: the projector has not created the tables.
                if error.kind != "not_found":
                    raise
                await asyncio.sleep(RECONNECT_S)

    async def _listen(self) -> None:
        async with await self._connect() as connection:
            for channel in self._channels:
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            while True:
                await self._read_cursors(connection)
                await self._read_notifications(connection)

    async def _read_notifications(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Applies notifications until it is time to read the cursors again."""
        clock = asyncio.get_running_loop().time
        began = clock()
        is_current = True
        while is_current and (wait_s := began + (LOOK_WAITING_S if self._waiters else LOOK_IDLE_S) - clock()) > 0:
            async for notification in connection.notifies(timeout=wait_s, stop_after=1):
                is_current &= self._apply_notification(notification.channel, notification.payload)

    def _apply_notification(self, channel: str, payload: str) -> bool:
        """Applies the positions of a commit; False if the payload has none, or is of another build."""
        build, _, remainder = payload.partition(" ")
        topic, _, positions = remainder.partition(" ")
        if not build.isdecimal() or int(build) != self._builds.get(channel):
            return False
        for position in positions.split():
            partition, _, offset = position.partition(":")
            self._next[topic, int(partition)] = int(offset)
        self._wake()
        return True

    async def _read_cursors(self, connection: psycopg.AsyncConnection[Any]) -> None:
        positions = {}
        for channel, prefix in self._channels.items():
            if channel not in self._builds and not await _exists(connection, prefix):
                continue
            result = await connection.execute(
                sql.SQL(
                    "SELECT b.number, c.topic, c.partition, c.next_offset FROM {} b LEFT JOIN {} c ON true "
                    "WHERE b.state = 'live'"
                ).format(sql.Identifier(prefix, "builds"), sql.Identifier(prefix, "cursors"))
            )
            for build, topic, partition, next_offset in await result.fetchall():
                self._builds[channel] = build
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


async def _exists(connection: psycopg.AsyncConnection[Any], prefix: str) -> bool:
    """Whether a projector has created the tables. Reading a missing one would be an error in the server's log."""
    result = await connection.execute("SELECT to_regclass(%s) IS NOT NULL", (f"{prefix}.cursors",))
    row = await result.fetchone()
    assert row is not None
    return bool(row[0])
