"""Runs and definitions: the runs of a version, and why a run did what it did.

Before: operations/definition_run_handlers.py. After: services/families/ports/run_blame.py; the rows of runs.
"""

from loomlog.projections.run_queries import RunFilter
from loomlog.services.application.queries.run_history import RunHistories
from loomlog.services.application.queries.runs import RunList, RunQueries
from loomlog.services.core.access.decide import Caller, resolve_tenant
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run import state as run_states
from loomlog.services.families.ports.run_blame import Blame, PinnedSkill, RunBlame


class DefinitionRuns:
    """The use cases. All methods raise Refused."""

    def __init__(self, blame: RunBlame, queries: RunQueries, histories: RunHistories) -> None:
        self._blame = blame
        self._queries = queries
        self._histories = histories

    async def runs(
        self,
        caller: Caller,
        def_id: str,
        *,
        statuses: frozenset[str] = frozenset(),
        tenant: str = "",
        limit: int,
        after: str = "",
    ) -> RunList:
        """Return the runs that are pinned to a version of an agent, newest first."""
        self._blame.require_agent(def_id, resolve_tenant(caller, tenant), is_admin=caller.is_admin)
        return await self._queries.runs(
            caller, RunFilter(def_id=def_id, statuses=statuses), tenant=tenant, limit=limit, after=after
        )

    async def blame(self, caller: Caller, run_id: str) -> Blame:
        """Return the version that a run was pinned to, who made it, and who made it active before the run began."""
        blame = await self._blame.of_run(await self._queries.visible_run(caller, run_id))
        blame["skills"] = await self._skills(caller, run_id)
        return blame

    async def _skills(self, caller: Caller, run_id: str) -> list[PinnedSkill] | None:
        """Return the skills that the run keeps to; None when its history is too long, damaged or not readable now."""
        try:
            state = (await self._histories.state_at(caller, run_id, 0)).replayed.state
        except Refused:
            return None
        pins = () if isinstance(state, run_states.Absent | run_states.Refused) else state.facts.skill_pins
        return [
            {"name": pin.name, "def_id": pin.def_id, "version": pin.version, "content_sha256": pin.content_sha256}
            for pin in pins
        ]
