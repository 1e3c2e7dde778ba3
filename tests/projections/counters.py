"""Aggregates of the example family `counter` as records of the log, and the projection of them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from docs.examples.counter.counter import FAMILY, Counter
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ConsumerRecord
from loomlog.projections.engine.batch import ENTITY_EVENTS, Cursor, read_records
from loomlog.projections.engine.entity_fold import EntityChanges, EntityState, ItemKey, fold_entities
from loomlog.projections.entities import EntityCommandRow, EntityRow, Seal, plain_seal, verify_seal
from loomlog.projections.entity_items import ItemRow
from loomlog.projections.problems import ProblemRow
from loomlog.schemas.generated.counter_events import CounterIncremented, CounterReset
from loomlog.schemas.generated.entity_events import AggregateRestated
from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.records import replace as replace_value
from loomlog.services.core.canonical import StateCodec
from loomlog.services.core.families import Family, Item
from loomlog.services.families.entity_folds import entity_folds
from tests.projections.stories import Partition

TOPIC = "loom.entity.events"
FOLDS = entity_folds([FAMILY])
TALLY: Family[Any, Any, Any] = replace(FAMILY, name="tally")
"""A second family, whose aggregates get the generic events only."""
BOTH = entity_folds([FAMILY, TALLY])


def counter(name: str, tenant: str = "acme") -> str:
    return f"counter:{tenant}/{name}"


def raised(value: int, by: int = 1) -> CounterIncremented:
    return CounterIncremented(by=by, value=value)


def restated(value: int) -> AggregateRestated:
    return AggregateRestated(state=StateCodec(Counter).encode(Counter(value)), version=1, reason="repair", by="ops")


def reset(value: int) -> CounterReset:
    return CounterReset(value=value)


def with_rules(**changes: Any) -> Family[Any, Any, Any]:
    """The family with other rules."""
    return replace(FAMILY, rules=replace(FAMILY.rules, **changes))


def counted(state: Counter, event: CounterIncremented | CounterReset, envelope: Envelope) -> list[Item]:
    """Items of a counter: each increment, and the last value, which a reset removes."""
    last = Item(kind="last", id=envelope.aggregate)
    if isinstance(event, CounterReset):
        return [last]
    step = Item(
        kind="step",
        id=f"{envelope.aggregate}#{state.value}",
        key_a=f"by {event.by}",
        key_b=envelope.cause_id,
        number=event.by / 4,
        document=json.dumps({"value": state.value}),
    )
    return [step, replace_value(last, number=state.value, document="{}")]


ITEMIZED: Family[Any, Any, Any] = replace(FAMILY, items=counted)
"""The family with items."""
ITEM_FOLDS = entity_folds([ITEMIZED, TALLY])


class Counters(Partition):
    """A partition of the entity events; `add` takes names of counters of the tenant acme."""

    def raise_(self, name: str, *values: int, cause_id: str = "", tenant: str = "acme") -> None:
        self.add(counter(name, tenant), *map(raised, values), tenant=tenant, cause_id=cause_id)


def records_of(*partitions: Partition) -> dict[int, Sequence[ConsumerRecord]]:
    """The records of these partitions, which are numbered in their order."""
    log = MemoryLog({TOPIC: len(partitions)})
    for number, partition in enumerate(partitions):
        log.put(TOPIC, number, partition.outgoing())
    return {number: log.records[TOPIC, number] for number in range(len(partitions))}


def apply_items(items: dict[ItemKey, ItemRow], changes: EntityChanges) -> None:
    """Write the items of a poll as the projection does."""
    for key in changes.removed_items:
        items.pop(key, None)
    items.update(((row.family, row.tenant, row.kind, row.id), row) for row in changes.items)


class EntityTwin:
    """The tables in memory, with the writing policies of entity_projection.py."""

    def __init__(self, folds: Mapping[str, Any] = FOLDS, seal: Seal = plain_seal) -> None:
        self.folds, self.seal = folds, seal
        self.entities: dict[str, EntityRow] = {}
        self.commands: dict[tuple[str, str], EntityCommandRow] = {}
        self.items: dict[ItemKey, ItemRow] = {}
        self.problems: dict[tuple[int, int, str], ProblemRow] = {}
        self.states: dict[str, EntityState] = {}
        self.cursors: dict[int, Cursor] = {}

    def apply(self, records: Sequence[ConsumerRecord]) -> EntityChanges:
        polled: dict[int, list[ConsumerRecord]] = {}
        for record in records:
            polled.setdefault(record.partition, []).append(record)
        for partition in polled:
            self.cursors.setdefault(partition, Cursor(partition=partition, next_offset=0, term=-1))
        batch = read_records(self.cursors, polled, None, ENTITY_EVENTS)
        changes = fold_entities(TOPIC, batch, self.states, folds=self.folds, seal=self.seal)
        for row in changes.entities:
            assert verify_seal(row, self.seal)
            self.entities[row.aggregate] = row
        for command in changes.commands:
            key = (command.command_id, command.aggregate)
            before = self.commands.get(key)
            self.commands[key] = command if before is None else before._replace(last_offset=command.last_offset)
        apply_items(self.items, changes)
        for problem in changes.problems:
            problem_key = (problem.partition, problem.offset, problem.kind)
            assert problem_key not in self.problems, f"{problem_key} twice"
            self.problems[problem_key] = problem
        self.cursors |= {cursor.partition: cursor for cursor in batch.new_cursors}
        self.states |= changes.states
        return changes

    @property
    def tables(self) -> tuple[Any, ...]:
        return self.entities, self.commands, self.items, self.problems


def folded(polls: Sequence[Sequence[ConsumerRecord]], **options: Any) -> EntityTwin:
    """The tables after these polls."""
    twin = EntityTwin(**options)
    for poll in polls:
        twin.apply(poll)
    return twin


Write = Callable[[Counters], None]


def busy(partition: Counters) -> None:
    """Writes everything once: two owners, stale records, tenants, repairs, and records that cannot be folded."""
    partition.claim("first")
    partition.raise_("a", 1, 2, cause_id="c1")
    partition.raise_("b", 1, cause_id="c2")
    partition.raise_("a", 3, cause_id="c1", tenant="other")
    partition.add("unknown:acme/x", raised(1), tenant="acme", cause_id="c3")
    partition.add("garbage", raised(1), tenant="acme")
    partition.claim("second")
    partition.add(counter("a"), raised(9), tenant="acme", term=0, cause_id="stale")
    partition.add(counter("a"), reset(2), tenant="acme", cause_id="c4")
    partition.raise_("torn", 1)
    partition.records[-1] = partition.records[-1][:-1]
    partition.raise_("torn", 2, 3, cause_id="c5")
    partition.records.append(b"garbage")
    partition.raise_("gap", 1)
    partition.seqs[counter("gap")] += 1
    partition.raise_("gap", 2, cause_id="c6")
    partition.add(counter("torn"), restated(40), tenant="acme", cause_id="c7")
    partition.raise_("torn", 41)
    partition.add(counter("liar"), raised(1), tenant="evil")
    partition.raise_("b", 2, 3, 4)
