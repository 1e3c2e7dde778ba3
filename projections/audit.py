"""Audit index: the position of each run's history in the log.

One row for every run id that ever had an event, refused requests included: partition, first and last offset, number of
events, and the digest of the last one, which the next event must name as its `prev`. `loomlog audit` seeks by it, and
run owners find a finished run or the last run of a session with it instead of scanning a partition.

It also stores what the projection needs to continue: the last seq (the next event must be one higher) and where a run
was halted because of a gap or an unreadable record. Events after that are counted in `withheld`, never folded; a
rebuild with code that can read them restores the run.

Before: projections/engine/run_projection.py. After: services/runtime, the CLI, the API.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Index, select

from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.engine.batch import PositionedEvent, ProjectionItem
from loomlog.projections.tables import Scope, define_table, in_scope
from loomlog.schemas.generated.run_events import RunCancelled, RunCompleted, RunFailed, RunRefused, RunStarted

DIGEST_BYTES = 16
"""Length of Envelope.prev."""
ENDED = frozenset({"completed", "failed", "cancelled"})


class AuditRow(NamedTuple):
    """Position of a run in the log."""

    run_id: str
    tenant: str
    """Empty when no event of it could be read."""
    session_id: str
    partition: int
    first_offset: int
    last_offset: int
    last_seq: int
    events: int
    tail_digest: bytes
    """First 16 bytes of the SHA-256 of the last event's record value."""
    status: str
    """open, completed, failed, cancelled or refused."""
    reason: str
    """Stop reason, reason of the cancel, or reason code of the failure or refusal."""
    started_at_ms: int
    ended_at_ms: int | None
    halted_offset: int | None
    """Offset of the record that could not be projected; no later record of the run was."""
    withheld: int
    """Number of records from `halted_offset` on."""


audit = define_table(
    "audit",
    AuditRow,
    Index("audit_session", "session_id", "tenant", "first_offset"),
    key=["run_id"],
    fillfactor=70,
)


def apply(before: AuditRow | None, events: Sequence[PositionedEvent]) -> AuditRow | None:
    """The row after these events of its run, which have no gaps and follow `before`."""
    if not events:
        return before
    first, last = events[0], events[-1]
    row = before or AuditRow(
        run_id=first.envelope.aggregate,
        tenant=first.envelope.tenant,
        session_id="",
        partition=first.partition,
        first_offset=first.offset,
        last_offset=first.offset,
        last_seq=0,
        events=0,
        tail_digest=bytes(DIGEST_BYTES),
        # A run that never starts was refused, whatever its events are.
        status="refused",
        reason="",
        started_at_ms=first.envelope.at_ms,
        ended_at_ms=None,
        halted_offset=None,
        withheld=0,
    )
    for at in events:
        row = _apply_event(row, at)
    return row._replace(
        last_offset=last.offset,
        last_seq=last.envelope.seq,
        events=row.events + len(events),
        tail_digest=hashlib.sha256(last.value).digest()[:DIGEST_BYTES],
    )


def _apply_event(row: AuditRow, at: PositionedEvent) -> AuditRow:
    match at.event:
        case RunStarted(session_id=session_id):
            return row._replace(session_id=session_id, status="open", started_at_ms=at.envelope.at_ms)
        case RunRefused(session_id=session_id, code=code):
            return row._replace(session_id=session_id, reason=code, ended_at_ms=at.envelope.at_ms)
        case RunCompleted(stop_reason=reason):
            return row._replace(status="completed", reason=reason, ended_at_ms=at.envelope.at_ms)
        case RunFailed(code=code):
            return row._replace(status="failed", reason=code, ended_at_ms=at.envelope.at_ms)
        case RunCancelled(reason=reason):
            return row._replace(status="cancelled", reason=reason, ended_at_ms=at.envelope.at_ms)
        case _:
            return row


def halt(before: AuditRow | None, run_id: str, partition: int, items: Sequence[ProjectionItem]) -> AuditRow:
    """The row of a run that is halted, now or earlier, before `items`, the first of which cannot be folded."""
    offset = items[0].offset
    if before is not None:
        halted = before.halted_offset if before.halted_offset is not None else offset
        return before._replace(halted_offset=halted, withheld=before.withheld + len(items))
    first = items[0]
    return AuditRow(
        run_id=run_id,
        # From the first record only: the others could come in a later poll, and rows must not depend on polls.
        tenant=first.envelope.tenant if isinstance(first, PositionedEvent) else "",
        session_id="",
        partition=partition,
        first_offset=offset,
        last_offset=offset,
        last_seq=0,
        events=0,
        tail_digest=bytes(DIGEST_BYTES),
        status="refused",
        reason="",
        started_at_ms=0,
        ended_at_ms=None,
        halted_offset=offset,
        withheld=len(items),
    )


async def find_run(reader: PostgresReader, tenant: Scope, run_id: str) -> AuditRow | None:
    """The row of a run of any status. For a halted run it covers only the part before the halt."""
    rows = await reader.fetch(select(audit).where(in_scope(audit.c.tenant, tenant), audit.c.run_id == run_id))
    return AuditRow._make(rows[0]) if rows else None


async def last_run_of_session(reader: PostgresReader, tenant: Scope, session_id: str) -> AuditRow | None:
    """The newest accepted run of a session. All runs of a session share a partition, so offsets order them."""
    rows = await reader.fetch(
        select(audit)
        .where(in_scope(audit.c.tenant, tenant), audit.c.session_id == session_id, audit.c.status != "refused")
        .order_by(audit.c.first_offset.desc())
        .limit(1)
    )
    return AuditRow._make(rows[0]) if rows else None
