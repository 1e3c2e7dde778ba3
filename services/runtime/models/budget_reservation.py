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
from dataclasses import dataclass, replace
from typing import Protocol

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.models.pricing import Price, cost_micros
from loomlog.connectors.protocols import ModelRequest
from loomlog.schemas.generated.budget_commands import ReleaseBudget, ReserveBudget, SettleBudget
from loomlog.schemas.generated.budget_events import BudgetRefused, BudgetReserved
from loomlog.schemas.generated.values import LimitNotice, Usage
from loomlog.services.families.budget.amounts import exhausted, notice_of, passed, refusal
from loomlog.services.families.budget.client import BudgetClerk, ClerkBusy
from loomlog.services.families.budget.limits import CALL_AMOUNT_MAX

RESERVE_WAIT_S = 10.0
"""How long one question to the books waits. Longer than their owner's death takes to be noticed."""
BOOKS_WAIT_S = 60.0
"""How long a call waits for books that do not answer, asking again; then it has failed. Nothing is spent meanwhile."""
ASK_AGAIN_S = 0.2
"""After the log has not said how far the books are."""
ROOM_WAIT_S = 30.0
"""How long a call waits that would fit if calls under way had ended; after that the limit stands."""
SETTLE_WAIT_S = 5.0
"""How long an answer waits until it is counted. It is in the log of commands by then, so only notices may be missed."""
MAX_TOKENS_UNSAID = 8_192
"""What a call may bring back under a limit when its agent says nothing, so that there is a worst case."""
MAY_BE_BILLED = frozenset({"broken_off", "timeout"})
"""Kinds of failures after which a provider may have computed something."""


class BooksAway(Transient):
    """Nobody says whether the call may be made. No fault of its provider, so nothing else is tried either."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="unavailable")


@dataclass(frozen=True, slots=True)
class Worst:
    """The most a call can use: tokens of all kinds, and millionths of the currency (0 without a price)."""

    tokens: int
    micros: int


def worst_case(request: ModelRequest, price: Price | None, max_context_tokens: int) -> Worst:
    """Of a request that says what it may bring back. `max_context_tokens` 0: the model's window is not known."""
    assert request.max_tokens > 0, "without max_tokens there is no worst case"
    sent = len(repr((request.system, request.messages, request.tools)).encode(errors="replace"))
    if max_context_tokens:
        sent = min(sent, max_context_tokens)
    micros = 0
    if price is not None:
        dearest = Price(input=max(price.input, price.cache_write, price.cache_read), output=price.output)
        micros = cost_micros(dearest, Usage(input_tokens=sent, output_tokens=request.max_tokens)) + 1
    return Worst(min(sent + request.max_tokens, CALL_AMOUNT_MAX), min(micros, CALL_AMOUNT_MAX))


def tokens_of(usage: Usage) -> int:
    """Of all kinds, as limits count them."""
    return usage.input_tokens + usage.output_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens


@dataclass(frozen=True, slots=True)
class CallPlace:
    """An attempt of a call: its run, its step (the turn, or which compaction) and its number, from 1."""

    run_id: str
    step: str
    attempt: int

    @property
    def id(self) -> str:
        """Its name in the books."""
        return f"{self.run_id}:{self.step}.{self.attempt}"


class Spending:
    """Of one process."""

    def __init__(self, clerk: BudgetClerk, clock_ms: Callable[[], int]) -> None:
        self._clerk = clerk
        self._clock_ms = clock_ms
        self._taken_over = 0
        self._known_until = 0
        """How many of those take-overs the board has caught up after."""

    def taken_over(self) -> None:
        """A partition is this process's now: its runs may be under limits that the board has not read."""
        self._taken_over += 1

    def _may_miss_some(self, books_offset: int) -> bool:
        """Whether there may be limits that the board has not read and that have to hold."""
        return self._known_until < self._taken_over or self._clerk.board.next_offset < books_offset

    async def caught_up(self, books_offset: int = 0) -> None:
        """Until every limit is known that a sender who was at that offset knows, and every one of before a take-over.

        Usually at once. An offset that the books do not have means their end. Raises BooksAway when the log has not
        answered for BOOKS_WAIT_S: a broker that is away for a moment must not cost a call an attempt.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + BOOKS_WAIT_S
        while self._may_miss_some(books_offset):
            try:
                await self._catch_up()
            except BooksAway:
                if loop.time() >= end:
                    raise
                await asyncio.sleep(ASK_AGAIN_S)

    async def _catch_up(self) -> None:
        taken_over = self._taken_over
        try:
            await self._clerk.board.caught_up()
        except Transient as error:
            raise BooksAway(str(error)) from error
        self._known_until = max(self._known_until, taken_over)

    def hold(self, place: CallPlace, tenant: str, user_id: str) -> "Hold | None":
        """A call's, when any limit applies to it that is known; `caught_up` comes first."""
        if not self._clerk.board.applies(tenant, user_id):
            return None
        return Hold(self._clerk, self._clock_ms, place, tenant, user_id)

    def applies(self, tenant: str, user_id: str, books_offset: int = 0) -> bool:
        """Whether any limit applies, or may apply, to a run of that user that somebody starts who is at that offset."""
        return self._clerk.board.applies(tenant, user_id) or self._may_miss_some(books_offset)

    async def exhausted(self, tenant: str, user_id: str) -> LimitNotice | None:
        """The hard limit under which nothing is left now, whoever spent it. Raises BooksAway."""
        await self._catch_up()
        return exhausted(self._clerk.board.books, tenant, user_id, self._clock_ms())


