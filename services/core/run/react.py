"""The calls that are due: an event on the state after it gives effects.

An effect names a call that is due; its executor reads the rest (conversation, definition) from the state. React runs
only after the event is in the log and known to be accepted: intent before effect.
"""

from typing import assert_never

from loomlog.schemas.generated.run_events import (
    ApprovalDecided,
    ApprovalEscalated,
    ApprovalGiven,
    CallNotBegun,
    CallWaiting,
    ChildrenPlanned,
    ChildRequested,
    ChildReturned,
    CommandRefused,
    CompactionFailed,
    CompactionRequested,
    ContextCompacted,
    Event,
    FallbackSuppressed,
    HookActed,
    InputReceived,
    InterruptionClosed,
    InterruptionOpened,
    LimitReached,
    ModelCallFailed,
    ModelCallRequested,
    ModelReplied,
    ModelSwitched,
    OutputRejected,
    PersonNotified,
    ResidentLeft,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunParked,
    RunPaused,
    RunPauseRequested,
    RunQuarantined,
    RunRefused,
    RunReleased,
    RunRestored,
    RunResumed,
    RunStarted,
    ToolCallRequested,
    ToolOutcomeAsked,
    ToolReconcileRequested,
    ToolReturned,
    TreeCounted,
    TurnCancelled,
    WaitReported,
)
from loomlog.schemas.records import Value
from loomlog.services.core.run.commands import CallKey
from loomlog.services.core.run.lifecycle.event_import import is_importing
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import (
    AwaitingModel,
    AwaitingTools,
    Compacting,
    Ended,
    Parked,
    Paused,
    State,
    find_open_call,
)
from loomlog.services.core.run.subagents.delegation import is_complete, needs_gathering, running_children

LIVE_STATES = (AwaitingModel, AwaitingTools, Parked, Paused, Compacting)
"""A tuple, because a union is built again at every access."""


class CallModel(Value, frozen=True, kw_only=True):
    """A model turn is due, not before `not_before_ms` (UTC milliseconds, 0 = now)."""

    run_id: str
    turn: int
    attempt: int
    provider: str
    model: str
    not_before_ms: int

    @property
    def key(self) -> CallKey:
        return ("model", self.turn, 0, self.attempt)


class CallTool(Value, frozen=True, kw_only=True):
    """A tool call is due."""

    run_id: str
    turn: int
    index: int
    attempt: int
    call_id: str
    name: str
    input: str
    effect_class: str

    @property
    def key(self) -> CallKey:
        return ("tool", self.turn, self.index, self.attempt)


class ReconcileTool(Value, frozen=True, kw_only=True):
    """A tool is to be asked whether a lost call has happened, not before `not_before_ms` (UTC milliseconds, 0: now)."""

    run_id: str
    turn: int
    index: int
    attempt: int
    ask: int
    name: str
    input: str
    not_before_ms: int

    @property
    def key(self) -> CallKey:
        return ("reconcile", self.turn, self.index, self.ask)


class Summarise(Value, frozen=True, kw_only=True):
    """A summary of the conversation is due, before the turn `turn`."""

    run_id: str
    number: int
    turn: int
    attempt: int
    provider: str
    model: str

    @property
    def key(self) -> CallKey:
        return ("compact", self.number, 0, self.attempt)


class StopCalls(Value, frozen=True, kw_only=True):
    """Cancel all calls of the run."""

    run_id: str


class EnsureChild(Value, frozen=True, kw_only=True):
    """A child is awaited: start it, or send to it, unless that has happened. `is_new`: it certainly has not."""

    run_id: str
    turn: int
    index: int
    number: int
    is_new: bool


class NotifyParent(Value, frozen=True, kw_only=True):
    """Report the run's status to the call that started it or sent to it."""

    run_id: str


class CancelChildren(Value, frozen=True, kw_only=True):
    """Cancel children: all if the run has ended, or those that the calls of a cancelled turn started."""

    run_id: str


class EnsureParent(Value, frozen=True, kw_only=True):
    """A new owner has folded the run: it continues only if its parent does."""

    run_id: str


RelatedRunEffect = EnsureChild | NotifyParent | CancelChildren | EnsureParent
"""Effects that are commands to other runs of the same partition: not calls, so they need no keys and are never
cancelled.
"""
Effect = CallModel | CallTool | ReconcileTool | Summarise | StopCalls | RelatedRunEffect


