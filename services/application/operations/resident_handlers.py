"""The handlers of the operations on resident sub-agents.

Before: handlers.py. After: services/application/runs/control.py.
"""

from loomlog.projections.run_queries import RunFilter
from loomlog.services.application.answers.runs import ResidentClosed, ResidentList, ResidentTurnCancelled
from loomlog.services.application.operations import residents as api
from loomlog.services.application.operations.area import Area
from loomlog.services.application.queries.run_json import resident_json
from loomlog.services.core.operations import Answer, Call, Handlers


class ResidentHandlers(Area):
    def by_operation(self) -> Handlers:
        return {api.LIST: self.list_all, api.CLOSE: self.close, api.CANCEL_TURN: self.cancel_turn}

    async def list_all(self, call: Call[api.ResidentListAll]) -> Answer[ResidentList]:
        asked = call.input
        page = await self._application.queries.runs(
            call.principal,
            RunFilter(statuses=frozenset({"running"}), resident=True),
            tenant=asked.tenant,
            limit=asked.limit,
            after=asked.cursor,
        )
        return Answer(value={"residents": [resident_json(row) for row in page.rows], "next": page.next or None})

    async def close(self, call: Call[api.ResidentReason]) -> Answer[ResidentClosed]:
        asked = call.input
        result = await self._application.control.close_resident(call.principal, asked.run_id, asked.reason or "")
        answer: ResidentClosed = {
            "child_run_id": result.run_id,
            "state": "closed" if result.reason == "closed" else result.status,
            "closed": True,
        }
        return Answer(value=answer, positions=(result.position,))

    async def cancel_turn(self, call: Call[api.ResidentReason]) -> Answer[ResidentTurnCancelled]:
        """Cancel the current turn; the child run continues to exist."""
        asked = call.input
        await self._application.control.check_resident(call.principal, asked.run_id)
        result = await self._application.interrupts.cancel_turn(call.principal, asked.run_id, asked.reason or "")
        answer: ResidentTurnCancelled = {
            "child_run_id": result.run_id,
            "state": "awaiting_input" if result.parked else "running",
            "cancelled": True,
        }
        return Answer(value=answer, positions=(result.position,))
