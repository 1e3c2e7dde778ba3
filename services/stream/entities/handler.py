"""Command handler of an entity partition: finds the aggregate of a command, hot or at rest, and recognises repetitions.

    known      the last commands that were handled, with the offsets of their events; older ones are in the index
    hot        aggregates in memory (Partition.aggregates): all replicated ones, and those touched lately
    unfolded   events after the checkpoint of aggregates that no command has needed since the takeover
    cold       everything else: a row (cold.py), complete below `resting_below`

An aggregate is loaded when a command or a timer needs it; what has the same key waits meanwhile, everything else goes
on. A row that cannot be used is refolded from the log and reported. While the rows cannot be read, hot aggregates go on
and the others wait.

Before: services/stream/partition/command_intake.py. After: the family decides; client.py gets the answer.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from msgspec import Struct

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import LogRanges, LogRecord
from loomlog.schemas.codec import Codec, Undecodable, digest, read_envelope
from loomlog.schemas.generated.entity_events import AggregateEventImported, AggregateRestated, CommandRefused
from loomlog.schemas.ids import command_identity
from loomlog.schemas.reader import RawEvent, TermReader
from loomlog.schemas.records import replace
from loomlog.services.core.families import (
    NAME_BYTES_MAX,
    STATE_BYTES_MAX,
    TIMER_FIRED,
    At,
    aggregate_id,
    aggregate_key,
)
from loomlog.services.stream.context import NothingRests, PendingDecision, TimerIntake
from loomlog.services.stream.entities.answers import Answer, CommandInvalid, CommandReused, read_answer
from loomlog.services.stream.entities.cold import ColdAggregate, ColdRows
from loomlog.services.stream.entities.families import (
    Deliver,
    EntityCommand,
    EntityFamilies,
    FamilySet,
    UnknownFamily,
    is_repair,
    mark_unfolded,
)
from loomlog.services.stream.entities.log_beginnings import term_before
from loomlog.services.stream.entities.outbox import Outbox
from loomlog.services.stream.partition.asked import AskedRecord, OwnerLost
from loomlog.services.stream.partition.fold import Fold, fold_events
from loomlog.services.stream.partition.lookups import continue_in_task
from loomlog.services.stream.partition.partition import Aggregate, Decision, Partition
from loomlog.services.stream.partition.recovered_state import PartitionFold

log = logging.getLogger(__name__)

KNOWN_COMMANDS_MAX = 50_000
"""Handled commands known by id without a lookup, per partition: about 10 MB, and minutes of a busy partition."""
CLOCK_SKEW_MS = 10_000
"""Milliseconds that the clocks of senders and owners may differ before a command is looked up needlessly, or a
repetition missed.
"""
CommandKey = tuple[str, str]
"""Full id of the aggregate, and identity of the command, which a keyed one has whatever its body is. Senders choose
command ids, so those of two tenants may be equal.
"""
COMMAND_ID_BYTES_MAX = 1_000
"""Bytes of the id of a command: that of an aggregate (NAME_BYTES_MAX, its tenant and family) and what the outbox adds
to it. The index of handled commands takes no longer ones (projections/engine/entity_fold.py).
"""
CHECK_SIZE_EVERY_BYTES = STATE_BYTES_MAX // 4
"""A state is measured again after its events have grown by this much, so that its bound costs nothing per event."""
GROWTH_OF_EVENT = 4
"""A state grows by at most this many times the rough size of an event, so that it is measured before it is too large
and not for each event once it is large.
"""
SIZE_GUESS_BYTES = 2_000
"""Bytes of a state that was never measured: it has had few events."""


class EntityContext:
    """What the handlers of a process share."""

    def __init__(
        self,
        family: EntityFamilies,
        codec: Codec,
        *,
        ranges: LogRanges,
        events_topic: str,
        partitions: int,
        rows: ColdRows,
        outbox: Outbox,
        clock_ms: Callable[[], int],
        encrypt: Callable[[Any, Any], Awaitable[Any]] | None = None,
    ) -> None:
        """`encrypt` takes the declaration of a family and a command, and returns the command with its content
        encrypted; None: content is in clear.
        """
        self.family = family
        self.codec = codec
        self.ranges = ranges
        self.events_topic = events_topic
        self.partitions = partitions
        self.rows = rows
        self.outbox = outbox
        self.clock_ms = clock_ms
        self.encrypt = encrypt
        self.refolded = 0
        """Rows that could not be used, and were folded again from the log."""
        self.loaded = 0
        """Aggregates loaded from their rows."""


class EntityCommandHandler(NothingRests):
    """The command handler of one entity partition (protocol loomlog.services.stream.context.CommandHandler)."""

    def __init__(self, context: EntityContext, folded: PartitionFold, *, number: int) -> None:
        self._context = context
        self._families = context.family.families
        self._number = number
        self._restatements = context.codec.schema_ids_of(context.family.restatements)
        self._known: OrderedDict[CommandKey, tuple[int, int, int]] = OrderedDict()
        """Handled commands: offsets of the first and the last event, and the time of the decision."""
        self._deciding: dict[CommandKey, str] = {}
        """Commands that are decided and not in the log yet, with their whole ids."""
        self._answers: dict[CommandKey, list[asyncio.Future[Answer]]] = {}
        self._unfolded: dict[str, list[RawEvent]] = {}
        self.resting_below = self._checkpointed_below = folded.start_offset
        """Every event of an aggregate at rest is below this offset; 0: nothing rests."""
        # Without a checkpoint a fold that does not begin at 0 is of a log whose first events are deleted.
        known_since_ms = folded.known_since_ms or (context.clock_ms() if folded.start_offset else 0)
        self.issued_until_ms = known_since_ms
        """No handled command that is not known here was issued after this, by the clock of its sender."""
        self._forgotten_ms = known_since_ms
        self._sizes: dict[str, int] = {}
        """Bytes of the states of hot aggregates, as last measured."""
        self._grown: dict[str, int] = {}
        """About how many bytes the events have since."""

    # --- takeover ----------------------------------------------------------------------------------------------------

    async def live(self, fold: Fold, load: Callable[[Aggregate], Awaitable[None]]) -> list[Aggregate]:
        """Return the replicated aggregates, folded; the events of the others wait until they are needed."""
        covered = [event for event in fold.covered if event.offset >= self.resting_below]
        for event in chain(covered, *fold.unfolded.values()):
            envelope, _ = read_envelope(event.value)
            if envelope.cause_id:
                key = (event.aggregate, command_identity(envelope.cause_id))
                first = self._known.get(key, (event.offset, 0, 0))[0]
                self._remember(key, first, event.offset, envelope.at_ms)
        self._unfolded = {name: events for name, events in fold.unfolded.items() if not self._is_replicated(name)}
        for name in self.untouched():
            if self._families.of(name).sends:
                self._context.outbox.hold(self._number, name, self._unfolded[name][0].offset)
        live = await fold.live(
            folded=lambda aggregate, event, at_ms: self._redeliver(aggregate, event), only=self._is_replicated
        )
        by_name = {aggregate.id: aggregate for aggregate in live}
        for event in covered:
            self._redeliver_covered(by_name[event.aggregate].state, event)
        for aggregate in live:
            mark_unfolded(aggregate)
            self._sizes[aggregate.id] = len(self._families.of(aggregate.id).states.encode(aggregate.state))
        return live

    def _is_replicated(self, name: str) -> bool:
        try:
            return self._families.of(name).is_replicated
        except UnknownFamily:
            return False  # nothing is decided in it; a process that has the family reads it

    def untouched(self) -> list[str]:
        """Return the aggregates with timers or deliveries that had events after the checkpoint, and are not loaded."""
        names = [name for name in self._unfolded if name.partition(":")[0] in self._families.by_name]
        return [name for name in names if (family := self._families.of(name)).has_timers or family.sends]

    def aggregate_closed(self) -> None:
        self._context.outbox.release(self._number)
        for waiting in self._answers.values():
            for answer in waiting:
                if not answer.done():
                    answer.set_exception(OwnerLost(f"entity partition {self._number} is not owned here any more"))
        self._answers.clear()

    # --- preparing ---------------------------------------------------------------------------------------------------

    async def prepare(self, record: LogRecord | AskedRecord, command: Any, partition: Partition) -> PendingDecision:
        """Prepare a command of a family. Raises CommandInvalid for one that cannot be carried out here."""
        if isinstance(record, AskedRecord) and command is TIMER_FIRED:
            return await self._prepare_timer(record.aggregate, partition)
        name = self._target(record, command)
        envelope = command.envelope
        key = (name, command_identity(envelope.command_id))
        if (deciding := self._deciding.get(key)) is not None:
            if partition.is_undecided(name, deciding):
                if isinstance(record, AskedRecord) and deciding != envelope.command_id:
                    record.fail(CommandReused(envelope.command_id))
                else:
                    self._expect_answer(record, key)
                return PendingDecision(None)
            # Its rule failed, or its events were too large: there is no decision, and its sender knows.
            self._deciding.pop(key, None)
            self._answers.pop(key, None)
        handled = await self._find_handled(key, envelope.issued_at_ms)
        if handled is not None:
            if isinstance(record, AskedRecord):
                await continue_in_task()
                first, last = handled
                context = self._context
                try:
                    answer = await read_answer(
                        context.ranges,
                        context.codec,
                        context.events_topic,
                        self._number,
                        aggregate=name,
                        command_id=envelope.command_id,
                        first=first,
                        last=last,
                    )
                except CommandReused as reused:
                    record.fail(reused)
                else:
                    record.resolve(answer)
            return PendingDecision(None)
        if self._context.encrypt is not None and not is_repair(command):
            command = await self._context.encrypt(self._families.of(name).declaration, command)
        aggregate = await self._aggregate(name, envelope.tenant, partition)

        def order() -> EntityCommand:
            self._deciding[key] = envelope.command_id
            self._expect_answer(record, key)
            at = At(self._context.clock_ms(), envelope.subject, envelope.command_id)
            return EntityCommand(command, at, aggregate.quarantined)

        return PendingDecision(aggregate, order, envelope.command_id, allowed_in_quarantine=True)

    def _target(self, record: LogRecord | AskedRecord, command: Any) -> str:
        """Return the full id of the aggregate of a command. Raises CommandInvalid."""
        envelope = getattr(command, "envelope", None)
        if envelope is None or not 1 <= len(envelope.command_id.encode(errors="replace")) <= COMMAND_ID_BYTES_MAX:
            raise CommandInvalid(f"a command needs an id of 1 to {COMMAND_ID_BYTES_MAX} bytes")
        name = target_of(self._families, command)
        if (record.key or b"") != aggregate_key(name):
            raise CommandInvalid(
                f"the record's key is {record.key!r}; the key of {name[:80]} is what follows its colon"
            )
        expected = partition_of(aggregate_key(name), self._context.partitions)
        if expected != self._number:
            raise CommandInvalid(f"{name[:80]} belongs in partition {expected}, not in {self._number}")
        return name

    async def _find_handled(self, key: CommandKey, issued_at_ms: int) -> tuple[int, int] | None:
        """Return the offsets of the first and the last event of a command that was handled; None for a new one."""
        known = self._known.get(key)
        if known is not None:
            return known[:2]
        self.issued_until_ms = max(self.issued_until_ms, issued_at_ms)
        if not self._forgotten_ms or issued_at_ms > self._forgotten_ms + CLOCK_SKEW_MS:
            return None
        await continue_in_task()
        below, handled = await self._context.rows.find_command(self._number, *key)
        self._require(below)
        return None if handled is None else (handled.first_offset, handled.last_offset)

    def _require(self, below: int) -> None:
        if below < self.resting_below:
            raise Transient(
                f"the read models have reached offset {below} of {self._context.events_topic}/{self._number}; "
                f"{self.resting_below} is needed",
                kind="unavailable",
            )

    async def _prepare_timer(self, name: str, partition: Partition) -> PendingDecision:
        tenant = partition.aggregates[name].tenant if name in partition.aggregates else ""
        aggregate = await self._aggregate(name, tenant, partition)
        return PendingDecision(aggregate, lambda: EntityCommand(TIMER_FIRED, At(self._context.clock_ms())))

    def _expect_answer(self, record: LogRecord | AskedRecord, key: CommandKey) -> None:
        if isinstance(record, AskedRecord) and record.answer is not None:
            self._answers.setdefault(key, []).append(record.answer)

    # --- aggregates --------------------------------------------------------------------------------------------------

    async def _aggregate(self, name: str, tenant: str, partition: Partition) -> Aggregate:
        """Return an aggregate, loaded if it rests. Raises Transient while its row cannot be read."""
        hot = partition.aggregates.pop(name, None)
        nothing_rests = self._families.of(name).is_replicated or not self.resting_below
        if hot is None and nothing_rests and name not in self._unfolded:
            return self._fresh(name, tenant)
        if hot is None:
            await continue_in_task()
            hot = partition.aggregates.pop(name, None) or await self._load(name, tenant)
        if hot.seq > 0:
            partition.aggregates[name] = hot  # the last one: what was touched longest ago is first
        return hot

    def _fresh(self, name: str, tenant: str) -> Aggregate:
        return Aggregate(id=name, state=self._context.family.absent(name), key=aggregate_key(name), tenant=tenant)

    async def _load(self, name: str, tenant: str) -> Aggregate:
        context = self._context
        events = self._unfolded.get(name, [])
        base: ColdAggregate | None = None
        is_whole = self._begins_history(events[:1])
        lost = ""
        if not is_whole and self.resting_below:
            below, rows = await context.rows.load(self._number, [name])
            self._require(below)
            base = rows.get(name)
            if (base is None and events) or (base is not None and base.state is None):
                why = "its row is missing" if base is None else base.problem
                log.warning("%s is folded again from the log: %s", name, why)
                context.refolded += 1
                first, earlier = await self._read_events(name)
                events = [*earlier, *events]
                if first and not self._begins_history(events):
                    lost = (
                        f"{why}, and its events before offset {first} of {context.events_topic}/{self._number} are "
                        "deleted: repair it with the state that it should have"
                    )
                else:
                    base = None
        aggregate = self._fresh(name, tenant)
        if lost:
            _give_up(aggregate, lost, base, events)
            events = []
        elif base is not None:
            context.loaded += 1
            aggregate.state, aggregate.seq, aggregate.digest = base.state, base.seq, base.digest
            aggregate.tenant, aggregate.first_offset, aggregate.last_offset = (
                base.tenant,
                base.first_offset,
                base.last_offset,
            )
            aggregate.quarantined = context.family.quarantined(base.state)
            self._sizes[name] = base.size_bytes
            for event in events:
                if event.seq <= base.seq:
                    self._redeliver_covered(base.state, event)
            events = [event for event in events if event.seq > base.seq]
        # So it is measured at its next event if it may be large.
        self._grown[name] = self._sizes.get(name, 0) + sum(len(event.value) for event in events)
        await fold_events(
            aggregate,
            events,
            family=context.family,
            codec=context.codec,
            folded=lambda aggregate, event, at_ms: self._redeliver(aggregate, event),
            restatements=self._restatements,
        )
        mark_unfolded(aggregate)
        aggregate.quarantined = aggregate.quarantined or context.family.quarantined(aggregate.state)
        self._unfolded.pop(name, None)
        context.outbox.unhold(self._number, name)
        return aggregate

    def _begins_history(self, events: Sequence[RawEvent]) -> bool:
        """Whether the state follows from these events alone."""
        return bool(events) and (events[0].seq == 1 or any(one.schema_id in self._restatements for one in events))

    def _redeliver_covered(self, state: Any, event: RawEvent) -> None:
        """Send again what an event sends that is in a snapshot or a row already; `state` is of then or later."""
        if event.offset >= self._checkpointed_below:
            decoded = self._context.codec.decode(event.value)
            assert decoded.envelope is not None
            at = replace(state, seq=event.seq, updated_at_ms=decoded.envelope.at_ms)
            self._send_again(at, decoded.record, event.offset, decoded.envelope.tenant)

    def _redeliver(self, aggregate: Aggregate, event: Any) -> None:
        """Send again what an event after the checkpoint sends."""
        if aggregate.last_offset >= self._checkpointed_below:
            self._send_again(aggregate.state, event, aggregate.last_offset, aggregate.tenant)

    def _send_again(self, state: Any, event: Any, offset: int, tenant: str) -> None:
        for delivery in self._context.family.effects.react(state, event):
            self._context.outbox.register(self._number, offset, delivery)
            self._context.outbox.start(self._number, delivery, tenant)

    async def _read_events(self, name: str) -> tuple[int, list[RawEvent]]:
        """Return where the log begins, and the accepted events of an aggregate before those that wait to be folded.
        Reads the whole partition.
        """
        context, events = self._context, list[RawEvent]()
        first = await context.ranges.beginning_offset(context.events_topic, self._number)
        term = await term_before(context.ranges, context.codec, context.events_topic, self._number, first)
        reader = TermReader(codec=context.codec, term=term, next_offset=first)
        end = self._unfolded[name][0].offset if name in self._unfolded else self.resting_below
        async with await context.ranges.read(context.events_topic, self._number, first, end) as chunks:
            async for chunk in chunks:
                for record in chunk:
                    try:
                        event = reader.read(record.offset, record.value)
                    except Undecodable:
                        continue  # were it of this aggregate, its hash chain would show it
                    if event is not None and event.aggregate == name:
                        events.append(event)
                await asyncio.sleep(0)
        return first, events

    def evict(self, partition: Partition, below: int, keep: int, keep_bytes: int) -> int:
        """Let aggregates rest whose events are all below the offset, which the rows have passed; returns how many.

        The `keep` touched last stay, as far as their states have `keep_bytes`.
        """
        self.resting_below = max(self.resting_below, below)
        self._checkpointed_below = max(self._checkpointed_below, below)
        busy = partition.undecided_aggregates()
        total = 0
        evicted = 0
        for place, name in enumerate(reversed(list(partition.aggregates))):
            aggregate = partition.aggregates[name]
            total += self._sizes.get(name, SIZE_GUESS_BYTES)
            is_old = place >= keep or total > keep_bytes
            if not is_old or self._is_replicated(name) or name in busy or aggregate.last_offset >= below:
                continue
            del partition.aggregates[name]
            self._sizes.pop(name, None)
            self._grown.pop(name, None)
            evicted += 1
        return evicted

    # --- watching ----------------------------------------------------------------------------------------------------

    def to_snapshot_state(self, aggregate: Aggregate, events: Sequence[Any]) -> Sequence[Any]:
        """Return the events; a refusal instead if the state they lead to is too large."""
        grown = self._grown.get(aggregate.id, 0) + sum(map(_rough_size, events))
        room = STATE_BYTES_MAX - self._sizes.get(aggregate.id, 0)
        if grown < min(CHECK_SIZE_EVERY_BYTES, room // GROWTH_OF_EVENT):
            self._grown[aggregate.id] = grown
            return events
        state = aggregate.state
        for event in events:
            state = self._context.family.evolve(state, event, self._context.clock_ms())
        size = len(self._families.of(aggregate.id).states.encode(state))
        if size <= STATE_BYTES_MAX:
            self._grown[aggregate.id], self._sizes[aggregate.id] = 0, size
            return events
        message = f"the state would have {size} bytes, at most {STATE_BYTES_MAX} are kept: remove something first"
        return [CommandRefused(code="state_too_large", message=message)]

    def decided(self, aggregate: Aggregate, event: Any) -> None:
        if type(event) is AggregateRestated:
            aggregate.pending_events, aggregate.quarantined = False, ""
        elif type(event) is AggregateEventImported:
            aggregate.quarantined = self._context.family.quarantined(aggregate.state)

    def durable(self, aggregate: Aggregate, decision: Decision) -> None:
        last = aggregate.last_offset
        for due in decision.ready_effects:
            self._context.outbox.register(self._number, last, due.effect)
        if not decision.cause_id:
            return
        key = (aggregate.id, command_identity(decision.cause_id))
        self._deciding.pop(key, None)
        self._remember(key, last - len(decision.events) + 1, last, self._context.clock_ms())
        for answer in self._answers.pop(key, ()):
            if not answer.done():
                answer.set_result(
                    Answer(
                        events=tuple(decision.events),
                        topic=self._context.events_topic,
                        partition=self._number,
                        offset=last,
                    )
                )

    def _remember(self, key: CommandKey, first: int, last: int, at_ms: int) -> None:
        self._known[key] = (first, last, at_ms)
        # Another owner's clock may have been ahead of this one's: its time bounds those of the commands before it.
        self.issued_until_ms = max(self.issued_until_ms, at_ms)
        if len(self._known) > KNOWN_COMMANDS_MAX:
            _, (_, _, forgotten_ms) = self._known.popitem(last=False)
            self._forgotten_ms = max(self._forgotten_ms, forgotten_ms)

    def ended_found(self, first: RawEvent, last: RawEvent) -> None: ...

    def folded(self, aggregate: Aggregate, event: Any, at_ms: int) -> None: ...

    def live_found(self, aggregate: Aggregate) -> None: ...

    async def prepare_local_effect(
        self, aggregate: Aggregate, effect: Deliver, state: Any, partition: Partition
    ) -> Sequence[PendingDecision]:
        self._context.outbox.start(self._number, effect, aggregate.tenant)
        return ()

    def timer_of_absent(self, name: str, intake: TimerIntake) -> None:
        record = AskedRecord(key=aggregate_key(name), partition=self._number, aggregate=name)
        intake.ask(record, TIMER_FIRED)

    def wide_pauses_command(self, aggregate: Aggregate) -> None:
        return None


def _give_up(aggregate: Aggregate, problem: str, row: ColdAggregate | None, events: Sequence[RawEvent]) -> None:
    """Quarantine an aggregate whose state is lost, so that an event that restates it can follow its last one."""
    aggregate.pending_events, aggregate.quarantined = True, problem
    if row is not None:
        aggregate.tenant, aggregate.seq, aggregate.digest = row.tenant, row.seq, row.digest
        aggregate.first_offset, aggregate.last_offset = row.first_offset, row.last_offset
    if events and events[-1].seq > aggregate.seq:
        last = events[-1]
        aggregate.tenant = read_envelope(last.value)[0].tenant
        aggregate.seq, aggregate.digest, aggregate.last_offset = last.seq, digest(last.value), last.offset
        aggregate.first_offset = events[0].offset if aggregate.first_offset < 0 else aggregate.first_offset


def _rough_size(value: Any) -> int:
    """Return about how much a state may grow by an event, in bytes."""
    match value:
        case str() | bytes():
            return 8 + (
                len(value) if isinstance(value, bytes) or value.isascii() else len(value.encode(errors="replace"))
            )
        case Mapping():
            return sum(_rough_size(key) + _rough_size(one) for key, one in value.items())
        case tuple() | list():
            return sum(map(_rough_size, value))
        case Struct():
            return 64 + sum(_rough_size(getattr(value, name)) for name in value.__struct_fields__)
        case _:
            return 8


def target_of(families: FamilySet, command: Any) -> str:
    """Return the full id of the aggregate that a command is for. Raises CommandInvalid."""
    envelope = getattr(command, "envelope", None)
    if envelope is not None and "/" in envelope.tenant:
        # The ids of its aggregates would be those of a tenant whose name ends at the slash.
        raise CommandInvalid(f"{envelope.tenant[:40]!r} is no tenant: expected a name without a slash")
    if is_repair(command):
        name: str = command.aggregate
        tenant = command.envelope.tenant
        if not name.partition(":")[2].startswith(f"{tenant}/"):
            raise CommandInvalid(f"{name[:80]} is no aggregate of the tenant {tenant[:40]!r}")
        try:
            families.of(name)
        except UnknownFamily as error:
            raise CommandInvalid(str(error)) from error
        return name
    try:
        family, row = families.of_command(command)
    except UnknownFamily as error:
        raise CommandInvalid(str(error)) from error
    within = row.aggregate(command)
    if not within or len(within.encode(errors="replace")) > NAME_BYTES_MAX or not within.isprintable():
        raise CommandInvalid(
            f"{row.verb}: {within[:40]!r} is no id: expected 1 to {NAME_BYTES_MAX} bytes of printable characters"
        )
    return aggregate_id(family.name, command.envelope.tenant, within)
