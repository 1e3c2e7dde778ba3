"""Mapping from a run's events to the frames that clients see; the only one.

The API uses it for the live stream and the projector for the stored transcript, so that a replay shows what was
streamed. It is pure: what a frame needs of earlier events (the name of the tool a result belongs to, the model that
answered) is in a FrameMemory, which projections/transcript.py can also restore from the rows.

A frame has `seq = event_seq * 256 + index`: dense per event, ordered in the run, and exact in the middle of an event,
so that a client which lost its connection between two frames of one model turn resumes at the second. It is the `id:`
of the live stream, the `seq` of the transcript and what `from_seq` takes.

    RunStarted          user_input (stored)  system_prompt (stored)  started
    ModelCallRequested  the texts that join the conversation with it; retry, when it is neither the first attempt nor
                        the first after a fallback
    ModelSwitched       provider_fallback  cache_invalidated  reasoning_invalidated  model_downgraded
    FallbackSuppressed  fallback_suppressed
    OutputRejected      output_rejected
    ModelReplied        thinking  text  tool_call ...  usage
    HookActed           host_widened, or hook_acted
    ToolReturned        channel_publish, channel_delivery  tool_result
    InputReceived       none yet: its text is shown when it joins the conversation, before the next model call or
                        the end, as user_input (stored) or steer (live), both with the same seq
    LimitReached        limit
    RunParked           awaiting_input
    InterruptionOpened  interruption_pending
    InterruptionClosed  interruption_resolved
    PersonNotified      notice
    TurnCancelled       text  turn_cancelled
    ToolOutcomeAsked    outcome_unknown
    ChildRequested      spawn_child_started (stored), when it begins a run
    ChildReturned       spawn_child_result (stored)
    RunPaused           paused
    RunResumed          resumed, when no other pause holds the run
    RunQuarantined      quarantined
    RunReleased         released
    ContextCompacted    context_compaction        CompactionFailed  compaction_failed
    RunCompleted        done        RunCancelled  done, stop_reason "cancelled"        RunFailed  error

Names and fields are those existing clients know; a key without a value is absent. Our additions: `compaction_failed`
(an `error` would end the stream, and the run continues), `paused`, `resumed`, `quarantined` and `released` (the stream
would be silent without a reason), `hook_acted` (a call was not carried out as the model wrote it), `notice`,
`interruption_resolved` (before the result of its call, for clients that show the question), `text_blob` (the text is in
the blob store, the API loads it before it sends), `tool_calls_not_shown`, `output_rejected` and the `result` of `done`
(only in runs with an output schema). A cancelled run ends with `done`, because
`cancelled` is a stop reason of a run like the others and nothing went wrong.

Before: an accepted event. After: projections/transcript.py stores the frames, the API sends them.
"""

from typing import assert_never

from loomlog.projections.frames.frame import FRAMES_PER_EVENT, Frame, FrameMemory, pending_input_of
from loomlog.projections.frames.other_events import (
    COMPACTION_FAILED,
    OUTPUT_REJECTED,
    child_result_frame,
    child_started_frames,
    compaction_data,
    compaction_failed_data,
    end_frames,
    hook_data,
    interruption_pending_data,
    interruption_resolved_data,
    outcome_unknown_data,
    output_rejected_data,
    pending_input_frames,
    started_frames,
)
from loomlog.projections.frames.turn_events import (
    SWITCHED,
    reply_frames,
    retry_frames,
    retry_reason,
    suppressed_text,
    switch_frames,
    tool_result_frames,
    turn_cancelled_frames,
    visible_calls,
)
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
from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.records import replace


