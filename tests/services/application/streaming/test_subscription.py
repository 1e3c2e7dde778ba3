import asyncio
from typing import cast

import pytest

from loomlog.services.application.streaming import subscription as module
from loomlog.services.application.streaming.items import Item
from loomlog.services.application.streaming.subscription import CLIENT_LEFT, SLOW_CONSUMER, STOPPING, Subscription


class Sized:
    def __init__(self, size: int = 10) -> None:
        self.size = size


def item(size: int = 10) -> Item:
    return cast(Item, Sized(size))


def subscription() -> Subscription:
    return Subscription("r_1", wants_previews=True)


async def test_what_was_put_is_taken_in_order() -> None:
    queue = subscription()
    items = [item() for _ in range(3)]
    for one in items:
        queue.put(one)
    assert await queue.take(1.0) == items
    assert await queue.take(0.0) == []


async def test_a_waiting_taker_is_woken_once_by_a_batch() -> None:
    queue = subscription()
    taking = asyncio.create_task(queue.take(60.0))
    await asyncio.sleep(0)
    queue.put(item())
    queue.put(item())
    await asyncio.sleep(0)
    assert not taking.done(), "items are put silently; the hub wakes at the end of its batch"
    queue.wake()
    assert len(await taking) == 2


async def test_a_wait_without_items_ends_at_its_bound() -> None:
    assert await subscription().take(0.01) == []


async def test_a_slow_subscriber_is_dropped_by_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUE_ITEMS_MAX", 3)
    forgotten: list[Subscription] = []
    queue = Subscription("r_1", wants_previews=False, on_close=forgotten.append)
    for _ in range(4):
        queue.put(item())
    assert queue.close_reason == SLOW_CONSUMER
    assert forgotten == [queue]
    assert await queue.take(0.0) == [], "it reads on from the read models, so the queue is of no use"
    queue.put(item())
    assert await queue.take(0.0) == []


async def test_a_slow_subscriber_is_dropped_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUE_BYTES_MAX", 100)
    queue = subscription()
    queue.put(item(60))
    assert not queue.close_reason
    queue.put(item(60))
    assert queue.close_reason == SLOW_CONSUMER


async def test_what_the_ring_had_makes_nobody_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUE_ITEMS_MAX", 2)
    monkeypatch.setattr(module, "QUEUE_BYTES_MAX", 30)
    queue = Subscription("r_1", wants_previews=True, recent=[item() for _ in range(10)])
    queue.put(item())
    assert not queue.close_reason
    assert len(await queue.take(0.0)) == 11


async def test_taking_makes_room_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUE_BYTES_MAX", 100)
    queue = subscription()
    for _ in range(5):
        queue.put(item(60))
        assert len(await queue.take(0.0)) == 1
    assert not queue.close_reason


async def test_closing_wakes_a_taker() -> None:
    queue = subscription()
    taking = asyncio.create_task(queue.take(60.0))
    await asyncio.sleep(0)
    queue.close()
    assert await taking == []
    assert queue.close_reason == CLIENT_LEFT


async def test_a_process_that_stops_still_gives_what_was_queued() -> None:
    queue = subscription()
    queue.put(item())
    queue.close(STOPPING)
    assert len(await queue.take(0.0)) == 1


async def test_the_first_reason_to_close_stands() -> None:
    queue = subscription()
    queue.close(SLOW_CONSUMER)
    queue.close(STOPPING)
    assert queue.close_reason == SLOW_CONSUMER


async def test_what_is_given_back_is_taken_first() -> None:
    queue = subscription()
    first, second = item(), item()
    queue.put(first)
    taken = await queue.take(0.0)
    queue.put(second)
    queue.put_back(taken)
    assert await queue.take(0.0) == [first, second]


async def test_one_who_gathers_is_given_everything_when_the_time_is_over() -> None:
    queue = subscription()
    taking = asyncio.create_task(queue.take(60.0, gather_s=0.02))
    await asyncio.sleep(0)
    for _ in range(3):
        queue.put(item())
        queue.wake()
    await asyncio.sleep(0)
    assert not taking.done(), "woken by none of them"
    assert len(await taking) == 3


async def test_an_urgent_item_ends_the_gathering() -> None:
    queue = subscription()
    taking = asyncio.create_task(queue.take(60.0, gather_s=60.0))
    await asyncio.sleep(0)
    queue.put(item())
    queue.wake()
    queue.put(item(), urgent=True)
    queue.wake()
    async with asyncio.timeout(20):
        assert len(await taking) == 2


async def test_an_urgent_item_that_is_queued_already_is_not_waited_with() -> None:
    queue = subscription()
    queue.put(item(), urgent=True)
    async with asyncio.timeout(20):
        assert len(await queue.take(60.0, gather_s=60.0)) == 1


async def test_urgency_is_over_once_it_was_taken() -> None:
    queue = subscription()
    queue.put(item(), urgent=True)
    await queue.take(1.0)
    taking = asyncio.create_task(queue.take(60.0, gather_s=60.0))
    await asyncio.sleep(0)
    queue.put(item())
    queue.wake()
    await asyncio.sleep(0)
    assert not taking.done()
    queue.close()
    await taking


async def test_a_gathering_whose_time_has_passed_ends_with_the_next_item() -> None:
    queue = subscription()
    taking = asyncio.create_task(queue.take(60.0, gather_s=1e-9))
    await asyncio.sleep(0)
    queue.put(item())
    queue.wake()
    await asyncio.sleep(0)
    assert taking.done()


async def test_a_close_ends_the_gathering() -> None:
    queue = subscription()
    queue.put(item())
    taking = asyncio.create_task(queue.take(60.0, gather_s=60.0))
    await asyncio.sleep(0)
    queue.close(STOPPING)
    async with asyncio.timeout(20):
        assert len(await taking) == 1


async def test_what_the_ring_had_or_was_given_back_is_wanted_at_once() -> None:
    queue = Subscription("r_1", wants_previews=True, recent=[item()])
    async with asyncio.timeout(20):
        taken = await queue.take(60.0, gather_s=60.0)
        queue.put_back(taken)
        assert await queue.take(60.0, gather_s=60.0) == taken
