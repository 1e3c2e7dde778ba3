"""A family of aggregates in one file: counters that can be raised and set to zero.

It runs inside loomlog: every process imports the modules that LOOMLOG_FAMILIES names, from PYTHONPATH. Its commands
and events are schemas/avro/counter/. In the top folder of a clone, after `make down` if a stack runs there:

    export LOOMLOG_FAMILIES=counter PYTHONPATH=docs/examples/counter
    loomlog up --detach
    loomlog counter increment --name hits --by 3
    loomlog counter show hits
"""

from collections.abc import Sequence

from loomlog.schemas.generated.counter_commands import IncrementCounter, ResetCounter
from loomlog.schemas.generated.counter_events import CounterIncremented, CounterReset
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.records import Value
from loomlog.services.core.access.scopes import RUNS_CREATE, RUNS_READ
from loomlog.services.core.families import FROM_OUTBOX, WHOLE_HISTORY, At, Command, Family, Rules, Send, TimerFired

VALUE_MAX = 2**53
"""Largest value: JSON numbers are exact up to here."""
RESET_AFTER_MS_MAX = 366 * 24 * 3_600_000
"""A year; the time of a reset must fit 64 bits."""


class Counter(Value, frozen=True):
    """State of a counter."""

    value: int = 0
    reset_at_ms: int = 0
    """When it is set to zero, UTC milliseconds; 0: never."""


def decide(counter: Counter, command: IncrementCounter | ResetCounter | TimerFired, at: At) -> Sequence[object]:
    """Return the events that follow a command."""
    match command:
        case IncrementCounter(by=by) if by < 1 or counter.value + by > VALUE_MAX:
            message = f"by is {by}: expected at least 1, and a value of at most {VALUE_MAX}"
            return [CommandRefused(code="bad_request", message=message)]
        case IncrementCounter(reset_after_ms=after_ms) if after_ms > RESET_AFTER_MS_MAX:
            message = f"reset_after_ms is {after_ms}: expected at most {RESET_AFTER_MS_MAX}"
            return [CommandRefused(code="bad_request", message=message)]
        case IncrementCounter(by=by, also=also, reset_after_ms=after_ms):
            reset_at_ms = at.at_ms + after_ms if after_ms > 0 else counter.reset_at_ms
            return [CounterIncremented(by=by, value=counter.value + by, also=also, reset_at_ms=reset_at_ms)]
        case ResetCounter() | TimerFired():
            return [CounterReset(value=counter.value)] if counter.value else []


def evolve(counter: Counter, event: CounterIncremented | CounterReset, at_ms: int) -> Counter:
    """Return the counter after an event."""
    match event:
        case CounterIncremented(value=value, reset_at_ms=reset_at_ms):
            return Counter(value=value, reset_at_ms=reset_at_ms)
        case CounterReset():
            return Counter()


def sends(counter: Counter, event: CounterIncremented | CounterReset) -> Sequence[Send]:
    """Return the commands to other counters."""
    if isinstance(event, CounterIncremented) and event.also:
        return [Send(to="counter", command=IncrementCounter(envelope=FROM_OUTBOX, name=event.also, by=event.by))]
    return ()


FAMILY = Family(
    name="counter",
    summary="A number that only grows until it is set to zero.",
    rules=Rules(
        state=Counter,
        initial=lambda aggregate: Counter(),
        decide=decide,
        evolve=evolve,
        next_timer_ms=lambda counter: counter.reset_at_ms,
        version=1,
    ),
    lifecycle=WHOLE_HISTORY,
    commands=(
        Command(
            record=IncrementCounter,
            verb="increment",
            summary="Add to a counter.",
            aggregate=lambda command: command.name,
            scope=RUNS_CREATE,
        ),
        Command(
            record=ResetCounter,
            verb="reset",
            summary="Set a counter to zero.",
            aggregate=lambda command: command.name,
            scope=RUNS_CREATE,
        ),
    ),
    scope=RUNS_READ,
    tool="Counter",
    content_subject=lambda command: None,  # counters have no subject
    sends=sends,
)
