"""The handlers of the operations between definitions and runs.

Before: handlers.py. After: services/application/definition_runs.py.
"""

from typing import TYPE_CHECKING

from loomlog.services.application.operations import definition_runs as api
from loomlog.services.application.queries.run_filters import parse_statuses
from loomlog.services.application.queries.run_json import run_json
from loomlog.services.core.operations import Answer, Call, Handlers
from loomlog.services.families.ports.run_blame import Blame

if TYPE_CHECKING:
    from loomlog.services.application.application import Application


class DefinitionRunHandlers:
    """Carries out the operations; each is named like its operation."""

    def __init__(self, application: "Application") -> None:
        self._application = application

    def by_operation(self) -> Handlers:
        """Return the handler of each operation."""
        return {api.LIST: self.list_all, api.BLAME: self.blame}

    async def list_all(self, call: Call[api.RunsOfVersion]) -> Answer[api.DefinitionRuns]:
        asked = call.input
        page = await self._application.definition_runs.runs(
            call.principal,
            asked.def_id,
            statuses=parse_statuses(asked.status or "all"),
            tenant=asked.tenant,
            limit=asked.limit,
            after=asked.cursor,
        )
        topic = self._application.barrier.topic
        return Answer(value={"runs": [run_json(row, topic) for row in page.rows], "next": page.next or None})

    async def blame(self, call: Call[api.BlamedRun]) -> Answer[Blame]:
        return Answer(value=await self._application.definition_runs.blame(call.principal, call.input.run_id))
