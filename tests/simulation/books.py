"""The books in a simulated runtime process: the real board, clerk and holds, and the real host that may own them.

Its host shares the process, the wire and the loop with the one of the runs, as in services/runtime/budget_hosting.py,
and is assigned like it. Only the call in the middle is a script's.

Before: owners.py makes one in the seeds with a limit. After: ledger.py checks what is in the log.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from loomlog.connectors.errors import Transient
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.budget_commands import SetLimit
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import (
    BudgetExceeded,
    ModelAnswered,
    ModelFailed,
    SummaryCompleted,
    SummaryFailed,
)
from loomlog.services.core.run.react import Summarise
from loomlog.services.families.budget.client import BudgetClient
from loomlog.services.families.budget.family import PARTITION
from loomlog.services.runtime.budget_hosting import build_budget_host, build_budget_replica
from loomlog.services.runtime.models.budget_reservation import (
    BudgetReservations,
    BudgetUnavailable,
    CallAttempt,
    CallReservation,
    WorstCase,
    total_tokens,
)
from loomlog.services.stream.dead_letters import DeadLetters
from tests.simulation.broker import Tail, Wire
from tests.simulation.ledger import USED, WORST
from tests.simulation.log import BUDGETS
from tests.simulation.membership import Membership

LIMIT_SHARE = 0.15
"""Of the seeds: those whose tenant has a limit."""
MOST_CALLS = 40
"""A limit is worth at most so many calls: about half of the seeds with one run into it."""
OPEN_AGAIN_S = 0.1


def limit_of(seed: int, tenant: str) -> SetLimit | None:
    """The limit of a seed: in tokens, in tokens that are never exceeded, or in money."""
    random = Random(f"{seed}/limit")
    if random.random() >= LIMIT_SHARE:
        return None
    kind, calls = random.choice(("tokens", "strict", "money")), random.randint(3, MOST_CALLS)
    amounts: dict[str, int] = (
        {"hard_micros": USED[1] * calls}
        if kind == "money"
        else {"hard_tokens": USED[0] * calls, "soft_tokens": USED[0] * calls // 2}
    )
    envelope = CommandEnvelope(command_id="limit", tenant=tenant, subject="root", issued_at_ms=0)
    return SetLimit(
        envelope=envelope,
        tenant=tenant,
        scope="tenant",
        scope_id=tenant,
        strict=kind == "strict",
        currency="USD",
        **amounts,
    )


class Books:
    """Of one process. `run` is what it does beside its runs; `spending` what its calls and starts ask."""

    def __init__(self, wire: Wire, *, clock_ms: Callable[[], int]) -> None:
        codec, name = local_codec(), wire.process.name
        tokens = iter(range(1 << 30))
        self.membership = Membership()
        self._wire = wire
        self._clock_ms = clock_ms
        self._board = build_budget_replica(codec, BUDGETS, appender=wire, ranges=wire)
        self._clerk = BudgetClient(
            self._board,
            wire,
            codec,
            BUDGETS,
            clock_ms=clock_ms,
            fresh_token=lambda: f"{name}-{next(tokens)}",
            name=name,
        )
        self.spending = BudgetReservations(self._clerk, clock_ms)
        commands = Tail(wire, BUDGETS.commands, {PARTITION: 0})
        commands.pause([PARTITION])
        self.host = build_budget_host(
            codec,
            BUDGETS,
            appender=wire,
            ranges=wire,
            commands=commands,
            membership=self.membership,
            dead_letters=DeadLetters(codec, wire, topic=BUDGETS.dead_letters, service=name, clock_ms=clock_ms),
            clock_ms=clock_ms,
            name=name,
        )

    async def beside(self, work: Awaitable[None]) -> None:
        """The work, once the books are read, and everything about the books."""
        while True:
            try:
                await self._board.open()
                break
            except Transient:
                await asyncio.sleep(OPEN_AGAIN_S)  # the real process ends, and is started again
        tail = Tail(self._wire, BUDGETS.events, {PARTITION: self._board.next_offset})
        async with asyncio.TaskGroup() as group:
            group.create_task(self.host.run())
            group.create_task(self._board.follow(tail))
            group.create_task(self._clerk.run())
            await work

    async def paid(self, effect: Any, state: Any, tenant: str, make: Callable[[str], Awaitable[Any]]) -> Any:
        """The call with its worst case set aside, as services/runtime/models/model_calls.py does it. `make` makes it,
        and is told under which name it is in the books; empty when no limit is known."""
        step = f"compact.{effect.number}" if isinstance(effect, Summarise) else str(effect.turn)
        place = CallAttempt(effect.run_id, step, effect.attempt)
        try:
            await self.spending.wait_for_limits()
        except BudgetUnavailable as error:
            return self._unpaid(effect, error.kind, str(error))
        hold = self.spending.reservation_for(place, tenant, state.facts.user_id)
        if hold is None:
            return await make("")
        try:
            refused = await hold.reserve(WorstCase(*WORST))
            if refused is not None:
                if isinstance(effect, Summarise):
                    return self._unpaid(effect, "refused", f"token_limit_exceeded: {refused.message}")
                return BudgetExceeded(at_ms=self._clock_ms(), turn=effect.turn, attempt=effect.attempt, notice=refused)
            hold.was_sent = True
            return await _settled(hold, await make(place.id))
        except BudgetUnavailable as error:
            return self._unpaid(effect, error.kind, str(error))
        finally:
            hold.close()

    def _unpaid(self, effect: Any, kind: str, message: str) -> ModelFailed | SummaryFailed:
        if isinstance(effect, Summarise):
            return SummaryFailed(
                at_ms=self._clock_ms(),
                number=effect.number,
                attempt=effect.attempt,
                kind=kind,
                message=message,
                duration_ms=0,
            )
        return ModelFailed(
            at_ms=self._clock_ms(),
            turn=effect.turn,
            attempt=effect.attempt,
            kind=kind,
            transient=True,
            message=message,
            retry_after_ms=0,
            retries_rate_limits=False,
            duration_ms=0,
        )


async def _settled(hold: CallReservation, said: Any) -> Any:
    match said:
        case ModelAnswered():
            notices = await hold.settle(total_tokens(said.usage), said.cost_micros)
            return replace(said, notices=notices) if notices else said
        case SummaryCompleted():
            await hold.settle(total_tokens(said.usage), said.cost_micros)
        case ModelFailed() | SummaryFailed():
            hold.on_failure(Transient(said.message, kind="overloaded", status=529))
    return said
