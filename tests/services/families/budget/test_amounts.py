"""Which limits have been reached, and what may be told of them."""

from typing import Any

from loomlog.schemas.generated.budget_events import BudgetRefused
from loomlog.services.families.budget.amounts import account_at, exhausted, notice_of, passed_soft_limits
from loomlog.services.families.budget.state import EMPTY
from tests.services.families.budget.given import (
    ALICE,
    DECEMBER,
    NOVEMBER,
    Ledger,
    operator_limit,
    reserve,
    settle,
    tenant_limit,
    user_limit,
)


def test_a_run_begins_while_anything_is_left() -> None:
    ledger = Ledger(user_limit(hard_tokens=10), reserve("a:1.1", 18))
    assert exhausted(ledger.books, "acme", "alice", NOVEMBER) is None
    ledger.take(settle("a:1.1", 18))
    notice = exhausted(ledger.books, "acme", "alice", NOVEMBER)
    assert notice is not None
    assert (notice.scope, notice.scope_id, notice.used, notice.limit, notice.window) == (
        "user",
        "alice",
        18,
        10,
        "month",
    )
    assert exhausted(ledger.books, "acme", "bob", NOVEMBER) is None
    assert exhausted(ledger.books, "globex", "alice", NOVEMBER) is None


def test_a_month_that_nobody_has_spent_in_yet_is_at_zero() -> None:
    ledger = Ledger(user_limit(hard_tokens=10, used_tokens=10))
    assert exhausted(ledger.books, "acme", "alice", NOVEMBER) is not None
    assert exhausted(ledger.books, "acme", "alice", DECEMBER) is None
    assert account_at(ledger.books, ALICE, DECEMBER) == EMPTY


def test_soft_limits_are_told_once_for_each_scope() -> None:
    ledger = Ledger(
        tenant_limit(soft_micros=5, used_micros=5),
        user_limit(soft_tokens=10, soft_micros=1, used_tokens=10, used_micros=9),
    )
    notices = passed_soft_limits(ledger.books, "acme", "alice", NOVEMBER)
    assert [(n.scope, n.severity, n.unit, n.used, n.limit) for n in notices] == [
        ("tenant", "soft", "micros", 5, 5),
        ("user", "soft", "tokens", 10, 10),
    ]


def why_not(*given: Any) -> str:
    """What a run is told whose call, the last of these commands, was refused."""
    event = Ledger(*given).told[-1]
    assert isinstance(event, BudgetRefused)
    notice = notice_of(event, tokens=given[-1].tokens, micros=given[-1].micros)
    assert (notice.severity, notice.unit) == ("hard", event.unit)
    return notice.message


def test_a_call_that_is_too_large_for_what_is_left_is_told_so_and_not_that_the_limit_is_reached() -> None:
    whose = "the hard limit of the user alice for this month"
    helps = "a smaller max_tokens makes it less"
    dear = why_not(user_limit(hard_micros=60_000, used_micros=2), reserve("a:1.1", 1, 61_234))
    assert dear == f"the call may use 61234 millionths of the currency, and of {whose} 59998 of 60000 are left; {helps}"
    long = why_not(user_limit(hard_tokens=10, used_tokens=2, strict=True), reserve("a:1.1", 9))
    assert long == f"the call may use 9 tokens, and of {whose} 8 of 10 are left; {helps}"


def test_a_limit_of_which_calls_under_way_hold_the_rest_is_not_called_reached_either() -> None:
    text = why_not(user_limit(hard_micros=100), reserve("a:1.1", 1, 60), reserve("b:1.1", 1, 60))
    assert text == (
        "what is left of the hard limit of the user alice for this month is set aside for calls under way; "
        "try again when they have ended"
    )


def test_a_limit_of_which_nothing_is_left_is_reached() -> None:
    text = why_not(user_limit(hard_tokens=10, used_tokens=12), reserve("a:1.1", 5))
    assert text == "the hard limit of the user alice for this month is reached: 12 of 10 tokens"


def test_a_call_too_large_for_the_installation_tells_nothing_of_what_that_has_spent() -> None:
    text = why_not(operator_limit(hard_micros=777, used_micros=7), reserve("a:1.1", 1, 800))
    assert text == (
        "the call may use 800 millionths of the currency, more than is left of the hard limit of the installation for "
        "this month; a smaller max_tokens makes it less"
    )


def test_what_the_whole_installation_spends_is_not_told_to_a_run() -> None:
    ledger = Ledger(operator_limit(hard_tokens=7, used_tokens=7777))
    notice = exhausted(ledger.books, "acme", "alice", NOVEMBER)
    assert notice is not None
    assert (notice.used, notice.limit) == (0, 0)
    assert "7" not in notice.message
