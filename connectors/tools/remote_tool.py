"""A tool that another microservice serves: configured here, executed there, connected by the log.

Its effect class decides what may be done after a crash, as for every tool. All attempts of a call have one idempotency
key, and an attempt after the first sends nothing while the previous request may still be answered. A tool with an
unsafe effect is its own reconciler: it returns the result when the request was sent and is answered before its
deadline; otherwise the effect is unknown, because a sender wrongly presumed dead might still send the request.

Before: the runtime's tool calls. After: remote_calls.py.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from loomlog.connectors.json_schema import CompiledSchema
from loomlog.connectors.output_schema import check_answer
from loomlog.connectors.protocols import EffectClass, NoEffect, ToolContext, ToolResult, UnknownEffect
from loomlog.connectors.tools.remote_calls import REQUESTS_TOPIC, RemoteCallClient
from loomlog.schemas.generated.stream_records import RemoteToolRequest, RemoteToolResult

INPUT_BYTES_MAX = 512 * 1024
"""Maximum bytes of the arguments as JSON; a request is one record."""
RESULT_GRACE_S = 5.0
"""Seconds that a result may take through the log after the call's deadline."""
CLOCK_SKEW_MS = 60_000
"""Milliseconds by which clocks of brokers and runtimes may differ; a search of the past starts earlier by it."""


class RemoteTool:
    """A configured remote tool (protocols Tool and Reconciler)."""

    def __init__(
        self,
        calls: RemoteCallClient,
        *,
        name: str,
        description: str,
        input_schema: Mapping[str, Any],
        effect: EffectClass,
        timeout_s: float,
        clock_ms: Callable[[], int],
        topic: str = REQUESTS_TOPIC,
        output: CompiledSchema | None = None,
    ) -> None:
        """`output` is the schema of its results; None: any text."""
        self._output = output
        self.name = name
        self.description = description
        self.input_schema = input_schema
        self.timeout_s = timeout_s
        self._calls = calls
        self._effect = effect
        self._clock_ms = clock_ms
        self._topic = topic

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return self._effect

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Return the service's result. Raises Transient and Permanent."""
        text = json.dumps(arguments, ensure_ascii=False)
        if (size := len(text.encode(errors="replace"))) > INPUT_BYTES_MAX:
            return ToolResult(
                text=f"the arguments of {self.name} have {size} bytes; at most {INPUT_BYTES_MAX} are taken",
                is_error=True,
            )
        now = self._clock_ms()
        request = RemoteToolRequest(
            request_id=f"{context.idempotency_key}:{context.attempt}",
            idempotency_key=context.idempotency_key,
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
            deadline_ms=now + int(self.timeout_s * 1000),
        )
        since_ms = self._search_start_ms(context) if context.attempt > 1 else None
        return self._to_tool_result(await self._calls.call(self._topic, request, since_ms=since_ms))

    async def reconcile(
        self, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolResult | NoEffect | UnknownEffect:
        """Return the service's past or future result of a lost call. Raises as `call`."""
        outcome = await self._calls.wait_for_result(
            self._topic,
            context.idempotency_key,
            context.tenant,
            self._search_start_ms(context),
            expiry_watch=self._wait_for_expiry,
        )
        return UnknownEffect(reason=outcome) if isinstance(outcome, str) else self._to_tool_result(outcome)

    async def _wait_for_expiry(self, request: RemoteToolRequest) -> str:
        await asyncio.sleep(remaining_s(request, self._clock_ms()))
        return "the call timed out without a result"

    def _search_start_ms(self, context: ToolContext) -> int:
        """Return where to start searching: a call is not older than its run, nor than the topic's retention."""
        return max(0, context.started_at_ms - CLOCK_SKEW_MS)

    def _to_tool_result(self, result: RemoteToolResult) -> ToolResult:
        if self._output is None or result.is_error:
            return ToolResult(text=result.text, is_error=result.is_error)
        check = check_answer(self._output, result.text)
        if check.result:
            return ToolResult(text=check.result)
        return ToolResult(
            text=f"{self.name} was carried out, and its result does not meet the output schema of the tool: "
            f"{check.error}",
            is_error=True,
        )


def remaining_s(request: RemoteToolRequest, now_ms: int) -> float:
    """Return the seconds left to wait for the result of a request."""
    return max(0.0, (request.deadline_ms - now_ms) / 1000 + RESULT_GRACE_S)
