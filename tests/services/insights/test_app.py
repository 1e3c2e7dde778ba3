"""A batch counts as a whole, and unreadable records are dead-lettered once: without a broker."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka import KafkaOptions
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.stream_records import DeadLetter, Header, RunTally
from loomlog.services.insights.app import Insights, Stalled
from loomlog.services.insights.minute_windows import MINUTE_MS, TallyFilter, minute_start_ms
from loomlog.services.insights.progress import PartitionStart
from loomlog.services.insights.settings import InsightsSettings
from tests.services.insights.given import NOW_MS, tally

TOPIC = "loom.insights.runs"


@dataclass(frozen=True, kw_only=True)
class Message:
    """The part of a Faust message that the app uses."""

    value: bytes | None
    offset: int
    partition: int = 0
    topic: str = TOPIC
    key: bytes | None = b"r_1"
    headers: Sequence[tuple[str, bytes]] = (("h", b"1"),)
    timestamp: float = NOW_MS / 1000
    generation_id: int = 0


@dataclass(frozen=True)
class Event:
    message: Message


@dataclass
class Letters:
    """A producer that records what it sends, or fails."""

    sent: list[tuple[str, bytes, DeadLetter]] = field(default_factory=list)
    away: bool = False

    async def send_and_wait(self, topic: str, key: bytes, value: bytes, *options: None) -> None:
        if self.away:
            raise TimeoutError
        self.sent.append((topic, key, local_codec().decode(value).record))


def insights(letters: Letters, *, committed: int | None = None) -> Insights:
    settings = InsightsSettings(kafka=KafkaOptions(bootstrap="127.0.0.1:1"))
    insights = Insights(settings, member="m", now_ms=lambda: NOW_MS)
    insights.app.finalize()
    insights.app.producer = letters  # type: ignore[assignment]  # only send_and_wait is used
    insights.app.progress.begin({0: PartitionStart(offset=0, committed=committed, end=2)})
    return insights


def record(content: RunTally | Header | bytes | None, offset: int, **fields: int) -> Message:
    value = content if content is None or isinstance(content, bytes) else local_codec().encode(content)
    return Message(value=value, offset=offset, **fields)  # type: ignore[arg-type]  # partition or generation_id


async def test_a_batch_is_in_the_windows_by_partition_and_minute() -> None:
    app = insights(Letters())
    before = tally(offset=11, ended_at_ms=NOW_MS - MINUTE_MS)
    await app.process_batch([record(tally(), 0), record(before, 1), record(tally(offset=12, runs=40), 2)])
    view, minute = app.view(), minute_start_ms(NOW_MS)
    assert {cell: totals.runs for cell, totals in view.cells.items()} == {(0, minute): 41, (0, minute - MINUTE_MS): 1}
    assert view.records["counted"] == 3
    assert view.is_whole
    assert app.app.progress.offsets_to_commit() == {0: 3}


async def test_tallies_that_do_not_count_are_counted_by_outcome() -> None:
    app = insights(Letters())
    await app.process_batch([record(tally(), 0), record(tally(), 1), record(tally(term=20, offset=21), 2)])
    await app.process_batch([record(tally(offset=22), 3), record(tally(offset=23, ended_at_ms=5), 4)])
    records = app.view().records
    assert (records["counted"], records["duplicate"], records["stale"], records["late"]) == (2, 1, 2, 0)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"garbage", "undecodable"),
        (None, "undecodable"),
        (b"\0\xff\xff\xff\xff.", "unknown_schema"),
        (Header(key="a", value=b""), "refused"),
        (tally(term=10, offset=10), "refused"),
    ],
)
async def test_an_unreadable_record_is_dead_lettered_and_the_others_count(
    value: bytes | Header | None, kind: str
) -> None:
    letters = Letters()
    app = insights(letters)
    await app.process_batch([record(tally(), 0), record(value, 1), record(tally(offset=11), 2)])
    ((topic, key, letter),) = letters.sent
    assert (topic, key) == ("loom.dead-letter", b"loom.insights.runs/0/1")
    assert (letter.kind, letter.partition, letter.offset, letter.service) == (kind, 0, 1, "insights")
    assert (letter.key, letter.headers, letter.timestamp_ms) == (b"r_1", (Header(key="h", value=b"1"),), NOW_MS)
    assert app.view().records["counted"] == 2
    assert app.view().parked == {kind: 1}
    assert app.app.progress.offsets_to_commit() == {0: 3}


async def test_a_bug_dead_letters_the_record_that_reveals_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: TallyFilter, tally: RunTally, now_ms: int) -> None:
        raise ZeroDivisionError("a bug")

    letters = Letters()
    app = insights(letters)
    monkeypatch.setattr(TallyFilter, "classify", broken)
    await app.process_batch([record(tally(), 0)])
    assert [(letter.kind, letter.error) for _, _, letter in letters.sent] == [("fold_bug", "ZeroDivisionError: a bug")]


async def test_records_processed_before_a_restart_are_not_dead_lettered_again() -> None:
    letters = Letters()
    app = insights(letters, committed=5)
    await app.process_batch([record(b"garbage", 4), record(b"garbage", 5)])
    assert [letter.offset for _, _, letter in letters.sent] == [5]
    assert app.view().records["unreadable"] == 2


async def test_records_fetched_before_a_rebalance_are_ignored() -> None:
    app = insights(Letters())
    app.app.consumer_generation_id = 2
    await app.process_batch([record(tally(), 0, generation_id=1), record(b"garbage", 1, generation_id=1)])
    assert app.view().cells == {}
    assert app.app.progress.offsets_to_commit() == {}


async def test_a_record_from_an_unknown_position_is_refused() -> None:
    app = insights(Letters())
    with pytest.raises(Stalled, match=r"partitions \[3\]"):
        await app.process_batch([record(tally(), 0, partition=3)])


async def test_a_rewind_clears_the_windows_and_the_same_runs_count_again() -> None:
    app = insights(Letters())
    await app.process_batch([record(tally(), 0)])
    app.app.on_rewind()
    assert app.view().cells == {}
    await app.process_batch([record(tally(), 0)])
    assert [minute.runs for minute in app.view().cells.values()] == [1]


class Batches:
    """A stream of batches that counts those it has yielded."""

    def __init__(self, *batches: list[Message]) -> None:
        self.batches = batches
        self.yielded = 0

    async def take_events(self, max_: int, within: float) -> AsyncIterator[list[Event]]:
        for batch in self.batches:
            self.yielded += 1
            yield [Event(message) for message in batch]


async def test_a_letter_that_cannot_be_written_ends_the_process_and_nothing_more_is_done() -> None:
    letters = Letters(away=True)
    app = insights(letters)
    stream = Batches([record(b"garbage", 0)], [record(tally(), 1)])
    reading = asyncio.create_task(app.read_tallies(stream))
    try:
        with pytest.raises(Transient, match=r"loom\.insights\.runs/0/0 could not be parked in loom\.dead-letter"):
            async with asyncio.timeout(30):
                await app.watch()
        assert stream.yielded == 1
        assert app.app.progress.offsets_to_commit() == {}
        assert not reading.done()
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def test_windows_older_than_the_history_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    app = insights(Letters())
    await app.process_batch([record(tally(), 0), record(tally(offset=11, ended_at_ms=NOW_MS - MINUTE_MS), 1)])
    monkeypatch.setattr("faust.tables.base.time.time", lambda: NOW_MS / 1000 + 16 * 60)
    await app._table._del_old_keys()
    assert [start_ms for _, start_ms in app.view().cells] == [minute_start_ms(NOW_MS)]
    monkeypatch.setattr("faust.tables.base.time.time", lambda: NOW_MS / 1000 + 17 * 60)
    await app._table._del_old_keys()
    assert app.view().cells == {}
