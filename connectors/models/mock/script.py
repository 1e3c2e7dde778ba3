"""Definition of a script of the synthetic provider: a pure function from the request to the model's text and calls.

Before: mock. After: mock_reviewer, mock_circuit and the small scripts in mock.
"""

import re
from collections.abc import Sequence

from loomlog.schemas.conversation import Message, TextBlock, ToolResultBlock
from loomlog.schemas.records import Value

_FENCE = re.compile(r'<tool_output tool="[^"]*">\n(.*)\n</tool_output>', re.DOTALL)
_ESCAPED = re.compile(r"&lt;(?=\s*/?\s*tool_output)", re.IGNORECASE)


class ScriptedCall(Value, frozen=True, kw_only=True):
    """A tool call; the driver assigns its id."""

    name: str
    input: str
    """Arguments as JSON text."""


class ScriptTurn(Value, frozen=True, kw_only=True):
    """One turn: text, calls, or both."""

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()


def results_in(messages: Sequence[Message]) -> list[ToolResultBlock]:
    """Return all tool results of the conversation, in order: the position in a script that is played once."""
    return [
        block
        for message in messages
        if message.role == "user"
        for block in message.blocks
        if isinstance(block, ToolResultBlock)
    ]


def results_since_user(messages: Sequence[Message]) -> list[ToolResultBlock]:
    """Return the tool results after the last user text, in the order of the conversation: the position in a script."""
    results: list[ToolResultBlock] = []
    for message in reversed(messages):
        if message.role != "user":
            continue
        for block in reversed(message.blocks):
            if isinstance(block, TextBlock):
                results.reverse()
                return results
            if isinstance(block, ToolResultBlock):
                results.append(block)
    results.reverse()
    return results


def last_user_text(messages: Sequence[Message]) -> str:
    """Return the latest text of the user; empty when there is none."""
    for message in reversed(messages):
        if message.role == "user":
            for block in reversed(message.blocks):
                if isinstance(block, TextBlock):
                    return block.text
    return ""


def strip_fence(text: str) -> str:
    """Return a tool's result without the provenance label that outside text may be wrapped in."""
    wrapped = _FENCE.fullmatch(text)
    return _ESCAPED.sub("<", wrapped[1]) if wrapped else text
