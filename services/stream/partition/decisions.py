"""Commands for an aggregate become decisions; failures quarantine one aggregate, and nothing else stops.

All input of an aggregate (commands, results, timers, related runs, pauses) comes through `submit`. A broken rule
quarantines that one aggregate: an event records it, and until it is released nothing is decided in it. An invalid
command is parked with its bytes among the dead letters.

Before: command_intake.py, local_effects.py and services/stream/ownership/leadership.py have a command. After:
partition.py decides, the flusher is woken.
"""

import logging
from typing import Any, Protocol

from loomlog.connectors.protocols import LogRecord
from loomlog.services.stream.context import HostContext, HostMetrics
from loomlog.services.stream.entities.answers import CommandInvalid
from loomlog.services.stream.partition.asked import AskedRecord
from loomlog.services.stream.partition.partition import Aggregate, DecisionTooLarge, Partition
from loomlog.services.stream.partition.timers import Timers

log = logging.getLogger(__name__)


class Wake(Protocol):
    """Flusher.wake."""

    def __call__(self, *, at_once: bool = False) -> None: ...


class DecisionExecutor:
    """Decides in the aggregates of one owned partition."""

    def __init__(
        self, partition: Partition, context: HostContext, *, wake: Wake, timers: Timers, metrics: HostMetrics
    ) -> None:
        self._partition = partition
        self._context = context
        self._wake = wake
        self._timers = timers
        self._metrics = metrics

    def submit(
        self,
        aggregate: Aggregate,
        order: Any,
        *,
        at_ms: int,
        cause_id: str = "",
        record: LogRecord | AskedRecord | None = None,
        is_result: bool = False,
    ) -> bool:
        """Decide; False if nothing follows. `record` is the record of the command."""
        offset = record.offset if record is not None else -1
        is_order = record is not None and aggregate.seq > 0
        try:
            decided = self._partition.submit(
                aggregate, order, at_ms=at_ms, cause_id=cause_id, command_offset=offset, is_result=is_result
            )
        except Exception as error:  # noqa: BLE001 - a broken rule parks one aggregate, never the partition
            self.quarantine(aggregate, error, at_ms=at_ms, cause_id=cause_id, record=record)
            return record is not None  # its dead letter marks the command
        if decided:
            if not is_result:
                self._look_at(aggregate)
            self.set_timer(aggregate)
            self._wake(at_once=is_order)
        return decided

    def set_timer(self, aggregate: Aggregate) -> None:
        """Set the timer of the aggregate's state."""
        at_ms = self._context.family.next_timer_at(aggregate.state)
        if at_ms and at_ms != aggregate.timer_at_ms:
            self._timers.set(at_ms, self._partition.number, aggregate.id)
        aggregate.timer_at_ms = at_ms

    def _look_at(self, aggregate: Aggregate) -> None:
        """Handle a quarantine or release that was decided."""
        before, now = aggregate.quarantined, self._context.family.quarantined(aggregate.state)
        if now and not before:
            self.is_quarantined(aggregate, now)
        aggregate.quarantined = now or (before if aggregate.pending_events else "")

    def is_quarantined(self, aggregate: Aggregate, why: str, error: Exception | None = None) -> None:
        """Count and log a quarantine that is in its state, or will be."""
        self._metrics.quarantined += 1
        log.error(
            "%s %s is quarantined: %s",
            self._context.family.name,
            aggregate.id,
            why,
            exc_info=error,
            extra=self._fields(aggregate),
        )

    def _fields(self, aggregate: Aggregate) -> dict[str, str]:
        tenant = {"tenant": aggregate.tenant} if aggregate.tenant else {}
        return {f"{self._context.family.name}_id": aggregate.id, **tenant}

    def quarantine(
        self,
        aggregate: Aggregate,
        error: Exception,
        *,
        at_ms: int,
        cause_id: str = "",
        record: LogRecord | AskedRecord | None = None,
    ) -> None:
        """Quarantine the aggregate because a rule failed; its command is parked."""
        context, partition, text = self._context, self._partition, f"{type(error).__name__}: {error}"
        if record is not None:
            too_large = isinstance(error, DecisionTooLarge)
            if too_large or not isinstance(record, AskedRecord) or aggregate.id not in partition.aggregates:
                self.refuse(record, "refused" if too_large else "fold_bug", text)
            if too_large:
                return  # the command is invalid; nothing has changed and the aggregate is intact
        self.is_quarantined(aggregate, text, error)
        if aggregate.id not in partition.aggregates:
            return
        topic, offset = (record.topic, record.offset) if record is not None else (context.topics.events, -1)
        aggregate.quarantined = text
        context.effect_runner.stop(aggregate.id)
        try:
            parked = context.family.quarantine(text, topic, offset)
            partition.append(aggregate, [parked], at_ms=at_ms, cause_id=cause_id)
        except Exception:
            text = "%s %s: its quarantine cannot be recorded"
            log.exception(text, context.family.name, aggregate.id, extra=self._fields(aggregate))
        self._wake()

    def refuse(self, record: LogRecord | AskedRecord, kind: str, error: str) -> None:
        """Park a command with its bytes; it counts as handled once the dead letter is in the log."""
        if isinstance(record, AskedRecord):
            record.fail(CommandInvalid(error))
            return
        partition = self._partition
        self._metrics.refused_records += 1
        log.warning("%s/%d offset %d is parked (%s): %s", record.topic, partition.number, record.offset, kind, error)
        self._context.dead_letters.park(
            record, kind=kind, error=error, parked=lambda: partition.progress.mark_handled(record.offset)
        )

    def had_no_effect(self, record: LogRecord | AskedRecord) -> None:
        """A command that changes nothing, because of what was decided before it: handled once that is in the log.

        Not earlier: a partition snapshot may overtake that decision, and an owner that takes over without it would miss
        the command.
        """
        if isinstance(record, AskedRecord):
            return
        partition = self._partition
        partition.on_durable(lambda _: partition.progress.mark_handled(record.offset))
