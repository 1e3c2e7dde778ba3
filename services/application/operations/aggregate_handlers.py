"""The handlers of the operations on aggregates that are quarantined.

Before: services/application/dispatch.py. After: services/application/admin/repair.py.
"""

from loomlog.services.application.answers.policies import AggregateRepaired, FoldedAggregate
from loomlog.services.application.operations import aggregates as api
from loomlog.services.application.operations.area import Area
from loomlog.services.core.operations import Answer, Call, Handlers


class AggregateHandlers(Area):
    def by_operation(self) -> Handlers:
        return {api.SHOW: self.show, api.REPAIR: self.repair}

    async def show(self, call: Call[api.LoggedAggregateNamed]) -> Answer[FoldedAggregate]:
        """Return what is known of an aggregate."""
        view = await self._application.repairs.show(call.input.aggregate)
        return Answer(
            value={
                "aggregate": view.aggregate,
                "seq": view.seq,
                "quarantine": view.quarantine or None,
                "state": view.state,
                "position": view.position,
            }
        )

    async def repair(self, call: Call[api.AggregateRepair]) -> Answer[AggregateRepaired]:
        """Restate an aggregate."""
        asked = call.input
        position = await self._application.repairs.repair(
            call.principal, asked.aggregate, state=asked.state, reason=asked.reason or ""
        )
        return Answer(value={"aggregate": asked.aggregate, "position": position}, positions=(position,))
