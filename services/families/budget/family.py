"""The budget family for the generic loop: the functions of services/families/budget, and a command handler that adds
the time.

The family has one partition and one aggregate, which never ends and has no effects. Every reader of budgets folds the
same events with it (replica.py), so it is here and not in the process that owns the partition.

Before: loom.budget.commands. After: services/stream/partition/command_intake.py has it decided, replica.py reads.
"""

import zlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from loomlog.connectors.protocols import LogRecord
from loomlog.schemas.generated.budget_commands import (
    Command,
    ReleaseBudget,
    RemoveLimit,
    ReserveBudget,
    SetLimit,
    SettleBudget,
)
from loomlog.schemas.generated.budget_events import BudgetQuarantined, Event
from loomlog.schemas.reader import RawEvent
from loomlog.schemas.records import Record, replace
from loomlog.services.core.canonical import StateCodec, UnreadableState
from loomlog.services.families.budget import limits
from loomlog.services.families.budget.commands import (
    BudgetCommandInput,
    BudgetRequest,
    BudgetTimerFired,
)
from loomlog.services.families.budget.decide import decide, next_timer_at
from loomlog.services.families.budget.state import REDUCER_VERSION, BudgetState, evolve
from loomlog.services.stream.context import NothingRests, PendingDecision, TimerIntake
from loomlog.services.stream.family import NO_EFFECTS, NO_LINEAGE, NO_LOCAL_EFFECTS, Topics
from loomlog.services.stream.partition.asked import AskedRecord
from loomlog.services.stream.partition.fold import Fold
from loomlog.services.stream.partition.partition import Aggregate, Decision, Partition

FAMILY = "budget"
AGGREGATE = "budget"
KEY = b"budget"
PARTITION = 0
"""The only partition of the topics: one order for all accounts."""
PACKING = 1
"""zlib level: field names repeat in every account, which even the fastest level compresses."""


class BudgetStateCodec(StateCodec):
    """Codec of the budget state. Compressed, because it is one state of up to some megabytes of text."""

    def __init__(self) -> None:
        super().__init__(BudgetState)

    def encode(self, state: Any) -> bytes:
        return zlib.compress(super().encode(state), PACKING)

    def decode(self, data: bytes) -> Any:
        try:
            books = super().decode(zlib.decompress(data))
        except zlib.error as error:
            raise UnreadableState(str(error)) from error
        # Canonical bytes are sorted by name; decide needs the order of expiry.
        opened = sorted(books.open.items(), key=lambda item: item[1].expires_at_ms)
        return replace(books, open=dict(opened))


class BudgetFamily:
    """Protocol loomlog.services.stream.family.Family for the budget state."""

    name = FAMILY
    reducer_version = REDUCER_VERSION
    endings: frozenset[str] = frozenset()
    restatements: frozenset[str] = frozenset()
    effects = NO_EFFECTS
    lineage = NO_LINEAGE
    local = NO_LOCAL_EFFECTS
    states: StateCodec = BudgetStateCodec()

    def absent(self, aggregate: str) -> BudgetState:
        return BudgetState()

    def before(self, aggregate: str, seq: int) -> BudgetState:
        raise AssertionError("budgets have no restatements")

    def evolve(self, state: BudgetState, event: Event, at_ms: int) -> BudgetState:
        return evolve(state, event, at_ms)

    def decide(self, state: BudgetState, order: BudgetCommandInput) -> list[Event]:
        return decide(state, order)

    def next_timer_at(self, state: BudgetState) -> int:
        return next_timer_at(state)

    def timer_fired(self, at_ms: int) -> BudgetTimerFired:
        return BudgetTimerFired(at_ms=at_ms)

    def is_ended(self, state: BudgetState) -> bool:
        return False

    def quarantined(self, state: BudgetState) -> str:
        # Only one owner stops at a bug: without budgets nothing could be spent, so the next owner tries again.
        return ""

    def quarantine(self, error: str, topic: str, offset: int) -> Record:
        return BudgetQuarantined(error=error, record_topic=topic, record_offset=offset)

    def traceparent(self, state: BudgetState) -> str:
        return ""


class BudgetCommandHandler(NothingRests):
    """Command handler of the one partition (protocol CommandHandler): commands need the time and nothing else."""

    issued_until_ms = 0

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms

    async def prepare(self, record: LogRecord | AskedRecord, command: Command, partition: Partition) -> PendingDecision:
        wrong = _command_error(command)
        if wrong:
            raise ValueError(wrong)  # a malformed command must not quarantine the budget state
        books = partition.aggregates.get(AGGREGATE)
        if books is None:
            books = Aggregate(id=AGGREGATE, state=BudgetState(), key=KEY, tenant="")

        def order() -> BudgetRequest:
            return BudgetRequest(at_ms=self._clock_ms(), command=command)

        return PendingDecision(books, order, command.envelope.command_id)

    def timer_of_absent(self, name: str, intake: TimerIntake) -> None: ...

    async def live(self, fold: Fold, load: Callable[[Aggregate], Awaitable[None]]) -> list[Aggregate]:
        async def no_history(event: Event) -> None:
            return None

        return await fold.live(no_history, self.folded)

    async def prepare_local_effect(
        self, aggregate: Aggregate, effect: Any, state: Any, partition: Partition
    ) -> tuple[PendingDecision, ...]:
        return ()

    def aggregate_closed(self) -> None: ...

    def wide_pauses_command(self, aggregate: Aggregate) -> None:
        return None

    def to_snapshot_state(self, aggregate: Aggregate, events: Sequence[Any]) -> Sequence[Any]:
        return events

    def decided(self, aggregate: Aggregate, event: Any) -> None: ...

    def durable(self, aggregate: Aggregate, decision: Decision) -> None: ...

    def ended_found(self, first: RawEvent, last: RawEvent) -> None: ...

    def folded(self, aggregate: Aggregate, event: Any, at_ms: int) -> None: ...

    def live_found(self, aggregate: Aggregate) -> None: ...


def _command_error(command: Any) -> str:
    """Return why a command is not acceptable for the budget family; empty if it is."""
    match command:
        case SetLimit() | RemoveLimit():
            return ""  # refused with a message by decide.py
        case ReserveBudget() | SettleBudget():
            amounts = (command.tokens, command.micros)
            if any(not 0 <= amount <= limits.CALL_AMOUNT_MAX for amount in amounts):
                return f"{amounts} tokens and micros: expected 0 to {limits.CALL_AMOUNT_MAX} of each"
            names = (command.id, command.user_id, command.envelope.tenant)
            too_long = [name for name in names if len(name) > limits.CALL_ID_MAX]
            return f"{too_long[0][:40]!r}... has more than {limits.CALL_ID_MAX} characters" if too_long else ""
        case ReleaseBudget():
            return ""
        case _:
            return f"a {type(command).__name__} is no command for the books"


def topics_of(prefix: str = "loom") -> Topics:
    """Return the topics of the family."""
    return Topics.of(FAMILY, prefix)
