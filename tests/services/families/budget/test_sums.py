"""Whatever comes in whatever order: no cap is exceeded, nothing that was spent is lost, and the books stay small."""

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from loomlog.schemas.generated.budget_events import BudgetReserved
from loomlog.services.core.canonical import StateCodec
from loomlog.services.families.budget.limits import RESERVATION_MS
from loomlog.services.families.budget.state import BudgetState
from tests.services.families.budget.given import (
    ACME,
    ALICE,
    EVERYBODY,
    Ledger,
    lost,
    operator_limit,
    release,
    reserve,
    settle,
    tenant_limit,
    user_limit,
)

CAPS = {EVERYBODY: 1_000, ACME: 700, ALICE: 400}
MINUTE_MS = 60_000


class AnyOrder(RuleBasedStateMachine):
    """Calls that reserve, then settle, are lost, expire or are released, some of them twice and some months apart.

    `spent` is the truth: what providers charge by month, a call that nobody answers for at its worst case.
    """

    calls = Bundle("calls")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(
            operator_limit(hard_micros=CAPS[EVERYBODY], hard_tokens=CAPS[EVERYBODY], strict=True),
            tenant_limit(hard_micros=CAPS[ACME], hard_tokens=CAPS[ACME], strict=True),
            user_limit(hard_micros=CAPS[ALICE], hard_tokens=CAPS[ALICE], strict=True),
        )
        self.made = 0
        self.granted: dict[str, tuple[str, int]] = {}
        self.counted: dict[str, int] = {}
        self.freed: set[str] = set()

    @rule(target=calls, amount=st.integers(0, 300))
    def begin(self, amount: int) -> str:
        self.made += 1
        call = f"r{self.made}:1.1"
        self.ledger.take(reserve(call, amount, amount))
        if isinstance(self.ledger.told[-1], BudgetReserved):
            self.granted[call] = (self.ledger.books.month, amount)
        return call

    @rule(call=calls)
    def begin_again(self, call: str) -> None:
        amount = self.granted.get(call, ("", 5))[1]
        self.ledger.take(reserve(call, amount, amount))
        if call not in self.granted and isinstance(self.ledger.told[-1] if self.ledger.told else None, BudgetReserved):
            self.granted[call] = (self.ledger.books.month, amount)

    @rule(call=calls, share=st.integers(0, 100))
    def end(self, call: str, share: int) -> None:
        if call not in self.granted:
            return
        amount = self.granted[call][1] * share // 100
        self.ledger.take(settle(call, amount, amount))
        if call not in self.freed:
            self.counted.setdefault(call, amount)

    @rule(call=calls)
    def lose(self, call: str) -> None:
        self.ledger.take(lost(call))

    @rule(call=consumes(calls))
    def give_back(self, call: str) -> None:
        books = self.ledger.books
        if books.reservation(call) is not None or books.provisional(call) is not None:
            self.freed.add(call)
        self.ledger.take(release(call))

    @rule(minutes=st.integers(1, 45))
    def wait(self, minutes: int) -> None:
        self.ledger.at_ms += minutes * MINUTE_MS

    @rule()
    def next_month(self) -> None:
        self.ledger.at_ms += 31 * 24 * 60 * MINUTE_MS

    @invariant()
    def no_cap_is_exceeded(self) -> None:
        for key, cap in CAPS.items():
            account = self.ledger.books.accounts[key]
            assert 0 <= account.used_micros + account.reserved_micros <= cap
            assert 0 <= account.used_tokens + account.reserved_tokens <= cap
            assert min(account.used_micros, account.reserved_micros) >= 0

    @invariant()
    def nothing_that_was_spent_is_lost(self) -> None:
        spent: dict[str, int] = defaultdict(int)
        for call, (month, amount) in self.granted.items():
            if call not in self.freed:
                spent[month] += self.counted.get(call, amount)
        month = self.ledger.books.month
        for key in CAPS:
            account = self.ledger.books.accounts[key]
            assert account.used_micros + account.reserved_micros == spent[month]

    @invariant()
    def the_books_survive_a_snapshot(self) -> None:
        codec = StateCodec(BudgetState)  # whose keys are sorted
        assert codec.decode(codec.encode(self.ledger.books)) == self.ledger.books


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
assert RESERVATION_MS < 45 * MINUTE_MS, "some reservations expire"