class Budgets(Protocol):
    """What model calls need of Spending."""

    async def caught_up(self, books_offset: int = 0) -> None: ...
    def hold(self, place: CallPlace, tenant: str, user_id: str) -> "Hold | None": ...


class StartBudgets(Protocol):
    """What the start of a run needs of Spending, a child's like any other."""

    def taken_over(self) -> None: ...
    async def caught_up(self, books_offset: int = 0) -> None: ...
    def applies(self, tenant: str, user_id: str, books_offset: int = 0) -> bool: ...
    async def exhausted(self, tenant: str, user_id: str) -> LimitNotice | None: ...


class NoBudgets:
    """Without limits."""

    async def caught_up(self, books_offset: int = 0) -> None:
        """There is nothing to know."""

    def hold(self, place: CallPlace, tenant: str, user_id: str) -> None:
        return None


class Hold:
    """One attempt of a call. `close` at its end, however it ends."""

    def __init__(
        self, clerk: BudgetClerk, clock_ms: Callable[[], int], place: CallPlace, tenant: str, user_id: str
    ) -> None:
        self.begun = False
        """The provider may have heard of it."""
        self._clerk = clerk
        self._clock_ms = clock_ms
        self._place = place
        self._tenant = tenant
        self._user_id = user_id
        self._id = place.id
        self._reserved = False
        self._over = False

    async def reserve(self, worst: Worst) -> LimitNotice | None:
        """None: the call may be made. Otherwise the limit that forbids it. Raises BooksAway."""
        self._count_earlier_attempts()
        loop = asyncio.get_running_loop()
        began = loop.time()
        end = began + ROOM_WAIT_S
        while True:
            answer = await self._ask(worst)
            if isinstance(answer, BudgetReserved) or self._id in self._clerk.board.books.open:
                self._reserved = True
                return None
            if answer is None or answer.code == "late":
                if loop.time() >= began + BOOKS_WAIT_S:
                    raise BooksAway(f"nobody has answered for the books within {BOOKS_WAIT_S:g} s")
                end = loop.time() + ROOM_WAIT_S
            elif answer.may_fit and loop.time() < end:
                await self._room(worst, end)
            elif answer.code == "over_limit":
                return notice_of(answer, tokens=worst.tokens, micros=worst.micros)
            else:
                raise BooksAway(f"the books refused {self._id}: {answer.code}")

    async def _ask(self, worst: Worst) -> BudgetReserved | BudgetRefused | None:
        """What the books say; None when they have not in time. Raises BooksAway."""
        command = ReserveBudget(
            envelope=self._clerk.envelope(self._tenant),
            id=self._id,
            user_id=self._user_id,
            tokens=worst.tokens,
            micros=worst.micros,
            deadline_ms=self._clock_ms() + int(RESERVE_WAIT_S * 1000),
        )
        try:
            answer = await self._clerk.ask(command, wait_s=RESERVE_WAIT_S)
        except ClerkBusy as error:
            raise BooksAway(str(error)) from error
        event = answer[0] if answer is not None else None
        return event if isinstance(event, BudgetReserved | BudgetRefused) else None

    async def _room(self, worst: Worst, end: float) -> None:
        """Until it may fit, can never fit, or the time is up."""
        board = self._clerk.board
        try:
            async with asyncio.timeout_at(end):
                while True:
                    await board.grown()
                    found = refusal(board.books, self._tenant, self._user_id, worst.tokens, worst.micros)
                    if found is None or not found.may_fit:
                        return
        except TimeoutError:
            return  # the books have the last word

    def _count_earlier_attempts(self) -> None:
        """Those of this turn that nobody settled: their owner was lost."""
        opened = self._clerk.board.books.open
        for attempt in range(1, self._place.attempt):
            earlier = replace(self._place, attempt=attempt).id
            if earlier in opened:
                self._clerk.post(self._settle(earlier, lost=True))

    async def settle(self, tokens: int, micros: int) -> tuple[LimitNotice, ...]:
        """The call has used so much; the soft limits that are reached. 0 tokens: nobody has counted them, so it counts
        as reserved."""
        self._over = True
        command = (
            self._settle(self._id, tokens=min(tokens, CALL_AMOUNT_MAX), micros=min(micros, CALL_AMOUNT_MAX))
            if tokens
            else self._settle(self._id, lost=True)
        )
        try:
            await self._clerk.ask(command, wait_s=SETTLE_WAIT_S)
        except ClerkBusy as error:
            raise BooksAway(str(error)) from error
        return passed(self._clerk.board.books, self._tenant, self._user_id, self._clock_ms())

    def failed(self, error: Transient | Permanent) -> None:
        """The call brought no answer."""
        if not self._over and self._reserved and not may_be_billed(error):
            self._release()

    def close(self) -> None:
        """Whatever was not said of it until now: lost when it had begun, released when not."""
        if self._over:
            return
        if self.begun:
            self._over = True
            self._clerk.post(self._settle(self._id, lost=True))
        else:
            self._release()

    def _release(self) -> None:
        self._over = True
        self._clerk.post(ReleaseBudget(envelope=self._clerk.envelope(self._tenant), id=self._id))

    def _settle(self, call: str, *, tokens: int = 0, micros: int = 0, lost: bool = False) -> SettleBudget:
        return SettleBudget(
            envelope=self._clerk.envelope(self._tenant),
            id=call,
            user_id=self._user_id,
            tokens=tokens,
            micros=micros,
            lost=lost,
            reserved=self._reserved or lost,
        )


def may_be_billed(error: ConnectorError) -> bool:
    """Whether the provider may have computed something although it did not answer. One that gave a status did not."""
    return error.status == 0 and error.kind in MAY_BE_BILLED
