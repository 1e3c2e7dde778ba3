"""State after an event of a tool call, or of the children it waits for.

The results of a turn are added to the conversation together, in the order of the model's calls, once the last one is
in.

Before: services/core/run/evolve.py. After: AwaitingTools with one open call less.
"""

from operator import attrgetter

from loomlog.schemas.conversation import Message
from loomlog.schemas.generated.run_events import (
    ChildrenPlanned,
    ChildRequested,
    ChildReturned,
    HookActed,
    ToolCallRequested,
    ToolOutcomeAsked,
    ToolReconcileRequested,
    ToolReturned,
)
from loomlog.schemas.records import replace
from loomlog.services.core.run.conversation.conversation import result_block
from loomlog.services.core.run.interrupts.evolve_approvals import require_permission
from loomlog.services.core.run.interrupts.evolve_questions import with_idle_time
from loomlog.services.core.run.run_facts import Losses, with_details, without_resident
from loomlog.services.core.run.state import (
    CALL_CANCELLED,
    OUTCOME_UNKNOWN,
    REPORTED_BY_TOOL,
    AwaitingTools,
    CallResult,
    IllegalEvent,
    OpenCall,
    State,
    find_open_call,
)
from loomlog.services.core.run.subagents import delegation

_by_index = attrgetter("index")


def apply_tool_requested(state: State, event: ToolCallRequested, at_ms: int) -> AwaitingTools:
    if (
        not isinstance(state, AwaitingTools)
        or state.turn != event.turn
        or not 0 <= event.index < len(state.requested_calls)
    ):
        raise IllegalEvent(f"a tool call {event.index} of turn {event.turn} that the model did not ask for")
    if event.index in [answer.index for answer in state.results]:
        raise IllegalEvent(f"tool call {event.index} of turn {event.turn} is asked for again after its result")
    require_permission(state, event.turn, event.index)
    call = state.requested_calls[event.index]
    kept = [item for item in state.open if item.index != event.index]
    before = find_open_call(state, event.index)
    if before is not None:
        state = _with_owner_loss(state, event.index, at_ms)
    opened = OpenCall(
        index=event.index,
        call=call,
        attempt=event.attempt,
        effect_class=event.effect_class,
        reconcilable=event.reconcilable,
        reconcile_attempts=before.reconcile_attempts if before is not None else 0,
        delegation=before.delegation if before is not None else None,
        answers=before.answers if before is not None else (),
    )
    return with_idle_time(replace(state, open=(*kept, opened)), at_ms)


def apply_reconcile_requested(state: State, event: ToolReconcileRequested, at_ms: int) -> AwaitingTools:
    awaiting, opened = _count_lost_attempt(state, event, at_ms)
    if event.ask != opened.reconcile_attempts + 1:
        raise IllegalEvent(
            f"question {event.ask} about tool call {event.index} after question {opened.reconcile_attempts}"
        )
    return with_open_call(awaiting, replace(opened, reconcile_attempts=event.ask, is_reconciling=True))


def apply_outcome_asked(state: State, event: ToolOutcomeAsked, at_ms: int) -> AwaitingTools:
    awaiting, opened = _count_lost_attempt(state, event, at_ms)
    return with_idle_time(with_open_call(awaiting, replace(opened, is_reconciling=False, awaits_person=True)), at_ms)


def apply_hook_acted(state: State, event: HookActed) -> AwaitingTools:
    """Leave the state unchanged: the call is kept as the model wrote it, and its result comes after the hooks."""
    if isinstance(state, AwaitingTools) and (event.turn, event.index, event.attempt) in [
        (state.turn, opened.index, opened.attempt) for opened in state.open
    ]:
        return state
    raise IllegalEvent(f"HookActed: no attempt {event.attempt} of {event.turn}.{event.index} is open")


def apply_child_event(
    state: State, event: ChildrenPlanned | ChildRequested | ChildReturned, at_ms: int
) -> AwaitingTools:
    """Advance a call of the Agent tool."""
    opened = None
    if isinstance(state, AwaitingTools) and state.turn == event.turn:
        opened = next((call for call in state.open if call.index == event.index), None)
    if opened is None:
        raise IllegalEvent(f"{type(event).__name__}: the call {event.turn}.{event.index} is not open")
    assert isinstance(state, AwaitingTools)
    facts = state.facts
    if isinstance(event, ChildrenPlanned):
        if opened.delegation is not None or opened.wait is not None:
            raise IllegalEvent(f"the call {event.turn}.{event.index} is planned twice, or waits for channels")
        return with_open_call(state, replace(opened, delegation=delegation.begin_delegation(event, at_ms)))
    if opened.delegation is None:
        raise IllegalEvent(f"{type(event).__name__}: the call {event.turn}.{event.index} wants no children")
    try:
        if isinstance(event, ChildRequested):
            after = delegation.with_child_requested(opened.delegation, event)
        else:
            after = delegation.with_child_returned(opened.delegation, event)
    except KeyError as error:
        raise IllegalEvent(f"{type(event).__name__}: child {event.number} of {event.turn}.{event.index}") from error
    if isinstance(event, ChildRequested) and after.op in delegation.START_OPERATIONS and not event.only_look:
        residents = (*facts.residents, event.child_run_id) if after.op == delegation.OPEN else facts.residents
        facts = replace(facts, spawned=facts.spawned + 1, residents=residents)
    elif isinstance(event, ChildReturned) and _has_child_ended(after, event):
        facts = without_resident(facts, event.child_run_id)
    return with_open_call(replace(state, facts=facts), replace(opened, delegation=after))


