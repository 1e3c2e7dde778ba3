"""Slots that are taken, waited for and given back, by a greedy tenant and a polite one."""

import asyncio

import pytest

from loomlog.services.core.shares import PRINCIPAL, TOTAL, Holder, ShareExhausted, ShareLimits
from loomlog.services.stream.shared_slots import HeldSlot, SharedSlots

GREEDY = Holder(tenant="acme", principal="ada")
POLITE = Holder(tenant="globex", principal="eve")
LONG_S = 3_600.0


def slots_of(total: int, waiting: ShareLimits | None = None) -> SharedSlots:
    return SharedSlots("slots", ShareLimits.of(total), waiting=waiting)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_slot_is_given_back_once_however_its_use_ends() -> None:
    slots = slots_of(4)
    slot = slots.try_acquire(GREEDY)
    with pytest.raises(ZeroDivisionError), slot:
        1 // (slots.shares.in_use - 1)
    slot.release()
    assert slots.shares.in_use == 0


async def test_a_refusal_at_once_and_one_after_a_wait_name_the_bound() -> None:
    slots = slots_of(2)
    slots.try_acquire(GREEDY)
    with pytest.raises(ShareExhausted, match="its share is 1;"):
        slots.try_acquire(GREEDY)
    with pytest.raises(ShareExhausted, match=r"its share is 1, and none got free within 0.001 s"):
        await slots.acquire(GREEDY, wait_s=0.001)
    slots.try_acquire(POLITE)
    with pytest.raises(ShareExhausted, match="all 2 slots"):
        slots.try_acquire(Holder(tenant="third", principal="p"))
    assert slots.refused == {PRINCIPAL: 2, TOTAL: 1}
    assert (slots.shares.waiting, slots.queued.in_use) == (0, 0)


async def test_one_that_is_cancelled_while_it_waits_or_just_as_it_got_a_slot_leaves_nothing_behind() -> None:
    slots = slots_of(1)
    held = slots.try_acquire(GREEDY)
    waits = asyncio.create_task(slots.acquire(POLITE, wait_s=LONG_S))
    await settle()
    waits.cancel()
    await asyncio.wait({waits})
    got = asyncio.create_task(slots.acquire(POLITE, wait_s=LONG_S))
    behind = asyncio.create_task(slots.acquire(GREEDY, wait_s=LONG_S))
    await settle()
    held.release()
    got.cancel()
    (await behind).release()
    assert (slots.shares.in_use, slots.shares.waiting, slots.queued.in_use) == (0, 0, 0)
    assert got.cancelled()


async def test_one_tenant_does_not_fill_the_queue_of_all() -> None:
    slots = slots_of(1, waiting=ShareLimits.of(4))
    held = slots.try_acquire(GREEDY)
    tasks = [asyncio.create_task(slots.acquire(GREEDY, wait_s=LONG_S)) for _ in range(10)]
    polite = asyncio.create_task(slots.acquire(POLITE, wait_s=LONG_S))
    await settle()
    assert sum(task.done() for task in tasks) == 8
    for task in tasks[2:]:
        with pytest.raises(ShareExhausted, match="places in the queue for slots"):
            await task
    held.release()
    waited: list[HeldSlot] = []
    for task in (tasks[0], polite, tasks[1]):
        waited.append(await task)
        waited[-1].release()
    assert slots.shares.in_use == 0
