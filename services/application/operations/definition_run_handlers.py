"""The handlers of the operations between definitions and runs.

Before: handlers.py. After: services/application/definition_runs.py.
"""

from loomlog.services.application.operations import definition_runs as api
from loomlog.services.application.operations.area import Area
from loomlog.services.application.queries.run_filters import parse_statuses
from loomlog.services.application.queries.run_json import run_json
from loomlog.services.core.operations import Answer, Call, Handlers
from loomlog.services.families.ports.run_blame import Blame


class DefinitionRunHandlers(Area):
    def by_operation(self) -> Handlers:
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
