"""Read models in memory, folded by the real projections (tests/projections/twin.py)."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import orjson

from loomlog.connectors.errors import Transient
from loomlog.projections.audit import AuditRow
from loomlog.projections.engine.cursors import CursorRow
from loomlog.projections.engine.lag import Progress
from loomlog.projections.frames.frame import FRAMES_PER_EVENT, FrameMemory
from loomlog.projections.interrupts import InterruptFilter, InterruptPage, InterruptRow
from loomlog.projections.newest_frames import FrameFilter, FramePage
from loomlog.projections.run_queries import SAME_HANDLE_MAX, ActiveRuns, RunCounts, RunFilter, RunPage, UserActivity
from loomlog.projections.runs import RunRow, frame_memory
from loomlog.projections.tables import (
    EVERY_TENANT,
    InvalidPageToken,
    Scope,
    page_token,
    parse_page_token,
    parse_token_number,
)
from loomlog.projections.transcript import TranscriptPage, TranscriptRow, open_calls
from loomlog.projections.usage import SUMS, UsageRow
from loomlog.schemas.records import replace
from loomlog.services.application.errors import bad_request, unavailable
from loomlog.services.application.resources import TOPICS


class TwinProjection:
    """Protocol Projection over the in-memory tables."""

    def __init__(self, world: "Any") -> None:
        self._world = world

    @property
    def _tables(self) -> dict[str, dict[Any, Any]]:
        if self._world.postgres_is_away:
            raise unavailable("projection", Transient("no answer", kind="timeout"))
        if self._world.projecting:
            self._world.project()
        return self._world.twin.tables

    async def run(self, scope: Scope, run_id: str) -> RunRow | None:
        row = self._tables["runs"].get(run_id)
        return row if row is not None and _within(scope, row.tenant) else None

    async def run_of_handle(self, scope: Scope, agent_id: str, *, user_id: str = "", home: str = "") -> RunRow | None:
        page = await self.runs(scope, RunFilter(agent_id=agent_id, user_id=user_id), limit=SAME_HANDLE_MAX)
        return min(page.rows, key=lambda row: (row.tenant != home, row.status != "running"), default=None)

    async def runs(self, scope: Scope, criteria: RunFilter, *, limit: int, after: str = "") -> RunPage:
        rows = self._matching(scope, criteria)
        rows.sort(key=lambda row: (row.started_at_ms, row.run_id), reverse=True)
        if after:
            try:
                at_ms, run_id = parse_page_token(after, 2)
            except InvalidPageToken as error:
                raise bad_request(f"cursor: {error}") from error
            rows = [row for row in rows if (row.started_at_ms, row.run_id) < (parse_token_number(at_ms), run_id)]
        if len(rows) <= limit:
            return RunPage(rows=tuple(rows), next="")
        return RunPage(rows=tuple(rows[:limit]), next=page_token(rows[limit - 1].started_at_ms, rows[limit - 1].run_id))

    async def count_runs(self, scope: Scope, criteria: RunFilter) -> RunCounts:
        rows = self._matching(scope, criteria)
        statuses = Counter(row.status for row in rows)
        return RunCounts(
            running=statuses["running"],
            parked=sum(row.parked for row in rows),
            interrupted=sum(bool(row.open_interrupts) for row in rows if row.status == "running"),
            pause_requested=sum(row.pause_requested for row in rows),
            quarantined=sum(row.quarantined for row in rows),
            is_live_exact=True,
            completed=statuses["completed"],
            failed=statuses["failed"],
            cancelled=statuses["cancelled"],
            is_exact=True,
        )

    def _matching(self, scope: Scope, criteria: RunFilter) -> list[RunRow]:
        rows = self._tables["runs"]
        root = criteria.forked_from_root
        tree = {row.run_id for row in rows.values() if row.root_run_id == root} if root else set()
        return [
            row
            for row in rows.values()
            if _within(scope, row.tenant) and _wanted(criteria, row) and (not root or row.forked_from_run_id in tree)
        ]

    async def count_active(self, scope: Scope) -> list[ActiveRuns]:
        rows = [
            row
            for row in self._tables["runs"].values()
            if _within(scope, row.tenant)
            and (row.status, row.quarantined) == ("running", False)
            and not (row.parent_run_id or row.told_events)
        ]
        counts = Counter((row.user_id, row.provider) for row in rows)
        at_work = Counter((row.user_id, row.provider) for row in rows if row.under_way)
        return [ActiveRuns(*of, runs, at_work[of]) for of, runs in counts.items()]

    async def user_activity(self, scope: Scope, user_id: str | None) -> list[UserActivity]:
        by_user: dict[tuple[str, str], list[RunRow]] = {}
        for row in self._tables["runs"].values():
            if _within(scope, row.tenant) and not row.parent_run_id and user_id in (None, row.user_id):
                by_user.setdefault((row.tenant, row.user_id), []).append(row)
        return [
            UserActivity(
                *of,
                runs=len(rows),
                running=sum(row.status == "running" for row in rows),
                last_started_at_ms=max(row.started_at_ms for row in rows),
                sessions=len({row.session_id for row in rows}),
            )
            for of, rows in sorted(by_user.items())
        ]

    async def audit_row(self, scope: Scope, run_id: str) -> AuditRow | None:
        row = self._tables["audit"].get(run_id)
        return row if row is not None and _within(scope, row.tenant) else None

    async def transcript(self, scope: Scope, session_id: str, *, limit: int, after: str = "") -> TranscriptPage:
        runs = self._tables["runs"]
        rows = [
            row
            for row in self._tables["transcript"].values()
            if row.session_id == session_id and _within(scope, row.tenant)
        ]
        rows.sort(key=lambda row: (runs[row.run_id].first_offset, row.seq))
        return TranscriptPage(rows=tuple(rows[:limit]), next="more" if len(rows) > limit else "")

    async def frames(self, scope: Scope, run_id: str, *, from_seq: int, limit: int) -> list[TranscriptRow]:
        rows = [
            row
            for row in self._tables["transcript"].values()
            if row.run_id == run_id and row.seq > from_seq and _within(scope, row.tenant)
        ]
        return sorted(rows, key=lambda row: row.seq)[:limit]

    async def newest_frames(
        self, scope: Scope, criteria: FrameFilter, *, limit: int, offset: int, after: str
    ) -> FramePage:
        rows = [
            row
            for row in self._tables["transcript"].values()
            if _within(scope, row.tenant) and criteria.type in ("", row.type)
        ]
        rows.sort(key=lambda row: (row.place, row.run_id, row.seq), reverse=True)
        shown = rows[offset : offset + limit]
        return FramePage(
            rows=tuple(shown), next="more" if len(rows) > offset + limit else "", total=len(rows), is_total_exact=True
        )

    async def follow_from(self, scope: Scope, run_id: str) -> tuple[RunRow, FrameMemory] | None:
        row = await self.run(scope, run_id)
        if row is None:
            return None
        first = row.memory_reply_seq * FRAMES_PER_EVENT
        calls = [
            frame.event
            for frame in await self.frames(scope, run_id, from_seq=first - 1, limit=FRAMES_PER_EVENT)
            if frame.type == "tool_call" and frame.seq < first + FRAMES_PER_EVENT
        ]
        return row, replace(frame_memory(row), calls=open_calls(calls))

    async def interrupt(self, scope: Scope, run_id: str, interrupt_id: str) -> InterruptRow | None:
        row: InterruptRow | None = self._tables["interrupts"].get((run_id, interrupt_id))
        return row if row is not None and _within(scope, row.tenant) else None

    async def interrupts(
        self, scope: Scope, criteria: InterruptFilter, *, limit: int, after: str = ""
    ) -> InterruptPage:
        rows = [
            row
            for row in self._tables["interrupts"].values()
            if _within(scope, row.tenant)
            and (not criteria.statuses or row.status in criteria.statuses)
            and criteria.run_id in ("", row.run_id)
            and (criteria.user_id in ("", row.user_id) or _names(row, criteria.approver))
            and criteria.kind in ("", row.kind)
        ]
        rows.sort(key=lambda row: (row.created_at_ms, row.run_id, row.interrupt_id), reverse=True)
        return InterruptPage(rows=tuple(rows[:limit]), next="more" if len(rows) > limit else "", total=len(rows))

    async def usage(
        self, scope: Scope, group_by: Sequence[str], *, user_id: str | None, since_day: str, until_day: str
    ) -> list[dict[str, Any]]:
        sums: dict[tuple[str, ...], list[int]] = {}
        names = tuple(dict.fromkeys([*group_by, "currency"]))
        for row in self._spent(scope, user_id, since_day):
            if not until_day or row.day <= until_day:
                so_far = sums.setdefault(tuple(getattr(row, name) for name in names), [0] * len(SUMS))
                so_far[:] = [a + getattr(row, name) for a, name in zip(so_far, SUMS, strict=True)]
        return [dict(zip((*names, *SUMS), (*key, *amounts), strict=True)) for key, amounts in sorted(sums.items())]

    async def spent_since(self, scope: Scope, since_day: str, *, user_id: str | None, currency: str) -> tuple[int, int]:
        rows = self._spent(scope, user_id, since_day)
        tokens = sum(getattr(row, name) for row in rows for name in SUMS if name.endswith("_tokens"))
        return tokens, sum(row.cost_micros for row in rows if row.currency == currency)

    def _spent(self, scope: Scope, user_id: str | None, since_day: str) -> list[UsageRow]:
        return [
            row
            for row in self._tables["usage"].values()
            if _within(scope, row.tenant) and user_id in (None, row.user_id) and row.day >= since_day
        ]

    async def cursors(self) -> list[CursorRow]:
        assert self._tables
        return [
            CursorRow(TOPICS.events, partition, cursor.next_offset, cursor.term, 1, "tests", None)
            for partition, cursor in self._world.twin.cursors.items()
        ]

    async def progress(self) -> Progress:
        return {"cursors": await self.cursors(), "statuses": [], "problems": 0}


def _names(row: InterruptRow, approver: str) -> bool:
    groups = orjson.loads(row.terms)["verdict"]["groups"] if row.terms else []
    return row.status == "pending" and any(approver in group["subjects"] for group in groups)


def _within(scope: Scope, tenant: str) -> bool:
    return scope is EVERY_TENANT or scope == tenant


def is_short_form(short: str, whole: str) -> bool:
    """Whether each part of `short` begins the part of `whole` at its place."""
    parts, of = short.split("-"), whole.split("-")
    return len(parts) <= len(of) and all(one.startswith(part) for part, one in zip(parts, of, strict=False))


def _waits_for(waiting: str, row: RunRow) -> bool:
    waits = {
        "awaiting_input": row.parked,
        "interrupted": bool(row.open_interrupts),
        "pause_requested": row.pause_requested,
        "quarantined": row.quarantined,
    }
    return waits[waiting]


def _wanted(wanted: RunFilter, row: RunRow) -> bool:
    return (
        (not wanted.statuses or row.status in wanted.statuses)
        and all(
            not getattr(wanted, name) or getattr(wanted, name) == getattr(row, name)
            for name in ("agent", "agent_id", "parent_agent_id", "user_id", "session_id", "def_id")
        )
        and (not wanted.root_run_id or row.root_run_id == wanted.root_run_id)
        and (not wanted.forked_from or row.forked_from_run_id == wanted.forked_from)
        and any(
            one.startswith(wanted.id_part) or one.endswith(wanted.id_part)
            for one in (row.run_id, row.agent_id, row.session_id, row.def_id)
        )
        and any(is_short_form(wanted.id_prefix, one) for one in (row.run_id, row.agent_id))
        and (not wanted.resident or row.resident)
        and (not wanted.waiting or (row.status == "running" and _waits_for(wanted.waiting, row)))
        and (not wanted.since_ms or row.started_at_ms >= wanted.since_ms)
        and (not wanted.until_ms or row.started_at_ms < wanted.until_ms)
    )
