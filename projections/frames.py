"""What a client sees of an event: the one mapping from a run's events to frames.

The API uses it for the live stream and the projector for the stored transcript, so that a replay shows what was
streamed. It is pure: what a frame needs of earlier events (the name of the tool a result belongs to, the model that
answered) travels in a FrameMemory, which transcript.py can also restore from the rows.

A frame's place is `seq = event_seq * 256 + index`: dense per event, ordered in the run, and exact in the middle of an
event, so that a client which lost its connection between two frames of one model turn resumes at the second. It is the
`id:` of the live stream, the `seq` of the transcript and what `from_seq` takes.

    RunStarted          user_input (stored)  system_prompt (stored)  started
    ModelCallRequested  the texts that join the conversation with it; retry, when it is neither the first attempt nor
                        the first after a fallback
    ModelSwitched       provider_fallback  cache_invalidated  reasoning_invalidated  model_downgraded
    FallbackSuppressed  fallback_suppressed
    ModelReplied        thinking  text  tool_call ...  usage
    HookActed           host_widened, or hook_acted
    ToolReturned        tool_result
    InputReceived       nothing yet: its text is shown when it joins the conversation, before the next model call or
                        the end, as user_input (stored) or steer (live): two faces of one place
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

Names and fields are those existing clients know; a key is absent when it has nothing to say. What we add is additive:
`compaction_failed` (an `error` would end the stream, and the run goes on), `paused`, `resumed`, `quarantined` and
`released` (the stream would be silent without a reason), `hook_acted` (a call was not carried out as the model wrote
it), `notice`, `interruption_resolved` (before the result of its call, for whoever shows the question), `text_blob`
(the text is in the blob store, the API loads it before it sends), `tool_calls_not_shown`. A cancelled run ends with
`done`,
because `cancelled` is a stop reason of a run like the others and nothing went wrong.

Before: an accepted event. After: transcript.py stores the frames, the API sends them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, assert_never

import orjson

from connectors.sealing import has_tokens
from schemas.making import maker
from schemas.run_events import (
    CallNotBegun,
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
    TurnCancelled,
)
from schemas.values import BlobRef, Envelope, Segment, Usage

FRAMES_PER_EVENT = 256
"""Places of one event."""
CALLS_SHOWN_MAX = FRAMES_PER_EVENT - 3
"""Tool calls of one turn with a frame of their own; thinking, text and usage need a place too."""
NESTING_CHECKED = 200
"""Brackets in a tool input above which its nesting is tried: deeper than 254 levels cannot be written as JSON."""

LAST_MS = 9_223_372_036_854
"""In the year 2262: the last time whose nanoseconds fit 64 bits."""

COMPACTION_FAILED = "compaction_failed"
RETRY_AFTER = "retry-after header"
BACKOFF = "exponential backoff"
OWNER_LOST = "owner lost"
NO_PLACE = "provider queue"
"""Reasons of a retry; the first two are known to clients."""
SWITCHED = "fallback"
"""In place of such a reason: the next attempt is no retry, because another model makes it."""
CAUSE_MAX = 200
"""Characters of the error that a fallback shows (parity)."""


class Said(NamedTuple):
    """A user text that waits for the next turn boundary, and when it was received in UTC milliseconds."""

    text: str
    source: str
    at_ms: int
    blob: dict[str, Any] | None = None
    """Where a long text lies; `text` is empty then."""


def said_of(event: InputReceived, at_ms: int) -> Said:
    """What was said, to be shown later."""
    return Said(event.text, event.source, at_ms, None if event.text_blob is None else event.text_blob.to_avro())


class OpenCall(NamedTuple):
    """A call of the latest turn; `input` is parsed JSON."""

    name: str
    input: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameMemory:
    """What frames need to know of a run's earlier events. A run begins with an empty one."""

    provider: str = ""
    model: str = ""
    calls: Mapping[str, OpenCall] = field(default_factory=dict)
    """The calls of the latest turn by id."""
    retry_reason: str = ""
    """Why the next attempt will be made."""
    waiting: tuple[Said, ...] = ()
    """Texts that were received and have not joined the conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame. `event` is its data; `payload` exists in stored rows only."""

    seq: int
    type: str
    event: dict[str, Any]
    payload: list[dict[str, Any]] | None = None
    stored: bool = True
    live: bool = True


