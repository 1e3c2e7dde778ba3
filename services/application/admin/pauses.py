"""Pausing more than one run: an agent, a tenant, everything. (services/application/runs/control.py pauses one run.)

The owner of the pauses decides them in one order (services/families/pause). Every runtime reads them and makes its
live runs stop at their next model call; new runs are refused here while a pause holds them, and start paused when they
were accepted before. Progress is read from the read models, so a pause that was answered with `pausing` continues to
take effect.

Before: a transport. After: installation_commands.py; every runtime applies what was decided.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from loomlog.projections.run_queries import RunFilter
from loomlog.projections.runs import RunRow, is_idle, is_paused, pause_scopes
from loomlog.projections.tables import EVERY_TENANT
from loomlog.schemas.generated.pause_commands import LiftPause, SetPause
from loomlog.services.application import limits
from loomlog.services.application.admin.installation_commands import InstallationCommands
from loomlog.services.application.authentication import require_scope
from loomlog.services.application.errors import RETRY_LATER_S, bad_request
from loomlog.services.application.runs.requests import sanitize_reason
from loomlog.services.application.streaming.run_stream import StreamSources
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.pauses import ALL, InvalidPause, WidePause, validate_scope
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run.lifecycle.pause import RUN_SCOPE
from loomlog.services.families.pause import PAUSES
from loomlog.services.families.pause.state import PauseTable

STATUS_ROUTE = "GET /v1/_state"
STATUS_POLL_S = 0.1
"""Seconds between queries of the read models for the progress of a pause."""
COUNTED_PAGES_MAX = 40
"""Pages of live runs that are counted: 20,000 runs, the same maximum as elsewhere in a process."""
WARNINGS_MAX = 20
"""Maximum number of runs listed that did not stop in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseTarget:
    """Target of a pause: `all`, a `tenant`, or an `agent` (of one tenant, or of every one)."""

    scope: str = ALL
    tenant: str = ""
    agent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseStatus:
    """Progress of a pause: running, pausing or paused; `pending_runs` are runs that have not stopped yet."""

    state: str
    paused: int
    pending_runs: tuple[str, ...] = ()
    resumed: int = 0
    """Number of runs that continue."""
    position: str = ""
    duration_ms: int = 0


class Pauses:
    """The use cases of operators. All methods raise Refused."""

    def __init__(self, sources: StreamSources, commands: InstallationCommands) -> None:
        self._projection = sources.projection
        self._commands = commands

    @property
    def table(self) -> PauseTable:
        """The pauses as far as this process has read them."""
        table: PauseTable = self._commands.state(PAUSES)
        return table

    def check_admission(self, tenant: str, agent: str) -> None:
        """Raise Refused(runtime_paused) while a new run of that agent would be held."""
        held = self.table.pauses_for(tenant, agent)
        if held:
            why = f": {held[0].reason}" if held[0].reason else ""
            raise Refused(
                "runtime_paused",
                f"{held[0].scope} is paused{why}; runs start again when it is resumed",
                retry_after_s=RETRY_LATER_S,
            )

    async def pause(self, caller: Caller, target: PauseTarget, *, reason: str, timeout_s: float) -> PauseStatus:
        """Pause, then wait at most `timeout_s` until the runs it holds have stopped. Raises already_pausing."""
        require_scope(caller, ADMIN)
        clock = asyncio.get_running_loop().time
        began = clock()
        _validate(target)
        position = await self._set(caller, target, sanitize_reason(reason))
        while True:
            rows = await self._live_runs(target)
            moving = tuple(row.run_id for row in rows if not is_idle(row))
            if not moving or clock() - began >= timeout_s:
                break
            await asyncio.sleep(STATUS_POLL_S)
        return PauseStatus(
            state="pausing" if moving else "paused",
            paused=_count_paused(rows),
            pending_runs=moving[:WARNINGS_MAX],
            position=position,
            duration_ms=round((clock() - began) * 1000),
        )

    async def resume(self, caller: Caller, target: PauseTarget) -> PauseStatus:
        """Lift a pause; runs that other pauses still hold count neither as running nor as resumed.
        Raises not_paused.
        """
        require_scope(caller, ADMIN)
        _validate(target)
        rows = await self._live_runs(target)
        command = LiftPause(
            envelope=self._commands.envelope(caller), scope=target.scope, tenant=target.tenant, agent=target.agent
        )
        position = (await self._commands.send(command, status_route=STATUS_ROUTE)).position
        state = "paused" if self.table.pauses_for(target.tenant, target.agent) else "running"
        return PauseStatus(
            state=state, paused=_count_paused(rows), resumed=sum(map(self._is_released, rows)), position=position
        )

    async def state(self, caller: Caller) -> tuple[PauseStatus, tuple[WidePause, ...]]:
        """Return the status of the whole installation, and every active pause."""
        require_scope(caller, ADMIN)
        rows = await self._live_runs(PauseTarget())
        state = "running"
        table = self.table
        if table.find(ALL, "", "") is not None:
            state = "paused" if all(map(is_idle, rows)) else "pausing"
        return PauseStatus(state=state, paused=_count_paused(rows)), table.listed()

    async def restore(self, caller: Caller, pause: WidePause, *, dry_run: bool) -> str | None:
        """Set a pause of another installation here; returns its position, or None when it was set already."""
        require_scope(caller, ADMIN)
        target = PauseTarget(scope=pause.scope, tenant=pause.tenant, agent=pause.agent)
        _validate(target)
        if self.table.find(target.scope, target.tenant, target.agent) is not None:
            return None
        if dry_run:
            return ""
        try:
            return await self._set(caller, target, pause.reason)
        except Refused as refused:
            if refused.code == "already_pausing":
                return None  # by another process just now
            raise

    # --- shared ------------------------------------------------------------------------------------------------------

    def _is_released(self, row: RunRow) -> bool:
        """Whether a paused run is held by no pause now that this one is lifted."""
        if not is_paused(row) or row.quarantined or RUN_SCOPE in pause_scopes(row):
            return False
        return not self.table.pauses_for(row.tenant, row.agent)

    async def _set(self, caller: Caller, target: PauseTarget, reason: str) -> str:
        """Return the position of the pause."""
        command = SetPause(
            envelope=self._commands.envelope(caller),
            scope=target.scope,
            tenant=target.tenant,
            agent=target.agent,
            reason=reason,
        )
        return (await self._commands.send(command, status_route=STATUS_ROUTE)).position

    async def _live_runs(self, target: PauseTarget) -> list[RunRow]:
        """Return the live runs of the target."""
        rows: list[RunRow] = []
        after = ""
        run_filter = RunFilter(statuses=frozenset({"running"}), agent=target.agent)
        for _ in range(COUNTED_PAGES_MAX):
            scope = target.tenant or EVERY_TENANT
            page = await self._projection.runs(scope, run_filter, limit=limits.LIST_MAX, after=after)
            rows += page.rows
            after = page.next
            if not after:
                break
        return rows


def _count_paused(rows: Iterable[RunRow]) -> int:
    return sum(map(is_paused, rows))


def _validate(target: PauseTarget) -> None:
    """Check a target before anything is read for it. Raises Refused(bad_request)."""
    try:
        validate_scope(target.scope, target.tenant, target.agent)
    except InvalidPause as error:
        raise bad_request(str(error)) from error
