"""Broken versions of the product: one rule switched off in each. The simulation must find every one.

A mutation is a patch while it lasts. That it is found says that the rule matters, that the faults reach it, and that
the checker looks at the right thing; a simulation that finds nothing in a broken product proves nothing about a whole
one.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from loomlog.connectors.protocols import EffectClass, ToolContext, ToolResult
from loomlog.projections.engine import cursors
from loomlog.projections.engine import fold as engine_fold
from loomlog.projections.engine.batch import PositionedEvent
from loomlog.schemas.codec import peek
from loomlog.schemas.generated.channel_events import LeaseSettled
from loomlog.schemas.generated.definition_events import DefPromoted
from loomlog.schemas.generated.run_events import OutputRejected
from loomlog.schemas.generated.values import AgentDefinition
from loomlog.schemas.reader import RawEvent, TermReader
from loomlog.schemas.records import replace
from loomlog.services.core.clock import ClockCheck
from loomlog.services.core.run import evolve
from loomlog.services.core.run.conversation import compaction
from loomlog.services.core.run.state import AwaitingTools, State
from loomlog.services.core.run.tools import unknown_outcome as tools_unknown_outcome
from loomlog.services.families.budget import decide as deciding
from loomlog.services.families.channel import decide as channel_rules
from loomlog.services.families.channel.operations import ChannelOperations, settle_command
from loomlog.services.families.definition import state as line_state
from loomlog.services.families.memory.decide import ANY_REVISION
from loomlog.services.families.memory.store import Change, MemoryStore
from loomlog.services.families.schedule import decide as schedule_rules
from loomlog.services.families.schedule import instants
from loomlog.services.families.schedule import state as schedule_state
from loomlog.services.families.webhook.ingress_reader import IngressReader
from loomlog.services.families.webhook.state import Webhook
from loomlog.services.runtime.run import wait_reports
from loomlog.services.runtime.run.command_handler import RunCommandHandler
from loomlog.services.runtime.run.run_end_actions import RunEndActions
from loomlog.services.runtime.tools import tool_calls
from loomlog.services.runtime.tools.operation_tools import OperationTool
from loomlog.services.stream.entities.checkpoints import EntityCheckpoints
from loomlog.services.stream.entities.handler import EntityCommandHandler
from loomlog.services.stream.entities.hosting import HostedEntities
from loomlog.services.stream.flusher import Flusher
from loomlog.services.stream.partition import ended_aggregates, fold
from loomlog.services.stream.partition.fold import Fold
from loomlog.services.stream.partition.partition import Partition

IMPATIENT_S = 1.0
"""Timeout of a tool that faults of the simulation outlast."""

Mutation = Callable[[], AbstractContextManager[Any]]


def term_rule() -> AbstractContextManager[Any]:
    """Readers take whatever was written, under whatever term."""
    read = TermReader.read

    def lenient(self: TermReader, offset: int, value: bytes | None) -> RawEvent | None:
        event, stale = read(self, offset, value), self.stale
        if event is not None or value is None or peek(value).schema_id in self._claim_ids:
            return event
        assert stale
        header = peek(value)
        return RawEvent(offset, header.schema_id, header.term, header.seq, header.aggregate, value)

    return patch.object(TermReader, "read", lenient)


def offset_comparison() -> AbstractContextManager[Any]:
    """An acknowledged batch counts as legal wherever it landed."""
    acked = Partition.acknowledged

    def lenient(self: Partition, base: int) -> Any:
        self.next_offset = base
        return acked(self, base)

    return patch.object(Partition, "acknowledged", lenient)


def dense_seq_at_a_take_over() -> AbstractContextManager[Any]:
    """A new owner folds over a gap."""
    strict = fold.fold_event

    async def lenient(aggregate: Any, event: RawEvent, **more: Any) -> Any:
        aggregate.seq = event.seq - 1
        return await strict(aggregate, event, **more)

    return _both(patch.object(fold, "fold_event", lenient), patch.object(ended_aggregates, "fold_event", lenient))


def dense_seq_in_the_rows() -> AbstractContextManager[Any]:
    """The projections fold over a gap."""
    return patch.object(
        engine_fold, "_legal_prefix", lambda before, items: ([i for i in items if isinstance(i, PositionedEvent)], None)
    )


def cursor_compare_and_set() -> AbstractContextManager[Any]:
    """A projector moves its cursor whoever moved it before."""

    async def unconditional(connection: Any, schema: str, topic: str, steps: Any) -> Any:
        statement = f'UPDATE "{schema}"."cursors" SET next_offset = %s, term = %s WHERE topic = %s AND partition = %s'
        return [
            (old, await connection.execute(statement, (new.next_offset, new.term, topic, new.partition)))
            for old, new in steps
        ]

    return patch.object(cursors, "advance", unconditional)


def silent_flusher() -> AbstractContextManager[Any]:
    """The flusher's task ends after a while and nobody notices."""
    run, settle = Flusher.run, Flusher._acknowledge

    class Died(Exception):
        pass

    async def settled(self: Flusher, *rest: Any) -> None:
        if self.flushes > 4:
            raise Died
        await settle(self, *rest)

    async def quietly(self: Flusher) -> None:
        try:
            await run(self)
        except Died:
            pass

    return _both(patch.object(Flusher, "run", quietly), patch.object(Flusher, "_acknowledge", settled))


