"""Runs: one row for every accepted run, with everything a list or a status page shows.

The row is a fold of the run's events. The projector keeps the rows of live runs in memory and writes whole rows, so an
event costs no read; an uncached row is read once (projections/engine/run_projection.py). Refused requests are not runs
(audit.py has them).

The `memory_` columns are internal: what the run's next frames need (FrameMemory in projections/frames/frame.py).

Before: projections/engine/run_projection.py. After: run_queries.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, assert_never

import orjson
from sqlalchemy import Index, text

from loomlog.projections.engine.batch import PositionedEvent
from loomlog.projections.frames.frame import FrameMemory, PendingInput, pending_input_of
from loomlog.projections.frames.turn_events import SWITCHED, retry_reason
from loomlog.projections.tables import Json, define_table
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
from loomlog.schemas.generated.values import Envelope, ImportOrigin, Usage
from loomlog.schemas.position import Position

CANCELLED = "cancelled"
"""Stop reason of a cancel without a reason."""
APPROVAL = "approval"
"""Kind of a question about a call that is made once people approve it."""
NOT_PAUSED = {"paused": False, "pause_requested": False, "pause_reason": "", "pauses": ""}
MODEL, COMPACTION = "model", "compaction"
"""Values in RunRow.under_way."""
CHILDREN_PREFIX = "@"
"""Prefix in RunRow.under_way of the index of a call that waits for children."""
FAILED_CHILD = frozenset({"failed", "refused"})
"""Statuses of a child that came back (ChildReturned) without what it was asked for."""


RunStatus = Literal["running", "completed", "failed", "cancelled"]


class RunRow(NamedTuple):
    """The current state of a run. Times in UTC milliseconds, cost in millionths of `currency`. Empty text: none."""

    run_id: str
    tenant: str
    session_id: str
    agent_id: str
    agent: str
    subject: str
    user_id: str
    user_tier: str
    parent_agent_id: str
    status: RunStatus
    """running, completed, failed or cancelled."""
    stop_reason: str
    """Why it ended; for a cancelled run the reason of the cancel."""
    error: str
    error_code: str
    started_at_ms: int
    ended_at_ms: int | None
    last_event_at_ms: int
    iterations: int
    """Model turns with a reply."""
    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    cost_micros: int
    currency: str
    model_errors: int
    tool_calls: int
    tool_errors: int
    interactive: bool
    parked: bool
    """Waits for input."""
    paused: bool
    """Stopped before its next model call until it is resumed."""
    pause_requested: bool
    """A pause was requested; it takes effect at the next model call."""
    pause_reason: str
    """Reason of the oldest pause."""
    pauses: str
    """Its pauses in the order of their requests: JSON array of scope and reason; empty for none."""
    quarantined: bool
    """A record of the run could not be handled; the row ends before that record."""
    quarantine_error: str
    provider: str
    """Provider of the last reply; before the first reply, of the definition."""
    model: str
    effort: str
    context_tokens: int
    """Tokens of the last turn's prompt and reply: how full the context is. An estimate after a compaction."""
    compactions: int
    """How often its conversation was replaced by a summary and its last messages."""
    max_context_tokens: int
    """0 = unknown."""
    definition_sha256: str
    def_id: str
    """Version of the agent's definition that it is pinned to; empty for an agent from a file."""
    def_version: int
    """Number of that version; 0 for an agent from a file."""
    partition: int
    first_offset: int
    last_offset: int
    last_seq: int
    idempotency_key: str
    request_sha256: str
    continues_run_id: str
    forked_from_run_id: str
    forked_from_seq: int
    """Last event it shares with that run; 0 when it is no fork."""
    imported_from: str
    """Topic, partition and first offset in the log it was imported from; empty for a run of this log."""
    told_events: int
    """Number of its imported events; 0 for a run of this log, and for a restored run that continues here."""
    restored: bool
    """Imported by restoring the state of its installation; the user of any other import is not verified."""
    parent_run_id: str
    """The run that started it; empty for a root run."""
    root_run_id: str
    """Root of its tree; its own id for a root run."""
    depth: int
    """0 for a root run."""
    resident: bool
    """A child that parks after each reply and takes further input."""
    idle_ttl_s: int
    children: int
    """Child runs it has requested, refused ones included."""
    failed_children: int
    """Children that came back to it failed or refused."""
    traceparent: str
    metadata: Json
    """JSON object; its values are JSON texts."""
    parent_context: Json
    """JSON object of strings."""
    open_interrupts: str
    """Ids of the questions that wait for a person, oldest first, separated by spaces."""
    under_way: str
    """Work that is ready or under way, separated by spaces: `model`, `compaction`, indexes of tool calls, prefixed with
    `@` if they wait for children. Without calls that wait for a person or a channel; empty for idle and ended runs."""
    output_schema_sha256: str
    """Hash of the schema of its final answer; empty when the answer is any text."""
    result: str
    """The record that it answered with, as JSON text; empty without an output schema, and until it is completed."""
    memory_reply_seq: int
    """Seq of the last ModelReplied: its calls are in the transcript from there."""
    memory_retry_reason: str
    memory_waiting_inputs: str
    """JSON array of the user texts that have not yet joined the conversation: text, source, time; empty for none."""


