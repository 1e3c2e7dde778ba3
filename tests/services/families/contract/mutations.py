"""Broken versions of the kit and of a family, each of which the suite must find.

A check that cannot fail proves nothing.

A mutation of the kit is a patch while it lasts; one of a family is a case with another declaration.
"""

import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any
from unittest.mock import patch

from loomlog.projections import entities
from loomlog.projections.engine import entity_fold
from loomlog.schemas.generated.counter_events import CounterIncremented
from loomlog.schemas.generated.entity_events import CommandHadNoEffect
from loomlog.schemas.records import replace
from loomlog.services.core.families import At, Item
from loomlog.services.families.entity_folds import FamilyFold
from loomlog.services.stream.entities import client, families, handler, replicas
from loomlog.services.stream.entities.answers import Answer
from loomlog.services.stream.entities.checkpoints import EntityCheckpoints
from loomlog.services.stream.entities.families import EntityFamilies
from loomlog.services.stream.entities.handler import EntityCommandHandler
from loomlog.services.stream.entities.outbox import Outbox
from loomlog.services.stream.ownership.leadership import Leadership
from loomlog.services.stream.partition.fold import Fold
from tests.services.families.contract import checks, loop_checks
from tests.services.families.contract.cases import BY_NAME, Case
from tests.services.stream.entities.counters import FAMILY, Counter

