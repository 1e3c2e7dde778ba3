"""One owned partition as a value that is driven: no waiting, no clock, no broker.

It has the fold of the live aggregates and the decisions on their way to the log. `submit` decides on the state after
everything decided before (also what is not acknowledged yet), so decisions never wait for the wire; effects do: they
are returned by `acknowledged` only. If an acknowledgement is lost the whole object is discarded and the partition is
claimed and folded again, which is why deciding ahead is safe.

Compare-and-append: `next_offset` is the expected offset of our next record. If the acknowledged base offset equals it,
nothing came between. If it is higher, the caller scans the gap for a Claim (`acknowledged` raises OffsetGap). Lower:
unknown.

Before: the log's records (fold.py at a takeover) and commands (decisions.py). After: the flusher appends `next_batch`.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

from msgspec import Struct

from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import Codec, DecisionEnvelope, digest
from loomlog.schemas.ids import event_id
from loomlog.schemas.reader import RawEvent
from loomlog.services.stream.family import Family
from loomlog.services.stream.partition.command_offsets import CommandProgress

NO_DIGEST = bytes(16)
RECORD_OVERHEAD_BYTES = 250
"""Maximum bytes of a record besides its value, its key and ce_source, for sizing batches: 25 of framing, 19 for
ce_specversion, 43 for ce_id, 10 and a name for ce_type, 12 for ce_source, 68 for traceparent.
"""
DECISION_BYTES_MAX = 850_000
"""A decision must fit one batch, whole."""
BATCH_DECISIONS_MAX = 500
"""Keeps one flush short, so that small partitions are not starved."""


SPEC_VERSION = ("ce_specversion", b"1.0")


@cache
def _type_header(schema: str) -> tuple[str, bytes]:
    return ("ce_type", schema.encode())


class DecisionTooLarge(Exception):
    """The events of one decision do not fit one batch."""


class OffsetGap(Exception):
    """Records of others are between; the caller must look for a Claim in [start, end)."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__(f"{end - start} records came between")
        self.start, self.end = start, end


class Aggregate(Struct, gc=False):
    """A live aggregate. `first_offset` is -1 until its first event is acknowledged; `state` is a Resting (resting.py)
    while it is not in memory.

    The cyclic garbage collector does not track it: no state refers to its aggregate, and 100,000 of them would cost
    each full collection a tenth of a second.
    """

    id: str
    state: Any
    key: bytes
    tenant: str
    seq: int = 0
    digest: bytes = NO_DIGEST
    first_offset: int = -1
    last_offset: int = -1
    quarantined: str = ""
    """Why nothing is decided in it; empty if it is intact."""
    pending_events: bool = False
    """Not all its events could be folded: the state is the last one that could, seq and digest are those of the log."""
    timer_at_ms: int = 0
    """Time of its timer; 0: none."""
    snapshot_seq: int = 0
    """Seq of its snapshot in the last partition snapshot; 0: none, or it has to be written again."""
    snapshot_token: bytes = b""
    """Token of that snapshot (resting.py); empty for none."""
    snapshot_offset: int = -1
    """Offset of that snapshot in the snapshots topic; -1: none, or it has no state."""


class ReadyEffect(Struct, frozen=True):
    """An effect that may start now, with the state after the decision that requested it."""

    aggregate: Aggregate
    effect: Any
    state: Any


@dataclass(slots=True)
class Decision:
    """Events that are appended together. A mark has none: it only records the log's offset when its turn comes."""

    aggregate: Aggregate | None
    records: list[ProducerRecord] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    ready_effects: list[ReadyEffect] = field(default_factory=list)
    size: int = 0
    command_offset: int = -1
    cause_id: str = ""
    ended: bool = False
    on_durable: Callable[[int], None] | None = None
    result: Any = None
    """The result of a call that was decided on, until it is in the log."""
    joins_next: bool = False
    """The next decision is a part of this one: they are in the log together or not at all."""


class InFlightBatch(Struct, frozen=True):
    """A batch on the wire."""

    decisions: tuple[Decision, ...]
    records: tuple[ProducerRecord, ...]


class PartitionObserver(Protocol):
    """Callbacks of a family as decisions are made and become durable. They start nothing."""

    def to_snapshot_state(self, aggregate: Aggregate, events: Sequence[Any]) -> Sequence[Any]:
        """Return the events of a decision as the log may contain them."""
        ...

    def decided(self, aggregate: Aggregate, event: Any) -> None:
        """An event was decided; it is not durable yet."""

    def durable(self, aggregate: Aggregate, decision: Decision) -> None:
        """A decision is in the log; the aggregate's offsets are up to date."""

    def ended_found(self, first: RawEvent, last: RawEvent) -> None:
        """At a takeover: an ended aggregate, with its first and last event. The last ones only (ENDED_KEPT)."""

    def folded(self, aggregate: Aggregate, event: Any, at_ms: int) -> None:
        """At a takeover: an event of a live aggregate, decided at `at_ms`. Not called for those in a snapshot."""

    def live_found(self, aggregate: Aggregate) -> None:
        """At a takeover: a live aggregate, folded."""