def _has_child_ended(plan: delegation.Delegation, event: ChildReturned) -> bool:
    """Whether the child has ended. A refused text does not show it: the child may have too many to answer."""
    is_text_refused = plan.op == delegation.SEND and event.status == delegation.REFUSED
    return event.status in delegation.FINAL_STATUSES and not is_text_refused


def _count_lost_attempt(
    state: State, event: ToolReconcileRequested | ToolOutcomeAsked, at_ms: int
) -> tuple[AwaitingTools, OpenCall]:
    """Return the open call whose attempt was lost, and the state that counts it."""
    if isinstance(state, AwaitingTools) and state.turn == event.turn:
        for opened in state.open:
            if (opened.index, opened.attempt) == (event.index, event.attempt) and opened.wait is None:
                return _with_owner_loss(state, opened.index, at_ms), opened
    raise IllegalEvent(f"{type(event).__name__}: no attempt {event.attempt} of {event.turn}.{event.index} is open")


def _with_owner_loss(state: AwaitingTools, index: int, at_ms: int) -> AwaitingTools:
    """Count a lost owner if that call was under way, and not being reconciled, waiting or unstarted."""
    facts = state.facts
    opened = next((call for call in state.open if call.index == index), None)
    if (
        opened is None
        or opened.is_reconciling
        or opened.awaits_person
        or opened.is_unstarted
        or opened.wait is not None
        or facts.losses.at_ms == at_ms
    ):
        return state
    return replace(state, facts=replace(facts, losses=Losses(count=facts.losses.count + 1, at_ms=at_ms)))


def _drop_unopened_resident(state: AwaitingTools, index: int) -> AwaitingTools:
    """Remove the resident that a stopped call was to open: its id was never returned, so it is abandoned."""
    opened = find_open_call(state, index)
    plan = opened.delegation if opened is not None else None
    if plan is None or plan.op != delegation.OPEN:
        return state
    return replace(state, facts=without_resident(state.facts, plan.children[0].run_id))


def with_open_call(state: AwaitingTools, opened: OpenCall) -> AwaitingTools:
    return replace(state, open=(*(item for item in state.open if item.index != opened.index), opened))


def apply_tool_returned(state: State, event: ToolReturned, at_ms: int) -> AwaitingTools:
    if (
        not isinstance(state, AwaitingTools)
        or state.turn != event.turn
        or not 0 <= event.index < len(state.requested_calls)
    ):
        raise IllegalEvent(f"a result of tool call {event.index} of turn {event.turn} that is not awaited")
    if event.index in [answer.index for answer in state.results]:
        raise IllegalEvent(f"a second result of tool call {event.index} of turn {event.turn}")
    if event.index in [question.index for question in state.questions]:
        raise IllegalEvent(f"a result of tool call {event.index} of turn {event.turn}, whose question still waits")
    if event.outcome == OUTCOME_UNKNOWN and event.settled_by != REPORTED_BY_TOOL:
        state = _with_owner_loss(state, event.index, at_ms)
    if event.outcome == CALL_CANCELLED:
        state = _drop_unopened_resident(state, event.index)
    if event.details is not None:
        state = replace(state, facts=with_details(state.facts, event.details))
    answer = CallResult(
        index=event.index,
        call=state.requested_calls[event.index],
        text=event.text,
        blob=event.text_blob,
        is_error=event.is_error,
        whole=event.whole_blob,
    )
    answers = (*state.results, answer)
    open_calls = tuple([item for item in state.open if item.index != event.index])
    is_last = len(answers) == len(state.requested_calls)
    if not is_last or state.idle_since_ms:
        state = with_idle_time(replace(state, open=open_calls, results=answers), at_ms)
    if not is_last:
        return state
    results = tuple([result_block(a) for a in sorted(answers, key=_by_index)])
    facts = replace(state.facts, messages=(*state.facts.messages, Message(role="user", blocks=results)))
    return replace(state, facts=facts, open=(), results=answers)
