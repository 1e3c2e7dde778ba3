"""Standing by: who does, that it folds along, and what is claimed when an owner dies, or only seems to."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.protocols import MemberAssignment
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_events import RunCompleted
from loomlog.schemas.generated.stream_events import Claim
from loomlog.services.core.run.react import CallModel
from loomlog.services.stream.ownership import assignment, watchdog
from loomlog.services.stream.ownership import standby as standby_module
from loomlog.services.stream.ownership.standby import choose_standby, partitions_followed_by
from tests.services.stream.given import replaced
from tests.services.stream.hosted import Hosted
from tests.services.stream.outside import TOPICS
from tests.services.stream.test_host import gate
from tests.services.stream.world import World

Worlds = Callable[..., World]
LIVES = st.sets(st.text("abcdefgh", min_size=1, max_size=4), min_size=1, max_size=8)


def share(*partitions: int, stands_by: bool = True) -> MemberAssignment:
    return MemberAssignment(partitions=frozenset(partitions), is_standby=stands_by)


def claims(world: World, partition: int = 0) -> list[tuple[str, str, str]]:
    """Owner, reason and lifeline of the Claims of a partition."""
    records = [local_codec().decode(record.value or b"") for record in world.log.records[TOPICS.events, partition]]
    return [(c.record.owner, c.record.reason, c.record.lifeline) for c in records if isinstance(c.record, Claim)]


def warmed(world: World, hosted: Hosted, partition: int = 0) -> Callable[[], Any]:
    """Has folded everything there is, and holds the owner's lifeline."""

    def holds() -> bool:
        standby = hosted.host.topic_sets[0].standby
        assert standby is not None
        folded = standby._folds.get(partition)
        return (
            folded is not None
            and folded.next_offset == len(world.log.records[TOPICS.events, partition])
            and any(ends for ends in world.lifelines.held.values())
        )

    return holds


async def pair(world: World) -> tuple[Hosted, Hosted]:
    """The owner a of partition 0 with one run that waits for its first model, and b, which stands by and is warm."""
    first, second = world.host("a", owns=[], stands_by=True), world.host("b", owns=[], stands_by=True)
    world.share_out(a=[0], b=[])
    world.start_run("r_x")
    await world.until(lambda: first.work.effect_runner.running_count)
    await world.until(warmed(world, second))
    return first, second


# --- who stands by ---------------------------------------------------------------------------------------------------


@given(LIVES, st.text("ijkl", min_size=1, max_size=4))
def test_who_comes_takes_only_what_it_stands_by_for_itself(lives: set[str], new: str) -> None:
    for partition in range(20):
        before, after = choose_standby(partition, lives), choose_standby(partition, lives | {new})
        assert after in (before, new)


def test_everybody_gets_about_as_much() -> None:
    lives = [f"life-{number}" for number in range(4)]
    actual = [choose_standby(partition, lives) for partition in range(400)]
    assert all(60 < actual.count(life) < 140 for life in lives)


@given(LIVES, st.data())
def test_every_partition_has_exactly_one_standby_that_does_not_own_it(lives: set[str], data: st.DataObject) -> None:
    names = sorted(lives)
    owners = [data.draw(st.sampled_from(names)) for _ in range(12)]
    members = {
        life: share(
            *(number for number, owner in enumerate(owners) if owner == life), stands_by=data.draw(st.booleans())
        )
        for life in names
    }
    for number, owner in enumerate(owners):
        followers = [life for life in names if number in partitions_followed_by(life, members)]
        willing = {life for life in names if members[life].is_standby} - {owner}
        assert len(followers) == bool(willing)
        assert set(followers) <= willing


def test_nobody_stands_by_for_a_group_that_is_not_known() -> None:
    assert partitions_followed_by("a", {}) == frozenset()
    assert choose_standby(0, []) is None


# --- when an owner dies ----------------------------------------------------------------------------------------------


async def test_the_partitions_of_a_dead_owner_are_claimed_without_the_group(world_of: Worlds) -> None:
    world = world_of(turns=2)
    opened = gate(world)
    first, second = await pair(world)
    await first.kill()
    world.lifelines.end("a")
    opened.set()
    story = await world.finished("r_x")
    assert isinstance(story.runs["r_x"].events[-1], RunCompleted)
    assert claims(world) == [("a", "assigned", "memory:1/a"), ("b", "standby", "memory:1/b")]
    assert second.host.metrics.claims_for == {"standby": 1}
    assert second.host.warm_partitions == 0


