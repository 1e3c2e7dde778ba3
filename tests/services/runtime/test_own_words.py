"""What the core says in place of a result is encrypted like a result: nobody has to ask who said it."""

import asyncio
from collections.abc import Mapping
from typing import Any

from loomlog.connectors.crypto.content_encryption import is_token
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import EffectClass, Reply, ToolContext, ToolResult
from loomlog.connectors.tools.interruption import InterruptionTool
from loomlog.schemas.generated.run_commands import CancelRun
from loomlog.schemas.generated.run_events import (
    ChildRequested,
    InterruptionOpened,
    RunCompleted,
    ToolCallRequested,
    ToolReturned,
)
from loomlog.schemas.generated.values import CommandEnvelope, ToolCall, Usage
from loomlog.schemas.records import replace
from loomlog.services.runtime.content.encryption import ContentEncryption
from loomlog.services.stream.encryption.subject_keys import SubjectKeys
from tests.services.runtime.fakes import AGENT, TURNS, Scripted
from tests.services.runtime.small_runtime import Stage
from tests.services.stream.encryption.test_subject_keys import TOPIC, keys_over
from tests.services.test_erasing_trees import TOOLS, TREE, Delegating


class Held:
    """A tool with an effect that must not be repeated; its call never ends."""

    name = "Echo"
    description = "Pays."
    input_schema: Mapping[str, Any] = {"type": "object"}
    timeout_s = 60.0

    def __init__(self) -> None:
        self.began = asyncio.Event()

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.UNSAFE

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        self.began.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody lets it go")


def results(on: Stage, keys: SubjectKeys) -> list[str]:
    """The results in the log, in clear; each is one token there."""
    texts = [event.text for event in on.events() if isinstance(event, ToolReturned)]
    assert texts
    assert all(is_token(text, untrusted=False) for text in texts), texts
    return [keys.decrypt(text, "acme") for text in texts]


async def test_that_the_outcome_of_a_call_is_unknown_is_encrypted() -> None:
    keys, tool = keys_over(MemoryLog({TOPIC: 1})), Held()
    on = Stage(tools={"Echo": tool})
    on.model = Scripted(TURNS)
    async with on.owner("one", secrecy=ContentEncryption(keys)):
        on.start()
        await tool.began.wait()
        assert on.has(ToolCallRequested)
    async with on.owner("two", secrecy=ContentEncryption(keys)):
        await on.until(lambda: on.has(RunCompleted))
    (text,) = results(on, keys)
    assert text.startswith("outcome unknown: ")


async def test_that_a_sub_agent_was_cancelled_is_encrypted() -> None:
    keys = keys_over(MemoryLog({TOPIC: 1}))
    on = Stage(TREE, tools=TOOLS)
    on.instead = Delegating()
    async with on.owner("one", secrecy=ContentEncryption(keys)):
        on.start()
        await on.until(lambda: on.has(InterruptionOpened))
        child = next(event for event in on.events() if isinstance(event, ChildRequested)).child_run_id
        envelope = CommandEnvelope(command_id="c_1", tenant="acme", subject="op", issued_at_ms=1)
        on.send(CancelRun(envelope=envelope, run_id=child, reason="not needed"))
        await on.until(lambda: on.has(RunCompleted))
    assert [text.partition("\n")[2] for text in results(on, keys)] == ["not needed"]


async def test_that_a_question_is_not_allowed_is_encrypted() -> None:
    keys = keys_over(MemoryLog({TOPIC: 1}))
    ask = ToolCall(id="c1", name="Interruption", input='{"op": "ask", "question": "which one?"}')
    on = Stage(replace(AGENT, tools=("Interruption",)), tools={"Interruption": InterruptionTool()})
    usage = Usage(input_tokens=1, output_tokens=1)
    on.model = Scripted((Reply(text="", tool_calls=(ask,), stop_reason="tool_use", usage=usage), TURNS[1]))
    async with on.owner("one", secrecy=ContentEncryption(keys)):
        on.start()
        await on.until(lambda: on.has(RunCompleted))
    assert results(on, keys) == ["Interruption was not carried out: this agent may not interrupt people"]