COUNTER, NOTEBOOK = BY_NAME["counter"], BY_NAME["notebook"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """What is broken, and the check that must find it."""

    breaks: Callable[[], AbstractContextManager[Any]]
    check: Callable[[Case], Awaitable[None] | None]
    case: Case


def second_event_for_a_repeated_command() -> AbstractContextManager[Any]:
    """Handled commands are forgotten."""

    async def unknown(self: Any, key: Any, issued_at_ms: int) -> None:
        return None

    return patch.object(EntityCommandHandler, "_find_handled", unknown)


def commands_of_the_tail_forgotten() -> AbstractContextManager[Any]:
    """The next owner does not know what was handled since the checkpoint."""
    live: Any = EntityCommandHandler.live

    async def forgetful(self: EntityCommandHandler, fold: Fold) -> Any:
        found = await live(self, fold)
        self._known.clear()
        return found

    return patch.object(EntityCommandHandler, "live", forgetful)


def reply_of_another_tenant() -> AbstractContextManager[Any]:
    """A command is recognised by its id alone."""

    async def by_id(self: EntityCommandHandler, key: Any, issued_at_ms: int) -> Any:
        return next((place[:2] for (_, command_id), place in self._known.items() if command_id == key[1]), None)

    return patch.object(EntityCommandHandler, "_find_handled", by_id)


def aggregate_of_another_tenant() -> AbstractContextManager[Any]:
    """The id of an aggregate has no tenant."""
    return patch.object(handler, "aggregate_id", lambda family, tenant, name: f"{family}:acme/{name}")


def repair_by_another_tenant() -> AbstractContextManager[Any]:
    """A repair is for whatever aggregate it names."""
    target = handler.target_of

    def lenient(known: Any, command: Any) -> str:
        return command.aggregate if handler.is_repair(command) else target(known, command)

    return _both(patch.object(handler, "target_of", lenient), patch.object(client, "target_of", lenient))


def content_in_clear() -> AbstractContextManager[Any]:
    """The handler does not encrypt."""
    build = handler.EntityContext.__init__

    def in_clear(self: Any, *rest: Any, **more: Any) -> None:
        build(self, *rest, **more | {"encrypt": None})

    return patch.object(handler.EntityContext, "__init__", in_clear)


def content_in_clear_in_the_topic() -> AbstractContextManager[Any]:
    """The client does not encrypt."""
    ask = loop_checks.ContractWorld.sender_of

    def in_clear(self: Any, parts: Any) -> Any:
        parts.client.encrypt = None
        return ask(self, parts)

    return patch.object(loop_checks.ContractWorld, "sender_of", in_clear)


def unbounded_state() -> AbstractContextManager[Any]:
    """Every decision is taken, whatever the state has become."""
    return patch.object(EntityCommandHandler, "to_snapshot_state", lambda self, aggregate, events: events)


def bound_forgotten_at_rest() -> AbstractContextManager[Any]:
    """A state that was loaded may grow as if it were empty."""
    load = EntityCommandHandler._load

    async def forgetful(self: EntityCommandHandler, name: str, tenant: str) -> Any:
        aggregate = await load(self, name, tenant)
        self._grown[name] = self._sizes[name] = 0
        return aggregate

    return patch.object(EntityCommandHandler, "_load", forgetful)


def answer_lost_with_the_owner() -> AbstractContextManager[Any]:
    """A repeated command is recognised, and answered with nothing."""

    async def nothing(ranges: Any, codec: Any, topic: str, partition: int, *, last: int, **_: Any) -> Answer:
        return Answer(events=(), topic=topic, partition=partition, offset=last)

    return patch.object(handler, "read_answer", nothing)


def timer_fires_twice() -> AbstractContextManager[Any]:
    """A timer is heard whatever the state says."""

    def decide(self: EntityFamilies, state: Any, order: Any) -> Sequence[Any]:
        if order.command is families.TIMER_FIRED:
            return [CommandHadNoEffect()]
        return real(self, state, order)

    real = EntityFamilies.decide
    return patch.object(EntityFamilies, "decide", decide)


def timer_fires_early() -> AbstractContextManager[Any]:
    """Every timer in memory is heard at once, and decided by a family that does not ask for the time."""

    def decide(self: EntityFamilies, state: Any, order: Any) -> Sequence[Any]:
        if order.command is families.TIMER_FIRED:
            return self.families.of(state.id).rules.decide(state, order.command, order.at)
        return real(self, state, order)

    real = EntityFamilies.decide
    return patch.object(EntityFamilies, "decide", decide)


def timer_lost_at_a_takeover() -> AbstractContextManager[Any]:
    """Timers that have come due are not heard."""
    return patch.object(Leadership, "_fire_timer", lambda self, name: None)


def delivery_lost_at_a_takeover() -> AbstractContextManager[Any]:
    """What the last owner had to send is not sent."""
    return patch.object(EntityCommandHandler, "_redeliver", lambda self, aggregate, event: None)


def delivery_lost_behind_the_row() -> AbstractContextManager[Any]:
    """What the last owner had to send is not sent, if the row has the event."""
    return patch.object(EntityCommandHandler, "_redeliver_covered", lambda self, state, event: None)


def delivery_carried_out_twice() -> AbstractContextManager[Any]:
    """A delivery has another id each time it is sent."""
    numbers, start = itertools.count(), Outbox.start

    def fresh(self: Outbox, partition: int, delivery: Any, tenant: str) -> None:
        again = replace(delivery, id=f"{delivery.id}:{next(numbers)}") if next(numbers) else delivery
        self.register(partition, 0, again)
        start(self, partition, again, tenant)
        self._pending[partition].pop(delivery.id, None)

    return patch.object(Outbox, "start", fresh)


def checkpoint_past_the_projector() -> AbstractContextManager[Any]:
    """A checkpoint does not wait for the rows."""

    async def at_once(self: Any, partition: int, next_offset: int) -> str:
        return ""

    return patch.object(EntityCheckpoints, "_wait_for_projector", at_once)


def row_behind_its_checkpoint() -> AbstractContextManager[Any]:
    """An owner uses rows that are not complete."""

    def stand_still(self: Any, partition: int) -> None:
        """The projector is away."""

    return _both(
        patch.object(EntityCommandHandler, "_require", lambda self, below: None),
        checkpoint_past_the_projector(),
        patch.object(loop_checks.ProjectedRows, "project", stand_still),
    )


def row_without_its_seal() -> AbstractContextManager[Any]:
    """A row is used although it was edited."""
    return patch.object(entities, "verify_seal", lambda row, *seals: True)


def row_of_another_version() -> AbstractContextManager[Any]:
    """A row is used whichever version of the fold made it."""
    verified = loop_checks.ProjectedRows.verified

    def lenient(self: Any, row: Any) -> Any:
        version = self._families.of(row.aggregate).rules.version
        return verified(self, entities.sealed(row._replace(version=version), entities.plain_seal))

    return patch.object(loop_checks.ProjectedRows, "verified", lenient)


def items_of_the_state_before() -> AbstractContextManager[Any]:
    """Items are made from the state that an aggregate had before the event."""
    evolve, items = FamilyFold.evolve, FamilyFold.items
    states = dict[str, Any]()

    def remember(self: FamilyFold, state: Any, event: Any, at_ms: int) -> Any:
        states[state.id] = state
        return evolve(self, state, event, at_ms)

    def late(self: FamilyFold, state: Any, event: Any, envelope: Any) -> Any:
        return items(self, states[state.id], event, envelope)

    return _both(patch.object(FamilyFold, "evolve", remember), patch.object(FamilyFold, "items", late))


def items_that_are_not_removed() -> AbstractContextManager[Any]:
    """Items without a document are left as they were."""
    make = entity_fold.EntityChanges
    return patch.object(entity_fold, "EntityChanges", lambda **rows: make(**rows | {"removed_items": []}))


def partial_answer_of_a_replica() -> AbstractContextManager[Any]:
    """A replica answers with the first event of a decision."""
    resolve = replicas.Replicas._resolve

    def first(self: Any, command: Any, partition: int, events: Any) -> None:
        resolve(self, command, partition, events[:1])

    return patch.object(replicas.Replicas, "_resolve", first)


def refusal_without_an_event() -> AbstractContextManager[Any]:
    """A command that changes nothing has no event."""

    def silent(self: EntityFamilies, state: Any, order: Any) -> Sequence[Any]:
        events = real(self, state, order)
        return () if events and isinstance(events[-1], CommandHadNoEffect) else events

    real = EntityFamilies.decide
    return patch.object(EntityFamilies, "decide", silent)


@contextmanager
def _both(*patches: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for one in patches:
            stack.enter_context(one)
        yield


# --- a family that breaks the contract -------------------------------------------------------------------------------

_ticks = itertools.count()


def broken(**rules: Any) -> Case:
    """The counter with other rules."""
    family = changed(FAMILY, rules=changed(FAMILY.rules, **rules))
    return Case(name="counter", family=family, families=(family,))


def broken_family(**changes: Any) -> Case:
    family = changed(FAMILY, **changes)
    return Case(name="counter", family=family, families=(family,))


def evolve_by_the_clock(counter: Counter, event: Any, at_ms: int) -> Counter:
    return replace(FAMILY.rules.evolve(counter, event, at_ms), reset_at_ms=next(_ticks))


def decide_by_the_clock(counter: Counter, command: Any, at: At) -> Sequence[Any]:
    events = FAMILY.rules.decide(counter, command, at)
    return [
        replace(event, reset_at_ms=next(_ticks)) if isinstance(event, CounterIncremented) else event for event in events
    ]


def decide_what_cannot_be_written(counter: Counter, command: Any, at: At) -> Sequence[Any]:
    events = FAMILY.rules.decide(counter, command, at)
    return [
        replace(event, value=event.value + 2**64) if isinstance(event, CounterIncremented) else event
        for event in events
    ]


def evolve_without_resets(counter: Counter, event: Any, at_ms: int) -> Counter:
    return counter if not isinstance(event, CounterIncremented) else FAMILY.rules.evolve(counter, event, at_ms)


def items_by_the_clock(counter: Counter, event: Any, envelope: Any) -> Sequence[Item]:
    return [Item(kind="step", id=f"{envelope.aggregate}#{envelope.seq}", number=next(_ticks), document="{}")]


def items_of_all_counters(counter: Counter, event: Any, envelope: Any) -> Sequence[Item]:
    return [Item(kind="step", id=str(envelope.seq), document="{}")]


def items_that_cannot_be_stored(counter: Counter, event: Any, envelope: Any) -> Sequence[Item]:
    return [Item(kind="step", id="", document="{}")]


def sends_by_the_state(counter: Counter, event: Any) -> Sequence[Any]:
    return FAMILY.sends(counter, event) if counter.value else ()


INERT = nullcontext
MUTATIONS: dict[str, Mutation] = {
    "a second event for a repeated command": Mutation(
        breaks=second_event_for_a_repeated_command, check=loop_checks.repeated_commands_have_one_decision, case=COUNTER
    ),
    "commands of the tail forgotten": Mutation(
        breaks=commands_of_the_tail_forgotten, check=loop_checks.repeated_commands_have_one_decision, case=COUNTER
    ),
    "the reply of another tenant": Mutation(
        breaks=reply_of_another_tenant, check=loop_checks.another_tenant_has_its_own_aggregates, case=COUNTER
    ),
    "the aggregate of another tenant": Mutation(
        breaks=aggregate_of_another_tenant, check=loop_checks.another_tenant_has_its_own_aggregates, case=COUNTER
    ),
    "a repair by another tenant": Mutation(
        breaks=repair_by_another_tenant, check=loop_checks.another_tenant_has_its_own_aggregates, case=COUNTER
    ),
    "content in clear": Mutation(breaks=content_in_clear, check=loop_checks.content_is_never_in_clear, case=NOTEBOOK),
    "content in clear in the commands topic": Mutation(
        breaks=content_in_clear_in_the_topic,
        check=loop_checks.content_is_never_in_clear_in_the_commands_topic,
        case=NOTEBOOK,
    ),
    "an unbounded state": Mutation(breaks=unbounded_state, check=loop_checks.states_are_bounded, case=NOTEBOOK),
    "a bound forgotten at rest": Mutation(
        breaks=bound_forgotten_at_rest, check=loop_checks.states_are_bounded, case=NOTEBOOK
    ),
    "an answer lost with the owner": Mutation(
        breaks=answer_lost_with_the_owner, check=loop_checks.any_death_leaves_the_same, case=COUNTER
    ),
    "a timer that fires twice": Mutation(
        breaks=timer_fires_twice, check=loop_checks.a_timer_fires_once_and_not_before_its_time, case=COUNTER
    ),
    "a timer before its time": Mutation(breaks=timer_fires_early, check=checks.timers_fire_once, case=COUNTER),
    "a timer that is not heard": Mutation(
        breaks=timer_lost_at_a_takeover, check=loop_checks.a_timer_fires_once_and_not_before_its_time, case=COUNTER
    ),
    "a delivery lost at a takeover": Mutation(
        breaks=delivery_lost_at_a_takeover, check=loop_checks.any_death_leaves_the_same, case=COUNTER
    ),
    "a delivery lost behind the row": Mutation(
        breaks=delivery_lost_behind_the_row, check=loop_checks.any_death_leaves_the_same, case=COUNTER
    ),
    "a delivery carried out twice": Mutation(
        breaks=delivery_carried_out_twice, check=loop_checks.any_death_leaves_the_same, case=COUNTER
    ),
    "a checkpoint past the projector": Mutation(
        breaks=checkpoint_past_the_projector, check=loop_checks.checkpoints_wait_for_the_projector, case=COUNTER
    ),
    "a row behind its checkpoint": Mutation(
        breaks=row_behind_its_checkpoint, check=loop_checks.rows_and_snapshots_continue_as_the_full_fold, case=COUNTER
    ),
    "a row without its seal": Mutation(
        breaks=row_without_its_seal, check=loop_checks.an_edited_row_is_not_used, case=COUNTER
    ),
    "a row of another version": Mutation(
        breaks=row_of_another_version, check=loop_checks.a_newer_fold_ignores_older_states, case=COUNTER
    ),
    "a part of an answer": Mutation(
        breaks=partial_answer_of_a_replica,
        check=lambda case: loop_checks.any_fault_leaves_the_same(case, "dies before", by_topic=True, at=range(1, 2)),
        case=NOTEBOOK,
    ),
    "a refusal without an event": Mutation(
        breaks=refusal_without_an_event, check=checks.every_command_has_an_answer, case=COUNTER
    ),
    "an evolve that depends on a clock": Mutation(
        breaks=INERT, check=checks.rules_are_deterministic, case=broken(evolve=evolve_by_the_clock)
    ),
    "a decide that depends on a clock": Mutation(
        breaks=INERT, check=checks.rules_are_deterministic, case=broken(decide=decide_by_the_clock)
    ),
    "an event that cannot be written": Mutation(
        breaks=INERT, check=checks.events_round_trip, case=broken(decide=decide_what_cannot_be_written)
    ),
    "a timer that does not end": Mutation(
        breaks=INERT, check=checks.timers_fire_once, case=broken(evolve=evolve_without_resets)
    ),
    "items of the state before": Mutation(
        breaks=items_of_the_state_before, check=loop_checks.items_are_those_of_the_full_fold, case=NOTEBOOK
    ),
    "items that are not removed": Mutation(
        breaks=items_that_are_not_removed, check=loop_checks.items_are_those_of_the_full_fold, case=NOTEBOOK
    ),
    "items that depend on a clock": Mutation(
        breaks=INERT, check=checks.items_follow_from_state_and_event, case=broken_family(items=items_by_the_clock)
    ),
    "items of two aggregates with one id": Mutation(
        breaks=INERT, check=checks.items_follow_from_state_and_event, case=broken_family(items=items_of_all_counters)
    ),
    "items that cannot be stored": Mutation(
        breaks=INERT,
        check=checks.items_follow_from_state_and_event,
        case=broken_family(items=items_that_cannot_be_stored),
    ),
    "sends that depend on the state": Mutation(
        breaks=INERT, check=checks.sends_follow_from_the_event, case=broken_family(sends=sends_by_the_state)
    ),
}
