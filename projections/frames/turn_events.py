"""Frames of model turns and tool calls: reasoning, text, calls, usage, retries, fallbacks and results.

Before: frames.py. After: the client.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from loomlog.connectors.crypto.content_encryption import has_tokens
from loomlog.projections.frames.frame import FRAMES_PER_EVENT, Frame, FrameCall, FrameMemory
from loomlog.projections.frames.frame_json import parse_input, usage_json
from loomlog.schemas.generated.run_events import (
    FallbackSuppressed,
    ModelCallFailed,
    ModelCallRequested,
    ModelReplied,
    ModelSwitched,
    ToolReturned,
    TurnCancelled,
)
from loomlog.schemas.generated.values import ChannelUse, Envelope

CHANNEL_USES_SHOWN_MAX = FRAMES_PER_EVENT - 1
"""Messages of one call that get a frame; a call has at most 100."""
CALLS_SHOWN_MAX = FRAMES_PER_EVENT - 3
"""Tool calls of one turn with a frame of their own; thinking, text and usage need a seq too."""
RETRY_AFTER = "retry-after header"
BACKOFF = "exponential backoff"
OWNER_LOST = "owner lost"
PROVIDER_QUEUED = "provider queue"
"""Reasons of a retry; the first two are known to clients."""
SWITCHED = "fallback"
"""Instead of a retry reason: the next attempt is no retry, because another model makes it."""
CAUSE_MAX = 200
"""Characters of the error that a fallback shows (parity)."""


def visible_calls(event: ModelReplied) -> list[tuple[str, FrameCall]]:
    """The calls of a turn that get a frame, with their ids."""
    return [(call.id, FrameCall(call.name, parse_input(call.input))) for call in event.tool_calls[:CALLS_SHOWN_MAX]]


def retry_reason(event: ModelCallFailed) -> str:
    """Reason of the attempt after this failure."""
    if event.kind == "interrupted":
        return OWNER_LOST
    if event.kind == "provider_concurrency_exhausted":
        return PROVIDER_QUEUED
    return RETRY_AFTER if event.retry_after_ms > 0 else BACKOFF


def switch_frames(at: int, event: ModelSwitched) -> Iterator[Frame]:
    """Frames of a fallback: the switch itself, and one for each thing the conversation lost by it."""
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
    yield Frame(seq=at, type="provider_fallback", event={"type": "provider_fallback", "fallback": fallback})
    target = f"{event.provider}/{event.model}"
    texts = {
        "cache_invalidated": event.cache_lost
        and f"the prompt cache at {event.failed_provider} is lost: {target} goes on",
        "reasoning_invalidated": event.reasoning_cleared
        and f"the reasoning of {event.reasoning_cleared} earlier "
        f"{'answer' if event.reasoning_cleared == 1 else 'answers'} was taken out: it is no use to {target}",
        "model_downgraded": event.downgraded_from
        and f"{event.model} takes the place of {event.downgraded_from}, which needs reasoning that is not there",
    }
    for index, (name, text) in enumerate(((name, text) for name, text in texts.items() if text), start=1):
        yield Frame(seq=at + index, type=name, event={"type": name, "text": text})


def suppressed_text(event: FallbackSuppressed) -> str:
    """Text that explains why a fallback was not taken."""
    target = f"{event.provider}/{event.model}"
    match event.code:
        case "pinned_after_success":
            return "no fallback: a turn of this run has succeeded, and runs stay where they succeeded"
        case "no_vision":
            return f"no fallback to {target}: it cannot see the images of this conversation"
        case _:
            return f"no fallback to {target}: {event.code}"


def reply_frames(at: int, event: ModelReplied, calls: Sequence[tuple[str, FrameCall]]) -> list[Frame]:
    events: list[dict[str, Any]] = []
    if event.reasoning:
        events.append({"type": "thinking", "text": event.reasoning})
    if event.text_blob is not None:
        events.append({"type": "text", "text": "", "text_blob": event.text_blob.to_avro()})
    elif event.text:
        events.append({"type": "text", "text": event.text})
    for call_id, call in calls:
        use = {"id": call_id, "name": call.name, "input": call.input}
        events.append({"type": "tool_call", "tool_use": use})
    usage: dict[str, Any] = {
        "type": "usage",
        "usage": usage_json(
            event.usage,
            provider=event.provider,
            model=event.model,
            max_context_tokens=event.max_context_tokens,
            credential_source=event.credential_source,
            credential_scope=event.credential_scope,
            cost_micros=event.cost_micros,
            currency=event.currency,
        ),
    }
    if len(event.tool_calls) > len(calls):
        usage["tool_calls_not_shown"] = len(event.tool_calls) - len(calls)
    events.append(usage)
    return [Frame(seq=at + index, type=data["type"], event=data) for index, data in enumerate(events)]


def retry_frames(at: int, memory: FrameMemory, envelope: Envelope, event: ModelCallRequested) -> list[Frame]:
    if not event.retry and memory.retry_reason == SWITCHED:
        return []
    retry = {
        "provider": event.provider,
        "attempt": event.retry or event.attempt - 1,
        "wait_ms": max(0, event.not_before_ms - envelope.at_ms),
        "reason": memory.retry_reason or BACKOFF,
    }
    return [Frame(seq=at, type="retry", event={"type": "retry", "retry": retry})]


def tool_result_frames(at: int, memory: FrameMemory, event: ToolReturned) -> list[Frame]:
    """Frames of a call's result: the messages that it published or returned, then the result."""
    uses = () if event.details is None else event.details.channels[:CHANNEL_USES_SHOWN_MAX]
    frames = [channel_use_frame(at + index, use) for index, use in enumerate(uses)]
    return [*frames, Frame(seq=at + len(frames), type="tool_result", event=tool_result_data(memory, event))]


