"""What the books allow, count and refuse."""

from typing import Any

import pytest

from loomlog.schemas.generated.budget_events import BudgetRefused, BudgetSettled
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.records import replace
from loomlog.services.core.calendar_month import month_of
from loomlog.services.core.canonical import StateCodec
from loomlog.services.core.families import STATE_BYTES_MAX, TIMER_FIRED, At
from loomlog.services.core.spending_limits import AMOUNT_MAX, account_error
from loomlog.services.families.budget import limits
from loomlog.services.families.budget.decide import decide, next_timer_ms
from loomlog.services.families.budget.state import BudgetState
from tests.services.families.budget.given import (
    ACME,
    ALICE,
    DECEMBER,
    EVERYBODY,
    NOVEMBER,
    Ledger,
    lost,
    no_limit,
    operator_limit,
    release,
    reserve,
    settle,
    tenant_limit,
    user_limit,
)


def refused(ledger: Ledger) -> BudgetRefused:
    event = ledger.told[-1]
    assert isinstance(event, BudgetRefused)
    return event


# --- hard limits -----------------------------------------------------------------------------------------------------

HARD: list[tuple[str, dict[str, Any], tuple[int, int], tuple[int, int], bool]] = [
    ("tokens: the call that begins with something left may go past it", {"hard_tokens": 10}, (0, 0), (18, 0), True),
    ("tokens: with one left", {"hard_tokens": 10}, (9, 0), (18, 0), True),
    ("tokens: with nothing left", {"hard_tokens": 10}, (10, 0), (1, 0), False),
    ("tokens: past it", {"hard_tokens": 10}, (18, 0), (1, 0), False),
    ("strict tokens: the worst case fits exactly", {"hard_tokens": 10, "strict": True}, (4, 0), (6, 0), True),
    ("strict tokens: one too many", {"hard_tokens": 10, "strict": True}, (4, 0), (7, 0), False),
    ("money: fits exactly", {"hard_micros": 100}, (0, 40), (0, 60), True),
    ("money: one too many", {"hard_micros": 100}, (0, 40), (0, 61), False),
    ("money: a model without a price counts tokens only", {"hard_micros": 100}, (0, 100), (1_000, 0), True),
    ("nothing at all is allowed", {"hard_tokens": 0}, (0, 0), (1, 0), False),
    ("soft limits forbid nothing", {"soft_tokens": 1, "soft_micros": 1}, (50, 50), (50, 50), True),
]


@pytest.mark.parametrize(("amounts", "used", "wanted", "may"), [row[1:] for row in HARD], ids=[row[0] for row in HARD])
def test_a_hard_limit_forbids_what_does_not_fit(
    amounts: dict[str, Any], used: tuple[int, int], wanted: tuple[int, int], may: bool
) -> None:
    ledger = Ledger(user_limit(used_tokens=used[0], used_micros=used[1], **amounts), reserve("r:1.1", *wanted))
    assert ledger.kinds == ["BudgetReserved" if may else "BudgetRefused"]


def test_calls_under_way_count_against_a_limit() -> None:
    ledger = Ledger(user_limit(hard_micros=100), reserve("a:1.1", 1, 60), reserve("b:1.1", 1, 60))
    event = refused(ledger)
    assert (event.scope, event.scope_id, event.unit, event.used, event.reserved, event.limit) == (
        "user",
        "alice",
        "micros",
        0,
        60,
        100,
    )
    assert event.may_fit


def test_what_would_not_fit_alone_never_will() -> None:
    assert not refused(Ledger(user_limit(hard_micros=100), reserve("a:1.1", 1, 101))).may_fit


def test_every_account_of_a_run_is_charged_and_the_widest_is_asked_first() -> None:
    ledger = Ledger(operator_limit(hard_tokens=100), tenant_limit(hard_tokens=50), user_limit(hard_tokens=20))
    ledger.take(reserve("a:1.1", 30), settle("a:1.1", 25))
    assert [ledger.used(key) for key in (EVERYBODY, ACME, ALICE)] == [(25, 0)] * 3
    assert refused(ledger.take(reserve("b:1.1", 1))).scope == "user"
    assert (
        refused(Ledger(operator_limit(hard_tokens=0), user_limit(hard_tokens=0), reserve("c:1.1"))).scope == "operator"
    )


