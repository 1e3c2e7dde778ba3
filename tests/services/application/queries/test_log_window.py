import pytest

from loomlog.connectors.protocols import LogRecord
from loomlog.schemas.generated.run_events import RunParked
from loomlog.services.application.queries import log_window as module
from loomlog.services.application.queries.log_window import LogWindow
from loomlog.services.application.resources import TOPICS
from tests.services.application.world import World


async def window_of(claims_after: list[int]) -> tuple[LogWindow, World, int]:
    """A partition with a Claim, then so many events, a Claim, and so on."""
    made = World()
    await made.layer.publisher.open()
    partition = made.layer.publisher.partition_of("one")
    for number, count in enumerate(claims_after):
        if number:
            made.claim(partition)
        for _ in range(count):
            made.log.clock_ms += 1_000
            made.happen_raw(partition, RunParked(since_turn=1))
    return LogWindow(made.log, made.codec, TOPICS.events), made, partition


async def test_a_single_record_or_none() -> None:
    window, _, partition = await window_of([3])
    record = await window.record_at(partition, 2)
    assert record is not None
    assert record.offset == 2
    assert await window.record_at(partition, 4) is None
    assert await window.record_at(partition, 10**17) is None


async def test_the_term_before_an_offset_is_the_nearest_claim() -> None:
    window, _, partition = await window_of([3, 2, 1])  # Claims at 0, 4, 7
    assert [await window.term_before(partition, offset) for offset in range(9)] == [-1, 0, 0, 0, 0, 4, 4, 4, 7]


async def test_the_term_is_found_through_many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_RECORDS", 3)
    window, _, partition = await window_of([2, 20])
    assert await window.term_before(partition, 22) == 3


async def test_too_far_from_a_claim_the_newest_term_met_stands_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_RECORDS", 3)
    monkeypatch.setattr(module, "TERM_SEARCH_MAX", 6)
    window, _, partition = await window_of([2, 20])
    assert await window.term_before(partition, 22) == 3


async def test_a_time_is_searched_from_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_RECORDS", 2)
    window, made, partition = await window_of([100])
    records = made.log.records[TOPICS.events, partition]
    for at_ms in (0, 1_500, 50_500, 99_999, 10**9):
        actual = await window.offset_before(partition, 0, len(records), at_ms)
        assert all(record.timestamp < at_ms for record in records[:actual])
        assert all(record.timestamp >= at_ms for record in records[actual + 2 :])


async def test_records_of_a_range_come_in_order_and_can_be_left() -> None:
    window, _, partition = await window_of([1_200])
    actual: list[LogRecord] = []
    records = window.records(partition, 5, 1_100)
    async for record in records:
        actual.append(record)
    assert [record.offset for record in actual] == list(range(5, 1_100))
    assert [record async for record in window.records(partition, 5, 5)] == []
    left = window.records(partition, 0, 1_100)
    assert (await anext(left)).offset == 0
    await left.aclose()
