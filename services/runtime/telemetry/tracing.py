"""Tracing of calls and runs. The classes here do nothing, so that a runtime without an exporter pays nothing.

Two others extend them: otel.py makes spans, metrics.py counts and delegates to the other. There are two ways of
observation. A call is a context manager around it, because its duration matters. Turns and runs are observed from the
log: what a new owner folds and what becomes durable, so that the owner of a run at its end can report all of it.

A run's context travels in the record headers (traceparent), so a span of a later owner joins the same trace.

Before: the command handler and the calls of this process. After: a collector, Prometheus.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.protocols import Reply
from loomlog.services.core.run.react import CallModel, CallTool, Summarise
from loomlog.services.core.run.state import AwaitingModel, AwaitingTools, Compacting
from loomlog.services.runtime.settings import TracingSettings

TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})\Z")
"""W3C trace context, version 00: trace id, span id, flags."""
UNKNOWN_TOOL = "unknown"


class Span:
    """A call under way; this one records nothing. Exiting it with an error marks it as failed."""

    traceparent = ""
    """The trace context of the span; empty when there is none."""

    def record_reply(self, reply: Reply) -> None: ...
    def record_outcome(self, outcome: str) -> None: ...
    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Timeline:
    """Observes the turns and runs of one partition under one term; this one records nothing. Events and states are
    those of services/core/run.
    """

    def on_replayed(self, run_id: str, event: Any, at_ms: int) -> None:
        """Observe, at a takeover, an event of a live run, which was decided at `at_ms`."""

    def on_recovered(self, run_id: str, state: Any, at_ms: int) -> None:
        """Observe, at a takeover and after its events, a live run that continues in this state."""

    def on_durable(self, run_id: str, tenant: str, state: Any, events: Sequence[Any], at_ms: int) -> None:
        """Observe events that are in the log. `state` may be ahead of them, except after the last event of a run."""


class Tracing:
    """Observes calls, turns and runs; this one is off."""

    _span = Span()
    _timeline = Timeline()

    def model_call(self, effect: CallModel | Summarise, state: AwaitingModel | Compacting) -> Span:
        return self._span

    def tool_call(self, effect: CallTool, state: AwaitingTools) -> Span:
        return self._span

    def timeline(self) -> Timeline:
        """Return a timeline for a partition that was just taken over."""
        return self._timeline

    def run_traceparent(self, run_id: str) -> str:
        """Return the traceparent of a run whose caller sent none; empty when nothing is traced."""
        return ""


NO_TRACING = Tracing()


@asynccontextmanager
async def open_tracing(settings: TracingSettings | None, instance: str) -> AsyncIterator[Tracing]:
    """Send spans to the configured collector; no tracing without one. `instance` is the name of this process."""
    if settings is None:
        yield NO_TRACING
        return
    # Imported only here: the SDK costs 100 ms of startup and 20 MB, and most runtimes export nothing.
    from loomlog.services.runtime.telemetry.otel import OtelTracing, build_span_processor

    processor = build_span_processor(endpoint=settings.endpoint, headers=settings.headers)
    tracing = OtelTracing(processor, service=settings.service, instance=instance, ratio=settings.ratio)
    try:
        yield tracing
    finally:
        await tracing.close()


def read_traceparent(headers: Sequence[tuple[str, bytes]]) -> str:
    """Return the caller's trace context; empty when it is absent or malformed (W3C: then it is not passed on)."""
    text = next((value.decode(errors="replace") for name, value in headers if name == "traceparent"), "")
    return text if TRACEPARENT.match(text) else ""


def tool_name(effect: CallTool, state: AwaitingTools) -> str:
    """Return the tool of a call; UNKNOWN_TOOL when the agent has none of that name, because the model invented it."""
    return effect.name if effect.name in state.facts.definition.tools else UNKNOWN_TOOL


def error_type(error: BaseException) -> str:
    """Return a word from a bounded set for the kind of error."""
    if isinstance(error, ConnectorError):
        return error.kind
    return "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__
