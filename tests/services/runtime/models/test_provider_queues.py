"""Places of a provider: bounded, fair, timed, and given back however a call ends."""

import asyncio
from typing import Any

import pytest

from loomlog.connectors.errors import TRANSIENT_KINDS, Transient
from loomlog.services.core.admission import PROVIDER_FULL
from loomlog.services.core.shares import Holder
from loomlog.services.families.budget.reservations import may_be_billed
from loomlog.services.runtime.models.provider_queues import (
    DEFAULT_SLOTS,
    DEFAULT_WAIT_S,
    ProviderQueue,
    ProviderQueueLimits,
)

ADA = Holder(tenant="acme", principal="ada")


async def settled() -> None:
    """Whatever can go on now has."""
    for _ in range(10):
        await asyncio.sleep(0)


class Caller:
    """Enters as a task, and notes when it is inside."""

    def __init__(self, queue: ProviderQueue, order: list[str], tenant: str = "acme", user: str = "ada") -> None:
        self.queue = queue
        self.name = f"{tenant}/{user}"
        self.tenant, self.user, self.order = tenant, user, order
        self.done = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        async with self.queue.slot(self.tenant, self.user):
            self.order.append(self.name)
            await self.done.wait()


def queue_of(places: int = 1, depth: int = 10, wait_s: float = 30.0) -> ProviderQueue:
    return ProviderQueue("acme", slots=places, limits=ProviderQueueLimits(depth=depth, wait_s=wait_s))


async def test_calls_beyond_the_places_wait_and_go_by_tenant_and_user() -> None:
    queue, order = queue_of(), list[str]()
    callers = [Caller(queue, order, *who) for who in (("a", "x"), ("a", "x"), ("a", "x"), ("a", "y"), ("b", "z"))]
    await settled()
    assert (order, queue.in_use, queue.waiting) == (["a/x"], 1, 4)
    for _ in range(5):
        next(caller for caller in callers if caller.name == order[-1] and not caller.done.is_set()).done.set()
        await settled()
    assert order == ["a/x", "a/x", "b/z", "a/y", "a/x"]
    assert (queue.in_use, queue.waiting, queue.wait_seconds.total) == (0, 0, 4)


async def test_a_call_is_turned_away_at_once_when_too_many_wait() -> None:
    queue, order = queue_of(depth=1), list[str]()
    callers = [Caller(queue, order) for _ in range(2)]
    await settled()
    with pytest.raises(
        Transient, match="acme: provider_concurrency_exhausted: ada of acme has 1 places in the queue"
    ) as refused:
        await queue.acquire(ADA)
    assert (refused.value.kind, refused.value.retry_after_s) == (PROVIDER_FULL, 5.0)
    assert queue.refused == {"full": 1}
    for caller in callers:
        caller.done.set()
    await settled()
    assert (queue.in_use, queue.waiting) == (0, 0)


async def test_a_call_is_turned_away_when_its_time_is_up_and_leaves_the_queue() -> None:
    queue, order = queue_of(wait_s=0.01), list[str]()
    holder = Caller(queue, order)
    await settled()
    with pytest.raises(Transient, match="none got free"):
        await queue.acquire(ADA)
    assert (queue.refused, queue.waiting) == ({"late": 1}, 0)
    holder.done.set()
    await settled()
    assert queue.in_use == 0


async def test_a_call_that_is_cancelled_while_it_waits_keeps_nobody_out() -> None:
    queue, order = queue_of(), list[str]()
    first, second, third = (Caller(queue, order, user=user) for user in "xyz")
    await settled()
    second.task.cancel()
    first.done.set()
    await settled()
    assert order == ["acme/x", "acme/z"]
    third.done.set()
    await settled()
    assert (queue.in_use, queue.waiting) == (0, 0)


async def test_a_call_that_is_cancelled_just_as_its_turn_comes_passes_the_place_on() -> None:
    queue, order = queue_of(), list[str]()
    held = await queue.acquire(ADA)
    second, third = (Caller(queue, order, user=user) for user in "yz")
    await settled()
    held.release()  # the place is the second caller's now
    second.task.cancel()
    await settled()
    assert order == ["acme/z"]
    third.done.set()
    await settled()
    assert (queue.in_use, queue.waiting) == (0, 0)


async def test_a_call_that_was_cancelled_just_before_its_turn_passes_the_place_on() -> None:
    queue, order = queue_of(), list[str]()
    held = await queue.acquire(ADA)
    second, third = (Caller(queue, order, user=user) for user in "yz")
    await settled()
    second.task.cancel()
    held.release()
    await settled()
    assert order == ["acme/z"]
    third.done.set()
    await settled()
    assert (queue.in_use, queue.waiting) == (0, 0)


async def test_a_tenant_with_many_calls_leaves_places_for_others() -> None:
    queue, order = queue_of(places=4), list[str]()
    first = Caller(queue, order, "polite", "eve")  # from the second tenant on each has its share
    first.done.set()
    await first.task
    callers = [Caller(queue, order, "greedy", f"u{number}") for number in range(8)]
    await settled()
    callers.append(Caller(queue, order, "polite", "eve"))
    await settled()
    assert (order.count("greedy/u0"), len(order), order[-1], queue.waiting) == (1, 5, "polite/eve", 5)
    for caller in callers:
        caller.done.set()
    await asyncio.gather(*(caller.task for caller in callers))
    assert (queue.in_use, queue.waiting) == (0, 0)


async def test_a_failing_call_gives_its_place_back() -> None:
    queue = queue_of()

    async def fail() -> None:
        async with queue.slot("acme", "ada"):
            raise Transient("acme 503: busy", kind="unavailable")

    with pytest.raises(Transient):
        await fail()
    assert queue.in_use == 0


@pytest.mark.parametrize(("wait_s", "longest"), [(30.0, DEFAULT_WAIT_S), (3_600.0, 3_600.0)])
def test_where_nobody_named_a_bound_calls_wait_long(wait_s: float, longest: float) -> None:
    queue = queue_of(places=0, wait_s=wait_s)
    assert (queue.slots, queue.wait_s) == (DEFAULT_SLOTS, longest)


def test_a_call_without_a_place_is_a_transient_failure_and_costs_nothing() -> None:
    assert PROVIDER_FULL in TRANSIENT_KINDS
    assert not may_be_billed(Transient("acme: no place", kind=PROVIDER_FULL))


async def test_many_calls_that_come_and_go_never_exceed_the_places() -> None:
    queue = queue_of(places=3, depth=200)
    most = 0

    async def call(number: int) -> Any:
        nonlocal most
        async with queue.slot(f"t{number % 3}", f"u{number % 7}"):
            most = max(most, queue.in_use)
            await asyncio.sleep(0)

    await asyncio.gather(*(call(number) for number in range(100)))
    assert (most, queue.in_use, queue.waiting) == (3, 0, 0)
