"""OpenTelemetry spans: one tree for each run, also across a change of owner.

    invoke_agent <agent>              the run
      turn <n>                        a model turn with its tools
        chat <model>                  an attempt of the model call
        execute_tool <name>           an attempt of a tool call
      invoke_agent <agent>            a run it started, with spans of its own

Calls become spans as they happen; a turn and a run when their end is in the log, made by the owner at that time. Their
ids are not random (span_ids.py), so the spans of an owner that died and of its successor fit together. A span is lost
when its process dies before sending it. Whether a run is traced follows from its trace id and the ratio alone, so every
owner decides the same; the sampled flag of a caller is ignored.

Export is OTLP over HTTP from the SDK's own thread; a full queue drops spans, never delays a run. Not chosen:
AsyncioInstrumentor (it leaks with aiokafka), the global tracer provider (libraries would join in).

Before: tracing.py, when a collector is configured; nothing else imports this module. After: the collector.
"""

import asyncio
import logging
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import requests
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, TraceIdRatioBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags, set_span_in_context
from opentelemetry.trace import Span as SdkSpan
from opentelemetry.util.re import parse_env_headers

from loomlog.connectors.http.trace_context import outgoing_traceparent
from loomlog.connectors.protocols import Reply
from loomlog.schemas.generated.run_events import (
    CompactionRequested,
    ModelCallRequested,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunParked,
    RunPaused,
    RunQuarantined,
)
from loomlog.services.core.run.react import CallModel, CallTool, Summarise
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingModel, AwaitingTools, Compacting, Ended, Parked, Paused
from loomlog.services.runtime.telemetry import span_attributes
from loomlog.services.runtime.telemetry.span_attributes import Attributes
from loomlog.services.runtime.telemetry.span_ids import (
    call_span_id,
    format_traceparent,
    run_span_id,
    run_trace_context,
    turn_span_id,
)
from loomlog.services.runtime.telemetry.tracing import Span, Timeline, Tracing, error_type, tool_name

log = logging.getLogger(__name__)

QUEUE_SPANS = 8_192
"""Maximum spans waiting to be sent, about 10 s of a busy process; more are dropped."""
BATCH_SPANS = 512
EXPORT_INTERVAL_MS = 1_000
EXPORT_TIMEOUT_S = 5.0
SHUTDOWN_TIMEOUT_S = 5.0
"""Seconds that shutdown waits for the last spans."""
ATTRIBUTE_CHARACTERS = 256
"""Maximum characters of an attribute; names and ids are shorter, but a call id invented by the model may not be."""
TRACES_PATH = "/v1/traces"
RESPONSE_BYTES = 64 * 1024
"""Maximum bytes read of a collector's response; an error of one is a sentence."""


def build_span_processor(*, endpoint: str, headers: str) -> SpanProcessor:
    """Build the processor that sends spans to a collector. `headers` is `name=value` separated by commas."""
    url = endpoint if endpoint.endswith(TRACES_PATH) else endpoint.rstrip("/") + TRACES_PATH
    return BatchSpanProcessor(
        OTLPSpanExporter(
            endpoint=url,
            headers=parse_env_headers(headers, liberal=True),
            timeout=EXPORT_TIMEOUT_S,
            session=_build_session(),
        ),
        max_queue_size=QUEUE_SPANS,
        max_export_batch_size=BATCH_SPANS,
        schedule_delay_millis=EXPORT_INTERVAL_MS,
    )


def _build_session() -> requests.Session:
    """Build the exporter's session. The exporter treats a redirect as success, and spans would be lost silently."""
    session = requests.Session()
    session.stream = True  # or a response would be read whole before the hooks see it
    session.hooks["response"] += [_read_bounded, _refuse_redirect]
    return session


def _read_bounded(response: requests.Response, **_: Any) -> None:
    """Read at most RESPONSE_BYTES of a response; the rest is not read and the connection is closed."""
    body = response.raw.read(RESPONSE_BYTES + 1)
    response._content = body[:RESPONSE_BYTES]
    response._content_consumed = True  # requests has no public way to set a body
    if len(body) > RESPONSE_BYTES:
        response.close()
    else:
        response.raw.release_conn()


def _refuse_redirect(response: requests.Response, **_: Any) -> None:
    """Raises ValueError, which the exporter logs as the reason why the spans were not accepted."""
    if 300 <= response.status_code < 400:
        # Without the address, which may hold a password.
        raise ValueError(
            f"the collector answered {response.status_code}, and redirects are not followed:"
            " name its own address in LOOMLOG_OTEL_EXPORTER_OTLP_ENDPOINT"
        )


