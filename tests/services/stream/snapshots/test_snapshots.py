"""Checkpoints are trusted only when everything about them is right; otherwise the log wins, and says why."""

from functools import partial
from hashlib import sha256
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka import MAX_BATCH_BYTES
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ConsumerRecord, ProducerRecord
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import RunCommand
from loomlog.services.core.run.lifecycle.activity import may_rest
from loomlog.services.core.run.state import AwaitingModel, AwaitingTools
from loomlog.services.stream.partition.command_offsets import CommandProgress
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates
from loomlog.services.stream.partition.fold import Fold
from loomlog.services.stream.partition.partition import Aggregate, Partition
from loomlog.services.stream.partition.resting import Resting, SnapshotUnusable, StateLoader, is_resting, snapshot_token
from loomlog.services.stream.snapshots import snapshots as snapshot_module
from loomlog.services.stream.snapshots.snapshots import CHECKPOINT_KEY, ConsistentCut, Snapshots, batch_records
from tests.services.core.run.given import NOW, answered, calls, cancel, recover, returned, says
from tests.services.stream.given import CODEC, EVENTS, FAMILY, claimed, compact, flushed, started

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


def resting(run: Aggregate) -> Resting | None:
    return Resting(agent="helper") if may_rest(run.state) else None


async def written(log: MemoryLog, owned: Partition, by: Snapshots | None = None) -> str:
    return await (by or snapshots(log)).write(
        0,
        term=owned.term,
        next_offset=owned.next_offset,
        progress=owned.progress,
        cut=ConsistentCut.of(owned.aggregates, resting),
        at_ms=NOW,
    )


def keys(log: MemoryLog) -> list[tuple[bytes | None, bool]]:
    """Keys of the snapshots topic, and whether a value was written under it."""
    return [(record.key, record.value is not None) for record in log.records[SNAPSHOTS, 0]]


def newest(log: MemoryLog, key: bytes) -> Any:
    """The last record of a key, decoded, and its offset."""
    last = next(r for r in reversed(log.records[SNAPSHOTS, 0]) if r.key == key and r.value is not None)
    return CODEC.decode(last.value or b"").record, last.offset


def rewrite(log: MemoryLog, key: bytes, **changes: Any) -> None:
    """Write the last record of a key again with other fields."""
    record, _ = newest(log, key)
    log.put(SNAPSHOTS, 0, [ProducerRecord(key=key, value=CODEC.encode(replace(record, **changes)))])


def edit(log: MemoryLog, key: bytes, **changes: Any) -> None:
    """Give the last record of a key other fields where it is."""
    record, offset = newest(log, key)
    old = log.records[SNAPSHOTS, 0][offset]
    log.records[SNAPSHOTS, 0][offset] = ConsumerRecord(
        old.topic, old.partition, offset, old.timestamp, key, CODEC.encode(replace(record, **changes)), old.headers
    )


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


async def test_snapshots_and_ends_come_first_then_the_checkpoint_then_the_tombstones() -> None:
    log, owned = two_live_runs()
    by = snapshots(log)
    await written(log, owned, by)
    assert keys(log) == [(b"r_a", True), (b"r_b", True), (CHECKPOINT_KEY, True)]
    owned.submit(owned.aggregates["r_a"], cancel(), at_ms=NOW)
    owned.submit(owned.aggregates["r_b"], says("hello"), at_ms=NOW)
    flushed(owned, log)
    await written(log, owned, by)
    assert keys(log)[3:] == [(b"r_b", True), (b"r_a", True), (CHECKPOINT_KEY, True), (b"r_a", False)]
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
    live = await fold.live()
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
        (b"r_a", {"state": b"{}", "state_sha256": sha256(b"{}").hexdigest()}, "are not the 2 it was made of"),
        (b"r_a", {"seq": 1}, "are not the 2 it was made of"),
        (b"r_a", {"run_id": "r_b"}, "2 snapshots belong to it, 1 are there"),
        (b"r_a", {"reducer_version": 99}, "fold version 99"),
        (CHECKPOINT_KEY, {"reducer_version": 99}, "fold version 99"),
        (CHECKPOINT_KEY, {"live_runs": 3}, "3 snapshots belong to it, 2 are there"),
        (CHECKPOINT_KEY, {"tokens_sum": bytes(16)}, "are not the 2 it was made of"),
    ],
    ids=[
        "damaged state",
        "another state",
        "older state",
        "other run",
        "other fold",
        "other fold of all",
        "count",
        "sum",
    ],
)
async def test_what_is_not_right_about_a_checkpoint_is_told_and_the_log_wins(
    key: bytes, changes: dict[str, Any], reason: str
) -> None:
    log, owned = two_live_runs()
    await written(log, owned)
    edit(log, key, **changes)
    start = await snapshots(log).load(0, 0)
    assert reason in start.ignored
    assert (start.next_offset, start.bases, start.known_since_ms) == (0, {}, 0)


