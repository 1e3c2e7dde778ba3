"""Rows as JSON: one shape of a run for every transport and every list.

Names follow reference surfaces 1.2; further fields are additions (provider, model, cost, paused, position ...). An
unknown value is null, never left out, so that typed clients need no special cases.

Before: services/application/runs/start.py. After: a transport writes it.
"""

from collections.abc import Sequence
from typing import Any, cast

import orjson

from loomlog.projections.frames.frame import SESSION_STRIDE
from loomlog.projections.frames.frame_json import format_rfc3339, parse_input
from loomlog.projections.interrupts import InterruptRow
from loomlog.projections.runs import RunRow, is_paused
from loomlog.projections.transcript import TranscriptRow
from loomlog.schemas.position import Position
from loomlog.services.application.queries.audit_log import EventView
from loomlog.services.application.queries.json_types import (
    AwaitedState,
    ContextFill,
    EventRecord,
    Interrupt,
    JsonObject,
    Resident,
    ResidentState,
    Run,
    RunOutput,
    RunUsage,
    SessionSummary,
    TranscriptFrame,
)
from loomlog.services.families.operation import parse_value


def run_json(row: RunRow, events_topic: str) -> Run:
    """Return the JSON of a run. JSON columns are passed through. `events_topic` is that of the events of runs."""
    return {
        "agent_id": row.agent_id,
        "run_id": row.run_id,
        "session_id": row.session_id,
        "agent": row.agent,
        "tenant_id": row.tenant,
        "user_id": row.user_id,
        "user_tier": row.user_tier or None,
        "parent_agent_id": row.parent_agent_id or None,
        "status": row.status,
        "started_at": format_rfc3339(row.started_at_ms),
        "completed_at": None if row.ended_at_ms is None else format_rfc3339(row.ended_at_ms),
        "last_event_at": format_rfc3339(row.last_event_at_ms),
        "stop_reason": row.stop_reason or None,
        "error": row.error or None,
        "error_code": row.error_code or None,
        "usage": usage_json(row),
        "cost_micros": row.cost_micros,
        "currency": row.currency or None,
        "iterations": row.iterations,
        "tool_calls": row.tool_calls,
        "tool_errors": row.tool_errors,
        "model_errors": row.model_errors,
        "provider": row.provider,
        "model": row.model,
        "context": context_json(row),
        "compactions": row.compactions,
        "live": row.status == "running",
        "interactive": row.interactive,
        "parked": row.parked,
        "paused": is_paused(row),
        "pause_requested": row.pause_requested,
        "pause_reason": row.pause_reason or None,
        "under_way": row.under_way.split(),
        "quarantined": row.quarantined,
        "quarantine_error": row.quarantine_error or None,
        # Kept for clients that read it: an owner needs no heartbeat, its term is in the log.
        "last_heartbeat_at": None,
        "replica_id": None,
        "awaited_state": _awaited_state(row),
        "awaited_on": row.open_interrupts.partition(" ")[0] or None,
        "resident": row.resident,
        "resident_state": resident_state(row) if row.resident else None,
        "parent_run_id": row.parent_run_id or None,
        "root_run_id": row.root_run_id,
        "depth": row.depth,
        "children": row.children,
        "failed_children": row.failed_children,
        "parent_context": _object_or_none(row.parent_context),
        "metadata": _metadata_json(row.metadata),
        "continues_run_id": row.continues_run_id or None,
        "forked_from": (
            {"run_id": row.forked_from_run_id, "seq": row.forked_from_seq} if row.forked_from_run_id else None
        ),
        "imported_from": row.imported_from or None,
        "definition_sha256": row.definition_sha256 or None,
        "def_id": row.def_id or None,
        "def_version": row.def_version or None,
        "traceparent": row.traceparent or None,
        "position": str(Position(topic=events_topic, partition=row.partition, offset=row.last_offset)),
        **_output_json(row),
    }


def _output_json(row: RunRow) -> RunOutput:
    """Return the record of a run with an output schema, and the hash of the schema."""
    if not row.output_schema_sha256:
        return {}
    return {
        "output_schema_sha256": row.output_schema_sha256,
        "result": parse_input(row.result) if row.result else None,
    }


def resident_json(row: RunRow) -> Resident:
    """Return the JSON of a resident child in their list."""
    return {
        "child_run_id": row.run_id,
        "agent_id": row.agent_id,
        "agent": row.agent,
        "parent_agent_id": row.parent_agent_id,
        "tenant_id": row.tenant,
        "state": resident_state(row),
        "idle_ttl_seconds": row.idle_ttl_s,
        "last_used_at": format_rfc3339(row.last_event_at_ms),
    }


def _awaited_state(row: RunRow) -> AwaitedState | None:
    """Return what a run waits for that is not its own work; None when it is at work or has ended."""
    if row.open_interrupts:
        return "interrupted"
    return "awaiting_input" if row.status == "running" and row.parked else None


