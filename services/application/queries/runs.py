"""Reads of runs: one by id or handle, lists, transcripts, and the stream of a run from any position.

Every read is restricted to what its caller may see; anything else is answered as if it did not exist. A read waits
shortly for the read models to pass what this process has seen. A read of one resource that then finds nothing although
the read models lag returns not_yet and not not_found, because a client retries only the first.

Before: a transport. After: read_models.py.
"""

import base64
import binascii
import dataclasses
import re
from dataclasses import dataclass

import orjson

from loomlog.connectors.crypto.content_encryption import key_ids_in
from loomlog.projections.newest_frames import FrameFilter, FramePage
from loomlog.projections.run_queries import ActiveRuns, RunCounts, RunFilter
from loomlog.projections.runs import RunRow
from loomlog.projections.tables import EVERY_TENANT, Scope
from loomlog.projections.transcript import TranscriptRow
from loomlog.schemas.generated.run_events import RunStarted
from loomlog.schemas.ids import ID_PATTERN
from loomlog.schemas.records import replace
from loomlog.services.application import limits
from loomlog.services.application.errors import bad_request
from loomlog.services.application.queries.read_models import ReadModels, scope_of
from loomlog.services.application.queries.read_your_writes import PositionBarrier, not_yet_error
from loomlog.services.application.runs.run_target import CommandTarget, RunTarget
from loomlog.services.application.streaming.items import StreamChunk
from loomlog.services.application.streaming.run_stream import RunStream, StreamSources, resumed_stream
from loomlog.services.core.access.decide import Caller, ResourceOwner, access_filter, can_control, can_see
from loomlog.services.core.access.scopes import TENANT
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run.lifecycle.fork import is_foreign_event
from loomlog.services.core.subjects import Erasure

