"""The calls under way in this process, by aggregate and key.

A call is a task. Its result becomes an order for the aggregate's owner; whatever goes wrong in our own code around it
becomes an order too (family.crashed), so that a run never waits for a call that will not return. Calls outlive a
re-claim of their partition: the new fold asks `running` and does not repeat them. A stopped call is forgotten at once:
it may take a while to end, but nobody waits for it any more and its result is dropped.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

from services.stream.family import Family

log = logging.getLogger(__name__)


def _nobody_waits() -> None: ...


class Calls:
    """`run` carries an effect out (given the state and the tenant) and gives an order; `done` hands it to the owner."""

    def __init__(
        self,
        family: Family,
        *,
        run: Callable[[Any, Any, str], Awaitable[Any]],
        done: Callable[[int, str, Any], None],
        clock_ms: Callable[[], int],
    ) -> None:
        self._family = family
        self._run = run
        self._done = done
        self._clock_ms = clock_ms
        self._tasks: dict[str, dict[Hashable, asyncio.Task[None]]] = {}
        self._partitions: dict[str, int] = {}
        self.group: asyncio.TaskGroup | None = None

    def start(
        self,
        partition: int,
        aggregate: str,
        tenant: str,
        effect: Any,
        state: Any,
        returned: Callable[[], None] = _nobody_waits,
    ) -> bool:
        """Begin a call; the same key again while it is under way is ignored (False).

        `returned` is called when it has ended, its result handed over; not for a call that is stopped before it began.
        """
        assert self.group is not None, "calls start inside the host's task group"
        running = self._tasks.setdefault(aggregate, {})
        if effect.key in running:
            return False
        self._partitions[aggregate] = partition
        task = self.group.create_task(self._carry_out(partition, aggregate, tenant, effect, state, returned))
        running[effect.key] = task
        return True

    async def _carry_out(
        self, partition: int, aggregate: str, tenant: str, effect: Any, state: Any, returned: Callable[[], None]
    ) -> None:
        try:
            await self._call(partition, aggregate, tenant, effect, state)
        finally:
            returned()

    async def _call(self, partition: int, aggregate: str, tenant: str, effect: Any, state: Any) -> None:
        task = self._tasks[aggregate][effect.key]
        try:
            order = await self._run(effect, state, tenant)
        except asyncio.CancelledError:
            if task.cancelling():
                raise
            # Nobody stopped this call: something inside it was cancelled, and the run would wait for ever.
            order = self._family.crashed(effect, "it was cancelled from inside", self._clock_ms())
        except Exception as error:
            log.exception("call %s of %s crashed", effect.key, aggregate)
            order = self._family.crashed(effect, f"{type(error).__name__}: {error}", self._clock_ms())
        running = self._tasks.get(aggregate)
        if running is None or running.get(effect.key) is not task:
            return  # stopped meanwhile
        del running[effect.key]
        if not running:
            del self._tasks[aggregate], self._partitions[aggregate]
        self._done(partition, aggregate, order)

    def stop(self, aggregate: str) -> None:
        """Cancel what is under way for the aggregate; its results would be of no use."""
        self._partitions.pop(aggregate, None)
        for task in self._tasks.pop(aggregate, {}).values():
            task.cancel()

    def stop_partition(self, partition: int) -> None:
        """Cancel what is under way for every aggregate of a partition, also while it is being claimed."""
        for aggregate in [name for name, number in self._partitions.items() if number == partition]:
            self.stop(aggregate)

    def running(self, aggregate: str) -> frozenset[Hashable]:
        return frozenset(self._tasks.get(aggregate, ()))

    @property
    def under_way(self) -> int:
        return sum(len(running) for running in self._tasks.values())

    def stop_all(self) -> None:
        for aggregate in list(self._tasks):
            self.stop(aggregate)
