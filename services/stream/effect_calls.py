"""The calls under way in this process, by aggregate and key.

A call is a task. Its result becomes a command for the aggregate's owner; a failure of our own code around it becomes a
command too (family.effects.crashed), so that a run never waits for a call that will not return. Calls outlive a
re-claim of their partition: the new fold reads `running` and does not repeat them. A stopped call is forgotten at once:
it may take a while to end, but its result is dropped.

Calls of a released partition may run on for RELEASED_GRACE_S. Their results are forwarded as commands to the present
owner, which accepts them if that attempt is still open.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

from loomlog.connectors.process.logs import log_fields
from loomlog.services.stream.family import Family

log = logging.getLogger(__name__)

RELEASED_GRACE_S = 10.0
"""Time a call may continue after its partition was released. More than the grace of the next owner
(services/stream/ownership/leadership.py), because a call that waits for its reconciler or for a person is open longer;
less than the wait of a drain.
"""
FORWARD_TIMEOUT_S = 5.0
"""Time a result may take to reach the commands topic; later it is of no use."""


def _ignore_outcome() -> None: ...


async def _drop_result(aggregate: str, tenant: str, order: Any) -> None: ...


class EffectRunner:
    """`run` executes an effect (given the state and the tenant) and returns a command; `done`
    passes it to the owner.
    """

    def __init__(
        self,
        family: Family,
        *,
        run: Callable[[Any, Any, str], Awaitable[Any]],
        done: Callable[[int, str, str, Any], bool],
        clock_ms: Callable[[], int],
        hand_over: Callable[[str, str, Any], Awaitable[None]] = _drop_result,
        describe: Callable[[Exception], str] = lambda error: f"{type(error).__name__}: {error}",
    ) -> None:
        """`done` takes (partition, aggregate, tenant, command) and is false if this process does not own the partition;
        `hand_over` then takes (aggregate, tenant, command), and only logs failures. `describe` is the text of a crash
        in the command.
        """
        self._told = describe
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
        """Start a call; ignored (False) while a call with the same key is under way.

        `returned` is called when it has ended and its result was delivered; not for a call stopped before it started.
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
        log_fields.set(
            {**log_fields.get(), f"{self._family.name}_id": aggregate, "tenant": tenant}
        )  # of this task alone
        task = self._tasks[aggregate][key]
        try:
            try:
                order = await self._run(effect, state, tenant)
            except asyncio.CancelledError:
                if task.cancelling():
                    raise
                # No stop was requested: something inside the call was cancelled, and the run would wait for ever.
                order = self._family.effects.crashed(effect, "it was cancelled from inside", self._clock_ms())
            except Exception as error:
                log.exception("call %s of %s %s crashed", key, self._family.name, aggregate)
                order = self._family.effects.crashed(effect, self._told(error), self._clock_ms())
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
        """Forward a result to the present owner of its aggregate; gives up after FORWARD_TIMEOUT_S."""
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
        """Cancel the calls of the aggregate; their results would be of no use."""
        self._partitions.pop(aggregate, None)
        for task in self._tasks.pop(aggregate, {}).values():
            task.cancel()

    def partition_released(self, partition: int) -> None:
        """The partition was released: its calls have RELEASED_GRACE_S to return."""
        self.partition_reacquired(partition)
        if partition in self._partitions.values():
            loop = asyncio.get_running_loop()
            self._left[partition] = loop.call_later(RELEASED_GRACE_S, self.stop_partition, partition)

    def partition_reacquired(self, partition: int) -> None:
        """The partition is owned again: its calls have no time limit."""
        timer = self._left.pop(partition, None)
        if timer is not None:
            timer.cancel()

    def stop_partition(self, partition: int) -> None:
        """Cancel the calls of every aggregate of a partition, also while it is being claimed."""
        self._left.pop(partition, None)
        for aggregate in [name for name, number in self._partitions.items() if number == partition]:
            self.stop(aggregate)

    def running(self, aggregate: str) -> frozenset[Hashable]:
        return frozenset(self._tasks.get(aggregate, ()))

    @property
    def running_count(self) -> int:
        return sum(len(running) for running in self._tasks.values()) + self._handing_over

    def running_calls_of(self, partition: int) -> int:
        """Return the number of calls of a partition."""
        return sum(len(self._tasks[name]) for name, number in self._partitions.items() if number == partition)

    def stop_all(self) -> None:
        for aggregate in list(self._tasks):
            self.stop(aggregate)
