"""Checkpoints in the life of hosts: what a take-over may skip, and what it must then ask the index."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.generated.run_events import RunCancelled, RunCompleted
from loomlog.services.stream.partition import fold as fold_module
from loomlog.services.stream.partition.partition import Partition
from loomlog.services.stream.snapshots import schedule
from tests.services.stream.hosted import Hosted
from tests.services.stream.judge import every_start_has_its_run
from tests.services.stream.outside import TOPICS
from tests.services.stream.test_host import gate
from tests.services.stream.world import World

Worlds = Callable[..., World]


async def checkpointed(hosted: Hosted, number: int = 0) -> None:
    assert await hosted.host.checkpoints.make(hosted.host.owners[number])


def partition_of(hosted: Hosted) -> Partition:
    partition = hosted.partition()
    assert partition is not None
    return partition


@pytest.mark.parametrize("ticks", range(0, 90, 4))
async def test_a_take_over_from_a_checkpoint_goes_on_as_one_from_the_log_would(world_of: Worlds, ticks: int) -> None:
    world = world_of(seed=ticks, effect_delay=3, turns=6)
    first = world.host("a")
    await world.until(first.partition)
    names = [f"r_{number}" for number in range(5)]
    for name in names:
        world.start_run(name)
    await world.ticks(ticks)
    await checkpointed(first)
    await world.ticks(7)
    await first.kill()
    second = world.host("b")
    await world.until(second.partition)
    story = await world.finished(*names)
    assert set(story.runs) == set(names)
    every_start_has_its_run(world.log, story, TOPICS.commands, TOPICS.dead_letters, 1)
    assert second.host.metrics.claims == 1


async def test_a_start_that_ended_before_the_checkpoint_is_known_by_the_index_alone(world_of: Worlds) -> None:
    world = world_of(turns=1)
    first = world.host("a")
    command = world.start_run("r_x")
    await world.finished("r_x")
    await world.until(lambda: first.handled(0))
    await checkpointed(first)
    await first.kill()
    world.index.limits[0] = 0  # the projection has seen nothing yet
    second = world.host("b")
    world.put(command)
    world.now += 60_000
    world.start_run("r_y", issued_at_ms=world.now)  # surely new: needs no look-up
    await world.finished("r_y")
    assert not second.handled(1)  # the repeated one waits rather than guesses
    assert set(world.story().runs) == {"r_x", "r_y"}
    del world.index.limits[0]
    await world.until(lambda: second.handled(1))
    assert len(world.story().runs["r_x"].events) == 4


async def test_a_start_forgotten_by_a_fold_without_checkpoint_is_looked_up_too(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fold keeps only the last ended runs; what it forgot must not be taken for new."""
    monkeypatch.setattr(fold_module, "ENDED_KEPT", 2)
    world = world_of(turns=1)
    first = world.host("a")
    commands = [world.start_run(f"r_{number}", idempotency_key=f"key{number}") for number in range(6)]
    await world.finished(*(f"r_{number}" for number in range(6)))
    await first.kill()
    world.index.limits[0] = 0
    second = world.host("b")
    await world.until(second.partition)
    world.put(commands[0])  # forgotten
    world.put(commands[5])  # remembered
    await world.until(lambda: second.handled(7))
    await world.ticks(20)
    assert not second.handled(6)
    del world.index.limits[0]
    await world.until(lambda: second.handled(6))
    assert len(world.story().runs) == 6


@pytest.mark.parametrize("with_key", [True, False])
async def test_a_repeat_is_recognised_after_checkpoint_and_eviction_while_the_index_lags(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch, with_key: bool
) -> None:
    monkeypatch.setattr("loomlog.services.runtime.run.run_directory.ENDED_KEPT", 3)
    world = world_of(turns=1)
    key = {"idempotency_key": "k"} if with_key else {}
    first = world.host("a")
    command = world.start_run("r_first", **key)
    for number in range(8):
        world.start_run(f"r_{number}")
    await world.finished("r_first", *(f"r_{number}" for number in range(8)))
    await world.until(first.settled)
    world.index.limits[0] = 3
    again = world.put(command)  # the same owner has forgotten it by now
    await world.ticks(40)
    assert not first.handled(again)
    await checkpointed(first)
    await first.kill()
    second = world.host("b")
    await world.until(second.partition)
    await world.ticks(40)
    assert not second.handled(again)
    del world.index.limits[0]
    await world.until(lambda: second.handled(again))
    assert len(world.story().runs["r_first"].events) == 4


async def test_the_mark_of_a_checkpoint_waits_for_what_was_decided_before_it(world_of: Worlds) -> None:
    world = world_of()
    hosted = world.host()
    await world.until(hosted.partition)
    gate(world)
    hosted.wire.open.clear()
    world.start_run("r_x")
    await world.until(lambda: hosted.host.flusher.in_flight_since)
    world.start_run("r_y")
    await world.until(lambda: partition_of(hosted).has_pending)
    writing = hosted.task.get_loop().create_task(hosted.host.checkpoints.make(hosted.host.owners[0]))
    await world.ticks(20)
    assert not writing.done()
    hosted.wire.open.set()
    await world.until(writing.done)
    assert writing.result()
    start = await hosted.work.snapshots.load(0, 0)
    assert set(start.bases) == {"r_x", "r_y"}
    assert start.next_offset == len(world.log.records[TOPICS.events, 0])
    assert start.progress.low == 2


