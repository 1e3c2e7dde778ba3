"""Which runs there are: the questions that lists and status pages ask of the rows of runs.py.

Before: runs.py folds the rows. After: GET /v1/runs, /v1/agents/{agent_id}, /v1/users/{user_id}/agents.
"""

from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import ColumnElement, and_, func, select, tuple_

from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.runs import RunRow, runs
from loomlog.projections.tables import Scope, in_scope, page_token, parse_page_token, parse_token_number
from loomlog.schemas.records import Value

PAGE_MAX = 500
"""Most runs of one page, so that an answer stays below a megabyte."""
ACTIVE_ROWS_MAX = 10_000
"""Users and their providers of which runs at work are counted; an answer of more helps nobody."""
SAME_HANDLE_MAX = 20
"""Newest runs of a handle among which a live one is looked for. Mostly it is the newest of its tenant: a handle that is
live is refused, and only starts at the same moment in two partitions have it both."""


class RunFilter(Value, frozen=True, kw_only=True):
    """Which runs to list; what is empty does not narrow. Times: `since_ms` <= started < `until_ms`."""

    statuses: frozenset[str] = frozenset()
    agent: str = ""
    agent_id: str = ""
    parent_agent_id: str = ""
    user_id: str = ""
    session_id: str = ""
    root_run_id: str = ""
    resident: bool = False
    """Only resident children."""
    since_ms: int = 0
    until_ms: int = 0


class ActiveRuns(NamedTuple):
    """So many runs of a user are at work with a provider."""

    user_id: str
    provider: str
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """A part of a list, newest first. `next` is the place to go on from, empty at the end."""

    rows: tuple[RunRow, ...]
    next: str


async def run_by_id(reader: PostgresReader, tenant: Scope, run_id: str) -> RunRow | None:
    """The run of that id."""
    found = await reader.fetch(select(runs).where(in_scope(runs.c.tenant, tenant), runs.c.run_id == run_id))
    return RunRow._make(found[0]) if found else None


async def run_by_handle(
    reader: PostgresReader, tenant: Scope, agent_id: str, *, user_id: str = "", preferred_tenant: str = ""
) -> RunRow | None:
    """The run that is meant by a handle: one of the tenant `home` before others', a live one before one that has ended,
    the newest of those. Of one user if given.
    """
    for scope in dict.fromkeys((preferred_tenant or tenant, tenant)):
        page = await list_runs(reader, scope, RunFilter(agent_id=agent_id, user_id=user_id), limit=SAME_HANDLE_MAX)
        if page.rows:
            return next((row for row in page.rows if row.status == "running"), page.rows[0])
    return None


async def count_active_runs(reader: PostgresReader, tenant: Scope) -> list[ActiveRuns]:
    """How many runs are at work, by user and provider, the most first. Reads all that have not ended.

    As admission counts them (services/core/run/lifecycle/activity.py).
    """
    columns = runs.c
    at_work = and_(
        columns.status == "running",
        columns.under_way != "",
        columns.quarantined.is_(False),
        columns.parent_run_id == "",
        columns.told_events == 0,
    )
    count = func.count()
    found = await reader.fetch(
        select(columns.user_id, columns.provider, count)
        .where(in_scope(columns.tenant, tenant), at_work)
        .group_by(columns.user_id, columns.provider)
        .order_by(count.desc(), columns.user_id, columns.provider)
        .limit(ACTIVE_ROWS_MAX)
    )
    return [ActiveRuns(*row) for row in found]


async def list_runs(
    reader: PostgresReader, tenant: Scope, filters: RunFilter, *, limit: int = PAGE_MAX, after: str = ""
) -> RunPage:
    """Runs, newest first. `after` is `next` of an earlier page; rows that come in meanwhile shift nothing.

    Raises InvalidPageToken for an `after` that this list did not give out.
    """
    limit = max(1, min(limit, PAGE_MAX))
    conditions = [in_scope(runs.c.tenant, tenant), *_conditions(filters)]
    if after:
        started_at_ms, run_id = parse_page_token(after, 2)
        conditions.append(
            tuple_(runs.c.started_at_ms, runs.c.run_id) < tuple_(parse_token_number(started_at_ms), run_id)
        )
    found = await reader.fetch(
        select(runs).where(*conditions).order_by(runs.c.started_at_ms.desc(), runs.c.run_id.desc()).limit(limit + 1)
    )
    rows = tuple(RunRow._make(row) for row in found)
    if len(rows) <= limit:
        return RunPage(rows=rows, next="")
    last = rows[limit - 1]
    return RunPage(rows=rows[:limit], next=page_token(last.started_at_ms, last.run_id))


def _conditions(filters: RunFilter) -> list[ColumnElement[bool]]:
    columns = runs.c
    found: list[ColumnElement[bool]] = [
        columns[name] == value
        for name in ("agent", "agent_id", "parent_agent_id", "user_id", "session_id", "root_run_id")
        if (value := getattr(filters, name))
    ]
    if filters.resident:
        found.append(columns.resident.is_(True))
    if filters.statuses:
        found.append(columns.status.in_(sorted(filters.statuses)))
    if filters.since_ms:
        found.append(columns.started_at_ms >= filters.since_ms)
    if filters.until_ms:
        found.append(columns.started_at_ms < filters.until_ms)
    return found