@pytest.mark.parametrize(
    "changes",
    [{"partition": 5, "next_offset": 99}, {"next_offset": 2}, {"reducer_version": 99}, {"live_runs": 7}],
    ids=["foreign", "older", "other fold", "of runs that are not there"],
)
async def test_beside_another_checkpoint_the_furthest_good_one_counts(changes: dict[str, Any]) -> None:
    log, owned = two_live_runs()
    await written(log, owned)
    rewrite(log, CHECKPOINT_KEY, **changes)
    start = await snapshots(log).load(0, 0)
    assert (start.ignored, start.next_offset) == ("", 5)


async def test_a_state_that_these_classes_cannot_make_is_told() -> None:
    log, owned = two_live_runs()
    await written(log, owned)
    mark = sha256(b'{"_":"Nobody"}').hexdigest()
    edit(log, b"r_a", state=b'{"_":"Nobody"}', state_sha256=mark)
    one, _ = newest(log, b"r_a")
    other, _ = newest(log, b"r_b")
    total = sum(int.from_bytes(snapshot_token(each.run_id, each.seq, each.state_sha256)) for each in (one, other))
    edit(log, CHECKPOINT_KEY, tokens_sum=(total % (1 << 128)).to_bytes(16))
    assert "cannot be read" in (await snapshots(log).load(0, 0)).ignored


async def test_a_missing_snapshot_is_told() -> None:
    log, owned = two_live_runs()
    await written(log, owned)
    log.put(SNAPSHOTS, 0, [ProducerRecord(key=b"r_a", value=None)])
    assert "2 snapshots belong to it, 1 are there" in (await snapshots(log).load(0, 0)).ignored


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


@pytest.mark.parametrize("is_compacted", [False, True])
async def test_whenever_the_owner_dies_while_it_writes_the_last_partition_snapshot_is_as_good_as_before(
    is_compacted: bool,
) -> None:
    log, owned = two_live_runs()
    by = snapshots(log)
    started(owned, "r_ends")
    flushed(owned, log)
    await written(log, owned, by)
    first = len(log.records[SNAPSHOTS, 0])
    owned.submit(owned.aggregates["r_ends"], cancel(), at_ms=NOW)
    owned.submit(owned.aggregates["r_b"], says("hello"), at_ms=NOW)
    started(owned, "r_new")
    flushed(owned, log)
    await written(log, owned, by)
    end = len(log.records[SNAPSHOTS, 0])
    assert end - first == 5  # r_b, r_new, the end of r_ends, the checkpoint, the tombstone of r_ends
    for cut in range(first, end + 1):
        part = MemoryLog({EVENTS: 1, SNAPSHOTS: 1})
        part.records[SNAPSHOTS, 0] = log.records[SNAPSHOTS, 0][:cut]
        if is_compacted:
            compact(part, SNAPSHOTS)
        start = await snapshots(part).load(0, 0)
        assert start.ignored == ""
        fold = Fold(FAMILY, CODEC, term=start.term, next_offset=start.next_offset, bases=dict(start.bases))
        fold.feed(log.records[EVENTS, 0][start.next_offset :])
        assert {run.id: run.state for run in await fold.live()} == {
            run.id: run.state for run in owned.aggregates.values()
        }


async def test_ten_thousand_live_runs_have_a_partition_snapshot_of_the_same_size() -> None:
    log = MemoryLog({EVENTS: 1, SNAPSHOTS: 1})
    owned = claimed(log)
    by = snapshots(log)
    started(owned, "r_one")
    flushed(owned, log)
    await written(log, owned, by)
    of_one = log.records[SNAPSHOTS, 0][-1]
    for number in range(10_000):
        started(owned, f"r_{number}")
    flushed(owned, log)
    assert not await written(log, owned, by)
    of_all = log.records[SNAPSHOTS, 0][-1]
    assert of_all.key == of_one.key == CHECKPOINT_KEY
    assert len(of_all.value or b"") < len(of_one.value or b"") + 10
    start = await snapshots(log).load(0, 0)
    assert (start.ignored, len(start.bases)) == ("", 10_001)
    written_before = len(log.records[SNAPSHOTS, 0])
    owned.submit(owned.aggregates["r_7"], says("hello"), at_ms=NOW)
    flushed(owned, log)
    assert not await written(log, owned, by)
    assert keys(log)[written_before:] == [(b"r_7", True), (CHECKPOINT_KEY, True)]


async def test_the_state_of_an_aggregate_is_read_again_from_its_snapshot() -> None:
    log, owned = two_live_runs()
    by = snapshots(log)
    await written(log, owned, by)
    for run in owned.aggregates.values():
        assert await by.read_state(0, run) == run.state


