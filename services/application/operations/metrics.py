"""The operations on the samples of metrics. Pure.

Before: process.py. After: services/api/metric_handlers.py carries them out.
"""

from functools import partial
from typing import Annotated, Literal

from msgspec import Meta

from loomlog.services.application.operations.fields import PROCESS_TAG, RunId, http
from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.operations import PRINTABLE, AnyOperation, Effect, Input, Operation, Output

SAMPLES_DEFAULT, SAMPLES_MAX = 200, 1_000
CURSOR_MAX = 2**63 - 1
Instant = Annotated[str, Meta(max_length=64, pattern=PRINTABLE)]


class SamplesAsked(Input, frozen=True, kw_only=True):
    since: Annotated[Instant, Meta(description="Only samples at this time or later, RFC 3339.")]
    until: Annotated[Instant, Meta(description="Only samples before this time, RFC 3339; absent: now.")] = ""
    limit: Annotated[int, Meta(ge=1, le=SAMPLES_MAX, description="Most samples of one answer.")] = SAMPLES_DEFAULT
    cursor: Annotated[int, Meta(ge=0, le=CURSOR_MAX, description="`next_cursor` of an earlier answer.")] = 0


class RunMetricsAsked(Input, frozen=True, kw_only=True):
    run_id: RunId


class SummaryAsked(Input, frozen=True, kw_only=True):
    period: Annotated[Literal["1h", "24h", "7d"], Meta(description="How far back.")] = "1h"


class Sample(Output, frozen=True, kw_only=True):
    """What a process was at a time."""

    sample_id: int
    replica_id: str
    sampled_at: Annotated[str, Meta(description="RFC 3339.")]
    active_runs: Annotated[int, Meta(description="Runs at work in the whole installation.")]
    queued_runs: Annotated[int, Meta(description="Starts that wait for the log in this process.")]
    loomcycle_rss_bytes: Annotated[int, Meta(description="Resident memory of the process.")]
    loomcycle_cpu_pct_x100: Annotated[
        int, Meta(description="Hundredths of a percent of one core, since the sample before.")
    ]


class SampleList(Output, frozen=True, kw_only=True):
    samples: Annotated[list[Sample], Meta(description="Oldest first.")]
    next_cursor: Annotated[int | None, Meta(description="Cursor of later samples; null at the end.")]


class SampleBucket(Output, frozen=True, kw_only=True):
    """The samples of all processes in one piece of time."""

    at: Annotated[str, Meta(description="Its beginning, RFC 3339.")]
    mean_rss_bytes: int
    max_rss_bytes: int
    p95_cpu_pct_x100: int
    active_runs_max: int
    sample_count: int


class SampleSummary(Output, frozen=True, kw_only=True):
    period: str
    buckets: Annotated[list[SampleBucket], Meta(description="Oldest first; a piece of time without samples is absent.")]


class RunMetrics(Output, frozen=True, kw_only=True):
    """What the processes were while a run was at work. Without samples the numbers are 0."""

    run_id: str
    started_at: str
    ended_at: Annotated[str | None, Meta(description="Null while it is at work.")]
    mean_rss_bytes: int
    max_rss_bytes: int
    max_cpu_pct_x100: int
    sample_count: int


_read = partial(
    Operation, effect=Effect.READ, tag=PROCESS_TAG, access=requires(ADMIN), unavailable_code="projection_unavailable"
)
LIST_SAMPLES = _read(
    name="installation.list_samples",
    summary="List samples of memory, CPU and runs at work, which are kept for seven days.",
    input=SamplesAsked,
    output=SampleList,
    http=(http(route="GET /v1/_metrics/samples", id="list_metric_samples"),),
)
GET_SUMMARY = _read(
    name="installation.get_sample_summary",
    summary="Get the samples of the last hour, day or week in pieces of a minute, a quarter of an hour, two hours.",
    input=SummaryAsked,
    output=SampleSummary,
    http=(http(route="GET /v1/_metrics/summary", id="get_metric_summary"),),
)
GET_OF_RUN = _read(
    name="installation.get_samples_of_run",
    summary="Get memory and CPU of the processes while a run was at work.",
    input=RunMetricsAsked,
    output=RunMetrics,
    http=(http(route="GET /v1/_metrics/runs/{run_id}", id="get_run_metrics"),),
)
METRIC_OPERATIONS: tuple[AnyOperation, ...] = (LIST_SAMPLES, GET_SUMMARY, GET_OF_RUN)
