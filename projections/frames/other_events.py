"""Frames outside of turns: questions to people, sub-agents, hooks, compactions, the start and the end of a run.

Before: frames.py. After: the client.
"""

from collections.abc import Sequence
from typing import Any

from loomlog.projections.frames.frame import Frame, FrameMemory, PendingInput
from loomlog.projections.frames.frame_json import format_rfc3339, parse_input, segments_json, usage_json
from loomlog.schemas.conversation import agent_texts
from loomlog.schemas.generated.run_events import (
    ChildRequested,
    ChildReturned,
    CompactionFailed,
    ContextCompacted,
    HookActed,
    InterruptionClosed,
    InterruptionOpened,
    OutputRejected,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    ToolOutcomeAsked,
)
from loomlog.schemas.generated.values import BlobRef

COMPACTION_FAILED = "compaction_failed"
OUTPUT_REJECTED = "output_rejected"


def started_frames(at: int, event: RunStarted) -> list[Frame]:
    frames: list[Frame] = []
    definition, texts = event.definition, agent_texts(event.definition, event.memory_context)
    if event.segments:  # a fork may start without input of its own
        segments = segments_json(event.segments)
        if texts:  # the input as the model gets it
            content = [{"type": "trusted-text", **_text_fields(text, "blob"), "source": "definition"} for text in texts]
            segments = [{"role": "system", "content": content}, *segments]
        frames.append(Frame(seq=at, type="user_input", event={"type": "user_input"}, payload=segments, live=False))
    about = {"agent": definition.name, "definition_sha256": definition.sha256}
    for text in texts:
        prompt = {"type": "system_prompt", **_text_fields(text, "text_blob"), **about}
        content = [{"type": "trusted-text", **_text_fields(text, "blob")}]
        payload = [{"role": "system", "content": content}]
        frames.append(Frame(seq=at + len(frames), type="system_prompt", event=prompt, payload=payload, live=False))
    frames.append(Frame(seq=at + len(frames), type="started", event={"type": "started"}))
    return frames


def _text_fields(text: str | BlobRef, blob: str) -> dict[str, Any]:
    return {"text": text} if isinstance(text, str) else {"text": "", blob: text.to_avro()}


def compaction_data(event: ContextCompacted) -> dict[str, Any]:
    compaction: dict[str, Any] = {
        "summary": event.summary,
        "before_tokens": event.before_tokens,
        "after_tokens": event.after_tokens,
        "keep_n": event.keep_n,
        "keep_first": event.keep_first,
        "trigger": event.trigger,
    }
    if event.memory_banked is not None:
        compaction["memory_banked"] = event.memory_banked.to_avro()
    spent = usage_json(
        event.usage,
        provider=event.provider,
        model=event.model,
        credential_source=event.credential_source,
        credential_scope=event.credential_scope,
    )
    return {"type": "context_compaction", "context_compaction": compaction, "usage": spent}


def compaction_failed_data(event: CompactionFailed) -> dict[str, Any]:
    failed = {"trigger": event.trigger, "kind": event.kind}
    return {
        "type": COMPACTION_FAILED,
        "error": f"the context could not be compacted: {event.message or event.kind}",
        "compaction_failed": failed,
    }


def child_started_frames(at: int, event: ChildRequested) -> list[Frame]:
    if not event.child_agent_id:
        return []  # an existing child is asked, none is started
    child = {
        "tool_use_id": event.call_id,
        "index": event.number,
        "run_id": event.child_run_id,
        "agent": event.agent,
    }
    started = {"type": "spawn_child_started", "spawn_child": child}
    return [Frame(seq=at, type="spawn_child_started", event=started, live=False)]


def child_result_frame(at: int, event: ChildReturned) -> Frame:
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
    return Frame(seq=at, type="spawn_child_result", event=result, live=False)


