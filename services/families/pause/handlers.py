"""Pausing more than one run: an agent, a tenant, everything. (services/application/runs/control.py pauses one run.)

The owner of the pauses decides them in one order (decide.py). Every runtime reads them and makes its
live runs stop at their next model call; new runs are refused here while a pause holds them, and start paused when they
were accepted before. Progress is read from the read models, so a pause that was answered with `pausing` continues to
take effect.

Before: services.py. After: services/families/installation.py; every runtime applies what was decided.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.run_queries import RunFilter
from loomlog.projections.runs import RunRow, is_idle, is_paused, pause_scopes
from loomlog.projections.tables import EVERY_TENANT
from loomlog.schemas.generated.pause_commands import LiftPause, SetPause
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.access.decide import Caller, RunIdentity
from loomlog.services.core.operations import Answer, Call, Handlers, NoInput
from loomlog.services.core.pauses import ALL, WidePause, validate_scope
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run.lifecycle.pause import RUN_SCOPE
from loomlog.services.core.run.limits import AGENT_NAME
from loomlog.services.families.installation import InstallationCommands, installation_envelope
from loomlog.services.families.operation import sanitize_reason
from loomlog.services.families.pause import PAUSES, api
from loomlog.services.families.pause.limits import WAIT_MS
from loomlog.services.families.pause.state import PauseTable
from loomlog.services.families.ports.current_request import CurrentRequest
from loomlog.services.families.ports.run_reads import RunReads

STATUS_ROUTE = "GET /v1/_state"
STATUS_POLL_S = 0.1
"""Seconds between queries of the read models for the progress of a pause."""
PAGE_SIZE = 500
RETRY_LATER_S = 5
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


class Pauses:
    """The use cases of operators (port StatedPauses). All raise Refused, those with commands Unavailable too."""

    def __init__(
        self,
        runs: RunReads,
        commands: InstallationCommands,
        request: CurrentRequest,
    ) -> None:
        self._runs = runs
        self._commands = commands
        self._request, self._new_id = request, request.command_ids("installation")

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {api.STATE: self.state, api.PAUSE: self.pause, api.RESUME: self.resume}

    @property
    def table(self) -> PauseTable:
        """The pauses as far as this process has read them."""
        table: PauseTable = self._commands.state(PAUSES)
        return table

    async def admit_run(self, caller: Caller, who: RunIdentity, agent: str) -> None:
        """Raise Refused(runtime_paused) while a new run of that agent would be held."""
        held = self.table.pauses_for(who.tenant, agent)
        if held:
            why = f": {held[0].reason}" if held[0].reason else ""
            raise Refused(
                "runtime_paused",
                f"{held[0].scope} is paused{why}; runs start again when it is resumed",
                retry_after_s=RETRY_LATER_S,
            )

    async def pause(self, call: Call[api.PauseRuns]) -> Answer[api.PauseApplied]:
        """Pause, then wait until the runs it holds have stopped."""
        clock = asyncio.get_running_loop().time
        began, wait_ms = clock(), call.input.timeout_ms
        deadline = began + (WAIT_MS if wait_ms is None else wait_ms) / 1000
        target = _to_target(call.input)
        _validate(target)
        position = await self._set(installation_envelope(call), target, sanitize_reason(call.input.reason or ""))
        while True:
            rows = await self._live_runs(target)
            moving = [row.run_id for row in rows if not is_idle(row)]
            if not moving or clock() >= deadline:
                break
            await asyncio.sleep(STATUS_POLL_S)
        value = api.PauseApplied(
            state="pausing" if moving else "paused",
            duration_ms=round((clock() - began) * 1000),
            paused_runs_count=_count_paused(rows),
            warnings=[f"{run_id} does not stand still yet" for run_id in moving[:WARNINGS_MAX]],
        )
        return Answer(value=value, positions=(position,))

    async def resume(self, call: Call[api.PauseResume]) -> Answer[api.PauseLifted]:
        """Lift a pause; runs that other pauses still hold count neither as running nor as resumed."""
        target = _to_target(call.input)
        _validate(target)
        rows = await self._live_runs(target)
        command = LiftPause(
            envelope=installation_envelope(call), scope=target.scope, tenant=target.tenant, agent=target.agent
        )
        answer = await self._commands.send(command, status_route=STATUS_ROUTE)
        state = "paused" if self.table.pauses_for(target.tenant, target.agent) else "running"
        value = api.PauseLifted(state=state, resumed_runs_count=sum(map(self._is_released, rows)))
        return Answer(value=value, positions=(answer.position,))

    async def state(self, call: Call[NoInput]) -> Answer[api.PauseState]:
        """Return the status of the whole installation, and every active pause."""
        rows = await self._live_runs(PauseTarget())
        state, table = "running", self.table
        if table.find(ALL, "", "") is not None:
            state = "paused" if all(map(is_idle, rows)) else "pausing"
        pauses = [_shown(pause) for pause in table.listed()]
        return Answer(value=api.PauseState(state=state, paused_runs_count=_count_paused(rows), pauses=pauses))

    def exported(self, tenant: str) -> Sequence[WidePause]:
        """See the port."""
        return self.table.listed_for_tenant(tenant) if tenant else self.table.listed()

    async def restore(self, caller: Caller, pause: WidePause, *, dry_run: bool) -> str | None:
        """See the port."""
        target = PauseTarget(scope=pause.scope, tenant=pause.tenant, agent=pause.agent)
        _validate(target)
        if self.table.find(target.scope, target.tenant, target.agent) is not None:
            return None
        if dry_run:
            return ""
        try:
            return await self._set(self._envelope(caller), target, pause.reason)
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

    def _envelope(self, caller: Caller) -> CommandEnvelope:
        return CommandEnvelope(
            command_id=f"c_{self._new_id()}",
            tenant="",
            subject=caller.subject,
            issued_at_ms=self._request.issued_at_ms(),
        )

    async def _set(self, envelope: CommandEnvelope, target: PauseTarget, reason: str) -> str:
        """Return the position of the pause."""
        command = SetPause(
            envelope=envelope, scope=target.scope, tenant=target.tenant, agent=target.agent, reason=reason
        )
        return (await self._commands.send(command, status_route=STATUS_ROUTE)).position

    async def _live_runs(self, target: PauseTarget) -> list[RunRow]:
        """Return the live runs of the target."""
        rows: list[RunRow] = []
        after = ""
        run_filter = RunFilter(statuses=frozenset({"running"}), agent=target.agent)
        for _ in range(COUNTED_PAGES_MAX):
            scope = target.tenant or EVERY_TENANT
            page = await self._runs.runs(scope, run_filter, limit=PAGE_SIZE, after=after)
            rows += page.rows
            after = page.next
            if not after:
                break
        return rows


def _count_paused(rows: Iterable[RunRow]) -> int:
    return sum(map(is_paused, rows))


def _validate(target: PauseTarget) -> None:
    """Check a target before anything is read for it. Raises Refused(bad_request)."""
    if target.agent and not AGENT_NAME.match(target.agent):
        raise Refused("bad_request", f"agent: {target.agent[:60]!r} is no name of an agent")
    try:
        validate_scope(target.scope, target.tenant, target.agent)
    except ValueError as error:
        raise Refused("bad_request", str(error)) from error


def _to_target(asked: api.PauseRuns | api.PauseResume) -> PauseTarget:
    return PauseTarget(scope=asked.scope or ALL, tenant=asked.tenant or "", agent=asked.agent or "")


def _shown(pause: WidePause) -> api.PauseEntry:
    return api.PauseEntry(
        scope=pause.scope,
        tenant=pause.tenant or None,
        agent=pause.agent or None,
        reason=pause.reason or None,
        by=pause.by,
        at=format_rfc3339(pause.at_ms),
    )