def unknown_outcome() -> AbstractContextManager[Any]:
    """An append whose outcome is unknown counts as done."""
    settle = Flusher._acknowledge

    async def hopeful(self: Flusher, owner: Any, partition: Partition, outcome: Any) -> None:
        await settle(self, owner, partition, outcome if isinstance(outcome, int) else partition.next_offset)

    return patch.object(Flusher, "_acknowledge", hopeful)


def unsafe_calls_repeated() -> AbstractContextManager[Any]:
    """A lost call with an effect that must not be repeated is made again."""
    return patch.object(tools_unknown_outcome, "REPEATABLE", tools_unknown_outcome.REPEATABLE | {"unsafe"})


def lost_summaries_forgotten() -> AbstractContextManager[Any]:
    """A summary call that was lost with its owner is not made again, and nobody says that it was lost."""
    return patch.object(compaction, "recover_compaction", lambda state, order: None)


def limit_ignored() -> AbstractContextManager[Any]:
    """The books set aside what no limit leaves room for."""
    return patch.object(deciding, "find_exceeded_limit", lambda *amounts: None)


def handled_commands_forgotten() -> AbstractContextManager[Any]:
    """A new owner does not know what was handled before."""
    feed = Fold.feed

    def forgetful(self: Fold, records: Any) -> None:
        feed(self, records)
        self.commands.clear()
        self.over = OrderedDict()

    return patch.object(Fold, "feed", forgetful)


def intent_after_effect() -> AbstractContextManager[Any]:
    """Calls begin when their batch leaves, not when it is acknowledged."""
    append, acked = Flusher._append, Partition.acknowledged

    async def eager(self: Flusher, owner: Any, partition: Partition, records: Any) -> Any:
        assert partition._flight is not None
        self._start_effects(
            owner, partition.number, [due for decision in partition._flight.decisions for due in decision.ready_effects]
        )
        return await append(self, owner, partition, records)

    def quiet(self: Partition, base: int) -> Any:
        acked(self, base)
        return []

    return _both(patch.object(Flusher, "_append", eager), patch.object(Partition, "acknowledged", quiet))


def entity_commands_forgotten() -> AbstractContextManager[Any]:
    """The next owner of an entity partition does not know what was handled since the checkpoint."""
    live = EntityCommandHandler.live

    async def forgetful(self: EntityCommandHandler, *folded: Any) -> Any:
        aggregates = await live(self, *folded)
        self._known.clear()
        return aggregates

    return patch.object(EntityCommandHandler, "live", forgetful)


def deliveries_forgotten() -> AbstractContextManager[Any]:
    """The next owner does not send what the last one had to."""
    return _both(
        patch.object(EntityCommandHandler, "_redeliver", lambda self, aggregate, event: None),
        patch.object(EntityCommandHandler, "_redeliver_covered", lambda self, state, event: None),
    )


def deliveries_behind_the_row_forgotten() -> AbstractContextManager[Any]:
    """The next owner does not send what the last one had to, if the row or the snapshot has its event."""
    return patch.object(EntityCommandHandler, "_redeliver_covered", lambda self, state, event: None)


def rows_behind_their_checkpoint() -> AbstractContextManager[Any]:
    """An owner uses rows that are not complete, and a checkpoint does not wait for them."""

    async def at_once(self: EntityCheckpoints, partition: int, next_offset: int) -> str:
        return ""

    return _both(
        patch.object(EntityCheckpoints, "_wait_for_projector", at_once),
        patch.object(EntityCommandHandler, "_require", lambda self, below: None),
    )


