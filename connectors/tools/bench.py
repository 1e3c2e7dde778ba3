"""Bench: a tool without cost, so that a benchmark measures the runtime and not the tool.

It answers at once with 1,000 printable characters that depend only on the call's idempotency key: every call's answer
differs (nothing downstream can deduplicate or compress it away), and a repeated call answers the same, so a test can
tell from the answer alone which call it belongs to.

Before: registry.py. After: nothing.
"""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from loomlog.connectors.protocols import EffectClass, ToolContext, ToolResult

ANSWER_CHARACTERS = 1000
"""The step size of the benchmark workload."""
_DIGEST_BYTES = ANSWER_CHARACTERS * 3 // 4
"""Base64 makes four characters of three bytes."""


class BenchTool:
    name = "Bench"
    description = "Returns 1,000 pseudo-random characters at once. For measuring the runtime."
    side_effect_class = "pure"
    usage_hint = "Only for measurements."
    timeout_s: float = 5.0
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.PURE

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        if arguments:
            return ToolResult(
                text=f"Bench was not called: it takes no arguments, not {sorted(arguments)}.", is_error=True
            )
        return ToolResult(text=derive_answer(context.idempotency_key))


def derive_answer(key: str) -> str:
    """Return the answer of a call with this key."""
    return base64.b64encode(hashlib.shake_256(key.encode()).digest(_DIGEST_BYTES)).decode("ascii")
