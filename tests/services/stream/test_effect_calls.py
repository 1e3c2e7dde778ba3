import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from loomlog.services.core.run.commands import ModelFailed, ToolCompleted
from loomlog.services.core.run.react import CallModel, CallTool, Effect
from loomlog.services.stream import effect_calls as calls_module
from loomlog.services.stream.effect_calls import EffectRunner
from tests.services.core.run.given import NOW, begun
from tests.services.stream.given import FAMILY

STATE = begun().state


def model(run: str = "r_x", attempt: int = 1) -> CallModel:
    return CallModel(run_id=run, turn=1, attempt=attempt, provider="p", model="m", not_before_ms=0)


TOOL = CallTool(run_id="r_x", turn=2, index=3, attempt=4, call_id="c", name="Read", input="{}", effect_class="read")


class Outside:
    """Calls that return, wait or fail as a test says."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.ended: list[Any] = []
        self.results: list[tuple[int, str, Any]] = []
        self.returns: asyncio.Event = asyncio.Event()
        self.fails: BaseException | None = None
        self.stubborn = False
        """A stopped call swallows its cancellation and returns all the same."""
        self.elsewhere: set[int] = set()
        """Partitions that somebody else owns."""
        self.handed_over: list[tuple[str, str, Any]] = []
        self.hand_over_s = 0.0

    async def run(self, effect: Any, state: Any, tenant: str) -> Any:
        self.begun.append((effect.key, state, tenant))
        try:
            await self.returns.wait()
            if self.fails is not None:
                raise self.fails
        except asyncio.CancelledError:
            if self.stubborn:
                return f"late result of {effect.key}"
            raise
        finally:
            self.ended.append(effect.key)
        return f"result of {effect.key}"

    def done(self, partition: int, aggregate: str, tenant: str, order: Any) -> bool:
        self.results.append((partition, aggregate, order))
        return partition not in self.elsewhere

    async def hand_over(self, aggregate: str, tenant: str, order: Any) -> None:
        self.handed_over.append((aggregate, tenant, order))
        await asyncio.sleep(self.hand_over_s)


@pytest_asyncio.fixture(loop_scope="session")
async def outside() -> AsyncIterator[Outside]:
    yield Outside()


@pytest_asyncio.fixture(loop_scope="session")
async def calls(outside: Outside) -> AsyncIterator[EffectRunner]:
    """Calls in a group that lives as long as the test."""
    made = EffectRunner(FAMILY, run=outside.run, done=outside.done, hand_over=outside.hand_over, clock_ms=lambda: NOW)
    over = asyncio.Event()

    async def hold() -> None:
        async with asyncio.TaskGroup() as group:
            made.group = group
            await over.wait()
            made.stop_all()

    task = asyncio.get_running_loop().create_task(hold())
    await asyncio.sleep(0)
    yield made
    over.set()
    await task


def begin(calls: EffectRunner, effect: Effect, partition: int = 0) -> None:
    calls.start(partition, effect.run_id, "t", effect, STATE)


async def soon(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_call_is_made_with_its_state_and_tenant_and_its_result_handed_over(
    calls: EffectRunner, outside: Outside
) -> None:
    begin(calls, model(), partition=3)
    await soon()
    assert outside.begun == [(model().key, STATE, "t")]
    assert calls.running("r_x") == {model().key}
    assert calls.running_count == 1
    outside.returns.set()
    await soon()
    assert outside.results == [(3, "r_x", f"result of {model().key}")]
    assert calls.running("r_x") == frozenset()
    assert calls.running_count == 0


async def test_a_call_is_over_before_its_result_is_handed_over(calls: EffectRunner, outside: Outside) -> None:
    seen: list[int] = []
    calls._done = lambda *_: seen.append(calls.running_count)
    begin(calls, model())
    outside.returns.set()
    await soon()
    assert seen == [0]


async def test_the_same_call_is_not_made_twice_while_it_is_under_way(calls: EffectRunner, outside: Outside) -> None:
    begin(calls, model())
    begin(calls, model())
    begin(calls, model(attempt=2))
    await soon()
    assert [key for key, _, _ in outside.begun] == [model().key, model(attempt=2).key]


async def test_a_crash_becomes_an_order_so_that_the_run_does_not_wait_for_ever(
    calls: EffectRunner, outside: Outside
) -> None:
    outside.fails = ZeroDivisionError("a bug")
    begin(calls, model())
    begin(calls, TOOL)
    outside.returns.set()
    await soon()
    orders = {type(order): order for _, _, order in outside.results}
    assert set(orders) == {ModelFailed, ToolCompleted}
    assert (orders[ModelFailed].transient, orders[ModelFailed].at_ms) == (False, NOW)
    assert "ZeroDivisionError: a bug" in orders[ModelFailed].message
    assert orders[ToolCompleted].key == TOOL.key
    assert (orders[ToolCompleted].is_error, orders[ToolCompleted].outcome) == (True, "error")


async def test_a_call_cancelled_from_inside_becomes_an_order_too(calls: EffectRunner, outside: Outside) -> None:
    """Nobody stopped it: a library did, and without an order the run would wait for ever."""
    outside.fails = asyncio.CancelledError()
    begin(calls, TOOL)
    outside.returns.set()
    await soon()
    assert [type(order) for _, _, order in outside.results] == [ToolCompleted]


async def test_stopped_calls_give_no_result(calls: EffectRunner, outside: Outside) -> None:
    begin(calls, model())
    begin(calls, TOOL)
    begin(calls, model("r_y"))
    await soon()
    calls.stop("r_x")
    calls.stop("nobody")
    await soon()
    assert sorted(outside.ended) == sorted([model().key, TOOL.key])
    outside.returns.set()
    await soon()
    assert [aggregate for _, aggregate, _ in outside.results] == ["r_y"]


async def test_a_stopped_call_is_not_running_any_more_even_while_it_takes_its_time(
    calls: EffectRunner, outside: Outside
) -> None:
    """Else a new owner of the run in this process would wait for a result that never comes."""
    begin(calls, model())
    await soon()
    calls.stop("r_x")
    assert calls.running("r_x") == frozenset()
    assert calls.running_count == 0


async def test_a_call_that_was_stopped_before_it_began_is_forgotten_too(calls: EffectRunner, outside: Outside) -> None:
    begin(calls, model())
    calls.stop("r_x")
    await soon()
    assert outside.begun == []
    assert (calls.running("r_x"), calls.running_count) == (frozenset(), 0)


async def test_a_stopped_call_that_returns_all_the_same_is_not_heard(calls: EffectRunner, outside: Outside) -> None:
    outside.stubborn = True
    begin(calls, model())
    await soon()
    calls.stop("r_x")
    begin(calls, model())  # the same call, by the next owner
    await soon()
    assert outside.results == []
    assert calls.running("r_x") == {model().key}
    outside.returns.set()
    await soon()
    assert [order for _, _, order in outside.results] == [f"result of {model().key}"]


async def test_all_calls_of_a_partition_are_stopped_together(calls: EffectRunner, outside: Outside) -> None:
    for number, name in enumerate(["r_a", "r_b", "r_c"]):
        begin(calls, model(name), partition=number % 2)
    await soon()
    calls.stop_partition(0)
    assert [name for name in ("r_a", "r_b", "r_c") if calls.running(name)] == ["r_b"]


async def test_a_result_without_an_owner_here_is_handed_over_and_counts_as_under_way_until_it_is(
    calls: EffectRunner, outside: Outside
) -> None:
    outside.elsewhere, outside.hand_over_s = {3}, 60.0
    begin(calls, model(), partition=3)
    outside.returns.set()
    await soon()
    assert outside.handed_over == [(model().run_id, "t", f"result of {model().key}")]
    assert calls.running(model().run_id) == frozenset()
    assert calls.running_count == 1


async def test_a_hand_over_that_takes_too_long_is_given_up(
    calls: EffectRunner, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls_module, "FORWARD_TIMEOUT_S", 0.0)
    outside.elsewhere, outside.hand_over_s = {0}, 60.0
    begin(calls, model())
    outside.returns.set()
    await soon()
    await asyncio.sleep(0)
    assert calls.running_count == 0


@pytest.mark.parametrize("came_back", [False, True])
async def test_calls_of_a_partition_that_was_left_end_after_a_while_unless_it_comes_back(
    calls: EffectRunner, outside: Outside, monkeypatch: pytest.MonkeyPatch, came_back: bool
) -> None:
    monkeypatch.setattr(calls_module, "RELEASED_GRACE_S", 0.0)
    begin(calls, model())
    await soon()
    calls.partition_released(0)
    if came_back:
        calls.partition_reacquired(0)
    await soon()
    assert calls.running_count == came_back


async def test_whoever_waits_for_a_call_hears_once_that_it_has_ended_however_it_ended(
    calls: EffectRunner, outside: Outside
) -> None:
    ended: list[str] = []

    def begin_awaited(name: str, effect: Effect) -> bool:
        return calls.start(0, effect.run_id, "t", effect, STATE, lambda: ended.append(name))

    assert begin_awaited("stopped", model("r_stopped"))
    await soon()
    calls.stop("r_stopped")
    await soon()
    assert ended == ["stopped"]
    outside.fails = ZeroDivisionError("a bug")
    assert begin_awaited("crashed", model("r_y"))
    assert not begin_awaited("the same again", model("r_y"))
    await soon()
    outside.returns.set()
    await soon()
    outside.fails = None
    assert begin_awaited("returned", TOOL)
    await soon()
    assert ended == ["stopped", "crashed", "returned"]
    assert len(outside.results) == 2


async def test_an_error_of_whoever_takes_the_result_comes_out(outside: Outside) -> None:
    def broken(partition: int, aggregate: str, tenant: str, order: Any) -> bool:
        raise LookupError("no such owner")

    made = EffectRunner(FAMILY, run=outside.run, done=broken, clock_ms=lambda: NOW)
    outside.returns.set()

    async def hold() -> None:
        async with asyncio.TaskGroup() as group:
            made.group = group
            begin(made, model())

    with pytest.raises(ExceptionGroup) as caught:
        await hold()
    assert caught.group_contains(LookupError)


def test_calls_begin_inside_the_hosts_task_group_only(outside: Outside) -> None:
    made = EffectRunner(FAMILY, run=outside.run, done=outside.done, clock_ms=lambda: NOW)
    with pytest.raises(AssertionError, match="task group"):
        begin(made, model())
