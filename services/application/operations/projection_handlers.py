"""The handlers of the operations on the read models.

Before: services/application/dispatch.py. After: services/application/queries/, projections/engine/lag.py.
"""

import time
from collections import Counter

from loomlog.projections.engine.lag import ProjectionLag, lag_json
from loomlog.services.application.answers.operators import Concurrency
from loomlog.services.application.log.json_types import ProjectionProblemReport
from loomlog.services.application.operations import projections as api
from loomlog.services.application.operations.area import Area
from loomlog.services.core.operations import Answer, Call, Handlers, NoInput


class ProjectionHandlers(Area):
    def by_operation(self) -> Handlers:
        return {api.GET_LAG: self.lag, api.LIST_PROBLEMS: self.problems, api.COUNT_ACTIVE: self.count_active}

    async def lag(self, call: Call[NoInput]) -> Answer[ProjectionLag]:
        """Return the lag of the read models."""
        progress = await self._application.projection.progress()
        barrier = self._application.barrier
        return Answer(value=lag_json(progress, barrier.topic, barrier.log_ends(), now_s=time.time()))

    async def problems(self, call: Call[api.ProjectionListProblems]) -> Answer[ProjectionProblemReport]:
        """Return what could not be projected."""
        return Answer(value=await self._application.projection_problems.report(limit=call.input.limit))

    async def count_active(self, call: Call[NoInput]) -> Answer[Concurrency]:
        """Count active runs."""
        users, providers, working = Counter[str](), Counter[str](), 0
        for user_id, provider, runs, at_work in await self._application.queries.count_active():
            users[user_id] += runs
            providers[provider] += runs
            working += at_work
        return Answer(
            value={
                "active": users.total(),
                "at_work": working,
                "queued": self._application.publisher.waiting_count + self._application.runs.pending_starts,
                "per_user": dict(users),
                # Only the runtimes know the requests queued for a provider: see their /metrics.
                "providers": {name: {"active": count, "queued": None} for name, count in providers.items()},
            }
        )
