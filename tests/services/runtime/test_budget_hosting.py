"""Limits on spending, through runtimes that share the books: nobody overspends, whoever dies."""

import logging
from contextlib import AsyncExitStack

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import ProducerRecord, Reply
from loomlog.schemas.codec import local_codec, read_envelope
from loomlog.schemas.generated.budget_commands import RemoveLimit, ReserveBudget
from loomlog.schemas.generated.budget_events import BudgetMonthBegan, BudgetReserved
from loomlog.schemas.generated.entity_commands import RepairAggregate
from loomlog.schemas.generated.entity_events import AggregateRestated, CommandRefused
from loomlog.schemas.generated.run_events import LimitReached, ModelReplied, RunFailed, RunRefused
from loomlog.schemas.generated.values import Usage
from loomlog.schemas.records import replace
from loomlog.services.families.budget import INSTALLATION, reservations
from loomlog.services.runtime.models.model_calls import RuntimeProvider
from tests.services.runtime.budget_world import ACME, BUDGETS, WAIT_S, BudgetWorld
from tests.waiting import until

SPENDERS = 100
DEAR = Usage(input_tokens=60, output_tokens=40)


def one_turn(world: BudgetWorld) -> None:
    world.model.turns = (Reply(text="done", stop_reason="end_turn", usage=DEAR, model="m-1"),)


async def test_a_hundred_spenders_never_exceed_a_hard_cap_while_two_owners_fight_for_the_books() -> None:
    world = BudgetWorld(partitions=2)
    one_turn(world)
    cap = 4_000
    async with (
        world.runtime("a", 0) as (_, books),
        world.runtime("b", 1),
        world.owner_of_the_books("first"),
    ):
        await world.limit(books, hard_micros=cap)
        async with world.owner_of_the_books("second"):
            for number in range(SPENDERS):
                world.start(f"r_{number}")
            await until(lambda: world.ends().total() == SPENDERS)
    history = world.history()
    assert all(0 <= b.accounts[ACME].used_micros + b.accounts[ACME].reserved_micros <= cap for _, b in history[2:])
    assert world.spent() <= cap
    assert world.account().used_micros == world.spent(), world.kinds()
    assert world.ends()["RunCompleted"] == world.spent() // 100
    assert world.ends()["RunCompleted"] >= 20  # what is left at the end is less than a worst case
    assert {event.code for _, event in world.events() if isinstance(event, RunFailed | RunRefused)} == {
        "token_limit_exceeded"
    }


async def test_a_call_whose_owner_dies_counts_as_reserved_and_its_next_attempt_as_itself() -> None:
    world = BudgetWorld()
    world.model.held = True
    async with world.owner_of_the_books("books"):
        async with AsyncExitStack() as first:
            _, books = await first.enter_async_context(world.runtime("a"))
            await world.limit(books, hard_micros=100_000)
            world.start("r_one")
            await world.model.holding.wait()
            await until(lambda: world.account().reserved_micros > 0)
            worst = world.account().reserved_micros
            before = world.account().used_micros
            # A crash says nothing to anybody.
            books.accounts.publish = lambda command: None  # type: ignore[method-assign]
        world.model.let_go.set()
        async with world.runtime("b"):
            await until(lambda: world.ends().total() == 1)
        answered = [event.cost_micros for _, event in world.events() if isinstance(event, ModelReplied)]
    assert world.ends() == {"RunCompleted": 1}
    assert "lost" in world.kinds()
    assert (world.account().used_micros, world.account().reserved_micros) == (before + worst + answered[-1], 0)


