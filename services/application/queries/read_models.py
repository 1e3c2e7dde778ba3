"""The read models as the application queries them: a protocol, so that tests and embedders can replace it.

SqlReadModels is the implementation over Postgres: every method runs one of the queries next to their tables in
`projections`, with a time limit and errors translated into refusals.

Before: services/application/runs/start.py, services/application/streaming/run_stream.py,
services/application/runs/start.py. After: projections/*.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections import audit, interrupts, newest_frames, run_queries, transcript, usage
from loomlog.projections.audit import AuditRow
from loomlog.projections.engine import cursors, lag
from loomlog.projections.engine.cursors import CursorRow
from loomlog.projections.engine.lag import Progress
from loomlog.projections.engine.positions import WaitResult
from loomlog.projections.frames.frame import FrameMemory
from loomlog.projections.interrupts import InterruptFilter, InterruptPage, InterruptRow
from loomlog.projections.newest_frames import FrameFilter, FramePage
from loomlog.projections.run_queries import ActiveRuns, LiveRun, RunCounts, RunFilter, RunPage
from loomlog.projections.runs import RunRow
from loomlog.projections.tables import EVERY_TENANT, InvalidPageToken, Scope
from loomlog.projections.transcript import TranscriptPage, TranscriptRow
from loomlog.schemas.position import Position
from loomlog.services.application import limits
from loomlog.services.application.errors import bad_request, unavailable
from loomlog.services.core.access.decide import AccessFilter
from loomlog.services.core.refusals import Refused

QueryResult = TypeVar("QueryResult")


class ReadModels(Protocol):
    """Queries about past events. All raise Refused(projection_unavailable)."""

    async def run(self, scope: Scope, run_id: str) -> RunRow | None: ...
    async def run_of_handle(
        self, scope: Scope, agent_id: str, *, user_id: str = "", home: str = ""
    ) -> RunRow | None: ...
    async def runs(self, scope: Scope, criteria: RunFilter, *, limit: int, after: str = "") -> RunPage: ...
    async def count_runs(self, scope: Scope, criteria: RunFilter) -> RunCounts: ...
    async def count_active(self, scope: Scope) -> list[ActiveRuns]: ...
    async def user_activity(self, scope: Scope, user_id: str | None) -> list[run_queries.UserActivity]: ...
    async def audit_row(self, scope: Scope, run_id: str) -> AuditRow | None: ...
    async def transcript(self, scope: Scope, session_id: str, *, limit: int, after: str = "") -> TranscriptPage: ...
    async def frames(self, scope: Scope, run_id: str, *, from_seq: int, limit: int) -> list[TranscriptRow]: ...
    async def newest_frames(
        self, scope: Scope, criteria: FrameFilter, *, limit: int, offset: int, after: str
    ) -> FramePage: ...
    async def follow_from(self, scope: Scope, run_id: str) -> tuple[RunRow, FrameMemory] | None: ...
    async def interrupt(self, scope: Scope, run_id: str, interrupt_id: str) -> InterruptRow | None: ...
    async def interrupts(
        self, scope: Scope, criteria: InterruptFilter, *, limit: int, after: str = ""
    ) -> InterruptPage: ...
    async def cursors(self) -> list[CursorRow]: ...
    async def progress(self) -> Progress: ...
    async def usage(
        self, scope: Scope, group_by: Sequence[str], *, user_id: str | None, since_day: str, until_day: str
    ) -> list[dict[str, Any]]: ...
    async def spent_since(
        self, scope: Scope, since_day: str, *, user_id: str | None, currency: str
    ) -> tuple[int, int]: ...


class Positions(Protocol):
    """Positions of the read models; loomlog.projections.engine.positions.PositionWatch."""

    async def wait(self, position: Position, *, timeout_s: float) -> WaitResult: ...


def scope_of(reach: AccessFilter) -> Scope:
    """Return the WHERE clause for what a caller may reach."""
    return EVERY_TENANT if reach.tenant is None else reach.tenant


def has_no_tables(refusal: Refused) -> bool:
    """Return whether the read models do not exist yet because no projector has created them."""
    cause = refusal.__cause__
    return isinstance(cause, Permanent) and cause.kind == "not_found"


class SqlReadModels:
    """The read models in Postgres (protocol ReadModels)."""

    def __init__(self, reader: PostgresReader, *, wait_s: float = limits.PROJECTION_WAIT_S) -> None:
        self._reader = reader
        self._wait_s = wait_s
        self._open_queries: set[asyncio.Future[Any]] = set()
        """Queries in progress, so that an abandoned one is not garbage-collected before it has ended."""

    async def run(self, scope: Scope, run_id: str) -> RunRow | None:
        return await self._query("a run", run_queries.run_by_id(self._reader, scope, run_id))

    async def run_of_handle(self, scope: Scope, agent_id: str, *, user_id: str = "", home: str = "") -> RunRow | None:
        asked = run_queries.run_by_handle(self._reader, scope, agent_id, user_id=user_id, preferred_tenant=home)
        return await self._query("a run by its handle", asked)

    async def runs(self, scope: Scope, criteria: RunFilter, *, limit: int, after: str = "") -> RunPage:
        return await self._query("runs", run_queries.list_runs(self._reader, scope, criteria, limit=limit, after=after))

    async def live_runs(self, *, limit: int) -> list[LiveRun]:
        return await self._query("the live runs", run_queries.list_live_runs(self._reader, limit=limit))

    async def count_runs(self, scope: Scope, criteria: RunFilter) -> RunCounts:
        return await self._query("numbers of runs", run_queries.count_runs(self._reader, scope, criteria))

    async def count_active(self, scope: Scope) -> list[ActiveRuns]:
        return await self._query("the runs at work", run_queries.count_active_runs(self._reader, scope))

    async def user_activity(self, scope: Scope, user_id: str | None) -> list[run_queries.UserActivity]:
        return await self._query("runs by user", run_queries.count_by_user(self._reader, scope, user_id))

    async def audit_row(self, scope: Scope, run_id: str) -> AuditRow | None:
        return await self._query("the place of a run", audit.find_run(self._reader, scope, run_id))

    async def transcript(self, scope: Scope, session_id: str, *, limit: int, after: str = "") -> TranscriptPage:
        asked = transcript.transcript_of_session(self._reader, scope, session_id, limit=limit, after=after)
        return await self._query("a transcript", asked)

    async def frames(self, scope: Scope, run_id: str, *, from_seq: int, limit: int) -> list[TranscriptRow]:
        asked = transcript.frames_of_run(self._reader, scope, run_id, from_seq=from_seq, limit=limit)
        return await self._query("the frames of a run", asked)

    async def newest_frames(
        self, scope: Scope, criteria: FrameFilter, *, limit: int, offset: int, after: str
    ) -> FramePage:
        asked = newest_frames.newest_frames(self._reader, scope, criteria, limit=limit, offset=offset, after=after)
        return await self._query("the newest frames", asked)

    async def follow_from(self, scope: Scope, run_id: str) -> tuple[RunRow, FrameMemory] | None:
        return await self._query("a run to follow", transcript.read_stream_start(self._reader, scope, run_id))

    async def interrupt(self, scope: Scope, run_id: str, interrupt_id: str) -> InterruptRow | None:
        asked = interrupts.interrupt_by_id(self._reader, scope, run_id, interrupt_id)
        return await self._query("an interrupt", asked)

    async def interrupts(
        self, scope: Scope, criteria: InterruptFilter, *, limit: int, after: str = ""
    ) -> InterruptPage:
        asked = interrupts.list_interrupts(self._reader, scope, criteria, limit=limit, after=after)
        return await self._query("interrupts", asked)

    async def cursors(self) -> list[CursorRow]:
        return await self._query("cursors", cursors.list_cursors(self._reader))

    async def progress(self) -> Progress:
        return await self._query("the progress of the projection", lag.read_progress(self._reader))

    async def usage(
        self, scope: Scope, group_by: Sequence[str], *, user_id: str | None, since_day: str, until_day: str
    ) -> list[dict[str, Any]]:
        asked = usage.usage_report(
            self._reader, scope, group_by, user_id=user_id, since_day=since_day, until_day=until_day
        )
        return await self._query("usage", asked)

    async def spent_since(self, scope: Scope, since_day: str, *, user_id: str | None, currency: str) -> tuple[int, int]:
        asked = usage.spent_since(self._reader, scope, since_day, user_id=user_id, currency=currency)
        return await self._query("what was spent", asked)

    async def _query(self, description: str, query: Coroutine[Any, Any, QueryResult]) -> QueryResult:
        """Return the result, or raise Refused at the time limit. An abandoned query ends by itself: the driver
        would otherwise wait for an unresponsive server to confirm the cancellation.
        """
        task = asyncio.ensure_future(query)
        self._open_queries.add(task)
        task.add_done_callback(self._query_done)
        try:
            done, _ = await asyncio.wait({task}, timeout=self._wait_s)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not done:
            task.cancel()
            raise unavailable(
                "projection", Transient(f"read {description}: no answer in {self._wait_s:g} s", kind="timeout")
            )
        try:
            return task.result()
        except InvalidPageToken as error:
            raise bad_request(f"cursor: {error}") from error
        except ConnectorError as error:
            raise unavailable("projection", error) from error

    def _query_done(self, task: "asyncio.Future[Any]") -> None:
        self._open_queries.discard(task)
        if not task.cancelled():
            task.exception()  # the caller of an abandoned query has left
