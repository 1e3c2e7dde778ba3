"""What the ledger sees in books written by hand."""

from typing import Any

import pytest

from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import digest, local_codec
from loomlog.schemas.generated.budget_commands import ReserveBudget, SettleBudget
from loomlog.schemas.generated.budget_events import (
    BudgetRefused,
    BudgetReleased,
    BudgetReserved,
    BudgetSettled,
    LimitSet,
)
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.generated.values import CommandEnvelope, Envelope
from tests.simulation.ledger import USED, WORST, Ledger
from tests.simulation.log import ENTITIES, SimulatedLog

LIMIT: dict[str, Any] = {"tenant": "t", "scope": "tenant", "scope_id": "t"}


class Bench:
    """The books of a tenant that may spend four micros, under the eyes of a ledger."""

    def __init__(self, **limit: Any) -> None:
        self.found: list[str] = []
        self.log = SimulatedLog(lambda: 0)
        self.ledger = Ledger(ENTITIES.commands, lambda kind, text: self.found.append(kind))
        self.log.landed = self.ledger.landed
        self.seq = 0
        self.tail = bytes(16)
        envelope = Envelope(term=-1, seq=0, aggregate="", tenant="", at_ms=0, prev=bytes(16))
        self._put(ENTITIES.events, local_codec().encode_event(envelope, Claim(owner="a", reason="assigned")))
        self.event(LimitSet(**LIMIT, **(limit or {"hard_micros": 4})))

    def event(self, event: Any, cause: tuple[str, int] = ("", -1), term: int = 0) -> None:
        self.seq += 1
        command_id, offset = cause
        envelope = Envelope(
            term=term,
            seq=self.seq,
            aggregate="budget:/installation",
            tenant="",
            at_ms=0,
            cause_id=command_id,
            cause_offset=offset,
            prev=self.tail,
        )
        value = local_codec().encode_event(envelope, event)
        self.tail = digest(value)
        self._put(ENTITIES.events, value)

    def order(self, command: Any) -> int:
        return self._put(ENTITIES.commands, local_codec().encode(command))

    def ask(self, call: str, *, in_memory: bool = False) -> tuple[str, int]:
        """Orders a reservation; its command id and offset."""
        envelope = CommandEnvelope(command_id=f"ask-{call}")
        if in_memory:
            self.ledger.ordered(envelope.command_id, "ReserveBudget", call)
            return envelope.command_id, -1
        command = ReserveBudget(
            envelope=envelope, id=call, tenant="t", user_id="", tokens=WORST[0], micros=WORST[1], deadline_ms=9
        )
        return envelope.command_id, self.order(command)

    def reserve(self, call: str, *, in_memory: bool = False) -> None:
        cause = self.ask(call, in_memory=in_memory)
        event = BudgetReserved(
            id=call, tenant="t", user_id="", accounts=("a",), tokens=WORST[0], micros=WORST[1], expires_at_ms=9
        )
        self.event(event, cause)

    def settle(self, call: str, kind: str, amounts: tuple[int, int]) -> None:
        self.event(
            BudgetSettled(id=call, kind=kind, accounts=("a",), tokens=amounts[0], micros=amounts[1], month="2023-11")
        )

    def _put(self, topic: str, value: bytes) -> int:
        return self.log.append(topic, 0, [ProducerRecord(key=b"/installation", value=value)], "a")


@pytest.fixture
def bench() -> Bench:
    return Bench()


def refused(call: str) -> BudgetRefused:
    return BudgetRefused(id=call, tenant="t", code="over_limit", scope="tenant", scope_id="t", unit="micros")


def test_calls_that_are_paid_and_counted_are_left_in_peace(bench: Bench) -> None:
    bench.reserve("one")
    bench.ledger.began("a", "one")
    bench.settle("one", "actual", USED)
    bench.ledger.answer("one")
    bench.reserve("two")
    bench.settle("two", "lost", WORST)
    bench.settle("two", "corrected", USED)
    bench.event(refused("three"), bench.ask("three"))
    assert bench.found == []
    assert bench.ledger.refused == {"three"}


def test_money_beyond_the_limit_is_found(bench: Bench) -> None:
    bench.reserve("one")
    bench.reserve("two")
    assert bench.found == ["overdrawn"]


def test_tokens_may_be_passed_by_the_last_call_unless_the_limit_is_strict() -> None:
    lenient = Bench(hard_tokens=50)
    lenient.reserve("one")
    lenient.reserve("two")
    strict = Bench(hard_tokens=50, strict=True)
    strict.reserve("one")
    strict.reserve("two")
    assert (lenient.found, strict.found) == ([], ["overdrawn"])


def test_a_refusal_although_the_call_would_fit_is_found(bench: Bench) -> None:
    bench.event(refused("one"), bench.ask("one"))
    assert bench.found == ["invented"]


def test_a_reservation_that_nobody_ordered_is_found(bench: Bench) -> None:
    bench.reserve("one")
    bench.found.clear()
    bench.settle("one", "actual", USED)
    event = BudgetReserved(id="two", tenant="t", user_id="", accounts=(), tokens=0, micros=0, expires_at_ms=9)
    bench.event(event, cause=("ask-one", 0))
    assert bench.found == ["out of nothing"]


@pytest.mark.parametrize("kind", ["actual", "lost", "unreserved"])
def test_a_call_that_is_settled_twice_is_found(bench: Bench, kind: str) -> None:
    bench.reserve("one")
    bench.settle("one", "actual", USED)
    bench.settle("one", kind, USED)
    assert "doubled" in bench.found


def test_a_call_without_a_reservation_is_found(bench: Bench) -> None:
    bench.ledger.began("a", "one")
    assert bench.found == ["not paid"]


def test_an_answer_that_counts_as_nothing_is_found(bench: Bench) -> None:
    bench.reserve("one")
    bench.ledger.answer("one")
    bench.event(BudgetReleased(id="one"))
    assert bench.found == ["not counted"]


def test_an_end_that_no_limit_asked_for_is_found(bench: Bench) -> None:
    bench.ledger.ended("r_one", "token_limit_exceeded", "r_one:1.1")
    bench.ledger.ended("r_two", "token_limit_exceeded", "")
    assert bench.found == ["invented", "invented"]


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_closing_that_is_not_done_is_an_open_end(bench: Bench, in_memory: bool) -> None:
    bench.reserve("one", in_memory=in_memory)
    assert bench.ledger.open_ends() == ""
    bench.order(
        SettleBudget(envelope=CommandEnvelope(command_id="s"), id="one", tenant="t", user_id="", tokens=15, micros=1)
    )
    assert "one" in bench.ledger.open_ends()
    bench.settle("one", "actual", USED)
    assert bench.ledger.open_ends() == ""


def test_events_of_a_former_owner_change_nothing_and_a_gap_is_found(bench: Bench) -> None:
    bench.event(BudgetReleased(id="one"), term=-5)
    assert bench.found == ["illegal writer"]
    bench.found.clear()
    bench.seq += 1
    bench.event(LimitSet(**LIMIT, hard_micros=9))
    assert set(bench.found) == {"gap", "chain"}
