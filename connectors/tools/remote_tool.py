"""A tool that another microservice serves: configured here, carried out there, the log in between.

What may be done after a crash is what its effect class says, as for every tool. All attempts of a call have one
idempotency key, and an attempt after the first sends nothing while the request before it may still be answered. A tool
with an unsafe effect is asked as its reconciler: its result, when the request was sent and is answered in its time;
otherwise nobody can tell, because a sender that is only thought dead might still send it.

Before: the runtime's tool calls. After: remote_calls.py.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from loomlog.connectors.protocols import EffectClass, NoEffect, ToolContext, ToolResult, UnknownEffect
from loomlog.connectors.tools.remote_calls import REQUESTS_TOPIC, RemoteCallClient
from loomlog.schemas.generated.stream_records import RemoteToolRequest, RemoteToolResult

INPUT_BYTES_MAX = 512 * 1024
"""Arguments as JSON; a request is one record."""
RESULT_GRACE_S = 5.0
"""What a result may take through the log after the call's time is over."""
CLOCK_SKEW_MS = 60_000
"""Clocks of brokers and runtimes may differ by so much when the past is searched."""


class RemoteTool:
    """A tool of the configuration (protocols Tool and Reconciler)."""

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
    ) -> None:
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
        """What the service says. Raises Transient and Permanent."""
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
        return _to_tool_result(await self._calls.call(self._topic, request, since_ms=since_ms))

    async def reconcile(
        self, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolResult | NoEffect | UnknownEffect:
        """What the service said or will say to a lost call. Raises as `call`."""
        found = await self._calls.wait_for_result(
            self._topic,
            context.idempotency_key,
            context.tenant,
            self._search_start_ms(context),
            expiry_watch=self._wait_for_expiry,
        )
        return UnknownEffect(reason=found) if isinstance(found, str) else _to_tool_result(found)

    async def _wait_for_expiry(self, request: RemoteToolRequest) -> str:
        await asyncio.sleep(remaining_s(request, self._clock_ms()))
        return "the time of the call is over, and no result has come"

    def _search_start_ms(self, context: ToolContext) -> int:
        """A call is not older than its run, nor than what the topic keeps."""
        return max(0, context.started_at_ms - CLOCK_SKEW_MS)


def remaining_s(request: RemoteToolRequest, now_ms: int) -> float:
    """How long a result of it is to be waited for, in seconds."""
    return max(0.0, (request.deadline_ms - now_ms) / 1000 + RESULT_GRACE_S)


def _to_tool_result(result: RemoteToolResult) -> ToolResult:
    return ToolResult(text=result.text, is_error=result.is_error)