async def test_nothing_is_left_so_the_next_run_is_refused() -> None:
    world = BudgetWorld()
    async with world.owner_of_the_books("books"), world.runtime("a") as (_, books):
        await world.limit(books, hard_tokens=10)
        world.start("r_one")
        await until(lambda: world.ends().total() == 1)
        world.start("r_two")
        await until(lambda: world.ends().total() == 2)
    # The first call begins with everything left and goes past the limit, the second may not be made.
    first = [event for run, event in world.events() if run == "r_one"]
    assert isinstance(first[-1], RunFailed)
    assert [event.notice.severity for event in first if isinstance(event, LimitReached)] == ["hard"]
    [refusal] = [event for run, event in world.events() if run == "r_two"]
    assert isinstance(refusal, RunRefused)
    assert refusal.limit is not None
    assert (refusal.code, refusal.limit.scope, refusal.limit.used, refusal.limit.limit) == (
        "token_limit_exceeded",
        "tenant",
        20,
        10,
    )


async def test_an_answer_that_nobody_counted_counts_as_reserved_and_not_as_free() -> None:
    world = BudgetWorld()
    world.model.turns = (Reply(text="done", stop_reason="end_turn", usage=Usage(), model="m-1"),)
    async with world.owner_of_the_books("books"), world.runtime("a") as (_, books):
        await world.limit(books, hard_micros=100_000)
        world.start("r_one")
        await until(lambda: world.ends().total() == 1)
        reserved = next(event for event, _ in world.history() if isinstance(event, BudgetReserved))
    assert world.ends() == {"RunCompleted": 1}
    assert (world.account().used_tokens, world.account().used_micros) == (reserved.tokens, reserved.micros)
    assert reserved.tokens > 100
    assert "lost" in world.kinds()


async def test_a_run_whose_call_is_too_large_for_what_is_left_ends_and_says_so() -> None:
    world = BudgetWorld()
    async with world.owner_of_the_books("books"), world.runtime("a") as (_, books):
        await world.limit(books, hard_micros=1)
        world.start("r_one")
        await until(lambda: world.ends().total() == 1)
    [end] = [event for _, event in world.events() if isinstance(event, RunFailed)]
    assert end.code == "token_limit_exceeded"
    assert end.error.startswith("token_limit_exceeded: the call may use ")
    assert end.error.endswith(" 1 of 1 are left; a smaller max_tokens makes it less")


async def test_a_soft_limit_is_told_once_and_the_run_goes_on() -> None:
    world = BudgetWorld()
    async with world.owner_of_the_books("books"), world.runtime("a") as (_, books):
        await world.limit(books, soft_tokens=10)
        world.start("r_one")
        await until(lambda: world.ends().total() == 1)
    assert world.ends() == {"RunCompleted": 1}
    [notice] = [event.notice for _, event in world.events() if isinstance(event, LimitReached)]
    assert (notice.severity, notice.used, notice.limit) == ("soft", 20, 10)


async def test_a_call_that_the_provider_refuses_costs_nothing() -> None:
    world = BudgetWorld()
    world.model.failures = 1
    async with world.owner_of_the_books("books"), world.runtime("a") as (_, books):
        await world.limit(books, hard_micros=10_000)
        world.start("r_one")
        await until(lambda: world.ends().total() == 1)
        await until(lambda: world.kinds()[-1] == "BudgetReleased")
    assert world.account().used_micros == world.spent() == 0


async def test_without_any_limit_nobody_asks_the_books() -> None:
    world = BudgetWorld()
    async with world.owner_of_the_books("books"), world.runtime("a"):
        world.start("r_one")
        await until(lambda: world.ends().total() == 1)
    assert world.history() == []


async def test_a_script_spends_nothing_so_no_limit_holds_it_up_and_it_keeps_nothing_from_others() -> None:
    world = BudgetWorld()
    world.model.turns = (Reply(text="done", stop_reason="end_turn", usage=Usage(), model="m-1"),)
    world.parts = {"providers": {"mock": RuntimeProvider(model=world.model, is_external=False)}}
    async with world.owner_of_the_books("books"), world.runtime("a") as (_, books):
        await world.limit(books, hard_tokens=1, strict=True)
        world.start("r_one")
        await until(lambda: world.ends().total() == 1)
    assert world.ends() == {"RunCompleted": 1}
    assert world.kinds() == ["BudgetMonthBegan", "LimitSet"]