def test_another_user_is_not_touched() -> None:
    ledger = Ledger(user_limit(hard_tokens=0), reserve("b:1.1", 5, user="bob"))
    assert ledger.kinds == ["BudgetReserved"]
    assert ledger.reserved() == (0, 0)


# --- settling --------------------------------------------------------------------------------------------------------


def test_a_settled_call_counts_what_it_used_and_frees_the_rest() -> None:
    ledger = Ledger(user_limit(hard_tokens=100), reserve("a:1.1", 60, 6), settle("a:1.1", 20, 2))
    assert (ledger.used(), ledger.reserved()) == ((20, 2), (0, 0))


def test_a_call_that_used_more_than_it_reserved_counts_all_of_it() -> None:
    assert Ledger(user_limit(hard_tokens=5), reserve("a:1.1", 3), settle("a:1.1", 9)).used() == (9, 0)


def test_after_a_call_that_used_more_than_its_worst_case_the_account_reserves_more() -> None:
    first = (reserve("r:1.1", 10, 20), reserve("r:2.1", 10, 20))
    ledger = Ledger(user_limit(hard_micros=1_000), *first, settle("r:1.1", 10, 150), settle("r:2.1", 10, 160))
    ledger.take(reserve("r:3.1", 10, 20))
    assert ledger.books.accounts[ALICE].reserved_micros == 8 * 20, "not 64 times: both were reserved once"
    ledger.take(*(reserve(f"r:{run}.1", 10, 20) for run in range(4, 10)))
    reserved = ledger.books.accounts[ALICE].reserved_micros
    assert reserved == 4 * 160
    assert 310 + reserved <= 1_000 < 310 + reserved + 160
    assert refused(ledger).reserved == reserved


def test_a_new_month_reserves_the_worst_case_again() -> None:
    ledger = Ledger(user_limit(hard_micros=1_000), reserve("r:1.1", 10, 20), settle("r:1.1", 10, 150), at_ms=NOVEMBER)
    ledger.at_ms = DECEMBER
    ledger.take(reserve("r:2.1", 10, 20))
    assert ledger.books.accounts[ALICE].reserved_micros == 20


def test_a_released_call_costs_nothing() -> None:
    ledger = Ledger(user_limit(hard_tokens=100), reserve("a:1.1", 60, 6), release("a:1.1"))
    assert (ledger.used(), ledger.reserved(), ledger.books.open_count) == ((0, 0), (0, 0), 0)


def test_a_lost_call_counts_what_was_reserved_until_its_result_is_told() -> None:
    ledger = Ledger(user_limit(hard_tokens=100), reserve("a:1.1", 60, 6), lost("a:1.1"))
    assert ledger.used() == (60, 6)
    ledger.take(settle("a:1.1", 20, 2))
    assert (ledger.used(), ledger.told[-1].kind) == ((20, 2), "corrected")


def test_a_lost_call_that_was_never_made_costs_nothing_after_all() -> None:
    ledger = Ledger(user_limit(hard_tokens=100), reserve("a:1.1", 60, 6), lost("a:1.1"), release("a:1.1"))
    assert (ledger.used(), ledger.told[-1].kind) == ((0, 0), "corrected")
    assert ledger.take(settle("a:1.1", 5)).told == []


def test_a_call_that_nobody_settles_counts_as_lost_when_its_time_is_up() -> None:
    ledger = Ledger(user_limit(hard_tokens=100), reserve("a:1.1", 60))
    ledger.at_ms += limits.RESERVATION_MS
    ledger.take(reserve("b:1.1", 10))
    assert ledger.kinds == ["BudgetSettled", "BudgetReserved"]
    assert (ledger.used(), ledger.told[0].kind) == ((60, 0), "expired")
    assert ledger.take(settle("a:1.1", 5)).used() == (5, 0)


