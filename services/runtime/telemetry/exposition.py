"""Metrics of a runtime process as Prometheus text.

Everything is collected at the time of a scrape: what the loop counts anyway (services/stream), what metrics.py counts,
and current values (live runs, calls under way). So a process that is not scraped pays almost nothing.

Before: metrics.py, host.py. After: metrics_server.py.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from loomlog.services.runtime.admission.queue import AdmissionQueue
from loomlog.services.runtime.models.provider_queues import ProviderQueue
from loomlog.services.runtime.telemetry.metrics import Labels, RunMetrics
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.effect_calls import EffectRunner
from loomlog.services.stream.histogram import Histogram
from loomlog.services.stream.host import Host
from loomlog.services.stream.partition.resting import is_resting


def build_exposition(
    metrics: RunMetrics,
    host: Host,
    calls: EffectRunner,
    dead_letters: DeadLetters,
    *,
    queues: Mapping[str, ProviderQueue] = MappingProxyType({}),
    admission_queue: AdmissionQueue | None = None,
) -> Callable[[], bytes]:
    """Return a function that renders the current metrics. `queues` are the providers',
    `admission_queue` is for starts.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(RuntimeCollector(metrics, host, calls, dead_letters))
    registry.register(QueueCollector(queues, admission_queue))
    ProcessCollector(registry=registry)
    return lambda: generate_latest(registry)


class RuntimeCollector(Collector):
    """All metrics of loomlog; memory, CPU time and descriptors come from prometheus_client's ProcessCollector."""

    def __init__(self, metrics: RunMetrics, host: Host, calls: EffectRunner, dead_letters: DeadLetters) -> None:
        self._metrics = metrics
        self._host = host
        self._calls = calls
        self._dead_letters = dead_letters

    def collect(self) -> Iterator[Metric]:
        yield from self._run_metrics()
        yield from self._call_metrics()
        yield from self._log_metrics()
        yield from self._partition_metrics()

    def _run_metrics(self) -> Iterator[Metric]:
        metrics = self._metrics
        yield _counter("runs_started", "Runs whose start is in the log.", metrics.runs_started)
        yield _counters("runs_ended", "Runs whose end is in the log.", ("status",), metrics.runs_ended)
        yield _counters(
            "tokens", "Tokens of answered model turns; input without cached ones.", ("kind",), metrics.tokens
        )
        yield _counters(
            "cost_micros", "Cost of answered model turns in millionths.", ("currency",), metrics.cost_micros
        )

    def _call_metrics(self) -> Iterator[Metric]:
        metrics = self._metrics
        yield _counters(
            "model_calls",
            "Attempts of model calls; the outcome is ok or what went wrong.",
            ("provider", "model", "outcome"),
            metrics.model_calls,
        )
        yield _histograms("model_call_seconds", "Length of an attempt.", ("provider", "model"), metrics.model_seconds)
        yield _counters("tool_calls", "Attempts of tool calls.", ("tool", "outcome"), metrics.tool_calls)
        yield _histograms("tool_call_seconds", "Length of an attempt.", ("tool",), metrics.tool_seconds)

    def _log_metrics(self) -> Iterator[Metric]:
        figures, flusher = self._host.metrics, self._host.flusher
        yield _counter("flushes", "Group commits: appends to all partitions that had something.", flusher.flushes)
        yield _histogram("flush_records", "Records of a flush.", flusher.sizes)
        yield _histogram("flush_seconds", "From leaving to the acknowledgement of all.", flusher.seconds)
        claims: dict[Labels, int] = {(reason,): count for reason, count in figures.claims_for.items()}
        yield _counters("claims", "Partitions taken.", ("reason",), claims)
        yield _histogram("take_over_seconds", "From the decision to claim to the first command.", figures.takeover_s)
        yield _counter("fenced", "Partitions lost to another owner's Claim.", figures.fenced)
        yield _counter(
            "unknown_outcomes", "Appends after which the log had to be read again.", figures.unknown_outcomes
        )
        yield _counter("stale_records", "Records of fenced owners met at take-overs.", figures.stale_records)
        yield _counter("commands", "Commands read from the log.", figures.commands)
        yield _counter("dead_letters", "Records parked in the dead-letter topic.", self._dead_letters.parked)

    def _partition_metrics(self) -> Iterator[Metric]:
        held = [owner.partition for owner in self._host.owners.values() if owner.partition is not None]
        live = [aggregate for partition in held for aggregate in partition.aggregates.values()]
        parked = sum(bool(aggregate.quarantined) for aggregate in live)
        yield _gauge("partitions_owned", "Partitions held now.", len(held))
        yield _gauge("partitions_warm", "Partitions of other owners, folded as a standby.", self._host.warm_partitions)
        yield _gauge(
            "partitions_watched",
            "Partitions of other owners that this spare claims when their owner dies.",
            self._host.watched_partitions,
        )
        yield _gauge("live_runs", "Runs held now.", len(live))
        yield _gauge("resting_runs", "Of these, runs whose state is not in memory.", sum(map(is_resting, live)))
        yield _gauge("quarantined_runs", "Of these, runs that wait for a person.", parked)
        yield _gauge("calls_under_way", "Model and tool calls under way.", self._calls.running_count)
        yield _histogram("event_loop_lag_seconds", "How late the event loop woke a sleeper.", self._metrics.loop_lag_s)


