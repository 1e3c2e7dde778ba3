"""Runs of one tree: parents, their children, and what they owe each other. All of a tree lies in one partition.

A child is started, asked and told of by orders between aggregates that one owner holds, so nothing travels and nothing
is looked for: ids tell where everybody is. Only after a take-over it may be unknown whether a child is over or was
never begun; then the log is asked, by way of the index for what memory has forgotten.

A child is a run like any other where spending is concerned: with a limit under which nothing is left it is not begun,
and the call that wanted it is told so.

Before: command_handler.py, for an effect of services/core/run/react.py that concerns kin. After: the owner gives the
orders.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, assert_never

from loomlog.schemas.generated.run_commands import CancelRun, CancelTurn, CloseResident, PostInput
from loomlog.schemas.generated.run_events import RunRefused
from loomlog.schemas.generated.values import CommandEnvelope, LimitNotice, RunPosition
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
)
from loomlog.services.core.run.decide import decide
from loomlog.services.core.run.lifecycle.event_import import is_importing
from loomlog.services.core.run.react import CancelChildren, EnsureChild, EnsureParent, NotifyParent, RelatedRunEffect
from loomlog.services.core.run.run_facts import Pause, RunFacts
from loomlog.services.core.run.state import AwaitingModel, AwaitingTools, Ended, Parked, State
from loomlog.services.core.run.subagents import delegation
from loomlog.services.core.run.subagents.children import (
    PARENT_ENDED,
    child_input_id,
    child_start_command,
    last_output,
    status_for_parent,
)
from loomlog.services.core.run.subagents.delegation import DelegatedChild, Delegation
from loomlog.services.core.run.tools.unknown_outcome import find_call_of_turn
from loomlog.services.runtime.models.budget_reservation import StartBudgets
from loomlog.services.runtime.models.definition_resolver import DefinitionResolver
from loomlog.services.stream.context import PendingDecision
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates
from loomlog.services.stream.partition.fold import BrokenHistory
from loomlog.services.stream.partition.lookups import continue_in_task
from loomlog.services.stream.partition.partition import Aggregate, Partition

NO_COMMANDS: Sequence[PendingDecision] = ()
UNKNOWN_CHILD = "{} is no sub-agent of this run"


class RunLocator(Protocol):
    """What the desk knows of runs."""

    async def __call__(self, run_id: str, tenant: str, partition: Partition) -> RunPosition | None: ...


class ChildRunCoordinator:
    """Carries out what a run of one partition asks of its kin."""

    def __init__(
        self,
        *,
        number: int,
        past: EndedAggregates,
        definitions: DefinitionResolver,
        locate: RunLocator,
        is_ending: Callable[[str], bool],
        has_ended: Callable[[str], bool],
        handle_holder: Callable[[str, str], str],
        pauses: Callable[[str, str], tuple[Pause, ...]],
        clock_ms: Callable[[], int],
        absent_state: Callable[[str, Any], Any],
        budgets: StartBudgets | None = None,
    ) -> None:
        """`is_ending`: its end is decided and not in the log yet; `is_over`: it is remembered to be over. `holder`
        gives the live run of a tenant that has a handle, `pauses` what holds runs of a tenant and agent now."""
        self._number = number
        self._past = past
        self._definitions = definitions
        self._locate = locate
        self._is_ending = is_ending
        self._has_ended = has_ended
        self._handle_holder = handle_holder
        self._pauses = pauses
        self._clock_ms = clock_ms
        self._absent_state = absent_state
        self._budgets = budgets
        self._children: dict[str, dict[str, None]] = {}
        """Live children by their parent, in the order they began."""

    # --- watching ----------------------------------------------------------------------------------------------------

    def on_child_started(self, run_id: str, parent: str) -> None:
        """A child is live, or about to be."""
        self._children.setdefault(parent, {})[run_id] = None

    def on_child_ended(self, run_id: str, parent: str) -> None:
        """A child is over."""
        children = self._children.get(parent)
        if children is not None:
            children.pop(run_id, None)
            if not children:
                del self._children[parent]

    def descendants(self, run_id: str) -> list[str]:
        """The live runs below a run, parents before their children."""
        found = list(self._children.get(run_id, ()))
        for name in found:  # grows while it is walked: a tree has no circles, its ids are hashes of their parents'
            found += self._children.get(name, ())
        return found

    # --- carrying out ------------------------------------------------------------------------------------------------

    async def execute(
        self, aggregate: Aggregate, effect: RelatedRunEffect, state: State, partition: Partition
    ) -> Sequence[PendingDecision]:
        """The orders that an effect means now."""
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
        found = self._find_awaited_child(parent, effect, partition)
        if found is None:
            return NO_COMMANDS
        wanted, child = found
        live = partition.aggregates.get(child.run_id)
        if wanted.op in delegation.START_OPERATIONS:
            if live is not None:
                return self._report_if_parked(parent, live, wanted, child)
            if self._is_ending(child.run_id):
                return NO_COMMANDS  # its own end tells the parent
            if effect.is_new and not self._has_ended(child.run_id):
                return await self._begin_child(parent, effect, wanted, child, partition)
            await continue_in_task()
            return await self._resolve_absent_child(parent, effect, partition)
        if partition_key(child.run_id) != partition_key(parent.id):
            # The index would tell where it lies in its own partition, and that place means nothing in this one.
            return [self._child_refusal(parent, child, UNKNOWN_CHILD.format(child.run_id))]
        if live is not None:
            return self._command_resident(parent, live, effect, wanted, child)
        if self._is_ending(child.run_id):
            return NO_COMMANDS
        await continue_in_task()
        return await self._resolve_absent_child(parent, effect, partition)

    def _find_awaited_child(
        self, parent: Aggregate, effect: EnsureChild, partition: Partition
    ) -> tuple[Delegation, DelegatedChild] | None:
        """The child as the parent waits for it now; None when it does not any more."""
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
        if self._budgets is None or not self._budgets.may_be_limited(parent.tenant, user_id):
            return [self._prepare_child_start(parent, effect, plan, child)]
        await continue_in_task()
        exhausted = await self._budgets.exhausted_limit(parent.tenant, user_id)
        found = self._find_awaited_child(parent, effect, partition)
        if found is None or found[1].run_id in partition.aggregates or self._is_ending(found[1].run_id):
            return NO_COMMANDS  # not wanted any more, or begun meanwhile: its own end tells the parent
        if self._has_ended(found[1].run_id):
            return await self._resolve_absent_child(parent, effect, partition)  # and over already
        return [self._prepare_child_start(parent, effect, *found, exhausted=exhausted)]

    def _prepare_child_start(
        self,
        parent: Aggregate,
        effect: EnsureChild,
        plan: Delegation,
        child: DelegatedChild,
        *,
        exhausted: LimitNotice | None = None,
    ) -> PendingDecision:
        facts, agent = _require_facts(parent.state), child.spawn.agent
        if child.spawn.def_id:
            text = f"def_id {child.spawn.def_id}: this server keeps no versions of definitions; leave def_id out"
            return self._child_refusal(parent, child, text)
        definition = self._definitions.resolve(
            agent,
            tenant=parent.tenant,
            user_tier=facts.options.user_tier,
            credentials=facts.options.credentials,
            operator_key_restricted=facts.options.operator_key_restricted,
        )
        if isinstance(definition, CommandRefusal):
            return self._child_refusal(parent, child, definition.message)
        holder = self._handle_holder(parent.tenant, child.agent_id)
        if holder:
            return self._child_refusal(parent, child, f"the live run {holder} has the handle {child.agent_id}")
        order = child_start_command(
            facts,
            tenant=parent.tenant,
            turn=effect.turn,
            index=effect.index,
            plan=plan,
            child=child,
            definition=definition,
            pauses=self._pauses(parent.tenant, agent),
            at_ms=self._clock_ms(),
        )
        order = replace(order, exhausted_limit=exhausted)
        state = self._absent_state(child.run_id, None)
        first = decide(state, order)[0]
        if isinstance(first, RunRefused):  # nobody would wait for a run that never was
            return self._child_refusal(parent, child, first.message)
        begun = Aggregate(id=child.run_id, state=state, key=parent.key, tenant=parent.tenant)
        return PendingDecision(begun, lambda: order)

    def _report_if_parked(
        self, parent: Aggregate, live: Aggregate, plan: Delegation, child: DelegatedChild
    ) -> Sequence[PendingDecision]:
        """A child that was started: one that stands still has said what its parent waits for."""
        if plan.op == delegation.OPEN and isinstance(live.state, Parked):
            return [self._child_report(parent, child.run_id, live.state)]
        return NO_COMMANDS

    def _command_resident(
        self, parent: Aggregate, live: Aggregate, effect: EnsureChild, plan: Delegation, child: DelegatedChild
    ) -> Sequence[PendingDecision]:
        """What is wanted of a resident child that is live. Asked again it changes nothing."""
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
                # What could not be folded whole has no next event: it waits until it is released.
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
        """A child that is not live: over, or never begun. Raises Transient."""
        found = self._find_awaited_child(parent, effect, partition)
        if found is None:
            return NO_COMMANDS
        position = await self._locate(found[1].run_id, parent.tenant, partition)
        state, broken = None, ""
        try:
            state = await self._past.state(self._number, position) if position is not None else None
        except BrokenHistory as error:
            broken = f"what became of {found[1].run_id} cannot be read: {error}"
        found = self._find_awaited_child(parent, effect, partition)
        if found is None or found[1].run_id in partition.aggregates or self._is_ending(found[1].run_id):
            return NO_COMMANDS  # begun while it was looked for: its own end tells the parent
        wanted, child = found
        if state is None and not broken and self._has_ended(child.run_id):
            return await self._resolve_absent_child(parent, effect, partition)  # and over already
        if broken:
            return [self._child_refusal(parent, child, broken)]
        if state is None:
            if wanted.op in delegation.START_OPERATIONS:
                return await self._begin_child(parent, effect, wanted, child, partition)
            return [self._child_refusal(parent, child, UNKNOWN_CHILD.format(child.run_id))]
        theirs = state.facts.parent if isinstance(state, Ended) else None
        if theirs is None or theirs.run_id != parent.id:
            return [self._child_refusal(parent, child, UNKNOWN_CHILD.format(child.run_id))]
        return [self._child_report(parent, child.run_id, state)]

    def _notify_parent(self, aggregate: Aggregate, state: State, partition: Partition) -> Sequence[PendingDecision]:
        """How the run stands, to the run that started it; nothing when that is over."""
        parent = _require_facts(state).parent
        assert parent is not None
        live = partition.aggregates.get(parent.run_id)
        if live is None:
            return NO_COMMANDS
        if isinstance(state, Parked) and not isinstance(aggregate.state, Parked):
            return NO_COMMANDS  # meanwhile it goes on, and tells when it stands still again
        return [self._child_report(live, aggregate.id, state)]

    async def _ensure_parent(self, aggregate: Aggregate, partition: Partition) -> Sequence[PendingDecision]:
        """The end of a run that was left behind; otherwise what its parent wants of it and it may not have heard."""
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
                    wish = EnsureChild(
                        run_id=parent.id,
                        turn=parent.state.turn,
                        index=opened.index,
                        number=child.number,
                        is_new=False,
                    )
                    orders += await self._ensure_child(parent, wish, partition)
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
        """The end of a run whose parent is over."""
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
    """A child whose live parent does not wait for it any more, because that turn was stopped. A resident one lives
    between calls, once the call that opened it has told of it. What a parent wants that is not told whole here yet,
    nobody knows."""
    facts, state = _require_facts(child.state), parent.state
    if facts.parent is None or is_importing(state) or child.id in _require_facts(state).residents:
        return False
    opened = (
        find_call_of_turn(state, facts.parent.turn, facts.parent.index) if isinstance(state, AwaitingTools) else None
    )
    return opened is None


def _require_facts(state: Any) -> RunFacts:
    facts = getattr(state, "facts", None)
    assert isinstance(facts, RunFacts), f"a {type(state).__name__} has no kin"
    return facts
