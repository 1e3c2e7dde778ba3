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

A limit applies from the moment its setting is acknowledged. Whether any applies is read from the budget replica, which
may lag, so two things make it catch up first: a start whose sender knows more limits than the replica, and a partition
takeover, since its runs began under the limits that another process knew.

The worst case must be an upper bound: every token has at least a byte, so a request never has fewer bytes than tokens;
the answer is bounded by max_tokens, which is set for calls that set none.

Before: model_calls.py. After: services/families/budget/client.py.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.models.pricing import Price, cost_micros
from loomlog.connectors.protocols import ModelRequest
from loomlog.schemas.generated.budget_commands import ReleaseBudget, ReserveBudget, SettleBudget
from loomlog.schemas.generated.budget_events import BudgetRefused, BudgetReserved
from loomlog.schemas.generated.values import LimitNotice, Usage
from loomlog.schemas.records import Value, replace
from loomlog.services.families.budget.amounts import exhausted, find_exceeded_limit, notice_of, passed_soft_limits
from loomlog.services.families.budget.client import BudgetClient, BudgetClientBusy
from loomlog.services.families.budget.limits import CALL_AMOUNT_MAX

RESERVE_WAIT_S = 10.0
"""Seconds to wait for the reply to one reservation. Longer than it takes to notice that the budget owner died."""
BUDGET_WAIT_S = 60.0
"""Seconds a call retries while the budget owner does not reply; then the call fails. Nothing is spent meanwhile."""
RETRY_S = 0.2
"""Seconds between attempts to let the budget replica catch up, while the log does not answer."""
CAPACITY_WAIT_S = 30.0
"""Seconds to wait for calls in progress to end when the call would then fit; after that the limit applies."""
SETTLE_WAIT_S = 5.0
"""Seconds an answer waits until it is counted. It is in the command log by then, so only notices may be missed."""
DEFAULT_MAX_TOKENS = 8_192
"""Output tokens of a call under a limit whose agent sets no maximum, so that there is a worst case."""
BILLABLE_FAILURES = frozenset({"broken_off", "timeout"})
"""Kinds of failures after which a provider may have computed something."""


class BudgetUnavailable(Transient):
    """The budget owner does not reply. Not the provider's fault, so no fallback is tried."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="unavailable")


class WorstCase(Value, frozen=True):
    """Upper bound of a call's usage: tokens of all kinds, and millionths of the currency (0 without a price)."""

    tokens: int
    micros: int


def worst_case(request: ModelRequest, price: Price | None, max_context_tokens: int) -> WorstCase:
    """Return the worst case of a request with max_tokens. `max_context_tokens` 0: the context window is not known."""
    assert request.max_tokens > 0, "without max_tokens there is no worst case"
    sent = len(repr((request.system, request.messages, request.tools)).encode(errors="replace"))
    if max_context_tokens:
        sent = min(sent, max_context_tokens)
    micros = 0
    if price is not None:
        dearest = Price(input=max(price.input, price.cache_write, price.cache_read), output=price.output)
        micros = cost_micros(dearest, Usage(input_tokens=sent, output_tokens=request.max_tokens)) + 1
    return WorstCase(min(sent + request.max_tokens, CALL_AMOUNT_MAX), min(micros, CALL_AMOUNT_MAX))


def total_tokens(usage: Usage) -> int:
    """Return the tokens of all kinds, as limits count them."""
    return usage.input_tokens + usage.output_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens


class CallAttempt(Value, frozen=True):
    """One attempt of a call: its run, its step (the turn, or which compaction) and its number, from 1."""

    run_id: str
    step: str
    attempt: int

    @property
    def id(self) -> str:
        """Id of the reservation in the budget state."""
        return f"{self.run_id}:{self.step}.{self.attempt}"


class BudgetReservations:
    """Budget reservations of one process."""

    def __init__(self, client: BudgetClient, clock_ms: Callable[[], int]) -> None:
        self._client = client
        self._clock_ms = clock_ms
        self._takeovers = 0
        self._known_takeovers = 0
        """Number of takeovers after which the replica has caught up."""

    def on_takeover(self) -> None:
        """Note a partition takeover: its runs may be under limits that the replica has not read."""
        self._takeovers += 1

    def _may_miss_limits(self, books_offset: int) -> bool:
        """Return whether there may be limits that the replica has not read and that must apply."""
        return self._known_takeovers < self._takeovers or self._client.board.next_offset < books_offset

    async def wait_for_limits(self, books_offset: int = 0) -> None:
        """Wait until every limit is read that a sender at that offset knows, and every one from before a takeover.

        Usually returns at once. An offset past the end of the budget log means its end. Raises BudgetUnavailable when
        the log has not answered for BUDGET_WAIT_S: a short broker outage must not cost a call an attempt.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + BUDGET_WAIT_S
        while self._may_miss_limits(books_offset):
            try:
                await self._catch_up()
            except BudgetUnavailable:
                if loop.time() >= end:
                    raise
                await asyncio.sleep(RETRY_S)

    async def _catch_up(self) -> None:
        taken_over = self._takeovers
        try:
            await self._client.board.caught_up()
        except Transient as error:
            raise BudgetUnavailable(str(error)) from error
        self._known_takeovers = max(self._known_takeovers, taken_over)

    def reservation_for(self, attempt: CallAttempt, tenant: str, user_id: str) -> "CallReservation | None":
        """Return the reservation of a call when a known limit applies to it; `wait_for_limits` must be called first."""
        if not self._client.board.applies(tenant, user_id):
            return None
        return CallReservation(self._client, self._clock_ms, attempt, tenant, user_id)

    def may_be_limited(self, tenant: str, user_id: str, books_offset: int = 0) -> bool:
        """Return whether a limit may apply to a run of the user whose starter has read up to that offset."""
        return self._client.board.applies(tenant, user_id) or self._may_miss_limits(books_offset)

    async def exhausted_limit(self, tenant: str, user_id: str) -> LimitNotice | None:
        """Return the hard limit that is exhausted now, by any spender. Raises BudgetUnavailable."""
        await self._catch_up()
        return exhausted(self._client.board.books, tenant, user_id, self._clock_ms())


class CallBudgets(Protocol):
    """The part of BudgetReservations that model calls need."""

    async def wait_for_limits(self, books_offset: int = 0) -> None: ...
    def reservation_for(self, attempt: CallAttempt, tenant: str, user_id: str) -> "CallReservation | None": ...


class StartBudgets(Protocol):
    """The part of BudgetReservations that the start of a run needs, a child's like any other."""

    def on_takeover(self) -> None: ...
    async def wait_for_limits(self, books_offset: int = 0) -> None: ...
    def may_be_limited(self, tenant: str, user_id: str, books_offset: int = 0) -> bool: ...
    async def exhausted_limit(self, tenant: str, user_id: str) -> LimitNotice | None: ...


