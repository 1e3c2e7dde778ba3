"""Metrics of this process: plain counters on the hot path, read at a scrape.

Calls, turns and runs are observed through the protocol of tracing.py, so that nothing else in the runtime depends on
metrics. Runs, tokens and cost are counted when their events are in the log, calls when they return. The counters start
at 0 with the process and are never authoritative; the log is.

Labels are bounded: providers and models are those of the configuration, a tool that is not the agent's is `unknown`,
and beyond MAX_LABEL_SETS everything further is counted as `other`.

Before: tracing.py's callers. After: exposition.py.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from loomlog.connectors.protocols import Reply
from loomlog.schemas.generated.run_events import (
    CompactionFailed,
    ContextCompacted,
    ModelReplied,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunRefused,
    RunStarted,
)
from loomlog.services.core.run.react import CallModel, CallTool, Summarise
from loomlog.services.core.run.state import AwaitingModel, AwaitingTools, Compacting
from loomlog.services.runtime.telemetry.tracing import Span, Timeline, Tracing, error_type, tool_name
from loomlog.services.stream.histogram import CALL_SECONDS, SECONDS, Histogram

MAX_LABEL_SETS = 500
"""Maximum combinations of labels of one metric; Prometheus pays for each for weeks."""
OTHER = "other"
OK = "ok"
"""Outcome of a call that was answered."""
LAG_SAMPLE_S = 0.25

Labels = tuple[str, ...]
COUNTED_EVENTS = frozenset(
    {ModelReplied, ContextCompacted, CompactionFailed, RunStarted, RunCompleted, RunFailed, RunCancelled, RunRefused}
)
"""Events that change a counter; half of all do not."""


class RunMetrics:
    """Counters since the start of the process. Keys are label values in the order of the label names."""

    def __init__(self) -> None:
        self.runs_started = 0
        self.runs_ended: Counter[Labels] = Counter()
        """By status."""
        self.model_calls: Counter[Labels] = Counter()
        """By provider, model, outcome."""
        self.model_seconds: dict[Labels, Histogram] = {}
        """By provider, model."""
        self.tool_calls: Counter[Labels] = Counter()
        """By tool, outcome."""
        self.tool_seconds: dict[Labels, Histogram] = {}
        """By tool."""
        self.tokens: Counter[Labels] = Counter()
        """By kind."""
        self.cost_micros: Counter[Labels] = Counter()
        """By currency."""
        self.loop_lag_s = Histogram(SECONDS)
        self.on_model_answer: Callable[[str, str, float], None] = lambda provider, model, seconds: None
        """Receives provider, model and seconds of each model call that was answered."""

    def instrument(self, tracing: Tracing) -> "MeasuredTracing":
        """Return `tracing` with counting added."""
        return MeasuredTracing(self, tracing)

    def record_model_call(self, provider: str, model: str, outcome: str, seconds: float) -> None:
        labels = _bounded_labels(self.model_seconds, (provider, model))
        self.model_calls[*labels, outcome] += 1
        _distribution_for(self.model_seconds, labels).observe(seconds)
        if outcome == OK:
            self.on_model_answer(provider, model, seconds)

    def record_tool_call(self, tool: str, outcome: str, seconds: float) -> None:
        labels = _bounded_labels(self.tool_seconds, (tool,))
        self.tool_calls[*labels, outcome] += 1
        _distribution_for(self.tool_seconds, labels).observe(seconds)

    def record_events(self, events: Sequence[Any]) -> None:
        """Count events that are in the log."""
        for event in events:
            if type(event) not in COUNTED_EVENTS:
                continue
            match event:
                case ModelReplied(usage=usage) | ContextCompacted(usage=usage) | CompactionFailed(usage=usage):
                    self.tokens["input",] += usage.input_tokens
                    self.tokens["output",] += usage.output_tokens
                    self.tokens["cache_creation",] += usage.cache_creation_input_tokens
                    self.tokens["cache_read",] += usage.cache_read_input_tokens
                    if event.currency:
                        self.cost_micros[_bounded_labels(self.cost_micros, (event.currency,))] += event.cost_micros
                case RunStarted():
                    self.runs_started += 1
                case RunCompleted():
                    self.runs_ended["completed",] += 1
                case RunFailed():
                    self.runs_ended["failed",] += 1
                case RunCancelled():
                    self.runs_ended["cancelled",] += 1
                case RunRefused():
                    self.runs_ended["refused",] += 1
                case _:
                    pass

    async def measure_loop_lag(self) -> None:
        """Measure how late the event loop is, until cancelled."""
        while True:
            due = time.monotonic() + LAG_SAMPLE_S
            await asyncio.sleep(LAG_SAMPLE_S)
            self.loop_lag_s.observe(max(0.0, time.monotonic() - due))


class MeasuredTracing(Tracing):
    """Counts, and delegates everything."""

    def __init__(self, metrics: RunMetrics, inner: Tracing) -> None:
        self._metrics = metrics
        self._inner = inner

    def model_call(self, effect: CallModel | Summarise, state: AwaitingModel | Compacting) -> "MeasuredSpan":
        def ended(outcome: str, seconds: float) -> None:
            self._metrics.record_model_call(effect.provider, effect.model, outcome, seconds)

        return MeasuredSpan(self._inner.model_call(effect, state), ended)

    def tool_call(self, effect: CallTool, state: AwaitingTools) -> "MeasuredSpan":
        def ended(outcome: str, seconds: float) -> None:
            self._metrics.record_tool_call(tool_name(effect, state), outcome, seconds)

        return MeasuredSpan(self._inner.tool_call(effect, state), ended)

    def timeline(self) -> "MeasuredTimeline":
        return MeasuredTimeline(self._metrics, self._inner.timeline())

    def run_traceparent(self, run_id: str) -> str:
        return self._inner.run_traceparent(run_id)


class MeasuredSpan(Span):
    """A call under way; `on_end` receives its outcome and seconds."""

    def __init__(self, inner: Span, on_end: Callable[[str, float], None]) -> None:
        self._inner = inner
        self._on_end = on_end
        self._started_at = time.monotonic()
        self._outcome = OK
        self.traceparent = inner.traceparent

    def record_reply(self, reply: Reply) -> None:
        self._inner.record_reply(reply)

    def record_outcome(self, outcome: str) -> None:
        self._outcome = outcome
        self._inner.record_outcome(outcome)

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inner.__exit__(kind, error, trace)
        outcome = self._outcome if error is None else error_type(error)
        self._on_end(outcome, time.monotonic() - self._started_at)


class MeasuredTimeline(Timeline):
    """Counts events as they become durable; those folded at a takeover were counted by the previous owner."""

    def __init__(self, metrics: RunMetrics, inner: Timeline) -> None:
        self._metrics = metrics
        self._inner = inner

    def on_replayed(self, run_id: str, event: Any, at_ms: int) -> None:
        self._inner.on_replayed(run_id, event, at_ms)

    def on_recovered(self, run_id: str, state: Any, at_ms: int) -> None:
        self._inner.on_recovered(run_id, state, at_ms)

    def on_durable(self, run_id: str, tenant: str, state: Any, events: Sequence[Any], at_ms: int) -> None:
        self._metrics.record_events(events)
        self._inner.on_durable(run_id, tenant, state, events, at_ms)


def _distribution_for(distributions: dict[Labels, Histogram], labels: Labels) -> Histogram:
    distribution = distributions.get(labels)
    if distribution is None:
        distribution = distributions[labels] = Histogram(CALL_SECONDS)
    return distribution


def _bounded_labels(series: dict[Labels, Any], labels: Labels) -> Labels:
    if labels in series or len(series) < MAX_LABEL_SETS:
        return labels
    return tuple(OTHER for _ in labels)
