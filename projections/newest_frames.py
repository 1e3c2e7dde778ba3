"""The stored frames of all runs, newest first: what happened in an installation or a tenant.

Frames are in the order of `place`, which rises with time over all runs. A page looks at a bounded number of frames, so
that a filter that few of them meet costs no more than one that all meet; the page then says where to go on.

Before: services/application/queries/runs.py. After: projections/transcript.py, Postgres.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Subquery, func, select, tuple_

from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.tables import Scope, in_scope, page_token, parse_page_token, parse_token_number
from loomlog.projections.transcript import TranscriptRow, first_place, transcript

SCANNED_MAX = 50_000
"""Frames that one page looks at, and counts: some tens of milliseconds."""
KEY = (transcript.c.place, transcript.c.run_id, transcript.c.seq)
ORDER = tuple(column.desc() for column in KEY)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameFilter:
    """Which frames. Times in UTC milliseconds, from <= time < to; None: unbounded. `type` empty: all."""

    type: str = ""
    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FramePage:
    """Frames, newest first. `next` is the token of the next page, empty at the end; a page may be empty before it.

    `total` counts the frames of the filter among the newest SCANNED_MAX; `is_total_exact`: they are fewer.
    """

    rows: tuple[TranscriptRow, ...]
    next: str
    total: int
    is_total_exact: bool


async def newest_frames(
    reader: PostgresReader, tenant: Scope, criteria: FrameFilter, *, limit: int, offset: int = 0, after: str = ""
) -> FramePage:
    """The frames of the filter after the first `offset`. Raises InvalidPageToken."""
    conditions = _conditions(tenant, criteria)
    older = [*conditions, tuple_(*KEY) < tuple_(*_parse(after))] if after else conditions
    listed = _of_type(older, criteria.type)
    keys = (
        select(listed.c.run_id, listed.c.seq)
        .order_by(listed.c.place.desc(), listed.c.run_id.desc(), listed.c.seq.desc())
        .limit(limit + 1)
        .offset(offset)
        .subquery()
    )
    of_page = (keys.c.run_id == transcript.c.run_id) & (keys.c.seq == transcript.c.seq)
    fetched = await reader.fetch(select(transcript).join(keys, of_page).order_by(*ORDER))
    rows = tuple(TranscriptRow._make(row) for row in fetched[:limit])
    last = (rows[-1].place, rows[-1].run_id, rows[-1].seq) if len(fetched) > limit else await _last_seen(reader, older)
    counted = await reader.fetch(select(func.count()).select_from(_of_type(conditions, criteria.type)))
    return FramePage(
        rows=rows,
        next=page_token(*last) if last else "",
        total=sum(row[0] for row in counted),
        is_total_exact=await _last_seen(reader, conditions) is None,
    )


def _conditions(tenant: Scope, criteria: FrameFilter) -> list[ColumnElement[bool]]:
    conditions = [in_scope(transcript.c.tenant, tenant)]
    if criteria.from_ms is not None:
        conditions.append(transcript.c.place >= first_place(criteria.from_ms))
    if criteria.to_ms is not None:
        conditions.append(transcript.c.place < first_place(criteria.to_ms))
    return conditions


def _of_type(conditions: Sequence[ColumnElement[bool]], kind: str) -> Subquery:
    """The frames of a type among those that are looked at."""
    seen = select(*KEY, transcript.c.type).where(*conditions).order_by(*ORDER).limit(SCANNED_MAX).subquery()
    return select(seen).where(seen.c.type == kind).subquery() if kind else seen


async def _last_seen(reader: PostgresReader, conditions: Sequence[ColumnElement[bool]]) -> tuple[Any, ...] | None:
    """Place, run and seq of the last frame that is looked at; None when there are fewer."""
    rows = await reader.fetch(select(*KEY).where(*conditions).order_by(*ORDER).limit(1).offset(SCANNED_MAX - 1))
    return rows[0] if rows else None


def _parse(after: str) -> tuple[int, str, int]:
    place, run_id, seq = parse_page_token(after, 3)
    return parse_token_number(place), run_id, parse_token_number(seq)