def react(state: State, event: Event) -> tuple[Effect, ...]:
    """Return the effects of an event; `state` is the state after it. An import has none."""
    if is_importing(state):
        return ()
    match event:  # the most frequent events first, as in evolve
        case ModelCallRequested():
            assert isinstance(state, AwaitingModel)
            return (_call_model(state),)
        case ToolCallRequested(index=index):
            assert isinstance(state, AwaitingTools)
            return (_call_tool(state, index),)
        case ModelReplied() | ToolReturned() | RunStarted():
            return ()
        case RunCompleted():
            assert isinstance(state, Ended)
            return _end_related_runs(state.facts)
        case ToolReconcileRequested():
            assert isinstance(state, AwaitingTools)
            return (_reconcile(state, event),)
        case CompactionRequested():
            assert isinstance(state, Compacting)
            return (_summarise(state),)
        case (
            RunRefused()
            | ModelCallFailed()
            | ModelSwitched()
            | FallbackSuppressed()
            | OutputRejected()
            | RunPauseRequested()
            | RunPaused()
            | RunResumed()
            | InputReceived()
            | LimitReached()
            | CommandRefused()
            | ToolOutcomeAsked()
            | CallNotBegun()
            | CallWaiting()
            | WaitReported()
            | HookActed()
            | ApprovalDecided()
            | ApprovalGiven()
            | ApprovalEscalated()
            | TreeCounted()
            | InterruptionOpened()
            | InterruptionClosed()
            | PersonNotified()
            | ChildrenPlanned()
            | ResidentLeft()
            | ContextCompacted()
            | CompactionFailed()
        ):
            return ()
        case ChildRequested():
            return (_ensure_child(event, state),)
        case ChildReturned(index=index):
            assert isinstance(state, AwaitingTools)
            return _gather_results(state, index)
        case RunParked():
            assert isinstance(state, Parked)
            parent = state.facts.parent
            return (NotifyParent(run_id=state.facts.run_id),) if parent is not None and parent.is_resident else ()
        case RunRestored():
            # Its parent is restored after it.
            return tuple([kin for kin in pending_related_effects(state) if not isinstance(kin, EnsureParent)])
        case RunReleased():
            return pending_related_effects(state)
        case RunCancelled() | RunFailed():
            assert isinstance(state, Ended)
            return (StopCalls(run_id=state.facts.run_id), *_end_related_runs(state.facts))
        case TurnCancelled():
            assert isinstance(state, AwaitingTools)
            stopped = StopCalls(run_id=state.facts.run_id)
            return (stopped, CancelChildren(run_id=stopped.run_id)) if state.facts.spawned else (stopped,)
        case RunQuarantined():
            assert isinstance(state, AwaitingModel | AwaitingTools | Parked | Paused | Compacting | Ended)
            return (StopCalls(run_id=state.facts.run_id),)
        case _:
            assert_never(event)


def pending_related_effects(state: State) -> tuple[RelatedRunEffect, ...]:
    """Return the related-run effects of a state whose execution is unknown: after a takeover, and after a time in which
    the run received nothing.
    """
    if not isinstance(state, LIVE_STATES) or is_importing(state):
        return ()
    facts = state.facts
    effects: list[RelatedRunEffect] = [EnsureParent(run_id=facts.run_id)] if facts.parent is not None else []
    if isinstance(state, AwaitingTools):
        for opened in state.open:
            if opened.delegation is not None:
                effects += (
                    EnsureChild(
                        run_id=facts.run_id, turn=state.turn, index=opened.index, number=child.number, is_new=False
                    )
                    for child in running_children(opened.delegation)
                )
    return tuple(effects)


def _ensure_child(event: ChildRequested, state: State) -> EnsureChild:
    assert isinstance(state, AwaitingTools)
    return EnsureChild(
        run_id=state.facts.run_id, turn=event.turn, index=event.index, number=event.number, is_new=not event.only_look
    )


def _gather_results(state: AwaitingTools, index: int) -> tuple[CallTool, ...]:
    """Fetch the results once the children have ended."""
    opened = next(call for call in state.open if call.index == index)
    delegation = opened.delegation
    assert delegation is not None
    return (_call_tool(state, index),) if is_complete(delegation) and needs_gathering(delegation) else ()


def _end_related_runs(facts: RunFacts) -> tuple[RelatedRunEffect, ...]:
    """Notify the parent, which waits for it, and cancel its own children."""
    children = (CancelChildren(run_id=facts.run_id),) if facts.spawned else ()
    return (*children, NotifyParent(run_id=facts.run_id)) if facts.parent is not None else children


def _call_model(state: AwaitingModel) -> CallModel:
    return CallModel(
        run_id=state.facts.run_id,
        turn=state.turn,
        attempt=state.attempt,
        provider=state.provider,
        model=state.model,
        not_before_ms=state.not_before_ms,
    )


def _summarise(state: Compacting) -> Summarise:
    return Summarise(
        run_id=state.facts.run_id,
        number=state.number,
        turn=state.facts.turns + 1,
        attempt=state.attempt,
        provider=state.provider,
        model=state.model,
    )


def _call_tool(state: AwaitingTools, index: int) -> CallTool:
    opened = find_open_call(state, index)
    assert opened is not None
    return CallTool(
        run_id=state.facts.run_id,
        turn=state.turn,
        index=index,
        attempt=opened.attempt,
        call_id=opened.call.id,
        name=opened.call.name,
        input=opened.call.input,
        effect_class=opened.effect_class,
    )


def _reconcile(state: AwaitingTools, event: ToolReconcileRequested) -> ReconcileTool:
    opened = next(call for call in state.open if call.index == event.index)
    return ReconcileTool(
        run_id=state.facts.run_id,
        turn=state.turn,
        index=event.index,
        attempt=opened.attempt,
        ask=event.ask,
        name=opened.call.name,
        input=opened.call.input,
        not_before_ms=event.not_before_ms,
    )
