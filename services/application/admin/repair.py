"""Repair of an aggregate that is quarantined: an event restates it; nothing is deleted.

`show` is what is known of the aggregate, and what `repair` states without another state: the last one that could
be folded. What the events up to there said still counts; what the broken ones said does not.

Before: a transport. After: RepairAggregate, decided by the owner (services/core/entity.py).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.schemas.generated.entity_commands import RepairAggregate
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.position import Position
from loomlog.services.application.errors import RETRY_LATER_S, bad_request, reaching, unavailable
from loomlog.services.application.request_context import command_id as make_command_id
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.entity import Entity
from loomlog.services.core.families import aggregate_key
from loomlog.services.core.refusals import Refused
from loomlog.services.stream.entities.answers import CommandInvalid, CommandUnanswered
from loomlog.services.stream.entities.families import HostedFamily, UnknownFamily
from loomlog.services.stream.entities.hosting import EntityParts


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairView:
    """An aggregate as far as it can be folded. `state` is the JSON of its canonical encoding; None if it is unknown."""

    aggregate: str
    seq: int
    quarantine: str
    state: Any
    position: str
    """Position of its last event."""


class AggregateRepair:
    """The use cases, for administrators. All methods raise Refused."""

    def __init__(
        self, parts: EntityParts, *, clock_ms: Callable[[], int], fresh_token: Callable[[], str], wait_s: float
    ) -> None:
        self._parts = parts
        self._clock_ms = clock_ms
        self._fresh_token = fresh_token
        self._wait_s = wait_s

    async def show(self, aggregate: str) -> RepairView:
        """Return what is known of an aggregate, in memory or in its row."""
        parts, family = self._parts_of(aggregate)
        if family.is_replicated:
            entity = parts.replicas.entity(aggregate)
            if entity is None:
                raise Refused("not_found", f"{aggregate[:120]} has no events")
            return RepairView(
                aggregate=aggregate,
                seq=entity.seq,
                quarantine=entity.quarantine,
                state=_state_json(family, entity),
                position=parts.replicas.position(aggregate),
            )
        assert parts.rows is not None, "a process with an api has the rows of the read model"
        partition = partition_of(aggregate_key(aggregate), parts.replicas.partitions)
        with reaching("projection"):
            _, rows = await parts.rows.load(partition, [aggregate])
        row = rows.get(aggregate)
        if row is None:
            raise Refused("not_found", f"{aggregate[:120]} has no row in the read model")
        return RepairView(
            aggregate=aggregate,
            seq=row.seq,
            quarantine=row.problem or row.state.quarantine,
            state=None if row.state is None else _state_json(family, row.state),
            position=str(Position(topic=parts.replicas.topic, partition=partition, offset=row.last_offset)),
        )

    async def repair(self, caller: Caller, aggregate: str, *, state: Any = None, reason: str = "") -> str:
        """Restate an aggregate; returns the position of the event. `state` None: the last one that could be folded,
        otherwise JSON in the form that `show` has.
        """
        self._parts_of(aggregate)
        command = RepairAggregate(
            envelope=CommandEnvelope(
                command_id=make_command_id(f"repair_{self._fresh_token()}"),
                tenant=aggregate.partition(":")[2].partition("/")[0],
                subject=caller.subject,
                issued_at_ms=self._clock_ms(),
            ),
            aggregate=aggregate,
            state=None if state is None else json.dumps(state).encode(),
            reason=reason,
        )
        try:
            answer = await self._parts.client.ask(command, wait_s=self._wait_s)
        except CommandInvalid as error:
            raise bad_request(str(error)) from error
        except CommandUnanswered as error:
            raise Refused("repair_pending", str(error), retry_after_s=RETRY_LATER_S) from error
        except ConnectorError as error:
            raise unavailable("log", error) from error
        refusal = answer.events[-1]
        if isinstance(refusal, CommandRefused):
            raise bad_request(refusal.message)
        return answer.position

    def _parts_of(self, aggregate: str) -> tuple[EntityParts, HostedFamily]:
        """Return the parts of the topic set of an aggregate, and its family."""
        if "/" not in aggregate.partition(":")[2]:
            raise bad_request(f"{aggregate[:80]!r} is no id of an aggregate: expected <family>:<tenant>/<name>")
        try:
            parts = self._parts.of(aggregate)
            return parts, parts.family.families.of(aggregate)
        except UnknownFamily as error:
            raise bad_request(str(error)) from error


def _state_json(family: HostedFamily, entity: Entity[Any]) -> Any:
    return json.loads(family.states.encode(entity))["state"]
