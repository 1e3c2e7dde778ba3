"""Checkpoints are trusted only when everything about them is right; otherwise the log wins, and says why."""

import dataclasses
from hashlib import sha256
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.connectors.kafka import MAX_BATCH_BYTES
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.generated.stream_records import PartitionCheckpoint, RunSnapshot
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import RunCommand
from loomlog.services.core.run.state import AwaitingModel, AwaitingTools
from loomlog.services.stream.partition.command_offsets import CommandProgress
from loomlog.services.stream.partition.fold import Fold
from loomlog.services.stream.partition.partition import Aggregate, Partition
from loomlog.services.stream.snapshots import snapshots as snapshot_module
from loomlog.services.stream.snapshots.snapshots import CHECKPOINT_KEY, ConsistentCut, Snapshots, batch_records
from tests.services.core.run.given import NOW, answered, calls, cancel, recover, returned, says
from tests.services.stream.given import CODEC, EVENTS, FAMILY, claimed, flushed, started

SNAPSHOTS = "loom.run.snapshots"


def snapshots(log: MemoryLog, family: Any = FAMILY) -> Snapshots:
    return Snapshots(family, CODEC, appender=log, ranges=log, topic=SNAPSHOTS)


def two_live_runs() -> tuple[MemoryLog, Partition]:
    log = MemoryLog({EVENTS: 1, SNAPSHOTS: 1})
    owned = claimed(log)
    started(owned, "r_a", command_offset=0)
    started(owned, "r_b", command_offset=1)
    flushed(owned, log)
    return log, owned


async def written(log: MemoryLog, owned: Partition, by: Snapshots | None = None) -> str:
    return await (by or snapshots(log)).write(
        0,
        term=owned.term,
        next_offset=owned.next_offset,
        progress=owned.progress,
        cut=ConsistentCut.of(owned.aggregates),
        at_ms=NOW,
    )


def keys(log: MemoryLog) -> list[tuple[bytes | None, bool]]:
    """Keys of the snapshots topic, and whether a value was written under it."""
    return [(record.key, record.value is not None) for record in log.records[SNAPSHOTS, 0]]


def rewrite(log: MemoryLog, key: bytes, **changes: Any) -> None:
    """Write the last record of a key again with other fields."""
    last = next(r for r in reversed(log.records[SNAPSHOTS, 0]) if r.key == key and r.value is not None)
    record: PartitionCheckpoint | RunSnapshot = CODEC.decode(last.value or b"").record
    log.put(SNAPSHOTS, 0, [ProducerRecord(key=key, value=CODEC.encode(replace(record, **changes)))])


async def test_a_checkpoint_comes_back_with_every_live_run() -> None:
    log, owned = two_live_runs()
    assert not await written(log, owned)
    start = await snapshots(log).load(0, 0)
    assert (start.ignored, start.next_offset, start.term, start.known_since_ms) == ("", 5, 0, NOW)
    assert (start.progress.low, start.progress.above) == (2, ())
    for name, run in owned.aggregates.items():
        base = start.bases[name]
        assert base.state == run.state
        assert (base.seq, base.digest, base.key, base.tenant) == (run.seq, run.digest, run.key, run.tenant)
        assert (base.first_offset, base.last_offset) == (run.first_offset, run.last_offset)


async def test_without_a_checkpoint_the_fold_begins_at_the_first_record() -> None:
    log = MemoryLog({EVENTS: 1, SNAPSHOTS: 1})
    start = await snapshots(log).load(0, 7)
    assert (start.next_offset, start.term, start.bases, start.known_since_ms, start.ignored) == (7, -1, {}, 0, "")


async def test_snapshots_come_first_then_the_checkpoint_then_the_tombstones() -> None:
    log, owned = two_live_runs()
    by = snapshots(log)
    await written(log, owned, by)
    assert keys(log) == [(b"r_a", True), (b"r_b", True), (CHECKPOINT_KEY, True)]
    owned.submit(owned.aggregates["r_a"], cancel(), at_ms=NOW)
    owned.submit(owned.aggregates["r_b"], says("hello"), at_ms=NOW)
    flushed(owned, log)
    await written(log, owned, by)
    assert keys(log)[3:] == [(b"r_b", True), (CHECKPOINT_KEY, True), (b"r_a", False)]
    assert set((await snapshots(log).load(0, 0)).bases) == {"r_b"}


async def test_a_run_that_did_not_change_is_not_written_again() -> None:
    log, owned = two_live_runs()
    by = snapshots(log)
    await written(log, owned, by)
    owned.submit(owned.aggregates["r_b"], says("hello"), at_ms=NOW)
    flushed(owned, log)
    await written(log, owned, by)
    assert keys(log)[3:] == [(b"r_b", True), (CHECKPOINT_KEY, True)]
    start = await snapshots(log).load(0, 0)
    assert set(start.bases) == {"r_a", "r_b"}