def test_the_books_ask_to_be_looked_at_when_the_first_reservation_ends() -> None:
    ledger = Ledger(user_limit(hard_tokens=100))
    assert next_timer_ms(ledger.books) == 0
    ledger.take(reserve("a:1.1", 60))
    at_ms = next_timer_ms(ledger.books)
    assert 0 <= at_ms - NOVEMBER - limits.RESERVATION_MS < 60_000
    assert decide(ledger.books, TIMER_FIRED, At(at_ms - 1)) == []
    assert [
        event.kind for event in decide(ledger.books, TIMER_FIRED, At(at_ms)) if isinstance(event, BudgetSettled)
    ] == ["expired"]


def test_one_decision_closes_a_bounded_number_of_calls() -> None:
    ledger = Ledger(user_limit(soft_tokens=1), *(reserve(f"r{n}:1.1", 1) for n in range(150)))
    ledger.at_ms += limits.RESERVATION_MS
    assert len(ledger.take(no_limit("nobody")).told) == limits.EXPIRED_PER_DECISION
    assert len(ledger.take(no_limit("nobody")).told) == 50


def test_a_call_that_was_under_way_before_its_first_limit_is_counted() -> None:
    ledger = Ledger(user_limit(hard_tokens=100), settle("a:1.1", 7, 1, reserved=False))
    assert (ledger.used(), ledger.told[-1].kind) == ((7, 1), "unreserved")


def test_nobody_is_charged_for_a_call_without_any_limit() -> None:
    assert Ledger(settle("a:1.1", 7, reserved=False)).kinds == ["BudgetMonthBegan"]


# --- the same again --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "twice",
    [
        [reserve("a:1.1", 5), reserve("a:1.1", 5)],
        [reserve("a:1.1", 5), settle("a:1.1", 3), settle("a:1.1", 3)],
        [reserve("a:1.1", 5), release("a:1.1"), release("a:1.1")],
        [reserve("a:1.1", 5), lost("a:1.1"), lost("a:1.1")],
        [reserve("a:1.1", 5), lost("a:1.1"), settle("a:1.1", 3), settle("a:1.1", 3)],
        [reserve("a:1.1", 5), settle("a:1.1", 3), lost("a:1.1")],
        [reserve("a:1.1", 5), settle("a:1.1", 3), release("a:1.1")],
        [settle("a:1.1", 3, reserved=False), settle("a:1.1", 3, reserved=False)],
        [settle("long-forgotten:1.1", 3)],
        [lost("unknown:1.1")],
        [release("unknown:1.1")],
    ],
)
def test_a_command_that_was_handled_changes_nothing(twice: list[Any]) -> None:
    assert Ledger(user_limit(hard_tokens=100), *twice).told == []


def test_a_call_that_is_over_cannot_be_reserved_again() -> None:
    ledger = Ledger(user_limit(hard_tokens=100), reserve("a:1.1", 5), settle("a:1.1", 3), reserve("a:1.1", 5))
    assert refused(ledger).code == "closed"
    assert ledger.reserved() == (0, 0)


def test_a_reservation_that_comes_too_late_is_refused() -> None:
    assert refused(Ledger(user_limit(hard_tokens=9), reserve("a:1.1", 1, until=NOVEMBER - 1))).code == "late"


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_calls_that_are_over_are_remembered_within_a_bound() -> None:
    ledger = Ledger(user_limit(soft_tokens=1))
    for number in range(2 * limits.REMEMBERED_MAX + 50):
        ledger.take(reserve(f"r{number}:1.1", 1), release(f"r{number}:1.1"))
    assert len(ledger.books.recent) + len(ledger.books.older) <= 2 * limits.REMEMBERED_MAX + 1
    assert ledger.books.is_closed(f"r{2 * limits.REMEMBERED_MAX + 49}:1.1")


def test_more_calls_at_once_than_the_books_hold_must_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OPEN_MAX", 2)
    ledger = Ledger(user_limit(soft_tokens=1), *(reserve(f"r{n}:1.1", 1) for n in range(3)))
    assert (refused(ledger).code, refused(ledger).may_fit) == ("too_many_open", True)


