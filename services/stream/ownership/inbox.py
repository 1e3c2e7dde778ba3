"""What comes in for a partition besides commands of its topic, as values: one door, and one match in leadership.py.

Before: the host, the flusher, timers and the drain put messages in. After: leadership.py receives them; while the
partition is being claimed owner.py keeps the results of calls and drops the rest, which a claim finds by itself.
"""

from collections.abc import Hashable, Mapping
from typing import Any

from msgspec import Struct

from loomlog.connectors.protocols import LogRecord
from loomlog.services.stream.partition.asked import AskedRecord
from loomlog.services.stream.partition.partition import ReadyEffect


class CallReturned(Struct, frozen=True):
    """The result of a call, as input of decide."""

    aggregate: str
    tenant: str
    result: Any


class CallsUnstarted(Struct, frozen=True):
    """Calls that were due and not started at a planned stop: keys by aggregate."""

    calls: Mapping[str, frozenset[Hashable]]


class Asked(Struct, frozen=True):
    """A command handed over in memory."""

    record: AskedRecord
    command: Any


class TimerFired(Struct, frozen=True):
    """The timer of an aggregate, perhaps a former one."""

    aggregate: str


class WidePausesChanged(Struct, frozen=True):
    """A pause wider than one aggregate was set or lifted."""


Message = LogRecord | Asked | CallReturned | CallsUnstarted | TimerFired | WidePausesChanged | ReadyEffect
"""LogRecord: a command from the topic. ReadyEffect: a local effect whose intent is in the log."""
