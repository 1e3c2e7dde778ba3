"""What all aggregates of the entity topics have in common: a quarantine, a repair, and answers without a change.

The state of a family is wrapped in an Entity, and its rules take the generic commands and events as well, so that no
family repeats them. Before: services/core/families.py, a declaration. After: services/stream/family.py.
"""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from loomlog.schemas.generated.entity_commands import ImportAggregate, RepairAggregate
from loomlog.schemas.generated.entity_events import (
    AggregateEventImported,
    AggregateQuarantined,
    AggregateRestated,
    CommandHadNoEffect,
    CommandRefused,
)
from loomlog.schemas.records import Value, replace
from loomlog.services.core.canonical import StateCodec, UnreadableState
from loomlog.services.core.entity_import import Restoring, import_events, original_event, restoring_after
from loomlog.services.core.families import STATE_BYTES_MAX, TIMER_FIRED, At, Family, Rules

StateT = TypeVar("StateT")
GENERIC_EVENTS = (CommandRefused, CommandHadNoEffect, AggregateQuarantined, AggregateRestated, AggregateEventImported)
RESTATED = AggregateRestated.SCHEMA


class Entity(Value, Generic[StateT], frozen=True, kw_only=True):
    """An aggregate of the entity topics: the state of its family, and since when it has it (UTC milliseconds)."""

    id: str
    """Full id: <family>:<tenant>/<name>."""
    seq: int = 0
    """Number of its events."""
    state: StateT
    quarantine: str = ""
    """Why nothing is decided in it; empty if it is intact."""
    created_at_ms: int = 0
    updated_at_ms: int = 0
    restoring: Restoring | None = None
    """An import that is not complete; nothing else is decided meanwhile."""


def entity_rules(family: Family[Any, Any, Any]) -> Rules[Any, Any, Any]:
    """Return the rules of a family for Entity states."""
    rules = family.rules
    states = StateCodec(rules.state)
    entity_type: Any = Entity  # its parameter is known at run time only

    def initial(aggregate: str) -> Entity[Any]:
        return Entity(id=aggregate, state=rules.initial(aggregate))

    def decide(entity: Entity[Any], command: Any, at: At) -> Sequence[Any]:
        if type(command) is RepairAggregate:
            return [_restated(entity, command, at)]
        if type(command) is ImportAggregate:
            return import_events(entity.id, command, entity.restoring, has_events=bool(entity.created_at_ms))
        return rules.decide(entity.state, command, at)

    def _restated(entity: Entity[Any], command: RepairAggregate, at: At) -> Any:
        data = states.encode(entity.state) if command.state is None else command.state
        try:
            states.decode(data)
        except UnreadableState as error:
            return CommandRefused(code="bad_request", message=f"this is no state of the family {family.name}: {error}")
        if len(data) > STATE_BYTES_MAX:
            return CommandRefused(code="too_large", message=f"a state has at most {STATE_BYTES_MAX} bytes")
        return AggregateRestated(state=data, version=rules.version, reason=command.reason, by=at.caller)

    def evolve(entity: Entity[Any], event: Any, at_ms: int) -> Entity[Any]:
        match event:
            case CommandRefused() | CommandHadNoEffect():
                return replace(entity, seq=entity.seq + 1)
            case AggregateQuarantined():
                return replace(entity, seq=entity.seq + 1, quarantine=event.error or "unknown")
            case AggregateEventImported():
                record, envelope = original_event(event)
                after = evolve(entity, record, envelope.at_ms)
                return replace(after, restoring=restoring_after(entity.restoring, event))
            case AggregateRestated():
                state, quarantine = states.decode(event.state), ""
            case _:
                state, quarantine = rules.evolve(entity.state, event, at_ms), entity.quarantine
        return Entity(
            id=entity.id,
            seq=entity.seq + 1,
            state=state,
            quarantine=quarantine,
            created_at_ms=entity.created_at_ms or at_ms,
            updated_at_ms=at_ms,
        )

    return Rules(
        state=entity_type[rules.state],
        initial=initial,
        decide=decide,
        evolve=evolve,
        version=rules.version,
        is_over=lambda entity: rules.is_over(entity.state),
        next_timer_ms=lambda entity: (
            0 if entity.quarantine or entity.restoring is not None else rules.next_timer_ms(entity.state)
        ),
    )


__all__ = ["GENERIC_EVENTS", "RESTATED", "TIMER_FIRED", "Entity", "entity_rules"]
