"""The books in a simulated runtime process: the real accounts and reservations, and the real host of entities beside
that of its runs, in one Host, as services/runtime/main.py puts them together. Only the call in the middle is scripted.

Rows of resting entities are folded from the log, a round trip away.

Before: owners.py makes one in the seeds with a limit. After: ledger.py checks what is in the log.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace as replace_edges
from random import Random
from types import SimpleNamespace
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
from loomlog.services.families.budget import FAMILY
from loomlog.services.families.budget.accounts import BudgetAccounts
from loomlog.services.families.budget.reservations import BudgetReservations
from loomlog.services.families.ports.call_budgets import BudgetUnavailable, CallAttempt, CallReservation, WorstCase
from loomlog.services.runtime.models.worst_case import total_tokens
from loomlog.services.runtime.run_host import StandbyEdges, StandbyReaders, build_standby
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.entities.answers import Answer
from loomlog.services.stream.entities.families import EntityFamilies, FamilySet
from loomlog.services.stream.entities.hosting import HostedEntities, build_entity_parts
from tests.services.stream.entities.world import FoldedRows
from tests.simulation.broker import Tail, Wire
from tests.simulation.ledger import USED, WORST
from tests.simulation.log import ENTITIES, TOPICS, Record, SimulatedLog

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
    envelope = CommandEnvelope(command_id="limit", tenant="", subject="root", issued_at_ms=0)
    return SetLimit(
        envelope=envelope,
        tenant=tenant,
        scope="tenant",
        scope_id=tenant,
        strict=kind == "strict",
        currency="USD",
        **amounts,
    )


class Rows(FoldedRows):
    """The read model, as far away as a database."""

    def __init__(self, wire: Wire, family: EntityFamilies) -> None:
        super().__init__(SimpleNamespace(records=LogRecords(wire.log)), family)  # type: ignore[arg-type]  # all it uses
        self._wire = wire

    async def next_offset(self, partition: int) -> int:
        await self._wire.round_trip("rows of entities")
        return await super().next_offset(partition)

    async def due_timers(self, partition: int, before_ms: int, limit: int) -> list[tuple[str, int]]:
        await self._wire.round_trip("timers of entities")
        return []  # budgets never rest


class LogRecords:
    """The records of a log by topic and partition."""

    def __init__(self, log: SimulatedLog) -> None:
        self._log = log

    def __getitem__(self, place: tuple[str, int]) -> list[Record]:
        return self._log.records(*place)


class Books:
    """Of one process. `run` is what it does beside its runs; `spending` what its calls and starts ask."""

    def __init__(
        self,
        wire: Wire,
        *,
        partitions: int,
        clock_ms: Callable[[], int],
        dead_letters: DeadLetters,
        standby: StandbyEdges,
        ordered: Callable[[Any], None],
    ) -> None:
        """`ordered` sees every command that the process gives."""
        codec, name = local_codec(), wire.process.name
        tokens = iter(range(1 << 30))
        self._wire = wire
        self._clock_ms = clock_ms
        self._partitions = partitions
        rows = Rows(wire, EntityFamilies(FamilySet([FAMILY])))
        self.parts = build_entity_parts(
            [FAMILY], codec, appender=wire, ranges=wire, partitions=partitions, topics=ENTITIES, rows=rows
        )
        ask = self.parts.client.ask

        async def seen(command: Any, *, wait_s: float) -> Answer:
            ordered(command)
            return await ask(command, wait_s=wait_s)

        self.parts.client.ask = seen  # type: ignore[method-assign]
        accounts = BudgetAccounts(
            self.parts, clock_ms=clock_ms, fresh_token=lambda: f"{name}-{next(tokens)}", name=name
        )
        self.spending = BudgetReservations(accounts, clock_ms)
        commands = self._tail(ENTITIES.commands)
        commands.pause(range(partitions))
        events = self._tail(ENTITIES.events)
        events.pause(range(partitions))
        edges = replace_edges(standby, readers=StandbyReaders(tail=events, ranges=wire))
        self.entities = HostedEntities(
            self.parts,
            codec,
            appender=wire,
            ranges=wire,
            commands=commands,
            dead_letters=dead_letters,
            rows=rows,
            run_topics=TOPICS,
            clock_ms=clock_ms,
            name=name,
            liveness_address=standby.liveness_address,
            make_standby=lambda context: build_standby(context, edges),
        )

    def _tail(self, topic: str) -> Tail:
        return Tail(self._wire, topic, dict.fromkeys(range(self._partitions), 0))

    async def beside(self, work: Awaitable[None]) -> None:
        """The work, once the books are read, and everything about the books."""
        replicas = self.parts.replicas
        while True:
            try:
                await replicas.open()
                break
            except Transient:
                await asyncio.sleep(OPEN_AGAIN_S)  # the real process ends, and is started again
        async with asyncio.TaskGroup() as group:
            group.create_task(replicas.follow(self._tail(ENTITIES.events)))
            group.create_task(self.entities.run())
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
