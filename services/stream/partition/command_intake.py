"""Commands of one owned partition are prepared and decided, in order for each key, also if one has to wait for a
lookup.

Most commands are prepared at once. One that needs a lookup (a definition, a run that ended long ago, the state of a run
that rests) waits in a task of its own; those behind it with the same key wait too, and other keys continue. The order
is by key and not by aggregate, because a start may concern the run before it in its session.

Before: services/stream/host.py reads the commands topic. After: the command handler prepares, decisions.py decides.
"""

from collections import deque
from typing import Any

from loomlog.connectors.protocols import LogRecord
from loomlog.schemas.codec import Undecodable, UnknownSchema
from loomlog.services.stream.context import CommandHandler, HostContext, HostMetrics, PendingDecision
from loomlog.services.stream.partition.asked import AskedRecord
from loomlog.services.stream.partition.decisions import DecisionExecutor
from loomlog.services.stream.partition.lookups import PendingLookups, continue_in_task
from loomlog.services.stream.partition.partition import Partition
from loomlog.services.stream.partition.resting import StateLoader, is_resting


class CommandIntake:
    """Takes the commands of one partition under one leadership."""

    def __init__(
        self,
        partition: Partition,
        handler: CommandHandler,
        context: HostContext,
        *,
        executor: DecisionExecutor,
        lookups: PendingLookups,
        loader: StateLoader,
        metrics: HostMetrics,
    ) -> None:
        self._partition = partition
        self._handler = handler
        self._context = context
        self._executor = executor
        self._lookups = lookups
        self._loader = loader
        self._metrics = metrics
        self._behind: dict[bytes, deque[tuple[LogRecord | AskedRecord, Any]]] = {}
        """Commands behind each lookup under way, by key."""

    @property
    def waiting_count(self) -> int:
        """Commands held back by a lookup, their own or that of an earlier one with the same key."""
        return len(self._behind) + sum(map(len, self._behind.values()))

    def take(self, record: LogRecord) -> None:
        """Take a command from the topic, in order. A repeated or handled one changes nothing."""
        if self._partition.progress.is_handled(record.offset):
            return
        self._metrics.commands += 1
        try:
            command = self._context.codec.decode(record.value or b"").record
        except Undecodable as error:
            kind = "unknown_schema" if isinstance(error, UnknownSchema) else "undecodable"
            self._executor.refuse(record, kind, str(error))
            return
        behind = self._behind.get(record.key or b"")
        if behind is not None:
            behind.append((record, command))
            return
        self._start(record, command)

    def ask(self, record: AskedRecord, command: Any) -> None:
        """Take a command that was handed over in memory; those behind it with the same key wait like any other."""
        self._metrics.commands += 1
        behind = self._behind.get(record.key)
        if behind is not None:
            behind.append((record, command))
            return
        self._start(record, command)

    def _start(self, record: LogRecord | AskedRecord, command: Any) -> None:
        if not self._lookups.begin_eagerly(self._handle(record, command)):
            self._behind[record.key or b""] = deque()

    async def _handle(self, record: LogRecord | AskedRecord, command: Any) -> None:
        try:
            prepared = await self._lookups.lookup_with_retry(
                lambda: self._prepare(record, command),
                waits=lambda: f"command {record.topic}/{record.offset}",
            )
        except Exception as error:  # noqa: BLE001 - a command that cannot be prepared must not stop the partition
            self._refuse(record, error)
        else:
            self._decide(record, prepared)
        key = record.key or b""
        behind = self._behind.pop(key, None)  # None: it did not have to wait
        while behind:
            self._start(*behind.popleft())
            if key in self._behind:
                self._behind[key].extend(behind)
                return

    async def _prepare(self, record: LogRecord | AskedRecord, command: Any) -> PendingDecision:
        """Prepare the command, with the state of its aggregate in memory."""
        while True:
            target = self._partition.aggregates.get(self._handler.target(record, command))
            if target is not None and is_resting(target):
                await continue_in_task()
                await self._loader.load(target)
                if target.pending_events:
                    self._executor.is_quarantined(target, target.quarantined)
            prepared = await self._handler.prepare(record, command, self._partition)
            # A lookup may take so long that the aggregate rests again.
            if prepared.aggregate is None or not is_resting(prepared.aggregate):
                return prepared

    def _decide(self, record: LogRecord | AskedRecord, prepared: PendingDecision) -> None:
        aggregate = prepared.aggregate
        if aggregate is not None and aggregate.quarantined and not prepared.allowed_in_quarantine:
            self._executor.refuse(record, "refused", f"{aggregate.id} is quarantined: {aggregate.quarantined}")
            return
        if aggregate is None or prepared.command is None:
            self._executor.had_no_effect(record)
            return
        try:
            order = prepared.command()
        except Exception as error:  # noqa: BLE001 - as in _handle
            self._refuse(record, error)
            return
        at_ms = self._context.clock_ms()
        if not self._executor.submit(aggregate, order, at_ms=at_ms, cause_id=prepared.cause_id, record=record):
            self._executor.had_no_effect(record)
        if isinstance(record, AskedRecord):
            self._executor.set_timer(aggregate)  # perhaps it was loaded for this

    def _refuse(self, record: LogRecord | AskedRecord, error: Exception) -> None:
        if isinstance(record, AskedRecord):
            record.fail(error)
        else:
            self._executor.refuse(record, "refused", f"{type(error).__name__}: {error}")