runs = define_table(
    "runs",
    RunRow,
    # The most selective column comes first, so that queries across tenants use the index too.
    Index("runs_handle", "agent_id", "tenant", "started_at_ms", "run_id"),
    Index("runs_session", "session_id", "tenant", "started_at_ms", "run_id"),
    Index("runs_root", "root_run_id", "tenant", "started_at_ms", "run_id"),
    Index("runs_user", "user_id", "tenant", "started_at_ms", "run_id"),
    Index("runs_definition", "def_id", "tenant", "started_at_ms", "run_id", postgresql_where=text("def_id <> ''")),
    Index(
        "runs_forks",
        "forked_from_run_id",
        "tenant",
        "started_at_ms",
        "run_id",
        postgresql_where=text("forked_from_run_id <> ''"),
    ),
    Index("runs_tenant", "tenant", "started_at_ms", "run_id"),
    Index("runs_time", "started_at_ms", "run_id"),
    # Live runs are few among many ended ones.
    Index("runs_live", "tenant", "started_at_ms", "run_id", postgresql_where=text("status = 'running'")),
    key=["run_id"],
    fillfactor=70,
)


def apply(before: RunRow | None, events: Sequence[PositionedEvent]) -> RunRow | None:
    """The row after these events of its run; None until the run is accepted."""
    values: dict[str, Any] | None = None if before is None else before._asdict()
    for at in events:
        if isinstance(at.event, RunStarted):
            values = _started_row(at, at.event)
        if values is None:
            continue
        values["last_event_at_ms"] = at.envelope.at_ms
        values["last_offset"] = at.offset
        values["last_seq"] = at.envelope.seq
        _apply_event(values, at.envelope, at.event)
    # The keys are in the order of the columns: naming 48 arguments took longer than the fold.
    return None if values is None else RunRow._make(values.values())


def halt(before: RunRow, error: str) -> RunRow:
    """The row of a run whose later events cannot be projected."""
    return before._replace(quarantined=True, quarantine_error=error)


def is_idle(row: RunRow) -> bool:
    """Whether nothing of it is under way: paused, quarantined, ended, or waiting for input, people, channels, children.

    Its children are runs of their own and may be active.
    """
    return row.quarantined or all(entry.startswith(CHILDREN_PREFIX) for entry in row.under_way.split())


def is_paused(row: RunRow) -> bool:
    """Whether a pause is in effect: before the next model call, or because the run is idle anyway."""
    return row.paused or (row.pause_requested and is_idle(row))


def pause_scopes(row: RunRow) -> frozenset[str]:
    """Scopes of its pauses: run, agent, tenant, all."""
    return frozenset(scope for scope, _ in _pauses(row.pauses))


def frame_memory(row: RunRow) -> FrameMemory:
    """The frame memory stored in the row; the calls of the last turn are in the transcript."""
    waiting = row.memory_waiting_inputs
    return FrameMemory(
        provider=row.provider,
        model=row.model,
        retry_reason=row.memory_retry_reason,
        pending_inputs=tuple(PendingInput(*fields) for fields in orjson.loads(waiting)) if waiting else (),
    )


