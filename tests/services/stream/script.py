"""What the outside says to a call: always the same to the same turn of the same run, whoever asks and how often."""

from typing import Any
from zlib import crc32

from loomlog.schemas.generated.values import ToolCall, Usage
from loomlog.services.core.run.commands import ModelAnswered, ToolCompleted
from loomlog.services.core.run.react import CallModel, CallTool

CLASSES = ("pure", "read", "idempotent", "unsafe")
MOST_CALLS = 3


def answer(effect: Any, turns: int, at_ms: int) -> ModelAnswered | ToolCompleted:
    """The order that the call gives; a run has `turns` turns, and all but the last ask for one to three tool calls."""
    match effect:
        case CallModel():
            calls = _calls(effect, turns)
            return ModelAnswered(
                at_ms=at_ms,
                turn=effect.turn,
                attempt=effect.attempt,
                text=f"turn {effect.turn} of {effect.run_id}",
                text_blob=None,
                reasoning="",
                reasoning_signature="",
                tool_calls=tuple(call for call, _ in calls),
                effect_classes=tuple(kind for _, kind in calls),
                stop_reason="tool_use" if calls else "end_turn",
                usage=Usage(input_tokens=10, output_tokens=5),
                provider="acme",
                model="large",
                max_context_tokens=0,
                cost_micros=1,
                currency="USD",
                duration_ms=1,
            )
        case CallTool():
            return ToolCompleted(
                at_ms=at_ms,
                turn=effect.turn,
                index=effect.index,
                attempt=effect.attempt,
                text=f"result of {effect.call_id}",
                text_blob=None,
                is_error=False,
                outcome="ok",
                duration_ms=1,
            )
        case _:
            raise AssertionError(f"{effect} is not a call")


def _calls(effect: CallModel, turns: int) -> list[tuple[ToolCall, str]]:
    if effect.turn >= turns:
        return []
    drawn = crc32(f"{effect.run_id}:{effect.turn}".encode())
    return [
        (ToolCall(id=f"t{effect.turn}c{index}", name="T", input="{}"), CLASSES[(drawn + index) % len(CLASSES)])
        for index in range(1 + drawn % MOST_CALLS)
    ]
