"""One partition in the hands of this process: claim it, feed it commands and results, give it up.

The order of a take-over (design.md 4): load the checkpoint, append a Claim, read up to it, fold, recover what was under
way, and only then look at commands. What is decided is queued in the Partition; the flusher brings it to the log.

Commands of one key are handled in order even when the first has to wait for a look-up; other keys go on meanwhile.
Before: host.py decides which partitions to hold. After: flusher.py.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from typing import Any, Protocol

from connectors.errors import OutsideError
from connectors.protocols import LogRecord
from schemas.codec import Undecodable, UnknownSchema
from services.stream.alarms import Alarms
from services.stream.partition import Aggregate, DecisionTooLarge, Partition
from services.stream.partition_fold import PartitionFold
from services.stream.take_over import TakeOver
from services.stream.workplace import Desk, Figures, Prepared, Workplace

log = logging.getLogger(__name__)

FORMER_ALIVE_MS = 1_500
"""A partition that was assigned to us and whose last record is younger has a former owner that may be alive: a group
takes a session (3 s, less at most a heartbeat of 1 s) to notice a dead one, so his last record is older than this."""
HANDOVER_GRACE_S = 2.0
"""What a former owner that may be alive gets to hand over results whose loss costs something. Most tool calls and short
turns end within it; whoever waits for the run waits so long at a rebalance, and not at all after a death."""
LOOKUP_RETRY_S = 0.5
"""Pause before a look-up that the outside refused is tried again; the command keeps waiting."""


class Wake(Protocol):
    """Flusher.wake."""

    def __call__(self, *, at_once: bool = False) -> None: ...


class Owner:
    """Holds one partition. `partition` is None while it is being claimed and after it was lost."""

    def __init__(self, number: int, work: Workplace, *, wake: Wake, alarms: Alarms, figures: Figures) -> None:
        self.number = number
        self._alarms = alarms
        self.partition: Partition | None = None
        self._work = work
        self._wake = wake
        self._figures = figures
        self._desk: Desk | None = None
        self._waiting: dict[bytes, deque[tuple[LogRecord, Any]]] = {}
        self._lookups: set[asyncio.Task[None]] = set()
        self._late: list[tuple[str, str, Any]] = []
        """Results, with aggregate and tenant, that came or were not recorded while nothing was held."""
        self._waits: set[asyncio.Task[None]] = set()

    @property
    def waiting_commands(self) -> int:
        """Commands held back by a look-up, their own or that of one before them with the same key."""
        return len(self._lookups) + sum(map(len, self._waiting.values()))

    @property
    def issued_until_ms(self) -> int:
        """The desk's; 0 while nothing is held."""
        return self._desk.issued_until_ms if self._desk is not None else 0

    # --- taking over -------------------------------------------------------------------------------------------------

    async def claim(
        self,
        reason: str,
        folded: PartitionFold | None = None,
        before: Callable[[str], Awaitable[None]] | None = None,
    ) -> int:
        """Take the partition; the offset from which commands are to be read. Raises Transient or UnknownOutcome.

        `folded` is what a standby has of it; without, it is folded from the latest checkpoint on. `before` is given the
        lifeline of the present owner, when that has one, and the Claim waits for it.
        """
        work, began_s = self._work, time.monotonic()
        self.drop()
        work.calls.keep(self.number)
        folded, last_ms = await TakeOver(self.number, work).folded_to_claim(reason, folded, before)
        fold = folded.fold
        term = fold.reader.term
        for problem in fold.problems:
            log.error(
                "%s partition %d offset %d: %s", work.family.name, self.number, problem.record.offset, problem.error
            )
            work.dead_letters.park(problem.record, kind="undecodable", error=problem.error)
        desk = work.desk(self.number, term, folded.known_since_ms, folded.forgotten_until)
        partition = Partition(
            number=self.number,
            term=term,
            next_offset=term + 1,
            family=work.family,
            codec=work.codec,
            watcher=desk,
            progress=folded.progress,
            events_topic=work.topics.events,
        )
        for first_event, last_event in fold.over.values():
            desk.found_over(first_event, last_event)
        live = await fold.live(lambda event: work.past.history_for(self.number, event), desk.folded)
        self._desk, self.partition = desk, partition
        partition.events_since_checkpoint = fold.events
        may_be_alive = reason == "assigned" and work.clock_ms() - last_ms < FORMER_ALIVE_MS
        awaited: dict[str, frozenset[Hashable]] = {}
        for aggregate in live:
            waits = self._adopt(partition, desk, aggregate, may_be_alive=may_be_alive)
            if waits:
                awaited[aggregate.id] = waits
        late, self._late = self._late, []
        for name, tenant, order in late:
            self.result(name, tenant, order)
        if awaited:
            self._later(self._recover_later(partition, awaited))
        for aggregate in live:
            self._settle(aggregate)
        took_s = time.monotonic() - began_s
        self._figures.claims_for[reason] += 1
        self._figures.stale_records += fold.reader.stale
        self._figures.take_over_s.observe(took_s)
        log.info(
            "%s partition %d taken (%s) in %.0f ms: term %d, %d events folded, %d live",
            work.family.name,
            self.number,
            reason,
            took_s * 1000,
            term,
            fold.events,
            len(live),
        )
        self._wake()
        return partition.progress.low

    def _adopt(
        self, partition: Partition, desk: Desk, aggregate: Aggregate, *, may_be_alive: bool
    ) -> frozenset[Hashable]:
        """Hold it and recover its calls; gives those that are left to a former owner for a while."""
        work = self._work
        partition.aggregates[aggregate.id] = aggregate
        desk.found_live(aggregate)
        if aggregate.quarantined:
            self._figures.quarantined += 1
            log.error("%s %s is quarantined: %s", work.family.name, aggregate.id, aggregate.quarantined)
            return frozenset()
        aggregate.quarantined = work.family.quarantined(aggregate.state)
        if aggregate.quarantined:
            self._figures.quarantined += 1
            return frozenset()
        held = frozenset(order.key for name, _, order in self._late if name == aggregate.id)
        running = work.calls.running(aggregate.id) | held
        self._set_alarm(aggregate)
        waits = work.family.worth_waiting_for(aggregate.state) - running if may_be_alive else frozenset()
        order = work.family.recover(work.clock_ms(), running | waits, desk.standing(aggregate))
        self._submit(aggregate, order, at_ms=work.clock_ms())
        return waits

    async def _recover_later(self, partition: Partition, awaited: Mapping[str, frozenset[Hashable]]) -> None:
        """Recover what no former owner has handed over in time."""
        work = self._work
        await asyncio.sleep(HANDOVER_GRACE_S)
        if self.partition is not partition:
            return
        for name, waits in awaited.items():
            aggregate = partition.aggregates.get(name)
            if aggregate is None or aggregate.quarantined:
                continue
            # What was begun here since is not lost, also while its intent is on the wire.
            ours = work.family.open_calls(aggregate.state) - waits
            order = work.family.recover(work.clock_ms(), work.calls.running(name) | ours)
            self._submit(aggregate, order, at_ms=work.clock_ms())

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something of this partition in a task of its own, which ends with the partition."""
        group = self._work.calls.group
        assert group is not None, "owners work inside the host's task group"
        task = group.create_task(work)
        self._waits.add(task)
        task.add_done_callback(self._waits.discard)

    def drop(self) -> None:
        """Forget the partition's memory; calls under way go on and their results wait for the next claim.

        So do results that were decided on and may not be in the log: given again, they change nothing if they are.
        """
        if self.partition is not None:
            self._late += self.partition.unrecorded()
        for waiting in self._waits:
            waiting.cancel()
        self._waits.clear()
        self.partition = None
        if self._desk is not None:
            self._desk.closed()
        self._desk = None
        self._waiting.clear()
        for task in self._lookups:
            task.cancel()
        self._lookups.clear()

    def give_up(self) -> None:
        """Somebody else will own the partition: what its calls give from now on is handed over."""
        calls = self._work.calls
        self.drop()
        calls.leave(self.number)
        late, self._late = self._late, []
        for name, tenant, order in late:
            assert calls.group is not None, "owners work inside the host's task group"
            calls.group.create_task(calls.hand_over(name, tenant, order))

    # --- commands ----------------------------------------------------------------------------------------------------

    def take(self, record: LogRecord) -> None:
        """A command from the topic, in order. A repeated or handled one changes nothing."""
        partition = self.partition
        if partition is None or partition.progress.is_handled(record.offset):
            return
        self._figures.commands += 1
        try:
            command = self._work.codec.decode(record.value or b"").record
        except Undecodable as error:
            self._refuse(record, "unknown_schema" if isinstance(error, UnknownSchema) else "undecodable", str(error))
            return
        key = record.key or b""
        if key in self._waiting:
            self._waiting[key].append((record, command))
            return
        self._handle(record, command)

    def _handle(self, record: LogRecord, command: Any) -> None:
        partition, desk = self.partition, self._desk
        assert partition is not None
        assert desk is not None
        try:
            prepared = desk.prepare(record, command, partition)
        except Exception as error:  # noqa: BLE001 - a command we cannot even look at must not stop the partition
            self._refuse(record, "refused", f"{type(error).__name__}: {error}")
            return
        if isinstance(prepared, Prepared):
            self._decide(record, prepared)
            return
        self._waiting.setdefault(record.key or b"", deque())
        group = self._work.calls.group
        assert group is not None, "owners work inside the host's task group"
        task = group.create_task(self._look_up(record, command, prepared))
        self._lookups.add(task)
        task.add_done_callback(self._lookups.discard)

    async def _look_up(self, record: LogRecord, command: Any, preparing: Awaitable[Prepared]) -> None:
        key = record.key or b""
        partition = self.partition
        while True:
            try:
                prepared = await preparing
                break
            except OutsideError as error:
                log.warning("command %s/%d waits: %s", record.topic, record.offset, error)
                await asyncio.sleep(LOOKUP_RETRY_S)
            except Exception as error:  # noqa: BLE001 - as in _handle
                self._refuse(record, "refused", f"{type(error).__name__}: {error}")
                prepared = None
                break
            assert partition is not None
            assert self._desk is not None
            again = self._desk.prepare(record, command, partition)
            if isinstance(again, Prepared):
                prepared = again
                break
            preparing = again
        if self.partition is not partition:
            return
        if prepared is not None:
            self._decide(record, prepared)
        behind = self._waiting.pop(key, deque())
        while behind:
            next_record, next_command = behind.popleft()
            self._handle(next_record, next_command)
            if key in self._waiting:
                self._waiting[key].extend(behind)
                return

    def _decide(self, record: LogRecord, prepared: Prepared) -> None:
        partition = self.partition
        assert partition is not None
        aggregate = prepared.aggregate
        if aggregate is not None and aggregate.quarantined and not prepared.despite_quarantine:
            self._refuse(record, "refused", f"{aggregate.id} is quarantined: {aggregate.quarantined}")
            return
        if aggregate is None or prepared.order is None:
            self._had_no_effect(partition, record)
            return
        try:
            order = prepared.order()
        except Exception as error:  # noqa: BLE001 - as in _handle
            self._refuse(record, "refused", f"{type(error).__name__}: {error}")
            return
        at_ms = self._work.clock_ms()
        if not self._submit(aggregate, order, at_ms=at_ms, cause_id=prepared.cause_id, record=record):
            self._had_no_effect(partition, record)

    def _had_no_effect(self, partition: Partition, record: LogRecord) -> None:
        """A command that changes nothing, because of what was decided before it: handled once that is in the log.

        Not before: a checkpoint may overtake that decision, and whoever takes over without it would miss the command.
        """
        partition.mark(lambda _: partition.progress.handled(record.offset))

    # --- results -----------------------------------------------------------------------------------------------------

    def result(self, aggregate: str, tenant: str, order: Any) -> None:
        """The result of a call. Of no use when its aggregate is over; kept when the partition is being claimed."""
        if self.partition is None:
            self._late.append((aggregate, tenant, order))
            return
        found = self.partition.aggregates.get(aggregate)
        if found is not None and not found.quarantined:
            self._submit(found, order, at_ms=self._work.clock_ms(), is_result=True)

    def not_begun(self, calls: Mapping[str, frozenset[Hashable]]) -> None:
        """Write down which calls of a planned stop were due and not begun, by aggregate."""
        work = self._work
        for name, keys in calls.items():
            found = self.partition.aggregates.get(name) if self.partition is not None else None
            if found is not None and not found.quarantined:
                self._submit(found, work.family.not_begun(work.clock_ms(), keys), at_ms=work.clock_ms())

    # --- aggregates that concern each other --------------------------------------------------------------------------

    def carry_out(self, aggregate: Aggregate, effect: Any, state: Any) -> None:
        """A local effect that became due."""
        partition, desk = self.partition, self._desk
        if partition is None or desk is None:
            return  # whoever claims it looks at the states
        try:
            found = desk.carry_out(aggregate, effect, state, partition)
        except Exception as error:  # noqa: BLE001 - a broken rule parks one aggregate, never the partition
            self._quarantine(aggregate, error, self._work.clock_ms(), None, "")
            return
        if isinstance(found, Sequence):
            self._give(found)
        else:
            self._later(self._carry_out_later(partition, desk, aggregate, effect, state, found))

    async def _carry_out_later(
        self,
        partition: Partition,
        desk: Desk,
        aggregate: Aggregate,
        effect: Any,
        state: Any,
        found: Awaitable[Sequence[Prepared]],
    ) -> None:
        while True:
            try:
                prepared = await found
                break
            except OutsideError as error:
                log.warning("%s %s: %s waits: %s", self._work.family.name, aggregate.id, type(effect).__name__, error)
                await asyncio.sleep(LOOKUP_RETRY_S)
            except Exception as error:  # noqa: BLE001 - as in carry_out
                self._quarantine(aggregate, error, self._work.clock_ms(), None, "")
                return
            again = desk.carry_out(aggregate, effect, state, partition)
            if isinstance(again, Sequence):
                prepared = again
                break
            found = again
        if self.partition is partition:
            self._give(prepared)

    def _give(self, orders: Sequence[Prepared]) -> None:
        for prepared in orders:
            aggregate = prepared.aggregate
            if aggregate is None or prepared.order is None:
                continue
            if aggregate.quarantined and not prepared.despite_quarantine:
                continue  # once released it is looked at again
            try:
                order = prepared.order()
            except Exception as error:  # noqa: BLE001 - as in carry_out
                self._quarantine(aggregate, error, self._work.clock_ms(), None, prepared.cause_id)
                continue
            self._submit(aggregate, order, at_ms=self._work.clock_ms(), cause_id=prepared.cause_id)

    def _settle(self, aggregate: Aggregate) -> None:
        """After a take-over: what may not have been carried out."""
        if not aggregate.quarantined:
            for effect in self._work.family.unsettled(aggregate.state):
                self.carry_out(aggregate, effect, aggregate.state)

    # --- alarms ------------------------------------------------------------------------------------------------------

    def _set_alarm(self, aggregate: Aggregate) -> None:
        at_ms = self._work.family.wakes_at(aggregate.state)
        if at_ms and at_ms != aggregate.wakes_at_ms:
            self._alarms.set(at_ms, self.number, aggregate.id)
        aggregate.wakes_at_ms = at_ms

    def ring(self, name: str) -> None:
        """An alarm of the aggregate, perhaps a former one."""
        aggregate = self.partition.aggregates.get(name) if self.partition is not None else None
        if aggregate is None or not aggregate.wakes_at_ms:
            return  # a claim under way sets it again
        now_ms = self._work.clock_ms()
        if aggregate.wakes_at_ms > now_ms:
            return  # a former one; or the clock went back, and the next look is the one that was set then
        aggregate.wakes_at_ms = 0
        if not aggregate.quarantined:  # once released, what is decided then sets it again
            self._submit(aggregate, self._work.family.woken(now_ms), at_ms=now_ms)

    # --- standing orders ---------------------------------------------------------------------------------------------

    def obey(self) -> None:
        """Something wider than the aggregates has changed: each does what that asks of it now. Idempotent."""
        if self.partition is None or self._desk is None:
            return  # a claim under way asks the desk when it is done
        for aggregate in list(self.partition.aggregates.values()):
            order = None if aggregate.quarantined else self._desk.standing(aggregate)
            if order is not None and self.partition is not None:
                self._submit(aggregate, order, at_ms=self._work.clock_ms())

    # --- shared ------------------------------------------------------------------------------------------------------

    def _submit(
        self,
        aggregate: Aggregate,
        order: Any,
        *,
        at_ms: int,
        cause_id: str = "",
        record: LogRecord | None = None,
        is_result: bool = False,
    ) -> bool:
        partition = self.partition
        assert partition is not None
        offset = record.offset if record is not None else -1
        is_order = record is not None and aggregate.seq > 0
        try:
            decided = partition.submit(
                aggregate, order, at_ms=at_ms, cause_id=cause_id, command_offset=offset, is_result=is_result
            )
        except Exception as error:  # noqa: BLE001 - a broken rule parks one aggregate, never the partition
            self._quarantine(aggregate, error, at_ms, record, cause_id)
            return record is not None  # its dead letter marks the command
        if decided:
            if not is_result:
                self._look_at(aggregate)
            self._set_alarm(aggregate)
            self._wake(at_once=is_order)
        return decided

    def _look_at(self, aggregate: Aggregate) -> None:
        """What was decided may have parked the aggregate, or released it."""
        before, now = aggregate.quarantined, self._work.family.quarantined(aggregate.state)
        if now and not before:
            self._figures.quarantined += 1
            log.error("%s %s is quarantined: %s", self._work.family.name, aggregate.id, now)
        aggregate.quarantined = now or (before if aggregate.unfolded else "")

    def _quarantine(
        self, aggregate: Aggregate, error: Exception, at_ms: int, record: LogRecord | None, cause_id: str
    ) -> None:
        text = f"{type(error).__name__}: {error}"
        if record is not None:
            too_large = isinstance(error, DecisionTooLarge)
            self._refuse(record, "refused" if too_large else "fold_bug", text)
            if too_large:
                return  # the command is at fault; nothing has changed and the aggregate is well
        log.error("%s %s is quarantined: %s", self._work.family.name, aggregate.id, text, exc_info=error)
        self._figures.quarantined += 1
        partition = self.partition
        if partition is None or aggregate.id not in partition.aggregates:
            return
        topic, offset = (record.topic, record.offset) if record is not None else (self._work.topics.events, -1)
        aggregate.quarantined = text
        self._work.calls.stop(aggregate.id)
        try:
            parked = self._work.family.quarantine(text, topic, offset)
            partition.append(aggregate, [parked], at_ms=at_ms, cause_id=cause_id)
        except Exception:
            log.exception("%s %s: its quarantine cannot be recorded", self._work.family.name, aggregate.id)
        self._wake()

    def _refuse(self, record: LogRecord, kind: str, error: str) -> None:
        """Park a command with its bytes; it counts as handled once the dead letter is in the log."""
        partition = self.partition
        assert partition is not None
        self._figures.refused_records += 1
        log.warning("%s/%d offset %d is parked (%s): %s", record.topic, self.number, record.offset, kind, error)

        def parked() -> None:
            if self.partition is partition:
                partition.progress.handled(record.offset)

        self._work.dead_letters.park(record, kind=kind, error=error, parked=parked)
