"""A recorded run, folded again: pure, no calls, no clock.

    legal      seq is dense from 1 and every event names the digest of the one before it
    stable     two folds give the same state: one directly, the other by writing and reading the state as a snapshot
               does, so a state that does not survive serialization is found as well

A violation is a sentence in `drift`, with the first seq at which it was seen; without one the run is proven from its
records. The fold takes events one at a time, so a run may be longer than memory.

Before: services/stream/archive/run_log.py or a bundle gives the records. After: services/core/run/state.py.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from loomlog.schemas.codec import DIGEST_BYTES, Codec, Undecodable, digest, local_codec
from loomlog.schemas.conversation import Message
from loomlog.schemas.generated.run_events import Event
from loomlog.schemas.reader import RawEvent
from loomlog.schemas.records import Value
from loomlog.services.core.canonical import StateCodec, UnreadableState
from loomlog.services.core.run.conversation.conversation import build_conversation
from loomlog.services.core.run.evolve import evolve
from loomlog.services.core.run.state import Absent, Ended, IllegalEvent, Refused, State

STATES = StateCodec(State)
INITIAL_DIGEST = bytes(DIGEST_BYTES)
"""The predecessor's digest in the first event."""


class TimelineEntry(Value, frozen=True, kw_only=True):
    """An event on the timeline."""

    seq: int
    offset: int
    term: int
    tenant: str
    at_ms: int
    cause_id: str
    digest: bytes
    event: Event

    @property
    def type(self) -> str:
        return type(self.event).__name__

    @property
    def payload(self) -> Mapping[str, Any]:
        return self.event.to_avro()


class ReplayResult(Value, frozen=True, kw_only=True):
    """Result of a replay. `state_sha256` is that of the last state that could be folded."""

    run_id: str
    state: State
    state_sha256: str
    seq: int
    last_offset: int
    tail_digest: bytes
    entries: tuple[TimelineEntry, ...]
    drift: tuple[str, ...]
    first_drift_seq: int = 0
    """Seq of the first event with a violation; 0 if there is none."""

    @property
    def status(self) -> str:
        """The status, as in the read models."""
        return run_status(self.state)

    @property
    def history(self) -> tuple[Message, ...]:
        """The conversation with which a run that continues this one starts."""
        return build_conversation(self.state)


class RunFold:
    """Incremental fold of one run. `history` is the conversation of the run it continues."""

    def __init__(
        self,
        run_id: str,
        *,
        history: tuple[Message, ...] = (),
        codec: Codec | None = None,
        checks_roundtrip: bool = True,
    ) -> None:
        """`through_bytes`: write and read the state after every event, at the cost of its size; otherwise at the end
        only.
        """
        self.run_id = run_id
        self.state: State = Absent(run_id=run_id, history=history)
        self.seq = 0
        self.last_offset = -1
        self.tail_digest = INITIAL_DIGEST
        self.drift: list[str] = []
        self.first_drift_seq = 0
        self.is_stuck = False
        """An event could not be folded; those after it are ignored."""
        self._codec = codec or local_codec()
        self._roundtrip_state: State | None = self.state if checks_roundtrip else None

    def apply(self, event: RawEvent) -> TimelineEntry | None:
        """Fold the next event; None if it, or one before it, cannot be folded."""
        if self.is_stuck:
            return None
        where = f"seq {event.seq} at offset {event.offset}"
        try:
            decoded = self._codec.decode(event.value)
            envelope = decoded.envelope
            if envelope is None:
                raise Undecodable("it has no envelope")
            if envelope.aggregate != self.run_id:
                self.report_drift(event.seq, f"{where}: it is an event of {envelope.aggregate}")
            if envelope.seq != self.seq + 1:
                self.report_drift(
                    event.seq, f"{where}: seq {self.seq + 1} was expected, so the history has a gap or a repetition"
                )
            if envelope.prev != self.tail_digest:
                self.report_drift(
                    event.seq, f"{where}: it does not name the digest of the record before it, the chain is broken"
                )
            self.state = evolve(self.state, decoded.record, envelope.at_ms)
            if self._roundtrip_state is not None:
                self._roundtrip_state = _roundtrip(evolve(self._roundtrip_state, decoded.record, envelope.at_ms))
        except (Undecodable, IllegalEvent, UnreadableState) as error:
            self.report_drift(event.seq, f"{where}: {type(error).__name__}: {error}")
            self.is_stuck = True
            return None
        self.seq, self.last_offset, self.tail_digest = envelope.seq, event.offset, digest(event.value)
        return TimelineEntry(
            seq=envelope.seq,
            offset=event.offset,
            term=envelope.term,
            tenant=envelope.tenant,
            at_ms=envelope.at_ms,
            cause_id=envelope.cause_id,
            digest=self.tail_digest,
            event=decoded.record,
        )

    def report_drift(self, seq: int, sentence: str) -> None:
        """Record a violation at that event."""
        self.drift.append(sentence)
        self.first_drift_seq = self.first_drift_seq or seq

    def result(self, entries: tuple[TimelineEntry, ...] = ()) -> ReplayResult:
        """Return the result so far."""
        sha256 = STATES.digest(self.state)
        again = STATES.digest(_roundtrip(self.state) if self._roundtrip_state is None else self._roundtrip_state)
        if again != sha256:
            self.report_drift(
                self.seq, f"folding through the bytes of each state gives {again[:16]}, straight through {sha256[:16]}"
            )
        return ReplayResult(
            run_id=self.run_id,
            state=self.state,
            state_sha256=sha256,
            seq=self.seq,
            last_offset=self.last_offset,
            tail_digest=self.tail_digest,
            entries=entries,
            drift=tuple(self.drift),
            first_drift_seq=self.first_drift_seq,
        )


def replay(
    run_id: str, events: Iterable[RawEvent], *, history: tuple[Message, ...] = (), codec: Codec | None = None
) -> ReplayResult:
    """Fold the accepted events of one run, in order, and keep the timeline."""
    folding = RunFold(run_id, history=history, codec=codec)
    entries = [entry for event in events if (entry := folding.apply(event)) is not None]
    return folding.result(tuple(entries))


def run_status(state: State) -> str:
    """Return the status of a run in this state, as in the read models."""
    match state:
        case Ended(status=status):
            return status
        case Refused():
            return "refused"
        case Absent():
            return "absent"
        case _:
            return "running"


def _roundtrip(state: State) -> State:
    back: State = STATES.decode(STATES.encode(state))
    return back
