"""Shared parts of the owners of a process, the command handler of a family, and metrics.

Before: a service's main makes the HostContext and the factory of handlers. After: services/stream/ownership/owner.py
and services/stream/ownership/leadership.py use both.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from loomlog.connectors.protocols import LogAppender, LogRanges, LogRecord
from loomlog.schemas.codec import Codec
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.effect_calls import EffectRunner
from loomlog.services.stream.family import Family, Topics
from loomlog.services.stream.histogram import SECONDS, Histogram
from loomlog.services.stream.partition.asked import AskedRecord
from loomlog.services.stream.partition.fold import Fold
from loomlog.services.stream.partition.partition import Aggregate, Partition, PartitionObserver
from loomlog.services.stream.partition.recovered_state import PartitionFold
from loomlog.services.stream.partition.resting import Resting
from loomlog.services.stream.snapshots.snapshots import RecoveryPoints


@dataclass(slots=True)
class PendingDecision:
    """A prepared command. `command` is called at the moment of deciding, so that it sees what is live then.

    `aggregate` None: the command has no target (its run has ended or never existed) and is handled.
    """

    aggregate: Aggregate | None
    command: Callable[[], Any] | None = None
    cause_id: str = ""
    allowed_in_quarantine: bool = False
    """The command is accepted by quarantined aggregates."""


class TimerIntake(Protocol):
    """services/stream/partition/command_intake.py, for a timer."""

    def ask(self, record: AskedRecord, command: Any) -> None: ...


class NothingRests:
    """The part of a CommandHandler whose aggregates are all in memory."""

    def target(self, record: LogRecord | AskedRecord, command: Any) -> str:
        return ""

    def resting(self, aggregate: Aggregate) -> None:
        return None

    def rested(self, aggregate: Aggregate) -> None:
        raise AssertionError(f"{aggregate.id} must not rest")

    async def refold(self, aggregate: Aggregate) -> Aggregate | str:
        raise AssertionError(f"{aggregate.id} never rests")


class CommandHandler(PartitionObserver, Protocol):
    """What a family keeps for each partition it owns: it observes decisions and prepares commands."""

    @property
    def issued_until_ms(self) -> int:
        """No ended aggregate is known to have been ordered after this time, by the clock of its sender."""
        ...

    async def live(self, fold: Fold, load: Callable[[Aggregate], Awaitable[None]]) -> list[Aggregate]:
        """Return the aggregates that a takeover takes over, from what the fold has read. `load` is StateLoader.load,
        for aggregates whose state is needed. Raises Transient.
        """
        ...

    def target(self, record: LogRecord | AskedRecord, command: Any) -> str:
        """Return the aggregate whose state `prepare` needs, if there is one; empty for none, and if it never rests."""
        ...

    def resting(self, aggregate: Aggregate) -> Resting | None:
        """Return what the aggregate is while it rests; None if it may not rest in its present state."""
        ...

    def rested(self, aggregate: Aggregate) -> None:
        """The aggregate rests from now on."""

    async def refold(self, aggregate: Aggregate) -> Aggregate | str:
        """Fold an aggregate that may rest from its first event; returns the reason if it cannot be. Raises
        Transient.
        """
        ...

    async def prepare(self, record: LogRecord | AskedRecord, command: Any, partition: Partition) -> PendingDecision:
        """The decision to make. Awaits `continue_in_task` before any lookup (partition/lookups.py).

        Raises ConnectorError when a lookup was refused, and is called again then.
        """
        ...

    async def prepare_local_effect(
        self, aggregate: Aggregate, effect: Any, state: Any, partition: Partition
    ) -> Sequence[PendingDecision]:
        """Commands to aggregates of the partition that execute a local effect of the aggregate, in that state.

        Awaits and raises like `prepare`.
        """
        ...

    def timer_of_absent(self, name: str, intake: "TimerIntake") -> None:
        """The timer of an aggregate has fired that is not in memory."""

    def aggregate_closed(self) -> None:
        """The leadership has ended; no method of this handler is called again."""

    def wide_pauses_command(self, aggregate: Aggregate) -> Any:
        """Return the command that pauses wider than the aggregate mean for it now, applied before or not; None without
        one.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostContext:
    """Shared by all owners of a process."""

    family: Family
    codec: Codec
    topics: Topics
    appender: LogAppender
    ranges: LogRanges
    snapshots: RecoveryPoints
    dead_letters: DeadLetters
    effect_runner: EffectRunner
    make_handler: Callable[[PartitionFold, int, int], CommandHandler]
    """Makes the handler for (what was folded, partition, term)."""
    clock_ms: Callable[[], int]
    name: str
    """Name of this process in Claims and logs."""
    liveness_address: str = ""
    """Address of the liveness socket of this process; empty: none."""


@dataclass(slots=True)
class HostMetrics:
    """Counts since the start of the process."""

    claims_for: Counter[str] = field(default_factory=Counter)
    """Claimed partitions, by reason."""
    fenced: int = 0
    unknown_outcomes: int = 0
    commands: int = 0
    refused_records: int = 0
    quarantined: int = 0
    stale_records: int = 0
    takeover_s: Histogram = field(default_factory=lambda: Histogram(SECONDS))

    @property
    def claims(self) -> int:
        return self.claims_for.total()
