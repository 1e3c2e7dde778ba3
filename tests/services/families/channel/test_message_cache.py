import asyncio
from typing import Any

from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.channel_events import (
    CursorMoved,
    LeaseSettled,
    MessagePublished,
    MessagesSurfaced,
    QueuePurged,
)
from loomlog.schemas.generated.values import Envelope, SurfacedMessage
from loomlog.schemas.reader import RawEvent
from loomlog.services.core.families import aggregate_id
from loomlog.services.families.channel.caller import Queue
from loomlog.services.families.channel.message_cache import OVERHEAD_BYTES, MessageCache, QueueWatch

QUEUE = Queue("acme", "news", "user", "ann")
OTHER = Queue("", "news", "global")
PLACE: Any = {"channel": "news", "scope": "user", "scope_id": "ann"}


def cache(bytes_max: int = 10_000_000) -> MessageCache:
    return MessageCache(local_codec(), topic="loom.x.events", bytes_max=bytes_max)


def put(cache: MessageCache, *events: Any, queue: Queue = QUEUE, offset: int = 7) -> None:
    for event in events:
        envelope = Envelope(
            term=1,
            seq=1,
            aggregate=aggregate_id("channel", queue.tenant, queue.aggregate),
            tenant=queue.tenant,
            at_ms=5,
            prev=bytes(16),
            cause_id="c",
        )
        value = local_codec().encode_event(envelope, event)
        schema_id = int.from_bytes(value[1:5], "big")
        cache.read(3, RawEvent(offset, schema_id, 1, 1, envelope.aggregate, value))


def published(number: int, position: int | None = None, value: str = '"v"') -> MessagePublished:
    return MessagePublished(
        **PLACE,
        message_id=f"msg_{number}",
        number=number,
        position=number if position is None else position,
        visible_ns=number * 10,
        published_ns=number * 10,
        value=value,
        value_bytes=len(value),
    )


def test_a_published_message_is_there_with_its_value() -> None:
    messages = cache()
    put(messages, published(1))
    message = messages.find(QUEUE, 1)
    assert message is not None
    assert (message.id, message.value, message.value_bytes, message.visible_ns) == ("msg_1", '"v"', 3, 10)
    assert messages.find(QUEUE, 2) is None
    assert messages.find(OTHER, 1) is None


def test_a_delayed_message_is_there_when_it_has_surfaced_with_its_new_place() -> None:
    messages = cache()
    put(messages, published(1, position=0))
    assert messages.find(QUEUE, 1) is None
    surfaced = SurfacedMessage(number=1, position=4, visible_ns=99)
    put(messages, MessagesSurfaced(**PLACE, messages=(surfaced,)))
    message = messages.find(QUEUE, 4)
    assert message is not None
    assert (message.id, message.visible_ns, message.published_ns) == ("msg_1", 99, 10)
    assert messages.find(QUEUE, -1) is None


def test_a_delayed_message_from_before_the_start_is_left_to_the_rows() -> None:
    messages = cache()
    put(messages, MessagesSurfaced(**PLACE, messages=(SurfacedMessage(number=1, position=4, visible_ns=99),)))
    assert messages.find(QUEUE, 4) is None
    assert messages.position(QUEUE) == ("loom.x.events/3:7",)


def test_beyond_its_bytes_it_forgets_what_it_heard_first() -> None:
    messages = cache(bytes_max=2 * (OVERHEAD_BYTES + 3))
    put(messages, published(1), published(2), published(3))
    assert messages.find(QUEUE, 1) is None
    assert messages.find(QUEUE, 2) is not None
    assert messages.find(QUEUE, 3) is not None
    assert messages.cached_bytes == 2 * (OVERHEAD_BYTES + 3)


def test_the_position_is_that_of_the_last_event_that_brought_a_message() -> None:
    messages = cache()
    assert messages.position(QUEUE) == ()
    put(messages, published(1), offset=11)
    put(messages, CursorMoved(**PLACE, cursor="cur_0", position=0), offset=12)
    put(messages, published(2, position=0), offset=13)
    assert messages.position(QUEUE) == ("loom.x.events/3:11",)


async def woken_by(*events: Any, queue: Queue = QUEUE) -> bool:
    messages = cache()
    with messages.watch([QUEUE]) as watch:
        put(messages, *events, queue=queue)
        return await watch.wait(0)


async def test_messages_that_come_surface_or_return_wake_those_who_wait() -> None:
    surfaced = SurfacedMessage(number=1, position=1, visible_ns=99)
    assert await woken_by(published(1))
    assert await woken_by(MessagesSurfaced(**PLACE, messages=(surfaced,)))
    assert await woken_by(LeaseSettled(**PLACE, lease_id="l", taken=0, returned=(1,)))


async def test_nothing_to_read_wakes_none() -> None:
    assert not await woken_by(published(1, position=0))
    assert not await woken_by(LeaseSettled(**PLACE, lease_id="l", taken=1))
    assert not await woken_by(QueuePurged(**PLACE, count=1, first_position=2))
    assert not await woken_by(published(1), queue=OTHER)


async def test_a_wait_ends_with_the_message_not_with_the_timeout() -> None:
    messages = cache()
    waiting = asyncio.create_task(messages.wait(QUEUE, 30))
    await asyncio.sleep(0)
    put(messages, published(1))
    assert await waiting
    assert not await messages.wait(QUEUE, 0)


async def test_what_came_before_clear_is_forgotten() -> None:
    watch = QueueWatch()
    watch.wake()
    watch.clear()
    assert not await watch.wait(0)
