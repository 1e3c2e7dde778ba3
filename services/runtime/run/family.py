"""The run family as the generic loop sees it: the three functions of services/core/run and a few names."""

from collections.abc import Hashable
from typing import Any

from loomlog.schemas.codec import Record
from loomlog.schemas.conversation import Message
from loomlog.schemas.generated.run_events import (
    Event,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunQuarantined,
    RunRefused,
)
from loomlog.schemas.generated.values import ForkPoint, RunPosition, Usage
from loomlog.services.core.canonical import StateCodec
from loomlog.services.core.run.commands import (
    FAILED,
    CallKey,
    Import,
    ModelErred,
    NotBegun,
    Obey,
    Order,
    Reconciled,
    Recover,
    SummaryFailed,
    ToolDone,
    Woken,
)
from loomlog.services.core.run.conversation.conversation import conversation
from loomlog.services.core.run.decide import decide
from loomlog.services.core.run.evolve import REDUCER_VERSION, evolve
from loomlog.services.core.run.lifecycle.event_import import is_import
from loomlog.services.core.run.lifecycle.fork import origin_of
from loomlog.services.core.run.lifecycle.timers import wakes_at
from loomlog.services.core.run.react import (
    CallModel,
    CallTool,
    Effect,
    EndChildren,
    Kin,
    ReconcileTool,
    SeeToChild,
    SeeToParent,
    StopCalls,
    Summarise,
    TellParent,
    react,
    unsettled,
)
from loomlog.services.core.run.state import (
    Absent,
    AwaitingModel,
    AwaitingTools,
    Compacting,
    Ended,
    Parked,
    Paused,
    Refused,
    State,
)
from loomlog.services.core.run.tools import unknown_outcome

NO_USAGE = Usage()
KIN = (SeeToChild, TellParent, EndChildren, SeeToParent)
"""A tuple, because a union is made anew at every look."""


class RunFamily:
    """Protocol loomlog.services.stream.family.Family for runs."""

    name = "run"
    reducer_version = REDUCER_VERSION
    states = StateCodec(State)
    endings = frozenset(record.SCHEMA for record in (RunCompleted, RunFailed, RunCancelled, RunRefused))

    def absent(self, aggregate: str, history: tuple[Message, ...] | None) -> Absent:
        return Absent(run_id=aggregate, history=history or ())

    def history(self, state: State) -> tuple[Message, ...]:
        return conversation(state)

    def origin(self, first_event: Event | None) -> RunPosition | ForkPoint | None:
        return origin_of(first_event)

    evolve = staticmethod(evolve)
    decide = staticmethod(decide)

    def times(self, order: Order) -> tuple[int, ...]:
        return order.times if isinstance(order, Import) else ()

    react = staticmethod(react)

    def recover(self, at_ms: int, still_running: frozenset[Hashable], standing: Obey | None = None) -> Recover:
        keys: frozenset[CallKey] = frozenset(key for key in still_running if isinstance(key, tuple))
        return Recover(at_ms=at_ms, still_running=keys, obey=standing)

    def not_begun(self, at_ms: int, keys: frozenset[Hashable]) -> NotBegun:
        return NotBegun(at_ms=at_ms, keys=frozenset(key for key in keys if isinstance(key, tuple)))

    def wakes_at(self, state: State) -> int:
        at_ms = wakes_at(state)
        return 0 if at_ms and is_import(state) else at_ms

    def woken(self, at_ms: int) -> Woken:
        return Woken(at_ms=at_ms)

    def open_calls(self, state: State) -> frozenset[Hashable]:
        return frozenset(unknown_outcome.open_keys(state))

    def worth_waiting_for(self, state: State) -> frozenset[Hashable]:
        return frozenset(unknown_outcome.keys_worth_waiting_for(state))

    def is_over(self, state: State) -> bool:
        return isinstance(state, (Ended, Refused))

    def quarantined(self, state: State) -> str:
        # One that is only told here was quarantined where it happened; its next part must be heard.
        if isinstance(state, (AwaitingModel, AwaitingTools, Parked, Paused, Compacting, Ended)) and not is_import(
            state
        ):
            return state.facts.quarantined
        return ""

    def crashed(self, effect: Effect, error: str, at_ms: int) -> Any:
        match effect:
            case CallModel():
                return ModelErred(
                    at_ms=at_ms,
                    turn=effect.turn,
                    attempt=effect.attempt,
                    kind="invalid",
                    transient=False,
                    message=f"the model call crashed in loomlog: {error}",
                    retry_after_ms=0,
                    retries_rate_limits=False,
                    duration_ms=0,
                )
            case CallTool():
                return ToolDone(
                    at_ms=at_ms,
                    turn=effect.turn,
                    index=effect.index,
                    attempt=effect.attempt,
                    text=f"the tool {effect.name} crashed: {error}",
                    text_blob=None,
                    is_error=True,
                    outcome="error",
                    duration_ms=0,
                )
            case ReconcileTool():
                return Reconciled(
                    at_ms=at_ms,
                    turn=effect.turn,
                    index=effect.index,
                    attempt=effect.attempt,
                    ask=effect.ask,
                    verdict=FAILED,
                    text=f"asking the tool {effect.name} crashed: {error}",
                )
            case Summarise():
                return SummaryFailed(
                    at_ms=at_ms,
                    number=effect.number,
                    attempt=effect.attempt,
                    kind="invalid",
                    message=f"the summary call crashed in loomlog: {error}",
                    duration_ms=0,
                )
            case StopCalls() | SeeToChild() | TellParent() | EndChildren() | SeeToParent():
                raise AssertionError(f"{type(effect).__name__} is not a call")

    def stops(self, effect: Effect) -> bool:
        return isinstance(effect, StopCalls)

    def is_local(self, effect: Effect) -> bool:
        return isinstance(effect, KIN)

    def unsettled(self, state: State) -> tuple[Kin, ...]:
        return unsettled(state)

    def quarantine(self, error: str, topic: str, offset: int) -> Record:
        return RunQuarantined(error=error, record_topic=topic, record_offset=offset)

    def traceparent(self, state: State) -> str:
        if isinstance(state, (AwaitingModel, AwaitingTools, Parked, Paused, Compacting, Ended)):
            return state.facts.traceparent
        return ""