def _apply_event(values: dict[str, Any], envelope: Envelope, event: Event) -> None:
    match event:
        case ModelCallRequested():
            values |= {"parked": False, "under_way": MODEL}
            if event.attempt == 1:
                values["memory_waiting_inputs"] = ""
        case ModelReplied():
            _apply_reply(values, envelope, event)
            values["under_way"] = " ".join(map(str, range(len(event.tool_calls))))
        case ModelCallFailed():
            values["model_errors"] += 1
            values["memory_retry_reason"] = retry_reason(event)
        case ModelSwitched():
            values |= {"provider": event.provider, "model": event.model, "effort": event.effort}
            values["memory_retry_reason"] = SWITCHED
        case ToolCallRequested():
            values["tool_calls"] += event.attempt == 1
            _remove_call(values, event.index)
            values["under_way"] = f"{values['under_way']} {event.index}".strip()
        case ToolReturned():
            values["tool_errors"] += event.is_error
            _remove_call(values, event.index)
        case InterruptionOpened():
            # A call that waits for approval counts when it is made; one whose tool asks was counted when it began.
            values["tool_calls"] += event.kind != APPROVAL and event.attempt == 0
            values["open_interrupts"] = f"{values['open_interrupts']} {event.interrupt_id}".strip()
            _remove_call(values, event.index)
        case ToolOutcomeAsked() | CallWaiting():
            _remove_call(values, event.index)
        case ChildrenPlanned():
            _remove_call(values, event.index)
            values["under_way"] = f"{values['under_way']} {CHILDREN_PREFIX}{event.index}".strip()
        case InterruptionClosed():
            open_ids = [open_id for open_id in values["open_interrupts"].split() if open_id != event.interrupt_id]
            values["open_interrupts"] = " ".join(open_ids)
        case PersonNotified():
            values["tool_calls"] += 1
        case TurnCancelled():
            values["iterations"] += event.attempt > 0
            values["under_way"] = ""
        case RunParked():
            values |= {"parked": True, "under_way": ""}
        case CompactionRequested():
            values |= {"parked": False, "under_way": COMPACTION}
        case ContextCompacted():
            _add_summary_cost(values, event)
            values["under_way"] = ""
            values["compactions"] += 1
            tokens = values["context_tokens"] * event.after_tokens // max(1, event.before_tokens)
            values["context_tokens"] = tokens or event.after_tokens
        case CompactionFailed():
            _add_summary_cost(values, event)
            values["under_way"] = ""
        case RunPauseRequested():
            _set_pauses(values, [*_pauses(values["pauses"]), (event.scope, event.reason)])
        case RunPaused():
            values |= {"paused": True, "parked": False, "under_way": ""}
        case RunResumed():
            remaining = [(scope, reason) for scope, reason in _pauses(values["pauses"]) if scope != event.scope]
            _set_pauses(values, remaining if event.remaining else [])
        case RunQuarantined():
            values |= {"quarantined": True, "quarantine_error": event.error}
        case RunReleased():
            values |= {"quarantined": False, "quarantine_error": ""}
        case RunCompleted():
            _apply_end(values, envelope, "completed", event)
            values |= {"stop_reason": event.stop_reason, "result": event.result}
        case RunFailed():
            _apply_end(values, envelope, "failed", event)
            values |= {"error": event.error, "error_code": event.code}
        case RunCancelled():
            _apply_end(values, envelope, "cancelled", event)
            values["stop_reason"] = event.reason or CANCELLED
        case InputReceived():
            waiting = orjson.loads(values["memory_waiting_inputs"] or "[]")
            pending_input = pending_input_of(event, envelope.at_ms)
            # Without a blob in the form of rows from before texts could be blobs.
            waiting.append(list(pending_input if pending_input.blob is not None else pending_input[:3]))
            values["memory_waiting_inputs"] = orjson.dumps(waiting).decode()
        case RunStarted() | RunRefused() | CommandRefused():
            pass
        case RunRestored():
            if event.events == values["told_events"]:
                values["told_events"] = 0
        case ToolReconcileRequested() | CallNotBegun() | FallbackSuppressed() | LimitReached() | HookActed():
            pass
        case ResidentLeft() | WaitReported() | OutputRejected():
            pass
        case ApprovalDecided() | ApprovalGiven() | ApprovalEscalated() | TreeCounted():
            pass
        case ChildReturned():
            values["failed_children"] += event.status in FAILED_CHILD
        case ChildRequested():
            values["children"] += bool(event.child_agent_id)
        case _:
            assert_never(event)


