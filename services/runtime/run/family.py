"""Run family for the generic loop: the three functions of services/core/run and a few names."""

from collections.abc import Hashable
from typing import Any

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
from loomlog.schemas.records import Record
from loomlog.services.core.canonical import StateCodec
from loomlog.services.core.run.commands import (
    FAILED,
    ApplyWidePauses,
    CallKey,
    CallsUnstarted,
    ImportCommand,
    ModelFailed,
    RecoverCommand,
    RunCommand,
    RunTimerFired,
    SummaryFailed,
    ToolCompleted,
    ToolReconciled,
)
from loomlog.services.core.run.conversation.conversation import build_conversation
from loomlog.services.core.run.decide import decide
from loomlog.services.core.run.evolve import REDUCER_VERSION, evolve
from loomlog.services.core.run.interrupts.tree_counts import count_in_root, counting_root, with_tree_totals
from loomlog.services.core.run.lifecycle.event_import import is_importing
from loomlog.services.core.run.lifecycle.fork import conversation_origin
from loomlog.services.core.run.lifecycle.timers import next_timer_at
from loomlog.services.core.run.react import (
    CallModel,
    CallTool,
    CancelChildren,
    Effect,
    EnsureChild,
    EnsureParent,
    NotifyParent,
    ReconcileTool,
    RelatedRunEffect,
    StopCalls,
    Summarise,
    pending_related_effects,
    react,
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
from loomlog.services.stream.family import Effects, Lineage

NO_USAGE = Usage()
RELATED_RUN_EFFECTS = (EnsureChild, NotifyParent, CancelChildren, EnsureParent)
"""Effects on related runs; a tuple, because a union type would be built at every check."""


class RunEffects(Effects):
    """The calls of runs."""

    react = staticmethod(react)

    def recover(
        self, at_ms: int, still_running: frozenset[Hashable], standing: ApplyWidePauses | None = None
    ) -> RecoverCommand:
        keys: frozenset[CallKey] = frozenset(key for key in still_running if isinstance(key, tuple))
        return RecoverCommand(at_ms=at_ms, still_running=keys, wide_pauses=standing)

    def record_unstarted_calls(self, at_ms: int, keys: frozenset[Hashable]) -> CallsUnstarted:
        return CallsUnstarted(at_ms=at_ms, keys=frozenset(key for key in keys if isinstance(key, tuple)))

    def open_calls(self, state: State) -> frozenset[Hashable]:
        return frozenset(unknown_outcome.open_call_keys(state))

    def costly_call_keys(self, state: State) -> frozenset[Hashable]:
        return frozenset(unknown_outcome.costly_call_keys(state))

    def crashed(self, effect: Effect, error: str, at_ms: int) -> Any:
        match effect:
            case CallModel():
                return ModelFailed(
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
                return ToolCompleted(
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
                return ToolReconciled(
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
            case StopCalls() | EnsureChild() | NotifyParent() | CancelChildren() | EnsureParent():
                raise AssertionError(f"{type(effect).__name__} is not a call")

    def stops_calls(self, effect: Effect) -> bool:
        return isinstance(effect, StopCalls)


class RunLineage(Lineage):
    """Runs that continue a session, are forked or imported."""

    def with_history(self, aggregate: str, history: tuple[Message, ...] | None) -> Absent:
        return Absent(run_id=aggregate, history=history or ())

    def history(self, state: State) -> tuple[Message, ...]:
        return build_conversation(state)

    def origin(self, first_event: Event | None) -> RunPosition | ForkPoint | None:
        return conversation_origin(first_event)

    def event_times(self, order: RunCommand) -> tuple[int, ...]:
        return order.times if isinstance(order, ImportCommand) else ()


class RelatedRuns:
    """Effects on parents and children, and counts of roots (protocol loomlog.services.stream.family.LocalEffects)."""

    def is_local(self, effect: Effect) -> bool:
        return isinstance(effect, RELATED_RUN_EFFECTS)

    def pending_local_effects(self, state: State) -> tuple[RelatedRunEffect, ...]:
        return pending_related_effects(state)

    joined_aggregate = staticmethod(counting_root)
    with_joined = staticmethod(with_tree_totals)
    joined_event = staticmethod(count_in_root)


class RunFamily:
    """Protocol loomlog.services.stream.family.Family for runs."""

    name = "run"
    reducer_version = REDUCER_VERSION
    states = StateCodec(State)
    endings = frozenset(record.SCHEMA for record in (RunCompleted, RunFailed, RunCancelled, RunRefused))
    restatements: frozenset[str] = frozenset()
    effects = RunEffects()
    lineage = RunLineage()
    local = RelatedRuns()

    def absent(self, aggregate: str) -> Absent:
        return Absent(run_id=aggregate)

    def before(self, aggregate: str, seq: int) -> Absent:
        raise AssertionError("runs have no restatements")

    evolve = staticmethod(evolve)
    decide = staticmethod(decide)

    def next_timer_at(self, state: State) -> int:
        at_ms = next_timer_at(state)
        return 0 if at_ms and is_importing(state) else at_ms

    def timer_fired(self, at_ms: int) -> RunTimerFired:
        return RunTimerFired(at_ms=at_ms)

    def is_ended(self, state: State) -> bool:
        return isinstance(state, (Ended, Refused))

    def quarantined(self, state: State) -> str:
        # A run whose import is incomplete was quarantined in its original installation; its next part must be accepted.
        if isinstance(state, (AwaitingModel, AwaitingTools, Parked, Paused, Compacting, Ended)) and not is_importing(
            state
        ):
            return state.facts.quarantine_error
        return ""

    def quarantine(self, error: str, topic: str, offset: int) -> Record:
        return RunQuarantined(error=error, record_topic=topic, record_offset=offset)

    def traceparent(self, state: State) -> str:
        if isinstance(state, (AwaitingModel, AwaitingTools, Parked, Paused, Compacting, Ended)):
            return state.facts.traceparent
        return ""
