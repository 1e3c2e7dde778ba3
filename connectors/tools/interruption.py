"""Interruption: puts a question to a person, notifies a person, or withdraws a question.

Only its description for the model is here. The owner of the run decides a call of it, and the call waits in the run's
state (services/core/run/interrupts/interruptions.py); it is never executed in a process.

Before: registry.py. After: nothing.
"""

from collections.abc import Mapping
from typing import Any

from loomlog.connectors.protocols import EffectClass, ToolContext, ToolResult


class InterruptionTool:
    name = "Interruption"
    description = (
        "Ask a person and wait for the answer (ask), tell a person something without waiting (notify), or take back a "
        "question of this run (cancel). A person may decline: that is an answer too, so go on without."
    )
    side_effect_class = "pure"
    usage_hint = "Ask only what you cannot decide yourself."
    timeout_s: float = 5.0
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "op": {"type": "string", "enum": ["ask", "notify", "cancel"], "description": "What to do."},
            "question": {
                "type": "string",
                "description": "ask: the question, in one or two sentences. notify: what the person is told.",
            },
            "options": {
                "type": "array",
                "items": {"type": "string"},
                "description": "ask: the answers to choose from; leave it out for an answer in free text.",
            },
            "context": {"type": "string", "description": "What the person has to know to answer."},
            "priority": {"type": "string", "enum": ["low", "normal", "high"], "description": "normal if left out."},
            "timeout_ms": {
                "type": "integer",
                "description": "ask: how long to wait, in milliseconds; an hour if left out.",
            },
            "kind": {"type": "string", "enum": ["question"], "description": "ask: the kind of interruption."},
            "interrupt_id": {"type": "string", "description": "cancel: the id of the question."},
        },
        "required": ["op"],
        "additionalProperties": False,
    }

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.PURE

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Return an error; reached only by a call that an earlier version recorded as an ordinary tool call."""
        return ToolResult(text=f"Interruption was not carried out with {sorted(arguments)}: ask again.", is_error=True)