def test_more_limits_than_the_books_hold_are_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIMITS_MAX", 1)
    ledger = Ledger(user_limit("alice", hard_tokens=1), user_limit("bob", hard_tokens=1))
    assert isinstance(ledger.told[-1], CommandRefused)
    assert ledger.take(user_limit("alice", hard_tokens=2)).kinds == ["LimitSet"]


@pytest.mark.parametrize(
    ("amounts", "word"),
    [({}, "needs"), ({"hard_tokens": -1}, "whole numbers"), ({"hard_micros": AMOUNT_MAX + 1}, "whole numbers")],
)
def test_a_limit_that_says_nothing_or_nonsense_is_declined(amounts: dict[str, int], word: str) -> None:
    event = Ledger(user_limit(**amounts)).told[-1]
    assert isinstance(event, CommandRefused)
    assert word in event.message


@pytest.mark.parametrize(
    ("account", "word"),
    [
        (("operator", "", ""), ""),
        (("operator", "acme", ""), "neither"),
        (("tenant", "acme", "acme"), ""),
        (("tenant", "acme", "globex"), "that tenant"),
        (("tenant", "", ""), "tenant_id"),
        (("user", "acme", "alice"), ""),
        (("user", "acme", ""), "scope_id"),
        (("user", "acme", "al\nice"), "printable"),
        (("planet", "", ""), "expected"),
    ],
)
def test_an_account_has_the_fields_of_its_scope(account: tuple[str, str, str], word: str) -> None:
    wrong = account_error(*account)
    assert word in wrong
    assert bool(word) == bool(wrong)


# --- changing limits -------------------------------------------------------------------------------------------------


def test_a_changed_limit_keeps_what_is_used() -> None:
    ledger = Ledger(user_limit(hard_tokens=10), reserve("a:1.1", 5), settle("a:1.1", 5))
    ledger.take(user_limit(hard_tokens=5, used_tokens=999))
    assert ledger.used() == (5, 0)
    assert refused(ledger.take(reserve("b:1.1", 1))).limit == 5


def test_a_limit_that_is_set_while_calls_are_under_way_counts_them() -> None:
    ledger = Ledger(tenant_limit(hard_tokens=100), reserve("a:1.1", 30), user_limit(hard_tokens=40, used_tokens=2))
    assert ledger.reserved(ALICE) == (30, 0)
    ledger.take(settle("a:1.1", 11))
    assert (ledger.used(ALICE), ledger.reserved(ALICE), ledger.used(ACME)) == ((13, 0), (0, 0), (11, 0))


def test_a_limit_that_is_removed_and_set_again_keeps_nothing_of_before() -> None:
    ledger = Ledger(user_limit(hard_tokens=100), tenant_limit(hard_tokens=100), reserve("a:1.1", 30), lost("a:1.1"))
    ledger.take(no_limit(), user_limit(hard_tokens=100), settle("a:1.1", 10))
    assert (ledger.used(ALICE), ledger.used(ACME)) == ((0, 0), (10, 0))


def test_removing_what_is_not_there_changes_nothing() -> None:
    assert Ledger(user_limit(hard_tokens=1), no_limit("bob")).told == []


# --- months ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at_ms", "month"),
    [
        (0, "1970-01"),
        (NOVEMBER, "2026-11"),
        (1_796_083_199_999, "2026-11"),
        (1_796_083_200_000, "2026-12"),
        (-5, "1970-01"),
        (1 << 62, "9999-12"),
    ],
)
def test_a_month_is_one_of_the_calendar_in_utc(at_ms: int, month: str) -> None:
    assert month_of(at_ms) == month


def test_a_new_month_begins_at_zero_and_calls_under_way_stay_in_the_old_one() -> None:
    ledger = Ledger(user_limit(hard_tokens=100), reserve("a:1.1", 60), reserve("b:1.1", 5), settle("b:1.1", 5))
    ledger.at_ms = DECEMBER
    ledger.take(reserve("c:1.1", 99))
    assert ledger.kinds[0] == "BudgetMonthBegan"
    assert ledger.kinds[-1] == "BudgetReserved"
    assert (ledger.books.month, ledger.used(), ledger.reserved()) == ("2026-12", (0, 0), (99, 0))
    ledger.take(settle("a:1.1", 50), settle("c:1.1", 9))
    assert (ledger.used(), ledger.reserved()) == ((9, 0), (0, 0))