class Partition:
    """The owner's view of one partition under one term."""

    def __init__(
        self,
        *,
        number: int,
        term: int,
        next_offset: int,
        family: Family,
        codec: Codec,
        observer: PartitionObserver,
        progress: CommandProgress,
        events_topic: str,
    ) -> None:
        self.number = number
        self.term = term
        self.next_offset = next_offset
        self.aggregates: dict[str, Aggregate] = {}
        self.progress = progress
        self.events_since_checkpoint = 0
        self._family = family
        self._codec = codec
        self._observer = observer
        self._source = f"/loomlog/{events_topic}/{number}".encode()
        self._source_header = ("ce_source", self._source)
        self._pending: deque[Decision] = deque()
        self._flight: InFlightBatch | None = None

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    @property
    def pending_decisions(self) -> int:
        return len(self._pending)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is pending and nothing is on the wire."""
        return not self._pending and self._flight is None

    # --- deciding ----------------------------------------------------------------------------------------------------

    def submit(
        self,
        aggregate: Aggregate,
        order: Any,
        *,
        at_ms: int,
        cause_id: str = "",
        command_offset: int = -1,
        is_result: bool = False,
    ) -> bool:
        """Decide and queue the events; False if nothing follows. A new aggregate is kept if it has events. An event of
        another aggregate that belongs to the decision is queued with it.

        Raises whatever a broken rule raises, and DecisionTooLarge; nothing has changed then.
        """
        family, before = self._family, aggregate.state
        name = family.local.joined_aggregate(before)
        joined = self.aggregates.get(name) if name else None
        if name:
            is_known = joined is not None and not joined.pending_events
            order = family.local.with_joined(order, joined.state if joined is not None and is_known else None)
        events: Sequence[Any] = family.decide(before, order)
        if not events:
            return False
        times = family.lineage.event_times(order)
        if not times:  # an imported history is unchanged
            events = self._observer.to_snapshot_state(aggregate, events)
        self.append(
            aggregate,
            events,
            at_ms=at_ms,
            cause_id=cause_id,
            command_offset=command_offset,
            result=order if is_result else None,
            times=times,
        )
        if joined is not None:
            event = family.local.joined_event(before, aggregate.state, joined.state)
            if event is not None:
                self._pending[-1].joins_next = True
                self.append(joined, [event], at_ms=at_ms)
        return True

    def append(
        self,
        aggregate: Aggregate,
        events: Sequence[Any],
        *,
        at_ms: int,
        cause_id: str = "",
        command_offset: int = -1,
        result: Any = None,
        times: Sequence[int] = (),
    ) -> None:
        """Queue events as one decision; see `submit` for what it raises.

        `times` are those of the first events if they were decided earlier than `at_ms`: an imported history.
        """
        family, encode = self._family, self._codec.encode_decision_event
        state, first, tail = aggregate.state, aggregate.seq + 1, aggregate.digest

        def common_at(decided_ms: int) -> DecisionEnvelope:
            return DecisionEnvelope(
                term=self.term,
                aggregate=aggregate.id,
                tenant=aggregate.tenant,
                at_ms=decided_ms,
                cause_id=cause_id,
                cause_offset=command_offset,
            )

        common = common_at(at_ms)
        decided_ms, evolve, react = at_ms, family.evolve, family.effects.react
        values: list[bytes] = []
        effects: list[Any] = []
        for seq, event in enumerate(events, start=first):
            if times:
                decided_ms = times[seq - first] if seq - first < len(times) else at_ms
                common = common_at(decided_ms)
            value = encode(common, seq, tail, event)
            values.append(value)
            tail = digest(value)
            state = evolve(state, event, decided_ms)
            effects += react(state, event)
        size = sum(map(len, values)) + len(values) * (RECORD_OVERHEAD_BYTES + len(aggregate.key) + len(self._source))
        if size > DECISION_BYTES_MAX:
            raise DecisionTooLarge(f"{size} bytes of events, at most {DECISION_BYTES_MAX} fit one append")
        decision = Decision(
            aggregate=aggregate,
            records=self._records(aggregate, first, events, values, family.traceparent(state)),
            events=list(events),
            ready_effects=[ReadyEffect(aggregate, effect, state) for effect in effects],
            size=size,
            command_offset=command_offset,
            cause_id=cause_id,
            ended=family.is_ended(state),
            result=result,
        )
        aggregate.state, aggregate.seq, aggregate.digest = state, first + len(values) - 1, tail
        if times:
            aggregate.quarantined = family.quarantined(state)  # it may have been quarantined at its origin
        if decision.ended:
            self.aggregates.pop(aggregate.id, None)
        else:
            self.aggregates[aggregate.id] = aggregate
        self._pending.append(decision)
        decided = self._observer.decided
        for event in events:
            decided(aggregate, event)

    def on_durable(self, reached: Callable[[int], None]) -> None:
        """Call `reached` with the next offset once everything decided so far is in the log."""
        if self.is_idle:
            reached(self.next_offset)
        else:
            self._pending.append(Decision(aggregate=None, on_durable=reached))

    # --- the wire ----------------------------------------------------------------------------------------------------

    def next_batch(self, max_bytes: int) -> tuple[ProducerRecord, ...]:
        """Return the next batch; empty if nothing is pending. One batch is on the wire at a time."""
        assert self._flight is None, "the last batch is still on the wire"
        decisions: list[Decision] = []
        records: list[ProducerRecord] = []
        size = marks = 0
        joins = False
        while self._pending and (joins or len(decisions) - marks < BATCH_DECISIONS_MAX):
            if decisions and not joins and size + self._next_size() > max_bytes:
                break
            decision = self._pending.popleft()
            joins = decision.joins_next
            decisions.append(decision)
            marks += decision.on_durable is not None
            records += decision.records
            size += decision.size
        if not records:
            for decision in decisions:
                if decision.on_durable is not None:
                    decision.on_durable(self.next_offset)
            return ()
        self._flight = InFlightBatch(tuple(decisions), tuple(records))
        return self._flight.records

    def _next_size(self) -> int:
        """Return the bytes of the next decision with those that are a part of it."""
        first = self._pending[0]
        return first.size + self._pending[1].size if first.joins_next else first.size

    def acknowledged(self, base: int) -> list[ReadyEffect]:
        """Record that the batch is in the log at `base`; returns the effects that may start now.

        Raises OffsetGap if records of others are between; after a scan without a Claim call `skip_to(base)` and
        `acknowledged` again. An offset below the expected one is impossible in a healthy log and means: unknown
        outcome.
        """
        flight = self._flight
        assert flight is not None, "nothing is on the wire"
        if base > self.next_offset:
            raise OffsetGap(self.next_offset, base)
        assert base == self.next_offset, f"base offset {base} below the expected {self.next_offset}"
        self._flight = None
        offset = base
        dues: list[ReadyEffect] = []
        for decision in flight.decisions:
            aggregate = decision.aggregate
            if aggregate is None:
                assert decision.on_durable is not None
                decision.on_durable(offset)
                continue
            if aggregate.first_offset < 0:
                aggregate.first_offset = offset
            offset += len(decision.records)
            aggregate.last_offset = offset - 1
            if decision.command_offset >= 0:
                self.progress.mark_handled(decision.command_offset)
            dues += decision.ready_effects
            self._observer.durable(aggregate, decision)
        self.events_since_checkpoint += len(flight.records)
        self.next_offset = offset
        return dues

    def undecided_aggregates(self) -> frozenset[str]:
        """Return the aggregates with decisions that are not in the log yet."""
        decisions = [*(self._flight.decisions if self._flight is not None else ()), *self._pending]
        return frozenset(decision.aggregate.id for decision in decisions if decision.aggregate is not None)

    def is_undecided(self, aggregate: str, cause_id: str) -> bool:
        """Whether a decision on that command is not in the log yet. Looks at all of them."""
        decisions = [*(self._flight.decisions if self._flight is not None else ()), *self._pending]
        return any(one.cause_id == cause_id and one.aggregate and one.aggregate.id == aggregate for one in decisions)

    def unacknowledged_results(self) -> list[tuple[str, str, Any]]:
        """Return the results of calls whose decision is not known to be in the log: aggregate, tenant, command."""
        decisions = [*(self._flight.decisions if self._flight is not None else ()), *self._pending]
        return [(d.aggregate.id, d.aggregate.tenant, d.result) for d in decisions if d.aggregate and d.result]

    def skip_to(self, offset: int) -> None:
        """Continue at `offset`: the gap below it has no Claim."""
        self.next_offset = offset

    def _records(
        self, aggregate: Aggregate, first: int, events: Sequence[Any], values: Sequence[bytes], trace: str
    ) -> list[ProducerRecord]:
        """Return the events as records, with the headers of CloudEvents and the trace of the aggregate."""
        name, key = aggregate.id, aggregate.key
        rest = (self._source_header, ("traceparent", trace.encode())) if trace else (self._source_header,)
        return [
            ProducerRecord(
                key=key,
                value=value,
                headers=(SPEC_VERSION, ("ce_id", event_id(name, seq).encode()), _type_header(event.SCHEMA), *rest),
            )
            for seq, event, value in zip(range(first, first + len(values)), events, values, strict=True)
        ]
