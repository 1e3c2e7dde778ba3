"""Budget reservations: the worst case of a model call is reserved before the call, its usage is settled after it.

    reservation_for   the reservation, if any limit applies; None for most runs, which then cost nothing here
    reserve           the worst case, or the limit that forbids the call
    settle            the usage of the call; the soft limits that are reached now

Between the two no other call can spend the reserved amount, on any runtime. Calls that end without an answer:

    the provider refused it, or could not be reached         released: nothing was computed
    it broke off, timed out, was cancelled, its owner died   lost: counts as reserved, since it may be billed

An answer whose tokens the provider did not count is lost in the same sense: it was not free.

An answer is settled before its run receives it, so a caller who has seen a run end finds it counted. When an owner dies
the next one makes another attempt, and first settles the earlier ones as lost.

A limit applies from the moment its setting is acknowledged. Whether any applies is read from the replica, which may
lag, so two things make it catch up first: a start whose sender has read more (start_handler.py), and a partition
takeover, since its runs began under the limits that another process knew.

Before: services/runtime/models/model_calls.py. After: accounts.py.
"""

import asyncio
from collections.abc import Callable

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.schemas.generated.budget_commands import ReleaseBudget, ReserveBudget, SettleBudget
from loomlog.schemas.generated.budget_events import BudgetRefused
from loomlog.schemas.generated.values import LimitNotice
from loomlog.schemas.records import replace
from loomlog.services.families.budget.accounts import BudgetAccounts
from loomlog.services.families.budget.amounts import find_exceeded_limit, notice_of, passed_soft_limits
from loomlog.services.families.budget.limits import CALL_AMOUNT_MAX
from loomlog.services.families.ports import call_budgets
from loomlog.services.families.ports.call_budgets import BudgetUnavailable, CallAttempt, WorstCase
from loomlog.services.stream.entities.answers import CommandInvalid, CommandUnanswered

RESERVE_WAIT_S = 10.0
"""Seconds to wait for the reply to one reservation. Longer than it takes to notice that the budget owner died."""
BUDGET_WAIT_S = 60.0
"""Seconds a call retries while the budget owner does not reply; then the call fails. Nothing is spent meanwhile."""
RETRY_S = 0.2
"""Seconds between attempts to let the budget replica catch up, while the log does not answer."""
CAPACITY_WAIT_S = 30.0
"""Seconds to wait for calls in progress to end when the call would then fit; after that the limit applies."""
SETTLE_WAIT_S = 5.0
"""Seconds an answer waits until it is counted; after that it is counted without its run waiting for it."""
BILLABLE_FAILURES = frozenset({"broken_off", "timeout"})
"""Kinds of failures after which a provider may have computed something."""


