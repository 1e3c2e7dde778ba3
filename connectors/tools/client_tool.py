"""A tool that a client executes on its own machine: the last hop is a WebSocket, held by an api process.

Calls go over the log like those of microservices' tools (remote_tool.py), with the connection named in the request; the
api that holds it forwards the call and writes the result. Its effect is unsafe and it has no memory to query, so the
call is made at most once: every attempt is a call of its own (the core begins another one only when the last one is
known to have had no effect), and a call that a client left open has an unknown outcome.

The log serves as the reconciler: the result of a lost attempt reaches the current owner of the run, and an api that did
not forward the call reports that, after which it may be made again.

Before: the runtime's tool calls. After: remote_calls.py.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from loomlog.connectors.protocols import EffectClass, NoEffect, ToolContext, ToolResult, UnknownEffect
from loomlog.connectors.tools.remote_calls import REQUESTS_TOPIC, ExpiryWatch, wait_or_expire
from loomlog.connectors.tools.remote_tool import CLOCK_SKEW_MS, INPUT_BYTES_MAX, RESULT_GRACE_S, remaining_s
from loomlog.schemas.generated.stream_records import RemoteToolRequest, RemoteToolResult

UNKNOWN, NOT_BEGUN = "unknown", "not_begun"
"""Outcomes of a RemoteToolResult."""
LIVENESS_CHECK_S = 2.0
"""Seconds between checks whether the client's connection is open. When two checks in a row find it closed, its results
have arrived: an api writes them before it closes a connection.
"""


class RemoteCaller(Protocol):
    """Calls over the log (remote_calls.RemoteCallClient)."""

    async def call(
        self, topic: str, request: RemoteToolRequest, *, since_ms: int | None = None
    ) -> RemoteToolResult: ...

    async def wait_for_result(
        self, topic: str, idempotency_key: str, tenant: str, since_ms: int, *, expiry_watch: ExpiryWatch
    ) -> RemoteToolResult | str: ...


class ClientSideTool:
    """A tool of a connection (protocols Tool and Reconciler). `connection_id` is empty when no connection offers it
    now.

    `is_connected` returns whether the connection of a request can still answer.
    """

    def __init__(
        self,
        calls: RemoteCaller,
        *,
        name: str,
        description: str = "",
        input_schema: Mapping[str, Any],
        connection_id: str,
        is_connected: Callable[[RemoteToolRequest], bool],
        timeout_s: float,
        clock_ms: Callable[[], int],
        liveness_check_s: float = LIVENESS_CHECK_S,
        topic: str = REQUESTS_TOPIC,
    ) -> None:
        self.name = name
        self.description = description
        self.input_schema = input_schema
        # The call's own timeout comes first; this one is for a broker that does not answer.
        self.timeout_s = timeout_s + 2 * RESULT_GRACE_S
        self._call_timeout_s = timeout_s
        self._calls = calls
        self._connection_id = connection_id
        self._is_connected = is_connected
        self._clock_ms = clock_ms
        self._liveness_check_s = liveness_check_s
        self._topic = topic

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.UNSAFE

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Return the client's result. Raises Transient and Permanent."""
        if not self._connection_id:
            return _error_result(f"no client that offers {self.name} is connected now; nothing was done")
        text = json.dumps(arguments, ensure_ascii=False)
        if (size := len(text.encode(errors="replace"))) > INPUT_BYTES_MAX:
            return _error_result(f"the arguments of {self.name} have {size} bytes; at most {INPUT_BYTES_MAX} are taken")
        now = self._clock_ms()
        key = _attempt_key(context)
        request = RemoteToolRequest(
            request_id=key,
            idempotency_key=key,
            run_id=context.run_id,
            tenant=context.tenant,
            user_id=context.user_id,
            subject=context.subject,
            agent=context.agent,
            agent_id=context.agent_id,
            tool=self.name,
            input=text,
            attempt=context.attempt,
            issued_at_ms=now,
            deadline_ms=now + int(self._call_timeout_s * 1000),
            connection_id=self._connection_id,
        )
        asking = asyncio.ensure_future(self._calls.call(self._topic, request))
        try:
            why = await wait_or_expire(asking, self._wait_for_expiry(request))
            if why is not None:
                return _unknown_result(self.name, why)
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        return _to_tool_result(self.name, asking.result())

    async def reconcile(
        self, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolResult | NoEffect | UnknownEffect:
        """Return the outcome of a lost attempt, as far as the log has it in time. Raises as `call`."""
        since_ms = max(0, context.started_at_ms - CLOCK_SKEW_MS)
        outcome = await self._calls.wait_for_result(
            self._topic, _attempt_key(context), context.tenant, since_ms, expiry_watch=self._wait_for_expiry
        )
        if isinstance(outcome, str):
            return UnknownEffect(reason=outcome)
        if outcome.outcome == UNKNOWN:
            return UnknownEffect(reason=outcome.text)
        return NoEffect(reason=outcome.text) if outcome.outcome == NOT_BEGUN else _to_tool_result(self.name, outcome)

    async def _wait_for_expiry(self, request: RemoteToolRequest) -> str:
        misses = 0
        try:
            async with asyncio.timeout(remaining_s(request, self._clock_ms())):
                while misses < 2:
                    await asyncio.sleep(self._liveness_check_s)
                    misses = 0 if self._is_connected(request) else misses + 1
        except TimeoutError:
            return "no answer came in time"
        return "the process that held the client's connection is gone"


def _attempt_key(context: ToolContext) -> str:
    """Key of one attempt: the next attempt is another call, which this one's result must not answer."""
    return f"{context.idempotency_key}:{context.attempt}"


def _to_tool_result(name: str, result: RemoteToolResult) -> ToolResult:
    if result.outcome == UNKNOWN:
        return _unknown_result(name, result.text)
    text = f"{name} was not called: {result.text}" if result.outcome == NOT_BEGUN else result.text
    return ToolResult(text=text, is_error=result.is_error)


def _unknown_result(name: str, reason: str) -> ToolResult:
    text = f"outcome unknown: {reason}; {name} may or may not have had its effect. Check before you repeat it."
    return ToolResult(text=text, is_error=True, is_unknown=True)


def _error_result(text: str) -> ToolResult:
    return ToolResult(text=text, is_error=True)
