"""Whoever was told that a limit is set finds that it holds for every run he starts then, however far a runtime is."""

from contextlib import AsyncExitStack
from typing import cast

import pytest

from loomlog.connectors.errors import Transient
from loomlog.schemas.generated.run_events import RunFailed, RunRefused
from loomlog.services.families.budget import reservations as spending_module
from loomlog.services.families.budget.accounts import BudgetAccounts
from loomlog.services.families.budget.reservations import BudgetReservations
from loomlog.services.families.ports.call_budgets import BudgetUnavailable
from tests.services.runtime.budget_world import BudgetWorld, Clerkship
from tests.waiting import until

NOTHING_LEFT = {"hard_tokens": 10, "used_tokens": 10}


async def first_run(world: BudgetWorld) -> None:
    """After a take-over a board catches up once, whatever a start says."""
    world.start("r_first")
    await until(lambda: world.ends()["RunCompleted"] == 1)


def asked_the_log(books: Clerkship, calls: list[None]) -> None:
    """Counts how often the process lets its board catch up."""
    catch_up = books.replicas.caught_up

    async def counted(partition: int, *, timeout_s: float) -> None:
        calls.append(None)
        await catch_up(partition, timeout_s=timeout_s)

    books.replicas.caught_up = counted  # type: ignore[method-assign]


def codes(world: BudgetWorld) -> list[tuple[str, str]]:
    return [(run, event.code) for run, event in world.events() if isinstance(event, RunFailed | RunRefused)]


async def test_a_runtime_that_is_behind_lets_no_run_in_that_was_started_with_knowledge_of_a_limit() -> None:
    world = BudgetWorld()
    world.blind.add("a")
    async with (
        world.owner_of_the_books("books"),
        world.reader_of_the_books("api") as api,
        world.runtime("a") as (runtime, behind),
    ):
        await world.limit(api, **NOTHING_LEFT)
        assert not behind.books.limits
        world.start("r_one", after=(api.accounts.limits_position(),))
        await until(lambda: runtime.host.metrics.commands == 1)  # what can be decided at once is decided
        assert world.events() == []
        world.see()
        await until(lambda: world.ends().total() == 1)
    assert codes(world) == [("r_one", "token_limit_exceeded")]


async def test_a_start_that_says_nothing_of_the_books_waits_for_nothing() -> None:
    world = BudgetWorld()
    async with (
        world.owner_of_the_books("books"),
        world.reader_of_the_books("api") as api,
        world.runtime("a") as (_, behind),
    ):
        await first_run(world)
        world.blind.add("a")
        await world.limit(api, **NOTHING_LEFT)
        world.start("r_one")
        await until(lambda: world.ends()["RunCompleted"] == 2)
        assert not behind.books.limits


async def test_a_position_beyond_the_end_of_the_log_means_its_end() -> None:
    world = BudgetWorld()
    async with world.owner_of_the_books("books"), world.runtime("a"):
        world.start("r_one", after=("loom.entity.events/0:1000000000000",))
        await until(lambda: world.ends()["RunCompleted"] == 1)


@pytest.mark.parametrize("position", ["loom.run.events/0:1", "loom.entity.events/1:0", "yesterday"])
async def test_a_start_that_names_a_position_that_nobody_reads_is_parked(position: str) -> None:
    world = BudgetWorld()
    async with world.owner_of_the_books("books"), world.runtime("a") as (runtime, _):
        world.start("r_one", after=(position,))
        await until(lambda: runtime.host.metrics.refused_records == 1)
        world.start("r_two")
        await until(lambda: world.ends()["RunCompleted"] == 1)
    assert {run for run, _ in world.events()} == {"r_two"}


async def test_a_runtime_that_knows_all_that_the_sender_knows_does_not_ask_the_log() -> None:
    world = BudgetWorld()
    asked: list[None] = []
    async with world.owner_of_the_books("books"), world.runtime("a") as (_, books):
        await first_run(world)
        await world.limit(books, tenant="globex", hard_tokens=10)
        asked_the_log(books, asked)
        world.start("r_one", after=(books.accounts.limits_position(),))
        await until(lambda: world.ends()["RunCompleted"] == 2)
    assert not asked


async def test_a_reader_that_begins_with_a_snapshot_says_that_it_knows_all_of_its_limits() -> None:
    world = BudgetWorld()
    async with world.owner_of_the_books("books") as host, world.reader_of_the_books("api") as api:
        assert api.accounts.limits_position() == ""
        await world.limit(api, hard_tokens=10)
        newest = api.accounts.limits_position()
        assert newest == "loom.entity.events/0:2"
        assert await host.checkpoints.make(host.owners[0])
        async with world.reader_of_the_books("late") as late:
            assert late.accounts.limits_position() == newest


async def test_a_run_whose_owner_died_spends_nothing_before_the_next_one_knows_its_limits() -> None:
    world = BudgetWorld()
    world.model.held = True
    world.blind.add("b")
    asked: list[None] = []
    async with (
        world.owner_of_the_books("books"),
        world.reader_of_the_books("api") as api,
        world.reader_of_the_books("b") as behind,
    ):
        async with AsyncExitStack() as first:
            _, books = await first.enter_async_context(world.runtime("a"))
            await world.limit(api, hard_tokens=1_000)
            world.start("r_one", after=(api.accounts.limits_position(),))
            await world.model.holding.wait()
            books.accounts.publish = lambda command: None  # type: ignore[method-assign]  # a crash says nothing to anybody
        await world.limit(api, hard_tokens=20)
        world.model.let_go.set()
        asked_the_log(behind, asked)
        async with world.runtime("b", books=behind):
            await until(lambda: bool(asked) or world.ends().total() == 1)
            assert world.ends().total() == 0
            assert not behind.books.limits
            world.see()
            await until(lambda: world.ends().total() == 1)
    assert codes(world) == [("r_one", "token_limit_exceeded")]


class Away:
    """Budgets whose log does not answer so many times."""

    def __init__(self, times: int) -> None:
        self.times = times

    async def caught_up(self) -> None:
        self.times -= 1
        if self.times >= 0:
            raise Transient("no leader", kind="unavailable")


def after_a_take_over(times: int) -> BudgetReservations:
    spending = BudgetReservations(cast(BudgetAccounts, Away(times)), lambda: 0)
    spending.on_takeover()
    return spending


async def test_a_log_that_is_away_for_a_moment_costs_no_attempt_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spending_module, "RETRY_S", 0.0)
    await after_a_take_over(3).wait_for_limits()
    monkeypatch.setattr(spending_module, "BUDGET_WAIT_S", 0.0)
    with pytest.raises(BudgetUnavailable, match="no leader"):
        await after_a_take_over(3).wait_for_limits()
