"""Report of the windows: rates over the last minutes, as JSON and as Prometheus metrics.

A window of N minutes is the current minute and the N before it; sums are divided by the time it covers so far, so a
single run shows at once and a rate never waits for a minute to end. Metrics are gauges over windows: after a restart
the windows are read again, and counters would make Prometheus see those runs twice. Only records read are counters.

Prometheus gets the rows of agents, models and tools for one window (BREAKDOWN_MINUTES), JSON has those of all windows.

Pure. Before: app.py gathers a ReportData. After: web.py serves it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from loomlog.connectors.http.insights_report import (
    InsightsMinute,
    InsightsReport,
    InsightsWindow,
    ModelRate,
    Percentiles,
)
from loomlog.services.insights.minute_windows import (
    EMPTY,
    MINUTE_MS,
    NO_DURATIONS,
    Durations,
    MinuteTotals,
    Name,
    Rate,
    Rates,
    Times,
    minute_start_ms,
    sum_rates,
)

WINDOW_MINUTES = (1, 5, 15)
BREAKDOWN_MINUTES = 5
"""Window of the rows in the metrics; rows of all windows would triple the number of time series."""
QUANTILES = (0.50, 0.95)
MINUTE_MODELS = 8
"""Models of one minute, the busiest: as many lines as a chart can show."""
PREFIX = "loomlog_insights"

Counted = TypeVar("Counted", Rate, Durations)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """Data of a report at one moment."""

    now_ms: int
    history_minutes: int
    cells: Mapping[tuple[int, int], MinuteTotals]
    """By events partition and start of the minute in milliseconds."""
    records: Mapping[str, int]
    """Records read since the process began, by outcome."""
    parked: Mapping[str, int]
    """Dead letters written since then, by kind."""
    lag_records: int
    is_whole: bool
    """False while the history is being read again: the windows are incomplete."""


def render_json(view: ReportData) -> InsightsReport:
    """The report for `loomlog status` and GET /v1/_insights: windows, the minutes one by one, and what was read."""
    by_minute = _by_minute(view)
    return {
        "at_ms": view.now_ms,
        "is_whole": view.is_whole,
        "lag_records": view.lag_records,
        "history_minutes": view.history_minutes,
        "windows": {f"{minutes}m": _window_json(view, minutes) for minutes in _windows(view)},
        "minutes": [_minute_json(start_ms, minute) for start_ms, minute in sorted(by_minute.items())],
        "records": dict(sorted(view.records.items())),
        "parked": dict(sorted(view.parked.items())),
    }


def render_metrics(view: ReportData) -> bytes:
    """The report as Prometheus text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_ReportCollector(view))
    return generate_latest(registry)


def sum_window(view: ReportData, minutes: int) -> tuple[MinuteTotals, float]:
    """Totals of the window, and the seconds it covers."""
    current = minute_start_ms(view.now_ms)
    first = current - minutes * MINUTE_MS
    totals = _sum(minute for (_, start_ms), minute in view.cells.items() if start_ms >= first)
    return totals, minutes * 60 + (view.now_ms - current) / 1000


def _minute_json(start_ms: int, minute: MinuteTotals) -> InsightsMinute:
    models, tools = sum_rates(minute.models), sum_rates(minute.tools)
    return {
        "start_ms": start_ms,
        "runs": minute.runs,
        "completed": minute.statuses.get(("completed",), 0),
        "failed": minute.statuses.get(("failed",), 0),
        "cancelled": minute.statuses.get(("cancelled",), 0),
        "tokens": minute.input_tokens + minute.output_tokens,
        "input_tokens": minute.input_tokens,
        "output_tokens": minute.output_tokens,
        "cost_micros": {currency: micros for (currency,), micros in sorted(minute.cost_micros.items())},
        "duration_ms": _percentiles(minute.durations),
        "models": [
            {"provider": provider, "model": model, "timed_calls": times.total, "duration_ms": _percentiles(times)}
            for (provider, model), times in _busiest_first(minute.model_times)[:MINUTE_MODELS]
        ],
        "model_calls": models.total,
        "model_errors": models.errors,
        "tool_calls": tools.total,
        "tool_errors": tools.errors,
    }


def _percentiles(durations: Durations) -> Percentiles:
    p50, p95 = (durations.percentile_ms(share) for share in QUANTILES)
    return {"p50": p50, "p95": p95}


def _window_json(view: ReportData, minutes: int) -> InsightsWindow:
    totals, covered_s = sum_window(view, minutes)
    per_minute = 60 / covered_s
    first = minute_start_ms(view.now_ms) - minutes * MINUTE_MS
    # Calls may be answered whose runs have not ended.
    called = {name: Rate() for name in totals.model_times} | dict(totals.models)
    partitions: dict[int, int] = {}
    for (partition, start_ms), minute in view.cells.items():
        if start_ms >= first:
            partitions[partition] = partitions.get(partition, 0) + minute.runs
    return {
        "covered_s": covered_s,
        "runs": totals.runs,
        "runs_per_minute": totals.runs * per_minute,
        "statuses": {status: count for (status,), count in sorted(totals.statuses.items())},
        "error_ratio": _failed_ratio(totals),
        "input_tokens_per_minute": totals.input_tokens * per_minute,
        "output_tokens_per_minute": totals.output_tokens * per_minute,
        "cost_micros_per_minute": {
            currency: micros * per_minute for (currency,), micros in sorted(totals.cost_micros.items())
        },
        "duration_ms": _percentiles(totals.durations),
        "agents": [
            {
                "tenant": tenant,
                "agent": agent,
                "runs": rate.total,
                "errors": rate.errors,
                "error_ratio": rate.error_ratio,
            }
            for (tenant, agent), rate in _busiest_first(totals.agents)
        ],
        "models": [_model_json(name, rate, totals.model_times) for name, rate in _busiest_first(called)],
        "tools": [
            {"tool": tool, "calls": rate.total, "errors": rate.errors, "error_ratio": rate.error_ratio}
            for (tool,), rate in _busiest_first(totals.tools)
        ],
        "partitions": {str(partition): runs for partition, runs in sorted(partitions.items())},
    }


