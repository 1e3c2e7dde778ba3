"""One partition in this process, over several terms: claim it, own it, lose it, claim it again or release it.

The order of a takeover: load the partition snapshot, append a Claim, read up to it, fold, recover the calls under way,
and only then read commands. The state under one Claim is a Leadership. A PartitionOwner outlives it: calls under way
continue while the partition is claimed again, and their results are kept for the next leadership.

Before: assignment.py creates it, services/stream/host.py reads its commands. After: takeover.py folds, leadership.py
owns.
"""

import logging
import time
from collections.abc import Awaitable, Callable

from loomlog.services.stream.context import CommandHandler, HostContext, HostMetrics
from loomlog.services.stream.ownership.inbox import Asked, CallReturned, Message
from loomlog.services.stream.ownership.leadership import Leadership
from loomlog.services.stream.ownership.takeover import Takeover
from loomlog.services.stream.partition.asked import OwnerLost
from loomlog.services.stream.partition.decisions import Wake
from loomlog.services.stream.partition.partition import Partition
from loomlog.services.stream.partition.recovered_state import PartitionFold
from loomlog.services.stream.partition.resting import StateLoader
from loomlog.services.stream.partition.timers import Timers

log = logging.getLogger(__name__)

PREDECESSOR_ALIVE_MS = 1_500
"""A newly assigned partition whose last record is younger has a former owner that may be alive: a group takes a session
(3 s, less at most a heartbeat of 1 s) to notice a dead one, whose last record is older than this.
"""


class PartitionOwner:
    """Owns one partition: it has a leadership, or is about to claim it. Messages in between are not lost."""

    def __init__(self, number: int, context: HostContext, *, wake: Wake, timers: Timers, metrics: HostMetrics) -> None:
        self.number = number
        self.claimed_at_s = 0.0
        """Time of the last claim, monotonic."""
        self.snapshotted_at_s = 0.0
        """Time of the last claim or partition snapshot, monotonic."""
        self.context = context
        self._wake = wake
        self._timers = timers
        self._metrics = metrics
        self._leadership: Leadership | None = None
        self._late: list[CallReturned] = []
        """Results that returned or were not recorded while there was no leadership."""

    @property
    def partition(self) -> Partition | None:
        """None while it is being claimed and after it was lost."""
        return self._leadership.partition if self._leadership is not None else None

    @property
    def handler(self) -> CommandHandler | None:
        """The command handler of the leadership; None without one."""
        return self._leadership.handler if self._leadership is not None else None

    @property
    def is_settled(self) -> bool:
        """Everything decided is in the log, and no result waits for the next claim."""
        return not self._late if self._leadership is None else self._leadership.partition.is_idle

    @property
    def waiting_commands(self) -> int:
        """Commands held back by a lookup; 0 without a leadership."""
        return self._leadership.intake.waiting_count if self._leadership is not None else 0

    @property
    def issued_until_ms(self) -> int:
        """Value of the command handler; 0 without a leadership."""
        return self._leadership.handler.issued_until_ms if self._leadership is not None else 0

    @property
    def has_idle(self) -> bool:
        """Whether aggregates might rest that do not yet."""
        return self._leadership is not None and self._leadership.has_idle

    @property
    def unsaved_idle(self) -> int:
        """Number of aggregates that may rest after the next partition snapshot, at the last look."""
        return self._leadership.unsaved_idle if self._leadership is not None else 0

    def let_idle_rest(self, *, is_due: bool = True) -> int:
        """Let aggregates rest that nothing happens in; returns how many. See Leadership."""
        return self._leadership.let_idle_rest(is_due=is_due) if self._leadership is not None else 0

    # --- claim and release -------------------------------------------------------------------------------------------

    async def claim(
        self,
        reason: str,
        folded: PartitionFold | None = None,
        before: Callable[[str], Awaitable[None]] | None = None,
    ) -> int:
        """Claim the partition; returns the offset from which commands are to be read. Raises Transient or
        UnknownOutcome.

        `folded` is a standby's fold of it; without, it is folded from the latest partition snapshot on. `before`
        receives the liveness address of the present owner, if it has one, and the Claim waits for it.
        """
        context, began_s = self.context, time.monotonic()
        self.drop()
        context.effect_runner.partition_reacquired(self.number)
        folded, last_ms = await Takeover(self.number, context).claim_and_fold(reason, folded, before)
        fold = folded.fold
        term = fold.reader.term
        for problem in fold.problems:
            log.error(
                "%s partition %d offset %d: %s", context.family.name, self.number, problem.record.offset, problem.error
            )
            context.dead_letters.park(problem.record, kind="undecodable", error=problem.error)
        handler = context.make_handler(folded, self.number, term)
        partition = Partition(
            number=self.number,
            term=term,
            next_offset=term + 1,
            family=context.family,
            codec=context.codec,
            observer=handler,
            progress=folded.progress,
            events_topic=context.topics.events,
        )
        partition.events_since_checkpoint = fold.events
        for first_event, last_event in fold.over.values():
            handler.ended_found(first_event, last_event)
        loader = StateLoader(self.number, context.family, context.snapshots, handler.refold)
        live = await handler.live(fold, loader.load)
        self._leadership = Leadership(
            partition, handler, context, loader=loader, wake=self._wake, timers=self._timers, metrics=self._metrics
        )
        may_be_alive = reason == "assigned" and context.clock_ms() - last_ms < PREDECESSOR_ALIVE_MS
        late, self._late = self._late, []
        self._leadership.begin(live, late, may_be_alive=may_be_alive)
        self.claimed_at_s = self.snapshotted_at_s = time.monotonic()
        took_s = self.claimed_at_s - began_s
        self._metrics.claims_for[reason] += 1
        self._metrics.stale_records += fold.reader.stale
        self._metrics.takeover_s.observe(took_s)
        log.info(
            "%s partition %d taken (%s) in %.0f ms: term %d, %d events folded, %d live",
            context.family.name,
            self.number,
            reason,
            took_s * 1000,
            term,
            fold.events,
            len(live),
        )
        self._wake()
        return partition.progress.low

    def drop(self) -> None:
        """Discard the state of the partition; calls under way continue and their results wait for the next claim.

        So do results that were decided on and may not be in the log: given again, they change nothing if they are.
        """
        leadership, self._leadership = self._leadership, None
        if leadership is not None:
            self._late += leadership.end()

    def release(self) -> None:
        """Release the partition: results of its calls are forwarded from now on."""
        calls = self.context.effect_runner
        self.drop()
        calls.partition_released(self.number)
        late, self._late = self._late, []
        for returned in late:
            assert calls.group is not None, "owners work inside the host's task group"
            calls.group.create_task(calls.forward_result(returned.aggregate, returned.tenant, returned.result))

    # --- messages ----------------------------------------------------------------------------------------------------

    def deliver(self, message: Message) -> None:
        """Hand a message to the leadership. While the partition is being claimed, results are kept for it.

        The rest is dropped then: a claim reads commands from the first unhandled one, and finds timers, local effects,
        unstarted calls and wide pauses in what it folds.
        """
        if self._leadership is not None:
            self._leadership.receive(message)
        elif isinstance(message, CallReturned):
            self._late.append(message)
        elif isinstance(message, Asked):
            message.record.fail(OwnerLost(f"partition {self.number} is being claimed"))