def outcome_unknown_data(memory: FrameMemory, event: ToolOutcomeAsked) -> dict[str, Any]:
    call = memory.calls.get(event.call_id)
    data = {"call": f"{event.turn}.{event.index}", "id": event.call_id, "attempt": event.attempt}
    data |= {"name": call.name if call is not None else "", "reason": event.reason}
    return {"type": "outcome_unknown", "outcome_unknown": data}


def hook_data(memory: FrameMemory, event: HookActed) -> dict[str, Any]:
    """What a hook did: `host_widened` as clients know it, everything else as `hook_acted`."""
    act, call = event.act, memory.calls.get(event.call_id)
    data: dict[str, Any] = {"tool_call_id": event.call_id, "tool_name": call.name if call is not None else ""}
    if act.act == "widened_hosts":
        data |= {"url": act.url, "hook_owner": act.owner, "hook_name": act.name, "hosts_added": list(act.hosts_added)}
        return {"type": "host_widened", "host_widening": data}
    data |= {"hook_owner": act.owner, "hook_name": act.name, "phase": act.phase, "act": act.act}
    if act.input:
        data["input"] = parse_input(act.input)
    if act.reason:
        data["reason"] = act.reason
    return {"type": "hook_acted", "hook_acted": data}


def interruption_pending_data(event: InterruptionOpened) -> dict[str, Any]:
    data: dict[str, Any] = {"interrupt_id": event.interrupt_id, "kind": event.kind, "question": event.question}
    if event.options:
        data["options"] = list(event.options)
    if event.context:
        data["context"] = event.context
    data |= {"priority": event.priority, "expires_at": format_rfc3339(event.expires_at_ms)}
    return {"type": "interruption_pending", "interruption": data}


def interruption_resolved_data(event: InterruptionClosed) -> dict[str, Any]:
    data: dict[str, Any] = {"interrupt_id": event.interrupt_id, "status": event.status}
    if event.answer:
        data["answer"] = event.answer
    if event.resolved_by:
        data["resolved_by"] = event.resolved_by
    return {"type": "interruption_resolved", "interruption": data}


def pending_input_frames(at: int, pending_inputs: Sequence[PendingInput]) -> list[Frame]:
    frames: list[Frame] = []
    for seq, (text, source, at_ms, blob) in enumerate(pending_inputs, start=at):
        user_input = {"text": text, "source": source, "seen_at": format_rfc3339(at_ms)}
        blob_field: dict[str, Any] = {} if blob is None else {"text_blob": blob}
        block: dict[str, Any] = {"type": "trusted-text", "text": text} | ({} if blob is None else {"blob": blob})
        payload = [{"role": "user", "content": [block]}]
        stored = {"type": "user_input", "user_input": user_input, **blob_field}
        live = {"type": "steer", "user_input": user_input, **blob_field}
        frames.append(Frame(seq=seq, type="user_input", event=stored, payload=payload, live=False))
        frames.append(Frame(seq=seq, type="steer", event=live, stored=False))
    return frames


def end_frames(at: int, memory: FrameMemory, event: RunCompleted | RunCancelled | RunFailed) -> list[Frame]:
    """The end, after the pending inputs that get no reply."""
    inputs = pending_input_frames(at, memory.pending_inputs)
    at += len(memory.pending_inputs)
    if isinstance(event, RunFailed):
        return [*inputs, Frame(seq=at, type="error", event={"type": "error", "error": event.error})]
    stop_reason, result = (event.stop_reason, event.result) if isinstance(event, RunCompleted) else ("cancelled", "")
    data = {
        "type": "done",
        "stop_reason": stop_reason,
        "usage": usage_json(event.usage, provider=memory.provider, model=memory.model),
        **({"result": parse_input(result)} if result else {}),
    }
    return [*inputs, Frame(seq=at, type="done", event=data)]


def output_rejected_data(event: OutputRejected) -> dict[str, Any]:
    rejected = {"turn": event.turn, "number": event.number, "path": event.path, "message": event.problem}
    return {"type": OUTPUT_REJECTED, OUTPUT_REJECTED: rejected}
