"""Coordination of runs in one tree: parents and their children. All runs of a tree are in one partition.

A child is started, commanded and reported by commands between aggregates that one owner holds, so nothing is sent over
the network and nothing is looked up: ids identify every run. Only after a takeover it may be unknown whether a child
has ended or never began; then the log is read, with the index for what memory has forgotten.

A child is a run like any other where spending is concerned: when a limit is exhausted it is not started, and the call
that requested it gets the refusal.

Before: command_handler.py, for an effect of services/core/run/react.py that concerns related runs. After: the owner
decides the commands.
"""

from collections.abc import Sequence
from typing import Any, assert_never

from loomlog.schemas.generated.run_commands import CancelRun, CancelTurn, CloseResident, PostInput
from loomlog.schemas.generated.run_events import RunRefused
from loomlog.schemas.generated.values import AgentDefinition, CommandEnvelope, LimitNotice, MemoryContext
from loomlog.schemas.ids import partition_key
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import (
    CancelCommand,
    CancelTurnCommand,
    ChildReported,
    CloseCommand,
    CommandRefusal,
    InputCommand,
    StartCommand,
)
from loomlog.services.core.run.decide import decide
from loomlog.services.core.run.lifecycle.event_import import is_importing
from loomlog.services.core.run.react import CancelChildren, EnsureChild, EnsureParent, NotifyParent, RelatedRunEffect
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingModel, AwaitingTools, Ended, Parked, State
from loomlog.services.core.run.subagents import delegation
from loomlog.services.core.run.subagents.children import (
    PARENT_ENDED,
    child_input_id,
    child_start_command,
    inherit_core_blocks,
    last_output,
    status_for_parent,
)
from loomlog.services.core.run.subagents.delegation import DelegatedChild, Delegation
from loomlog.services.core.run.tools.unknown_outcome import find_call_of_turn
from loomlog.services.families.ports.prompts import PromptAdditions
from loomlog.services.runtime.run.context import RunContext
from loomlog.services.runtime.run.prompt_run import prompt_run, with_memory
from loomlog.services.runtime.run.run_directory import RunDirectory
from loomlog.services.stream.context import PendingDecision
from loomlog.services.stream.partition.fold import BrokenHistory
from loomlog.services.stream.partition.lookups import continue_in_task
from loomlog.services.stream.partition.partition import Aggregate, Partition

NO_COMMANDS: Sequence[PendingDecision] = ()
DefinitionWithMemory = tuple[AgentDefinition | None, MemoryContext | CommandRefusal | None]
"""What a child is pinned to once the memory in its prompt was read, as `with_memory` takes it."""
UNKNOWN_CHILD = "{} is no sub-agent of this run"


