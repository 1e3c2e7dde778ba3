"""What is true after an event of a tool call, or of the children it waits for.

A turn's results join the conversation together, in the order in which the model asked, once the last one is in.

Before: evolve.py. After: AwaitingTools with one call less open.
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
from loomlog.schemas.making import maker
from loomlog.services.core.changing import changed
from loomlog.services.core.run.conversation.conversation import result_block
from loomlog.services.core.run.interrupts.evolve_questions import looked_at
from loomlog.services.core.run.run_facts import Losses, wishing, without_resident
from loomlog.services.core.run.state import (
    OUTCOME_UNKNOWN,
    STOPPED,
    TOLD_BY_TOOL,
    Answer,
    AwaitingTools,
    IllegalEvent,
    OpenCall,
    State,
    open_at,
)
from loomlog.services.core.run.subagents import delegation

# Made for every call; see schemas/making.py.
_open_call, _answer, _message = maker(OpenCall), maker(Answer), maker(Message)
_by_index = attrgetter("index")


def tool_requested(state: State, event: ToolCallRequested, at_ms: int) -> AwaitingTools:
    if not isinstance(state, AwaitingTools) or state.turn != event.turn or not 0 <= event.index < len(state.asked):
        raise IllegalEvent(f"a tool call {event.index} of turn {event.turn} that the model did not ask for")
    if event.index in [answer.index for answer in state.answers]:
        raise IllegalEvent(f"tool call {event.index} of turn {event.turn} is asked for again after its result")
    call = state.asked[event.index]
    kept = [item for item in state.open if item.index != event.index]
    before = open_at(state, event.index)
    if before is not None:
        state = _with_loss(state, event.index, at_ms)
    opened = _open_call(
        index=event.index,
        call=call,
        attempt=event.attempt,
        effect_class=event.effect_class,
        reconcilable=event.reconcilable,
        asks=before.asks if before is not None else 0,
        delegation=before.delegation if before is not None else None,
    )
    return looked_at(changed(state, open=(*kept, opened)), at_ms)


def reconcile_requested(state: State, event: ToolReconcileRequested, at_ms: int) -> AwaitingTools:
    awaiting, opened = _lost(state, event, at_ms)
    if event.ask != opened.asks + 1:
        raise IllegalEvent(f"question {event.ask} about tool call {event.index} after question {opened.asks}")
    return replaced(awaiting, changed(opened, asks=event.ask, is_asking=True))


def outcome_asked(state: State, event: ToolOutcomeAsked, at_ms: int) -> AwaitingTools:
    awaiting, opened = _lost(state, event, at_ms)
    return looked_at(replaced(awaiting, changed(opened, is_asking=False, is_waiting=True)), at_ms)


def hook_acted(state: State, event: HookActed) -> AwaitingTools:
    """Nothing changes: the call is kept as the model wrote it, and its result comes after the hooks."""
    if isinstance(state, AwaitingTools) and (event.turn, event.index, event.attempt) in [
        (state.turn, opened.index, opened.attempt) for opened in state.open
    ]:
        return state
    raise IllegalEvent(f"HookActed: no attempt {event.attempt} of {event.turn}.{event.index} is open")


def delegated(state: State, event: ChildrenPlanned | ChildRequested | ChildReturned, at_ms: int) -> AwaitingTools:
    """A call of the Agent tool goes on."""
    opened = None
    if isinstance(state, AwaitingTools) and state.turn == event.turn:
        opened = next((call for call in state.open if call.index == event.index), None)
    if opened is None:
        raise IllegalEvent(f"{type(event).__name__}: the call {event.turn}.{event.index} is not open")
    assert isinstance(state, AwaitingTools)
    facts = state.facts
    if isinstance(event, ChildrenPlanned):
        if opened.delegation is not None:
            raise IllegalEvent(f"the call {event.turn}.{event.index} is planned twice")
        return replaced(state, changed(opened, delegation=delegation.planned(event, at_ms)))
    if opened.delegation is None:
        raise IllegalEvent(f"{type(event).__name__}: the call {event.turn}.{event.index} wants no children")
    try:
        if isinstance(event, ChildRequested):
            after = delegation.requested(opened.delegation, event)
        else:
            after = delegation.returned(opened.delegation, event)
    except KeyError as error:
        raise IllegalEvent(f"{type(event).__name__}: child {event.number} of {event.turn}.{event.index}") from error
    if isinstance(event, ChildRequested) and after.op in delegation.STARTING and not event.only_look:
        residents = (*facts.residents, event.child_run_id) if after.op == delegation.OPEN else facts.residents
        facts = changed(facts, spawned=facts.spawned + 1, residents=residents)
    elif isinstance(event, ChildReturned) and _is_over(after, event):
        facts = without_resident(facts, event.child_run_id)
    return replaced(changed(state, facts=facts), changed(opened, delegation=after))


def _is_over(wanted: delegation.Delegation, event: ChildReturned) -> bool:
    """A text that is refused says nothing of the child: it may have too many to answer."""
    is_text_refused = wanted.op == delegation.SEND and event.status == delegation.REFUSED
    return event.status in delegation.OVER and not is_text_refused


def _lost(state: State, event: ToolReconcileRequested | ToolOutcomeAsked, at_ms: int) -> tuple[AwaitingTools, OpenCall]:
    """The open call whose attempt was lost, and the state that counts it."""
    if isinstance(state, AwaitingTools) and state.turn == event.turn:
        for opened in state.open:
            if (opened.index, opened.attempt) == (event.index, event.attempt):
                return _with_loss(state, opened.index, at_ms), opened
    raise IllegalEvent(f"{type(event).__name__}: no attempt {event.attempt} of {event.turn}.{event.index} is open")


def _with_loss(state: AwaitingTools, index: int, at_ms: int) -> AwaitingTools:
    """Its owner is counted as lost when that call was under way, and not asked about, waiting or not begun."""
    facts = state.facts
    opened = next((call for call in state.open if call.index == index), None)
    if opened is None or opened.is_asking or opened.is_waiting or opened.not_begun or facts.losses.at_ms == at_ms:
        return state
    return changed(state, facts=changed(facts, losses=Losses(count=facts.losses.count + 1, at_ms=at_ms)))


def _without_opened(state: AwaitingTools, index: int) -> AwaitingTools:
    """A stopped call has told nobody of the child it was to open: that one is no resident, it is left behind."""
    opened = open_at(state, index)
    wanted = opened.delegation if opened is not None else None
    if wanted is None or wanted.op != delegation.OPEN:
        return state
    return changed(state, facts=without_resident(state.facts, wanted.children[0].run_id))


def replaced(state: AwaitingTools, opened: OpenCall) -> AwaitingTools:
    return changed(state, open=(*(item for item in state.open if item.index != opened.index), opened))


def tool_returned(state: State, event: ToolReturned, at_ms: int) -> AwaitingTools:
    if not isinstance(state, AwaitingTools) or state.turn != event.turn or not 0 <= event.index < len(state.asked):
        raise IllegalEvent(f"a result of tool call {event.index} of turn {event.turn} that is not awaited")
    if event.index in [answer.index for answer in state.answers]:
        raise IllegalEvent(f"a second result of tool call {event.index} of turn {event.turn}")
    if event.index in [question.index for question in state.questions]:
        raise IllegalEvent(f"a result of tool call {event.index} of turn {event.turn}, whose question still waits")
    if event.outcome == OUTCOME_UNKNOWN and event.settled_by != TOLD_BY_TOOL:
        state = _with_loss(state, event.index, at_ms)
    if event.outcome == STOPPED:
        state = _without_opened(state, event.index)
    if event.asks_compaction:
        state = changed(state, facts=wishing(state.facts, is_wished=True))
    answer = _answer(
        index=event.index,
        call=state.asked[event.index],
        text=event.text,
        blob=event.text_blob,
        is_error=event.is_error,
    )
    answers = (*state.answers, answer)
    open_calls = tuple([item for item in state.open if item.index != event.index])
    is_last = len(answers) == len(state.asked)
    if not is_last or state.idle_since_ms:
        state = looked_at(changed(state, open=open_calls, answers=answers), at_ms)
    if not is_last:
        return state
    results = tuple([result_block(a) for a in sorted(answers, key=_by_index)])
    facts = changed(state.facts, messages=(*state.facts.messages, _message(role="user", blocks=results)))
    return changed(state, facts=facts, open=(), answers=answers)