def timers_of_resting_aggregates_forgotten() -> AbstractContextManager[Any]:
    """The timers of aggregates at rest are not read ahead."""

    async def nothing(self: HostedEntities, owner: Any) -> None:
        """Nothing is read."""

    return patch.object(HostedEntities, "read_ahead", nothing)


def pin_ignored_on_recovery() -> AbstractContextManager[Any]:
    """The next owner of a run asks the table again which version its agent means."""
    found = RunCommandHandler.live_found

    def resolved_again(self: RunCommandHandler, aggregate: Any) -> None:
        facts = getattr(aggregate.state, "facts", None)
        if facts is not None and facts.definition.pin is not None:
            definitions, name = self._context.definitions, facts.definition.name
            now = definitions.resolve(name, tenant=aggregate.tenant, user_tier="")
            if isinstance(now, AgentDefinition):
                aggregate.state = replace(aggregate.state, facts=replace(facts, definition=now))
        found(self, aggregate)

    return patch.object(RunCommandHandler, "live_found", resolved_again)


def two_actives() -> AbstractContextManager[Any]:
    """A promotion does not clear what was active before it: the version of a batch."""
    evolve = line_state.evolve_line

    def lenient(line: line_state.Line, event: Any, at_ms: int) -> line_state.Line:
        after = evolve(line, event, at_ms)
        is_kept = isinstance(event, DefPromoted) and line.staged and event.batch
        return replace(after, staged=line.staged, staged_by=line.staged_by) if is_kept else after

    return patch.object(line_state, "evolve_line", lenient)


def reducer_without_its_revision() -> AbstractContextManager[Any]:
    """A value that follows from an older one is written whatever the key is now."""
    write = MemoryStore.set

    async def lenient(self: MemoryStore, scope: Any, key: str, change: Change, *more: Any) -> Any:
        return await write(self, scope, key, replace(change, if_revision=ANY_REVISION), *more)

    return patch.object(MemoryStore, "set", lenient)


@contextmanager
def timeout_told_as_failure() -> Iterator[None]:
    """A call of Memory that does not return in time is told to have been stopped, although it may happen still."""
    with (
        patch.object(OperationTool, "timeout_s", IMPATIENT_S),
        patch.object(tool_calls, "WITHOUT_EFFECT", frozenset(EffectClass)),
    ):
        yield


def lease_not_returned() -> AbstractContextManager[Any]:
    """What a reader did not take of a lease is gone."""
    end = channel_rules._end

    def swallowed(draft: Any, queue: Any, lease_id: str, taken: int) -> None:
        before = len(draft.events)
        end(draft, queue, lease_id, taken)
        for at, event in enumerate(draft.events[before:], start=before):
            if isinstance(event, LeaseSettled):
                draft.events[at] = replace(event, returned=())

    return patch.object(channel_rules, "_end", swallowed)


def cursor_moved_before_the_result() -> AbstractContextManager[Any]:
    """Messages count as taken when the tool has them, as in the reference, and not when the run has recorded them."""
    leased = ChannelOperations.leased

    async def hasty(self: ChannelOperations, queue: Any, lease_id: str, positions: Any, **more: Any) -> Any:
        outcome = await leased(self, queue, lease_id, positions, **more)
        for lease in outcome.leases:
            command = settle_command(queue, lease_id, lease.taken, subject=lease_id, at_ms=self._clock_ms())
            self.spawn(self.settle(queue, command))
        return outcome

    return patch.object(ChannelOperations, "leased", hasty)


def lost_settlement_counts_as_taken() -> AbstractContextManager[Any]:
    """A run that does not know of a lease has taken all of it."""
    return patch.object(wait_reports, "taken_of_lease", lambda facts, lease_id: 1_000)


def lease_forgotten() -> AbstractContextManager[Any]:
    """A queue does not ask again about a lease."""
    remind = channel_rules._remind

    def silent(draft: Any, queue: Any, lease_id: str, lease: Any) -> None:
        if not lease.run_id:
            remind(draft, queue, lease_id, lease)

    return patch.object(channel_rules, "_remind", silent)


def leases_of_replaced_owners() -> AbstractContextManager[Any]:
    """An owner of a run that was replaced gives back what it knows nothing of."""

    async def always(self: Any, partition: Partition) -> bool:
        return True

    return patch.object(wait_reports.WaitReports, "_is_current", always)


