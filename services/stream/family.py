"""What the loop needs of the aggregates of a topic set: three functions and a few names.

A topic set carries runs, or the aggregates of all entity families. What only runs need is in three optional parts, each
with a null object: calls (Effects), aggregates that begin with the history of another (Lineage), and commands to
aggregates of the same partition (LocalEffects).

Before: services/runtime/run/family.py for runs, services/stream/entities/families.py for the rest. After: the loop.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from loomlog.schemas.generated.values import ForkPoint, RunPosition
from loomlog.schemas.records import Record
from loomlog.services.core.canonical import StateCodec


class Effects:
    """The calls of a family; here of one without calls. Commands are what its `decide` takes."""

    def react(self, state: Any, event: Any) -> Sequence[Any]:
        """Return the effects that are due after an event."""
        return ()

    def recover(self, at_ms: int, still_running: frozenset[Hashable], standing: Any = None) -> Any:
        """Return the command a new owner gives to every live aggregate after folding it; None: none. `standing` is
        wide_pauses_command of the handler.
        """
        return None

    def record_unstarted_calls(self, at_ms: int, keys: frozenset[Hashable]) -> Any:
        """Return the command of an owner that stops as planned and has not started these calls."""
        return None

    def open_calls(self, state: Any) -> frozenset[Hashable]:
        """Return the keys of the calls that are due or under way."""
        return frozenset()

    def costly_call_keys(self, state: Any) -> frozenset[Hashable]:
        """Return those of them whose loss costs more than a short wait for a former owner that may still have their
        result.
        """
        return frozenset()

    def crashed(self, effect: Any, error: str, at_ms: int) -> Any:
        """Return the command that records that an effect ended with a bug of ours."""
        raise AssertionError("a family without effects has no calls")

    def stops_calls(self, effect: Any) -> bool:
        """Whether the effect only cancels the calls of its aggregate."""
        return False


class Lineage:
    """Aggregates that begin with the history of another one of the same partition; here of a family without these."""

    def with_history(self, aggregate: str, history: Any) -> Any:
        """Return the state before the first event of an aggregate that begins with that history, or with None."""
        raise AssertionError("a family without lineage has no histories")

    def history(self, state: Any) -> Any:
        """Return what a later aggregate that continues one in this state starts with."""
        return None

    def origin(self, first_event: Any) -> RunPosition | ForkPoint | None:
        """Return the position of the history with which an aggregate with this first event starts."""
        return None

    def event_times(self, command: Any) -> Sequence[int]:
        """Return when the events of the command were decided, if elsewhere and before; empty for what is decided
        now.
        """
        return ()


class LocalEffects(Protocol):
    """What aggregates of one partition mean for one another: effects that are commands to others, which their owner
    executes and which have no key, and decisions that are two aggregates' at once.
    """

    def is_local(self, effect: Any) -> bool: ...

    def pending_local_effects(self, state: Any) -> Sequence[Any]:
        """Return the local effects of a state whose execution is unknown; each may be repeated."""
        ...

    def joined_aggregate(self, state: Any) -> str:
        """Return the aggregate that may have an event with a decision in this state; empty for none."""
        ...

    def with_joined(self, order: Any, joined: Any) -> Any:
        """Return the command with what it needs of the state of the joined aggregate, at the moment of deciding; None:
        that is not live, or not known.
        """
        ...

    def joined_event(self, before: Any, after: Any, joined: Any) -> Record | None:
        """Return the event of the joined aggregate for a decision, from the states around that; None without one."""
        ...


class Family(Protocol):
    """The aggregates of a topic set. States, commands, events and effects are values of their own."""

    name: str
    """Name of the topic set."""
    reducer_version: int
    states: StateCodec
    endings: frozenset[str]
    """Full names of the events after which an aggregate has ended."""
    restatements: frozenset[str]
    """Full names of the events from which the fold of an aggregate may begin, whatever came before."""

    @property
    def effects(self) -> Effects: ...

    @property
    def lineage(self) -> Lineage: ...

    @property
    def local(self) -> LocalEffects: ...

    def absent(self, aggregate: str) -> Any:
        """Return the state before the first event."""
        ...

    def before(self, aggregate: str, seq: int) -> Any:
        """Return the state from which a fold begins at a restatement with that seq."""
        ...

    def evolve(self, state: Any, event: Any, at_ms: int) -> Any: ...
    def decide(self, state: Any, order: Any) -> Sequence[Any]: ...

    def next_timer_at(self, state: Any) -> int:
        """Return the time of the state's timer, UTC milliseconds; 0: none."""
        ...

    def timer_fired(self, at_ms: int) -> Any:
        """Return the command of a timer."""
        ...

    def is_ended(self, state: Any) -> bool: ...

    def quarantined(self, state: Any) -> str:
        """Return why the aggregate is quarantined; empty if it is not."""
        ...

    def quarantine(self, error: str, topic: str, offset: int) -> Record:
        """Return the event that quarantines an aggregate."""
        ...

    def traceparent(self, state: Any) -> str:
        """Return the trace context for the headers of the aggregate's records; empty if there is none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """Topics of a topic set. `snapshots` has what a takeover begins with: partition snapshots of runs, checkpoints of
    entities.
    """

    commands: str
    events: str
    snapshots: str
    dead_letters: str

    @staticmethod
    def of(name: str, prefix: str = "loom") -> "Topics":
        return Topics(
            commands=f"{prefix}.{name}.commands",
            events=f"{prefix}.{name}.events",
            snapshots=f"{prefix}.{name}.{'snapshots' if name == 'run' else 'checkpoints'}",
            dead_letters=f"{prefix}.dead-letter",
        )
