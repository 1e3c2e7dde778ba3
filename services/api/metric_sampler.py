"""Samples of this process and of the runs at work, taken again and again.

A sample that cannot be counted or stored is left out: the gap in the samples says so.

Before: process.py runs it beside the application. After: connectors/storage/metric_samples.py.
"""

import asyncio
from collections.abc import Callable

import psutil

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.storage.metric_samples import MetricSample, MetricSamples
from loomlog.projections.tables import EVERY_TENANT
from loomlog.services.application.application import Application
from loomlog.services.core.refusals import Refused


class MetricSampler:
    """Takes the samples of one process."""

    def __init__(
        self,
        samples: MetricSamples,
        *,
        replica_id: str,
        every_s: float,
        application: Callable[[], Application | None],
        clock_ms: Callable[[], int],
    ) -> None:
        self.samples = samples
        self._replica_id = replica_id
        self._every_s = every_s
        self._application = application
        self._clock_ms = clock_ms
        self._process = psutil.Process()

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            await self.take()
            await asyncio.sleep(self._every_s)

    async def take(self) -> None:
        """Store one sample, unless it cannot be counted or stored now."""
        application = self._application()
        if application is None:
            return
        memory = await asyncio.to_thread(self._process.memory_info)
        try:
            active = await application.projection.count_active(EVERY_TENANT)
            await self.samples.add(
                MetricSample(
                    sample_id=0,
                    replica_id=self._replica_id,
                    sampled_at_ms=self._clock_ms(),
                    active_runs=sum(runs.runs for runs in active),
                    queued_runs=application.publisher.waiting_count,
                    rss_bytes=memory.rss,
                    cpu_pct_x100=round(self._process.cpu_percent() * 100),
                )
            )
        except (ConnectorError, Refused):
            return
