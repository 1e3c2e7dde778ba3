"""A family of counters, and entities in memory: the kit's rules decide, nothing is in a log.

Whoever asks with a known command id gets the first answer, as from an owner.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loomlog.projections.entity_items import ItemPage, ItemRow, ItemSums
from loomlog.schemas.generated.counter_commands import IncrementCounter
from loomlog.schemas.generated.counter_events import CounterIncremented
from loomlog.schemas.generated.entity_events import AggregateQuarantined, CommandHadNoEffect, CommandRefused
from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.records import Value, replace
from loomlog.services.core.access.scopes import RUNS_CREATE, RUNS_READ, TENANT
from loomlog.services.core.entity import Entity, entity_rules
from loomlog.services.core.families import WHOLE_HISTORY, At, Command, Family, Query, Rules, aggregate_id
from loomlog.services.stream.entities.answers import Answer, CommandUnanswered
from loomlog.services.stream.entities.reads import EntityRow, PositionNotRead
from tests.services.memory_items import MemoryItems

NOW_MS = 1_800_000_000_000
MAX = 1_000
TOPIC = "loom.entity.events"


class Counter(Value, frozen=True):
    """State of a counter."""

    value: int = 0
    stamp: bytes = b"\x00\xff"


def decide(state: Counter, command: Any, at: At) -> Sequence[Any]:
    if command.by < 0:
        return [CommandRefused(code="invalid_step", message="a counter only grows")]
    if state.value + command.by > MAX:
        return [CommandRefused(code="counter_full", message=f"it counts to {MAX}")]
    return [CounterIncremented(by=command.by, value=state.value + command.by)] if command.by else []


def evolve(state: Counter, event: Any, at_ms: int) -> Counter:
    return replace(state, value=event.value) if isinstance(event, CounterIncremented) else state


def remaining(state: Counter, parameters: Mapping[str, str]) -> Mapping[str, Any]:
    return {"remaining": int(parameters.get("of", MAX)) - state.value}


COUNTER: Family[Any, Any, Any] = Family(
    name="counter",
    summary="A counter that only grows.",
    rules=Rules(state=Counter, initial=lambda aggregate: Counter(), decide=decide, evolve=evolve, version=1),
    lifecycle=WHOLE_HISTORY,
    commands=(
        Command(
            record=IncrementCounter,
            verb="increment",
            summary="Add to a counter.",
            aggregate=lambda command: command.name,
            scope=RUNS_CREATE,
            reply=lambda events: {"by": events[-1].by, "value": events[-1].value},
        ),
    ),
    queries=(
        Query(
            verb="remaining",
            summary="Tell how far a counter can still go.",
            scope=TENANT,
            answer=remaining,
            parameters=("of",),
        ),
    ),
    scope=RUNS_READ,
    tool="Counter",
)


class MemoryEntities:
    """EntityCommands and EntityReads of one family."""

    topic = TOPIC
    partitions = 2

    def __init__(self, family: Family[Any, Any, Any] = COUNTER) -> None:
        self.family = family
        self.asked: list[Any] = []
        self.waited: list[tuple[str, ...]] = []
        """Positions that reads waited for."""
        self.answers: dict[tuple[str, str], Answer] = {}
        """By aggregate and id of the command."""
        self.now_ms = NOW_MS
        self.on_event: Callable[[Envelope, Any], None] = lambda envelope, event: None
        """Called with each event."""
        self.entities: dict[tuple[str, str], Entity[Any]] = {}
        self.error: Exception | None = None
        """What every command and every read raises."""
        self.unread: frozenset[str] = frozenset()
        """Positions that are never read."""
        self.is_owner = True
        """Whether the aggregates are in memory here, as those of an owner."""
        self.offset = 0
        self.items = MemoryItems(family)
        self._rules = entity_rules(family)

    async def ask(self, command: Any, *, wait_s: float) -> Answer:
        self.asked.append(command)
        if self.error is not None:
            raise self.error
        envelope = command.envelope
        (row,) = [row for row in self.family.commands if row.record is type(command)]
        place = (envelope.tenant, row.aggregate(command))
        aggregate = aggregate_id(self.family.name, *place)
        known = self.answers.get((aggregate, envelope.command_id))
        if known is not None:
            return known
        entity = self.entities.get(place) or self._rules.initial(aggregate)
        at = At(at_ms=self.now_ms, caller=envelope.subject, command_id=envelope.command_id)
        if entity.quarantine:
            events: Sequence[Any] = [CommandRefused(code="quarantined", message=f"{aggregate} is quarantined")]
        else:
            events = self._rules.decide(entity, command, at) or [CommandHadNoEffect()]
        for event in events:
            entity = self._rules.evolve(entity, event, self.now_ms)
            self.offset += 1
            written = Envelope(
                term=1,
                seq=entity.seq,
                aggregate=aggregate,
                tenant=envelope.tenant,
                at_ms=self.now_ms,
                prev=bytes(16),
                cause_id=envelope.command_id,
            )
            self.items.add(entity, event, written, partition=1, offset=self.offset)
            self.on_event(written, event)
        self.entities[place] = entity
        answer = Answer(events=tuple(events), topic=TOPIC, partition=1, offset=self.offset)
        self.answers[aggregate, envelope.command_id] = answer
        return answer

    def quarantine(self, tenant: str, name: str) -> None:
        event = AggregateQuarantined(error="a bug", record_topic=TOPIC, record_offset=1)
        self.entities[tenant, name] = self._rules.evolve(self.entities[tenant, name], event, NOW_MS)

    async def show(self, family: str, tenant: str, name: str, *, positions: Sequence[str] = ()) -> EntityRow | None:
        self._wait(positions)
        entity = self.entities.get((tenant, name))
        return None if entity is None else EntityRow(name=name, entity=entity)

    async def local(self, family: str, tenant: str, name: str, *, positions: Sequence[str] = ()) -> EntityRow | None:
        entity = self.entities.get((tenant, name)) if self.is_owner else None
        return None if entity is None else EntityRow(name=name, entity=entity)

    async def list(
        self, family: str, tenant: str, *, prefix: str = "", after: str = "", limit: int, positions: Sequence[str] = ()
    ) -> Sequence[EntityRow]:
        self._wait(positions)
        names = sorted(name for of, name in self.entities if of == tenant and name.startswith(prefix) and name > after)
        return [EntityRow(name=name, entity=self.entities[tenant, name]) for name in names[:limit]]

    async def load_items(
        self, family: str, tenant: str, kind: str, ids: Sequence[str], *, positions: Sequence[str] = ()
    ) -> Sequence[ItemRow]:
        self._wait(positions)
        return self.items.load(tenant, kind, ids)

    async def list_items(
        self, family: str, tenant: str, kind: str, *, limit: int, positions: Sequence[str] = (), **more: Any
    ) -> ItemPage:
        self._wait(positions)
        return self.items.list(tenant, kind, limit=limit, **more)

    async def list_items_by_id(
        self, family: str, tenant: str, kind: str, *, positions: Sequence[str] = (), **more: Any
    ) -> Sequence[ItemRow]:
        self._wait(positions)
        return self.items.list_by_id(tenant, kind, **more)

    async def newest_items(
        self, family: str, tenant: str, kind: str, by: Any, keys: Any, *, positions: Sequence[str] = (), **bounds: Any
    ) -> Mapping[str, ItemRow]:
        self._wait(positions)
        return self.items.newest(tenant, kind, by, keys, **bounds)

    async def sum_items(
        self, family: str, tenant: str, kind: str, *, positions: Sequence[str] = (), **keys: Any
    ) -> ItemSums:
        self._wait(positions)
        return self.items.sum(tenant, kind, **keys)

    async def sum_items_by_key(
        self, family: str, tenant: str, kind: str, by: Any, *, positions: Sequence[str] = (), **keys: Any
    ) -> Mapping[str, ItemSums]:
        self._wait(positions)
        return self.items.sum_by_key(tenant, kind, by, **keys)

    async def wait(self, partition: int, offset: int, *, timeout_s: float) -> int:
        token = f"{TOPIC}/{partition}:{offset}"
        self.waited.append((token,))
        return 3 if token in self.unread else 0

    def _wait(self, positions: Sequence[str]) -> None:
        if self.error is not None:
            raise self.error
        self.waited.append(tuple(positions))
        for position in positions:
            if position in self.unread:
                raise PositionNotRead(f"{position} is not read yet", lag=3)


UNANSWERED = CommandUnanswered("no owner answered")


FAMILY = COUNTER
"""So that LOOMLOG_FAMILIES may name this module."""
