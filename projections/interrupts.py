"""Interrupts: one row for every question a run has asked a person, and for every notice.

The event that opens a question inserts its row, the event that closes it adds the outcome; a notice is delivered with
its one event. The two events of a question may come in different polls. So a change holds only the fields its event
knows and is merged as `coalesce(new, old)`, in memory and in SQL alike (`merge_rows` and the writer's `cover` policy):
how events fall into polls makes no difference.

Before: projections/engine/run_projection.py. After: GET /v1/interrupts, /v1/runs/{run_id}/interrupts,
/v1/users/{user_id}/interrupts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
from sqlalchemy import ColumnElement, Index, Text, and_, cast, func, literal, or_, select, text, tuple_
from sqlalchemy.dialects.postgresql import JSONB

from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.engine.batch import PositionedEvent
from loomlog.projections.runs import RunRow
from loomlog.projections.tables import (
    Json,
    Scope,
    define_table,
    in_scope,
    one_of,
    page_token,
    parse_page_token,
    parse_token_number,
)
from loomlog.schemas.generated.run_events import (
    ApprovalDecided,
    ApprovalEscalated,
    ApprovalGiven,
    InterruptionClosed,
    InterruptionOpened,
    PersonNotified,
)
from loomlog.schemas.records import Value

PENDING, DELIVERED = "pending", "delivered"
STATUSES = (PENDING, "resolved", "declined", "timed_out", "cancelled", DELIVERED)
"""Values of InterruptRow.status; `delivered` is a notice, which needs no answer."""
NOTICE = "notice"
"""Kind of a row that needs no answer."""
PAGE_MAX = 500
"""Most rows of one page."""


class InterruptRow(NamedTuple):
    """The current state of an interrupt. Times in UTC milliseconds. None: not known (yet), or not applicable."""

    run_id: str
    interrupt_id: str
    tenant: str
    seq: int
    """Seq of the event that opened it."""
    user_id: str | None = None
    session_id: str | None = None
    agent_id: str | None = None
    agent: str | None = None
    call_id: str | None = None
    kind: str | None = None
    """question, notice or approval."""
    status: str | None = None
    """One of STATUSES."""
    question: str | None = None
    """Text of the question or notice."""
    options: Json | None = None
    """JSON array of strings."""
    context: str | None = None
    priority: str | None = None
    created_at_ms: int | None = None
    expires_at_ms: int | None = None
    ended_at_ms: int | None = None
    answer: str | None = None
    resolved_by: str | None = None
    """Name of the person who answered, as the caller gave it."""
    sent_by: str | None = None
    """Subject of the caller that sent the answer."""
    terms: Json | None = None
    """The verdict on the call of an approval (ApprovalDecided), a JSON object."""
    votes: Json | None = None
    """Votes of the present group of an approval, a JSON array."""
    approver_group: int | None = None
    """Place of the group of approvers that is asked; None: the first."""


interrupts = define_table(
    "interrupts",
    InterruptRow,
    Index("interrupts_user", "user_id", "tenant", "created_at_ms", "run_id", "interrupt_id"),
    # Pending interrupts are few among many ended ones.
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
"""Columns that keep their first value; all others take the latest one."""
_FIRST_WINS_INDEXES = tuple(InterruptRow._fields.index(name) for name in sorted(FIRST_WINS))
InterruptKey = tuple[str, str]
ApprovalEvent = ApprovalDecided | ApprovalGiven | ApprovalEscalated
InterruptEvent = InterruptionOpened | PersonNotified | InterruptionClosed | ApprovalEvent


def apply(run: RunRow, events: Sequence[PositionedEvent]) -> dict[InterruptKey, InterruptRow]:
    """The changes by these events of one run, by key."""
    rows: dict[InterruptKey, InterruptRow] = {}
    for at in events:
        change = _change(run, at)
        if change is not None:
            key = (change.run_id, change.interrupt_id)
            rows[key] = merge_rows(rows[key], change) if key in rows else change
    return rows


def merge_rows(old: InterruptRow, new: InterruptRow) -> InterruptRow:
    """Merges `new` over `old`, as the upsert with the policy `cover` and FIRST_WINS does."""
    values = [a if b is None else b for a, b in zip(old, new, strict=True)]
    for index in _FIRST_WINS_INDEXES:
        values[index] = old[index]
    return InterruptRow._make(values)


def _change(run: RunRow, at: PositionedEvent) -> InterruptRow | None:
    match at.event:
        case ApprovalDecided(interrupt_id=interrupt_id) as event:
            terms = _json(event.to_avro()).replace("\\u0000", "\\ufffd")  # `jsonb` in _named refuses it
            return _row(at, event, terms=terms) if interrupt_id else None
        case ApprovalGiven() as event:
            return _row(at, event, votes=_json([vote.to_avro() for vote in event.votes]))
        case ApprovalEscalated() as event:
            return _row(at, event, votes="[]", approver_group=event.group, expires_at_ms=event.expires_at_ms)
        case InterruptionOpened() as event:
            return _row(
                at,
                event,
                **_run_columns(run),
                kind=event.kind,
                status=PENDING,
                question=event.question,
                options=_json(event.options),
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


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _row(at: PositionedEvent, event: InterruptEvent, **columns: Any) -> InterruptRow:
    return InterruptRow(
        run_id=at.envelope.aggregate,
        interrupt_id=event.interrupt_id,
        tenant=at.envelope.tenant,
        seq=at.envelope.seq,
        call_id=event.call_id,
        **columns,
    )


# --- queries ---------------------------------------------------------------------------------------------------------


class InterruptFilter(Value, frozen=True, kw_only=True):
    """Filter of a list of interrupts; an empty field does not restrict it."""

    statuses: frozenset[str] = frozenset()
    run_id: str = ""
    user_id: str = ""
    approver: str = ""
    """Besides those of `user_id`: the approvals that wait and name this subject."""
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptPage:
    """One page of a list, newest first. `next` is the token of the next page, empty at the end; `total` counts all
    pages."""

    rows: tuple[InterruptRow, ...]
    next: str
    total: int


async def interrupt_by_id(reader: PostgresReader, tenant: Scope, run_id: str, interrupt_id: str) -> InterruptRow | None:
    """The interrupt with this run id and interrupt id."""
    columns = interrupts.c
    conditions = [in_scope(columns.tenant, tenant), columns.run_id == run_id, columns.interrupt_id == interrupt_id]
    rows = await reader.fetch(select(interrupts).where(*conditions))
    return InterruptRow._make(rows[0]) if rows else None


async def list_interrupts(
    reader: PostgresReader, tenant: Scope, filters: InterruptFilter, *, limit: int = PAGE_MAX, after: str = ""
) -> InterruptPage:
    """Interrupts, newest first. Raises InvalidPageToken for an `after` that this list did not issue."""
    limit = max(1, min(limit, PAGE_MAX))
    columns = interrupts.c
    order = (columns.created_at_ms, columns.run_id, columns.interrupt_id)
    conditions = [in_scope(columns.tenant, tenant), *_conditions(filters)]
    counted = await reader.fetch(select(func.count()).select_from(interrupts).where(*conditions))
    if after:
        created_at_ms, run_id, interrupt_id = parse_page_token(after, 3)
        conditions.append(tuple_(*order) < tuple_(parse_token_number(created_at_ms), run_id, interrupt_id))
    fetched = await reader.fetch(
        select(interrupts).where(*conditions).order_by(*(column.desc() for column in order)).limit(limit + 1)
    )
    rows = tuple(InterruptRow._make(row) for row in fetched[:limit])
    next_token = ""
    if len(fetched) > limit:
        next_token = page_token(rows[-1].created_at_ms, rows[-1].run_id, rows[-1].interrupt_id)
    return InterruptPage(rows=rows, next=next_token, total=int(counted[0][0]))


def _named(approver: str) -> list[ColumnElement[bool]]:
    if not approver:
        return []
    named = _json({"verdict": {"groups": [{"subjects": [approver]}]}})
    contains = cast(interrupts.c.terms, JSONB).op("@>")(cast(literal(named, Text), JSONB))
    return [and_(interrupts.c.status == PENDING, contains)]


def _conditions(filters: InterruptFilter) -> list[ColumnElement[bool]]:
    columns = interrupts.c
    conditions: list[ColumnElement[bool]] = []
    if filters.run_id:
        conditions.append(columns.run_id == filters.run_id)
    if filters.user_id:
        conditions.append(or_(columns.user_id == filters.user_id, *_named(filters.approver)))
    if filters.kind:
        conditions.append(columns.kind == filters.kind)
    if filters.statuses == {PENDING}:
        conditions.append(columns.status == PENDING)  # as the partial index has it
    elif filters.statuses:
        conditions.append(one_of(columns.status, sorted(filters.statuses)))
    return conditions