async def test_the_next_owner_does_not_write_again_what_it_took_over() -> None:
    log, owned = two_live_runs()
    await written(log, owned)
    start = await snapshots(log).load(0, 0)
    fold = Fold(FAMILY, CODEC, term=start.term, next_offset=start.next_offset, bases=dict(start.bases))
    live = await fold.live(_no_history)
    other = snapshots(log)
    await other.load(0, 0)
    cut = ConsistentCut.of({run.id: run for run in live})
    assert not await other.write(0, term=9, next_offset=9, progress=CommandProgress(), cut=cut, at_ms=NOW)
    assert keys(log)[3:] == [(CHECKPOINT_KEY, True)]
    assert (await snapshots(log).load(0, 0)).ignored == ""


async def test_a_run_left_behind_by_an_append_that_failed_is_buried_later() -> None:
    log, owned = two_live_runs()
    by = snapshots(log)
    log.lose_acks = 1
    with pytest.raises(Exception, match="acknowledgement"):
        await written(log, owned, by)
    owned.submit(owned.aggregates["r_a"], cancel(), at_ms=NOW)
    flushed(owned, log)
    await written(log, owned, by)
    assert (b"r_a", False) in keys(log)


# --- what is not believed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "changes", "reason"),
    [
        (b"r_a", {"state": b"{}"}, "does not have the hash"),
        (b"r_a", {"state": b"{}", "state_sha256": sha256(b"{}").hexdigest()}, "not the one the checkpoint names"),
        (b"r_a", {"seq": 1}, "is at seq 1"),
        (b"r_a", {"reducer_version": 99}, "fold version 99"),
        (CHECKPOINT_KEY, {"reducer_version": 99, "next_offset": 6}, "fold version 99"),
        (CHECKPOINT_KEY, {"partition": 5, "next_offset": 99}, ""),
        (CHECKPOINT_KEY, {"next_offset": 2}, ""),
    ],
    ids=["damaged state", "another state", "older state", "other fold", "other fold of all", "foreign", "older"],
)
async def test_what_is_not_right_about_a_checkpoint_is_told_and_the_log_wins(
    key: bytes, changes: dict[str, Any], reason: str
) -> None:
    log, owned = two_live_runs()
    await written(log, owned)
    rewrite(log, key, **changes)
    start = await snapshots(log).load(0, 0)
    if reason:
        assert reason in start.ignored
        assert (start.next_offset, start.bases, start.known_since_ms) == (0, {}, 0)
    else:
        assert (start.ignored, start.next_offset) == ("", 5)  # the good one is still there


async def test_a_state_that_these_classes_cannot_make_is_told() -> None:
    log, owned = two_live_runs()
    await written(log, owned)
    mark = sha256(b'{"_":"Nobody"}').hexdigest()
    rewrite(log, b"r_a", state=b'{"_":"Nobody"}', state_sha256=mark, seq=3)
    assert "cannot be read" in (await snapshots(log).load(0, 0)).ignored


async def test_a_missing_snapshot_is_told() -> None:
    log, owned = two_live_runs()
    await written(log, owned)
    log.put(SNAPSHOTS, 0, [ProducerRecord(key=b"r_a", value=None)])
    assert "r_a is not usable: it is missing" in (await snapshots(log).load(0, 0)).ignored


async def test_a_checkpoint_older_than_the_log_is_told() -> None:
    log, owned = two_live_runs()
    await written(log, owned)
    start = await snapshots(log).load(0, 50)
    assert "older than the log" in start.ignored
    assert start.next_offset == 50


async def test_a_checkpoint_of_another_partition_alone_is_told() -> None:
    log, owned = two_live_runs()
    await snapshots(log).write(
        5, term=0, next_offset=5, progress=CommandProgress(), cut=ConsistentCut.of(owned.aggregates), at_ms=NOW
    )
    log.records[SNAPSHOTS, 0] = log.records.pop((SNAPSHOTS, 5))
    assert "partition 5" in (await snapshots(log).load(0, 0)).ignored


async def test_garbage_in_the_topic_is_stepped_over() -> None:
    log, owned = two_live_runs()
    log.put(SNAPSHOTS, 0, [ProducerRecord(key=b"\xff", value=b"garbage"), ProducerRecord(key=b"\xff", value=None)])
    assert "offset 0" in (await snapshots(log).load(0, 0)).ignored
    await written(log, owned)
    log.put(SNAPSHOTS, 0, [ProducerRecord(key=b"x", value=b"garbage")])
    assert (await snapshots(log).load(0, 0)).ignored == ""