CURSOR_PATTERN = re.compile(r"[A-Za-z0-9_-]*\Z")
CURSOR_CHARACTERS_MAX = 1_024
"""Maximum length of a cursor; the longest valid one has two ids and a number."""
NO_RUNS = RunCounts(0, 0, 0, 0, 0, True, 0, 0, 0, True)
GENERATED_ID_PREFIXES = ("s_", "a_")
"""Prefixes of sessions and handles that are named after the run they began with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunList:
    """A page of runs, newest first; `next` is empty at the end."""

    rows: tuple[RunRow, ...]
    next: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """Frames of a session in order, with its newest run; `next` is empty at the end. `runs_before` as in
    TranscriptPage.
    """

    session_id: str
    newest: RunRow
    rows: tuple[TranscriptRow, ...]
    next: str
    runs_before: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHead:
    """What a further run of a session needs from it."""

    owner: ResourceOwner
    agent: str
    user_tier: str
    newest: RunRow | None
    """None when only the hub knows the session yet."""


class RunQueries:
    """All queries about runs."""

    def __init__(self, sources: StreamSources) -> None:
        self._sources = sources
        self._projection: ReadModels = sources.projection
        self._barrier: PositionBarrier = sources.barrier

    async def run(self, caller: Caller, run_id: str) -> RunRow:
        """Return the run of that id. Raises Refused(not_found)."""
        return await self._sources.content.decrypt_row(await self.visible_run(caller, run_id))

    async def visible_run(self, caller: Caller, run_id: str) -> RunRow:
        """Return a run as `run`, with its content as it is stored."""
        _check_id("not_found", "run", run_id)
        lag = await self._barrier.wait_for_own_writes(self._sources.partition_of(run_id))
        row = await self._projection.run(scope_of(access_filter(caller)), run_id)
        return _require_visible(caller, row, lag, "not_found", f"there is no run {run_id}")

    async def run_to_continue(self, caller: Caller, run_id: str) -> RunRow:
        """Return a run as `visible_run`, for continuing its conversation. Raises Refused(content_erased)."""
        row = await self.controlled_run(caller, run_id)
        await self._check_not_erased(row)
        return row

    async def controlled_run(self, caller: Caller, run_id: str) -> RunRow:
        """Return a run as `visible_run`, for changing it. Raises Refused: not_found, insufficient_scope."""
        row = await self.visible_run(caller, run_id)
        _require_control(caller, owner_of(row))
        return row

    async def run_target(self, caller: Caller, run_id: str) -> CommandTarget:
        """Return the run as the target of a command. Raises Refused: not_found, insufficient_scope.

        A run that is live as far as this process has read needs no row when its owner is known
        (services/application/runs/run_target.py), and otherwise any row, however old. So a command to a live run does
        not wait for the read models.
        """
        target = await self.visible_target(caller, run_id)
        _require_control(caller, ResourceOwner(tenant=target.tenant, user_id=target.user_id))
        return target

    async def visible_target(self, caller: Caller, run_id: str) -> CommandTarget:
        """Return a target as `run_target`, of a run that the caller may only see. Raises Refused(not_found)."""
        _check_id("not_found", "run", run_id)
        known = self._known_target(caller, run_id)
        if known is not None:
            return known
        row = await self._projection.run(scope_of(access_filter(caller)), run_id)
        if row is not None and row.status == "running":
            return self._remember_row(_require_visible(caller, row, 0, "not_found", f"there is no run {run_id}"))
        return await self.visible_run(caller, run_id)

    async def handle_target(self, caller: Caller, agent_id: str) -> CommandTarget:
        """Return a command's target by its handle; only a generated handle names exactly one run.

        Raises Refused: unknown_agent_id, insufficient_scope.
        """
        target = await self._find_target_of_handle(caller, agent_id)
        _require_control(caller, ResourceOwner(tenant=target.tenant, user_id=target.user_id))
        return target

    async def _find_target_of_handle(self, caller: Caller, agent_id: str) -> CommandTarget:
        _check_id("unknown_agent_id", "run with the handle", agent_id)
        known = self._known_target(caller, f"r_{agent_id.removeprefix('a_')}")
        if known is not None and known.agent_id == agent_id:
            return known
        row = await self._find_by_handle(caller, agent_id)
        if row is not None and row.status == "running" and agent_id == f"a_{row.run_id.removeprefix('r_')}":
            return self._remember_row(
                _require_visible(caller, row, 0, "unknown_agent_id", f"there is no run with the handle {agent_id}")
            )
        return await self.row_of_handle(caller, agent_id)

    def _known_target(self, caller: Caller, run_id: str) -> RunTarget | None:
        """Return a run that this process knows to be live, if the caller may see it."""
        known = self._sources.hub.live_runs.get(run_id)
        if known is None or not can_see(caller, ResourceOwner(tenant=known.tenant, user_id=known.user_id)):
            return None
        return known

    def _remember_row(self, row: RunRow) -> RunRow:
        self._sources.hub.learn_run(RunTarget.from_row(row))
        return row

    async def agent(self, caller: Caller, agent_id: str) -> RunRow:
        """Return the run of a handle. Raises Refused(unknown_agent_id)."""
        return await self._sources.content.decrypt_row(await self.row_of_handle(caller, agent_id))

    async def row_of_handle(self, caller: Caller, agent_id: str) -> RunRow:
        """Return a run as `agent`, with its content as it is stored."""
        _check_id("unknown_agent_id", "run with the handle", agent_id)
        # A generated handle contains its partition; a chosen one may have been used anywhere.
        lag = await self._barrier.wait_for_own_writes(
            self._sources.partition_of(agent_id) if agent_id.startswith("a_") else None
        )
        row = await self._find_by_handle(caller, agent_id)
        return _require_visible(caller, row, lag, "unknown_agent_id", f"there is no run with the handle {agent_id}")

    async def _find_by_handle(self, caller: Caller, agent_id: str) -> RunRow | None:
        """Find a run by handle: the caller's own tenant before others, a live run before an ended one."""
        scope = await self._scope_of_name(caller, agent_id)
        home = caller.tenant if scope is EVERY_TENANT else ""
        return await self._projection.run_of_handle(
            scope, agent_id, user_id=access_filter(caller).user_id or "", home=home
        )

    async def runs(
        self,
        caller: Caller,
        criteria: RunFilter,
        *,
        tenant: str = "",
        limit: int = limits.LIST_DEFAULT,
        after: str = "",
    ) -> RunList:
        """Return runs, newest first. `tenant` narrows the list of an administrator. Raises
        Refused(bad_request).
        """
        allowed = _narrowed(caller, criteria, tenant)
        if allowed is None:
            return RunList(rows=(), next="")
        scope, criteria = allowed
        _check_cursor(after)
        await self._barrier.wait_for_own_writes(None)
        page = await self._projection.runs(scope, criteria, limit=max(1, min(limit, limits.LIST_MAX)), after=after)
        return RunList(rows=await self._sources.content.decrypt_rows(page.rows), next=page.next)

    async def count_runs(self, caller: Caller, criteria: RunFilter, *, tenant: str = "") -> RunCounts:
        """Return the numbers of the runs that `runs` lists, by status; the filter may name none.

        Raises Refused(bad_request).
        """
        if criteria.statuses:
            raise bad_request("status: the runs are counted by status; leave it out")
        allowed = _narrowed(caller, criteria, tenant)
        if allowed is None:
            return NO_RUNS
        await self._barrier.wait_for_own_writes(None)
        return await self._projection.count_runs(*allowed)

    async def count_active(self) -> list[ActiveRuns]:
        """Return the numbers of active runs of all tenants."""
        await self._barrier.wait_for_own_writes(None)
        return await self._projection.count_active(EVERY_TENANT)

    async def transcript(
        self,
        caller: Caller,
        session_id: str,
        *,
        limit: int = limits.TRANSCRIPT_MAX,
        after: str = "",
    ) -> Transcript:
        """Return the stored frames of a session. Raises Refused(not_found)."""
        _check_id("not_found", "session", session_id)
        _check_cursor(after)
        lag = await self._barrier.wait_for_own_writes(self._sources.partition_of(session_id))
        row = await self._newest_run(caller, session_id)
        newest = _require_visible(caller, row, lag, "not_found", f"there is no session {session_id}")
        page = await self._projection.transcript(
            newest.tenant, session_id, limit=max(1, min(limit, limits.TRANSCRIPT_MAX)), after=after
        )
        rows = await self._sources.content.decrypt_transcript(page.rows)
        return Transcript(session_id=session_id, newest=newest, rows=rows, next=page.next, runs_before=page.runs_before)

    async def newest_frames(
        self, scope: Scope, criteria: FrameFilter, *, limit: int, offset: int, after: str
    ) -> FramePage:
        """Return the stored frames of a tenant or of all, newest first. Raises Refused(bad_request)."""
        _check_cursor(after)
        await self._barrier.wait_for_own_writes(None)
        page = await self._projection.newest_frames(scope, criteria, limit=limit, offset=offset, after=after)
        return dataclasses.replace(page, rows=await self._sources.content.decrypt_transcript(page.rows))

    async def stream(self, caller: Caller, run_id: str, *, after: int = -1) -> RunStream:
        """Return the frames of a run after position `after`, then live ones; ids first. Raises
        Refused(not_found).
        """
        _check_id("not_found", "run", run_id)
        was_seen = self._started_event(caller, run_id) is not None
        lag = await self._barrier.wait_for_own_writes(self._sources.partition_of(run_id))
        row = await self._projection.run(scope_of(access_filter(caller)), run_id)
        # Without a row although the read models have passed its start, the run is erased.
        is_new = row is None and (lag > 0 or not was_seen)
        if is_new and (started := self._started_event(caller, run_id)) is not None:
            tenant, event = started
            return self._open_stream(tenant, run_id, event.session_id, event.agent_id, after)
        row = _require_visible(caller, row, lag, "not_found", f"there is no run {run_id}")
        return self._open_stream(row.tenant, run_id, row.session_id, row.agent_id, after)

    async def session_to_continue(self, caller: Caller, session_id: str) -> SessionHead:
        """Return a session as `session`, for continuing it. Raises Refused: not_found, content_erased,
        insufficient_scope.
        """
        head = await self.session(caller, session_id)
        _require_control(caller, head.owner)
        return head

    async def session(self, caller: Caller, session_id: str) -> SessionHead:
        """Return what a further run of the session needs. Raises Refused: not_found, content_erased."""
        _check_id("not_found", "session", session_id)
        first_run = f"r_{session_id[2:]}"
        was_seen = self._started_event(caller, first_run) is not None
        lag = await self._barrier.wait_for_own_writes(self._sources.partition_of(session_id))
        newest = await self._newest_run(caller, session_id)
        is_new = newest is None and (lag > 0 or not was_seen)
        if is_new and (started := self._started_event(caller, first_run)) is not None:
            tenant, event = started
            owner = ResourceOwner(tenant=tenant, user_id=event.user_id, is_foreign=is_foreign_event(event))
            return SessionHead(owner=owner, agent=event.definition.name, user_tier=event.options.user_tier, newest=None)
        row = _require_visible(caller, newest, lag, "not_found", f"there is no session {session_id}")
        await self._check_not_erased(row)
        return SessionHead(owner=owner_of(row), agent=row.agent, user_tier=row.user_tier, newest=row)

    async def count_session_events(self, tenant: str, session_id: str) -> int:
        """Return the number of events of its latest runs together."""
        page = await self._projection.runs(tenant, RunFilter(session_id=session_id), limit=limits.LIST_MAX)
        return sum(row.last_seq for row in page.rows)

    async def _check_not_erased(self, row: RunRow) -> None:
        """Raise Refused(content_erased) when the run's input is erased: a continuation would
        have no messages.
        """
        erasure = await self.erasure_of(row)
        if erasure is not None:
            raise Refused(
                "content_erased",
                f"{row.run_id} cannot be continued: its content is erased (erasure "
                f"{erasure.record.erasure_id}); start a new run",
            )

    async def erasure_of(self, row: RunRow) -> Erasure | None:
        """Return the erasure that deleted a key of the run's input.

        For a run in plaintext it is the first erasure of its subject after its start: its content is not to be used
        either.
        """
        keys = self._sources.content.keys
        if keys is None or not (erasures := keys.table.erasures_of(row.tenant, row.user_id)):
            return None
        frames = await self._projection.frames(row.tenant, row.run_id, from_seq=-1, limit=limits.REPLAY_PAGE)
        key_ids = {key_id for frame in frames for key_id in key_ids_in(f"{frame.event} {frame.payload or ''}")}
        if not key_ids:
            return next((one for one in erasures if row.started_at_ms <= one.record.at_ms), None)
        of_keys = (keys.table.erasure_of(key_id, row.tenant) for key_id in key_ids)
        return next((erasure for erasure in of_keys if erasure is not None), None)

    async def _newest_run(self, caller: Caller, session_id: str) -> RunRow | None:
        scope = await self._scope_of_name(caller, session_id)
        page = await self._projection.runs(scope, RunFilter(session_id=session_id), limit=1)
        return page.rows[0] if page.rows else None

    async def _scope_of_name(self, caller: Caller, name: str) -> Scope:
        """Return the scope in which a session or handle is meant. A generated name belongs to the tenant of the run
        that began with it, whatever a run of another tenant calls itself.
        """
        scope = scope_of(access_filter(caller))
        if scope is not EVERY_TENANT:
            return scope
        began = (
            await self._projection.audit_row(EVERY_TENANT, f"r_{name[2:]}")
            if name.startswith(GENERATED_ID_PREFIXES)
            else None
        )
        return scope if began is None else began.tenant

    def _started_event(self, caller: Caller, run_id: str) -> tuple[str, RunStarted] | None:
        """Return tenant and first event of a run that the hub has from its start, if the caller may see it."""
        recent = self._sources.hub.recent(run_id)
        if not recent or recent[0].raw.seq != 1:
            return None
        tenant, event = recent[0].envelope.tenant, recent[0].record
        if not isinstance(event, RunStarted) or not can_see(
            caller, ResourceOwner(tenant=tenant, user_id=event.user_id)
        ):
            return None
        return tenant, event

    def _open_stream(self, tenant: str, run_id: str, session_id: str, agent_id: str, after: int) -> RunStream:
        ids = {"agent_id": agent_id, "run_id": run_id, "session_id": session_id}
        head = [StreamChunk(None, "agent", orjson.dumps(ids))]
        return resumed_stream(self._sources, run_id, scope=tenant, head=head, after=after)