def channel_use_frame(seq: int, use: ChannelUse) -> Frame:
    """Frame of a message that a call published or returned."""
    data: dict[str, Any] = {
        "channel": use.channel,
        "message_id": use.message_id,
        "scope": use.scope,
        "scope_id": use.scope_id,
        "payload_bytes": use.payload_bytes,
        "payload_preview": use.preview,
    }
    if use.kind == "publish":
        published = {"type": "channel_publish", "channel": data | {"dropped_oldest": use.dropped_oldest}}
        return Frame(seq=seq, type="channel_publish", event=published)
    if use.attempt > 1:
        data |= {"redelivered": True, "attempt": use.attempt}
    delivered = {"type": "channel_delivery", "channel": data | {"cursor": use.cursor or use.message_id}}
    return Frame(seq=seq, type="channel_delivery", event=delivered)


def tool_result_data(memory: FrameMemory, event: ToolReturned) -> dict[str, Any]:
    use: dict[str, Any] = {"id": event.call_id}
    call = memory.calls.get(event.call_id)
    if call is not None:
        use |= {"name": call.name, "input": call.input}
    data: dict[str, Any] = {"type": "tool_result", "tool_use": use, "text": event.text}
    if event.text_blob is not None:
        data["text_blob"] = event.text_blob.to_avro()
    if event.is_error:
        data["is_error"] = True
    if event.outcome == "outcome_unknown":
        data["outcome"] = event.outcome
    if event.settled_by:
        data["settled_by"] = event.settled_by
    return data


def turn_cancelled_frames(at: int, event: TurnCancelled) -> list[Frame]:
    """The partial text, as of a turn with a reply, and the end of the turn."""
    events: list[dict[str, Any]] = []
    if event.text_blob is not None:
        events.append({"type": "text", "text": "", "text_blob": event.text_blob.to_avro()})
    elif event.text:
        events.append({"type": "text", "text": event.text})
    cancelled = {"reason": event.reason, "since_turn": event.turn}
    events.append({"type": "turn_cancelled", "turn_cancelled": cancelled})
    return [Frame(seq=at + index, type=data["type"], event=data) for index, data in enumerate(events)]
