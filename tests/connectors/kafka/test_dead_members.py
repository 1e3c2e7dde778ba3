"""Dead members leave the group before their session is over."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest_asyncio
from aiokafka.errors import GroupCoordinatorNotAvailableError
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.kafka import KafkaGroup, KafkaOptions
from loomlog.connectors.kafka.dead_members import DeadMembers, neighbours
from loomlog.connectors.protocols import MemberAssignment
from loomlog.redpanda.apply import apply
from loomlog.redpanda.topics import load_topics
from tests.waiting import until

SESSION_MS = 60_000


def group_of(*names: str) -> dict[str, MemberAssignment]:
    return {
        name: MemberAssignment(partitions=frozenset(), is_standby=True, address=f"h:1/{name}", member_id=f"m-{name}")
        for name in names
    }


@dataclass
class Processes:
    """Processes by endpoint, which live until they are ended."""

    ended: dict[str, asyncio.Future[bool]] = field(default_factory=dict)

    async def until_gone(self, endpoint: str) -> bool:
        gone = self.ended.setdefault(endpoint, asyncio.get_running_loop().create_future())
        return await asyncio.shield(gone)

    def end(self, endpoint: str, *, has_died: bool = True) -> None:
        self.ended[endpoint].set_result(has_died)


@given(st.sets(st.text("abcdef", min_size=1, max_size=3), min_size=1, max_size=8))
def test_each_member_is_watched_by_two_others_as_far_as_there_are_so_many(names: set[str]) -> None:
    members = group_of(*names)
    watched = [endpoint for name in names for endpoint in neighbours(name, members)]
    expected = min(2, len(names) - 1)
    assert sorted(watched) == sorted(one.address for one in members.values() for _ in range(expected))


def test_a_member_without_endpoint_or_id_is_not_watched() -> None:
    known = MemberAssignment(partitions=frozenset(), is_standby=True, address="h:1/b")
    hidden = MemberAssignment(partitions=frozenset(), is_standby=False, member_id="m-c")
    assert neighbours("a", {**group_of("a"), "b": known, "c": hidden}) == {}


async def test_a_member_that_died_is_removed_and_one_that_left_is_not() -> None:
    processes, removed = Processes(), list[str]()

    async def remove(member_id: str) -> None:
        removed.append(member_id)

    watch = DeadMembers("b", until_gone=processes.until_gone, remove=remove, delay_s=0)
    watch.update(group_of("a", "b", "c"))
    await until(lambda: len(processes.ended) == 2)
    processes.end("h:1/a", has_died=False)
    processes.end("h:1/c")
    await until(lambda: removed)
    watch.update(group_of("b"))
    assert removed == ["m-c"]
    await watch.close()


async def test_a_removal_that_fails_is_left_to_the_session() -> None:
    processes, tries = Processes(), list[str]()

    async def remove(member_id: str) -> None:
        tries.append(member_id)
        raise GroupCoordinatorNotAvailableError

    watch = DeadMembers("a", until_gone=processes.until_gone, remove=remove, delay_s=0)
    watch.update(group_of("a", "b"))
    await until(lambda: processes.ended)
    processes.end("h:1/b")
    await until(lambda: tries)
    watch.update(group_of("a", "b"))
    await watch.close()
    assert tries == ["m-b"]


# --- over a real broker ----------------------------------------------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="session")
async def join(kafka: str, topic_prefix: str) -> AsyncIterator[Callable[..., KafkaGroup]]:
    """Makes members of one group, which end with the test."""
    topics = [one for one in load_topics(prefix=topic_prefix, partitions=4) if one.name.endswith("run.commands")]
    await apply(kafka, topics=topics)
    made = list[KafkaGroup]()

    def make(incarnation: str, processes: Processes) -> KafkaGroup:
        made.append(
            KafkaGroup(
                KafkaOptions(bootstrap=kafka),
                topics[0].name,
                f"{topic_prefix}-group",
                session_timeout_ms=SESSION_MS,
                incarnation=incarnation,
                is_standby=True,
                address=f"h:1/{incarnation}",
                spares=1,
                until_gone=processes.until_gone,
            )
        )
        return made[-1]

    yield make
    for group in made:
        await group.close()


async def unreachable(request: object) -> None:
    raise GroupCoordinatorNotAvailableError


async def test_a_process_that_comes_back_is_a_member_long_before_the_session_is_over(
    join: Callable[..., KafkaGroup],
) -> None:
    processes = Processes()
    owner, spare = join("a", processes), join("b", processes)
    await owner.start()
    await until(lambda: owner.assigned)
    await spare.start()
    await until(lambda: {"a", "b"} == set(spare.members) == set(owner.members))
    await until(lambda: "h:1/a" in processes.ended)
    # Nothing of it reaches the coordinator any more, not that it leaves either: as after kill -9.
    owner._consumer._coordinator._send_req = unreachable
    died_s = time.monotonic()
    processes.end("h:1/a")
    again = join("c", processes)
    await again.start()
    await until(lambda: {"b", "c"} == set(again.members) == set(spare.members))
    assert spare.assigned == {0, 1, 2, 3}
    assert again.assigned == frozenset()
    assert time.monotonic() - died_s < SESSION_MS / 2_000, "it was the session that ended"
