"""A fold that goes on as records come equals the fold of a take-over, wherever the log is cut."""

from random import Random
from typing import Any

import pytest

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.schemas.ids import partition_key
from loomlog.services.runtime.run.family import RunFamily
from loomlog.services.stream.partition.recovered_state import PartitionFold
from loomlog.services.stream.snapshots.snapshots import FoldStart, Snapshots
from tests.services.stream.given import CODEC, FAMILY
from tests.services.stream.outside import TOPICS
from tests.services.stream.world import World

SEEDS = 12


async def no_history(event: Any) -> None:
    return None


async def log_of(seed: int) -> MemoryLog:
    """Some fifty runs of two owners, some of them live, with checkpoints and a zombie's records in between."""
    world = World(seed=seed, turns=3, effect_delay=3)
    try:
        for name in ("a", "b"):
            hosted = world.host(name)
            for number in range(25):
                world.start_run(f"r_{name}{number}")
                if number % 10 == 0:
                    world.cancel_run(f"r_{name}{number}")
                await world.ticks(world.random.randint(0, 12))
            await world.until(hosted.partition)
            assert await hosted.host.checkpoints.make(hosted.host.owners[0])
            await world.ticks(world.random.randint(0, 60))
            await hosted.kill()
    finally:
        await world.close()
    return world.log


async def seen(folded: PartitionFold) -> dict[str, Any]:
    """Everything a take-over takes from it."""
    live = await folded.fold.live(no_history)
    return {
        "live": {a.id: (a.seq, a.digest, a.first_offset, a.last_offset, FAMILY.states.encode(a.state)) for a in live},
        "keys": all(a.key == partition_key(a.id).encode() for a in live),
        "over": {name: (first.offset, last.offset) for name, (first, last) in folded.fold.over.items()},
        "commands": (folded.progress.low, folded.progress.above),
        "term": folded.term,
        "next": folded.next_offset,
        "known": (folded.known_since_ms, folded.forgotten_until),
        "lifeline": folded.lifeline,
    }


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_fed_piece_by_piece_it_knows_what_it_knows_fed_at_once(seed: int) -> None:
    log, draw = await log_of(seed), Random(seed)
    records = log.records[TOPICS.events, 0]
    whole = PartitionFold(RunFamily(), CODEC, FoldStart(0))
    whole.feed(records)
    pieces = PartitionFold(RunFamily(), CODEC, FoldStart(0))
    at = 0
    while at < len(records):
        size = draw.randint(1, 30)
        pieces.feed(records[at : at + size])
        at += size
    assert await seen(pieces) == await seen(whole)
    assert whole.fold.kept_bytes == pieces.fold.kept_bytes


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_begun_long_ago_it_has_the_same_live_runs_as_one_from_the_last_checkpoint(seed: int) -> None:
    log = await log_of(seed)
    records = log.records[TOPICS.events, 0]
    late = await Snapshots(FAMILY, CODEC, appender=log, ranges=log, topic=TOPICS.snapshots).load(0, 0)
    assert late.next_offset
    warm, cold = PartitionFold(FAMILY, CODEC, FoldStart(0)), PartitionFold(FAMILY, CODEC, late)
    warm.feed(records)
    if records[late.next_offset :]:
        cold.feed(records[late.next_offset :])
    one, other = await seen(warm), await seen(cold)
    assert one["live"] == other["live"]
    assert one["term"] == other["term"]
    assert set(other["over"]) <= set(one["over"])
    assert one["commands"][0] <= other["commands"][0]


async def test_what_is_kept_is_what_is_live() -> None:
    log = await log_of(1)
    records = log.records[TOPICS.events, 0]
    folded = PartitionFold(FAMILY, CODEC, FoldStart(0))
    folded.feed(records)
    live = {aggregate.id for aggregate in await folded.fold.live(no_history)}
    sizes = [sum(len(event.value) for event in folded.fold._live[name]) for name in live]
    assert folded.fold.kept_bytes == sum(sizes)
