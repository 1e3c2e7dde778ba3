"""Folding a partition at a take-over: lazily, checked, and one damaged run at a time."""

import dataclasses
from typing import Any

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.values import RunPosition
from loomlog.schemas.records import replace
from loomlog.services.core.run.state import AwaitingModel
from loomlog.services.runtime.run.family import RunFamily
from loomlog.services.stream.partition import fold as fold_module
from loomlog.services.stream.partition.fold import Fold, SnapshotBase
from loomlog.services.stream.partition.partition import Aggregate, Partition
from tests.services.core.run.given import NOW, answered, calls, cancel, returned, start
from tests.services.stream.given import CODEC, EVENTS, FAMILY, aggregate, claimed, flushed, replaced, started


async def no_history(event: Any) -> Any:
    return None


def folded(
    log: MemoryLog,
    *,
    codec: Codec = CODEC,
    bases: dict[str, SnapshotBase] | None = None,
    start: int = 0,
    term: int = -1,
) -> Fold:
    """A fold that was fed the whole log, in two pieces."""
    fold = Fold(FAMILY, codec, term=term, next_offset=start, bases=bases)
    records = log.records[EVENTS, 0][start:]
    half = len(records) // 2
    fold.feed(records[:half])
    fold.feed(records[half:])
    return fold


def ended(owned: Partition, log: MemoryLog, name: str) -> Aggregate:
    run = started(owned, name)
    flushed(owned, log)
    owned.submit(run, answered(run.state, "done"), at_ms=NOW)
    flushed(owned, log)
    return run


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog({EVENTS: 1})


async def test_live_runs_come_back_as_their_owner_had_them(log: MemoryLog) -> None:
    owned = claimed(log)
    runs = [started(owned, name, command_offset=at) for at, name in enumerate(["r_a", "r_b", "r_c"])]
    flushed(owned, log)
    owned.submit(runs[1], answered(runs[1].state, "let me see", *calls("A", "B")), at_ms=NOW)
    flushed(owned, log)
    owned.submit(runs[1], returned(runs[1].state, 1), at_ms=NOW)
    owned.submit(runs[2], cancel(), at_ms=NOW)
    flushed(owned, log)
    fold = folded(log)
    aggregates = await fold.live(no_history)
    assert aggregates == runs[:2]
    assert fold.commands == [0, 0, 1, 1, 2, 2]
    assert fold.events == 11
    assert fold.problems == []


async def test_what_is_over_is_remembered_by_its_place_and_never_decoded(log: MemoryLog) -> None:
    owned = claimed(log)
    ended(owned, log, "r_a")
    decoded: list[bytes] = []

    class Watching(Codec):
        def decode(self, value: bytes) -> Any:
            decoded.append(value)
            return super().decode(value)

    fold = folded(log, codec=Watching())
    assert await fold.live(no_history) == []
    assert decoded == []
    first, last = fold.over["r_a"]
    assert (first.offset, first.seq, last.offset, last.seq) == (1, 1, 4, 4)


async def test_only_the_last_ended_runs_are_remembered_and_the_rest_is_said_to_be_forgotten(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_module, "ENDED_KEPT", 2)
    owned = claimed(log)
    for name in ("r_a", "r_b", "r_c", "r_d"):
        ended(owned, log, name)
    fold = folded(log)
    assert list(fold.over) == ["r_c", "r_d"]
    assert fold.forgotten_until == 9  # after the last event of r_b
    assert fold.forgotten_before_ms == NOW + 1


async def test_nothing_is_said_to_be_forgotten_when_nothing_was(log: MemoryLog) -> None:
    ended(claimed(log), log, "r_a")
    fold = folded(log)
    assert (fold.forgotten_until, fold.forgotten_before_ms) == (0, 0)


async def test_records_of_a_zombie_are_not_folded(log: MemoryLog) -> None:
    zombie = claimed(log)
    stuck = started(zombie, "r_a")
    flushed(zombie, log)
    owner = claimed(log)
    zombie.submit(stuck, answered(stuck.state, "late"), at_ms=NOW)
    log.put(EVENTS, 0, zombie.next_batch(900_000))
    started(owner, "r_b")
    owner.skip_to(len(log.records[EVENTS, 0]))
    flushed(owner, log)
    fold = folded(log)
    actual = {run.id: run.seq for run in await fold.live(no_history)}
    assert actual == {"r_a": 2, "r_b": 2}
    assert fold.reader.stale == 2


