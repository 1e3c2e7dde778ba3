"""Queries over the rows of runs.py, for lists and status pages.

Before: runs.py folds the rows. After: GET /v1/runs, /v1/runs/counts, /v1/agents/{agent_id}, /v1/users/{user_id}/agents.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, false, func, or_, select, tuple_

from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.entities import storable
from loomlog.projections.runs import RunRow, runs
from loomlog.projections.tables import Scope, in_scope, one_of, page_token, parse_page_token, parse_token_number
from loomlog.schemas.records import Value

PAGE_MAX = 500
"""Most runs of one page; keeps a response below a megabyte."""
ACTIVE_ROWS_MAX = 10_000
"""Most rows of the count of active runs; a longer list would be of no use."""
COUNT_MAX = 10_000
"""Runs of a filter up to which counts are exact: 15 ms among 300,000 runs, 2 cores. A filter without an index (agent,
prefix, parent) may read all runs of its tenant, as the list does.
"""
SAME_HANDLE_MAX = 20
"""Newest runs of a handle that are searched for a live one. Usually the newest is: a start with a live handle is
refused, and only simultaneous starts in two partitions get the same one."""


WAITS = ("awaiting_input", "interrupted", "pause_requested", "quarantined")
"""What a live run may wait for; it may be more than one of them."""


class RunFilter(Value, frozen=True, kw_only=True):
    """Filter of a list of runs; an empty field does not restrict it. Times: `since_ms` <= started < `until_ms`."""

    statuses: frozenset[str] = frozenset()
    agent: str = ""
    agent_id: str = ""
    parent_agent_id: str = ""
    user_id: str = ""
    session_id: str = ""
    root_run_id: str = ""
    def_id: str = ""
    forked_from: str = ""
    """Forks of this run."""
    forked_from_root: str = ""
    """Forks of any run of the tree with this root."""
    id_part: str = ""
    """How an id of the run begins or ends, as pages shorten it: its own, its handle, its session or its version."""
    id_prefix: str = ""
    """Start of the run's id or handle, or of each of its parts: `r_24zns-0p60` for a fork."""
    resident: bool = False
    """Only resident children."""
    waiting: str = ""
    """Only live runs that wait so: one of WAITS."""
    since_ms: int = 0
    until_ms: int = 0


USER_RUNS_MAX = 100_000
"""Newest runs among which those of users are counted, so that a list costs the same whatever was run before."""
USER_ROWS_MAX = 10_000
"""Users of one answer that have run something."""


class ActiveRuns(NamedTuple):
    """Number of a user's open runs with a provider, and of those at work."""

    user_id: str
    provider: str
    runs: int
    at_work: int


class UserActivity(NamedTuple):
    """What a user has run; sub-agents do not count. A tuple of the tenant and the user is unique."""

    tenant: str
    user_id: str
    runs: int
    running: int
    last_started_at_ms: int
    sessions: int = 0


class LiveRun(NamedTuple):
    """A run that has started and not ended."""

    run_id: str
    tenant: str
    agent_id: str