async def test_the_first_limit_counts_a_call_that_is_under_way() -> None:
    world = BudgetWorld()
    world.model.held = True
    async with world.owner_of_the_books("books"), world.runtime("a") as (_, books):
        world.start("r_one")
        await world.model.holding.wait()
        await world.limit(books, soft_tokens=1_000)
        world.model.let_go.set()
        await until(lambda: world.ends().total() == 1)
    assert world.kinds()[-1] == "unreserved"
    assert world.account().used_tokens == 27


async def test_a_new_month_begins_with_everything() -> None:
    world = BudgetWorld()
    one_turn(world)
    async with world.owner_of_the_books("books"), world.runtime("a") as (_, books):
        await world.limit(books, hard_tokens=100)
        world.start("r_one")
        await until(lambda: world.ends().total() == 1)
        world.start("r_two")
        await until(lambda: world.ends()["RunRefused"] == 1)
        world.later_ms = 32 * 86_400_000
        world.start("r_three")
        await until(lambda: world.ends()["RunCompleted"] == 2)
    assert world.account().used_tokens == 100


async def test_the_books_come_back_from_a_checkpoint() -> None:
    world = BudgetWorld()
    one_turn(world)
    async with world.runtime("a") as (_, books):
        async with world.owner_of_the_books("first") as host:
            await world.limit(books, soft_tokens=100_000)
            world.start("r_one")
            await until(lambda: world.ends().total() == 1)
            assert await host.checkpoints.make(host.owners[0])
        async with world.owner_of_the_books("second") as host, world.reader_of_the_books("late") as late:
            assert host.owners[0].partition is not None
            assert host.owners[0].partition.aggregates[INSTALLATION].state.state == books.books == late.books
            world.start("r_two")
            await until(lambda: world.ends().total() == 2)
    assert world.account().used_tokens == 200


async def test_a_command_that_makes_no_sense_is_refused_and_the_books_go_on() -> None:
    world = BudgetWorld()
    one_turn(world)
    async with world.owner_of_the_books("books"), world.runtime("a") as (_, books):
        envelope = books.accounts.envelope()
        bad = ReserveBudget(envelope=envelope, id="r:1.1", tenant="acme", tokens=-5, micros=0, deadline_ms=1 << 50)
        refused = await books.accounts.reserve(bad, wait_s=WAIT_S)
        assert refused is not None
        assert (refused.code, refused.may_fit) == ("bad_request", False)
        await world.limit(books, hard_micros=10_000)
    assert world.kinds() == ["BudgetMonthBegan", "LimitSet"]


@pytest.mark.parametrize("value", [b"garbage", b"", None, b"\0\xff\xff\xff\xffunknown"])
async def test_bytes_that_are_no_event_are_left_out_of_the_books(value: bytes | None) -> None:
    world = BudgetWorld()
    one_turn(world)
    async with world.owner_of_the_books("first"), world.runtime("a") as (_, books):
        await world.limit(books, hard_micros=10_000)
        world.log.put(BUDGETS.events, 0, [ProducerRecord(key=b"k", value=value)])
        world.start("r_one")
        await until(lambda: world.ends()["RunCompleted"] == 1)
        async with world.owner_of_the_books("second"), world.reader_of_the_books("late") as late:
            await world.limit(books, hard_micros=20_000)
            await late.accounts.caught_up()
            assert late.books == books.books


def forge(world: BudgetWorld) -> int:
    """An event of the books that cannot follow; its offset."""
    last = world.log.records[BUDGETS.events, 0][-1]
    envelope, _ = read_envelope(last.value or b"")
    forged = local_codec().encode_event(replace(envelope, seq=envelope.seq + 7), BudgetMonthBegan(month="2026-01"))
    return world.log.put(BUDGETS.events, 0, [ProducerRecord(key=b"/installation", value=forged)])


