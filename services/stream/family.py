"""What the loop must know about a family of aggregates: its three functions and a few names.

Before: services/core/<family> holds the rules. After: services/stream drives them. One small adapter for each family
lives with the process that owns it (services/runtime/run/family.py).
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from loomlog.schemas.generated.values import ForkPoint, RunPosition
from loomlog.schemas.records import Record
from loomlog.services.core.canonical import StateCodec


class Family(Protocol):
    """A family of aggregates. States, orders, events and effects are values of the family's own."""

    name: str
    reducer_version: int
    states: StateCodec
    endings: frozenset[str]
    """Full names of the events after which an aggregate is over."""

    def absent(self, aggregate: str, history: Any) -> Any:
        """The state before the first event; `history` is what the family's continuation gave, None without one."""
        ...

    def history(self, state: Any) -> Any:
        """What a later aggregate goes on with when it continues one that ended in this state."""
        ...

    def origin(self, first_event: Any) -> RunPosition | ForkPoint | None:
        """Where in the same partition the history lies that an aggregate with this first event begins with."""
        ...

    def evolve(self, state: Any, event: Any, at_ms: int) -> Any: ...
    def decide(self, state: Any, order: Any) -> list[Any]: ...
    def event_times(self, order: Any) -> Sequence[int]:
        """When the events of the order were decided, if elsewhere and before; empty for what is decided now."""
        ...

    def react(self, state: Any, event: Any) -> tuple[Any, ...]: ...

    def recover(self, at_ms: int, still_running: frozenset[Hashable], standing: Any = None) -> Any:
        """The order a new owner gives to every live aggregate after folding it. `standing` is the desk's."""
        ...

    def record_unstarted_calls(self, at_ms: int, keys: frozenset[Hashable]) -> Any:
        """The order of an owner that stops as planned and has not begun these calls."""
        ...

    def next_timer_at(self, state: Any) -> int:
        """When something is to be decided in this state although nothing happens, UTC milliseconds; 0 = never."""
        ...

    def timer_fired(self, at_ms: int) -> Any:
        """The order that is given then."""
        ...

    def open_calls(self, state: Any) -> frozenset[Hashable]:
        """Keys of the calls that are due or under way."""
        ...

    def costly_call_keys(self, state: Any) -> frozenset[Hashable]:
        """Those of them whose loss costs more than a short wait for a former owner that may still have their result."""
        ...

    def is_ended(self, state: Any) -> bool: ...

    def quarantined(self, state: Any) -> str:
        """Why the aggregate is parked; empty when it is not."""
        ...

    def crashed(self, effect: Any, error: str, at_ms: int) -> Any:
        """The order that records that an effect ended with a bug of ours."""
        ...

    def stops_calls(self, effect: Any) -> bool:
        """The effect only asks that the calls of its aggregate end."""
        ...

    def is_local(self, effect: Any) -> bool:
        """The effect is an order to aggregates of the same partition: their owner carries it out, and it has no key."""
        ...

    def pending_local_effects(self, state: Any) -> Sequence[Any]:
        """The local effects this state asks for when nobody knows what was carried out; each may be so again."""
        ...

    def quarantine(self, error: str, topic: str, offset: int) -> Record:
        """The event that parks an aggregate."""
        ...

    def traceparent(self, state: Any) -> str:
        """Trace context for the headers of the aggregate's records; empty when there is none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """Topics of a family."""

    commands: str
    events: str
    snapshots: str
    dead_letters: str

    @staticmethod
    def of(family: str, prefix: str = "loom") -> "Topics":
        return Topics(
            commands=f"{prefix}.{family}.commands",
            events=f"{prefix}.{family}.events",
            snapshots=f"{prefix}.{family}.snapshots",
            dead_letters=f"{prefix}.dead-letter",
        )
