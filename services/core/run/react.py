"""What the outside world must be asked now: an event on the state after it gives effects.

An effect names a call that is due; whoever carries it out reads the rest (conversation, definition) off the state.
React runs only after the event is in the log and known to be legal: intent before effect.
"""

from dataclasses import dataclass
from typing import assert_never

from schemas.quick import frozen_on_paper
from schemas.run_events import (
    CallNotBegun,
    CommandRefused,
    Event,
    InputReceived,
    InterruptionClosed,
    InterruptionOpened,
    ModelCallFailed,
    ModelCallRequested,
    ModelReplied,
    PersonNotified,
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
    TurnCancelled,
)
from services.core.run.importing import is_import
from services.core.run.orders import CallKey
from services.core.run.state import AwaitingModel, AwaitingTools, Ended, Parked, Paused, State


@frozen_on_paper
@dataclass(frozen=True, slots=True, kw_only=True)
class CallModel:
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


@frozen_on_paper
@dataclass(frozen=True, slots=True, kw_only=True)
class CallTool:
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


@frozen_on_paper
@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileTool:
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


@frozen_on_paper
@dataclass(frozen=True, slots=True, kw_only=True)
class StopCalls:
    """Whatever is under way for the run is of no use any more."""

    run_id: str


Effect = CallModel | CallTool | ReconcileTool | StopCalls


def react(state: State, event: Event) -> tuple[Effect, ...]:
    """The effects of an event; `state` is the state after it. What is only told again has none."""
    if is_import(state):
        return ()
    match event:
        case ModelCallRequested():
            assert isinstance(state, AwaitingModel)
            return (_call_model(state),)
        case ToolCallRequested(index=index):
            assert isinstance(state, AwaitingTools)
            return (_call_tool(state, index),)
        case ToolReconcileRequested():
            assert isinstance(state, AwaitingTools)
            return (_reconcile(state, event),)
        case (
            ModelReplied()
            | ToolReturned()
            | RunStarted()
            | RunCompleted()
            | RunRefused()
            | ModelCallFailed()
            | RunParked()
            | RunPauseRequested()
            | RunPaused()
            | RunResumed()
            | RunRestored()
            | RunReleased()
            | InputReceived()
            | CommandRefused()
            | ToolOutcomeAsked()
            | CallNotBegun()
            | InterruptionOpened()
            | InterruptionClosed()
            | PersonNotified()
        ):
            return ()
        case RunCancelled() | RunFailed():
            assert isinstance(state, Ended)
            return (StopCalls(run_id=state.facts.run_id),)
        case TurnCancelled():
            assert isinstance(state, AwaitingTools)
            return (StopCalls(run_id=state.facts.run_id),)
        case RunQuarantined():
            assert isinstance(state, AwaitingModel | AwaitingTools | Parked | Paused | Ended)
            return (StopCalls(run_id=state.facts.run_id),)
        case _:
            assert_never(event)


def _call_model(state: AwaitingModel) -> CallModel:
    return CallModel(
        run_id=state.facts.run_id,
        turn=state.turn,
        attempt=state.attempt,
        provider=state.provider,
        model=state.model,
        not_before_ms=state.not_before_ms,
    )


def _call_tool(state: AwaitingTools, index: int) -> CallTool:
    opened = next(call for call in state.open if call.index == index)
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
