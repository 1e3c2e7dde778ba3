"""Metrics of this process, in Prometheus text format.

Counters that other components keep (the hub, the publisher) are read during a scrape; only the others are counted here.
Names begin with loomlog_; four gauges have the names that the reference's dashboards read. The registry belongs to this
object, so that import has no side effects and each test has its own.

Before: endpoints and the command layer. After: GET /metrics.
"""

import asyncio
import math
from collections.abc import Callable

import psutil
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from loomlog.services.application.application import Application
from loomlog.services.core.refusals import Refused

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
ACTIVE_WAIT_S = 1.0
"""Seconds to wait for the read models to count, so that a scrape is answered while they are unavailable."""
DURATION_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
BATCH_SIZE_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500)


class Metrics:
    """Metrics of one process. `build` names the version in loomcycle_build_info."""

    def __init__(self, *, version: str, commit: str) -> None:
        registry = self._registry = CollectorRegistry(auto_describe=False)
        self._requests = Counter(
            "loomlog_http_requests", "Answers, by route and status.", ("method", "route", "status"), registry=registry
        )
        self._counters: dict[tuple[str, str, int], Callable[[], None]] = {}
        self.start_seconds = Histogram(
            "loomlog_run_start_seconds",
            "From a request to the decision of the run's owner.",
            buckets=DURATION_BUCKETS,
            registry=registry,
        )
        self.batch_records = Histogram(
            "loomlog_command_batch_records",
            "Commands that went to the log together.",
            buckets=BATCH_SIZE_BUCKETS,
            registry=registry,
        )
        self.streams = Gauge("loomlog_event_streams_open", "Open event streams.", registry=registry)
        self._build = Gauge(
            "loomcycle_build_info", "Always 1; the labels tell the build.", ("version", "commit"), registry=registry
        )
        self._build.labels(version, commit).set(1)
        self._gauges = {
            name: Gauge(name, meaning, registry=registry)
            for name, meaning in (
                ("loomcycle_process_rss_bytes", "Resident memory of this process."),
                ("loomcycle_concurrency_active", "Runs at work, of all processes; NaN while the count is unavailable."),
                ("loomcycle_concurrency_queued", "Starts that wait for the log here."),
                ("loomlog_events_seen", "Events this process has read."),
                ("loomlog_previews_seen", "Previews this process has read."),
                ("loomlog_stale_records_seen", "Records of fenced owners this process has read."),
                ("loomlog_unreadable_records_seen", "Records this process could not read."),
                ("loomlog_hub_newest_event_timestamp_seconds", "Time of the newest event read."),
                ("loomlog_hub_kept_bytes", "Recent records kept for late subscribers."),
                ("loomlog_hub_subscribers", "Subscriptions to runs."),
                ("loomlog_commands_appended", "Commands this process has appended."),
                (
                    "loomlog_command_unknown_outcomes",
                    "Appends whose outcome could not be told and which were repeated.",
                ),
            )
        }
        self._process = psutil.Process()

    def count(self, method: str, route: str, status: int) -> None:
        """Count one response."""
        key = (method, route, status)
        counted = self._counters.get(key)
        if counted is None:
            counted = self._counters[key] = self._requests.labels(method, route, str(status)).inc
        counted()

    async def render(self, application: Application | None) -> bytes:
        """Return all metrics in the format of a scrape."""
        memory = await asyncio.to_thread(self._process.memory_info)
        self._set_gauge("loomcycle_process_rss_bytes", memory.rss)
        if application is not None:
            hub, publisher = application.hub, application.publisher
            self._set_gauge("loomcycle_concurrency_active", await _count_active(application))
            self._set_gauge("loomcycle_concurrency_queued", publisher.waiting_count)
            self._set_gauge("loomlog_events_seen", hub.events)
            self._set_gauge("loomlog_previews_seen", hub.previews)
            self._set_gauge("loomlog_stale_records_seen", hub.stale)
            self._set_gauge("loomlog_unreadable_records_seen", hub.unreadable)
            self._set_gauge("loomlog_hub_newest_event_timestamp_seconds", hub.newest_ms / 1000)
            self._set_gauge("loomlog_hub_kept_bytes", hub.kept_bytes)
            self._set_gauge("loomlog_hub_subscribers", hub.subscribers)
            self._set_gauge("loomlog_commands_appended", publisher.records)
            self._set_gauge("loomlog_command_unknown_outcomes", publisher.unknown_outcomes)
        return generate_latest(self._registry)

    def _set_gauge(self, name: str, value: float) -> None:
        self._gauges[name].set(value)


async def _count_active(application: Application) -> float:
    """Count active runs in the read models. The hub cannot: it knows all runs not ended, and parked runs are not
    active.
    """
    try:
        async with asyncio.timeout(ACTIVE_WAIT_S):
            return sum(runs.runs for runs in await application.queries.count_active())
    except (TimeoutError, Refused):
        return math.nan