class BudgetReservations:
    """Budget reservations of one process (port RunBudgets)."""

    def __init__(self, accounts: BudgetAccounts, clock_ms: Callable[[], int]) -> None:
        self._accounts = accounts
        self._clock_ms = clock_ms
        self._takeovers = 0
        self._known_takeovers = 0
        """Number of takeovers after which the replica has caught up."""

    def on_takeover(self) -> None:
        """Note a partition takeover: its runs may be under limits that the replica has not read."""
        self._takeovers += 1

    async def wait_for_limits(self) -> None:
        """Wait until every limit from before a takeover is read.

        Usually returns at once. Raises BudgetUnavailable when the log has not answered for BUDGET_WAIT_S: a short
        broker outage must not cost a call an attempt.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + BUDGET_WAIT_S
        while self._known_takeovers < self._takeovers:
            try:
                await self._catch_up()
            except BudgetUnavailable:
                if loop.time() >= end:
                    raise
                await asyncio.sleep(RETRY_S)

    async def _catch_up(self) -> None:
        taken_over = self._takeovers
        try:
            await self._accounts.caught_up()
        except Transient as error:
            raise BudgetUnavailable(str(error)) from error
        self._known_takeovers = max(self._known_takeovers, taken_over)

    def reservation_for(self, attempt: CallAttempt, tenant: str, user_id: str) -> call_budgets.CallReservation | None:
        """Return the reservation of a call when a known limit applies to it; `wait_for_limits` must be called first."""
        if not self._accounts.applies(tenant, user_id):
            return None
        return CallReservation(self._accounts, self._clock_ms, attempt, tenant, user_id)

    def may_be_limited(self, tenant: str, user_id: str) -> bool:
        """Return whether a limit applies to a run of the user, or may apply after a takeover."""
        return self._accounts.applies(tenant, user_id) or self._known_takeovers < self._takeovers

    async def exhausted_limit(self, tenant: str, user_id: str) -> LimitNotice | None:
        """Return the hard limit that is exhausted now, by any spender. Raises BudgetUnavailable."""
        await self._catch_up()
        return self._accounts.exhausted(tenant, user_id)


class CallReservation:
    """Reservation for one attempt of a call. `close` must be called when the call ends, however it ends."""

    def __init__(
        self, accounts: BudgetAccounts, clock_ms: Callable[[], int], attempt: CallAttempt, tenant: str, user_id: str
    ) -> None:
        self.was_sent = False
        """Whether the provider may have received the request."""
        self._accounts = accounts
        self._clock_ms = clock_ms
        self._attempt = attempt
        self._tenant = tenant
        self._user_id = user_id
        self._id = attempt.id
        self._is_reserved = False
        self._is_closed = False

    async def reserve(self, worst: WorstCase) -> LimitNotice | None:
        """Return None when the call may be made, otherwise the limit that forbids it. Raises BudgetUnavailable."""
        self._settle_lost_attempts()
        worst = WorstCase(min(worst.tokens, CALL_AMOUNT_MAX), min(worst.micros, CALL_AMOUNT_MAX))
        loop = asyncio.get_running_loop()
        began = loop.time()
        end = began + CAPACITY_WAIT_S
        while True:
            refused = await self._reserve(worst)
            if refused is None:
                self._is_reserved = True
                return None
            if refused.code == "late":
                if loop.time() >= began + BUDGET_WAIT_S:
                    raise BudgetUnavailable(f"the owner of the budgets has not replied within {BUDGET_WAIT_S:g} s")
                end = loop.time() + CAPACITY_WAIT_S
            elif refused.may_fit and loop.time() < end:
                await self._wait_for_capacity(worst, refused, end)
            elif refused.code == "over_limit":
                return notice_of(refused, tokens=worst.tokens, micros=worst.micros)
            else:
                raise BudgetUnavailable(f"the owner of the budgets refused {self._id}: {refused.code}")

    async def _reserve(self, worst: WorstCase) -> BudgetRefused | None:
        """Return None when the worst case is reserved; without a reply in time it is late. Raises BudgetUnavailable."""
        command = ReserveBudget(
            envelope=self._accounts.envelope(),
            id=self._id,
            tenant=self._tenant,
            user_id=self._user_id,
            tokens=worst.tokens,
            micros=worst.micros,
            deadline_ms=self._clock_ms() + int(RESERVE_WAIT_S * 1000),
        )
        try:
            return await self._accounts.reserve(command, wait_s=RESERVE_WAIT_S)
        except CommandUnanswered:
            return BudgetRefused(id=self._id, tenant=self._tenant, code="late")
        except (CommandInvalid, ConnectorError) as error:
            raise BudgetUnavailable(str(error)) from error

    async def _wait_for_capacity(self, worst: WorstCase, refused: BudgetRefused, end: float) -> None:
        """Wait until the call may fit, can never fit, or the time is up."""
        accounts, is_over_limit = self._accounts, refused.code == "over_limit"
        try:
            async with asyncio.timeout_at(end):
                while True:
                    if is_over_limit:
                        amounts = worst.tokens, worst.micros
                        exceeded = find_exceeded_limit(accounts.state, self._tenant, self._user_id, *amounts)
                        if exceeded is None or not exceeded.may_fit:
                            return
                    await accounts.wait_for_change()
                    if not is_over_limit:
                        return
        except TimeoutError:
            return  # the owner of the budgets decides

    def _settle_lost_attempts(self) -> None:
        """Settle the open attempts of this step as lost: their owner died before it settled them."""
        budgets = self._accounts.state
        for attempt in range(1, self._attempt.attempt):
            earlier = replace(self._attempt, attempt=attempt).id
            if budgets.reservation(earlier) is not None:
                self._accounts.publish(self._settlement(earlier, lost=True))

    async def settle(self, tokens: int, micros: int) -> tuple[LimitNotice, ...]:
        """Settle the usage of the call and return the soft limits that are reached. 0 tokens: the provider has not
        counted them, so the reserved amount counts.
        """
        self._is_closed = True
        command = (
            self._settlement(self._id, tokens=min(tokens, CALL_AMOUNT_MAX), micros=min(micros, CALL_AMOUNT_MAX))
            if tokens
            else self._settlement(self._id, lost=True)
        )
        try:
            await self._accounts.request(command, wait_s=SETTLE_WAIT_S)
        except CommandUnanswered:
            self._accounts.publish(command)  # its id makes it happen once; the answer is not held up longer
        except (CommandInvalid, ConnectorError) as error:
            raise BudgetUnavailable(str(error)) from error
        return passed_soft_limits(self._accounts.state, self._tenant, self._user_id, self._clock_ms())

    def on_failure(self, error: Transient | Permanent) -> None:
        """Release the reservation of a call that failed, unless the provider may bill it."""
        if not self._is_closed and self._is_reserved and not may_be_billed(error):
            self._release()

    def close(self) -> None:
        """Close a reservation that is still open: lost when the request was sent, released when not."""
        if self._is_closed:
            return
        if self.was_sent:
            self._is_closed = True
            self._accounts.publish(self._settlement(self._id, lost=True))
        else:
            self._release()

    def _release(self) -> None:
        self._is_closed = True
        self._accounts.publish(ReleaseBudget(envelope=self._accounts.envelope(), id=self._id))

    def _settlement(self, call: str, *, tokens: int = 0, micros: int = 0, lost: bool = False) -> SettleBudget:
        return SettleBudget(
            envelope=self._accounts.envelope(),
            id=call,
            tenant=self._tenant,
            user_id=self._user_id,
            tokens=tokens,
            micros=micros,
            lost=lost,
            reserved=self._is_reserved or lost,
        )


def may_be_billed(error: ConnectorError) -> bool:
    """Return whether a provider that did not answer may have computed something. One that sent a status did not."""
    return error.status == 0 and error.kind in BILLABLE_FAILURES
