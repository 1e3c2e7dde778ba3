"""The interface of a family of aggregates to the loop: three functions and a few names.

Before: services/core/<family> has the rules. After: services/stream drives them. One small adapter for each family is
in the process that owns it (services/runtime/run/family.py).
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from loomlog.schemas.generated.values import ForkPoint, RunPosition
from loomlog.schemas.records import Record
from loomlog.services.core.canonical import StateCodec


class Family(Protocol):
    """A family of aggregates. States, commands, events and effects are values of the family's own."""

    name: str
    reducer_version: int
    states: StateCodec
    endings: frozenset[str]
    """Full names of the events after which an aggregate has ended."""

    def absent(self, aggregate: str, history: Any) -> Any:
        """Return the state before the first event; `history` is what `history()` of the continued aggregate returned,
        None without one.
        """
        ...

    def history(self, state: Any) -> Any:
        """Return what a later aggregate that continues one in this state starts with."""
        ...

    def origin(self, first_event: Any) -> RunPosition | ForkPoint | None:
        """Return the position, in the same partition, of the history with which an aggregate with this first event
        starts.
        """
        ...

    def evolve(self, state: Any, event: Any, at_ms: int) -> Any: ...
    def decide(self, state: Any, order: Any) -> list[Any]: ...
    def event_times(self, order: Any) -> Sequence[int]:
        """Return when the events of the command were decided, if elsewhere and before; empty for
        what is decided now.
        """
        ...

    def react(self, state: Any, event: Any) -> tuple[Any, ...]: ...

    def recover(self, at_ms: int, still_running: frozenset[Hashable], standing: Any = None) -> Any:
        """Return the command a new owner gives to every live aggregate after folding it. `standing` is
        wide_pauses_command of the handler.
        """
        ...

    def record_unstarted_calls(self, at_ms: int, keys: frozenset[Hashable]) -> Any:
        """Return the command of an owner that stops as planned and has not started these calls."""
        ...

    def next_timer_at(self, state: Any) -> int:
        """Return the time of the state's timer, UTC milliseconds; 0: none."""
        ...

    def timer_fired(self, at_ms: int) -> Any:
        """Return the command of a timer."""
        ...

    def open_calls(self, state: Any) -> frozenset[Hashable]:
        """Keys of the calls that are due or under way."""
        ...

    def costly_call_keys(self, state: Any) -> frozenset[Hashable]:
        """Return those of them whose loss costs more than a short wait for a former owner that may still have their
        result.
        """
        ...

    def is_ended(self, state: Any) -> bool: ...

    def quarantined(self, state: Any) -> str:
        """Return why the aggregate is quarantined; empty if it is not."""
        ...

    def crashed(self, effect: Any, error: str, at_ms: int) -> Any:
        """Return the command that records that an effect ended with a bug of ours."""
        ...

    def stops_calls(self, effect: Any) -> bool:
        """Whether the effect only cancels the calls of its aggregate."""
        ...

    def is_local(self, effect: Any) -> bool:
        """Whether the effect is a command to aggregates of the same partition: their owner executes it, and it has no
        key.
        """
        ...

    def pending_local_effects(self, state: Any) -> Sequence[Any]:
        """Return the local effects of a state whose execution is unknown; each may be repeated."""
        ...

    def quarantine(self, error: str, topic: str, offset: int) -> Record:
        """Return the event that quarantines an aggregate."""
        ...

    def traceparent(self, state: Any) -> str:
        """Return the trace context for the headers of the aggregate's records; empty if there is none."""
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
