"""The state of a run after one more event: the fold, and the only way to a state.

One function for each event. Here are the table, the start and the end of a run; the rest is in
services/core/run/turns/evolve_model_calls.py, services/core/run/tools/evolve_tool_calls.py,
services/core/run/tools/evolve_waits.py (calls that wait for channels), services/core/run/interrupts/evolve_questions.py
(questions to people) and services/core/run/turns/evolve_boundaries.py (pauses and compactions between turns).

An event that cannot follow raises IllegalEvent: that is a bug or a damaged log, and quarantines one run.

Before: loomlog.schemas.reader gives accepted events. After: state.py, which decide and react read.
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
from loomlog.schemas.records import copy_as, replace
from loomlog.services.core.run.conversation.conversation import without_reasoning
from loomlog.services.core.run.conversation.prompt import cache_marks, first_message
from loomlog.services.core.run.interrupts.evolve_approvals import (
    apply_approval_decided,
    apply_approval_escalated,
    apply_approval_given,
)
from loomlog.services.core.run.interrupts.evolve_questions import (
    apply_person_notified,
    apply_question_closed,
    apply_question_opened,
)
from loomlog.services.core.run.interrupts.tree_counts import with_changes
from loomlog.services.core.run.run_facts import (
    EMPTY_GAUGE,
    NO_LOSSES,
    ContextGauge,
    Pause,
    RunFacts,
    deadline,
    import_identity,
    with_input,
    without_resident,
)
from loomlog.services.core.run.state import (
    Absent,
    AwaitingModel,
    AwaitingTools,
    Compacting,
    Ended,
    IllegalEvent,
    Parked,
    Refused,
    State,
    require_facts,
    with_facts,
)
from loomlog.services.core.run.tools.evolve_tool_calls import (
    apply_child_event,
    apply_hook_acted,
    apply_outcome_asked,
    apply_reconcile_requested,
    apply_tool_requested,
    apply_tool_returned,
    with_open_call,
)
from loomlog.services.core.run.tools.evolve_waits import apply_call_waiting, apply_wait_reported
from loomlog.services.core.run.turns.evolve_boundaries import (
    apply_compaction_ended,
    apply_compaction_requested,
    apply_pause_requested,
    apply_paused,
    apply_resumed,
    check_not_compacting,
)
from loomlog.services.core.run.turns.evolve_model_calls import (
    apply_model_failed,
    apply_model_replied,
    apply_model_requested,
    apply_model_switched,
    apply_output_rejected,
    apply_turn_cancelled,
    require_failed_attempt,
)

REDUCER_VERSION = 19
"""Raise it whenever the same events fold to another state; older snapshots are then ignored."""


def evolve(state: State, event: Event, at_ms: int) -> State:
    """Return the state after the event, which was decided at `at_ms`. Raises IllegalEvent if it cannot follow."""
    match event:  # the most frequent events first: each case before the right one costs 0.04 us
        case ModelCallRequested():
            return apply_model_requested(state, event, at_ms)
        case ModelReplied():
            return apply_model_replied(state, event)
        case ToolCallRequested():
            return apply_tool_requested(state, event, at_ms)
        case ToolReturned():
            return apply_tool_returned(state, event, at_ms)
        case RunStarted():
            return _apply_run_started(state, event, at_ms)
        case RunCompleted(stop_reason=reason):
            return _apply_run_ended(state, event, "completed", reason)
        case RunRefused(code=code, message=message):
            if not isinstance(state, Absent):
                raise IllegalEvent(f"RunRefused on a run that is {type(state).__name__}")
            return Refused(code=code, message=message)
        case ModelCallFailed():
            return apply_model_failed(state, event)
        case ModelSwitched():
            return apply_model_switched(state, event)
        case OutputRejected():
            return apply_output_rejected(state, event)
        case FallbackSuppressed():
            return require_failed_attempt(state, event)
        case ToolReconcileRequested():
            return apply_reconcile_requested(state, event, at_ms)
        case ToolOutcomeAsked():
            return apply_outcome_asked(state, event, at_ms)
        case CallNotBegun():
            return apply_call_not_begun(state, event)
        case HookActed():
            return apply_hook_acted(state, event)
        case InterruptionOpened():
            return apply_question_opened(state, event, at_ms)
        case InterruptionClosed():
            return apply_question_closed(state, event, at_ms)
        case ApprovalDecided():
            return apply_approval_decided(state, event)
        case ApprovalGiven():
            return apply_approval_given(state, event)
        case ApprovalEscalated():
            return apply_approval_escalated(state, event)
        case TurnCancelled():
            return apply_turn_cancelled(state, event)
        case CallWaiting():
            return apply_call_waiting(state, event, at_ms)
        case WaitReported():
            return apply_wait_reported(state, event)
        case ChildrenPlanned() | ChildRequested() | ChildReturned():
            return apply_child_event(state, event, at_ms)
        case ResidentLeft():
            return with_facts(state, without_resident(require_facts(state, event), event.child_run_id))
        case RunParked():
            check_not_compacting(state, event)
            return Parked(facts=require_facts(state, event), since_ms=at_ms)
        case RunPauseRequested(scope=scope, reason=reason, by=by):
            return apply_pause_requested(state, event, Pause(scope=scope, reason=reason, by=by))
        case RunPaused():
            return apply_paused(state, event, at_ms)
        case RunResumed():
            return apply_resumed(state, event)
        case CompactionRequested():
            return apply_compaction_requested(state, event, at_ms)
        case ContextCompacted() | CompactionFailed():
            return apply_compaction_ended(state, event)
        case InputReceived():
            return with_facts(state, with_input(require_facts(state, event), event))
        case RunFailed(error=error):
            return _apply_run_ended(state, event, "failed", error)
        case RunCancelled(reason=reason):
            return _apply_run_ended(state, event, "cancelled", reason)
        case RunRestored():
            return _apply_run_restored(state, event, at_ms)
        case RunQuarantined(error=error):
            return with_facts(state, replace(require_facts(state, event), quarantine_error=error))
        case RunReleased():
            return with_facts(state, replace(require_facts(state, event), quarantine_error="", losses=NO_LOSSES))
        case PersonNotified():
            return apply_person_notified(state, event)
        case TreeCounted(changes=changes, spent_micros=spent_micros):
            return with_facts(state, with_changes(require_facts(state, event), changes, spent_micros))
        case LimitReached(notice=notice):
            facts = require_facts(state, event)
            text = f"{notice.scope}/{notice.severity}"
            return with_facts(state, replace(facts, reported_limits=(*facts.reported_limits, text)))
        case CommandRefused():
            return state
        case _:
            assert_never(event)


def _apply_run_started(state: State, event: RunStarted, at_ms: int) -> AwaitingModel:
    if not isinstance(state, Absent):
        raise IllegalEvent(f"RunStarted on a run that is {type(state).__name__}")
    options = event.options
    memory = event.memory_context
    system, first = first_message(event.definition, event.segments, options.metadata, options.payload_metadata, memory)
    # Another agent's model would refuse reasoning that it did not sign.
    history = tuple(map(without_reasoning, state.history)) if event.seed and event.forked_from else state.history
    facts = copy_as(
        RunFacts,
        event,
        run_id=state.run_id,
        system=system,
        cache_marks=cache_marks(event.definition, event.segments, memory),
        # A fork may have no text of its own: it answers the end of its prefix.
        messages=(*history, first) if first.blocks else history,
        started_at_ms=at_ms,
        inherited_messages=len(state.history),
        imported_events=0 if event.imported_from is None else event.imported_from.events,
        imported_as="" if event.imported_from is None else import_identity(event.imported_from),
        deadline_ms=deadline(options.run_timeout_s, at_ms),
        context=ContextGauge(tokens=event.context_tokens, messages=len(history))
        if event.context_tokens
        else EMPTY_GAUGE,
        # Later reads of the run see at least what its prompt says.
        positions=memory.positions if memory is not None and event.imported_from is None else (),
    )
    # No call is due yet: the intent follows in the same batch, and until then the turn is 0.
    return AwaitingModel(
        facts=facts,
        turn=0,
        attempt=0,
        provider=event.definition.provider,
        model=event.definition.model,
        not_before_ms=0,
    )


def apply_call_not_begun(state: State, event: CallNotBegun) -> AwaitingModel | AwaitingTools | Compacting:
    match state:
        case Compacting(number=event.turn, attempt=event.attempt) if event.kind == "compact":
            return replace(state, is_unstarted=True)
        case AwaitingModel(turn=event.turn, attempt=event.attempt) if event.kind == "model":
            return replace(state, is_unstarted=True)
        case AwaitingTools(turn=event.turn) if event.kind == "tool":
            for opened in state.open:
                if (opened.index, opened.attempt) == (event.index, event.attempt) and opened.wait is None:
                    return with_open_call(state, replace(opened, is_unstarted=True))
    raise IllegalEvent(f"attempt {event.attempt} of {event.kind} call {event.turn}.{event.index} is not open")


def _apply_run_restored(state: State, event: RunRestored, at_ms: int) -> State:
    facts = require_facts(state, event)
    if facts.imported_events != event.events:
        return state  # it continued elsewhere before, and that part is imported too
    # Its deadline starts over: the time in the file was not work.
    begins_anew = deadline(facts.options.run_timeout_s, at_ms)
    return with_facts(state, replace(facts, imported_events=0, imported_as="", deadline_ms=begins_anew))


def _apply_run_ended(state: State, event: Event, status: str, reason: str) -> Ended:
    facts = require_facts(state, event)
    # Once all results of a turn have returned they are in the conversation, and nothing has to be kept.
    if isinstance(state, AwaitingTools) and len(state.results) < len(state.requested_calls):
        return Ended(facts=facts, status=status, reason=reason, results=state.results)
    return Ended(facts=facts, status=status, reason=reason)