async def test_a_checkpoint_of_a_partition_that_is_lost_meanwhile_is_not_written(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "SNAPSHOT_CHECK_EVERY_S", 0.001)
    world = world_of()
    hosted = world.host()
    await world.until(hosted.partition)
    hosted.wire.open.clear()
    world.start_run("r_x")
    await world.until(lambda: hosted.host.flusher.in_flight_since)
    owner = hosted.host.owners[0]
    writing = hosted.task.get_loop().create_task(hosted.host.checkpoints.make(owner))
    await world.ticks(5)
    hosted.reassign()
    await world.until(writing.done)
    assert writing.result() is False
    assert await hosted.host.checkpoints.make(owner) is False
    assert world.log.records[TOPICS.snapshots, 0] == []


async def test_a_checkpoint_that_cannot_be_written_is_tried_again_in_its_time(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = world.host()
    world.start_run("r_x")
    await world.finished("r_x")
    await world.until(lambda: hosted.handled(0))
    hosted.wire.fails = UnknownOutcome("no broker")
    assert await hosted.host.checkpoints.make(hosted.host.owners[0]) is False
    assert partition_of(hosted).events_since_checkpoint > 0
    hosted.wire.fails = None
    await checkpointed(hosted)
    assert partition_of(hosted).events_since_checkpoint == 0


async def test_checkpoints_are_made_by_themselves(world_of: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "SNAPSHOT_CHECK_EVERY_S", 0.0)
    monkeypatch.setattr(schedule, "SNAPSHOT_EVERY_EVENTS", 3)
    world = world_of(turns=1)
    world.host()
    world.start_run("r_x")
    await world.finished("r_x")
    await world.until(lambda: world.log.records[TOPICS.snapshots, 0])


async def test_a_checkpoint_of_another_longer_log_is_not_used(world_of: Worlds) -> None:
    """The events topic was made anew and the snapshots topic was not."""
    world = world_of(turns=1)
    first = world.host("a")
    for number in range(4):
        world.start_run(f"r_{number}")
    await world.finished(*(f"r_{number}" for number in range(4)))
    await world.until(lambda: first.handled(3))
    await checkpointed(first)
    await first.kill()
    fresh = world_of(turns=1)
    fresh.log.records[TOPICS.snapshots, 0] = world.log.records[TOPICS.snapshots, 0]
    fresh.host("b")
    fresh.start_run("r_new", issued_at_ms=world.now + 60_000)
    story = await fresh.finished("r_new")
    assert isinstance(story.runs["r_new"].events[-1], RunCompleted)


async def test_a_take_over_with_a_checkpoint_reads_the_tail_alone(world_of: Worlds) -> None:
    world = world_of(turns=1)
    first = world.host("a")
    for number in range(20):
        world.start_run(f"r_{number}")
    await world.finished(*(f"r_{number}" for number in range(20)))
    await world.until(lambda: all(first.handled(number) for number in range(20)))
    await checkpointed(first)
    await first.kill()
    second = world.host("b")
    await world.until(second.partition)
    assert partition_of(second).events_since_checkpoint == 0  # nothing was folded
    assert partition_of(second).progress.low == 20


async def test_after_the_clock_went_back_a_checkpoint_still_knows_how_new_the_starts_were(world_of: Worlds) -> None:
    """Both owners' clocks are an hour behind that of the sender."""
    world = world_of(turns=1)
    first = world.host("a")
    issued = world.now
    world.now -= 3_600_000
    command = world.start_run("r_x", issued_at_ms=issued)
    await world.finished("r_x")
    await world.until(first.settled)
    await checkpointed(first)
    await first.kill()
    world.index.limits[0] = 0
    second = world.host("b")
    await world.until(second.partition)
    again = world.put(command)
    await world.ticks(40)
    assert not second.handled(again)
    del world.index.limits[0]
    await world.until(lambda: second.handled(again))
    assert len(world.story().runs["r_x"].events) == 4


async def test_a_command_dropped_because_of_an_end_is_read_again_when_the_end_is_lost(world_of: Worlds) -> None:
    """The checkpoint stands before the end that made the cancel pointless, so it must not count as handled there."""
    world = world_of(turns=1)
    first = world.host("a")
    opened = gate(world)
    world.start_run("r_x")
    await world.until(lambda: first.work.effect_runner.running("r_x"))
    lands = asyncio.Semaphore(0)
    append = first.wire.append

    async def one_by_one(topic: str, partition: int, records: Sequence[ProducerRecord]) -> int:
        if topic == TOPICS.events:
            await lands.acquire()
        return await append(topic, partition, records)

    first.wire.append = one_by_one  # type: ignore[method-assign]  # the order of landing is what is tried
    held = partition_of(first)
    world.start_run("r_y")
    await world.until(lambda: first.host.flusher.in_flight_since)
    world.start_run("r_z")
    await world.until(lambda: held.pending_decisions == 1)
    checkpoint = asyncio.create_task(checkpointed(first))
    await world.until(lambda: held.pending_decisions == 2)
    lands.release()  # r_y; then r_z and the mark of the checkpoint are on the wire
    await world.until(lambda: held.pending_decisions == 0)
    opened.set()
    await world.until(lambda: "r_x" not in held.aggregates)
    cancel = world.cancel_run("r_x")
    await world.ticks(50)
    assert not first.handled(cancel)
    lands.release()
    await checkpoint
    await first.kill()
    gate(world)  # no call returns: whatever ends r_x now is the cancel
    world.host("b")
    story = await world.finished("r_x")
    assert isinstance(story.runs["r_x"].events[-1], RunCancelled)
