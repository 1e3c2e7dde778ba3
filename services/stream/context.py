"""What the owners of a process share, what a family keeps for each partition, and what is counted.

Before: a service's main makes the Workplace and says how a Desk is made. After: services/stream/ownership/owner.py and
services/stream/ownership/leadership.py work with both.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from loomlog.connectors.protocols import LogAppender, LogRanges, LogRecord
from loomlog.schemas.codec import Codec
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.effect_calls import EffectRunner
from loomlog.services.stream.family import Family, Topics
from loomlog.services.stream.histogram import SECONDS, Histogram
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates
from loomlog.services.stream.partition.partition import Aggregate, Partition, PartitionObserver
from loomlog.services.stream.snapshots.snapshots import Snapshots


@dataclass(slots=True)
class PendingDecision:
    """A command made ready. `order` is called at the moment of deciding, so that it sees what is live then.

    `aggregate` None: the command has no place any more (its run is over or never was) and is done with.
    """

    aggregate: Aggregate | None
    command: Callable[[], Any] | None = None
    cause_id: str = ""
    allowed_in_quarantine: bool = False
    """The order is one for aggregates that stand still."""


class CommandHandler(PartitionObserver, Protocol):
    """What a family keeps for each partition it owns: it watches decisions and turns commands into orders."""

    @property
    def issued_until_ms(self) -> int:
        """No aggregate that is over is known to have been ordered after this, by the clock of who ordered it."""
        ...

    async def prepare(self, record: LogRecord, command: Any, partition: Partition) -> PendingDecision:
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

    def aggregate_closed(self) -> None:
        """The partition is not held any more; nothing of this desk is asked again."""

    def wide_pauses_command(self, aggregate: Aggregate) -> Any:
        """The order that something wider than the aggregate gives it now, obeyed already or not; None without one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostContext:
    """What every owner of a process shares."""

    family: Family
    codec: Codec
    topics: Topics
    appender: LogAppender
    ranges: LogRanges
    snapshots: Snapshots
    ended_aggregates: EndedAggregates
    dead_letters: DeadLetters
    effect_runner: EffectRunner
    make_handler: Callable[[int, int, int, int], CommandHandler]
    """Makes the family's desk for (partition, term, known_since_ms, forgotten_until): aggregates that ended before that
    time and below that offset are in the index only."""
    clock_ms: Callable[[], int]
    name: str
    """Name of this process in Claims and logs."""
    liveness_address: str = ""
    """By which others learn of its death; empty: they do not."""


@dataclass(slots=True)
class HostMetrics:
    """Counts since the start of the process."""

    claims_for: Counter[str] = field(default_factory=Counter)
    """Partitions taken, by the reason."""
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
