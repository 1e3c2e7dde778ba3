"""Spares: which owner each watches, what is claimed when one dies or only seems to, and that waiting costs nothing."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.protocols import MemberAssignment
from loomlog.schemas.generated.run_events import RunCompleted
from loomlog.services.core.run.react import CallModel
from loomlog.services.stream.ownership import assignment, watchdog
from loomlog.services.stream.ownership.spare import owners_left_to, partitions_watched_by
from tests.services.stream.hosted import Hosted
from tests.services.stream.outside import TOPICS
from tests.services.stream.ownership.test_standby import claims
from tests.services.stream.test_host import gate
from tests.services.stream.world import World

Worlds = Callable[..., World]


def share(life: str, *partitions: int, stands_by: bool = True) -> MemberAssignment:
    return MemberAssignment(
        partitions=frozenset(partitions), is_standby=stands_by, address=f"host:1/{life}" if stands_by else ""
    )


async def pair(world: World) -> tuple[Hosted, Hosted]:
    """The owner a of all partitions with one run that waits for its first model, and b, a spare that watches it."""
    first = world.host("a", owns=[], stands_by=True, is_spare=True)
    second = world.host("b", owns=[], stands_by=True, is_spare=True)
    world.share_out(a=range(world.partitions), b=[])
    world.start_run("r_x")
    await world.until(lambda: first.work.effect_runner.running_count)
    await world.until(lambda: second.host.watched_partitions == world.partitions)
    return first, second


# --- who watches whom ------------------------------------------------------------------------------------------------


@given(st.integers(1, 5), st.integers(0, 5))
def test_every_owner_is_watched_by_all_spares_and_falls_to_one_of_them(owners: int, spares: int) -> None:
    members = {f"owner-{number}": share(f"owner-{number}", 2 * number, 2 * number + 1) for number in range(owners)}
    members |= {f"spare-{number}": share(f"spare-{number}") for number in range(spares)}
    watched = {life: partitions_watched_by(life, members) for life in members}
    assert not any(watched[life] for life in members if life.startswith("owner"))
    for number in range(owners):
        watchers = [life for life in members if f"host:1/owner-{number}" in watched[life]]
        assert len(watchers) == spares
        left_to = [life for life in members if f"host:1/owner-{number}" in owners_left_to(life, members)]
        assert len(left_to) == min(1, spares)
        assert set(left_to) <= set(watchers)
        for life in watchers:
            assert watched[life][f"host:1/owner-{number}"] == {2 * number, 2 * number + 1}


def test_members_without_a_socket_neither_watch_nor_are_watched() -> None:
    members = {
        "a": share("a", 0, stands_by=False),
        "b": share("b", 1),
        "c": share("c"),
        "d": share("d", stands_by=False),
    }
    assert partitions_watched_by("c", members) == {"host:1/b": {1}}
    assert partitions_watched_by("d", members) == {}
    assert partitions_watched_by("nobody", members) == {}


# --- when an owner dies ----------------------------------------------------------------------------------------------


async def test_a_spare_claims_all_partitions_of_a_dead_owner_and_its_runs_go_on(world_of: Worlds) -> None:
    world = world_of(turns=2, partitions=3)
    opened = gate(world)
    first, second = await pair(world)
    await first.kill()
    world.lifelines.end("a")
    opened.set()
    story = await world.finished("r_x")
    assert isinstance(story.runs["r_x"].events[-1], RunCompleted)
    await world.until(lambda: all(second.partition(number) for number in range(3)))
    for number in range(3):
        assert claims(world, number) == [("a", "assigned", "memory:1/a"), ("b", "standby", "memory:1/b")]
    world.share_out(b=range(3))
    await world.until(lambda: second.host.watched_partitions == 0)
    assert set(second.host.owners) == {0, 1, 2}


async def test_a_waiting_spare_reads_and_writes_nothing(world_of: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of()
    opened = gate(world)
    _, second = await pair(world)
    read: list[str] = []
    reading = world.log.read

    async def counted(topic: str, partition: int, start: int, end: int) -> Any:
        read.append(topic)
        return await reading(topic, partition, start, end)

    monkeypatch.setattr(world.log, "read", counted)
    opened.set()
    await world.finished("r_x")
    assert TOPICS.events not in read
    assert not second.host.owners
    assert second.host.warm_partitions == 0
    assert second.host.metrics.commands == 0


async def test_the_member_that_comes_back_is_the_spare_of_the_one_that_took_over(world_of: Worlds) -> None:
    world = world_of()
    opened = gate(world)
    first, second = await pair(world)
    await first.kill()
    world.lifelines.end("a")
    await world.until(second.partition)
    third = world.host("c", owns=[], stands_by=True, is_spare=True)
    world.share_out(b=[0], c=[])
    await world.until(lambda: third.host.watched_partitions == 1)
    await second.kill()
    world.lifelines.end("b")
    await world.until(third.partition)
    opened.set()
    await world.finished("r_x")
    assert [owner for owner, _, _ in claims(world)] == ["a", "b", "c"]


async def test_the_death_of_a_spare_changes_nothing(world_of: Worlds) -> None:
    world = world_of()
    opened = gate(world)
    first, second = await pair(world)
    await second.kill()
    world.lifelines.end("b")
    world.share_out(a=[0])
    opened.set()
    await world.finished("r_x")
    assert claims(world) == [("a", "assigned", "memory:1/a")]
    assert first.host.metrics.fenced == 0


async def test_of_two_spares_one_takes_everything_and_the_other_stays_a_spare(world_of: Worlds) -> None:
    world = world_of(partitions=4)
    opened = gate(world)
    spares = [world.host(name, owns=[], stands_by=True, is_spare=True) for name in ("b", "c")]
    first = world.host("a", owns=[], stands_by=True, is_spare=True)
    world.share_out(a=range(4), b=[], c=[])
    world.start_run("r_x")
    await world.until(lambda: first.work.effect_runner.running_count)
    await world.until(lambda: all(one.host.watched_partitions == 4 for one in spares))
    await first.kill()
    world.lifelines.end("a")
    opened.set()
    await world.finished("r_x")
    await world.until(lambda: sorted(len(one.host.owners) for one in spares) == [0, 4])


async def test_an_owner_that_stopped_as_planned_is_left_to_the_group(world_of: Worlds) -> None:
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


async def test_an_owner_that_only_seemed_dead_claims_again_and_is_not_claimed_against_twice(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "QUIET_CHECK_EVERY_S", 0.001)
    monkeypatch.setattr(assignment, "ADOPTION_RETRY_S", 0.0)
    world = world_of(turns=3)
    opened = gate(world, kinds=CallModel)
    first, second = await pair(world)
    world.lifelines.end("a")
    await world.until(second.partition)
    opened.set()
    story = await world.finished("r_x")
    assert isinstance(story.runs["r_x"].events[-1], RunCompleted)
    await world.until(lambda: first.partition() and not second.host.owners)
    world.share_out(a=[0], b=[])
    await world.ticks(100)
    assert second.host.metrics.claims_for == {"standby": 1}
    assert not world.lifelines.held.get("a")


async def test_what_the_group_gives_a_dead_owner_before_it_noticed_is_claimed_too(world_of: Worlds) -> None:
    world = world_of(partitions=2)
    first = world.host("a", owns=[], stands_by=True, is_spare=True)
    second = world.host("b", owns=[], stands_by=True, is_spare=True)
    world.share_out(a=[0], b=[])
    await world.until(lambda: first.partition(0) and second.host.watched_partitions == 1)
    await first.kill()
    world.lifelines.end("a")
    await world.until(lambda: second.partition(0))
    world.share_out(a=[0, 1], b=[])
    await world.until(lambda: second.partition(1))


async def test_a_spare_that_stops_claims_nothing_more(world_of: Worlds) -> None:
    world = world_of()
    gate(world)
    first, second = await pair(world)
    await second.host.drain(0.0)
    await first.kill()
    world.lifelines.end("a")
    await world.ticks(50)
    assert not second.host.owners