async def test_a_snapshot_newer_than_its_checkpoint_is_used() -> None:
    log, owned = two_live_runs()
    by = snapshots(log)
    await written(log, owned, by)
    owned.submit(owned.aggregates["r_a"], says("more"), at_ms=NOW)
    flushed(owned, log)
    await written(log, owned, by)
    del log.records[SNAPSHOTS, 0][-1]  # the second checkpoint never came
    start = await snapshots(log).load(0, 0)
    assert (start.ignored, start.next_offset) == ("", 5)
    assert start.bases["r_a"].seq == 3


# --- what is not written ---------------------------------------------------------------------------------------------


async def test_a_state_over_the_bound_makes_no_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    log, owned = two_live_runs()
    monkeypatch.setattr(snapshot_module, "SNAPSHOT_BYTES_MAX", 100)
    assert "bytes" in await written(log, owned)
    assert keys(log) == []


async def test_a_run_whose_events_cannot_be_folded_keeps_the_log_from_being_skipped() -> None:
    log, owned = two_live_runs()
    owned.aggregates["r_a"].quarantined = "its chain is broken"
    assert "cannot be folded" in await written(log, owned)
    assert keys(log) == []


async def test_a_run_that_is_quarantined_in_the_log_is_a_state_like_any_other() -> None:
    log, owned = two_live_runs()
    bad = owned.aggregates["r_a"]
    bad.quarantined = "a bug"
    owned.append(bad, [FAMILY.quarantine("a bug", "t", 1)], at_ms=NOW)
    flushed(owned, log)
    assert not await written(log, owned)
    start = await snapshots(log).load(0, 0)
    assert FAMILY.quarantined(start.bases["r_a"].state) == "a bug"


@pytest.mark.parametrize("size", [1, 1_000, 300_000])
def test_batches_keep_the_order_and_fit_an_append(size: int) -> None:
    records = [ProducerRecord(key=str(at).encode(), value=b"x" * size) for at in range(7)]
    actual = batch_records(records)
    assert [record for batch in actual for record in batch] == records
    assert all(sum(len(record.value or b"") for record in batch) <= MAX_BATCH_BYTES for batch in actual)


# --- fold(all) == fold(snapshot + tail) ------------------------------------------------------------------------------


async def _no_history(event: Any) -> Any:
    return None


def random_step(random: Random, owned: Partition, number: int) -> None:
    """One random order to a random run."""
    live = list(owned.aggregates.values())
    if not live or random.random() < 0.3:
        started(owned, f"r_{number}", command_offset=number)
        return
    run: Aggregate = random.choice(live)
    state = run.state
    orders: list[RunCommand] = [says(f"text {number}"), recover()]
    if isinstance(state, AwaitingModel):
        orders += [answered(state, "hm", *calls(*"AB"[: random.randint(0, 2)]))] * 3
    if isinstance(state, AwaitingTools):
        orders += [returned(state, call.index) for call in state.open] * 2
    owned.submit(run, random.choice(orders), at_ms=NOW + number)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(min_value=0, max_value=10_000), cuts=st.lists(st.integers(min_value=0, max_value=25), max_size=3)
)
async def test_a_fold_from_any_checkpoint_gives_what_a_fold_of_everything_gives(seed: int, cuts: list[int]) -> None:
    random = Random(seed)
    log = MemoryLog({EVENTS: 1, SNAPSHOTS: 1})
    owned = claimed(log)
    by = snapshots(log)
    for number in range(26):
        random_step(random, owned, number)
        if random.random() < 0.6:
            flushed(owned, log)
        if number in cuts:
            flushed(owned, log)
            assert not await written(log, owned, by)
    flushed(owned, log)
    whole = Fold(FAMILY, CODEC, term=-1, next_offset=0)
    whole.feed(log.records[EVENTS, 0])
    start = await snapshots(log).load(0, 0)
    assert start.ignored == ""
    assert bool(start.bases) or not cuts or start.next_offset > 0
    tail = Fold(FAMILY, CODEC, term=start.term, next_offset=start.next_offset, bases=dict(start.bases))
    tail.feed(log.records[EVENTS, 0][start.next_offset :])
    expected = {run.id: run for run in await whole.live(_no_history)}
    aggregates = {run.id: run for run in await tail.live(_no_history)}
    assert {
        name: dataclasses.replace(run, snapshot_seq=0, snapshot_sha256="") for name, run in aggregates.items()
    } == expected
    progress, all_progress = start.progress, CommandProgress()
    for offset in tail.commands:
        progress.mark_handled(offset)
    for offset in whole.commands:
        all_progress.mark_handled(offset)
    assert (progress.low, progress.above) == (all_progress.low, all_progress.above)