def owner_of(row: RunRow) -> ResourceOwner:
    """Return the owner of a run, for continuing it."""
    return ResourceOwner(tenant=row.tenant, user_id=row.user_id, is_foreign=bool(row.told_events) and not row.restored)


def _narrowed(caller: Caller, criteria: RunFilter, tenant: str) -> tuple[Scope, RunFilter] | None:
    """Return scope and filter of what the caller may see of a list; None: nothing. `tenant` narrows the list of an
    administrator.
    """
    allowed = access_filter(caller)
    if allowed.tenant is None and tenant:
        allowed = replace(allowed, tenant=tenant)
    elif tenant and tenant != allowed.tenant:
        return None
    if allowed.user_id is not None:
        if criteria.user_id not in ("", allowed.user_id):
            return None
        criteria = replace(criteria, user_id=allowed.user_id)
    return scope_of(allowed), criteria


def _require_control(caller: Caller, owner: ResourceOwner) -> None:
    """Raise Refused(insufficient_scope) when the runs of the owner are closed to the caller.

    No declaration says it: it depends on whose run is named.
    """
    if not can_control(caller, owner):
        text = f"this is a run of the isolated user {owner.user_id}: only that user and operators may change it"
        raise Refused("insufficient_scope", text, details={"scope": TENANT})


def _require_visible(caller: Caller, row: RunRow | None, lag: int, code: str, message: str) -> RunRow:
    if row is not None and can_see(caller, ResourceOwner(tenant=row.tenant, user_id=row.user_id)):
        return row
    if row is None and lag:
        raise not_yet_error(f"{message} in the read models, which are behind", lag)
    raise Refused(code, message)


def _check_id(code: str, what: str, any_id: str) -> None:
    """Answer an impossible id like an unknown one."""
    if not ID_PATTERN.match(any_id):
        raise Refused(code, f"there is no {what} {any_id[:140]}")


def _check_cursor(cursor: str) -> None:
    if len(cursor) > CURSOR_CHARACTERS_MAX or not CURSOR_PATTERN.match(cursor):
        raise bad_request("cursor is not a place this list gave out: use `next` of an earlier answer")
    try:
        parts = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise bad_request("cursor is not a place this list gave out: use `next` of an earlier answer") from error
    if not parts.replace("\n", "").isprintable():
        raise bad_request("cursor is not a place this list gave out: use `next` of an earlier answer")
