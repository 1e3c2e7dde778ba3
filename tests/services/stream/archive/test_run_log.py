"""Runs read back from the log with everything they begin with."""

from typing import Any

import pytest

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.schemas.codec import digest, local_codec
from loomlog.schemas.generated.values import ForkPoint, RunPosition
from loomlog.schemas.records import replace
from loomlog.services.stream.archive import run_log
from loomlog.services.stream.archive.run_log import LineageSegment, ReadStats, RunLog, fold_run
from loomlog.services.stream.partition.fold import BrokenHistory
from tests.projections.stories import TOPIC, Partition, completed, replied, requested, started


def log_of(partition: Partition) -> MemoryLog:
    log = MemoryLog({TOPIC: 1})
    log.put(TOPIC, 0, partition.outgoing())
    return log


def reader(partition: Partition) -> RunLog:
    return RunLog(log_of(partition), local_codec(), TOPIC, 0)


def whole(partition: Partition, run_id: str, first_offset: int) -> LineageSegment:
    return LineageSegment(run_id=run_id, first_offset=first_offset, end_offset=len(partition.records))


def point(partition: Partition, run_id: str, first_offset: int, offset: int, seq: int) -> ForkPoint:
    return ForkPoint(
        run_id=run_id,
        first_offset=first_offset,
        last_offset=offset,
        seq=seq,
        digest=digest(partition.records[offset]).hex(),
    )


def family() -> tuple[Partition, int]:
    """r_1, then r_1-b which goes on with it, then r_1-c which was forked from r_1-b at 2; where the last begins."""
    partition = Partition()
    partition.claim()
    partition.add("r_1", started("r_1", prompt="one"), requested(1), replied(1, "eins"), completed())
    ended = RunPosition(run_id="r_1", first_offset=1, last_offset=4)
    partition.add("r_1-b", started("r_1-b", prompt="two", continues=ended), requested(1))
    partition.add("r_2", started("r_2"))
    partition.add("r_1-b", replied(1, "zwei"), completed())
    at = len(partition.records)
    fork = point(partition, "r_1-b", 5, 6, 2)
    partition.add("r_1-c", started("r_1-c", segments=(), forked_from=fork), requested(1), replied(1, "drei"))
    return partition, at


async def lineage(partition: Partition, run_id: str, at: int) -> tuple[RunLog, list[LineageSegment]]:
    log = reader(partition)
    link = whole(partition, run_id, at)
    first = await log.first(link)
    assert first is not None
    return log, await log.lineage(link, first)


async def test_a_lineage_is_found_from_first_events_oldest_first() -> None:
    partition, at = family()
    _, links = await lineage(partition, "r_1-c", at)
    assert [(link.run_id, link.role, link.until_seq) for link in links] == [
        ("r_1", "continued", 0),
        ("r_1-b", "forked", 2),
        ("r_1-c", "run", 0),
    ]


@pytest.mark.parametrize("window", [1, 2, 5_000])
async def test_a_fork_begins_with_what_was_said_up_to_its_point_and_no_more(
    window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_log, "WINDOW", window)
    partition, at = family()
    log, links = await lineage(partition, "r_1-c", at)
    replayed = await fold_run(log, links, codec=local_codec())
    assert replayed.drift == ()
    texts = [block.text for message in replayed.history for block in message.blocks]  # type: ignore[union-attr]
    assert texts == ["one", "eins", "two", "drei"]


async def test_up_to_a_seq_it_is_the_prefix() -> None:
    partition, at = family()
    log, links = await lineage(partition, "r_1-c", at)
    part = await fold_run(log, links, codec=local_codec(), to_seq=2)
    assert (part.seq, part.status, [entry.type for entry in part.entries]) == (
        2,
        "running",
        ["RunStarted", "ModelCallRequested"],
    )


async def test_an_ancestor_that_was_altered_is_drift_of_the_fork() -> None:
    partition, at = family()
    partition.records[5] = partition.records[5].replace(b"two", b"too")
    log, links = await lineage(partition, "r_1-c", at)
    replayed = await fold_run(log, links, codec=local_codec())
    assert any(sentence.startswith("r_1-b: seq 2") for sentence in replayed.drift)


async def test_a_fork_that_names_another_event_than_there_is_is_drift() -> None:
    partition, at = family()
    log, links = await lineage(partition, "r_1-c", at)
    links[1] = replace(links[1], digest="00" * 16)
    replayed = await fold_run(log, links, codec=local_codec())
    assert "not at the event 2 that was forked" in replayed.drift[0]
    assert replayed.first_drift_seq == 2


async def test_stale_records_of_the_run_are_counted_and_ignored() -> None:
    partition = Partition()
    partition.claim()
    partition.add("r_1", started("r_1"), requested(1))
    partition.claim()
    partition.add("r_1", requested(1, 2), term=0)
    partition.add("r_1", replied(1, "Hi!"), completed())
    log, links = await lineage(partition, "r_1", 1)
    tally = ReadStats()
    replayed = await fold_run(log, links, codec=local_codec(), tally=tally)
    assert (replayed.seq, replayed.drift, tally.stale) == (4, (), 1)


@pytest.mark.parametrize("lost", [RunPosition(run_id="r_0", first_offset=0, last_offset=0), None])
async def test_a_lineage_that_is_not_there_or_runs_forward_is_no_history(lost: Any) -> None:
    partition = Partition()
    partition.claim()
    ahead = RunPosition(run_id="r_2", first_offset=2, last_offset=3)
    partition.add("r_1", started("r_1", continues=lost or ahead))
    with pytest.raises(BrokenHistory):
        await lineage(partition, "r_1", 1)


async def test_where_the_run_is_not_there_is_no_first_event() -> None:
    partition, _ = family()
    assert await reader(partition).first(whole(partition, "r_none", 0)) is None
