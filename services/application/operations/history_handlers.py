"""The handlers of the operations on the history of runs.

Before: handlers.py. After: services/application/queries/run_history.py.
"""

from loomlog.services.application.operations import history as api
from loomlog.services.application.operations.area import Area
from loomlog.services.application.queries.history_json import comparison_json, proof_json, run_at_json
from loomlog.services.application.queries.json_types import RunComparison, RunReplay, RunStateAt
from loomlog.services.core.operations import Answer, Call, Handlers


class HistoryHandlers(Area):
    def by_operation(self) -> Handlers:
        return {api.STATE: self.state, api.REPLAY: self.replay, api.COMPARE: self.compare}

    async def state(self, call: Call[api.RunState]) -> Answer[RunStateAt]:
        asked = call.input
        moment = await self._application.histories.state_at(call.principal, asked.run_id, asked.at or 0)
        return Answer(value=run_at_json(moment))

    async def replay(self, call: Call[api.RunReplayTo]) -> Answer[RunReplay]:
        """Replay a run. Drift is a result, not an error: finding it is the purpose of the request."""
        asked = call.input
        proof = await self._application.histories.replay(call.principal, asked.run_id, to_seq=asked.to or 0)
        return Answer(value=proof_json(proof))

    async def compare(self, call: Call[api.RunCompare]) -> Answer[RunComparison]:
        asked = call.input
        two = await self._application.histories.compare(
            call.principal, asked.run_id, asked.other, a_seq=asked.at or 0, b_seq=asked.with_at or 0
        )
        return Answer(value=comparison_json(two))
