"""A recorded run, folded again: pure, nothing is called, no clock is read.

    legal      seq is dense from 1 and every event names the digest of the one before it
    stable     two folds give the same state: one goes straight through, the other writes and reads the state after
               every event, as a snapshot would, so a state that does not survive its own bytes is found as well
    equal      the state agrees with the row the projector made of the same events

What does not hold is a sentence in `drift`; without one the run is proven from its records.

Before: replay.py reads the records. After: services/core/run/state.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from projections.audit import AuditRow
from projections.runs import RunRow
from schemas.codec import Codec, Undecodable, digest, local_codec
from schemas.conversation import Message
from schemas.reader import RawEvent
from schemas.run_events import RunStarted
from services.core.canonical import StateCodec, Unreadable
from services.core.run.state import (
    Absent,
    AwaitingModel,
    AwaitingTools,
    Ended,
    IllegalEvent,
    Parked,
    Paused,
    Refused,
    State,
    conversation,
    evolve,
)
from services.stream.partition import NO_DIGEST

STATES = StateCodec(State)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An event on the timeline."""

    seq: int
    offset: int
    term: int
    at_ms: int
    type: str
    cause_id: str
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What came out. `state_sha256` is that of the last state that could be folded."""

    run_id: str
    state: State
    state_sha256: str
    seq: int
    last_offset: int
    tail_digest: bytes
    entries: tuple[Entry, ...]
    drift: tuple[str, ...]

    @property
    def status(self) -> str:
        """As the read models call it."""
        match self.state:
            case Ended(status=status):
                return status
            case Refused():
                return "refused"
            case Absent():
                return "absent"
            case _:
                return "running"

    @property
    def history(self) -> tuple[Message, ...]:
        """What a run that goes on with this one begins with."""
        return conversation(self.state)


def replay(
    run_id: str, events: Sequence[RawEvent], *, history: tuple[Message, ...] = (), codec: Codec | None = None
) -> Replayed:
    """Folds the accepted events of one run, in order. `history` is what the run it continues had said."""
    codec = codec or local_codec()
    state: State = Absent(run_id=run_id, history=history)
    through_bytes: State = state
    seq, last_offset, tail = 0, -1, NO_DIGEST
    entries: list[Entry] = []
    drift: list[str] = []
    for event in events:
        where = f"seq {event.seq} at offset {event.offset}"
        try:
            decoded = codec.decode(event.value)
            envelope = decoded.envelope
            if envelope is None:
                raise Undecodable("it has no envelope")
            if envelope.seq != seq + 1:
                drift.append(f"{where}: seq {seq + 1} was expected, so the history has a gap or a repetition")
            if envelope.prev != tail:
                drift.append(f"{where}: it does not name the digest of the record before it, the chain is broken")
            state = evolve(state, decoded.record, envelope.at_ms)
            through_bytes = STATES.decode(STATES.encode(evolve(through_bytes, decoded.record, envelope.at_ms)))
        except (Undecodable, IllegalEvent, Unreadable) as error:
            drift.append(f"{where}: {type(error).__name__}: {error}")
            break
        seq, last_offset, tail = envelope.seq, event.offset, digest(event.value)
        entries.append(
            Entry(
                seq=envelope.seq,
                offset=event.offset,
                term=envelope.term,
                at_ms=envelope.at_ms,
                type=type(decoded.record).__name__,
                cause_id=envelope.cause_id,
                payload=decoded.record.to_avro(),
            )
        )
    sha256 = STATES.digest(state)
    again = STATES.digest(through_bytes)
    if again != sha256:
        drift.append(f"folding through the bytes of each state gives {again[:16]}, straight through {sha256[:16]}")
    return Replayed(
        run_id=run_id,
        state=state,
        state_sha256=sha256,
        seq=seq,
        last_offset=last_offset,
        tail_digest=tail,
        entries=tuple(entries),
        drift=tuple(drift),
    )


def continued(event: RawEvent, codec: Codec | None = None) -> Any:
    """Where the run lies that a run with this first event goes on with; None when it begins by itself."""
    record = (codec or local_codec()).decode(event.value).record
    return record.continues if isinstance(record, RunStarted) else None


def differences(replayed: Replayed, place: AuditRow | None, row: RunRow | None) -> list[str]:
    """What the read models say otherwise than the fold. They must be as far as the fold is."""
    if place is None:
        return ["the read models do not know the run"]
    found = [
        f"the read models say {name} {theirs}, the log says {ours}"
        for name, ours, theirs in (
            ("last seq", replayed.seq, place.last_seq),
            ("last offset", replayed.last_offset, place.last_offset),
            ("tail digest", replayed.tail_digest.hex(), place.tail_digest.hex()),
        )
        if ours != theirs
    ]
    if place.halted_offset is not None:
        found.append(f"the read models halted the run at offset {place.halted_offset}: {place.withheld} records wait")
    state = replayed.state
    if not isinstance(state, AwaitingModel | AwaitingTools | Parked | Paused | Ended):
        return found
    if row is None:
        return [*found, "the read models have no row for the run"]
    facts = state.facts
    found += [
        f"the read models say {name} {theirs}, the fold gives {ours}"
        for name, ours, theirs in (
            ("status", replayed.status, row.status),
            ("turns", facts.turns, row.iterations),
            ("input tokens", facts.usage.input_tokens, row.input_tokens),
            ("output tokens", facts.usage.output_tokens, row.output_tokens),
            ("cost", facts.cost_micros, row.cost_micros),
            ("model errors", facts.model_errors, row.model_errors),
            ("session", facts.session_id, row.session_id),
            ("handle", facts.agent_id, row.agent_id),
            ("definition", facts.definition.sha256, row.definition_sha256),
            ("parked", isinstance(state, Parked), row.parked),
            ("paused", isinstance(state, Paused), row.paused),
        )
        if ours != theirs
    ]
    return found