_frame = maker(Frame)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFrame:
    """A frame as it goes out: `data` is one line of JSON. With `blob` set its text is still to be loaded."""

    seq: int
    type: str
    data: str
    blob: BlobRef | None = None


class StoredFrame(Protocol):
    """A row of the transcript; `event` and `payload` are JSON texts."""

    @property
    def seq(self) -> int: ...
    @property
    def ts_ns(self) -> int: ...
    @property
    def type(self) -> str: ...
    @property
    def event(self) -> str: ...
    @property
    def payload(self) -> str | None: ...


def frames(memory: FrameMemory, envelope: Envelope, event: Event) -> tuple[list[Frame], FrameMemory]:
    """The frames of an event and what is to be remembered for those after it."""
    at = envelope.seq * FRAMES_PER_EVENT
    match event:
        case RunStarted():
            definition = event.definition
            return _started(at, event), FrameMemory(provider=definition.provider, model=definition.model)
        case ModelReplied():
            shown = shown_calls(event)
            calls = dict(shown)
            memory = FrameMemory(provider=event.provider, model=event.model, calls=calls, waiting=memory.waiting)
            return _replied(at, event, shown), memory
        case ModelCallFailed():
            return [], replace(memory, retry_reason=retry_reason(event))
        case ModelCallRequested(attempt=1):
            return _said(at, memory.waiting), replace(memory, waiting=()) if memory.waiting else memory
        case ModelSwitched():
            switched = replace(memory, provider=event.provider, model=event.model, retry_reason=SWITCHED)
            return list(switch_frames(at, event)), switched
        case FallbackSuppressed():
            suppressed = {"type": "fallback_suppressed", "text": suppressed_text(event)}
            return [_frame(seq=at, type="fallback_suppressed", event=suppressed)], memory
        case ModelCallRequested():
            return _requested(at, memory, envelope, event), memory
        case ToolReturned():
            return [_frame(seq=at, type="tool_result", event=_tool_result(memory, event))], memory
        case HookActed():
            told = _hook_acted(memory, event)
            return [_frame(seq=at, type=told["type"], event=told)], memory
        case InputReceived():
            said = said_of(event, envelope.at_ms)
            return [], replace(memory, waiting=(*memory.waiting, said))
        case RunCompleted() | RunCancelled() | RunFailed():
            return _ended(at, memory, event), memory
        case RunParked():
            parked = {"type": "awaiting_input", "awaiting_input": {"since_turn": event.since_turn}}
            return [_frame(seq=at, type="awaiting_input", event=parked)], memory
        case InterruptionOpened():
            return [_frame(seq=at, type="interruption_pending", event=_pending(event))], memory
        case InterruptionClosed():
            return [_frame(seq=at, type="interruption_resolved", event=_resolved(event))], memory
        case PersonNotified():
            told = {"interrupt_id": event.interrupt_id, "message": event.message, "priority": event.priority}
            told |= {"context": event.context} if event.context else {}
            return [_frame(seq=at, type="notice", event={"type": "notice", "notice": told})], memory
        case TurnCancelled():
            return _turn_cancelled(at, event), memory
        case ToolOutcomeAsked():
            return [_frame(seq=at, type="outcome_unknown", event=_asked(memory, event))], memory
        case RunPaused():
            paused = {"type": "paused", "paused": {"turn": event.turn, "reason": event.reason}}
            return [_frame(seq=at, type="paused", event=paused)], memory
        case RunResumed(remaining=0):
            return [_frame(seq=at, type="resumed", event={"type": "resumed", "resumed": {"by": event.by}})], memory
        case RunQuarantined():
            return [_frame(seq=at, type="quarantined", event={"type": "quarantined", "error": event.error})], memory
        case RunReleased():
            return [_frame(seq=at, type="released", event={"type": "released", "released": {"by": event.by}})], memory
        case ContextCompacted():
            return [_frame(seq=at, type="context_compaction", event=_compacted(event))], memory
        case CompactionFailed():
            return [_frame(seq=at, type=COMPACTION_FAILED, event=_not_compacted(event))], memory
        case LimitReached(notice=notice):
            return [_frame(seq=at, type="limit", event={"type": "limit", "limit": notice.to_avro()})], memory
        case ChildRequested():
            return _child_requested(at, event), memory
        case ChildReturned():
            return [_child_returned(at, event)], memory
        case RunRefused() | CommandRefused() | RunPauseRequested() | RunResumed() | CompactionRequested():
            return [], memory
        case ToolCallRequested() | ToolReconcileRequested() | CallNotBegun() | RunRestored():
            return [], memory
        case ChildrenPlanned() | ResidentLeft():
            return [], memory
        case _:
            assert_never(event)


