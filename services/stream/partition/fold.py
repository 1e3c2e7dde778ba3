"""The fold of a partition at a takeover, lazy: ended aggregates are never decoded.

Records are fed in offset order through the term rule; the accepted bytes of each aggregate are kept until its ending
event. What is left at the end, the live aggregates, is decoded, checked (dense seq, hash chain) and folded, from a
snapshot if there is one. So a takeover costs the live runs, not the history.

One aggregate that cannot be folded is quarantined with its error; the others continue.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import LogRecord
from loomlog.schemas.codec import Codec, DecodedRecord, Undecodable, digest, read_envelope
from loomlog.schemas.reader import RawEvent, TermReader
from loomlog.schemas.records import Value, replace
from loomlog.services.stream.family import Family
from loomlog.services.stream.partition.partition import NO_DIGEST, Aggregate
from loomlog.services.stream.partition.resting import Resting, SnapshotUnusable, is_resting

ENDED_KEPT = 20_000
"""Ended aggregates remembered by id and position, to recognise repeated commands without a lookup (about 10 MB)."""


YIELD_EVERY = 1_000
"""Aggregates between two turns of the event loop; a few milliseconds."""


class BrokenHistory(Exception):
    """The events of an aggregate do not follow one another: a gap, a repetition or a broken hash chain."""


class SnapshotBase(Value, frozen=True):
    """Start of the fold of an aggregate from a trusted snapshot.

    `state` is a Resting if the aggregate rests, and None if it has to be loaded: the snapshot has none.
    """

    state: Any
    seq: int
    digest: bytes
    key: bytes
    tenant: str
    first_offset: int
    last_offset: int
    sha256: str = ""
    token: bytes = b""
    """Token of the snapshot (resting.py); empty if it is not part of a partition snapshot of runs."""
    offset: int = -1
    """Offset of the snapshot in its topic."""
    timer_at_ms: int = 0
    """Timer of an aggregate that rests; 0: none."""


def aggregate_from(name: str, base: SnapshotBase) -> Aggregate:
    """Return the aggregate as it was when its snapshot was made."""
    return Aggregate(
        id=name,
        state=base.state,
        key=base.key,
        tenant=base.tenant,
        seq=base.seq,
        digest=base.digest,
        first_offset=base.first_offset,
        last_offset=base.last_offset,
        timer_at_ms=base.timer_at_ms,
        snapshot_seq=base.seq if base.token else 0,
        snapshot_token=base.token,
        snapshot_offset=base.offset if base.state is not None else -1,
    )


async def no_history(event: Any) -> None:
    """History of aggregates that continue no other: there is none."""


class FoldProblem(Struct, frozen=True):
    """A record that could not be decoded, to be parked as a dead letter."""

    record: LogRecord
    error: str


class Fold:
    """Takes records, returns live aggregates."""

    def __init__(
        self,
        family: Family,
        codec: Codec,
        *,
        term: int,
        next_offset: int,
        bases: dict[str, SnapshotBase] | None = None,
        keep_over: int | None = None,
    ) -> None:
        """`keep_over` instead of ENDED_KEPT."""
        self.reader = TermReader(codec=codec, term=term, next_offset=next_offset)
        self.commands: list[int] = []
        """Offsets of the commands that caused the accepted events."""
        self.problems: list[FoldProblem] = []
        self.over: OrderedDict[str, tuple[RawEvent, RawEvent]] = OrderedDict()
        self.first_offsets: dict[str, int] = {}
        """Offset of the first event of those of `over` that began before the records fed, from their snapshots."""
        self.forgotten_until = 0
        """Offset after the last forgotten ended aggregate."""
        self.forgotten_before_ms = 0
        """Time after the ends of all forgotten aggregates; 0 if none was forgotten."""
        self.covered: list[RawEvent] = []
        """Accepted events that are in a snapshot which is newer than the partition snapshot."""
        self.events = 0
        self.kept_bytes = 0
        """Bytes of the events of live aggregates."""
        self._keep_over = ENDED_KEPT if keep_over is None else keep_over
        self._family = family
        self._codec = codec
        self._bases = dict(bases or {})
        self._endings = codec.schema_ids_of(family.endings)
        self._restatements = codec.schema_ids_of(family.restatements)
        self._live: dict[str, list[RawEvent]] = {}
        self._keys: dict[str, bytes] = {}
        self.woken: dict[str, None] = {}
        """Aggregates that rested at the start and have events since. A standby loads their states (`load_woken`)."""

    def feed(self, records: Iterable[LogRecord]) -> None:
        for record in records:
            try:
                event = self.reader.read(record.offset, record.value)
                if event is None:
                    continue
                envelope, _ = read_envelope(event.value)
            except Undecodable as error:
                self.problems.append(FoldProblem(record, str(error)))
                continue
            self.events += 1
            if envelope.cause_offset >= 0:
                self.commands.append(envelope.cause_offset)
            base = self._bases.get(event.aggregate)
            if base is not None and event.seq <= base.seq:
                self.covered.append(event)
                continue  # the snapshot is newer than the partition snapshot that named it
            if event.schema_id in self._endings:
                self._end(event)
            else:
                if base is not None and type(base.state) is Resting and event.aggregate not in self._live:
                    self.woken[event.aggregate] = None
                self._live.setdefault(event.aggregate, []).append(event)
                self.kept_bytes += len(event.value)
                self._keys.setdefault(event.aggregate, record.key or b"")

    def _end(self, event: RawEvent) -> None:
        events = self._live.pop(event.aggregate, None)
        if events is None:
            events = [event]
        else:
            self.kept_bytes -= sum(len(kept.value) for kept in events)
        self._keys.pop(event.aggregate, None)
        base = self._bases.pop(event.aggregate, None)
        if base is not None:
            self.first_offsets[event.aggregate] = base.first_offset
        self.over[event.aggregate] = (events[0], event)
        if len(self.over) > self._keep_over:
            name, (_, last) = self.over.popitem(last=False)
            self.first_offsets.pop(name, None)
            self.forgotten_until = max(self.forgotten_until, last.offset + 1)
            self.forgotten_before_ms = max(self.forgotten_before_ms, read_envelope(last.value)[0].at_ms + 1)

    @property
    def unfolded(self) -> Mapping[str, list[RawEvent]]:
        """The accepted events of each live aggregate, after its snapshot if there is one."""
        return self._live

    async def live(
        self,
        history: Callable[[Any], Awaitable[Any]] = no_history,
        folded: Callable[[Aggregate, Any, int], None] = lambda aggregate, event, at_ms: None,
        *,
        load: Callable[[Aggregate], Awaitable[None]] | None = None,
        only: Callable[[str], bool] = lambda name: True,
    ) -> list[Aggregate]:
        """Return the live aggregates. `history` returns the history that the first event of one continues, or None;
        `folded` receives every event and the time of its decision; `load` is StateLoader.load, for a family whose
        aggregates may rest; `only` selects aggregates by id.

        An aggregate that cannot be folded is returned quarantined, with the last state that could. Raises Transient if
        a history cannot be read now.
        """
        aggregates: list[Aggregate] = []
        names = [*self._bases, *(name for name in self._live if name not in self._bases)]
        for number, name in enumerate(filter(only, names)):
            base, events = self._bases.get(name), self._live.get(name, [])
            aggregate = aggregate_from(name, base) if base is not None else self._fresh(name)
            if number % YIELD_EVERY == YIELD_EVERY - 1:
                await asyncio.sleep(0)  # heartbeats share this event loop
            if base is not None and (base.state is None or (events and is_resting(aggregate))):
                assert load is not None, f"{name} has no state, and this family loads none"
                await load(aggregate)
                if aggregate.pending_events:
                    _until_end(aggregate, events)
                    aggregates.append(aggregate)
                    continue
            await fold_events(
                aggregate,
                events,
                family=self._family,
                codec=self._codec,
                history=history,
                folded=folded,
                restatements=self._restatements,
            )
            if not self._family.is_ended(aggregate.state):
                aggregates.append(aggregate)
        return aggregates

    async def load_woken(self, load: Callable[[Aggregate], Awaitable[Any]]) -> None:
        """Load the states of aggregates that rested and have events since, while their snapshots are still there: an
        owner writes newer ones, and compaction removes those that this fold began with. `load` is
        StateReader.read_state of the partition. Raises Transient.
        """
        while self.woken:
            name = next(iter(self.woken))
            base = self._bases.get(name)
            if base is not None and type(base.state) is Resting:
                try:
                    state = await load(aggregate_from(name, base))
                except SnapshotUnusable:
                    state = base.state  # the takeover folds it again
                if self._bases.get(name) is base:
                    self._bases[name] = replace(base, state=state)
            self.woken.pop(name, None)

    def _fresh(self, name: str) -> Aggregate:
        return Aggregate(id=name, state=self._family.absent(name), key=self._keys[name], tenant="")


async def fold_events(
    aggregate: Aggregate,
    events: Sequence[RawEvent],
    *,
    family: Family,
    codec: Codec,
    history: Callable[[Any], Awaitable[Any]] = no_history,
    folded: Callable[[Aggregate, Any, int], None] = lambda aggregate, event, at_ms: None,
    restatements: frozenset[int] = frozenset(),
) -> None:
    """Apply accepted events to the aggregate, from the last restatement on if there is one. Raises Transient.

    An aggregate that cannot be folded is quarantined, with the last state that could.
    """
    restated = max((at for at, event in enumerate(events) if event.schema_id in restatements), default=-1)
    if restated >= 0:
        first = events[restated]
        if aggregate.first_offset < 0:
            aggregate.first_offset = events[0].offset
        aggregate.state = family.before(aggregate.id, first.seq)
        aggregate.seq, aggregate.digest = first.seq - 1, read_envelope(first.value)[0].prev
    for event in events[max(restated, 0) :]:
        try:
            decoded = await fold_event(aggregate, event, family=family, codec=codec, history=history)
            assert decoded.envelope is not None
            folded(aggregate, decoded.record, decoded.envelope.at_ms)
        except Transient:
            raise  # the run is intact: the log did not answer
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one run must not stop the others
            aggregate.quarantined = f"offset {event.offset}: {type(error).__name__}: {error}"
            _until_end(aggregate, events)
            return


def _until_end(aggregate: Aggregate, events: Sequence[RawEvent]) -> None:
    """Set its position to its last event, so that later events can follow that."""
    aggregate.pending_events = True
    if not events:
        return
    first, last = events[0], events[-1]
    aggregate.tenant = read_envelope(last.value)[0].tenant
    aggregate.first_offset = first.offset if aggregate.first_offset < 0 else aggregate.first_offset
    aggregate.seq, aggregate.digest, aggregate.last_offset = last.seq, digest(last.value), last.offset


async def fold_event(
    aggregate: Aggregate,
    event: RawEvent,
    *,
    family: Family,
    codec: Codec,
    history: Callable[[Any], Awaitable[Any]],
) -> DecodedRecord:
    """Apply one accepted event, checked, and return it. Raises BrokenHistory, Undecodable or what the fold raises."""
    decoded = codec.decode(event.value)
    envelope = decoded.envelope
    if envelope is None or envelope.seq != aggregate.seq + 1:
        raise BrokenHistory(f"expected seq {aggregate.seq + 1}, found {event.seq}")
    if envelope.prev != aggregate.digest:
        raise BrokenHistory(f"seq {event.seq} does not continue the hash chain")
    if event.seq == 1:
        earlier = await history(decoded.record)
        if earlier is not None:
            aggregate.state = family.lineage.with_history(aggregate.id, earlier)
        aggregate.first_offset = event.offset
        aggregate.digest = NO_DIGEST
    aggregate.state = family.evolve(aggregate.state, decoded.record, envelope.at_ms)
    aggregate.tenant = envelope.tenant
    aggregate.seq = event.seq
    aggregate.digest = digest(event.value)
    aggregate.last_offset = event.offset
    return decoded