class ChildRunCoordinator:
    """Executes the effects of one partition's runs that concern their parents and children."""

    def __init__(self, context: RunContext, directory: RunDirectory, *, number: int) -> None:
        self._context = context
        self._directory = directory
        self._number = number
        self._past = context.ended_runs
        self._clock_ms = context.clock_ms
        self._budgets = context.budgets
        self._children: dict[str, dict[str, None]] = {}
        """Live children by parent, in the order they began."""

    # --- watching ----------------------------------------------------------------------------------------------------

    def on_child_started(self, run_id: str, parent: str) -> None:
        """Track a child that is live, or about to be."""
        self._children.setdefault(parent, {})[run_id] = None

    def on_child_ended(self, run_id: str, parent: str) -> None:
        """Stop tracking a child that has ended."""
        children = self._children.get(parent)
        if children is not None:
            children.pop(run_id, None)
            if not children:
                del self._children[parent]

    def has_children(self, run_id: str) -> bool:
        """Whether live runs are below the run."""
        return run_id in self._children

    def descendants(self, run_id: str) -> list[str]:
        """Return the live runs below a run, parents before their children."""
        run_ids = list(self._children.get(run_id, ()))
        for name in run_ids:  # grows during iteration: a tree has no cycles, its ids are hashes of their parents'
            run_ids += self._children.get(name, ())
        return run_ids

    # --- carrying out ------------------------------------------------------------------------------------------------

    async def execute(
        self, aggregate: Aggregate, effect: RelatedRunEffect, state: State, partition: Partition
    ) -> Sequence[PendingDecision]:
        """Return the commands that an effect requires now."""
        match effect:
            case EnsureChild():
                return await self._ensure_child(aggregate, effect, partition)
            case NotifyParent():
                return self._notify_parent(aggregate, state, partition)
            case CancelChildren():
                children = [partition.aggregates.get(name) for name in self._children.get(aggregate.id, ())]
                if not isinstance(aggregate.state, Ended):
                    children = [child for child in children if child is not None and _is_orphaned(aggregate, child)]
                ends = (self._cancel_orphan(child) for child in children)
                return [prepared for prepared in ends if prepared is not None]
            case EnsureParent():
                return await self._ensure_parent(aggregate, partition)
            case _:
                assert_never(effect)

    async def _ensure_child(
        self, parent: Aggregate, effect: EnsureChild, partition: Partition
    ) -> Sequence[PendingDecision]:
        awaited = self._find_awaited_child(parent, effect, partition)
        if awaited is None:
            return NO_COMMANDS
        plan, child = awaited
        live = partition.aggregates.get(child.run_id)
        if plan.op in delegation.START_OPERATIONS:
            if live is not None:
                return self._report_if_parked(parent, live, plan, child)
            if self._directory.is_ending(child.run_id):
                return NO_COMMANDS  # its own end is reported to the parent
            if effect.is_new and not self._directory.has_ended(child.run_id):
                return await self._begin_child(parent, effect, plan, child, partition)
            await continue_in_task()
            return await self._resolve_absent_child(parent, effect, partition)
        if partition_key(child.run_id) != partition_key(parent.id):
            # The index would return an offset in the child's own partition, which means nothing in this one.
            return [self._child_refusal(parent, child, UNKNOWN_CHILD.format(child.run_id))]
        if live is not None:
            return self._command_resident(parent, live, effect, plan, child)
        if self._directory.is_ending(child.run_id):
            return NO_COMMANDS
        await continue_in_task()
        return await self._resolve_absent_child(parent, effect, partition)

    def _find_awaited_child(
        self, parent: Aggregate, effect: EnsureChild, partition: Partition
    ) -> tuple[Delegation, DelegatedChild] | None:
        """Return the child as the parent waits for it now; None when it no longer does."""
        state = parent.state
        if partition.aggregates.get(parent.id) is not parent or parent.quarantined:
            return None
        opened = find_call_of_turn(state, effect.turn, effect.index) if isinstance(state, AwaitingTools) else None
        if opened is None or opened.delegation is None:
            return None
        child = opened.delegation.children[effect.number]
        return (opened.delegation, child) if child.phase == delegation.RUNNING else None

    async def _begin_child(
        self, parent: Aggregate, effect: EnsureChild, plan: Delegation, child: DelegatedChild, partition: Partition
    ) -> Sequence[PendingDecision]:
        """Start a child that is known not to have begun; refused when a hard limit is exhausted. Raises Transient."""
        user_id = _require_facts(parent.state).user_id
        has_waited = await self._context.load_definition(
            child.spawn.agent,
            parent.tenant,
            def_id=child.spawn.def_id,
            positions=_require_facts(parent.state).positions,
        )
        has_waited |= await self._context.store_texts(self._resolve(parent, child))
        exhausted, memory = None, self._needed_memory(parent, child)
        if self._budgets is not None and self._budgets.may_be_limited(parent.tenant, user_id):
            await continue_in_task()
            exhausted = await self._budgets.exhausted_limit(parent.tenant, user_id)
        elif memory is None and not has_waited:
            return [self._prepare_child_start(parent, effect, plan, child)]
        read = None if memory is None else await self._read_memory(memory, parent, effect, plan, child)
        awaited = self._find_awaited_child(parent, effect, partition)
        if awaited is None or awaited[1].run_id in partition.aggregates or self._directory.is_ending(awaited[1].run_id):
            return NO_COMMANDS  # no longer awaited, or begun meanwhile: its own end is reported to the parent
        if self._directory.has_ended(awaited[1].run_id):
            return await self._resolve_absent_child(parent, effect, partition)  # and has already ended
        return [self._prepare_child_start(parent, effect, *awaited, exhausted=exhausted, read=read)]

    def _needed_memory(self, parent: Aggregate, child: DelegatedChild) -> PromptAdditions | None:
        """Return what reads the memory in the child's prompt; None when there is none in it."""
        memory, definition = self._context.prompt_memory, self._resolve(parent, child)
        if memory is None or not isinstance(definition, AgentDefinition):
            return None
        definition = inherit_core_blocks(definition, _require_facts(parent.state).definition)
        return memory if memory.is_needed(definition) else None

    async def _read_memory(
        self, memory: PromptAdditions, parent: Aggregate, effect: EnsureChild, plan: Delegation, child: DelegatedChild
    ) -> DefinitionWithMemory | None:
        """Return the child's definition with the memory in its prompt. Raises ConnectorError."""
        definition = self._resolve(parent, child)
        if isinstance(definition, CommandRefusal):
            return None
        order = self._child_order(parent, effect, plan, child, definition)
        await continue_in_task()
        facts = _require_facts(parent.state)
        return order.definition, await memory.read(prompt_run(order, child.run_id, facts.positions))

    def _resolve(self, parent: Aggregate, child: DelegatedChild) -> AgentDefinition | CommandRefusal:
        facts = _require_facts(parent.state)
        options = facts.options
        return self._context.definitions.resolve(
            child.spawn.agent,
            tenant=parent.tenant,
            user_tier=options.user_tier,
            user_id=facts.user_id,
            credentials=options.credentials,
            operator_key_restricted=options.operator_key_restricted,
            def_id=child.spawn.def_id,
            is_child=True,
        )

    def _prepare_child_start(
        self,
        parent: Aggregate,
        effect: EnsureChild,
        plan: Delegation,
        child: DelegatedChild,
        *,
        exhausted: LimitNotice | None = None,
        read: DefinitionWithMemory | None = None,
    ) -> PendingDecision:
        definition = self._resolve(parent, child)
        if isinstance(definition, CommandRefusal):
            return self._child_refusal(parent, child, definition.message)
        holder = self._directory.handle_holder(parent.tenant, child.agent_id)
        if holder:
            return self._child_refusal(parent, child, f"the live run {holder} has the handle {child.agent_id}")
        order = self._child_order(parent, effect, plan, child, definition)
        order = replace(order if read is None else with_memory(order, *read), exhausted_limit=exhausted)
        state = self._context.family.absent(child.run_id)
        first = decide(state, order)[0]
        if isinstance(first, RunRefused):  # reported here: a refused run would never report to its parent
            return self._child_refusal(parent, child, first.message)
        begun = Aggregate(id=child.run_id, state=state, key=parent.key, tenant=parent.tenant)
        return PendingDecision(begun, lambda: order)

    def _child_order(
        self,
        parent: Aggregate,
        effect: EnsureChild,
        plan: Delegation,
        child: DelegatedChild,
        definition: AgentDefinition,
    ) -> StartCommand:
        return child_start_command(
            _require_facts(parent.state),
            tenant=parent.tenant,
            turn=effect.turn,
            index=effect.index,
            plan=plan,
            child=child,
            definition=self._context.with_text_references(definition),
            pauses=self._context.pauses_for(parent.tenant, child.spawn.agent),
            at_ms=self._clock_ms(),
        )

    def _report_if_parked(
        self, parent: Aggregate, live: Aggregate, plan: Delegation, child: DelegatedChild
    ) -> Sequence[PendingDecision]:
        """Report an opened child that is parked already: that is what its parent waits for."""
        if plan.op == delegation.OPEN and isinstance(live.state, Parked):
            return [self._child_report(parent, child.run_id, live.state)]
        return NO_COMMANDS

    def _command_resident(
        self, parent: Aggregate, live: Aggregate, effect: EnsureChild, plan: Delegation, child: DelegatedChild
    ) -> Sequence[PendingDecision]:
        """Return the commands for a live resident child. Repeating them changes nothing."""
        state, at_ms = live.state, self._clock_ms()
        facts = _require_facts(state)
        if facts.parent is None or facts.parent.run_id != parent.id or not facts.parent.is_resident:
            return [self._child_refusal(parent, child, UNKNOWN_CHILD.format(child.run_id))]
        if child.only_look:
            return [self._child_report(parent, child.run_id, state)]
        envelope = CommandEnvelope(
            command_id=child_input_id(parent.id, effect.turn, effect.index),
            tenant=parent.tenant,
            subject=facts.subject,
            issued_at_ms=at_ms,
        )
        match plan.op:
            case delegation.SEND if envelope.command_id not in facts.input_ids:
                if len(facts.waiting_inputs) >= limits.MAX_WAITING_INPUTS:
                    return [
                        self._child_refusal(
                            parent, child, f"{child.run_id} has too many texts to answer: poll it first"
                        )
                    ]
                command = PostInput(envelope=envelope, run_id=live.id, text=child.spawn.prompt, source="api")
                return [PendingDecision(live, lambda: InputCommand(at_ms=at_ms, command=command))]
            case delegation.CLOSE:
                close = CloseResident(envelope=envelope, run_id=live.id, reason="closed by its parent")
                # A run that could not be folded completely has no next event: the close waits until it is released.
                return [
                    PendingDecision(
                        live,
                        lambda: CloseCommand(at_ms=at_ms, command=close),
                        allowed_in_quarantine=not live.pending_events,
                    )
                ]
            case delegation.CANCEL if isinstance(state, AwaitingModel | AwaitingTools):
                stop = CancelTurn(envelope=envelope, run_id=live.id, reason="cancelled by its parent")
                return [PendingDecision(live, lambda: CancelTurnCommand(at_ms=at_ms, command=stop))]
            case _:
                return [self._child_report(parent, child.run_id, state)] if isinstance(state, Parked) else NO_COMMANDS

    async def _resolve_absent_child(
        self, parent: Aggregate, effect: EnsureChild, partition: Partition
    ) -> Sequence[PendingDecision]:
        """Handle a child that is not live: it has ended, or never began. Raises Transient."""
        awaited = self._find_awaited_child(parent, effect, partition)
        if awaited is None:
            return NO_COMMANDS
        position = await self._directory.position_of(awaited[1].run_id, parent.tenant, partition)
        state, broken = None, ""
        try:
            state = await self._past.state(self._number, position) if position is not None else None
        except BrokenHistory as error:
            broken = f"what became of {awaited[1].run_id} cannot be read: {error}"
        awaited = self._find_awaited_child(parent, effect, partition)
        if awaited is None or awaited[1].run_id in partition.aggregates or self._directory.is_ending(awaited[1].run_id):
            return NO_COMMANDS  # begun during the lookup: its own end is reported to the parent
        plan, child = awaited
        if state is None and not broken and self._directory.has_ended(child.run_id):
            return await self._resolve_absent_child(parent, effect, partition)  # and has already ended
        if broken:
            return [self._child_refusal(parent, child, broken)]
        if state is None:
            if plan.op in delegation.START_OPERATIONS:
                return await self._begin_child(parent, effect, plan, child, partition)
            return [self._child_refusal(parent, child, UNKNOWN_CHILD.format(child.run_id))]
        theirs = state.facts.parent if isinstance(state, Ended) else None
        if theirs is None or theirs.run_id != parent.id:
            return [self._child_refusal(parent, child, UNKNOWN_CHILD.format(child.run_id))]
        return [self._child_report(parent, child.run_id, state)]

    def _notify_parent(self, aggregate: Aggregate, state: State, partition: Partition) -> Sequence[PendingDecision]:
        """Report the run's state to its parent; nothing when the parent is not live."""
        parent = _require_facts(state).parent
        assert parent is not None
        live = partition.aggregates.get(parent.run_id)
        if live is None:
            return NO_COMMANDS
        if isinstance(state, Parked) and not isinstance(aggregate.state, Parked):
            return NO_COMMANDS  # it is active again meanwhile, and reports when it parks the next time
        return [self._child_report(live, aggregate.id, state)]

    async def _ensure_parent(self, aggregate: Aggregate, partition: Partition) -> Sequence[PendingDecision]:
        """End an orphaned run; otherwise repeat the parent's open requests to it, which it may not have received."""
        theirs = _require_facts(aggregate.state).parent
        assert theirs is not None
        parent = partition.aggregates.get(theirs.run_id)
        if parent is None or _is_orphaned(parent, aggregate):
            end = self._cancel_orphan(aggregate)
            return NO_COMMANDS if end is None else [end]
        orders: list[PendingDecision] = []
        for opened in parent.state.open if isinstance(parent.state, AwaitingTools) else ():
            for child in delegation.running_children(opened.delegation) if opened.delegation is not None else ():
                if child.run_id == aggregate.id:
                    start = EnsureChild(
                        run_id=parent.id,
                        turn=parent.state.turn,
                        index=opened.index,
                        number=child.number,
                        is_new=False,
                    )
                    orders += await self._ensure_child(parent, start, partition)
        return orders

    def _child_report(self, parent: Aggregate, child_run_id: str, state: State) -> PendingDecision:
        facts = _require_facts(state)
        text, blob = last_output(state)
        order = ChildReported(
            at_ms=self._clock_ms(),
            child_run_id=child_run_id,
            status=status_for_parent(state),
            child_agent_id=facts.agent_id,
            agent=facts.definition.name,
            text=text,
            text_blob=blob,
            received_input_ids=facts.input_ids,
        )
        return PendingDecision(parent, lambda: order)

    def _child_refusal(self, parent: Aggregate, child: DelegatedChild, text: str) -> PendingDecision:
        order = ChildReported(at_ms=self._clock_ms(), child_run_id=child.run_id, status=delegation.REFUSED, text=text)
        return PendingDecision(parent, lambda: order)

    def _cancel_orphan(self, live: Aggregate | None) -> PendingDecision | None:
        """Return the command that ends a run whose parent has ended."""
        if live is None:
            return None
        facts, at_ms = _require_facts(live.state), self._clock_ms()
        envelope = CommandEnvelope(
            command_id=f"{live.id}:parent", tenant=live.tenant, subject=facts.subject, issued_at_ms=at_ms
        )
        order: CancelCommand | CloseCommand
        if facts.parent is not None and facts.parent.is_resident:
            order = CloseCommand(
                at_ms=at_ms, command=CloseResident(envelope=envelope, run_id=live.id, reason=PARENT_ENDED)
            )
        else:
            order = CancelCommand(
                at_ms=at_ms, command=CancelRun(envelope=envelope, run_id=live.id, reason=PARENT_ENDED)
            )
        return PendingDecision(live, lambda: order, allowed_in_quarantine=not live.pending_events)


def _is_orphaned(parent: Aggregate, child: Aggregate) -> bool:
    """Return whether a child's live parent no longer waits for it, because that turn was stopped. A resident child
    stays live between calls, once the call that opened it has its report. What a parent waits for is unknown while its
    import is incomplete.
    """
    facts, state = _require_facts(child.state), parent.state
    if facts.parent is None or is_importing(state) or child.id in _require_facts(state).residents:
        return False
    opened = (
        find_call_of_turn(state, facts.parent.turn, facts.parent.index) if isinstance(state, AwaitingTools) else None
    )
    return opened is None


def _require_facts(state: Any) -> RunFacts:
    facts = getattr(state, "facts", None)
    assert isinstance(facts, RunFacts), f"a {type(state).__name__} has no run facts"
    return facts
