"""Runs that families have started for requests: their first event, and their end.

Before: services/families/ports/run_watch.py. After: services/application/streaming.
"""

import asyncio

from loomlog.schemas.generated.run_events import RunRefused, RunStarted
from loomlog.services.application.runs.batch import OutcomeBuilder, SpawnOutcome
from loomlog.services.application.streaming.items import EventItem
from loomlog.services.application.streaming.run_stream import StreamSources, resumed_stream
from loomlog.services.application.streaming.subscription import Subscription
from loomlog.services.core.refusals import Refused
from loomlog.services.families.ports.run_watch import EndedRun


class HubRunWatch:
    """Protocol RunWatch."""

    def __init__(self, sources: StreamSources) -> None:
        self._sources = sources

    def expect(self, run_id: str) -> "HubExpectedRun":
        return HubExpectedRun(self._sources.hub.subscribe(run_id))

    async def end(self, tenant: str, run_id: str, timeout_s: float) -> EndedRun | None:
        outcome = SpawnOutcome(status="running", run_id=run_id, agent_id="a_" + run_id.removeprefix("r_"))
        builder = OutcomeBuilder(outcome)
        stream = resumed_stream(self._sources, run_id, scope=tenant)
        try:
            async with asyncio.timeout(timeout_s):
                while outcome.status == "running" and (chunks := await stream.next()) is not None:
                    for chunk in chunks:
                        builder.add_frame(chunk)
        except (TimeoutError, Refused):
            pass  # the end is not known
        finally:
            stream.close()
        if outcome.status == "running":
            return None
        return EndedRun(
            agent_id=outcome.agent_id, status=outcome.status, final_text=outcome.final_text, result=outcome.result
        )


class HubExpectedRun:
    """Protocol ExpectedRun."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    async def first_event(self, deadline: float) -> RunStarted | RunRefused | None:
        clock = asyncio.get_running_loop().time
        while (left := deadline - clock()) > 0:
            items = await self._subscription.take(left)
            for item in items:
                if isinstance(item, EventItem):
                    record = item.record
                    return record if isinstance(record, RunStarted | RunRefused) else None
            if self._subscription.close_reason:
                break
        return None

    def close(self) -> None:
        self._subscription.close()
