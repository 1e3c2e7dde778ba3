"""Metrics of a runtime process as Prometheus text.

Everything is collected at the time of a scrape: what the loop counts anyway (services/stream), what metrics.py counts,
and current values (live runs, calls under way). So a process that is not scraped pays almost nothing.

What is counted alike for runs and entities has the label `family`: run, entity or channel. Runs have had these names
without it, so a query by name alone now has all.

Before: metrics.py, host.py. After: metrics_server.py.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from loomlog.services.families.opening import OutcomeCounts
from loomlog.services.runtime.admission.queue import AdmissionQueue
from loomlog.services.runtime.clock import CheckedClock
from loomlog.services.runtime.models.provider_queues import ProviderQueue
from loomlog.services.runtime.run.run_end_actions import OUTCOMES as ACTION_OUTCOMES
from loomlog.services.runtime.run.run_end_actions import RunEndActions
from loomlog.services.runtime.telemetry.metrics import Labels, RunMetrics
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.effect_calls import EffectRunner
from loomlog.services.stream.entities.hosting import HostedEntities
from loomlog.services.stream.histogram import Histogram
from loomlog.services.stream.host import Host
from loomlog.services.stream.partition.resting import is_resting
from loomlog.services.stream.topic_set import TopicSetHost

REASON_CHARACTERS_MAX = 120
"""Longest label `reason`; the log of the process has the whole text."""


def build_exposition(
    metrics: RunMetrics,
    host: Host,
    calls: EffectRunner,
    dead_letters: DeadLetters,
    *,
    queues: Mapping[str, ProviderQueue] = MappingProxyType({}),
    admission_queue: AdmissionQueue | None = None,
    entities: Sequence[HostedEntities] = (),
    end_actions: RunEndActions | None = None,
    outcomes: Sequence[OutcomeCounts] = (),
    ingress_lag: Callable[[], int] | None = None,
    clock: CheckedClock | None = None,
) -> Callable[[], bytes]:
    """Return a function that renders the current metrics. `queues` are the providers',
    `admission_queue` is for starts, `entities` are what the host carries beside runs, `end_actions` are for
    ends of runs, `outcomes` are of families, `ingress_lag` returns the records of loom.ingress that wait here,
    `clock` is that of the process.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(RuntimeCollector(metrics, host, calls, dead_letters))
    registry.register(QueueCollector(queues, admission_queue))
    if entities:
        registry.register(EntityCollector(entities))
    if end_actions is not None:
        registry.register(RunEndCollector(end_actions, outcomes))
    if ingress_lag is not None:
        registry.register(IngressCollector(ingress_lag))
    if clock is not None:
        registry.register(ClockCollector(clock))
    ProcessCollector(registry=registry)
    return lambda: generate_latest(registry)


