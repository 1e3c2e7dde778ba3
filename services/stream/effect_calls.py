"""The calls under way in this process, by aggregate and key.

A call is a task. Its result becomes an order for the aggregate's owner; whatever goes wrong in our own code around it
becomes an order too (family.crashed), so that a run never waits for a call that will not return. Calls outlive a
re-claim of their partition: the new fold asks `running` and does not repeat them. A stopped call is forgotten at once:
it may take a while to end, but nobody waits for it any more and its result is dropped.

Calls of a partition that was given up run on for LEFT_S. What they give is handed over: it goes to whoever owns the
partition now as a command, and he takes it if that attempt is still open.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

from loomlog.services.stream.family import Family

log = logging.getLogger(__name__)

RELEASED_GRACE_S = 10.0
"""How long a call may go on after its partition was given up. More than the grace of the next owner
(services/stream/ownership/leadership.py), because a call that waits for its reconciler or for a person is open longer;
less than the wait for anybody who drains."""
FORWARD_TIMEOUT_S = 5.0
"""How long a result may take to reach the commands topic; then it is of no use any more."""


def _ignore_outcome() -> None: ...


async def _drop_result(aggregate: str, tenant: str, order: Any) -> None: ...


class EffectRunner:
    """`run` carries an effect out (given the state and the tenant) and gives an order; `done` hands it to the owner."""

    def __init__(
        self,
        family: Family,
        *,
        run: Callable[[Any, Any, str], Awaitable[Any]],
        done: Callable[[int, str, str, Any], bool],
        clock_ms: Callable[[], int],
        hand_over: Callable[[str, str, Any], Awaitable[None]] = _drop_result,
        told: Callable[[Exception], str] = lambda error: f"{type(error).__name__}: {error}",
    ) -> None:
        """`done` takes (partition, aggregate, tenant, order) and is false when this process has no such partition;
        `hand_over` then takes (aggregate, tenant, order), and tells failures to the log alone. `told` is what the order
        says of a crash."""
        self._told = told
        self._family = family
        self._run = run
        self._done = done
        self._clock_ms = clock_ms
        self._hand_over = hand_over
        self._handing_over = 0
        self._left: dict[int, asyncio.TimerHandle] = {}
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
        returned: Callable[[], None] = _ignore_outcome,
    ) -> bool:
        """Begin a call; the same key again while it is under way is ignored (False).

        `returned` is called when it has ended, its result handed over; not for a call that is stopped before it began.
        """
        assert self.group is not None, "calls start inside the host's task group"
        running = self._tasks.setdefault(aggregate, {})
        if effect.key in running:
            return False
        self._partitions[aggregate] = partition
        task = self.group.create_task(self._run_effect(partition, aggregate, tenant, effect, state, returned))
        running[effect.key] = task
        return True

    async def _run_effect(
        self, partition: int, aggregate: str, tenant: str, effect: Any, state: Any, returned: Callable[[], None]
    ) -> None:
        key = effect.key
        task = self._tasks[aggregate][key]
        try:
            try:
                order = await self._run(effect, state, tenant)
            except asyncio.CancelledError:
                if task.cancelling():
                    raise
                # Nobody stopped this call: something inside it was cancelled, and the run would wait for ever.
                order = self._family.crashed(effect, "it was cancelled from inside", self._clock_ms())
            except Exception as error:
                log.exception("call %s of %s %s crashed", key, self._family.name, aggregate)
                order = self._family.crashed(effect, self._told(error), self._clock_ms())
            running = self._tasks.get(aggregate)
            if running is None or running.get(key) is not task:
                return  # stopped meanwhile
            del running[key]
            if not running:
                del self._tasks[aggregate], self._partitions[aggregate]
            if not self._done(partition, aggregate, tenant, order):
                await self.forward_result(aggregate, tenant, order)
        finally:
            returned()

    async def forward_result(self, aggregate: str, tenant: str, order: Any) -> None:
        """Give a result to whoever owns its aggregate now; gives up after HAND_OVER_S."""
        self._handing_over += 1
        try:
            async with asyncio.timeout(FORWARD_TIMEOUT_S):
                await self._hand_over(aggregate, tenant, order)
        except TimeoutError:
            log.warning(
                "%s %s: a late result could not be handed over in %.0f s",
                self._family.name,
                aggregate,
                FORWARD_TIMEOUT_S,
            )
        finally:
            self._handing_over -= 1

    def stop(self, aggregate: str) -> None:
        """Cancel what is under way for the aggregate; its results would be of no use."""
        self._partitions.pop(aggregate, None)
        for task in self._tasks.pop(aggregate, {}).values():
            task.cancel()

    def partition_released(self, partition: int) -> None:
        """The partition was given up: its calls have LEFT_S to return."""
        self.partition_reacquired(partition)
        if partition in self._partitions.values():
            loop = asyncio.get_running_loop()
            self._left[partition] = loop.call_later(RELEASED_GRACE_S, self.stop_partition, partition)

    def partition_reacquired(self, partition: int) -> None:
        """The partition is here (again): its calls may take as long as they do."""
        timer = self._left.pop(partition, None)
        if timer is not None:
            timer.cancel()

    def stop_partition(self, partition: int) -> None:
        """Cancel what is under way for every aggregate of a partition, also while it is being claimed."""
        self._left.pop(partition, None)
        for aggregate in [name for name, number in self._partitions.items() if number == partition]:
            self.stop(aggregate)

    def running(self, aggregate: str) -> frozenset[Hashable]:
        return frozenset(self._tasks.get(aggregate, ()))

    @property
    def running_count(self) -> int:
        return sum(len(running) for running in self._tasks.values()) + self._handing_over

    def running_calls_of(self, partition: int) -> int:
        """Calls of one partition."""
        return sum(len(self._tasks[name]) for name, number in self._partitions.items() if number == partition)

    def stop_all(self) -> None:
        for aggregate in list(self._tasks):
            self.stop(aggregate)
