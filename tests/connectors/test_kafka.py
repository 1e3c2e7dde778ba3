import asyncio
from collections.abc import Awaitable, Callable

import pytest

from connectors.errors import Transient
from connectors.kafka import KafkaAppender, KafkaGroup, KafkaOptions, KafkaRanges, KafkaTail, topic_partitions
from services.cli.stack.ports import pick_port


async def group(options: KafkaOptions) -> None:
    await KafkaGroup(options, "topic", "group", session_timeout_ms=1_000).start()


@pytest.mark.parametrize(
    "start",
    [
        lambda options: KafkaAppender(options).start(),
        lambda options: KafkaRanges(options).start(),
        lambda options: KafkaTail(options, "topic", {0: 0}).start(),
        group,
        lambda options: topic_partitions(options, "topic"),
    ],
    ids=["appender", "ranges", "tail", "group", "admin"],
)
async def test_a_broker_that_is_away_is_transient_for_every_client(
    start: Callable[[KafkaOptions], Awaitable[object]],
) -> None:
    bootstrap = f"127.0.0.1:{pick_port()}"
    async with asyncio.timeout(15):
        with pytest.raises(Transient, match=f"the broker at {bootstrap} does not answer"):
            await start(KafkaOptions(bootstrap=bootstrap))


class Resting:
    """A consumer whose fetch rests after an error: stop() lets its cancellation out before the client is closed."""

    def __init__(self) -> None:
        self._client = self
        self.closed = False

    async def stop(self) -> None:
        resting = asyncio.create_task(asyncio.Event().wait())
        resting.cancel()
        await resting

    async def close(self) -> None:
        self.closed = True


async def test_the_cancellation_of_a_fetch_does_not_end_who_closes_its_tail() -> None:
    tail, consumer = KafkaTail(KafkaOptions(bootstrap="nowhere:1"), "topic", {0: 0}), Resting()
    tail._consumer = consumer
    await tail.close()
    assert consumer.closed


async def test_who_is_cancelled_while_closing_a_tail_stays_cancelled() -> None:
    tail, consumer = KafkaTail(KafkaOptions(bootstrap="nowhere:1"), "topic", {0: 0}), Resting()
    tail._consumer = consumer
    closing = asyncio.create_task(tail.close())
    await asyncio.sleep(0)  # into stop()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert not consumer.closed
