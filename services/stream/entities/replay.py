"""An aggregate of the entity topics, folded again from its accepted events: pure, no calls, no clock.

    legal      seq is dense from 1 and every event names the digest of the one before it
    stable     two folds give the same state: one directly, the other by writing and reading the state after each event

A violation is a sentence in `drift`, with the first seq at which it was seen. An event that cannot be folded is one,
unless the aggregate was restated after it: then it is in `repaired`, because the fold goes on from the new state.

Before: services/cli/log/entity_replay.py reads the records. After: the rules of the family.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from loomlog.schemas.codec import DIGEST_BYTES, Codec, Undecodable, digest, read_envelope
from loomlog.schemas.generated.entity_events import AggregateEventImported
from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.reader import RawEvent
from loomlog.schemas.records import Record, Value
from loomlog.services.core.entity import RESTATED, Entity
from loomlog.services.core.entity_import import original_event
from loomlog.services.stream.entities.families import EntityFamilies

FIRST_PREV = bytes(DIGEST_BYTES)
"""The predecessor's digest in the first event."""


class AggregateEvent(Value, frozen=True, kw_only=True):
    """An event of an aggregate on its timeline. `event` is None when it cannot be decoded."""

    offset: int
    envelope: Envelope
    event: Record | None

    @property
    def type(self) -> str:
        """The type; of an imported event that of the one it holds."""
        return "(unreadable)" if self.event is None else type(self._original).__name__

    @property
    def payload(self) -> Mapping[str, Any]:
        return {} if self.event is None else self._original.to_avro()

    @property
    def is_imported(self) -> bool:
        return isinstance(self.event, AggregateEventImported)

    @property
    def _original(self) -> Any:
        if not isinstance(self.event, AggregateEventImported):
            return self.event
        try:
            return original_event(self.event)[0]
        except Undecodable:
            return self.event  # the fold says so


class AggregateReplay(Value, frozen=True, kw_only=True):
    """Result of a replay. `state` is the last one that could be folded, `state_json` its canonical bytes."""

    aggregate: str
    state: Entity[Any]
    state_json: bytes
    state_sha256: str
    version: int
    """Version of the fold of the family."""
    seq: int
    tail_digest: bytes
    entries: tuple[AggregateEvent, ...]
    drift: tuple[str, ...]
    repaired: tuple[str, ...]
    """Events that cannot be folded, and were got over by a new state."""
    first_drift_seq: int = 0
    """Seq of the first event with a violation; 0 if there is none."""


def replay_aggregate(
    families: EntityFamilies, aggregate: str, events: Iterable[RawEvent], *, codec: Codec
) -> AggregateReplay:
    """Fold the accepted events of one aggregate, in order. Raises UnknownFamily."""
    fold = AggregateFold(families, aggregate, codec)
    entries = [entry for event in events if (entry := fold.apply(event)) is not None]
    return fold.result(tuple(entries))


class AggregateFold:
    """Incremental fold of one aggregate, so that its history may be longer than memory. Raises UnknownFamily."""

    def __init__(self, families: EntityFamilies, aggregate: str, codec: Codec) -> None:
        self._families, self._family = families, families.families.of(aggregate)
        self._aggregate, self._codec = aggregate, codec
        self._restatements = codec.schema_ids_of(frozenset({RESTATED}))
        self._state: Any = families.absent(aggregate)
        self._copy: Any = self._state
        """The same, written and read after every event."""
        self._seq, self._digest = 0, FIRST_PREV
        self._drift: list[str] = []
        self._repaired: list[str] = []
        self._first_drift_seq = 0
        self._unfolded: tuple[int, str] | None = None
        """Seq and sentence of the first event that could not be folded; those after it wait for a restatement."""

    def apply(self, event: RawEvent) -> AggregateEvent | None:
        """Fold the next event; None if it has no envelope."""
        where = f"seq {event.seq} at offset {event.offset}"
        try:
            envelope, _ = read_envelope(event.value)
        except Undecodable as error:
            self._report(event.seq, f"{where}: it has no envelope: {error}")
            return None
        if event.seq != self._seq + 1:
            self._report(
                event.seq, f"{where}: seq {self._seq + 1} was expected, so the history has a gap or a repetition"
            )
        if envelope.prev != self._digest:
            self._report(
                event.seq, f"{where}: it does not name the digest of the record before it, the chain is broken"
            )
        self._seq, self._digest = event.seq, digest(event.value)
        if event.schema_id in self._restatements and self._unfolded is not None:
            self._repaired.append(self._unfolded[1])
            self._unfolded = None
            self._state = self._copy = self._families.before(self._aggregate, event.seq)
        record: Record | None = None
        try:
            record = self._codec.decode(event.value).record
            if self._unfolded is None:
                self._fold(record, envelope.at_ms)
        except Exception as error:  # noqa: BLE001 - whatever a family's rule raises is the finding
            reason = str(error) if isinstance(error, Undecodable) else f"{type(error).__name__}: {error}"
            self._unfolded = self._unfolded or (event.seq, f"{where}: it cannot be folded: {reason}")
        return AggregateEvent(offset=event.offset, envelope=envelope, event=record)

    def _fold(self, record: Record, at_ms: int) -> None:
        states = self._family.states
        state = self._family.rules.evolve(self._state, record, at_ms)
        self._copy = states.decode(states.encode(self._family.rules.evolve(self._copy, record, at_ms)))
        self._state = state

    def _report(self, seq: int, sentence: str) -> None:
        self._drift.append(sentence)
        self._first_drift_seq = self._first_drift_seq or seq

    def result(self, entries: tuple[AggregateEvent, ...] = ()) -> AggregateReplay:
        """Return the result, once."""
        if self._unfolded is not None:
            self._report(*self._unfolded)
        states = self._family.states
        sha256, again = states.digest(self._state), states.digest(self._copy)
        if sha256 != again:
            self._report(
                self._seq, f"folding through the bytes of each state gives {again[:16]}, straight through {sha256[:16]}"
            )
        return AggregateReplay(
            aggregate=self._aggregate,
            state=self._state,
            state_json=states.encode(self._state),
            state_sha256=sha256,
            version=self._family.rules.version,
            seq=self._seq,
            tail_digest=self._digest,
            entries=entries,
            drift=tuple(self._drift),
            repaired=tuple(self._repaired),
            first_drift_seq=self._first_drift_seq,
        )
