"""What a model call may cost is set aside before it is made, and what it did cost is told after it.

    hold      whether any limit applies; None for most runs, which then cost nothing here
    reserve   the worst case, or the limit that forbids the call
    settle    what the call used; the soft limits that are reached now

Between the two nobody else can spend what is set aside, on whichever runtime. How a call ends that brings no answer:

    the provider refused it, or could not be reached    released: nothing was computed
    it broke off, timed out, was cancelled, its owner died   lost: counts as reserved, since it may be billed

An answer whose tokens the provider did not count is lost in the same sense: it was not free.

The answer is told before its run hears of it, so a caller who has seen a run end finds it counted. When an owner dies
the next one makes another attempt, and first has the earlier ones counted as lost.

A limit holds from the moment on at which somebody was told that it is set. Whether any applies is asked of the board,
which may be behind, so two things make it catch up first: a start whose sender knows more limits than it, and a
partition that was taken over, whose runs began under the limits that another process knew.

The worst case must be one: every token has at least a byte, so the bytes of a request are never fewer than its tokens;
what can come back is max_tokens, which is set for calls that set none.

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
"""How long one question to the books waits. Longer than their owner's death takes to be noticed."""
BUDGET_WAIT_S = 60.0
"""How long a call waits for books that do not answer, asking again; then it has failed. Nothing is spent meanwhile."""
RETRY_S = 0.2
"""After the log has not said how far the books are."""
CAPACITY_WAIT_S = 30.0
"""How long a call waits that would fit if calls under way had ended; after that the limit stands."""
SETTLE_WAIT_S = 5.0
"""How long an answer waits until it is counted. It is in the log of commands by then, so only notices may be missed."""
DEFAULT_MAX_TOKENS = 8_192
"""What a call may bring back under a limit when its agent says nothing, so that there is a worst case."""
BILLABLE_FAILURES = frozenset({"broken_off", "timeout"})
"""Kinds of failures after which a provider may have computed something."""


class BudgetUnavailable(Transient):
    """Nobody says whether the call may be made. No fault of its provider, so nothing else is tried either."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="unavailable")


class WorstCase(Value, frozen=True):
    """The most a call can use: tokens of all kinds, and millionths of the currency (0 without a price)."""

    tokens: int
    micros: int


def worst_case(request: ModelRequest, price: Price | None, max_context_tokens: int) -> WorstCase:
    """Of a request that says what it may bring back. `max_context_tokens` 0: the model's window is not known."""
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
    """Of all kinds, as limits count them."""
    return usage.input_tokens + usage.output_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens


class CallAttempt(Value, frozen=True):
    """An attempt of a call: its run, its step (the turn, or which compaction) and its number, from 1."""

    run_id: str
    step: str
    attempt: int

    @property
    def id(self) -> str:
        """Its name in the books."""
        return f"{self.run_id}:{self.step}.{self.attempt}"


class BudgetReservations:
    """Of one process."""

    def __init__(self, client: BudgetClient, clock_ms: Callable[[], int]) -> None:
        self._client = client
        self._clock_ms = clock_ms
        self._takeovers = 0
        self._known_takeovers = 0
        """How many of those take-overs the board has caught up after."""

    def on_takeover(self) -> None:
        """A partition is this process's now: its runs may be under limits that the board has not read."""
        self._takeovers += 1

    def _may_miss_limits(self, books_offset: int) -> bool:
        """Whether there may be limits that the board has not read and that have to hold."""
        return self._known_takeovers < self._takeovers or self._client.board.next_offset < books_offset

    async def wait_for_limits(self, books_offset: int = 0) -> None:
        """Until every limit is known that a sender who was at that offset knows, and every one of before a take-over.

        Usually at once. An offset that the books do not have means their end. Raises BudgetUnavailable when the log has
        not answered for BOOKS_WAIT_S: a broker that is away for a moment must not cost a call an attempt.
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
        """A call's, when any limit applies to it that is known; `caught_up` comes first."""
        if not self._client.board.applies(tenant, user_id):
            return None
        return CallReservation(self._client, self._clock_ms, attempt, tenant, user_id)

    def may_be_limited(self, tenant: str, user_id: str, books_offset: int = 0) -> bool:
        """Whether any limit applies, or may apply, to a run of that user that somebody starts who is at that offset."""
        return self._client.board.applies(tenant, user_id) or self._may_miss_limits(books_offset)

    async def exhausted_limit(self, tenant: str, user_id: str) -> LimitNotice | None:
        """The hard limit under which nothing is left now, whoever spent it. Raises BudgetUnavailable."""
        await self._catch_up()
        return exhausted(self._client.board.books, tenant, user_id, self._clock_ms())


