"""What a former owner appends to the snapshots topic late makes a checkpoint useless at worst, and never wrong."""

from copy import copy
from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.records import replace
from loomlog.services.stream.partition.command_offsets import CommandProgress
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates
from loomlog.services.stream.partition.fold import Fold
from loomlog.services.stream.partition.partition import Aggregate, Partition
from loomlog.services.stream.partition.resting import StateLoader, is_resting
from loomlog.services.stream.snapshots.snapshots import ConsistentCut, FoldStart, Snapshots
from tests.services.core.run.given import NOW, cancel, says
from tests.services.stream.given import CODEC, EVENTS, FAMILY, claimed, compact, flushed, started
from tests.services.stream.snapshots.test_snapshots import SNAPSHOTS, random_step, resting, snapshots, two_live_runs


class Owner:
    """Took the partition over when `log` had what it has now, and may go on when it has lost it."""

    def __init__(self, log: MemoryLog, aggregates: dict[str, Aggregate]) -> None:
        self.queue: list[ProducerRecord] = []
        """What it has written and is still on its way."""
        self._log = log
        self._next_offset = len(log.records[EVENTS, 0])
        self._cut = ConsistentCut.of(aggregates, resting)

    async def append(
        self, topic: str, partition: int, records: tuple[ProducerRecord, ...] | list[ProducerRecord]
    ) -> int:
        self.queue += records
        return 0

    async def write(self, *, term: int = 0) -> None:
        """Write a partition snapshot. What is in the topic is read now, as after `Snapshots.forget`."""
        by = Snapshots(FAMILY, CODEC, appender=self, ranges=self._log, topic=SNAPSHOTS)
        problem = await by.write(
            0, term=term, next_offset=self._next_offset, progress=CommandProgress(), cut=self._cut, at_ms=NOW
        )
        assert not problem

    def arrive(self, records: int | None = None) -> None:
        """Let the first of what is on its way arrive; None: all."""
        arriving, self.queue = self.queue[:records], self.queue[len(self.queue[:records]) :]
        self._log.put(SNAPSHOTS, 0, arriving)


def copies(owned: Partition) -> dict[str, Aggregate]:
    return {name: copy(run) for name, run in owned.aggregates.items()}


async def taken_over(log: MemoryLog) -> tuple[FoldStart, dict[str, Aggregate]]:
    """The live runs as a takeover has them, the resting ones loaded; they are those of a fold of everything."""
    whole = Fold(FAMILY, CODEC, term=-1, next_offset=0)
    whole.feed(log.records[EVENTS, 0])
    expected = {run.id: run for run in await whole.live()}
    by = snapshots(log)
    start = await by.load(0, 0)
    tail = Fold(FAMILY, CODEC, term=start.term, next_offset=start.next_offset, bases=dict(start.bases))
    tail.feed(log.records[EVENTS, 0][start.next_offset :])
    loader = StateLoader(0, FAMILY, by, partial(EndedAggregates(FAMILY, CODEC, log, EVENTS).refold, 0))
    aggregates = {run.id: run for run in await tail.live(load=loader.load)}
    for run in filter(is_resting, aggregates.values()):
        await loader.load(run)
    assert {name: (run.seq, run.digest, run.state, run.quarantined) for name, run in aggregates.items()} == {
        name: (run.seq, run.digest, run.state, run.quarantined) for name, run in expected.items()
    }
    return start, aggregates


@pytest.mark.parametrize("arrives", range(5))
@pytest.mark.parametrize("reads_late", [False, True])
@pytest.mark.parametrize("is_compacted", [False, True])
async def test_snapshots_of_a_former_owner_come_after_those_of_its_successor(
    arrives: int, reads_late: bool, is_compacted: bool
) -> None:
    log, owned = two_live_runs()
    started(owned, "r_ends")
    flushed(owned, log)
    former = Owner(log, copies(owned))
    if not reads_late:
        await former.write()
    owned.submit(owned.aggregates["r_a"], says("more"), at_ms=NOW)
    owned.submit(owned.aggregates["r_ends"], cancel(), at_ms=NOW)
    flushed(owned, log)
    successor = Owner(log, copies(owned))
    await successor.write()
    successor.arrive()
    if reads_late:
        await former.write()  # its snapshots name those of the successor as what they replace
    former.arrive(arrives)
    if is_compacted:
        compact(log, SNAPSHOTS)
    await taken_over(log)


async def test_a_former_owner_takes_a_run_that_began_after_it_for_one_that_ended() -> None:
    log, owned = two_live_runs()
    former = Owner(log, copies(owned))
    started(owned, "r_new")
    flushed(owned, log)
    successor = Owner(log, copies(owned))
    await successor.write()
    successor.arrive()
    await former.write()
    end = former.queue[2]
    assert (end.key, CODEC.decode(end.value or b"").record.ended) == (b"r_new", True)  # type: ignore[attr-defined]
    for _ in range(len(former.queue)):
        former.arrive(1)
        await taken_over(log)


async def test_an_older_snapshot_that_claims_to_replace_the_right_one_is_told() -> None:
    log, owned = two_live_runs()
    former = Owner(log, copies(owned))
    await former.write()
    owned.submit(owned.aggregates["r_a"], says("more"), at_ms=NOW)
    flushed(owned, log)
    successor = Owner(log, copies(owned))
    await successor.write()
    successor.arrive()
    start, _ = await taken_over(log)
    record = CODEC.decode(former.queue[0].value or b"").record
    late = replace(record, replaces=start.bases["r_a"].token)
    log.put(SNAPSHOTS, 0, [ProducerRecord(key=b"r_a", value=CODEC.encode(late))])
    start, _ = await taken_over(log)
    assert (start.next_offset, "are not the 2 it was made of" in start.ignored) == (0, True)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(min_value=0, max_value=1_000_000))
async def test_whatever_owners_append_in_any_order_a_takeover_has_the_runs_of_the_log(seed: int) -> None:
    random = Random(seed)
    log = MemoryLog({EVENTS: 1, SNAPSHOTS: 1})
    owned = claimed(log)
    idle: list[Owner] = []
    writing: list[Owner] = []
    for number in range(30):
        random_step(random, owned, number)
        if owned.aggregates and random.random() < 0.2:
            owned.submit(random.choice(list(owned.aggregates.values())), cancel(), at_ms=NOW + number)
        flushed(owned, log)
        if random.random() < 0.4:
            _, aggregates = await taken_over(log)
            idle.append(Owner(log, aggregates))
        if idle and random.random() < 0.5:
            owner = idle.pop(random.randrange(len(idle)))
            await owner.write()
            writing.append(owner)
        if writing and random.random() < 0.7:
            random.choice(writing).arrive(random.choice([1, 2, None]))
            if random.random() < 0.3:
                compact(log, SNAPSHOTS)
            await taken_over(log)