# --- damage ----------------------------------------------------------------------------------------------------------


def live_runs(log: MemoryLog) -> None:
    """r_a at 1, 2 and 5 and 6, r_b at 3 and 4; r_a has tool calls under way."""
    owned = claimed(log)
    first = started(owned, "r_a")
    started(owned, "r_b")
    flushed(owned, log)
    owned.submit(first, answered(first.state, "hm", *calls("A")), at_ms=NOW)
    flushed(owned, log)


async def quarantined(log: MemoryLog) -> dict[str, str]:
    return {run.id: run.quarantined for run in await folded(log).live(no_history) if run.quarantined}


async def test_an_altered_record_breaks_the_chain_of_its_run_alone(log: MemoryLog) -> None:
    live_runs(log)
    value = bytearray(log.records[EVENTS, 0][2].value or b"")
    value[-1] ^= 2  # still a record, another one
    replaced(log, 2, bytes(value))
    actual = await quarantined(log)
    assert list(actual) == ["r_a"]
    assert "offset 5" in actual["r_a"]
    assert "hash chain" in actual["r_a"]


async def test_a_missing_record_breaks_the_sequence_of_its_run_alone(log: MemoryLog) -> None:
    live_runs(log)
    replaced(log, 2, b"gone")
    fold = folded(log)
    actual = {run.id: run.quarantined for run in await fold.live(no_history)}
    assert "expected seq 2, found 3" in actual["r_a"]
    assert actual["r_b"] == ""
    assert [problem.record.offset for problem in fold.problems] == [2]


async def test_a_body_that_cannot_be_decoded_stops_its_run_alone(log: MemoryLog) -> None:
    live_runs(log)
    replaced(log, 2, (log.records[EVENTS, 0][2].value or b"")[:-4])
    actual = await quarantined(log)
    assert list(actual) == ["r_a"]
    assert "Undecodable" in actual["r_a"]


async def test_a_record_of_a_newer_version_stops_its_run_until_the_reader_is_new_too(log: MemoryLog) -> None:
    live_runs(log)
    value = log.records[EVENTS, 0][5].value or b""
    replaced(log, 5, value[:1] + (9_999).to_bytes(4, "big") + value[5:])
    actual = await quarantined(log)
    assert list(actual) == ["r_a"]
    assert "UnknownSchema" in actual["r_a"]


async def test_a_repeated_record_stops_its_run_alone(log: MemoryLog) -> None:
    live_runs(log)
    log.put(EVENTS, 0, [ProducerRecord(key=b"a", value=log.records[EVENTS, 0][5].value)])
    assert list(await quarantined(log)) == ["r_a"]


async def test_a_run_that_says_something_after_its_end_is_loud(log: MemoryLog) -> None:
    owned = claimed(log)
    ended(owned, log, "r_a")
    log.put(EVENTS, 0, [ProducerRecord(key=b"a", value=log.records[EVENTS, 0][2].value)])
    assert list(await quarantined(log)) == ["r_a"]


async def test_an_event_that_cannot_follow_stops_its_run_alone(log: MemoryLog) -> None:
    class Strict(RunFamily):
        def evolve(self, state: Any, event: Any, at_ms: int) -> Any:
            if isinstance(state, AwaitingModel) and state.facts.run_id == "r_a":
                raise ValueError("cannot follow")
            return super().evolve(state, event, at_ms)

    live_runs(log)
    fold = Fold(Strict(), CODEC, term=-1, next_offset=0)
    fold.feed(log.records[EVENTS, 0])
    actual = {run.id: run.quarantined for run in await fold.live(no_history)}
    assert "cannot follow" in actual["r_a"]
    assert actual["r_b"] == ""


async def test_garbage_and_tombstones_are_problems_and_nothing_else_stops(log: MemoryLog) -> None:
    live_runs(log)
    log.put(EVENTS, 0, [ProducerRecord(key=None, value=b"garbage"), ProducerRecord(key=b"a", value=None)])
    fold = folded(log)
    assert [problem.record.offset for problem in fold.problems] == [7, 8]
    assert all(problem.error for problem in fold.problems)
    assert all(not run.quarantined for run in await fold.live(no_history))


# --- histories -------------------------------------------------------------------------------------------------------


