"""A script's run without a runtime: each turn is asked of the provider, each call gets its result."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loomlog.connectors.models.code_js import CodeModel
from loomlog.connectors.protocols import ModelRequest, Reply, ScriptRun, ToolSpec
from loomlog.schemas.conversation import Message, TextBlock, ToolResultBlock, ToolUseBlock

TOOLS = ("Memory", "Channel", "Agent", "Read", "mcp__crm__find")
STARTED_MS = 1_700_000_000_000

Answer = tuple[str, bool]
"""What a tool says, and whether that is an error."""


def script_request(
    body: str, *messages: Message, prompt: str = "hello", tools: Sequence[str] = TOOLS, **changes: Any
) -> ModelRequest:
    """One turn of a run of the script; the conversation begins with the prompt."""
    said: dict[str, Any] = {
        "run_id": "r_1",
        "agent": "helper",
        "user_id": "u-1",
        "turn": 1 + sum(message.role == "assistant" for message in messages),
        "started_at_ms": STARTED_MS,
        "time_left_ms": 120_000,
        "body": body,
    }
    return ModelRequest(
        call_id="r_1:1.1",
        model="code-js",
        messages=(Message(role="user", blocks=(TextBlock(text=prompt),)), *messages),
        tools=tuple(ToolSpec(name=name, description="", input_schema={"type": "object"}) for name in tools),
        script=ScriptRun(**{**said, **changes}),
    )


async def turn(model: CodeModel, request: ModelRequest) -> Reply:
    """What the provider replies. Raises as it does."""
    *_, reply = [item async for item in model.stream(request)]
    assert isinstance(reply, Reply)
    return reply


def exchange(reply: Reply, answer: Answer) -> tuple[Message, Message]:
    """The messages that a turn with a call and its result leave behind."""
    (call,) = reply.tool_calls
    text, is_error = answer
    asked = Message(role="assistant", blocks=(ToolUseBlock(id=call.id, name=call.name, input=call.input),))
    block = ToolResultBlock(tool_use_id=call.id, name=call.name, text=text, is_error=is_error)
    return asked, Message(role="user", blocks=(block,))


async def to_the_end(
    model: CodeModel, body: str, tool: Callable[[str, Mapping[str, Any]], Answer], **changes: Any
) -> tuple[list[tuple[str, str, Any]], str]:
    """The calls a script makes, as (id, name, arguments), and its final text."""
    messages: list[Message] = []
    calls: list[tuple[str, str, Any]] = []
    while True:
        reply = await turn(model, script_request(body, *messages, **changes))
        if not reply.tool_calls:
            return calls, reply.text
        (call,) = reply.tool_calls
        arguments = json.loads(call.input)
        calls.append((call.id, call.name, arguments))
        messages += exchange(reply, tool(call.name, arguments))
