"""Settled sessions: conversations in which no run is under way, oldest first; and what was said in them.

A session is settled when all its runs have ended; it was completed when the last one did. Sub-agents are left out:
what they were asked is no conversation. So are agents that maintain memory, whose names begin with `memory/`.

A user's sessions are found by an index. Those of an agent or a tenant cost a read of the tenant's runs, once a pass.

Before: runs.py, transcript.py. After: services/families/consolidation/chats.py.
"""

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import ColumnElement, and_, func, select, tuple_

from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.runs import runs
from loomlog.projections.tables import one_of
from loomlog.projections.transcript import TranscriptRow, transcript
from loomlog.schemas.records import Value

MAINTENANCE_AGENTS = "memory/"
"""Beginning of the names of agents whose own conversations are never learnt from."""
DIALOGUE_FRAMES = ("user_input", "text")
PAGE_MAX = 200
"""Frames read at once; each may have 64 KB."""


class SettledSession(NamedTuple):
    """A settled session, and when its last run ended (UTC milliseconds)."""

    session_id: str
    completed_at_ms: int


class SessionFilter(Value, frozen=True, kw_only=True):
    """Filter of sessions: those of a user, of an agent, or of the whole tenant when both are empty."""

    tenant: str
    user_id: str = ""
    agent: str = ""
    without_agents: Collection[str] = ()


class FramePlace(NamedTuple):
    """Position of a frame in a session."""

    started_at_ms: int
    run_id: str
    seq: int


_BY_BYTES = runs.c.session_id.collate("C")


async def settled_sessions(
    reader: PostgresReader, whose: SessionFilter, *, after: SettledSession, without: str = "", limit: int
) -> list[SettledSession]:
    """Return at most `limit` settled sessions completed after that one, oldest first; `without` is left out."""
    completed = func.max(runs.c.ended_at_ms)
    query = (
        select(runs.c.session_id, completed)
        .where(*_conditions(whose), runs.c.session_id != without)
        .group_by(runs.c.session_id)
        .having(
            and_(_all_ended(), tuple_(completed, _BY_BYTES) > tuple_(after.completed_at_ms, after.session_id)),
        )
        .order_by(completed, _BY_BYTES)
        .limit(limit)
    )
    return [SettledSession(*row) for row in await reader.fetch(query)]


async def settled_session(reader: PostgresReader, whose: SessionFilter, session_id: str) -> SettledSession | None:
    """Return a session; None unless it is settled, and one of these."""
    query = (
        select(runs.c.session_id, func.max(runs.c.ended_at_ms))
        .where(*_conditions(whose), runs.c.session_id == session_id)
        .group_by(runs.c.session_id)
        .having(_all_ended())
    )
    rows = await reader.fetch(query)
    return SettledSession(*rows[0]) if rows else None


async def last_dialogue_frames(
    reader: PostgresReader, whose: SessionFilter, session_id: str, *, before: FramePlace | None = None
) -> list[tuple[FramePlace, TranscriptRow]]:
    """Return the last frames with inputs and answers, newest first: at most PAGE_MAX, those before a place."""
    order = (runs.c.started_at_ms, runs.c.run_id, transcript.c.seq)
    conditions = [*_conditions(whose), runs.c.session_id == session_id, one_of(transcript.c.type, DIALOGUE_FRAMES)]
    if before is not None:
        conditions.append(tuple_(*order) < tuple_(*before))
    query = (
        select(transcript, runs.c.started_at_ms)
        .join(runs, runs.c.run_id == transcript.c.run_id)
        .where(*conditions)
        .order_by(*(column.desc() for column in order))
        .limit(PAGE_MAX)
    )
    frames = [(TranscriptRow._make(row[:-1]), row[-1]) for row in await reader.fetch(query)]
    return [(FramePlace(started_at_ms, row.run_id, row.seq), row) for row, started_at_ms in frames]


def _conditions(whose: SessionFilter) -> list[ColumnElement[bool]]:
    columns = runs.c
    conditions: list[ColumnElement[bool]] = [
        columns.tenant == whose.tenant,
        columns.parent_run_id == "",
        columns.agent.not_like(f"{MAINTENANCE_AGENTS}%"),
    ]
    if whose.user_id:
        conditions.append(columns.user_id == whose.user_id)
    if whose.agent:
        conditions.append(columns.agent == whose.agent)
    if whose.without_agents:
        conditions.append(columns.agent.not_in(sorted(whose.without_agents)))
    return conditions


def _all_ended() -> ColumnElement[bool]:
    return func.bool_and(runs.c.status != "running")
