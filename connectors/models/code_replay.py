"""Derivation of a script's recorded calls from a conversation, and of a model's reply from its next call.

A script keeps no state between its calls. Its actions since the latest user text are in the conversation: calls and
their results, in order. It is executed again from the start with these, and reaches the next call or its end.

Pure. Before: code_js.py has a request. After: code_sandbox.py executes.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loomlog.connectors.protocols import ScriptRun
from loomlog.schemas.conversation import Message, TextBlock, ToolResultBlock, ToolUseBlock

FROZEN_SEED = 20_200_101
FROZEN_EPOCH_MS = 1_577_836_800_000
"""Start time of every run when randomness and time are frozen: 2020-01-01, in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """A call and its result. `input` is JSON text."""

    name: str
    input: str
    text: str
    is_error: bool


def latest_prompt(messages: Sequence[Message]) -> str:
    """Return the latest user text, its blocks joined; empty when there is none."""
    for message in reversed(messages):
        if message.role == "user":
            texts = [block.text for block in message.blocks if isinstance(block, TextBlock)]
            if texts:
                return "\n".join(texts)
    return ""


def recorded_calls(messages: Sequence[Message]) -> tuple[RecordedCall, ...]:
    """Return the calls with results after the latest user text, in the order they were made."""
    results: dict[str, ToolResultBlock] = {}
    calls: list[ToolUseBlock] = []
    for message in reversed(messages):
        if message.role == "user" and any(isinstance(block, TextBlock) for block in message.blocks):
            break
        for block in reversed(message.blocks):
            if isinstance(block, ToolResultBlock):
                results[block.tool_use_id] = block
            elif isinstance(block, ToolUseBlock):
                calls.append(block)
    recorded: list[RecordedCall] = []
    for call in reversed(calls):
        if (result := results.get(call.id)) is not None:
            recorded.append(RecordedCall(name=call.name, input=call.input, text=result.text, is_error=result.is_error))
    return tuple(recorded)


def script_input(script: ScriptRun, prompt: str) -> str:
    """Return the argument of `run`, as JSON. Keys are sorted, because maps on the wire are unordered."""
    metadata = {**_parse_values(script.metadata), "user_id": script.user_id, "agent": script.agent}
    run_input: dict[str, object] = {"prompt": prompt, "metadata": dict(sorted(metadata.items()))}
    if script.payload_metadata:
        run_input["payload_metadata"] = dict(sorted(_parse_values(script.payload_metadata).items()))
    return json.dumps(run_input, ensure_ascii=False)


def _parse_values(texts: Mapping[str, str]) -> dict[str, object]:
    """Return the JSON texts decoded. Plain text, which a microservice may have written, stays text."""
    values: dict[str, object] = {}
    for name, text in texts.items():
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values


def seed_of(run_id: str, agent: str) -> int:
    """Return the random seed of a run: 32 bits of a hash."""
    return int.from_bytes(hashlib.sha256(f"{run_id}|{agent}".encode()).digest()[:4], "big")