def build_waiting_exposition(clock: CheckedClock) -> Callable[[], bytes]:
    """Return a function that renders the metrics of a process that does nothing yet, because its clock is not
    believed.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ClockCollector(clock, owns_nothing=True))
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
        flusher = self._host.flusher
        yield _counter("flushes", "Group commits: appends to all partitions that had something.", flusher.flushes)
        yield _histogram("flush_records", "Records of a flush.", flusher.sizes)
        yield _histogram("flush_seconds", "From leaving to the acknowledgement of all.", flusher.seconds)
        yield from self._topic_set_metrics()
        yield _counter("dead_letters", "Records parked in the dead-letter topic.", self._dead_letters.parked)

    def _topic_set_metrics(self) -> Iterator[Metric]:
        sets: dict[Labels, TopicSetHost] = {(one.name,): one for one in self._host.topic_sets}
        figures = {key: one.metrics for key, one in sets.items()}
        claims: dict[Labels, int] = {
            (*key, reason): count for key, one in figures.items() for reason, count in one.claims_for.items()
        }
        yield _counters("claims", "Partitions taken.", ("family", "reason"), claims)
        yield _histograms(
            "take_over_seconds",
            "From the decision to claim to the first command.",
            ("family",),
            {key: one.takeover_s for key, one in figures.items()},
        )
        fenced = {key: one.fenced for key, one in figures.items()}
        yield _counters("fenced", "Partitions lost to another owner's Claim.", ("family",), fenced)
        unknown = {key: one.unknown_outcomes for key, one in figures.items()}
        yield _counters("unknown_outcomes", "Appends after which the log had to be read again.", ("family",), unknown)
        stale = {key: one.stale_records for key, one in figures.items()}
        yield _counters("stale_records", "Records of fenced owners met at take-overs.", ("family",), stale)
        commands = {key: one.commands for key, one in figures.items()}
        yield _counters("commands", "Commands read from the log.", ("family",), commands)
        failures = {key: one.checkpoints.failures for key, one in sets.items()}
        yield _counters(
            "checkpoint_failures", "Partition snapshots and checkpoints that could not be made.", ("family",), failures
        )
        failing: Counter[Labels] = Counter(
            (*key, _reason(problem)) for key, one in sets.items() for problem in one.checkpoints.failed.values()
        )
        yield _gauges(
            "checkpoints_failing",
            "Partitions without a new snapshot or checkpoint, by reason; takeovers of them take longer.",
            ("family", "reason"),
            failing,
        )

    def _partition_metrics(self) -> Iterator[Metric]:
        held = [owner.partition for owner in self._host.owners.values() if owner.partition is not None]
        live = [aggregate for partition in held for aggregate in partition.aggregates.values()]
        parked = sum(bool(aggregate.quarantined) for aggregate in live)
        yield _gauge("partitions_owned", "Partitions held now.", len(held))
        yield _gauge("partitions_warm", "Partitions of other owners, folded as a standby.", self._host.warm_partitions)
        yield _gauge(
            "partitions_watched",
            "Partitions of owners whose death this spare notices.",
            self._host.watched_partitions,
        )
        yield _gauge("live_runs", "Runs held now.", len(live))
        yield _gauge("resting_runs", "Of these, runs whose state is not in memory.", sum(map(is_resting, live)))
        yield _gauge("quarantined_runs", "Of these, runs that wait for a person.", parked)
        yield _gauge("calls_under_way", "Model and tool calls under way.", self._calls.running_count)
        yield _histogram("event_loop_lag_seconds", "How late the event loop woke a sleeper.", self._metrics.loop_lag_s)


class EntityCollector(Collector):
    """Metrics of the aggregates of the topic sets of entities, all together."""

    def __init__(self, entities: Sequence[HostedEntities]) -> None:
        self._entities = entities

    def collect(self) -> Iterator[Metric]:
        entities = self._entities
        owners = [owner for one in entities for owner in one.topic_set.owners.values()]
        hot = [one for owner in owners if owner.partition is not None for one in owner.partition.aggregates.values()]
        in_memory, quarantined = Counter[Labels](), Counter[Labels]()
        for name in chain.from_iterable(one.parts.family.families.by_name for one in entities):
            in_memory[name,] = quarantined[name,] = 0
        for aggregate in hot:
            family = aggregate.id.partition(":")[0]
            in_memory[family,] += 1
            quarantined[family,] += bool(aggregate.quarantined)
        yield _gauges("entities_hot", "Aggregates in memory now.", ("family",), in_memory)
        yield _gauges("quarantined_entities", "Aggregates in memory that wait for a repair.", ("family",), quarantined)
        loaded = sum(one.handlers.loaded for one in entities)
        refolded = sum(one.handlers.refolded for one in entities)
        yield _counter("entities_loaded", "Aggregates loaded from their rows.", loaded)
        yield _counter(
            "entities_refolded", "Aggregates folded again from the log: their row could not be used.", refolded
        )
        pending = sum(one.outbox.pending_count() for one in entities)
        yield _gauge("deliveries_pending", "Commands to other aggregates on their way.", pending)
        sent = sum(one.outbox.sent for one in entities)
        yield _counter("deliveries_sent", "Commands to other aggregates that arrived.", sent)


class RunEndCollector(Collector):
    """Metrics of what the ends of runs lead to, and of what families do in this process."""

    def __init__(self, actions: RunEndActions, outcomes: Sequence[OutcomeCounts]) -> None:
        self._actions = actions
        self._outcomes = outcomes

    def collect(self) -> Iterator[Metric]:
        done: dict[Labels, int] = {(outcome,): self._actions.counts[outcome] for outcome in ACTION_OUTCOMES}
        yield _counters("run_end_actions", "Hooks and reports at the ends of runs, by outcome.", ("outcome",), done)
        pending = self._actions.pending_count()
        yield _gauge("run_ends_pending", "Ends of runs whose hooks and reports are not done.", pending)
        for one in self._outcomes:
            counts: dict[Labels, int] = {(outcome,): one.counts[outcome] for outcome in one.outcomes}
            yield _counters(one.name, one.summary, ("outcome",), counts)


class IngressCollector(Collector):
    """The lag of the group that reads loom.ingress; the sum over all runtimes is that of the group."""

    def __init__(self, lag: Callable[[], int]) -> None:
        self._lag = lag

    def collect(self) -> Iterator[Metric]:
        yield _gauge(
            "ingress_lag_records", "Records of loom.ingress in its partitions that are not carried out.", self._lag()
        )


class ClockCollector(Collector):
    """The clock of the process, compared with the broker's. `owns_nothing`: that too, as RuntimeCollector would."""

    def __init__(self, clock: CheckedClock, *, owns_nothing: bool = False) -> None:
        self._clock = clock
        self._owns_nothing = owns_nothing

    def collect(self) -> Iterator[Metric]:
        if self._owns_nothing:
            yield _gauge("partitions_owned", "Partitions held now.", 0)
        yield _gauge(
            "clock_offset_seconds",
            "By how much the clock of the process is ahead of the broker's.",
            self._clock.offset_s,
        )
        yield _gauge(
            "clock_believed",
            "1: the clock agrees with the broker's within a minute; 0: the process owns nothing until it does.",
            float(self._clock.is_believed),
        )


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


def _reason(problem: str) -> str:
    """Return a problem as a label: without its numbers, or every offset would be a series of its own."""
    return re.sub(r"\b\d+\b", "N", problem)[:REASON_CHARACTERS_MAX]


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
