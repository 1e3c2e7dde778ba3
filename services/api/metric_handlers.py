"""The handlers of the operations on the samples of metrics. Formats as in reference surfaces 1.9.

Before: service.py. After: connectors/storage/metric_samples.py.
"""

from typing import TYPE_CHECKING

from loomlog.connectors.storage.metric_samples import MetricSample, MetricSamples
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.services.application.operations import metrics as api
from loomlog.services.application.resources import clock_ms
from loomlog.services.core.operations import Answer, Call, Handlers
from loomlog.services.core.refusals import Refused
from loomlog.services.core.times import parse_time_ms

if TYPE_CHECKING:  # it opens these handlers
    from loomlog.services.api.service import Service

HOUR_MS = 3_600_000
PERIODS = {
    "1h": (HOUR_MS, 60_000),
    "24h": (24 * HOUR_MS, HOUR_MS // 4),
    "7d": (7 * 24 * HOUR_MS, 2 * HOUR_MS),
}
"""Length of a period, and of its pieces."""


class MetricHandlers:
    """One method for each operation. All raise Refused."""

    def __init__(self, service: "Service") -> None:
        self._service = service

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {
            api.LIST_SAMPLES: self.list_samples,
            api.GET_SUMMARY: self.summary,
            api.GET_OF_RUN: self.of_run,
        }

    @property
    def _samples(self) -> MetricSamples:
        if self._service.samples is None:
            raise Refused(
                "metrics_off",
                "no samples are taken: LOOMLOG_METRICS_ENABLED or LOOMLOG_METRICS_SAMPLE_INTERVAL_MS is 0",
            )
        return self._service.samples

    async def list_samples(self, call: Call[api.SamplesAsked]) -> Answer[api.SampleList]:
        """Return a page of samples."""
        asked = call.input
        since = parse_time_ms("since", asked.since)
        until = parse_time_ms("until", asked.until) if asked.until else clock_ms() + 1
        listed = await self._samples.samples(since, until, after=asked.cursor, limit=asked.limit + 1)
        shown = listed[: asked.limit]
        following = shown[-1].sample_id if len(listed) > asked.limit else None
        return Answer(value=api.SampleList(samples=[_sample(one) for one in shown], next_cursor=following))

    async def summary(self, call: Call[api.SummaryAsked]) -> Answer[api.SampleSummary]:
        """Return the samples of a period in pieces."""
        length_ms, width_ms = PERIODS[call.input.period]
        now_ms = clock_ms()
        listed = await self._samples.buckets(now_ms - length_ms, now_ms + 1, width_ms=width_ms)
        buckets = [
            api.SampleBucket(
                at=format_rfc3339(one.at_ms),
                mean_rss_bytes=one.mean_rss_bytes,
                max_rss_bytes=one.max_rss_bytes,
                p95_cpu_pct_x100=one.p95_cpu_pct_x100,
                active_runs_max=one.active_runs_max,
                sample_count=one.sample_count,
            )
            for one in listed
        ]
        return Answer(value=api.SampleSummary(period=call.input.period, buckets=buckets))

    async def of_run(self, call: Call[api.RunMetricsAsked]) -> Answer[api.RunMetrics]:
        """Return what the processes were while a run was at work."""
        samples = self._samples
        row = await self._service.application.queries.run(call.principal, call.input.run_id)
        end_ms = (clock_ms() if row.ended_at_ms is None else row.ended_at_ms) + 1
        # One piece of time that has all of them: a number of it is below its width.
        listed = await samples.buckets(row.started_at_ms, end_ms, width_ms=1 << 62)
        one = listed[0] if listed else None
        return Answer(
            value=api.RunMetrics(
                run_id=row.run_id,
                started_at=format_rfc3339(row.started_at_ms),
                ended_at=None if row.ended_at_ms is None else format_rfc3339(row.ended_at_ms),
                mean_rss_bytes=0 if one is None else one.mean_rss_bytes,
                max_rss_bytes=0 if one is None else one.max_rss_bytes,
                max_cpu_pct_x100=0 if one is None else one.max_cpu_pct_x100,
                sample_count=0 if one is None else one.sample_count,
            )
        )


def _sample(sample: MetricSample) -> api.Sample:
    return api.Sample(
        sample_id=sample.sample_id,
        replica_id=sample.replica_id,
        sampled_at=format_rfc3339(sample.sampled_at_ms),
        active_runs=sample.active_runs,
        queued_runs=sample.queued_runs,
        loomcycle_rss_bytes=sample.rss_bytes,
        loomcycle_cpu_pct_x100=sample.cpu_pct_x100,
    )
