import pytest

from loomlog.projections.engine.cursors import Position
from loomlog.projections.engine.positions import WaitResult
from loomlog.schemas.codec import local_codec
from loomlog.services.application.application import TOPICS
from loomlog.services.application.queries.read_your_writes import PositionBarrier
from loomlog.services.application.streaming.event_hub import EventHub, HubStart
from tests.services.application.world import declined


class At:
    """Read models that stand somewhere; remembers what was waited for."""

    def __init__(self, reached: dict[int, int]) -> None:
        self.reached = reached
        self.asked: list[tuple[Position, float]] = []

    async def wait(self, position: Position, *, timeout_s: float) -> WaitResult:
        self.asked.append((position, timeout_s))
        known = self.reached[position.partition]
        return WaitResult(is_reached=known > position.offset, lag=max(0, position.offset + 1 - known))


def barrier(positions: At, seen: dict[int, int]) -> PositionBarrier:
    hub = EventHub(local_codec(), {number: HubStart(next_offset=offset) for number, offset in seen.items()})
    return PositionBarrier(hub, positions, topic=TOPICS.events)


async def test_a_read_waits_for_what_this_process_has_seen() -> None:
    positions = At({0: 10, 1: 10})
    assert await barrier(positions, {0: 10, 1: 10}).wait_for_own_writes(1) == 0
    assert [(p.partition, p.offset) for p, _ in positions.asked] == [(1, 9)]


async def test_the_lag_is_told_and_nothing_is_raised() -> None:
    assert await barrier(At({0: 7}), {0: 10}).wait_for_own_writes(0) == 3


async def test_without_a_partition_all_are_waited_for_within_one_bound() -> None:
    positions = At({0: 10, 1: 5, 2: 0})
    assert await barrier(positions, {0: 10, 1: 10, 2: 0}).wait_for_own_writes(None, timeout_s=0.5) == 5
    assert [p.partition for p, _ in positions.asked] == [0, 1], "nothing was seen of partition 2"
    assert all(timeout_s <= 0.5 for _, timeout_s in positions.asked)


async def test_the_end_of_the_log_is_waited_for_also_where_this_process_is_behind_it() -> None:
    positions = At({0: 10, 1: 8, 2: 0})
    await barrier(positions, {0: 0, 1: 0, 2: 0}).wait_for_all({0: 10, 1: 8, 2: 0}, timeout_s=1.0)
    actual = await declined(barrier(positions, {0: 0, 1: 0}).wait_for_all({0: 12, 1: 9}, timeout_s=1.0))
    assert (actual.code, actual.details["lag"]) == ("not_yet", 3)


@pytest.mark.parametrize(
    "token", ["run.events/1:41", "loom.run.events:1:41", "run.events:1:41", "loom.run.events/1:41"]
)
async def test_a_token_is_waited_for_in_either_form(token: str) -> None:
    positions = At({0: 0, 1: 42})
    await barrier(positions, {0: 0, 1: 0}).wait_for(token)
    assert positions.asked[0][0] == Position(topic=TOPICS.events, partition=1, offset=41)


async def test_a_token_that_is_not_reached_says_not_yet_and_how_far() -> None:
    actual = await declined(barrier(At({0: 40}), {0: 0}).wait_for("run.events/0:41"))
    assert (actual.code, actual.details["lag"], actual.retry_after_s) == ("not_yet", 2, 1)


@pytest.mark.parametrize(
    "token", ["", "run.events", "run.events/9:1", "run.commands/0:1", "run.events/0:-1", "x" * 500, "run.events/0:1\n"]
)
async def test_what_is_no_token_of_ours_is_refused(token: str) -> None:
    assert (await declined(barrier(At({0: 0}), {0: 0}).wait_for(token))).code == "bad_request"


async def test_a_token_reads_back() -> None:
    made = barrier(At({0: 5, 3: 43}), {0: 0, 3: 0})
    await made.wait_for(made.token(3, 42))
