"""The outbox: commands that events of one aggregate send to another, perhaps of another family and partition.

A delivery follows from an event in the log, and its command id from the event, so it may be sent any number of times
and is carried out once. It is sent when the event is in the log, in memory when the receiver's partition is owned here,
through its commands topic otherwise, and again by the next owner for every event after the checkpoint. So a checkpoint
is not made past an event whose deliveries are on their way (`delivered_below`). This is the only way between
partitions.

Before: handler.py, with the events of a decision. After: client.py, or the commands topic of runs.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.retries import until_answered
from loomlog.services.stream.entities.families import Deliver

log = logging.getLogger(__name__)


POLL_S = 0.05

Send = Callable[[Deliver, str], Awaitable[None]]
"""Delivers a command for a tenant; returns when it is durable where it was sent. Raises ConnectorError."""

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class Outbox:
    """The deliveries of the entity partitions owned here."""

    def __init__(self, send: Send, spawn: Spawn) -> None:
        """`spawn` starts a task that ends with the process's host."""
        self.sent = 0
        self._spawn = spawn
        self._send = send
        self._pending: dict[int, dict[str, int]] = {}
        """Offset of the event of each delivery on its way, by partition and command id; and what is held."""
        self._tasks: dict[int, set[asyncio.Task[None]]] = {}

    def register(self, partition: int, offset: int, delivery: Deliver) -> None:
        """Note a delivery whose event is in the log at the offset, or before."""
        self._pending.setdefault(partition, {})[delivery.id] = offset

    def hold(self, partition: int, aggregate: str, offset: int) -> None:
        """Note that events of an aggregate from the offset on may have deliveries, which are not known yet."""
        self._pending.setdefault(partition, {})[aggregate] = offset

    def unhold(self, partition: int, aggregate: str) -> None:
        """The deliveries of these events are registered."""
        self._pending.get(partition, {}).pop(aggregate, None)

    async def delivered_below(self, partition: int, offset: int, wait_s: float) -> bool:
        """Wait until no delivery of an event below the offset is on its way; False if one is, or was not sent by this
        owner. Under load there is always one on its way, but those below an offset become fewer.
        """
        pending = self._pending.get(partition, {})  # what `release` leaves undelivered stays in it
        deadline_s = time.monotonic() + wait_s
        while any(at < offset for at in pending.values()):
            if time.monotonic() >= deadline_s:
                return False
            await asyncio.sleep(POLL_S)
        return True

    def pending_count(self) -> int:
        return sum(map(len, self._pending.values()))

    def start(self, partition: int, delivery: Deliver, tenant: str) -> None:
        """Deliver a registered command, until it is durable or the partition is released."""
        task = self._spawn(self._deliver(partition, delivery, tenant))
        tasks = self._tasks.setdefault(partition, set())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _deliver(self, partition: int, delivery: Deliver, tenant: str) -> None:
        send = partial(self._send, delivery, tenant)
        await until_answered(send, f"the command {delivery.id}", failures=(ConnectorError,))
        self.sent += 1
        self._pending.get(partition, {}).pop(delivery.id, None)

    def release(self, partition: int) -> None:
        """The partition is not owned here any more: its next owner delivers what is left."""
        self._pending.pop(partition, None)
        for task in self._tasks.pop(partition, set()):
            task.cancel()
