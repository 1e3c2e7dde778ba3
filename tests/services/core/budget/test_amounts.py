"""Which limits have been reached, and what may be told of them."""

from services.core.budget.amounts import account_at, exhausted, passed
from services.core.budget.state import EMPTY
from tests.services.core.budget.given import (
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
    found = exhausted(ledger.books, "acme", "alice", NOVEMBER)
    assert found is not None
    assert (found.scope, found.scope_id, found.used, found.limit, found.window) == ("user", "alice", 18, 10, "month")
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
    found = passed(ledger.books, "acme", "alice", NOVEMBER)
    assert [(n.scope, n.severity, n.unit, n.used, n.limit) for n in found] == [
        ("tenant", "soft", "micros", 5, 5),
        ("user", "soft", "tokens", 10, 10),
    ]


def test_what_the_whole_installation_spends_is_not_told_to_a_run() -> None:
    ledger = Ledger(operator_limit(hard_tokens=7, used_tokens=7777))
    found = exhausted(ledger.books, "acme", "alice", NOVEMBER)
    assert found is not None
    assert (found.used, found.limit) == (0, 0)
    assert "7" not in found.message
