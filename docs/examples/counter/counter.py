"""A family of aggregates in one file: counters that can be raised and set to zero.

Name the module in LOOMLOG_FAMILIES and put its folder on PYTHONPATH: every process then has the family. Its commands
and events are schemas/avro/counter/.
"""

from collections.abc import Sequence

from loomlog.schemas.generated.counter_commands import IncrementCounter, ResetCounter
from loomlog.schemas.generated.counter_events import CounterIncremented, CounterReset
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.records import Value
from loomlog.services.core.access.scopes import RUNS_CREATE, RUNS_READ
from loomlog.services.core.families import At, Command, Family, Rules

VALUE_MAX = 2**53
"""Largest value: JSON numbers are exact up to here."""


class Counter(Value, frozen=True):
    """State of a counter."""

    value: int = 0


def decide(counter: Counter, command: IncrementCounter | ResetCounter, at: At) -> Sequence[object]:
    """Return the events that follow a command."""
    match command:
        case IncrementCounter(by=by) if by < 1 or counter.value + by > VALUE_MAX:
            return [
                CommandRefused(
                    code="bad_request", message=f'"by" must be at least 1, and the value at most {VALUE_MAX}'
                )
            ]
        case IncrementCounter(by=by):
            return [CounterIncremented(by=by, value=counter.value + by)]
        case ResetCounter():
            return [CounterReset(value=counter.value)] if counter.value else []


def evolve(counter: Counter, event: CounterIncremented | CounterReset, at_ms: int) -> Counter:
    """Return the counter after an event."""
    match event:
        case CounterIncremented(value=value):
            return Counter(value=value)
        case CounterReset():
            return Counter()


FAMILY = Family(
    name="counter",
    summary="A number that only grows until it is set to zero.",
    rules=Rules(
        state=Counter,
        initial=lambda aggregate: Counter(),
        decide=decide,
        evolve=evolve,
        version=1,
    ),
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
)