def stream_frame(frame: Frame) -> StreamFrame:
    """A live frame as it goes out."""
    return StreamFrame(seq=frame.seq, type=frame.type, data=orjson.dumps(frame.event).decode(), blob=_blob(frame.event))


def replay_frames(rows: Iterable[StoredFrame]) -> Iterator[StreamFrame]:
    """Stored rows as a stream shows them: user turns become `steer` with source `replay`, the system prompt is not
    shown (and neither are the system segments of the request: a quirk of the reference that is fixed here).
    """
    for row in rows:
        if row.type == "system_prompt":
            continue
        if row.type == "user_input":
            data: dict[str, Any] = {
                "type": "steer",
                "user_input": {
                    "text": _user_text(row.payload),
                    "source": "replay",
                    "seen_at": rfc3339(row.ts_ns // 1_000_000),
                },
            }
            blob = _stored_blob(row.event)
            if blob is not None:
                data["text_blob"] = blob.to_avro()
            yield StreamFrame(seq=row.seq, type="steer", data=orjson.dumps(data).decode(), blob=blob)
            continue
        blob = _stored_blob(row.event)
        yield StreamFrame(seq=row.seq, type=row.type, data=row.event, blob=blob)


def with_text(frame: StreamFrame, text: str) -> StreamFrame:
    """The frame with the text its blob held."""
    event = orjson.loads(frame.data)
    event.pop("text_blob", None)
    text_place(event)["text"] = text
    return replace(frame, data=orjson.dumps(event).decode(), blob=None)


def text_place(event: dict[str, Any]) -> dict[str, Any]:
    """The part of a frame that holds its text: what a person said is one level down."""
    place: dict[str, Any] = event.get("user_input", event)
    return place


def shown_calls(event: ModelReplied) -> list[tuple[str, OpenCall]]:
    """The calls of a turn that get a frame, with their ids."""
    return [(call.id, OpenCall(call.name, parsed(call.input))) for call in event.tool_calls[:CALLS_SHOWN_MAX]]


def parsed(text: str) -> Any:
    """A tool input as a value. What cannot be read, or could not be written again, stays the text it was."""
    try:
        value = orjson.loads(text)
        if text.count("{") + text.count("[") > NESTING_CHECKED:
            orjson.dumps(value)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return text
    return value


def plausible_ms(at_ms: int) -> int:
    """The time itself, or the nearest that can be shown when an event has one that no calendar has."""
    return min(max(at_ms, 0), LAST_MS)


def moment(at_ms: int) -> datetime:
    """The time in UTC."""
    return datetime.fromtimestamp(plausible_ms(at_ms) / 1000, UTC)


def rfc3339(at_ms: int) -> str:
    """The time as every answer shows it: UTC to the millisecond, `2026-01-31T12:00:00.000Z`."""
    return moment(at_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def segments_json(segments: Iterable[Segment]) -> list[dict[str, Any]]:
    """Segments as the caller would have written them: fields at their default are left out."""
    return [
        {
            "role": segment.role,
            "content": [{k: v for k, v in block.to_avro().items() if v} for block in segment.content],
        }
        for segment in segments
    ]


def usage_json(usage: Usage, *, provider: str, model: str, max_context_tokens: int = 0) -> dict[str, Any]:
    """The usage object of `usage` and `done` frames."""
    found: dict[str, Any] = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    if usage.cache_creation_input_tokens:
        found["cache_creation_input_tokens"] = usage.cache_creation_input_tokens
    if usage.cache_read_input_tokens:
        found["cache_read_input_tokens"] = usage.cache_read_input_tokens
    if model:
        found["model"] = model
    if provider:
        found["provider"] = provider
    if max_context_tokens:
        found["max_context_tokens"] = max_context_tokens
    return found


def retry_reason(event: ModelCallFailed) -> str:
    """Why the attempt after this failure will be made."""
    if event.kind == "interrupted":
        return OWNER_LOST
    if event.kind == "provider_concurrency_exhausted":
        return NO_PLACE
    return RETRY_AFTER if event.retry_after_ms > 0 else BACKOFF


def switch_frames(at: int, event: ModelSwitched) -> Iterator[Frame]:
    """What clients are told of a fallback: itself, and each thing the conversation gave up for it."""
    fallback = {
        "failed_provider": event.failed_provider,
        "failed_model": event.failed_model,
        "new_provider": event.provider,
        "new_model": event.model,
        "attempt": event.number,
        "user_tier": event.user_tier,
        "reason": event.reason,
        "cause_error": event.cause if has_tokens(event.cause) else event.cause[:CAUSE_MAX],
    }
    yield _frame(seq=at, type="provider_fallback", event={"type": "provider_fallback", "fallback": fallback})
    there = f"{event.provider}/{event.model}"
    texts = {
        "cache_invalidated": event.cache_lost
        and f"the prompt cache at {event.failed_provider} is lost: {there} goes on",
        "reasoning_invalidated": event.reasoning_cleared
        and f"the reasoning of {event.reasoning_cleared} earlier "
        f"{'answer' if event.reasoning_cleared == 1 else 'answers'} was taken out: it is no use to {there}",
        "model_downgraded": event.downgraded_from
        and f"{event.model} takes the place of {event.downgraded_from}, which needs reasoning that is not there",
    }
    for index, (name, text) in enumerate(((name, text) for name, text in texts.items() if text), start=1):
        yield _frame(seq=at + index, type=name, event={"type": name, "text": text})


def suppressed_text(event: FallbackSuppressed) -> str:
    """Why a fallback was not taken."""
    there = f"{event.provider}/{event.model}"
    match event.code:
        case "pinned_after_success":
            return "no fallback: a turn of this run has succeeded, and runs stay where they succeeded"
        case "no_vision":
            return f"no fallback to {there}: it cannot see the images of this conversation"
        case _:
            return f"no fallback to {there}: {event.code}"


def _started(at: int, event: RunStarted) -> list[Frame]:
    found: list[Frame] = []
    if event.segments:  # a fork may begin without a word of its own
        said = segments_json(event.segments)
        found.append(_frame(seq=at, type="user_input", event={"type": "user_input"}, payload=said, live=False))
    definition = event.definition
    if definition.system_prompt:
        prompt = {
            "type": "system_prompt",
            "text": definition.system_prompt,
            "agent": definition.name,
            "definition_sha256": definition.sha256,
        }
        found.append(_frame(seq=at + len(found), type="system_prompt", event=prompt, live=False))
    found.append(_frame(seq=at + len(found), type="started", event={"type": "started"}))
    return found


def _replied(at: int, event: ModelReplied, shown: Sequence[tuple[str, OpenCall]]) -> list[Frame]:
    events: list[dict[str, Any]] = []
    if event.reasoning:
        events.append({"type": "thinking", "text": event.reasoning})
    if event.text_blob is not None:
        events.append({"type": "text", "text": "", "text_blob": event.text_blob.to_avro()})
    elif event.text:
        events.append({"type": "text", "text": event.text})
    for call_id, call in shown:
        use = {"id": call_id, "name": call.name, "input": call.input}
        events.append({"type": "tool_call", "tool_use": use})
    usage: dict[str, Any] = {
        "type": "usage",
        "usage": usage_json(
            event.usage, provider=event.provider, model=event.model, max_context_tokens=event.max_context_tokens
        ),
    }
    if len(event.tool_calls) > len(shown):
        usage["tool_calls_not_shown"] = len(event.tool_calls) - len(shown)
    events.append(usage)
    return [_frame(seq=at + index, type=data["type"], event=data) for index, data in enumerate(events)]


def _requested(at: int, memory: FrameMemory, envelope: Envelope, event: ModelCallRequested) -> list[Frame]:
    if not event.retry and memory.retry_reason == SWITCHED:
        return []
    retry = {
        "provider": event.provider,
        "attempt": event.retry or event.attempt - 1,
        "wait_ms": max(0, event.not_before_ms - envelope.at_ms),
        "reason": memory.retry_reason or BACKOFF,
    }
    return [_frame(seq=at, type="retry", event={"type": "retry", "retry": retry})]


def _tool_result(memory: FrameMemory, event: ToolReturned) -> dict[str, Any]:
    use: dict[str, Any] = {"id": event.call_id}
    call = memory.calls.get(event.call_id)
    if call is not None:
        use |= {"name": call.name, "input": call.input}
    found: dict[str, Any] = {"type": "tool_result", "tool_use": use, "text": event.text}
    if event.text_blob is not None:
        found["text_blob"] = event.text_blob.to_avro()
    if event.is_error:
        found["is_error"] = True
    if event.outcome == "outcome_unknown":
        found["outcome"] = event.outcome
    if event.settled_by:
        found["settled_by"] = event.settled_by
    return found


def _compacted(event: ContextCompacted) -> dict[str, Any]:
    compaction = {
        "summary": event.summary,
        "before_tokens": event.before_tokens,
        "after_tokens": event.after_tokens,
        "keep_n": event.keep_n,
        "keep_first": event.keep_first,
        "trigger": event.trigger,
    }
    spent = usage_json(event.usage, provider=event.provider, model=event.model)
    return {"type": "context_compaction", "context_compaction": compaction, "usage": spent}


def _not_compacted(event: CompactionFailed) -> dict[str, Any]:
    failed = {"trigger": event.trigger, "kind": event.kind}
    return {
        "type": COMPACTION_FAILED,
        "error": f"the context could not be compacted: {event.message or event.kind}",
        "compaction_failed": failed,
    }


def _child_requested(at: int, event: ChildRequested) -> list[Frame]:
    if not event.child_agent_id:
        return []  # one that exists is asked
    child = {
        "tool_use_id": event.call_id,
        "index": event.number,
        "run_id": event.child_run_id,
        "agent": event.agent,
    }
    started = {"type": "spawn_child_started", "spawn_child": child}
    return [_frame(seq=at, type="spawn_child_started", event=started, live=False)]


def _child_returned(at: int, event: ChildReturned) -> Frame:
    ok = event.status in ("completed", "running", "awaiting_input", "closed")
    child: dict[str, Any] = {
        "tool_use_id": event.call_id,
        "index": event.number,
        "run_id": event.child_run_id,
        "agent": event.agent,
        "ok": ok,
        "output" if ok else "error": event.text,
    }
    if event.text_blob is not None:
        child["output_blob"] = event.text_blob.to_avro()
    result = {"type": "spawn_child_result", "spawn_child": child}
    return _frame(seq=at, type="spawn_child_result", event=result, live=False)


def _asked(memory: FrameMemory, event: ToolOutcomeAsked) -> dict[str, Any]:
    call = memory.calls.get(event.call_id)
    asked = {"call": f"{event.turn}.{event.index}", "id": event.call_id, "attempt": event.attempt}
    asked |= {"name": call.name if call is not None else "", "reason": event.reason}
    return {"type": "outcome_unknown", "outcome_unknown": asked}


def _hook_acted(memory: FrameMemory, event: HookActed) -> dict[str, Any]:
    """What a hook did: `host_widened` as clients know it, everything else as `hook_acted`."""
    act, call = event.act, memory.calls.get(event.call_id)
    told: dict[str, Any] = {"tool_call_id": event.call_id, "tool_name": call.name if call is not None else ""}
    if act.act == "widened_hosts":
        told |= {"url": act.url, "hook_owner": act.owner, "hook_name": act.name, "hosts_added": list(act.hosts_added)}
        return {"type": "host_widened", "host_widening": told}
    told |= {"hook_owner": act.owner, "hook_name": act.name, "phase": act.phase, "act": act.act}
    if act.input:
        told["input"] = parsed(act.input)
    if act.reason:
        told["reason"] = act.reason
    return {"type": "hook_acted", "hook_acted": told}


def _pending(event: InterruptionOpened) -> dict[str, Any]:
    asked: dict[str, Any] = {"interrupt_id": event.interrupt_id, "kind": event.kind, "question": event.question}
    if event.options:
        asked["options"] = list(event.options)
    if event.context:
        asked["context"] = event.context
    asked |= {"priority": event.priority, "expires_at": rfc3339(event.expires_at_ms)}
    return {"type": "interruption_pending", "interruption": asked}


def _resolved(event: InterruptionClosed) -> dict[str, Any]:
    ended: dict[str, Any] = {"interrupt_id": event.interrupt_id, "status": event.status}
    if event.answer:
        ended["answer"] = event.answer
    if event.resolved_by:
        ended["resolved_by"] = event.resolved_by
    return {"type": "interruption_resolved", "interruption": ended}


def _turn_cancelled(at: int, event: TurnCancelled) -> list[Frame]:
    """What had been said, as of a turn that was answered, and that the turn is over."""
    events: list[dict[str, Any]] = []
    if event.text_blob is not None:
        events.append({"type": "text", "text": "", "text_blob": event.text_blob.to_avro()})
    elif event.text:
        events.append({"type": "text", "text": event.text})
    cancelled = {"reason": event.reason, "since_turn": event.turn}
    events.append({"type": "turn_cancelled", "turn_cancelled": cancelled})
    return [_frame(seq=at + index, type=data["type"], event=data) for index, data in enumerate(events)]


def _said(at: int, waiting: Sequence[Said]) -> list[Frame]:
    found: list[Frame] = []
    for seq, (text, source, at_ms, blob) in enumerate(waiting, start=at):
        said = {"text": text, "source": source, "seen_at": rfc3339(at_ms)}
        elsewhere: dict[str, Any] = {} if blob is None else {"text_blob": blob}
        block: dict[str, Any] = {"type": "trusted-text", "text": text} | ({} if blob is None else {"blob": blob})
        payload = [{"role": "user", "content": [block]}]
        stored = {"type": "user_input", "user_input": said, **elsewhere}
        live = {"type": "steer", "user_input": said, **elsewhere}
        found.append(_frame(seq=seq, type="user_input", event=stored, payload=payload, live=False))
        found.append(_frame(seq=seq, type="steer", event=live, stored=False))
    return found


def _ended(at: int, memory: FrameMemory, event: RunCompleted | RunCancelled | RunFailed) -> list[Frame]:
    """The end, after the texts that nobody answers any more."""
    said = _said(at, memory.waiting)
    at += len(memory.waiting)
    if isinstance(event, RunFailed):
        return [*said, _frame(seq=at, type="error", event={"type": "error", "error": event.error})]
    stop_reason = event.stop_reason if isinstance(event, RunCompleted) else "cancelled"
    return [*said, _done(at, memory, stop_reason, event.usage)]


def _done(at: int, memory: FrameMemory, stop_reason: str, usage: Usage) -> Frame:
    data = {
        "type": "done",
        "stop_reason": stop_reason,
        "usage": usage_json(usage, provider=memory.provider, model=memory.model),
    }
    return _frame(seq=at, type="done", event=data)


def _blob(event: Mapping[str, Any]) -> BlobRef | None:
    found = event.get("text_blob")
    return None if found is None else BlobRef.from_avro(found)


def _stored_blob(event: str) -> BlobRef | None:
    return _blob(orjson.loads(event)) if '"text_blob":' in event else None


def _user_text(payload: str | None) -> str:
    segments = orjson.loads(payload) if payload else []
    return "\n".join(
        block["text"]
        for segment in segments
        if segment["role"] == "user"
        for block in segment["content"]
        if block.get("text")
    )
