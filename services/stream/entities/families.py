"""The families of a topic set as one for the loop: each aggregate is decided and folded by its own.

The family of an aggregate is the first part of its id, which its state has (Entity.id). A command travels with the time
and its sender (EntityCommand). The commands that an event of one aggregate sends to another are effects of the kind
Deliver, executed by the outbox (outbox.py).

Before: services/core/families.py, declarations. After: services/stream/partition/ drives them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loomlog.schemas.generated.entity_commands import ImportAggregate, RepairAggregate
from loomlog.schemas.generated.entity_events import (
    AggregateEventImported,
    AggregateQuarantined,
    CommandHadNoEffect,
    CommandRefused,
)
from loomlog.schemas.records import Record, Value, replace
from loomlog.services.core.canonical import StateCodec
from loomlog.services.core.entity import RESTATED, Entity, entity_rules
from loomlog.services.core.families import (
    ENTITY_SET,
    TIMER_FIRED,
    At,
    Command,
    Family,
    Reads,
    Rules,
    Send,
    no_sends,
    no_timer,
)
from loomlog.services.stream.family import Effects, Lineage
from loomlog.services.stream.partition.partition import Aggregate


class UnknownFamily(Exception):
    """An id or a command that belongs to no family of this process."""


class EntityCommand(Value, frozen=True):
    """A command as the loop decides it. `quarantine`: why its aggregate is quarantined, empty if it is not."""

    command: Any
    at: At
    quarantine: str = ""


class Deliver(Value, frozen=True, kw_only=True):
    """A command to another aggregate, to be sent once the event that asks for it is in the log."""

    id: str
    """Command id: the same however often it is sent."""
    send: Send
    at_ms: int


@dataclass(frozen=True, slots=True)
class HostedFamily:
    """A family with what is derived from its declaration."""

    declaration: Family[Any, Any, Any]
    rules: Rules[Any, Any, Any]
    """Over Entity states."""
    states: StateCodec

    @property
    def name(self) -> str:
        return self.declaration.name

    @property
    def is_replicated(self) -> bool:
        return self.declaration.reads is Reads.REPLICATED

    @property
    def has_timers(self) -> bool:
        return self.declaration.rules.next_timer_ms is not no_timer

    @property
    def sends(self) -> bool:
        return self.declaration.sends is not no_sends


class FamilySet:
    """The families of a process, by name and by their commands."""

    def __init__(self, declarations: Iterable[Family[Any, Any, Any]]) -> None:
        self.by_name: Mapping[str, HostedFamily] = {
            one.name: HostedFamily(one, (rules := entity_rules(one)), StateCodec(rules.state)) for one in declarations
        }
        self._commands: Mapping[type[Any], tuple[HostedFamily, Command[Any]]] = {
            command.record: (family, command)
            for family in self.by_name.values()
            for command in family.declaration.commands
        }

    @property
    def replicated(self) -> frozenset[str]:
        """Names of the families that every process folds."""
        return frozenset(name for name, family in self.by_name.items() if family.is_replicated)

    @property
    def versions(self) -> dict[str, int]:
        """Version of the fold of each family."""
        return {name: family.rules.version for name, family in self.by_name.items()}

    def of(self, aggregate: str) -> HostedFamily:
        """Return the family of an aggregate, by its full id. Raises UnknownFamily."""
        name = aggregate.partition(":")[0]
        family = self.by_name.get(name)
        if family is None:
            raise UnknownFamily(f"{aggregate[:80]!r} is of no family of this process: {', '.join(self.by_name)}")
        return family

    def takes(self, command: Any) -> bool:
        """Whether a command is of one of these families."""
        if is_repair(command):
            return command.aggregate.partition(":")[0] in self.by_name
        return type(command) in self._commands

    def of_command(self, command: Any) -> tuple[HostedFamily, Command[Any]]:
        """Return the family and the row of the table of a command. Raises UnknownFamily."""
        known = self._commands.get(type(command))
        if known is None:
            raise UnknownFamily(f"a {type(command).__name__} is no command of a family of this process")
        return known


class EntityStates(StateCodec):
    """Encodes the states of all families; decoding needs the family (HostedFamily.states)."""

    def __init__(self) -> None:
        super().__init__(Entity[Any])


class OutboxEffects(Effects):
    """The commands that events send to other aggregates."""

    def __init__(self, families: FamilySet) -> None:
        self._families = families

    def react(self, state: Entity[Any], event: Any) -> Sequence[Deliver]:
        family = self._families.of(state.id)
        if not family.sends or type(event) is AggregateEventImported:
            return ()  # what an imported event sends was sent where it happened
        return [
            Deliver(id=f"{state.id}:{state.seq}:{number}", send=send, at_ms=state.updated_at_ms)
            for number, send in enumerate(family.declaration.sends(state.state, event))
        ]


class OutboxIsLocal:
    """Deliveries are executed by the owner; those of a takeover are known in the tail of the log (handler.py)."""

    def is_local(self, effect: Any) -> bool:
        return isinstance(effect, Deliver)

    def pending_local_effects(self, state: Any) -> Sequence[Any]:
        return ()

    def joined_aggregate(self, state: Any) -> str:
        return ""

    def with_joined(self, order: Any, joined: Any) -> Any:
        raise AssertionError("entities are joined to nothing")

    def joined_event(self, before: Any, after: Any, joined: Any) -> Record | None:
        raise AssertionError("entities are joined to nothing")


class EntityFamilies:
    """Protocol loomlog.services.stream.family.Family for the families of a topic set, `name`."""

    reducer_version = 1
    states: StateCodec = EntityStates()
    endings: frozenset[str] = frozenset()
    restatements = frozenset({RESTATED})
    lineage = Lineage()
    local = OutboxIsLocal()

    def __init__(self, families: FamilySet, name: str = ENTITY_SET) -> None:
        self.name = name
        self.families = families
        self.effects = OutboxEffects(families)

    def absent(self, aggregate: str) -> Entity[Any]:
        return self.families.of(aggregate).rules.initial(aggregate)  # type: ignore[no-any-return]  # of Any

    def before(self, aggregate: str, seq: int) -> Entity[Any]:
        """Return the state from which a fold begins at a restatement with that seq."""
        return replace(self.absent(aggregate), seq=seq - 1)

    def evolve(self, state: Entity[Any], event: Any, at_ms: int) -> Any:
        return self.families.of(state.id).rules.evolve(state, event, at_ms)

    def decide(self, state: Entity[Any], order: EntityCommand) -> Sequence[Any]:
        rules, command = self.families.of(state.id).rules, order.command
        if order.quarantine and not is_repair(command):
            return [CommandRefused(code="quarantined", message=f"{state.id} is quarantined: {order.quarantine}")]
        if command is TIMER_FIRED:
            due_ms = rules.next_timer_ms(state)
            return rules.decide(state, command, order.at) if 0 < due_ms <= order.at.at_ms else ()
        # Without an event its sender would get no answer.
        return rules.decide(state, command, order.at) or [CommandHadNoEffect()]

    def next_timer_at(self, state: Entity[Any]) -> int:
        return self.families.of(state.id).rules.next_timer_ms(state)

    def timer_fired(self, at_ms: int) -> EntityCommand:
        return EntityCommand(TIMER_FIRED, At(at_ms))

    def is_ended(self, state: Entity[Any]) -> bool:
        return False  # it rests in its row like any other

    def quarantined(self, state: Entity[Any]) -> str:
        return state.quarantine or ("" if state.restoring is None else state.restoring.problem)

    def quarantine(self, error: str, topic: str, offset: int) -> Record:
        return AggregateQuarantined(error=error, record_topic=topic, record_offset=offset)

    def traceparent(self, state: Entity[Any]) -> str:
        return ""


def mark_unfolded(aggregate: Aggregate) -> None:
    """Set the number of the last event in a state that could not be folded up to it: the next event continues it."""
    if aggregate.pending_events:
        aggregate.state = replace(aggregate.state, seq=aggregate.seq, quarantine=aggregate.quarantined)


def is_repair(command: Any) -> bool:
    """Whether a quarantined aggregate takes the command: one that no family declares."""
    return isinstance(command, RepairAggregate | ImportAggregate)


__all__ = ["Deliver", "EntityCommand", "EntityFamilies", "FamilySet", "HostedFamily", "UnknownFamily"]
