import pytest

from loomlog.connectors.errors import Transient
from loomlog.projections.engine.positions import WaitResult
from loomlog.schemas.codec import local_codec
from loomlog.schemas.position import Position
from loomlog.services.application import limits
from loomlog.services.application.queries.read_your_writes import PositionBarrier
from loomlog.services.application.resources import TOPICS
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


class Ends:
    """Ends of the log; counts how often they are asked for."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, topic: str, partition: int) -> int:
        self.asked.append((topic, partition))
        return self.end


class Table:
    """A topic that this process folds itself; if `catching_up`, what is missing comes once it is waited for."""

    def __init__(self, next_offset: int, *, catching_up: bool = False) -> None:
        self.next_offset = next_offset
        self.catching_up = catching_up
        self.timeouts: list[float] = []

    async def wait(self, partition: int, offset: int, *, timeout_s: float) -> int:
        self.timeouts.append(timeout_s)
        if timeout_s > 0 and self.catching_up:
            self.next_offset = offset + 1
        return max(0, offset + 1 - self.next_offset)


def barrier(positions: At, seen: dict[int, int], end: Ends | None = None) -> PositionBarrier:
    hub = EventHub(local_codec(), {number: HubStart(next_offset=offset) for number, offset in seen.items()})
    return PositionBarrier(hub, positions, topic=TOPICS.events, end_offset=end or Ends(1_000_000))


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


async def test_a_position_that_is_read_neither_waits_nor_asks_the_broker() -> None:
    positions, ends = At({0: 0, 1: 42}), Ends(0)
    await barrier(positions, {0: 0, 1: 0}, ends).wait_for(["loom.run.events/1:41"])
    assert positions.asked == [(Position(topic=TOPICS.events, partition=1, offset=41), 0)]
    assert ends.asked == []


async def test_a_position_that_is_not_reached_is_refused_with_the_lag() -> None:
    positions = At({0: 40})
    actual = await declined(barrier(positions, {0: 0}).wait_for(["loom.run.events/0:41"]))
    assert (actual.code, actual.details["lag"], actual.retry_after_s) == ("not_yet", 2, 1)
    assert [timeout_s == 0 for _, timeout_s in positions.asked] == [True, False]
    assert positions.asked[1][1] == pytest.approx(limits.POSITION_WAIT_S, abs=0.5)


@pytest.mark.parametrize(("end", "code"), [(42, "not_yet"), (41, "bad_request"), (0, "bad_request")])
async def test_a_position_beyond_the_end_of_the_log_is_refused_at_once(end: int, code: str) -> None:
    positions, ends = At({0: 0, 1: 7}), Ends(end)
    actual = await declined(barrier(positions, {0: 0, 1: 0}, ends).wait_for(["loom.run.events/1:41"]))
    assert actual.code == code
    assert ends.asked == [(TOPICS.events, 1)]
    if code == "bad_request":
        assert "beyond the end of loom.run.events/1" in actual.message
        assert len(positions.asked) == 1, "it does not wait"


async def test_a_broker_that_does_not_answer_is_said_to_be_unavailable() -> None:
    async def end(topic: str, partition: int) -> int:
        raise Transient("no answer", kind="timeout")

    made = barrier(At({0: 0}), {0: 0})
    made._end_offset = end
    assert (await declined(made.wait_for(["loom.run.events/0:1"]))).code == "log_unavailable"


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("", "expected <topic>/<partition>:<offset>"),
        ("loom.run.events:0:1", "expected <topic>/<partition>:<offset>"),
        ("x" * 500, "expected <topic>/<partition>:<offset>"),
        ("run.events/0:1", "not read here: expected one of loom.run.events, other.limits"),
        ("loom.run.commands/0:1", "not read here: expected one of loom.run.events, other.limits"),
        ("loom.run.events/9:1", "no partition 9 of loom.run.events: expected 0 to 0"),
        ("other.limits/3:1", "no partition 3 of other.limits: expected 0 to 2"),
    ],
)
async def test_what_is_no_token_of_ours_is_refused_before_any_wait(token: str, expected: str) -> None:
    positions = At({0: 0})
    made = barrier(positions, {0: 0})
    made.register("other.limits", Table(0), partitions=3)
    actual = await declined(made.wait_for(["loom.run.events/0:0", token]))
    assert (actual.code, expected in actual.message) == ("bad_request", True), actual.message
    assert len(actual.message) < 250
    assert positions.asked == []


async def test_a_topic_is_waited_for_with_its_own_reader() -> None:
    positions, table = At({0: 0}), Table(3, catching_up=True)
    made = barrier(positions, {0: 0})
    made.register("other.limits", table, partitions=3)
    await made.wait_for(["other.limits/2:8"])
    assert (table.next_offset, len(table.timeouts), positions.asked) == (9, 2, [])


async def test_all_tokens_of_a_request_are_waited_for_within_one_bound() -> None:
    tables = [Table(0, catching_up=True), Table(0)]
    made = barrier(At({0: 5}), {0: 0})
    for number, table in enumerate(tables):
        made.register(f"t{number}", table)
    actual = await declined(made.wait_for(["loom.run.events/0:4", "t0/0:0", "t1/0:1"]))
    assert (actual.code, actual.details["lag"]) == ("not_yet", 2)
    assert "t1/0:1" in actual.message
    assert tables[1].timeouts[1] <= tables[0].timeouts[1] <= limits.POSITION_WAIT_S


async def test_too_many_tokens_are_refused() -> None:
    made = barrier(At({0: 1}), {0: 0})
    await made.wait_for(["loom.run.events/0:0"] * limits.POSITIONS_MAX)
    assert (await declined(made.wait_for(["loom.run.events/0:0"] * (limits.POSITIONS_MAX + 1)))).code == "bad_request"


async def test_a_token_reads_back() -> None:
    made = barrier(At({0: 5, 1: 5, 2: 5, 3: 43}), {0: 0, 1: 0, 2: 0, 3: 0})
    await made.wait_for([made.token(3, 42)])