class CallBudgets(Protocol):
    """What model calls need of Spending."""

    async def wait_for_limits(self, books_offset: int = 0) -> None: ...
    def reservation_for(self, attempt: CallAttempt, tenant: str, user_id: str) -> "CallReservation | None": ...


class StartBudgets(Protocol):
    """What the start of a run needs of Spending, a child's like any other."""

    def on_takeover(self) -> None: ...
    async def wait_for_limits(self, books_offset: int = 0) -> None: ...
    def may_be_limited(self, tenant: str, user_id: str, books_offset: int = 0) -> bool: ...
    async def exhausted_limit(self, tenant: str, user_id: str) -> LimitNotice | None: ...


class NoBudgets:
    """Without limits."""

    async def wait_for_limits(self, books_offset: int = 0) -> None:
        """There is nothing to know."""

    def reservation_for(self, attempt: CallAttempt, tenant: str, user_id: str) -> None:
        return None


class CallReservation:
    """One attempt of a call. `close` at its end, however it ends."""

    def __init__(
        self, client: BudgetClient, clock_ms: Callable[[], int], attempt: CallAttempt, tenant: str, user_id: str
    ) -> None:
        self.was_sent = False
        """The provider may have heard of it."""
        self._client = client
        self._clock_ms = clock_ms
        self._attempt = attempt
        self._tenant = tenant
        self._user_id = user_id
        self._id = attempt.id
        self._is_reserved = False
        self._is_closed = False

    async def reserve(self, worst: WorstCase) -> LimitNotice | None:
        """None: the call may be made. Otherwise the limit that forbids it. Raises BudgetUnavailable."""
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
                    raise BudgetUnavailable(f"nobody has answered for the books within {BUDGET_WAIT_S:g} s")
                end = loop.time() + CAPACITY_WAIT_S
            elif answer.may_fit and loop.time() < end:
                await self._wait_for_capacity(worst, end)
            elif answer.code == "over_limit":
                return notice_of(answer, tokens=worst.tokens, micros=worst.micros)
            else:
                raise BudgetUnavailable(f"the books refused {self._id}: {answer.code}")

    async def _request_reservation(self, worst: WorstCase) -> BudgetReserved | BudgetRefused | None:
        """What the books say; None when they have not in time. Raises BudgetUnavailable."""
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
        """Until it may fit, can never fit, or the time is up."""
        board = self._client.board
        try:
            async with asyncio.timeout_at(end):
                while True:
                    await board.wait_for()
                    found = find_exceeded_limit(board.books, self._tenant, self._user_id, worst.tokens, worst.micros)
                    if found is None or not found.may_fit:
                        return
        except TimeoutError:
            return  # the books have the last word

    def _settle_lost_attempts(self) -> None:
        """Those of this turn that nobody settled: their owner was lost."""
        opened = self._client.board.books.open
        for attempt in range(1, self._attempt.attempt):
            earlier = replace(self._attempt, attempt=attempt).id
            if earlier in opened:
                self._client.publish(self._settlement(earlier, lost=True))

    async def settle(self, tokens: int, micros: int) -> tuple[LimitNotice, ...]:
        """The call has used so much; the soft limits that are reached. 0 tokens: nobody has counted them, so it counts
        as reserved."""
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
        """The call brought no answer."""
        if not self._is_closed and self._is_reserved and not may_be_billed(error):
            self._release()

    def close(self) -> None:
        """Whatever was not said of it until now: lost when it had begun, released when not."""
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
    """Whether the provider may have computed something although it did not answer. One that gave a status did not."""
    return error.status == 0 and error.kind in BILLABLE_FAILURES
