"""The timeline of a run: one row for every attempt of a model turn and for every tool call.

An intent opens a row, its result closes it; either may come in another poll than the other. So a change of a row is
only the fields one event knows, and a change is laid over the row as `coalesce(new, old)`, in memory and in SQL alike
(`merge_rows` and the policy the writer is given): how events fall into polls makes no difference. An open row of a run
that has ended was under way when the run was cancelled.

Before: projections/engine/run_projection.py. After: GET /v1/runs/{run_id}/steps, the web page of a run.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from sqlalchemy import select, tuple_

from loomlog.connectors.crypto.content_encryption import has_tokens
from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.engine.batch import PositionedEvent
from loomlog.projections.frames.frame import FrameCall
from loomlog.projections.frames.masking import mask_input
from loomlog.projections.frames.turn_events import visible_calls
from loomlog.projections.tables import Scope, define_table, in_scope
from loomlog.schemas.generated.run_events import (
    CompactionFailed,
    CompactionRequested,
    ContextCompacted,
    InterruptionOpened,
    ModelCallFailed,
    ModelCallRequested,
    ModelReplied,
    ToolCallRequested,
    ToolOutcomeAsked,
    ToolReturned,
    TurnCancelled,
)

PREVIEW_CHARACTERS = 400
"""Of inputs and outputs; the whole is in the transcript. Enough for a line or two of a timeline."""
PAGE_MAX = 2_000
"""Most steps of one page."""
MODEL, TOOL, COMPACTION = "model", "tool", "compaction"


class StepRow(NamedTuple):
    """A step. Times in UTC milliseconds, cost in millionths of `currency`. None is what is not known (yet)."""

    run_id: str
    turn: int
    kind: str
    """model, tool or compaction; `turn` of a compaction is the one that comes after it."""
    number: int
    """Attempt of a model call from 1, index of a tool call in its turn from 0, number of a compaction in its run."""
    tenant: str
    seq: int
    """Of the first event of the step: sorts the timeline."""
    attempt: int
    """Latest attempt."""
    call_id: str | None = None
    """Tool calls only."""
    name: str | None = None
    """Tool, or provider/model."""
    effect_class: str | None = None
    """Tool calls only."""
    requested_at_ms: int | None = None
    not_before_ms: int | None = None
    """A retry waits until then."""
    ended_at_ms: int | None = None
    duration_ms: int | None = None
    """Of the call itself, without waiting."""
    outcome: str | None = None
    """ok, kind of a failed model call, or outcome of a tool call; None while it is under way. Without `ended_at_ms`,
    outcome_unknown waits for somebody to resolve it, or a further attempt is under way."""
    is_error: bool | None = None
    error: str | None = None
    stop_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cost_micros: int | None = None
    currency: str | None = None
    input_preview: str | None = None
    output_preview: str | None = None


steps = define_table("steps", StepRow, key=["run_id", "turn", "kind", "number"], fillfactor=85)

FIRST_WINS = frozenset({"tenant", "seq", "requested_at_ms"})
"""Columns that keep what was written first; all others take what comes later."""
FIRST_PLACES = tuple(StepRow._fields.index(name) for name in sorted(FIRST_WINS))
StepKey = tuple[str, int, str, int]


def apply(calls: Mapping[str, FrameCall], events: Sequence[PositionedEvent]) -> dict[StepKey, StepRow]:
    """The changes these events of one run make. `calls` are those of the latest turn before them, by id."""
    rows: dict[StepKey, StepRow] = {}
    known = dict(calls)
    for at in events:
        if isinstance(at.event, ModelReplied):
            known = dict(visible_calls(at.event))
        change = _change(known, at)
        if change is not None:
            key = (change.run_id, change.turn, change.kind, change.number)
            rows[key] = merge_rows(rows[key], change) if key in rows else change
    return rows


def merge_rows(old: StepRow, new: StepRow) -> StepRow:
    """`new` laid over `old`; the same as the upsert does with the policy of FIRST_WINS."""
    values = [a if b is None else b for a, b in zip(old, new, strict=True)]
    for place in FIRST_PLACES:
        if old[place] is not None:
            values[place] = old[place]
    return StepRow._make(values)


def _change(calls: Mapping[str, FrameCall], at: PositionedEvent) -> StepRow | None:
    envelope = at.envelope
    match at.event:
        case ModelCallRequested() as event:
            return _model(
                at,
                event,
                name=f"{event.provider}/{event.model}",
                requested_at_ms=envelope.at_ms,
                not_before_ms=event.not_before_ms or None,
            )
        case ModelReplied() as event:
            return _model(
                at,
                event,
                name=f"{event.provider}/{event.model}",
                ended_at_ms=envelope.at_ms,
                duration_ms=event.duration_ms,
                outcome="ok",
                is_error=False,
                stop_reason=event.stop_reason,
                input_tokens=event.usage.input_tokens,
                output_tokens=event.usage.output_tokens,
                cache_creation_input_tokens=event.usage.cache_creation_input_tokens,
                cache_read_input_tokens=event.usage.cache_read_input_tokens,
                cost_micros=event.cost_micros,
                currency=event.currency,
                output_preview=_preview(event.text),
            )
        case ModelCallFailed() as event:
            return _model(
                at,
                event,
                name=f"{event.provider}/{event.model}",
                ended_at_ms=envelope.at_ms,
                duration_ms=event.duration_ms,
                outcome=event.kind,
                is_error=True,
                error=event.message,
            )
        case CompactionRequested() as event:
            return _compaction(at, event, requested_at_ms=envelope.at_ms)
        case ContextCompacted() as event:
            return _summary(at, event, outcome="ok", is_error=False, output_preview=_preview(event.summary))
        case CompactionFailed() as event:
            return _summary(at, event, outcome=event.kind, is_error=True, error=event.message)
        case ToolCallRequested() as event:
            return _tool(
                at, event, calls.get(event.call_id), effect_class=event.effect_class, requested_at_ms=envelope.at_ms
            )
        case TurnCancelled(attempt=attempt) as event if attempt > 0:
            return _model(
                at,
                event,
                name=f"{event.provider}/{event.model}",
                ended_at_ms=envelope.at_ms,
                outcome="cancelled",
                output_preview=_preview(event.text),
            )
        case InterruptionOpened() as event:
            return _tool(at, event, calls.get(event.call_id), requested_at_ms=envelope.at_ms)
        case ToolOutcomeAsked() as event:
            return _tool(
                at,
                event,
                calls.get(event.call_id),
                outcome="outcome_unknown",
                output_preview=_preview(event.reason),
            )
        case ToolReturned() as event:
            return _tool(
                at,
                event,
                calls.get(event.call_id),
                ended_at_ms=envelope.at_ms,
                duration_ms=event.duration_ms,
                outcome=event.outcome,
                is_error=event.is_error,
                output_preview=_preview(event.text),
            )
        case _:
            return None


def _model(
    at: PositionedEvent, event: ModelCallRequested | ModelReplied | ModelCallFailed | TurnCancelled, **more: Any
) -> StepRow:
    return StepRow(
        run_id=at.envelope.aggregate,
        turn=event.turn,
        kind=MODEL,
        number=event.attempt,
        tenant=at.envelope.tenant,
        seq=at.envelope.seq,
        attempt=event.attempt,
        **more,
    )


def _compaction(
    at: PositionedEvent, event: CompactionRequested | ContextCompacted | CompactionFailed, **more: Any
) -> StepRow:
    return StepRow(
        run_id=at.envelope.aggregate,
        turn=event.turn,
        kind=COMPACTION,
        number=event.number,
        tenant=at.envelope.tenant,
        seq=at.envelope.seq,
        attempt=event.attempt,
        name=f"{event.provider}/{event.model}",
        **more,
    )


def _summary(at: PositionedEvent, event: ContextCompacted | CompactionFailed, **more: Any) -> StepRow:
    """The end of a summary call."""
    return _compaction(
        at,
        event,
        ended_at_ms=at.envelope.at_ms,
        duration_ms=event.duration_ms,
        input_tokens=event.usage.input_tokens,
        output_tokens=event.usage.output_tokens,
        cache_creation_input_tokens=event.usage.cache_creation_input_tokens,
        cache_read_input_tokens=event.usage.cache_read_input_tokens,
        cost_micros=event.cost_micros,
        currency=event.currency,
        **more,
    )


def _tool(
    at: PositionedEvent,
    event: ToolCallRequested | ToolOutcomeAsked | ToolReturned | InterruptionOpened,
    call: FrameCall | None,
    **more: Any,
) -> StepRow:
    return StepRow(
        run_id=at.envelope.aggregate,
        turn=event.turn,
        kind=TOOL,
        number=event.index,
        tenant=at.envelope.tenant,
        seq=at.envelope.seq,
        attempt=1 if isinstance(event, InterruptionOpened) else event.attempt,
        call_id=event.call_id,
        name=None if call is None else call.name,
        input_preview=None if call is None else _preview(orjson.dumps(mask_input(call.input)).decode()),
        **more,
    )


def _preview(text: str) -> str | None:
    """The beginning of a text; of encrypted content the whole token, or nothing, because half of one opens nothing."""
    if len(text) > PREVIEW_CHARACTERS and has_tokens(text):
        return None
    return text[:PREVIEW_CHARACTERS] or None


async def steps_of_run(
    reader: PostgresReader, tenant: Scope, run_id: str, *, limit: int = PAGE_MAX, after: StepRow | None = None
) -> list[StepRow]:
    """Steps in the order they began; `after` is the last of an earlier page."""
    conditions = [in_scope(steps.c.tenant, tenant), steps.c.run_id == run_id]
    order = (steps.c.seq, steps.c.turn, steps.c.kind, steps.c.number)
    if after is not None:
        conditions.append(tuple_(*order) > tuple_(after.seq, after.turn, after.kind, after.number))
    found = await reader.fetch(select(steps).where(*conditions).order_by(*order).limit(max(1, min(limit, PAGE_MAX))))
    return [StepRow._make(row) for row in found]
