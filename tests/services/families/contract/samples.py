"""A family that has everything: content, several events a decision, timers, an outbox, a state that keeps texts, items.

It is made of the records of counters, so that it needs no schemas. `replicated` and `indexed` differ in their reads.
"""

import json
from collections.abc import Sequence
from dataclasses import replace as changed
from hashlib import sha256
from typing import Any

from loomlog.schemas.generated.counter_commands import IncrementCounter, ResetCounter
from loomlog.schemas.generated.counter_events import CounterIncremented, CounterReset
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.records import Value, replace
from loomlog.services.core.families import (
    FROM_OUTBOX,
    WHOLE_HISTORY,
    At,
    Family,
    Item,
    Reads,
    Rules,
    Send,
    TimerFired,
    caller_of,
)
from tests.services.stream.entities.counters import FAMILY as COUNTER

STEPS_MAX = 4
"""Events of a decision at most."""
VALUE_MAX = 2**53
MIRRORED = 3
"""A last step of this height is sent to another aggregate."""


class Notebook(Value, frozen=True):
    """State: a number, and every note that came with an increment."""

    value: int = 0
    notes: tuple[str, ...] = ()
    reset_at_ms: int = 0


def decide(state: Notebook, command: IncrementCounter | ResetCounter | TimerFired, at: At) -> Sequence[Any]:
    match command:
        case IncrementCounter(by=by) if by < 1 or state.value + by > VALUE_MAX:
            return [CommandRefused(code="bad_request", message=f"by is {by}")]
        case IncrementCounter(by=by, also=note, reset_after_ms=after_ms):
            reset_at_ms = at.at_ms + after_ms if 0 < after_ms < VALUE_MAX else state.reset_at_ms
            steps = min(by, STEPS_MAX)
            events = []
            for step in range(steps):
                raised = by - (steps - 1) if step == steps - 1 else 1
                value = state.value + (by if step == steps - 1 else step + 1)
                # The note is with the last event, and so is what the outbox sends.
                text = note if step == steps - 1 else ""
                events.append(CounterIncremented(by=raised, value=value, also=text, reset_at_ms=reset_at_ms))
            return events
        case ResetCounter() | TimerFired():
            return [CounterReset(value=state.value)] if state.value else []


def evolve(state: Notebook, event: CounterIncremented | CounterReset, at_ms: int) -> Notebook:
    match event:
        case CounterIncremented(value=value, also=note, reset_at_ms=reset_at_ms):
            notes = (*state.notes, note) if note else state.notes
            return Notebook(value=value, notes=notes, reset_at_ms=reset_at_ms)
        case CounterReset():
            return Notebook(notes=state.notes)


def sends(state: Notebook, event: CounterIncremented | CounterReset) -> Sequence[Send]:
    if isinstance(event, CounterIncremented) and event.also and event.by == MIRRORED:
        return [
            Send(to="counter", command=IncrementCounter(envelope=FROM_OUTBOX, name="mirror", by=1, also=event.also))
        ]
    return ()


def items(state: Notebook, event: CounterIncremented | CounterReset, envelope: Envelope) -> Sequence[Item]:
    """A row for each note, and one for the last note, which a reset removes."""
    name = sha256(envelope.aggregate.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    last = Item(kind="last", id=name)
    if isinstance(event, CounterReset):
        return [last]
    if not event.also:
        return []
    note = Item(
        kind="note",
        id=f"{name}{len(state.notes)}",
        key_a=f"by {event.by}",
        number=event.value,
        document=json.dumps({"note": state.notes[-1], "seq": envelope.seq}),
    )
    return [note, replace(last, document=note.document)]


indexed = Family(
    name="counter",
    summary="A number with notes.",
    rules=Rules(
        state=Notebook,
        initial=lambda aggregate: Notebook(),
        decide=decide,
        evolve=evolve,
        next_timer_ms=lambda state: state.reset_at_ms,
        version=1,
    ),
    lifecycle=WHOLE_HISTORY,
    commands=COUNTER.commands,
    scope=COUNTER.scope,
    content_subject=caller_of,
    sends=sends,
    items=items,
)
replicated = changed(indexed, reads=Reads.REPLICATED)
