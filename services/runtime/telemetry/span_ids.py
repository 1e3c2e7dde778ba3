"""Trace and span ids, derived from the run id: no owner draws one, so all of them agree without communicating.

Everything is a hash, so what the log keeps of a span is the same in every replay, and the spans of two owners of one
run share their parents. Pure. After: otel.py.
"""

from hashlib import sha256

from loomlog.schemas.records import Value
from loomlog.services.core.run.react import CallModel, CallTool, Summarise
from loomlog.services.runtime.telemetry.tracing import TRACEPARENT


class RunTraceContext(Value, frozen=True):
    """Place of a run in a trace: its trace id, and the caller's span id, 0 when the run is the root."""

    trace_id: int
    parent_span_id: int


def run_trace_context(run_id: str, traceparent: str) -> RunTraceContext:
    """Return the context from a RunStarted's traceparent; a run that began untraced gets the derived one."""
    match = TRACEPARENT.match(traceparent)
    if match is None:
        return RunTraceContext(int.from_bytes(sha256(f"trace {run_id}".encode()).digest()[:16], "big") or 1, 0)
    span_id = int(match[2], 16)
    # A derived traceparent names the run's own span, which has no parent.
    return RunTraceContext(int(match[1], 16), 0 if span_id == run_span_id(run_id) else span_id)


def run_span_id(run_id: str) -> int:
    return _hash64("run", run_id)


def turn_span_id(run_id: str, turn: int) -> int:
    return _hash64("turn", run_id, str(turn))


def call_span_id(effect: CallModel | CallTool | Summarise) -> int:
    """Return the span id of one attempt of one call."""
    return _hash64(effect.run_id, *map(str, effect.key))


def format_traceparent(trace_id: int, span_id: int, *, sampled: bool) -> str:
    return f"00-{trace_id:032x}-{span_id:016x}-{'01' if sampled else '00'}"


def _hash64(*parts: str) -> int:
    # Zero is not a valid id; it occurs once in 2**64.
    return int.from_bytes(sha256(" ".join(parts).encode()).digest()[:8], "big") or 1
