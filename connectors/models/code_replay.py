"""From a conversation to what the script did before, and from what it wants next to a model's reply.

A script keeps no state between its calls. What it did since the latest user text stands in the conversation: its calls
and their results, in order. It is executed again from the start with these, and comes to the next call or to its end.

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
"""2020-01-01, of every run when chance and time are frozen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """A call and its result. `input` is JSON text."""

    name: str
    input: str
    text: str
    is_error: bool


def latest_prompt(messages: Sequence[Message]) -> str:
    """The latest user text; its blocks in one, empty when nobody said anything."""
    for message in reversed(messages):
        if message.role == "user":
            texts = [block.text for block in message.blocks if isinstance(block, TextBlock)]
            if texts:
                return "\n".join(texts)
    return ""


def recorded_calls(messages: Sequence[Message]) -> tuple[RecordedCall, ...]:
    """The calls with results after the latest user text, in the order they were made."""
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
    found: list[RecordedCall] = []
    for call in reversed(calls):
        if (result := results.get(call.id)) is not None:
            found.append(RecordedCall(name=call.name, input=call.input, text=result.text, is_error=result.is_error))
    return tuple(found)


def script_input(script: ScriptRun, prompt: str) -> str:
    """What `run` is called with, as JSON. Keys are sorted, because maps of the wire have no order of their own."""
    metadata = {**_parse_values(script.metadata), "user_id": script.user_id, "agent": script.agent}
    said: dict[str, object] = {"prompt": prompt, "metadata": dict(sorted(metadata.items()))}
    if script.payload_metadata:
        said["payload_metadata"] = dict(sorted(_parse_values(script.payload_metadata).items()))
    return json.dumps(said, ensure_ascii=False)


def _parse_values(texts: Mapping[str, str]) -> dict[str, object]:
    """What the JSON texts stand for. A microservice may have written plain text; it stays text."""
    found: dict[str, object] = {}
    for name, text in texts.items():
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


def seed_of(run_id: str, agent: str) -> int:
    """The beginning of a run's chance: 32 bits of a hash."""
    return int.from_bytes(hashlib.sha256(f"{run_id}|{agent}".encode()).digest()[:4], "big")