def _model_json(name: Name, rate: Rate, model_times: Times) -> ModelRate:
    provider, model = name
    times = model_times.get(name, NO_DURATIONS)
    return {
        "provider": provider,
        "model": model,
        "calls": rate.total,
        "errors": rate.errors,
        "error_ratio": rate.error_ratio,
        "timed_calls": times.total,
        "duration_ms": _percentiles(times),
    }


def _busiest_first(rates: Mapping[Name, Counted]) -> list[tuple[Name, Counted]]:
    return sorted(rates.items(), key=lambda row: (-row[1].total, row[0]))


class _ReportCollector(Collector):
    """The metrics of one view, for generate_latest."""

    def __init__(self, view: ReportData) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        yield from self._windows()
        yield from self._breakdowns()
        yield from self._reading()

    def _windows(self) -> Iterator[Metric]:
        runs = _gauge("runs_per_minute", "Runs that ended, per minute.", ["window", "status"])
        tokens = _gauge("tokens_per_minute", "Tokens of these runs, per minute.", ["window", "direction"])
        cost = _gauge(
            "cost_micros_per_minute",
            "Cost of these runs, in millionths of the currency per minute.",
            ["window", "currency"],
        )
        took = _gauge("run_duration_seconds", "Duration of runs.", ["window", "quantile"])
        errors = _gauge("run_error_ratio", "Share of the runs that failed.", ["window"])
        for minutes in _windows(self._view):
            totals, covered_s = sum_window(self._view, minutes)
            label, per_minute = f"{minutes}m", 60 / covered_s
            for status in sorted({("completed",), ("failed",), ("cancelled",), *totals.statuses}):
                runs.add_metric([label, *status], totals.statuses.get(status, 0) * per_minute)
            tokens.add_metric([label, "input"], totals.input_tokens * per_minute)
            tokens.add_metric([label, "output"], totals.output_tokens * per_minute)
            for currency, micros in totals.cost_micros.items():
                cost.add_metric([label, *currency], micros * per_minute)
            for share in QUANTILES:
                if (value := totals.durations.percentile_ms(share)) is not None:
                    took.add_metric([label, str(share)], value / 1000)
            errors.add_metric([label], _failed_ratio(totals))
        yield from (runs, tokens, cost, took, errors)

    def _breakdowns(self) -> Iterator[Metric]:
        minutes = min(BREAKDOWN_MINUTES, self._view.history_minutes)
        totals, _ = sum_window(self._view, minutes)
        period = f"in the last {minutes} minutes"
        yield from _rate_gauges("agent", "runs", f"Runs of an agent {period}", ["tenant", "agent"], totals.agents)
        yield from _rate_gauges("model", "calls", f"Calls of a model {period}", ["provider", "model"], totals.models)
        yield from _rate_gauges("tool", "calls", f"Calls of a tool {period}", ["tool"], totals.tools)

    def _reading(self) -> Iterator[Metric]:
        records = CounterMetricFamily(f"{PREFIX}_records", "Records read, by outcome.", labels=["outcome"])
        for outcome, count in sorted(self._view.records.items()):
            records.add_metric([outcome], count)
        parked = CounterMetricFamily(f"{PREFIX}_parked", "Dead letters written, by kind.", labels=["kind"])
        for kind, count in sorted(self._view.parked.items()):
            parked.add_metric([kind], count)
        lag = _gauge("lag_records", "Records that are not read yet.", [])
        lag.add_metric([], self._view.lag_records)
        whole = _gauge("is_whole", "1 when the windows are complete, 0 while the history is read again.", [])
        whole.add_metric([], int(self._view.is_whole))
        yield from (records, parked, lag, whole)


def _gauge(name: str, documentation: str, labels: list[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", documentation, labels=labels)


def _rate_gauges(subject: str, unit: str, documentation: str, labels: list[str], rates: Rates) -> Iterator[Metric]:
    totals = _gauge(f"{subject}_{unit}", f"{documentation}.", labels)
    errors = _gauge(f"{subject}_error_ratio", f"{documentation}: share of errors.", labels)
    for name, rate in sorted(rates.items()):
        totals.add_metric(name, rate.total)
        errors.add_metric(name, rate.error_ratio)
    yield from (totals, errors)


def _windows(view: ReportData) -> list[int]:
    return [minutes for minutes in WINDOW_MINUTES if minutes <= view.history_minutes]


def _failed_ratio(minute: MinuteTotals) -> float:
    return minute.statuses.get(("failed",), 0) / minute.runs if minute.runs else 0.0


def _by_minute(view: ReportData) -> dict[int, MinuteTotals]:
    by_minute: dict[int, MinuteTotals] = {}
    for (_, start_ms), minute in view.cells.items():
        by_minute[start_ms] = by_minute.get(start_ms, EMPTY).plus(minute)
    return by_minute


def _sum(minutes: Iterable[MinuteTotals]) -> MinuteTotals:
    totals = EMPTY
    for minute in minutes:
        totals = totals.plus(minute)
    return totals