def test_a_call_that_was_lost_in_the_month_before_is_not_counted_in_this_one() -> None:
    ledger = Ledger(user_limit(hard_tokens=100), reserve("a:1.1", 60), lost("a:1.1"))
    ledger.at_ms = DECEMBER
    assert ledger.take(settle("a:1.1", 50)).used() == (0, 0)
    assert isinstance(ledger.told[-1], BudgetSettled)
    assert ledger.told[-1].month == "2026-11"


def test_an_owner_whose_clock_is_behind_does_not_go_back_a_month() -> None:
    ledger = Ledger(user_limit(hard_tokens=100), at_ms=DECEMBER)
    ledger.at_ms = NOVEMBER
    assert ledger.take(reserve("a:1.1", 5)).kinds == ["BudgetReserved"]
    assert ledger.books.month == "2026-12"


def test_nothing_is_in_empty_books() -> None:
    assert Ledger(reserve("a:1.1", 5)).kinds == ["BudgetMonthBegan", "BudgetReserved"]
    assert not BudgetState().is_closed("a:1.1")


# --- as a family -----------------------------------------------------------------------------------------------------


def test_the_fold_is_the_same_from_a_snapshot_whose_keys_are_sorted() -> None:
    ledger = Ledger(user_limit(hard_tokens=1_000), reserve("z:1.1", 5))
    ledger.at_ms += 60_000
    ledger.take(reserve("a:1.1", 5), reserve("b:1.1", 7), lost("b:1.1"))
    codec = StateCodec(BudgetState)
    restored = codec.decode(codec.encode(ledger.books))
    assert restored == ledger.books
    assert next_timer_ms(restored) == NOVEMBER + limits.RESERVATION_MS
    [month, first, *rest] = decide(restored, TIMER_FIRED, At(DECEMBER))
    assert (type(month).__name__, first.id, [event.id for event in rest]) == ("BudgetMonthBegan", "z:1.1", ["a:1.1"])


def test_the_state_fits_one_record_with_as_much_as_there_can_be() -> None:
    ledger = Ledger(user_limit(hard_tokens=1_000, currency="USD"))
    [limit] = ledger.books.limits.values()
    account, run = replace(ledger.books.accounts[ALICE], used_tokens=10**9, used_micros=10**9), "r_" + "x" * 20
    held = Ledger(user_limit(soft_tokens=1), reserve("r:1.1", 100_000, 900_000)).books.open.popitem()[1]["r:1.1"]
    held = replace(held, accounts=(EVERYBODY, ACME, ALICE))
    many = BudgetState(
        month="2026-11",
        limits={f"{ALICE}{number:04}": limit for number in range(limits.LIMITS_MAX)},
        accounts={f"{ALICE}{number:04}": account for number in range(limits.LIMITS_MAX)},
        open={"1": {f"{run}{number:04}:1.1": held for number in range(limits.OPEN_MAX)}},
        recent={f"{run}{number:04}:1.1": None for number in range(limits.REMEMBERED_MAX)},
    )
    assert len(StateCodec(BudgetState).encode(many)) < STATE_BYTES_MAX


@pytest.mark.parametrize(
    "command",
    [
        reserve("a:1.1", -5),
        reserve("a:1.1", limits.CALL_AMOUNT_MAX + 1),
        reserve("a" * 301, 5),
        settle("a:1.1", -5),
        user_limit("u" * 301, hard_tokens=1),
    ],
)
def test_a_command_that_makes_no_sense_is_refused_and_changes_nothing(command: Any) -> None:
    ledger = Ledger(user_limit(hard_tokens=10))
    before = ledger.books
    event = ledger.take(command).told[-1]
    assert isinstance(event, CommandRefused)
    assert ledger.books == before