async def test_a_snapshot_that_is_not_the_one_of_the_aggregate_is_no_state_of_it() -> None:
    log, owned = two_live_runs()
    by = snapshots(log)
    await written(log, owned, by)
    run = owned.aggregates["r_a"]
    place = run.snapshot_offset
    for offset, reason in (
        (place + 1, "another record"),
        (place + 2, "another record"),
        (99, "is gone"),
        (-1, "large"),
    ):
        run.snapshot_offset = offset
        with pytest.raises(SnapshotUnusable, match=reason):
            await by.read_state(0, run)
    run.snapshot_offset = place
    edit(log, b"r_a", state=b"{}")
    with pytest.raises(SnapshotUnusable, match="hash"):
        await by.read_state(0, run)
    edit(log, b"r_a", seq=1)
    with pytest.raises(SnapshotUnusable, match="another record"):
        await by.read_state(0, run)
    compact(log, SNAPSHOTS)
    log.records[SNAPSHOTS, 0][place] = replace(log.records[SNAPSHOTS, 0][place], value=b"garbage")
    with pytest.raises(SnapshotUnusable, match="offset 0"):
        await by.read_state(0, run)


async def test_out_of_range_is_gone_and_any_other_trouble_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log, owned = two_live_runs()
    by = snapshots(log)
    await written(log, owned, by)
    run = owned.aggregates["r_a"]

    async def refused(*_: object) -> Any:
        raise Transient("the broker is away", kind="unavailable")

    monkeypatch.setattr(log, "read", refused)
    with pytest.raises(Transient):
        await by.read_state(0, run)
    log.records[SNAPSHOTS, 0].clear()  # the topic was deleted and made again
    with pytest.raises(SnapshotUnusable, match="is gone"):
        await by.read_state(0, run)


# --- what is not written ---------------------------------------------------------------------------------------------


async def test_a_state_over_the_bound_makes_no_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    log, owned = two_live_runs()
    monkeypatch.setattr(snapshot_module, "SNAPSHOT_BYTES_MAX", 100)
    assert "bytes" in await written(log, owned)
    assert keys(log) == []


async def test_a_state_over_the_bound_is_left_out_where_the_run_can_be_folded_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, owned = two_live_runs()
    by = Snapshots(FAMILY, CODEC, appender=log, ranges=log, topic=SNAPSHOTS, omits_large_states=True)
    big = owned.aggregates["r_a"]
    owned.submit(big, says("x" * 5_000), at_ms=NOW)
    flushed(owned, log)
    monkeypatch.setattr(snapshot_module, "SNAPSHOT_BYTES_MAX", 4_000)
    assert not await written(log, owned, by)
    assert (big.snapshot_seq, big.snapshot_offset) == (big.seq, -1)
    start = await snapshots(log).load(0, 0)
    assert (start.ignored, start.next_offset) == ("", owned.next_offset)
    fold = Fold(FAMILY, CODEC, term=start.term, next_offset=start.next_offset, bases=dict(start.bases))
    ended = EndedAggregates(FAMILY, CODEC, log, EVENTS)
    loader = StateLoader(0, FAMILY, by, partial(ended.refold, 0))
    live = {run.id: run for run in await fold.live(load=loader.load)}
    assert {name: run.state for name, run in live.items()} == {
        name: run.state for name, run in owned.aggregates.items()
    }
    assert live["r_a"].snapshot_seq == 0 < live["r_b"].snapshot_seq


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


def random_step(random: Random, owned: Partition, number: int) -> None:
    """One random order to a random run."""
    live = list(owned.aggregates.values())
    if not live or random.random() < 0.3:
        started(owned, f"r_{number}", command_offset=number, interactive=random.random() < 0.5)
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
            if random.random() < 0.5:
                compact(log, SNAPSHOTS)
    flushed(owned, log)
    whole = Fold(FAMILY, CODEC, term=-1, next_offset=0)
    whole.feed(log.records[EVENTS, 0])
    start = await snapshots(log).load(0, 0)
    assert start.ignored == ""
    assert bool(start.bases) or not cuts or start.next_offset > 0
    tail = Fold(FAMILY, CODEC, term=start.term, next_offset=start.next_offset, bases=dict(start.bases))
    tail.feed(log.records[EVENTS, 0][start.next_offset :])
    expected = {run.id: run for run in await whole.live()}
    loader = StateLoader(0, FAMILY, by, partial(EndedAggregates(FAMILY, CODEC, log, EVENTS).refold, 0))
    aggregates = {run.id: run for run in await tail.live(load=loader.load)}
    for run in filter(is_resting, aggregates.values()):
        assert (run.id in start.bases, may_rest(expected[run.id].state)) == (True, True)
        await loader.load(run)
    assert {
        name: replace(run, snapshot_seq=0, snapshot_token=b"", snapshot_offset=-1) for name, run in aggregates.items()
    } == expected
    progress, all_progress = start.progress, CommandProgress()
    for offset in tail.commands:
        progress.mark_handled(offset)
    for offset in whole.commands:
        all_progress.mark_handled(offset)
    assert (progress.low, progress.above) == (all_progress.low, all_progress.above)