async def test_a_warm_take_over_reads_only_what_came_since(world_of: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of()
    gate(world)
    first, second = await pair(world)
    read: list[tuple[str, int]] = []
    reading = world.log.read

    async def counted(topic: str, partition: int, start: int, end: int) -> Any:
        read.append((topic, end - start))
        return await reading(topic, partition, start, end)

    monkeypatch.setattr(world.log, "read", counted)
    await first.kill()
    world.lifelines.end("a")
    await world.until(second.partition)
    assert read == [(TOPICS.events, 1)]


async def test_a_command_is_not_handled_again_by_a_warm_take_over(world_of: Worlds) -> None:
    world = world_of(turns=1)
    first, second = world.host("a", owns=[], stands_by=True), world.host("b", owns=[], stands_by=True)
    world.share_out(a=[0], b=[])
    names = [f"r_{number}" for number in range(20)]
    for name in names:
        world.start_run(name)
    await world.finished(*names)
    await world.until(warmed(world, second))
    await first.kill()
    world.lifelines.end("a")
    await world.until(second.partition)
    assert second.partition().progress.low == 20  # type: ignore[union-attr]  # awaited above
    world.start_run("r_new")
    story = await world.finished("r_new")
    assert second.host.metrics.commands == 1
    assert set(story.runs) == {*names, "r_new"}


async def test_an_owner_that_let_go_is_left_to_the_group(world_of: Worlds) -> None:
    world = world_of()
    opened = gate(world)
    first, second = await pair(world)
    await first.kill()
    world.lifelines.end("a", died=False)
    await world.ticks(50)
    assert not second.host.owners
    world.share_out(b=[0])
    opened.set()
    await world.finished("r_x")
    assert [(owner, reason) for owner, reason, _ in claims(world)] == [("a", "assigned"), ("b", "assigned")]


async def test_an_assignment_made_before_the_group_noticed_takes_nothing_back(world_of: Worlds) -> None:
    world = world_of()
    opened = gate(world)
    first, second = await pair(world)
    await first.kill()
    world.lifelines.end("a")
    await world.until(second.partition)
    world.share_out(a=[0], b=[], c=[])
    await world.ticks(50)
    assert set(second.host.owners) == {0}
    world.share_out(b=[], c=[0])
    opened.set()  # what is under way ends before it goes
    await world.until(lambda: not second.host.owners)
    world.share_out(b=[0], c=[])
    await world.finished("r_x")


async def test_what_a_standby_has_claimed_is_its_own_when_the_group_says_so(world_of: Worlds) -> None:
    world = world_of()
    opened = gate(world)
    first, second = await pair(world)
    await first.kill()
    world.lifelines.end("a")
    await world.until(second.partition)
    world.share_out(b=[0])
    opened.set()
    await world.finished("r_x")
    assert len(claims(world)) == 2


async def test_an_owner_that_only_seemed_dead_claims_again_and_the_standby_gives_way(world_of: Worlds) -> None:
    world = world_of(turns=3)
    opened = gate(world, kinds=CallModel)
    first, second = await pair(world)
    world.lifelines.end("a")
    await world.until(second.partition)
    opened.set()
    await world.until(lambda: first.host.metrics.fenced == 1)
    story = await world.finished("r_x")
    assert isinstance(story.runs["r_x"].events[-1], RunCompleted)
    world.start_run("r_y")
    await world.finished("r_y")
    await world.until(lambda: set(first.host.owners) == {0} and not second.host.owners)
    assert second.host.metrics.claims_for == {"standby": 1}


async def test_a_life_that_was_taken_for_dead_by_mistake_is_claimed_against_once(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "QUIET_CHECK_EVERY_S", 0.001)
    monkeypatch.setattr(assignment, "ADOPTION_RETRY_S", 0.0)
    world = world_of()
    gate(world)
    first, second = await pair(world)
    world.lifelines.end("a")
    await world.until(lambda: second.host.metrics.claims_for == {"standby": 1})
    await world.until(lambda: first.partition() is not None and not second.host.owners)
    await world.until(lambda: second.host.warm_partitions == 1)
    await world.ticks(100)
    assert not second.host.owners
    assert not world.lifelines.held.get("a")


async def test_a_partition_is_not_claimed_again_and_again_when_its_owners_die_quickly(world_of: Worlds) -> None:
    world = world_of()
    gate(world)
    first, second = await pair(world)
    await first.kill()
    world.lifelines.end("a")
    await world.until(second.partition)
    third = world.host("c", owns=[], stands_by=True)
    world.share_out(b=[], c=[0])
    await world.until(third.partition)
    await world.until(warmed(world, second))
    await third.kill()
    world.lifelines.end("c")
    await world.ticks(100)
    assert not second.host.owners


async def test_a_death_that_is_known_before_the_claim_is_read_counts_when_it_is(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partition 1 is handed to a process that dies at once; its lifeline is held because of partition 0."""
    world = world_of(partitions=2)
    first, second = world.host("a", owns=[], stands_by=True), world.host("b", owns=[], stands_by=True)
    world.share_out(a=[0], b=[1])
    await world.until(lambda: first.partition(0) and second.partition(1))
    await world.until(warmed(world, second))
    world.share_out(a=[0, 1], b=[])
    await world.until(lambda: first.partition(1))
    standby = second.host.topic_sets[0].standby
    assert standby is not None
    await world.until(lambda: 1 in standby._folds)
    monkeypatch.setitem(standby._ends, 1, 1_000)
    world.lifelines.end("a")
    await first.kill()
    await world.until(lambda: second.partition(0))
    await world.ticks(20)
    assert set(second.host.owners) == {0}
    monkeypatch.setitem(standby._ends, 1, 0)
    await world.until(lambda: second.partition(1))
    assert [reason for _, reason, _ in claims(world, 1)] == ["assigned", "assigned", "standby"]


async def test_a_process_that_stops_claims_nothing_more(world_of: Worlds) -> None:
    world = world_of()
    gate(world)
    first, second = await pair(world)
    await second.host.drain(0.0)
    await first.kill()
    world.lifelines.end("a")
    await world.ticks(50)
    assert not second.host.owners


# --- what it holds ---------------------------------------------------------------------------------------------------


async def test_it_follows_the_lifeline_of_whoever_claimed_last(world_of: Worlds) -> None:
    world = world_of()
    opened = gate(world)
    third = world.host("c", owns=[], stands_by=True)
    first, second = await pair(world)
    names = {"a": first, "b": second, "c": third}
    owner = "b" if choose_standby(0, ["a", "c"]) else "c"
    opened.set()  # what is under way ends before it goes
    world.share_out(**{name: [0] if name == owner else [] for name in names})
    await world.until(names[owner].partition)
    await world.until(lambda: world.lifelines.held.get(owner))
    assert not world.lifelines.held.get("a")
    await world.finished("r_x")


async def test_a_fold_that_became_too_heavy_is_begun_anew_in_its_time(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of()
    gate(world)
    first, second = await pair(world)
    monkeypatch.setattr(standby_module, "KEPT_BYTES_MAX", 10)
    await world.until(lambda: second.host.warm_partitions == 0)
    await world.ticks(20)
    assert second.host.warm_partitions == 0
    monkeypatch.setattr(standby_module, "KEPT_BYTES_MAX", 1_000_000)
    monkeypatch.setattr(standby_module, "REFOLD_EVERY_S", 0.0)
    await world.until(warmed(world, second))
    await first.kill()
    world.lifelines.end("a")
    await world.until(second.partition)


async def test_a_command_without_an_event_does_not_hold_the_fold_back_for_ever(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby_module, "PREFETCHED_MAX", 3)
    monkeypatch.setattr(standby_module, "REFOLD_EVERY_S", 0.0)
    world = world_of(turns=1)
    first, second = world.host("a", owns=[], stands_by=True), world.host("b", owns=[], stands_by=True)
    world.share_out(a=[0], b=[])
    await world.until(first.partition)
    world.cancel_run("r_nobody")
    for number in range(10):
        world.start_run(f"r_{number}")
    await world.finished(*(f"r_{number}" for number in range(10)))
    owner = first.host.owners[0]
    assert await first.host.checkpoints.make(owner)
    await world.until(warmed(world, second))
    await world.until(
        lambda: (
            (standby := second.host.topic_sets[0].standby)
            and 0 in standby._folds
            and standby._folds[0].progress.low == 11
        )
    )


async def test_snapshots_written_since_it_last_owned_are_buried_after_a_warm_take_over(world_of: Worlds) -> None:
    world = world_of()
    opened = gate(world)
    first, second = world.host("a", owns=[], stands_by=True), world.host("b", owns=[], stands_by=True)
    world.share_out(a=[], b=[0])
    await world.until(second.partition)
    world.share_out(a=[0], b=[])
    world.start_run("r_x")
    await world.until(lambda: first.work.effect_runner.running_count)
    await world.until(warmed(world, second))
    assert await first.host.checkpoints.make(first.host.owners[0])
    await first.kill()
    world.lifelines.end("a")
    await world.until(second.partition)
    opened.set()
    await world.finished("r_x")
    assert await second.host.checkpoints.make(second.host.owners[0])
    buried = [record.key for record in world.log.records[TOPICS.snapshots, 0] if record.value is None]
    assert buried == [b"r_x"]


async def test_a_claim_whose_owner_cannot_be_read_is_nobodys_lifeline(world_of: Worlds) -> None:
    world = world_of()
    first = world.host("a", owns=[], stands_by=True)
    second = world.host("b", owns=[], stands_by=True)
    world.share_out(a=[0])
    await world.until(first.partition)
    value = world.log.records[TOPICS.events, 0][0].value
    assert value is not None
    replaced(world.log, 0, value[: len(value) - 12])
    world.share_out(a=[0], b=[])
    await world.until(lambda: second.host.warm_partitions == 1)
    await world.ticks(20)
    assert not any(world.lifelines.held.values())