class QueueCollector(Collector):
    """Metrics of queues: starts of runs in the admission queue, model calls at their provider."""

    def __init__(self, queues: Mapping[str, ProviderQueue], admission_queue: AdmissionQueue | None) -> None:
        self._queues = queues
        self._admission_queue = admission_queue

    def collect(self) -> Iterator[Metric]:
        if self._admission_queue is not None:
            yield from self._admission_metrics(self._admission_queue)
        named = [((name,), queue) for name, queue in sorted(self._queues.items())]
        label = ("provider",)
        yield _gauges("provider_places", "Calls at once.", label, {key: queue.slots for key, queue in named})
        yield _gauges("provider_places_in_use", "Calls under way.", label, {key: queue.in_use for key, queue in named})
        yield _gauges("provider_queue_depth", "Calls that wait.", label, {key: queue.waiting for key, queue in named})
        yield _histograms(
            "provider_queue_wait_seconds",
            "How long calls waited that had to and got a place.",
            label,
            {key: queue.wait_seconds for key, queue in named},
        )
        away: dict[Labels, int] = {(*key, why): count for key, queue in named for why, count in queue.refused.items()}
        yield _counters(
            "provider_queue_turned_away", "Calls refused: queue full or wait timed out.", ("provider", "reason"), away
        )

    def _admission_metrics(self, admission_queue: AdmissionQueue) -> Iterator[Metric]:
        yield _gauge("runs_at_work", "Runs that have a place here.", len(admission_queue.controller.active))
        yield _gauge("starts_waiting", "Starts that wait for one.", len(admission_queue.controller.waiting))
        yield _histogram(
            "start_wait_seconds", "How long starts waited that had to and began.", admission_queue.wait_seconds
        )
        away: dict[Labels, int] = {(code,): count for code, count in admission_queue.refused.items()}
        yield _counters("starts_turned_away", "Starts refused because a limit was reached.", ("code",), away)


def _counter(name: str, help_text: str, value: float) -> Metric:
    family = CounterMetricFamily(f"loomlog_{name}", help_text)
    family.add_metric((), value)
    return family


def _counters(name: str, help_text: str, labels: Labels, counts: Mapping[Labels, int]) -> Metric:
    family = CounterMetricFamily(f"loomlog_{name}", help_text, labels=labels)
    for values, count in sorted(counts.items()):
        family.add_metric(values, count)
    return family


def _gauge(name: str, help_text: str, value: float) -> Metric:
    family = GaugeMetricFamily(f"loomlog_{name}", help_text)
    family.add_metric((), value)
    return family


def _gauges(name: str, help_text: str, labels: Labels, values: Mapping[Labels, float]) -> Metric:
    family = GaugeMetricFamily(f"loomlog_{name}", help_text, labels=labels)
    for label_values, value in values.items():
        family.add_metric(label_values, value)
    return family


def _histogram(name: str, help_text: str, values: Histogram) -> Metric:
    return _histograms(name, help_text, (), {(): values})


def _histograms(name: str, help_text: str, labels: Labels, distributions: Mapping[Labels, Histogram]) -> Metric:
    family = HistogramMetricFamily(f"loomlog_{name}", help_text, labels=labels)
    for label_values, values in sorted(distributions.items()):
        family.add_metric(label_values, _buckets(values), values.sum)
    return family


def _buckets(values: Histogram) -> list[tuple[str, float]]:
    """Return cumulative buckets: Prometheus expects each to count everything below its bound."""
    buckets: list[tuple[str, float]] = []
    count = 0
    for bound, here in zip((*map(str, values.bounds), "+Inf"), values.counts, strict=True):
        count += here
        buckets.append((bound, count))
    return buckets