def resident_state(row: RunRow) -> ResidentState:
    """Return running, awaiting_input, completed, failed, cancelled or closed."""
    if row.status == "running":
        return "awaiting_input" if row.parked else "running"
    return "closed" if row.stop_reason == "closed" else row.status


def usage_json(row: RunRow) -> RunUsage:
    """Return the token usage of a run so far."""
    return {
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
        "cache_creation_input_tokens": row.cache_creation_input_tokens,
        "cache_read_input_tokens": row.cache_read_input_tokens,
        "model": row.model,
        "provider": row.provider,
        "max_context_tokens": row.max_context_tokens,
    }


def context_json(row: RunRow) -> ContextFill | None:
    """Return the context usage as last counted; None before the first answer, and when the provider reports none."""
    if not row.max_context_tokens or not row.context_tokens:
        return None
    used_pct = round(100 * row.context_tokens / row.max_context_tokens, 1)
    return {"used_tokens": row.context_tokens, "max_tokens": row.max_context_tokens, "used_pct": used_pct}


def transcript_json(rows: Sequence[TranscriptRow], runs_before: int) -> list[TranscriptFrame]:
    """Return the JSON of a page; the seqs of each further run follow those of the run before it."""
    frames: list[TranscriptFrame] = []
    last_run = rows[0].run_id if rows else ""
    for row in rows:
        if row.run_id != last_run:
            runs_before, last_run = runs_before + 1, row.run_id
        frames.append(frame_json(row, runs_before=runs_before))
    return frames


def frame_json(row: TranscriptRow, *, runs_before: int = 0) -> TranscriptFrame:
    """Return the JSON of a stored frame. The event and the payload are byte for byte as stored."""
    shown: TranscriptFrame = {
        "seq": runs_before * SESSION_STRIDE + row.seq,
        "run_id": row.run_id,
        "ts_ns": row.ts_ns,
        "type": row.type,
        "event": _embed(row.event),
    }
    if row.payload is not None:
        shown["payload"] = _embed_list(row.payload)
    return shown


def interrupt_json(row: InterruptRow) -> Interrupt:
    """Return the JSON of a question to a person, or of a notice."""
    return {
        "interrupt_id": row.interrupt_id,
        "run_id": row.run_id,
        "session_id": row.session_id,
        "agent_id": row.agent_id,
        "agent": row.agent,
        "tenant_id": row.tenant,
        "user_id": row.user_id,
        "tool_use_id": row.call_id,
        "kind": row.kind,
        "status": row.status,
        "question": row.question,
        "options": orjson.loads(row.options or "[]"),
        "context": row.context or None,
        "priority": row.priority,
        "created_at": _rfc3339_or_none(row.created_at_ms),
        "expires_at": _rfc3339_or_none(row.expires_at_ms),
        "resolved_at": _rfc3339_or_none(row.ended_at_ms),
        "answer": row.answer,
        "resolved_by": row.resolved_by,
        "seq": row.seq,
    }


def _rfc3339_or_none(at_ms: int | None) -> str | None:
    return None if at_ms is None else format_rfc3339(at_ms)


def session_json(session_id: str, newest: RunRow) -> SessionSummary:
    """Return the JSON of a session, from its newest run."""
    return {
        "id": session_id,
        "session_id": session_id,
        "tenant_id": newest.tenant,
        "user_id": newest.user_id,
        "user_tier": newest.user_tier or None,
        "agent": newest.agent,
        "last_run_id": newest.run_id,
        "last_agent_id": newest.agent_id,
        "status": newest.status,
        "last_event_at": format_rfc3339(newest.last_event_at_ms),
    }


def event_json(view: EventView) -> EventRecord:
    """Return the JSON of a record of the log."""
    return {
        "position": str(Position(topic=view.topic, partition=view.partition, offset=view.offset)),
        "topic": view.topic,
        "partition": view.partition,
        "offset": view.offset,
        "term": view.term,
        "seq": view.seq,
        "run_id": view.run_id,
        "tenant_id": view.tenant,
        "type": view.type,
        "at": format_rfc3339(view.at_ms),
        "cause_id": view.cause_id or None,
        "cause_offset": None if view.cause_offset < 0 else view.cause_offset,
        "stale": view.stale,
        "payload": view.payload,
    }


def _object_or_none(text: str) -> JsonObject | None:
    return None if text == "{}" else _embed(text)


def _embed(text: str | bytes) -> JsonObject:
    """The JSON text of an object, to be written as it is."""
    return cast("JsonObject", orjson.Fragment(text))


def _embed_list(text: str | bytes) -> list[JsonObject]:
    """The JSON text of a list of objects, to be written as it is."""
    return cast("list[JsonObject]", orjson.Fragment(text))


def _metadata_json(text: str) -> dict[str, Any] | None:
    """Return the caller's object; its values were stored as JSON texts."""
    return None if text == "{}" else {name: parse_value(value) for name, value in orjson.loads(text).items()}