async def test_a_run_that_continues_another_gets_its_history_before_its_first_event(log: MemoryLog) -> None:
    earlier = RunPosition(run_id="r_before", first_offset=0, last_offset=0)
    owned = claimed(log)
    made = aggregate("r_a")
    owned.submit(made, replace(start(), continues=earlier), at_ms=NOW)
    flushed(owned, log)
    asked: list[Any] = []

    async def history(event: Any) -> Any:
        asked.append(event.continues)
        return ()

    assert len(await folded(log).live(history)) == 1
    assert asked == [earlier]


async def test_a_history_that_cannot_be_read_now_is_no_fault_of_the_run(log: MemoryLog) -> None:
    live_runs(log)

    async def away(event: Any) -> Any:
        raise Transient("the broker is away", kind="unavailable")

    with pytest.raises(Transient):
        await folded(log).live(away)


async def test_a_history_that_is_broken_stops_its_run_alone(log: MemoryLog) -> None:
    live_runs(log)

    async def broken(event: Any) -> Any:
        if event.segments[0].content[0].text == "go":
            raise LookupError("it is not there")

    assert set(await quarantined(log)) == set()
    actual = {run.id: run.quarantined for run in await folded(log).live(broken)}
    assert all("LookupError" in reason for reason in actual.values())


# --- bases -----------------------------------------------------------------------------------------------------------


def base_of(run: Aggregate) -> SnapshotBase:
    return SnapshotBase(
        state=run.state,
        seq=run.seq,
        digest=run.digest,
        key=run.key,
        tenant=run.tenant,
        first_offset=run.first_offset,
        last_offset=run.last_offset,
        token=b"0",
        offset=7,
    )


async def test_a_fold_goes_on_from_a_snapshot(log: MemoryLog) -> None:
    owned = claimed(log)
    run = started(owned)
    flushed(owned, log)
    base, from_offset = base_of(run), owned.next_offset
    owned.submit(run, answered(run.state, "hm", *calls("A")), at_ms=NOW)
    flushed(owned, log)
    aggregates = await folded(log, bases={"r_x": base}, start=from_offset, term=0).live(no_history)
    assert [
        dataclasses.replace(each, snapshot_seq=0, snapshot_token=b"", snapshot_offset=-1) for each in aggregates
    ] == [run]
    assert (aggregates[0].snapshot_seq, aggregates[0].snapshot_token, aggregates[0].snapshot_offset) == (2, b"0", 7)


async def test_a_snapshot_newer_than_its_checkpoint_skips_what_it_contains(log: MemoryLog) -> None:
    owned = claimed(log)
    run = started(owned)
    flushed(owned, log)
    from_offset = owned.next_offset
    owned.submit(run, answered(run.state, "hm", *calls("A", "B")), at_ms=NOW)
    flushed(owned, log)
    base = base_of(run)
    owned.submit(run, returned(run.state, 0), at_ms=NOW)
    flushed(owned, log)
    aggregates = await folded(log, bases={"r_x": base}, start=from_offset, term=0).live(no_history)
    assert aggregates[0].state == run.state
    assert aggregates[0].seq == run.seq


async def test_a_run_without_events_since_the_checkpoint_is_live_as_the_snapshot_says(log: MemoryLog) -> None:
    owned = claimed(log)
    run = started(owned)
    flushed(owned, log)
    aggregates = await folded(log, bases={"r_x": base_of(run)}, start=3, term=0).live(no_history)
    assert aggregates[0].state == run.state


async def test_a_snapshot_that_the_tail_does_not_continue_is_not_believed(log: MemoryLog) -> None:
    owned = claimed(log)
    run = started(owned)
    flushed(owned, log)
    base = replace(base_of(run), digest=b"\1" * 16)
    owned.submit(run, answered(run.state, "hm", *calls("A")), at_ms=NOW)
    flushed(owned, log)
    aggregates = await folded(log, bases={"r_x": base}, start=3, term=0).live(no_history)
    assert "hash chain" in aggregates[0].quarantined


async def test_a_run_that_ended_after_its_snapshot_is_over(log: MemoryLog) -> None:
    owned = claimed(log)
    run = started(owned)
    flushed(owned, log)
    base = base_of(run)
    owned.submit(run, cancel(), at_ms=NOW)
    flushed(owned, log)
    fold = folded(log, bases={"r_x": base}, start=3, term=0)
    assert await fold.live(no_history) == []
    first, last = fold.over["r_x"]
    assert (first.seq, last.seq) == (3, 3)