def _started_row(at: PositionedEvent, event: RunStarted) -> dict[str, Any]:
    """The row in the order of its columns."""
    definition = event.definition
    return {
        "run_id": at.envelope.aggregate,
        "tenant": at.envelope.tenant,
        "session_id": event.session_id,
        "agent_id": event.agent_id,
        "agent": definition.name,
        "subject": event.subject,
        "user_id": event.user_id,
        "user_tier": event.options.user_tier,
        "parent_agent_id": event.parent_agent_id,
        "status": "running",
        "stop_reason": "",
        "error": "",
        "error_code": "",
        "started_at_ms": at.envelope.at_ms,
        "ended_at_ms": None,
        "last_event_at_ms": at.envelope.at_ms,
        "iterations": 0,
        **_usage_columns(Usage()),
        "cost_micros": 0,
        "currency": "",
        "model_errors": 0,
        "tool_calls": 0,
        "tool_errors": 0,
        "interactive": event.options.interactive,
        "parked": False,
        **NOT_PAUSED,
        "quarantined": False,
        "quarantine_error": "",
        "provider": definition.provider,
        "model": definition.model,
        "effort": definition.effort,
        "context_tokens": 0,
        "compactions": 0,
        "max_context_tokens": 0,
        "definition_sha256": definition.sha256,
        "def_id": definition.pin.def_id if definition.pin else "",
        "def_version": definition.pin.version if definition.pin else 0,
        "partition": at.partition,
        "first_offset": at.offset,
        "last_offset": at.offset,
        "last_seq": at.envelope.seq,
        "idempotency_key": event.idempotency_key,
        "request_sha256": event.request_sha256,
        "continues_run_id": event.continues.run_id if event.continues else "",
        "forked_from_run_id": event.forked_from.run_id if event.forked_from else "",
        "forked_from_seq": event.forked_from.seq if event.forked_from else 0,
        "imported_from": import_source(event.imported_from) if event.imported_from else "",
        "told_events": event.imported_from.events if event.imported_from else 0,
        "restored": bool(event.imported_from and event.imported_from.restored),
        **_place_in_tree(at.envelope.aggregate, event),
        "traceparent": event.traceparent,
        "metadata": _json_object(event.options.metadata),
        "parent_context": _json_object(event.options.parent_context),
        "open_interrupts": "",
        "under_way": "",
        "output_schema_sha256": definition.output_schema_sha256,
        "result": "",
        "memory_reply_seq": 0,
        "memory_retry_reason": "",
        "memory_waiting_inputs": "",
    }


def _pauses(column: str) -> list[tuple[str, str]]:
    """Scope and reason of each pause."""
    return [(scope, reason) for scope, reason in orjson.loads(column)] if column else []


def _set_pauses(values: dict[str, Any], pauses: list[tuple[str, str]]) -> None:
    if not pauses:
        values |= NOT_PAUSED
        return
    values |= {"pause_requested": True, "pause_reason": pauses[0][1], "pauses": orjson.dumps(pauses).decode()}


def _place_in_tree(run_id: str, event: RunStarted) -> dict[str, Any]:
    parent = event.parent
    return {
        "parent_run_id": parent.run_id if parent else "",
        "root_run_id": parent.root_run_id if parent else run_id,
        "depth": parent.depth if parent else 0,
        "resident": bool(parent and parent.is_resident),
        "idle_ttl_s": parent.idle_ttl_s if parent else 0,
        "children": 0,
        "failed_children": 0,
    }


def import_source(origin: ImportOrigin) -> str:
    """Origin of an imported run in the form of RunRow.imported_from."""
    return str(Position(topic=origin.topic, partition=origin.partition, offset=origin.first_offset))


def _apply_reply(values: dict[str, Any], envelope: Envelope, event: ModelReplied) -> None:
    spent = _usage_columns(event.usage)
    values["iterations"] += 1
    for name, tokens in spent.items():
        values[name] += tokens
    if (
        sum(spent.values()) > spent["output_tokens"]
    ):  # a provider that counts no prompt tokens leaves the value unchanged
        values["context_tokens"] = sum(spent.values())
    values["cost_micros"] += event.cost_micros
    values |= {
        "currency": event.currency or values["currency"],
        "provider": event.provider,
        "model": event.model,
        "max_context_tokens": event.max_context_tokens or values["max_context_tokens"],
        "memory_reply_seq": envelope.seq,
        "memory_retry_reason": "",
    }


def _add_summary_cost(values: dict[str, Any], event: ContextCompacted | CompactionFailed) -> None:
    """Adds the cost of a summary call to the run."""
    for name, tokens in _usage_columns(event.usage).items():
        values[name] += tokens
    values["cost_micros"] += event.cost_micros
    values["currency"] = event.currency or values["currency"]


def _apply_end(
    values: dict[str, Any], envelope: Envelope, status: str, event: RunCompleted | RunFailed | RunCancelled
) -> None:
    values |= {
        "status": status,
        "ended_at_ms": envelope.at_ms,
        "parked": False,
        "quarantined": False,
        "quarantine_error": "",
        **NOT_PAUSED,
        "under_way": "",
        "memory_waiting_inputs": "",
        # The owner's sums win over ours: they are authoritative.
        "iterations": event.iterations,
        **_usage_columns(event.usage),
        "cost_micros": event.cost_micros,
        "currency": event.currency or values["currency"],
    }


def _remove_call(values: dict[str, Any], index: int) -> None:
    """Removes the tool call from `under_way`, for good or until its next event."""
    entries = values["under_way"].split()
    values["under_way"] = " ".join(entry for entry in entries if entry.removeprefix(CHILDREN_PREFIX) != str(index))


def _usage_columns(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
    }


def _json_object(texts: Mapping[str, str]) -> str:
    return orjson.dumps(dict(texts)).decode()