class OtelTracing(Tracing):
    """Makes spans over its own SDK instance. `ratio` is the share of runs, 0 to 1."""

    def __init__(self, processor: SpanProcessor, *, service: str, instance: str, ratio: float) -> None:
        self._id_generator = _PresetIdGenerator()
        self._sampling_bound = TraceIdRatioBased.get_bound_for_rate(ratio)
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,  # called only for runs that are traced
            resource=Resource.create({"service.name": service, "service.instance.id": instance}),
            id_generator=self._id_generator,
            span_limits=SpanLimits(max_span_attribute_length=ATTRIBUTE_CHARACTERS),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("loomlog")

    def run_traceparent(self, run_id: str) -> str:
        trace_id = run_trace_context(run_id, "").trace_id
        return format_traceparent(trace_id, run_span_id(run_id), sampled=self._is_sampled(trace_id))

    def model_call(self, effect: CallModel | Summarise, state: AwaitingModel | Compacting) -> "CallSpan":
        of_run = run_span_id(effect.run_id)  # a summary is between two turns
        span = self._start_span(
            f"chat {effect.model}",
            state.facts,
            call_span_id(effect),
            parent_id=turn_span_id(effect.run_id, effect.turn) if isinstance(effect, CallModel) else of_run,
            kind=SpanKind.CLIENT,
            attributes=span_attributes.model_call_attributes(effect, state.facts),
        )
        return CallSpan(span)

    def tool_call(self, effect: CallTool, state: AwaitingTools) -> "CallSpan":
        span = self._start_span(
            f"execute_tool {tool_name(effect, state)}",
            state.facts,
            call_span_id(effect),
            parent_id=turn_span_id(effect.run_id, effect.turn),
            attributes=span_attributes.tool_call_attributes(effect, state),
        )
        return CallSpan(span)

    def timeline(self) -> "OtelTimeline":
        return OtelTimeline(self)

    def record_turn(self, facts: RunFacts, turn: int, *, began_ms: int, ended_ms: int) -> None:
        """Record the span of a whole turn."""
        span = self._start_span(
            f"turn {turn}",
            facts,
            turn_span_id(facts.run_id, turn),
            parent_id=run_span_id(facts.run_id),
            attributes=span_attributes.turn_attributes(facts, turn),
            began_ms=began_ms,
        )
        span.end(_end_nanoseconds(ended_ms))

    def record_run(self, tenant: str, state: Ended, *, error: str, ended_ms: int) -> None:
        """Record the span of a whole run; `error` is the reason code of a failed one."""
        facts, parent = state.facts, state.facts.parent
        span = self._start_span(
            f"invoke_agent {facts.definition.name}",
            facts,
            run_span_id(facts.run_id),
            # A child has the trace of its parent's caller, but its span is below that of the run that started it.
            parent_id=run_span_id(parent.run_id)
            if parent
            else run_trace_context(facts.run_id, facts.traceparent).parent_span_id,
            parent_is_remote=parent is None,
            attributes=span_attributes.run_attributes(state, tenant),
            began_ms=facts.started_at_ms,
        )
        if error:
            _mark_failed(span, error)
        span.end(_end_nanoseconds(ended_ms))

    def _start_span(
        self,
        name: str,
        facts: RunFacts,
        span_id: int,
        *,
        parent_id: int,
        attributes: Attributes,
        kind: SpanKind = SpanKind.INTERNAL,
        began_ms: int | None = None,
        parent_is_remote: bool = False,
    ) -> SdkSpan:
        trace_id = run_trace_context(facts.run_id, facts.traceparent).trace_id
        if not self._is_sampled(trace_id):
            return NonRecordingSpan(SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(0)))
        context = Context()
        if parent_id:
            parent = SpanContext(trace_id, parent_id, is_remote=parent_is_remote, trace_flags=TraceFlags(1))
            context = set_span_in_context(NonRecordingSpan(parent), context)
        self._id_generator.trace_id, self._id_generator.span_id = trace_id, span_id
        start_time = None if began_ms is None else _nanoseconds(began_ms)
        return self._tracer.start_span(name, context=context, kind=kind, attributes=attributes, start_time=start_time)

    def _is_sampled(self, trace_id: int) -> bool:
        """Apply the SDK's own rule, so that other services with the same ratio trace the same runs."""
        return trace_id & TraceIdRatioBased.TRACE_ID_LIMIT < self._sampling_bound

    async def close(self) -> None:
        """Send the waiting spans, for SHUTDOWN_TIMEOUT_S at most."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            try:
                loop.call_soon_threadsafe(done.set)
            except RuntimeError:
                pass  # nothing waits any more: the loop is closed

        # Not the loop's executor: its threads are joined at the end, and the SDK gives up only after 30 s.
        threading.Thread(target=shut_down, name="last spans", daemon=True).start()
        try:
            async with asyncio.timeout(SHUTDOWN_TIMEOUT_S):
                await done.wait()
        except TimeoutError:
            log.warning("the last spans are lost: the collector did not take them within %.0f s", SHUTDOWN_TIMEOUT_S)


class CallSpan(Span):
    """A call under way; its requests carry its context."""

    def __init__(self, span: SdkSpan) -> None:
        self._span = span
        context = span.get_span_context()
        self.traceparent = format_traceparent(context.trace_id, context.span_id, sampled=context.trace_flags.sampled)

    def record_reply(self, reply: Reply) -> None:
        self._span.set_attributes(span_attributes.reply_attributes(reply))

    def record_outcome(self, outcome: str) -> None:
        self._span.set_attribute("loomlog.tool.outcome", outcome)
        if outcome != "ok":
            _mark_failed(self._span, outcome)

    def __enter__(self) -> Self:
        outgoing_traceparent.set(self.traceparent)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        outgoing_traceparent.set("")
        if error is not None:
            _mark_failed(self._span, error_type(error))
        self._span.end()


class OtelTimeline(Timeline):
    """Tracks when the turn of each live run of a partition began, and makes its span when it has ended."""

    def __init__(self, tracing: OtelTracing) -> None:
        self._tracing = tracing
        self._turns: dict[str, tuple[int, int]] = {}
        """Number and start of the turn under way, by run. At most one for each live run."""

    def on_replayed(self, run_id: str, event: Any, at_ms: int) -> None:
        if isinstance(event, ModelCallRequested) and event.attempt == 1:
            self._turns[run_id] = (event.turn, at_ms)

    def on_recovered(self, run_id: str, state: Any, at_ms: int) -> None:
        if not isinstance(state, AwaitingModel | AwaitingTools):
            self._turns.pop(run_id, None)
        elif run_id not in self._turns:
            # The turn began before the partition snapshot; then its start is the time of the takeover.
            self._turns[run_id] = (state.turn, state.facts.started_at_ms if state.turn == 1 else at_ms)

    def on_durable(self, run_id: str, tenant: str, state: Any, events: Sequence[Any], at_ms: int) -> None:
        if not isinstance(state, AwaitingModel | AwaitingTools | Parked | Paused | Compacting | Ended):
            return
        for event in events:
            match event:
                case ModelCallRequested(turn=turn, attempt=1):
                    self._end_turn(state.facts, at_ms)
                    self._turns[run_id] = (turn, at_ms)
                case RunParked() | RunPaused() | RunQuarantined() | CompactionRequested():
                    self._end_turn(state.facts, at_ms)
                case RunCompleted() | RunCancelled() | RunFailed():
                    assert isinstance(state, Ended), f"{run_id} continues after its {type(event).__name__}"
                    self._end_turn(state.facts, at_ms)
                    error = event.code if isinstance(event, RunFailed) else ""
                    self._tracing.record_run(tenant, state, error=error, ended_ms=at_ms)
                case _:
                    pass

    def _end_turn(self, facts: RunFacts, at_ms: int) -> None:
        begun = self._turns.pop(facts.run_id, None)
        if begun is not None:
            turn, began_ms = begun
            self._tracing.record_turn(facts, turn, began_ms=began_ms, ended_ms=at_ms)


class _PresetIdGenerator(IdGenerator):
    """Returns the ids that were set just before; spans start on the event loop only."""

    trace_id = 0
    span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


def _mark_failed(span: SdkSpan, error: str) -> None:
    span.set_attribute("error.type", error)
    span.set_status(StatusCode.ERROR)


def _nanoseconds(at_ms: int) -> int:
    return at_ms * 1_000_000


def _end_nanoseconds(at_ms: int) -> int:
    """Return the end of that millisecond, so that calls that ended within it are inside their turn."""
    return _nanoseconds(at_ms + 1) - 1