def command_id_of_an_attempt() -> AbstractContextManager[Any]:
    """A call of Memory or Channel that is made again has another command id."""
    call = OperationTool.call

    async def forgetful(self: OperationTool, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        key = context.idempotency_key
        again = f"{key}.a{context.attempt}" if context.attempt > 1 else key
        return await call(self, arguments, replace(context, idempotency_key=again))

    return patch.object(OperationTool, "call", forgetful)


def wait_asleep() -> AbstractContextManager[Any]:
    """What becomes visible, or visible again, wakes nothing that waits."""
    return patch.object(channel_rules, "_serve", lambda draft, queue, name: None)


def instants_decided_again_after_a_takeover() -> AbstractContextManager[Any]:
    """The next owner of a schedule asks for the instants since it was armed."""
    load = EntityCommandHandler._load

    async def from_the_start(self: EntityCommandHandler, *target: Any) -> Any:
        aggregate = await load(self, *target)
        known = aggregate.state.state
        if isinstance(known, schedule_state.Schedule) and known.spec is not None and known.next_ms:
            first = instants.next_instant(known.spec, known.armed_ms, known.armed_ms)
            aggregate.state = replace(aggregate.state, state=replace(known, next_ms=first, last_ms=0))
        return aggregate

    return patch.object(EntityCommandHandler, "_load", from_the_start)


def clock_set_back_fires_again() -> AbstractContextManager[Any]:
    """A schedule that is armed otherwise goes on at the time of its owner's clock."""

    def by_the_clock(schedule: Any, command: Any, at_ms: int) -> Any:
        return armed(replace(schedule, last_ms=0), command, at_ms)

    armed = schedule_rules._armed
    return patch.object(schedule_rules, "_armed", by_the_clock)


def deliveries_taken_again() -> AbstractContextManager[Any]:
    """A webhook does not know the ids of deliveries."""
    return patch.object(Webhook, "find", lambda self, key: None)


def ingress_committed_first() -> AbstractContextManager[Any]:
    """What was read of loom.ingress is committed before it is answered."""
    handle = IngressReader._handle

    async def committed(self: IngressReader, record: Any) -> None:
        await self._group.commit({record.partition: record.offset + 1})
        await handle(self, record)

    return patch.object(IngressReader, "_handle", committed)


def ends_forgotten() -> AbstractContextManager[Any]:
    """The next owner of a run does not tell its end to what has started it."""
    return patch.object(RunEndActions, "on_takeover", lambda self, partition, fold: None)


def wrong_clocks_believed() -> AbstractContextManager[Any]:
    """A process goes by its clock however far it is off the broker's."""
    return patch.object(ClockCheck, "is_believed", lambda self, clock_ms, monotonic_s: self.is_measured)


def rejections_forgotten() -> AbstractContextManager[Any]:
    """A run does not count its answers that were no record."""
    apply = evolve.apply_output_rejected

    def forgetful(state: State, event: OutputRejected) -> AwaitingTools:
        after = apply(state, event)
        return replace(after, facts=replace(after.facts, rejected_outputs=0))

    return patch.object(evolve, "apply_output_rejected", forgetful)


MUTATIONS: dict[str, Mutation] = {
    mutation.__name__: mutation
    for mutation in (
        term_rule,
        offset_comparison,
        dense_seq_at_a_take_over,
        dense_seq_in_the_rows,
        cursor_compare_and_set,
        silent_flusher,
        unknown_outcome,
        unsafe_calls_repeated,
        lost_summaries_forgotten,
        limit_ignored,
        handled_commands_forgotten,
        intent_after_effect,
        entity_commands_forgotten,
        deliveries_forgotten,
        deliveries_behind_the_row_forgotten,
        rows_behind_their_checkpoint,
        timers_of_resting_aggregates_forgotten,
        pin_ignored_on_recovery,
        two_actives,
        reducer_without_its_revision,
        command_id_of_an_attempt,
        timeout_told_as_failure,
        lease_not_returned,
        cursor_moved_before_the_result,
        lost_settlement_counts_as_taken,
        lease_forgotten,
        leases_of_replaced_owners,
        command_id_of_an_attempt,
        wait_asleep,
        instants_decided_again_after_a_takeover,
        wrong_clocks_believed,
        clock_set_back_fires_again,
        deliveries_taken_again,
        ingress_committed_first,
        ends_forgotten,
        rejections_forgotten,
    )
}


@contextmanager
def _both(one: AbstractContextManager[Any], other: AbstractContextManager[Any]) -> Iterator[None]:
    with one, other:
        yield
