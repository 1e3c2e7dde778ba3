"""The trace context of outgoing requests, so that spans of a provider, a hook or a host join the trace of the run.

Each model or tool call is a task of its own, so a value set there counts for the requests of that call only.

Before: the runtime sets it within the span of a call. After: every HTTP client that sends for a run.
"""

from collections.abc import Mapping
from contextvars import ContextVar

outgoing_traceparent: ContextVar[str] = ContextVar("outgoing_traceparent", default="")
"""W3C traceparent of the call under way; empty when nothing is traced."""


def trace_headers() -> Mapping[str, str]:
    """Return the headers to add to a request; empty when nothing is traced."""
    traceparent = outgoing_traceparent.get()
    return {"traceparent": traceparent} if traceparent else {}
