"""Interrupts: one row for every question a run has asked a person, and for every notice.

The event that opens a question makes its row, the one that closes it says how it ended; a notice is delivered with its
one event. Either may come in another poll than the other, so a change is only the fields one event knows, laid over the
row as in steps.py.

Before: projections/engine/run_projection.py. After: GET /v1/interrupts, /v1/runs/{run_id}/interrupts,
/v1/users/{user_id}/interrupts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
from sqlalchemy import ColumnElement, Index, func, select, text, tuple_

from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.engine.batch import PositionedEvent
from loomlog.projections.runs import RunRow
from loomlog.projections.tables import (
    Json,
    Scope,
    define_table,
    in_scope,
    page_token,
    parse_page_token,
    parse_token_number,
)
from loomlog.schemas.generated.run_events import InterruptionClosed, InterruptionOpened, PersonNotified
from loomlog.schemas.records import Value

PENDING, DELIVERED = "pending", "delivered"
STATUSES = (PENDING, "resolved", "declined", "timed_out", "cancelled", DELIVERED)
"""What a row can be; `delivered` is a notice, which nobody has to answer."""
NOTICE = "notice"
"""Kind of a row that only tells something."""
PAGE_MAX = 500
"""Most rows of one page."""


class InterruptRow(NamedTuple):
    """An interrupt as it is now. Times in UTC milliseconds. None is what is not known (yet), or does not apply."""

    run_id: str
    interrupt_id: str
    tenant: str
    seq: int
    """Of the event that opened it."""
    user_id: str | None = None
    session_id: str | None = None
    agent_id: str | None = None
    agent: str | None = None
    call_id: str | None = None
    kind: str | None = None
    """question or notice."""
    status: str | None = None
    """One of STATUSES."""
    question: str | None = None
    """What is asked, or told."""
    options: Json | None = None
    """JSON array of texts."""
    context: str | None = None
    priority: str | None = None
    created_at_ms: int | None = None
    expires_at_ms: int | None = None
    ended_at_ms: int | None = None
    answer: str | None = None
    resolved_by: str | None = None
    """Who has answered, as they were named."""
    sent_by: str | None = None
    """Subject of the caller who sent the answer."""


interrupts = define_table(
    "interrupts",
    InterruptRow,
    Index("interrupts_user", "user_id", "tenant", "created_at_ms", "run_id", "interrupt_id"),
    # Those that wait are few among many that have ended.
    Index(
        "interrupts_pending",
        "tenant",
        "created_at_ms",
        "run_id",
        "interrupt_id",
        postgresql_where=text("status = 'pending'"),
    ),
    key=["run_id", "interrupt_id"],
    fillfactor=70,
)

FIRST_WINS = frozenset({"tenant", "seq"})
"""Columns that keep what was written first; all others take what comes later."""
FIRST_PLACES = tuple(InterruptRow._fields.index(name) for name in sorted(FIRST_WINS))
InterruptKey = tuple[str, str]


def apply(run: RunRow, events: Sequence[PositionedEvent]) -> dict[InterruptKey, InterruptRow]:
    """The changes these events of one run make."""
    rows: dict[InterruptKey, InterruptRow] = {}
    for at in events:
        change = _change(run, at)
        if change is not None:
            key = (change.run_id, change.interrupt_id)
            rows[key] = merge_rows(rows[key], change) if key in rows else change
    return rows


def merge_rows(old: InterruptRow, new: InterruptRow) -> InterruptRow:
    """`new` laid over `old`; the same as the upsert does with the policy of FIRST_WINS."""
    values = [a if b is None else b for a, b in zip(old, new, strict=True)]
    for place in FIRST_PLACES:
        values[place] = old[place]
    return InterruptRow._make(values)


def _change(run: RunRow, at: PositionedEvent) -> InterruptRow | None:
    match at.event:
        case InterruptionOpened() as event:
            return _row(
                at,
                event,
                **_run_columns(run),
                kind=event.kind,
                status=PENDING,
                question=event.question,
                options=orjson.dumps(event.options).decode(),
                context=event.context,
                priority=event.priority,
                created_at_ms=at.envelope.at_ms,
                expires_at_ms=event.expires_at_ms,
            )
        case PersonNotified() as event:
            return _row(
                at,
                event,
                **_run_columns(run),
                kind=NOTICE,
                status=DELIVERED,
                question=event.message,
                options="[]",
                context=event.context,
                priority=event.priority,
                created_at_ms=at.envelope.at_ms,
            )
        case InterruptionClosed() as event:
            return _row(
                at,
                event,
                status=event.status,
                ended_at_ms=at.envelope.at_ms,
                answer=event.answer or None,
                resolved_by=event.resolved_by or None,
                sent_by=event.by or None,
            )
        case _:
            return None


def _run_columns(run: RunRow) -> dict[str, str]:
    return {"user_id": run.user_id, "session_id": run.session_id, "agent_id": run.agent_id, "agent": run.agent}


def _row(
    at: PositionedEvent, event: InterruptionOpened | PersonNotified | InterruptionClosed, **more: Any
) -> InterruptRow:
    return InterruptRow(
        run_id=at.envelope.aggregate,
        interrupt_id=event.interrupt_id,
        tenant=at.envelope.tenant,
        seq=at.envelope.seq,
        call_id=event.call_id,
        **more,
    )


# --- queries ---------------------------------------------------------------------------------------------------------


class InterruptFilter(Value, frozen=True, kw_only=True):
    """Which interrupts to list; what is empty does not narrow."""

    statuses: frozenset[str] = frozenset()
    run_id: str = ""
    user_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptPage:
    """A part of a list, newest first. `next` is the place to go on from, empty at the end; `total` counts all of it."""

    rows: tuple[InterruptRow, ...]
    next: str
    total: int


async def interrupt_by_id(reader: PostgresReader, tenant: Scope, run_id: str, interrupt_id: str) -> InterruptRow | None:
    """The interrupt of that run and id."""
    columns = interrupts.c
    conditions = [in_scope(columns.tenant, tenant), columns.run_id == run_id, columns.interrupt_id == interrupt_id]
    found = await reader.fetch(select(interrupts).where(*conditions))
    return InterruptRow._make(found[0]) if found else None


async def list_interrupts(
    reader: PostgresReader, tenant: Scope, filters: InterruptFilter, *, limit: int = PAGE_MAX, after: str = ""
) -> InterruptPage:
    """Interrupts, newest first. Raises InvalidPageToken for an `after` that this list did not give out."""
    limit = max(1, min(limit, PAGE_MAX))
    columns = interrupts.c
    order = (columns.created_at_ms, columns.run_id, columns.interrupt_id)
    conditions = [in_scope(columns.tenant, tenant), *_conditions(filters)]
    counted = await reader.fetch(select(func.count()).select_from(interrupts).where(*conditions))
    if after:
        created_at_ms, run_id, interrupt_id = parse_page_token(after, 3)
        conditions.append(tuple_(*order) < tuple_(parse_token_number(created_at_ms), run_id, interrupt_id))
    found = await reader.fetch(
        select(interrupts).where(*conditions).order_by(*(column.desc() for column in order)).limit(limit + 1)
    )
    rows = tuple(InterruptRow._make(row) for row in found[:limit])
    place = ""
    if len(found) > limit:
        place = page_token(rows[-1].created_at_ms, rows[-1].run_id, rows[-1].interrupt_id)
    return InterruptPage(rows=rows, next=place, total=int(counted[0][0]))


def _conditions(filters: InterruptFilter) -> list[ColumnElement[bool]]:
    columns = interrupts.c
    found: list[ColumnElement[bool]] = []
    if filters.run_id:
        found.append(columns.run_id == filters.run_id)
    if filters.user_id:
        found.append(columns.user_id == filters.user_id)
    if filters.statuses == {PENDING}:
        found.append(columns.status == PENDING)  # in the words of the partial index
    elif filters.statuses:
        found.append(columns.status.in_(sorted(filters.statuses)))
    return found
