"""Imports: an aggregate that happened elsewhere is appended to this log event by event, without its effects.

Each event here holds one of there as it was stored, with its envelope. So its seq and time are those of there, and its
hash chain can be checked from this log alone, while term, position and chain of the record that holds it are of this
log. The first one names the origin. An aggregate that is moved on to a third installation holds events in events.

Long aggregates come in parts. Until the last event is here (`Restoring`), the aggregate accepts the next parts only.

Not chosen: appending the events bare under new envelopes, as for runs (decision 10): readers that react to events of a
family would do so again, and the first event of a family has no field for the origin.
Before: services/application/transfer/entity_restore.py. After: entity.py folds.
"""

from collections.abc import Sequence
from typing import Any

from loomlog.schemas.codec import DIGEST_BYTES, Undecodable, digest, local_codec
from loomlog.schemas.generated.entity_commands import ImportAggregate
from loomlog.schemas.generated.entity_events import AggregateEventImported, CommandRefused
from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.records import Value


class Restoring(Value, frozen=True, kw_only=True):
    """An import under way: the last event that is here, by its seq and digest there."""

    seq: int = 0
    digest: bytes = bytes(DIGEST_BYTES)
    events: int
    """How many there are."""
    tail_digest: str
    """Digest of the last one there, hex."""

    @property
    def problem(self) -> str:
        """Return why nothing else is decided in the aggregate."""
        return f"it is being restored: {self.seq} of {self.events} events are here"


def original_event(event: AggregateEventImported) -> tuple[Any, Envelope]:
    """Return the event that happened first, however often it was moved, and its envelope. Raises Undecodable."""
    while True:
        decoded = local_codec().decode(event.event)
        if decoded.envelope is None:
            raise Undecodable("the imported record has no envelope")
        if not isinstance(decoded.record, AggregateEventImported):
            return decoded.record, decoded.envelope
        event = decoded.record


def restoring_after(before: Restoring | None, event: AggregateEventImported) -> Restoring | None:
    """Return what is under way after an imported event; None after the last one."""
    if not event.remaining:
        return None
    seq = before.seq + 1 if before is not None else 1
    tail = before.tail_digest if before is not None else "" if event.origin is None else event.origin.tail_digest
    return Restoring(seq=seq, digest=digest(event.event), events=seq + event.remaining, tail_digest=tail)


def import_events(
    aggregate: str, command: ImportAggregate, restoring: Restoring | None, *, has_events: bool
) -> Sequence[Any]:
    """Return the events of a part that are not here yet, none when all are, or a refusal."""
    origin = command.origin
    if restoring is None and has_events:
        return _refuse("exists", f"{aggregate} has events here: it is left as it is")
    here = restoring or Restoring(events=origin.events, tail_digest=origin.tail_digest)
    if (here.events, here.tail_digest) != (origin.events, origin.tail_digest):
        return _refuse("conflict", f"{aggregate} is being restored from another file: {here.problem}")
    known = here.seq + 1 - command.first_seq
    if known < 0:
        return _refuse("conflict", f"the part begins at seq {command.first_seq}: {here.problem}")
    imported: list[Any] = []
    seq, tail = here.seq, here.digest
    for value in command.events[known:]:
        seq += 1
        problem = _chain_problem(aggregate, command.envelope.tenant, value, seq, tail)
        if problem:
            return _refuse("bad_request", f"event {seq} of {aggregate} cannot be imported: {problem}")
        tail = digest(value)
        first = origin if seq == 1 else None
        imported.append(AggregateEventImported(event=value, remaining=origin.events - seq, origin=first))
    if seq > origin.events or (seq == origin.events and tail.hex() != origin.tail_digest):
        return _refuse("bad_request", f"the events of {aggregate} do not end as its origin says")
    return imported


def _chain_problem(aggregate: str, tenant: str, value: bytes, seq: int, tail: bytes) -> str:
    """Return why an event does not follow the one with that digest; empty if it does."""
    try:
        envelope = local_codec().decode(value).envelope
    except Undecodable as error:
        return str(error)
    if envelope is None:
        return "it has no envelope"
    if (envelope.aggregate, envelope.tenant) != (aggregate, tenant):
        return f"it is of {envelope.aggregate[:80]!r}, tenant {envelope.tenant[:40]!r}"
    if envelope.seq != seq or envelope.prev != tail:
        return f"it has seq {envelope.seq} and does not continue the hash chain"
    return ""


def _refuse(code: str, message: str) -> Sequence[Any]:
    return [CommandRefused(code=code, message=message)]