async def test_an_event_that_cannot_follow_ends_the_books_and_no_process_until_they_are_stated_anew() -> None:
    world = BudgetWorld()
    one_turn(world)
    async with world.owner_of_the_books("first"), world.runtime("a") as (_, books):
        await world.limit(books, hard_micros=10_000, used_micros=40)
        offset = forge(world)
        with pytest.raises(Transient, match=f"quarantined: offset {offset}"):
            await books.accounts.caught_up()
        async with world.reader_of_the_books("late") as late:
            with pytest.raises(Transient, match=f"quarantined: offset {offset}"):
                await late.accounts.caught_up()
            assert late.books == books.books
    async with world.owner_of_the_books("second"), world.runtime("b") as (_, books):
        world.start("r_waits")  # under a limit of which nobody knows what is left
        envelope = books.accounts.envelope("root")
        command = RemoveLimit(envelope=envelope, tenant="acme", scope="tenant", scope_id="acme")
        refusal = (await books.accounts.request(command, wait_s=WAIT_S)).events[-1]
        assert isinstance(refusal, CommandRefused)
        assert refusal.code == "quarantined"
        assert world.ends() == {}
        repair = RepairAggregate(envelope=books.accounts.envelope("root"), aggregate=INSTALLATION, reason="forged")
        answer = await books.parts.client.ask(repair, wait_s=WAIT_S)
        assert isinstance(answer.events[-1], AggregateRestated)
        await until(lambda: world.ends()["RunCompleted"] == 1)
        await until(lambda: books.books.accounts[ACME].used_micros == 140)  # what was counted before still counts
        async with world.reader_of_the_books("late") as late:
            await late.accounts.caught_up()
            assert late.books == books.books


async def test_a_runtime_that_owns_the_books_reserves_without_a_command_in_the_log_and_batches() -> None:
    world = BudgetWorld()
    one_turn(world)
    async with world.runtime("a", owns_books=True) as (_, books):
        await world.limit(books, hard_micros=1_000_000)
        before = len(world.log.records[BUDGETS.events, 0])
        requests = world.appends(BUDGETS.events)
        for number in range(50):
            world.start(f"r_{number}")
        await until(lambda: world.ends()["RunCompleted"] == 50)
        appended = len(world.log.records[BUDGETS.events, 0]) - before
    assert world.log.records[BUDGETS.commands, 0] == []
    assert appended == 100  # each call is reserved and settled
    assert requests() <= 25
    assert (world.account().used_micros, world.account().reserved_micros) == (5_000, 0)


async def test_a_call_waits_for_books_whose_owner_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservations, "RESERVE_WAIT_S", 0.05)
    world = BudgetWorld()
    one_turn(world)
    async with world.runtime("a") as (_, books):
        async with world.owner_of_the_books("first"):
            await world.limit(books, hard_micros=10_000)
        world.start("r_one")
        asked = len(world.log.records[BUDGETS.commands, 0])
        await until(lambda: len(world.log.records[BUDGETS.commands, 0]) > asked + 1)  # and again
        assert world.ends() == {}
        async with world.owner_of_the_books("second"):
            await until(lambda: world.ends().total() == 1)
    assert world.ends() == {"RunCompleted": 1}
    assert (world.account().used_micros, world.account().reserved_micros) == (100, 0)


async def test_a_call_has_failed_when_nobody_ever_answers_for_the_books(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservations, "RESERVE_WAIT_S", 0.02)
    monkeypatch.setattr(reservations, "BUDGET_WAIT_S", 0.1)
    world = BudgetWorld()
    async with world.runtime("a") as (_, books):
        async with world.owner_of_the_books("first"):
            await world.limit(books, hard_micros=10_000)
        world.start("r_one")
        await until(lambda: world.ends().total() == 1)
    assert world.ends() == {"RunFailed": 1}
    assert world.model.holding.is_set() is False
    assert world.spent() == 0


async def test_both_families_of_a_process_say_whose_partition_they_speak_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "loomlog.services.stream")
    world = BudgetWorld()
    async with world.owner_of_the_books("books"), world.runtime("a"):
        pass
    taken = {record.getMessage().split(" taken ")[0] for record in caplog.records if " taken " in record.getMessage()}
    assert taken == {"run partition 0", "entity partition 0"}