def build_frames(memory: FrameMemory, envelope: Envelope, event: Event) -> tuple[list[Frame], FrameMemory]:
    """The frames of an event, and the memory for those after it."""
    at = envelope.seq * FRAMES_PER_EVENT
    match event:
        case RunStarted():
            definition = event.definition
            return started_frames(at, event), FrameMemory(provider=definition.provider, model=definition.model)
        case ModelReplied():
            shown = visible_calls(event)
            calls = dict(shown)
            memory = FrameMemory(
                provider=event.provider, model=event.model, calls=calls, pending_inputs=memory.pending_inputs
            )
            return reply_frames(at, event, shown), memory
        case ModelCallFailed():
            return [], replace(memory, retry_reason=retry_reason(event))
        case ModelCallRequested(attempt=1):
            return pending_input_frames(at, memory.pending_inputs), replace(
                memory, pending_inputs=()
            ) if memory.pending_inputs else memory
        case ModelSwitched():
            switched = replace(memory, provider=event.provider, model=event.model, retry_reason=SWITCHED)
            return list(switch_frames(at, event)), switched
        case FallbackSuppressed():
            suppressed = {"type": "fallback_suppressed", "text": suppressed_text(event)}
            return [Frame(seq=at, type="fallback_suppressed", event=suppressed)], memory
        case ModelCallRequested():
            return retry_frames(at, memory, envelope, event), memory
        case OutputRejected():
            return [Frame(seq=at, type=OUTPUT_REJECTED, event=output_rejected_data(event))], memory
        case ToolReturned():
            return tool_result_frames(at, memory, event), memory
        case HookActed():
            data = hook_data(memory, event)
            return [Frame(seq=at, type=data["type"], event=data)], memory
        case InputReceived():
            pending_input = pending_input_of(event, envelope.at_ms)
            return [], replace(memory, pending_inputs=(*memory.pending_inputs, pending_input))
        case RunCompleted() | RunCancelled() | RunFailed():
            return end_frames(at, memory, event), memory
        case RunParked():
            parked = {"type": "awaiting_input", "awaiting_input": {"since_turn": event.since_turn}}
            return [Frame(seq=at, type="awaiting_input", event=parked)], memory
        case InterruptionOpened():
            return [Frame(seq=at, type="interruption_pending", event=interruption_pending_data(event))], memory
        case InterruptionClosed():
            return [Frame(seq=at, type="interruption_resolved", event=interruption_resolved_data(event))], memory
        case PersonNotified():
            notice = {"interrupt_id": event.interrupt_id, "message": event.message, "priority": event.priority}
            notice |= {"context": event.context} if event.context else {}
            return [Frame(seq=at, type="notice", event={"type": "notice", "notice": notice})], memory
        case TurnCancelled():
            return turn_cancelled_frames(at, event), memory
        case ToolOutcomeAsked():
            return [Frame(seq=at, type="outcome_unknown", event=outcome_unknown_data(memory, event))], memory
        case RunPaused():
            paused = {"type": "paused", "paused": {"turn": event.turn, "reason": event.reason}}
            return [Frame(seq=at, type="paused", event=paused)], memory
        case RunResumed(remaining=0):
            return [Frame(seq=at, type="resumed", event={"type": "resumed", "resumed": {"by": event.by}})], memory
        case RunQuarantined():
            return [Frame(seq=at, type="quarantined", event={"type": "quarantined", "error": event.error})], memory
        case RunReleased():
            released = {"type": "released", "released": {"by": event.by}}
            return [Frame(seq=at, type="released", event=released)], memory
        case ContextCompacted():
            return [Frame(seq=at, type="context_compaction", event=compaction_data(event))], memory
        case CompactionFailed():
            return [Frame(seq=at, type=COMPACTION_FAILED, event=compaction_failed_data(event))], memory
        case LimitReached():
            return [Frame(seq=at, type="limit", event={"type": "limit", "limit": event.notice.to_avro()})], memory
        case ChildRequested():
            return child_started_frames(at, event), memory
        case ChildReturned():
            return [child_result_frame(at, event)], memory
        case RunRefused() | CommandRefused() | RunPauseRequested() | RunResumed() | CompactionRequested():
            return [], memory
        case ToolCallRequested() | ToolReconcileRequested() | CallNotBegun() | RunRestored():
            return [], memory
        case ApprovalDecided() | ApprovalGiven() | ApprovalEscalated() | TreeCounted():
            return [], memory
        case ChildrenPlanned() | ResidentLeft() | CallWaiting() | WaitReported():
            return [], memory
        case _:
            assert_never(event)