class NoBudgets:
    """Budgets without limits."""

    async def wait_for_limits(self, books_offset: int = 0) -> None:
        """Return at once: there are no limits."""

    def reservation_for(self, attempt: CallAttempt, tenant: str, user_id: str) -> None:
        return None


class CallReservation:
    """Reservation for one attempt of a call. `close` must be called when the call ends, however it ends."""

    def __init__(
        self, client: BudgetClient, clock_ms: Callable[[], int], attempt: CallAttempt, tenant: str, user_id: str
    ) -> None:
        self.was_sent = False
        """Whether the provider may have received the request."""
        self._client = client
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
        loop = asyncio.get_running_loop()
        began = loop.time()
        end = began + CAPACITY_WAIT_S
        while True:
            answer = await self._request_reservation(worst)
            if isinstance(answer, BudgetReserved) or self._id in self._client.board.books.open:
                self._is_reserved = True
                return None
            if answer is None or answer.code == "late":
                if loop.time() >= began + BUDGET_WAIT_S:
                    raise BudgetUnavailable(f"the budget partition has not replied within {BUDGET_WAIT_S:g} s")
                end = loop.time() + CAPACITY_WAIT_S
            elif answer.may_fit and loop.time() < end:
                await self._wait_for_capacity(worst, end)
            elif answer.code == "over_limit":
                return notice_of(answer, tokens=worst.tokens, micros=worst.micros)
            else:
                raise BudgetUnavailable(f"the budget partition refused {self._id}: {answer.code}")

    async def _request_reservation(self, worst: WorstCase) -> BudgetReserved | BudgetRefused | None:
        """Return the reply of the budget owner; None when there is none in time. Raises BudgetUnavailable."""
        command = ReserveBudget(
            envelope=self._client.envelope(self._tenant),
            id=self._id,
            user_id=self._user_id,
            tokens=worst.tokens,
            micros=worst.micros,
            deadline_ms=self._clock_ms() + int(RESERVE_WAIT_S * 1000),
        )
        try:
            answer = await self._client.request(command, wait_s=RESERVE_WAIT_S)
        except BudgetClientBusy as error:
            raise BudgetUnavailable(str(error)) from error
        event = answer[0] if answer is not None else None
        return event if isinstance(event, BudgetReserved | BudgetRefused) else None

    async def _wait_for_capacity(self, worst: WorstCase, end: float) -> None:
        """Wait until the call may fit, can never fit, or the time is up."""
        board = self._client.board
        try:
            async with asyncio.timeout_at(end):
                while True:
                    await board.wait_for()
                    exceeded = find_exceeded_limit(board.books, self._tenant, self._user_id, worst.tokens, worst.micros)
                    if exceeded is None or not exceeded.may_fit:
                        return
        except TimeoutError:
            return  # the budget owner decides

    def _settle_lost_attempts(self) -> None:
        """Settle the open attempts of this step as lost: their owner died before it settled them."""
        opened = self._client.board.books.open
        for attempt in range(1, self._attempt.attempt):
            earlier = replace(self._attempt, attempt=attempt).id
            if earlier in opened:
                self._client.publish(self._settlement(earlier, lost=True))

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
            await self._client.request(command, wait_s=SETTLE_WAIT_S)
        except BudgetClientBusy as error:
            raise BudgetUnavailable(str(error)) from error
        return passed_soft_limits(self._client.board.books, self._tenant, self._user_id, self._clock_ms())

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
            self._client.publish(self._settlement(self._id, lost=True))
        else:
            self._release()

    def _release(self) -> None:
        self._is_closed = True
        self._client.publish(ReleaseBudget(envelope=self._client.envelope(self._tenant), id=self._id))

    def _settlement(self, call: str, *, tokens: int = 0, micros: int = 0, lost: bool = False) -> SettleBudget:
        return SettleBudget(
            envelope=self._client.envelope(self._tenant),
            id=call,
            user_id=self._user_id,
            tokens=tokens,
            micros=micros,
            lost=lost,
            reserved=self._is_reserved or lost,
        )


def may_be_billed(error: ConnectorError) -> bool:
    """Return whether a provider that did not answer may have computed something. One that sent a status did not."""
    return error.status == 0 and error.kind in BILLABLE_FAILURES