class RunCounts(NamedTuple):
    """Numbers of runs of a filter. Those of live runs say what they wait for; a run may be in several."""

    running: int
    parked: int
    interrupted: int
    """With an open question."""
    pause_requested: int
    """Paused, or about to be."""
    quarantined: int
    is_live_exact: bool
    """False: there are more live runs than COUNT_MAX, and only the newest of them were counted."""
    completed: int
    failed: int
    cancelled: int
    is_exact: bool
    """False: there are more runs than COUNT_MAX, and of the ended ones only those among the newest were counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """One page of a list, newest first. `next` is the token of the next page, empty at the end."""

    rows: tuple[RunRow, ...]
    next: str


async def run_by_id(reader: PostgresReader, tenant: Scope, run_id: str) -> RunRow | None:
    """The run with this id."""
    rows = await reader.fetch(select(runs).where(in_scope(runs.c.tenant, tenant), runs.c.run_id == run_id))
    return RunRow._make(rows[0]) if rows else None


async def run_by_handle(
    reader: PostgresReader, tenant: Scope, agent_id: str, *, user_id: str = "", preferred_tenant: str = ""
) -> RunRow | None:
    """The run a handle refers to: of `preferred_tenant` before other tenants, live before ended, then the newest.

    `user_id` restricts it to the runs of one user.
    """
    for scope in dict.fromkeys((preferred_tenant or tenant, tenant)):
        page = await list_runs(reader, scope, RunFilter(agent_id=agent_id, user_id=user_id), limit=SAME_HANDLE_MAX)
        if page.rows:
            return next((row for row in page.rows if row.status == "running"), page.rows[0])
    return None


async def list_live_runs(reader: PostgresReader, *, limit: int) -> list[LiveRun]:
    """The live runs of all tenants, at most `limit`, in no order."""
    columns = runs.c
    rows = await reader.fetch(
        select(columns.run_id, columns.tenant, columns.agent_id).where(columns.status == "running").limit(limit)
    )
    return [LiveRun(*row) for row in rows]


async def count_active_runs(reader: PostgresReader, tenant: Scope) -> list[ActiveRuns]:
    """Number of open runs by user and provider, highest first, and how many of them are at work. Reads all runs that
    have not ended.

    Runs at work are counted as admission does (services/core/run/lifecycle/activity.py).
    """
    columns = runs.c
    is_open = and_(
        columns.status == "running",
        columns.quarantined.is_(False),
        columns.parent_run_id == "",
        columns.told_events == 0,
    )
    count = func.count()
    at_work = func.count().filter(columns.under_way != "")
    rows = await reader.fetch(
        select(columns.user_id, columns.provider, count, at_work)
        .where(in_scope(columns.tenant, tenant), is_open)
        .group_by(columns.user_id, columns.provider)
        .order_by(count.desc(), columns.user_id, columns.provider)
        .limit(ACTIVE_ROWS_MAX)
    )
    return [ActiveRuns(*row) for row in rows]


async def count_by_user(
    reader: PostgresReader, tenant: Scope, user_id: str | None, *, most: int = USER_RUNS_MAX
) -> list[UserActivity]:
    """What users have run, of one of them or all, among the newest `most` runs."""
    columns = runs.c
    conditions = [in_scope(columns.tenant, tenant), columns.parent_run_id == ""]
    if user_id is not None:
        conditions.append(columns.user_id == user_id)
    newest = (
        select(columns.tenant, columns.user_id, columns.status, columns.started_at_ms, columns.session_id)
        .where(*conditions)
        .order_by(columns.started_at_ms.desc(), columns.run_id.desc())
        .limit(most)
        .subquery()
    ).c
    rows = await reader.fetch(
        select(
            newest.tenant,
            newest.user_id,
            func.count(),
            func.count().filter(newest.status == "running"),
            func.max(newest.started_at_ms),
            func.count(newest.session_id.distinct()),
        )
        .group_by(newest.tenant, newest.user_id)
        .order_by(newest.tenant, newest.user_id)
        .limit(USER_ROWS_MAX)
    )
    return [UserActivity(*row) for row in rows]


async def count_runs(reader: PostgresReader, tenant: Scope, filters: RunFilter, *, most: int = COUNT_MAX) -> RunCounts:
    """Numbers of runs by status. Reads at most `most` of the newest live runs, which have an index of their own, and as
    many of the newest runs of any status, so that it costs the same with ten million ended runs. For that reason the
    filter may name no status: a rare one would be searched for in all of them.
    """
    assert not filters.statuses, "runs are counted by status, so the filter has none"
    columns = runs.c
    conditions = [in_scope(columns.tenant, tenant), *_conditions(filters)]
    live = (
        select(*(_waits_for(name).label(name) for name in WAITS))
        .where(*conditions, columns.status == "running")
        .order_by(columns.started_at_ms.desc(), columns.run_id.desc())
        .limit(most + 1)
        .subquery()
    )
    newest = (
        select(columns.status)
        .where(*conditions)
        .order_by(columns.started_at_ms.desc(), columns.run_id.desc())
        .limit(most + 1)
        .subquery()
    )
    numbers: list[Any] = [func.count(), *(func.count().filter(wait) for wait in live.c)]
    waiting = await reader.fetch(select(*numbers).select_from(live))
    by_status = await reader.fetch(select(newest.c.status, func.count()).group_by(newest.c.status))
    running, parked, interrupted, pause_requested, quarantined = map(int, waiting[0])
    counts = {str(status): int(count) for status, count in by_status}
    return RunCounts(
        running=min(running, most),
        parked=parked,
        interrupted=interrupted,
        pause_requested=pause_requested,
        quarantined=quarantined,
        is_live_exact=running <= most,
        completed=counts.get("completed", 0),
        failed=counts.get("failed", 0),
        cancelled=counts.get("cancelled", 0),
        is_exact=sum(counts.values()) <= most,
    )


async def list_runs(
    reader: PostgresReader, tenant: Scope, filters: RunFilter, *, limit: int = PAGE_MAX, after: str = ""
) -> RunPage:
    """Runs, newest first. `after` is `next` of an earlier page; rows added meanwhile shift nothing.

    Raises InvalidPageToken for an `after` that this list did not issue.
    """
    limit = max(1, min(limit, PAGE_MAX))
    conditions = [in_scope(runs.c.tenant, tenant), *_conditions(filters)]
    if after:
        started_at_ms, run_id = parse_page_token(after, 2)
        conditions.append(
            tuple_(runs.c.started_at_ms, runs.c.run_id) < tuple_(parse_token_number(started_at_ms), run_id)
        )
    fetched = await reader.fetch(
        select(runs).where(*conditions).order_by(runs.c.started_at_ms.desc(), runs.c.run_id.desc()).limit(limit + 1)
    )
    rows = tuple(RunRow._make(row) for row in fetched)
    if len(rows) <= limit:
        return RunPage(rows=rows, next="")
    last = rows[limit - 1]
    return RunPage(rows=rows[:limit], next=page_token(last.started_at_ms, last.run_id))


def like_pattern(prefix: str) -> str:
    """Return the LIKE pattern of a short id, with `!` as escape character."""
    return "%-".join(part.replace("_", "!_") for part in prefix.split("-")) + "%"


def _waits_for(name: str) -> ColumnElement[bool]:
    """Return whether a live run waits so; `name` is one of WAITS."""
    columns = runs.c
    match name:
        case "awaiting_input":
            return columns.parked
        case "interrupted":
            return columns.open_interrupts != ""
        case "pause_requested":
            return columns.pause_requested
        case _:
            return columns.quarantined


def _conditions(filters: RunFilter) -> list[ColumnElement[bool]]:
    columns = runs.c
    conditions: list[ColumnElement[bool]] = [
        columns[name] == value
        for name in ("agent", "agent_id", "parent_agent_id", "user_id", "session_id", "root_run_id", "def_id")
        if (value := getattr(filters, name))
    ]
    if filters.forked_from:
        conditions.append(columns.forked_from_run_id == filters.forked_from)
    if filters.forked_from_root:
        tree = runs.alias("tree")
        of_tree = select(tree.c.run_id).where(tree.c.root_run_id == filters.forked_from_root)
        conditions += [columns.forked_from_run_id != "", columns.forked_from_run_id.in_(of_tree)]
    if filters.id_prefix:
        pattern = like_pattern(filters.id_prefix)
        conditions.append(or_(columns.run_id.like(pattern, escape="!"), columns.agent_id.like(pattern, escape="!")))
    if filters.id_part:
        ids = (columns.run_id, columns.agent_id, columns.session_id, columns.def_id)
        ends = [
            end(part, autoescape=True)
            for part in storable([filters.id_part])
            for name in ids
            for end in (name.startswith, name.endswith)
        ]
        conditions.append(or_(false(), *ends))
    if filters.resident:
        conditions.append(columns.resident.is_(True))
    if filters.waiting:
        conditions += [columns.status == "running", _waits_for(filters.waiting)]
    if filters.statuses:
        conditions.append(one_of(columns.status, sorted(filters.statuses)))
    if filters.since_ms:
        conditions.append(columns.started_at_ms >= filters.since_ms)
    if filters.until_ms:
        conditions.append(columns.started_at_ms < filters.until_ms)
    return conditions
