import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.kafka import MAX_BATCH_BYTES
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ConsumerRecord, ProducerRecord
from loomlog.schemas.generated.stream_records import DeadLetter, Header
from loomlog.services.stream.dead_letters import MAX_ERROR_CHARACTERS, ORIGINAL_BYTES_MAX, DeadLetters
from tests.services.core.run.given import NOW
from tests.services.stream.given import CODEC

TOPIC = "loom.dead-letter"


def record(
    value: bytes | None = b"value", *, key: bytes | None = b"key", headers: Any = (), offset: int = 7
) -> ConsumerRecord:
    return ConsumerRecord("loom.run.commands", 2, offset, 99, key, value, headers)


class Log(MemoryLog):
    """A log that may refuse appends, and checks that they would fit a broker's batch."""

    refuses = 0

    async def append(self, topic: str, partition: int, records: Any) -> int:
        assert sum(len(r.value or b"") + len(r.key or b"") + 100 for r in records) <= MAX_BATCH_BYTES
        if self.refuses:
            self.refuses -= 1
            raise UnknownOutcome("no broker")
        return await super().append(topic, partition, records)


class Desk:
    """Dead letters at work."""

    def __init__(self) -> None:
        self.log = Log({TOPIC: 1})
        self.letters = DeadLetters(CODEC, self.log, topic=TOPIC, service="runtime", clock_ms=lambda: NOW)

    def written(self) -> list[DeadLetter]:
        return [CODEC.decode(consumer_record.value or b"").record for consumer_record in self.log.records[TOPIC, 0]]

    async def until(self, count: int) -> list[DeadLetter]:
        async with asyncio.timeout(30):
            while self.letters.parked < count:
                await asyncio.sleep(0)
        return self.written()


@pytest_asyncio.fixture(loop_scope="session")
async def desk() -> AsyncIterator[Desk]:
    made = Desk()
    task = asyncio.get_running_loop().create_task(made.letters.run())
    yield made
    task.cancel()
    await asyncio.wait([task])


async def test_a_letter_holds_all_that_is_needed_to_put_the_record_back(desk: Desk) -> None:
    desk.letters.park(record(headers=(("h", b"1"),)), kind="refused", error="because")
    assert await desk.until(1) == [
        DeadLetter(
            topic="loom.run.commands",
            partition=2,
            offset=7,
            timestamp_ms=99,
            service="runtime",
            kind="refused",
            error="because",
            at_ms=NOW,
            key=b"key",
            value=b"value",
            headers=(Header(key="h", value=b"1"),),
        )
    ]
    assert desk.log.records[TOPIC, 0][0].key == b"loom.run.commands/2/7"


async def test_whoever_parks_is_told_when_the_letter_is_in_the_log_and_not_before(desk: Desk) -> None:
    options: list[int] = []
    desk.log.refuses = 3
    desk.letters.park(record(), kind="refused", error="e", parked=lambda: options.append(len(desk.written())))
    assert options == []
    await desk.until(1)
    assert options == [1]


async def test_letters_wait_while_the_broker_is_away_and_keep_their_order(desk: Desk) -> None:
    desk.log.refuses = 5
    for offset in range(20):
        desk.letters.park(record(offset=offset), kind="refused", error="e")
    assert [letter.offset for letter in await desk.until(20)] == list(range(20))


async def test_many_letters_travel_in_batches_that_fit_an_append(desk: Desk) -> None:
    for offset in range(6):
        desk.letters.park(record(b"x" * 400_000, offset=offset), kind="refused", error="e")
    assert [len(letter.value or b"") for letter in await desk.until(6)] == [400_000] * 6


async def test_of_a_record_that_is_too_large_the_place_is_kept(desk: Desk) -> None:
    desk.letters.park(record(b"x" * (ORIGINAL_BYTES_MAX + 1)), kind="refused", error="e")
    letter = (await desk.until(1))[0]
    assert (letter.value, letter.key, letter.offset) == (None, b"key", 7)


async def test_large_headers_and_keys_are_bounded_with_the_value(desk: Desk) -> None:
    big = (("h", b"x" * 400_000),)
    desk.letters.park(record(b"v" * 400_000, headers=big), kind="refused", error="e")
    desk.letters.park(record(b"v" * 100, headers=big, key=b"k" * 400_000), kind="refused", error="e")
    first, second = await desk.until(2)
    assert (len(first.value or b""), first.headers, first.key) == (400_000, (), b"key")
    assert (second.value, len(second.headers), second.key) == (b"v" * 100, 1, None)


async def test_nulls_garbage_and_endless_errors_make_letters_too(desk: Desk) -> None:
    desk.letters.park(
        record(None, key=None, headers=(("h", None),)), kind="undecodable", error="\ud800" + "x" * 1_000_000
    )
    letter = (await desk.until(1))[0]
    assert (letter.key, letter.value, letter.headers) == (None, None, (Header(key="h", value=b""),))
    assert len(letter.error) == MAX_ERROR_CHARACTERS


def test_a_letter_of_the_largest_record_fits_an_append() -> None:
    letters = DeadLetters(CODEC, MemoryLog({}), topic=TOPIC, service="runtime", clock_ms=lambda: NOW)
    letters.park(
        record(b"v" * ORIGINAL_BYTES_MAX, headers=(("h" * 9_999, b"x" * 9_999),) * 20, key=b"k" * 99_999),
        kind="refused",
        error="\u20ac" * 99_999,
    )
    outgoing: ProducerRecord = letters._queue.get_nowait()[0]
    assert len(outgoing.value or b"") < MAX_BATCH_BYTES
