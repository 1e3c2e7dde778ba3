"""Calls of the Agent tool: read into a plan, and gathered when the core cannot put the result together."""

import json
from typing import Any

from loomlog.connectors.crypto.content_encryption import is_token
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.connectors.tools.agent import AgentTool
from loomlog.schemas.generated.values import BlobRef, Spawn
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import ChildrenRequested, ChildReported, ToolCompleted
from loomlog.services.core.run.react import CallTool
from loomlog.services.core.run.state import AwaitingTools
from loomlog.services.runtime.content.encryption import PLAINTEXT, ContentEncryption
from loomlog.services.runtime.content.payloads import INLINE_TEXT_BYTES
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from loomlog.services.runtime.tools.tool_calls import ToolCalls
from loomlog.services.runtime.tools.toolset import ProcessToolset
from tests.services.core.run.given import DEFINITION, NOW, RUN, Run, at_tools
from tests.services.core.run.subagents.test_children import asked, child
from tests.services.stream.encryption.test_subject_keys import TOPIC, keys_over

CALL = CallTool(run_id=RUN, turn=1, index=0, attempt=1, call_id="c0", name="Agent", input="{}", effect_class="pure")


class Work:
    def __init__(self, secrecy: ContentEncryption = PLAINTEXT) -> None:
        self.blobs = MemoryBlobs()
        self.calls = ToolCalls(
            ProcessToolset({"Agent": AgentTool()}),
            volumes={},
            operator_hosts=(),
            parallelism=8,
            blobs=self.blobs,
            tracing=NO_TRACING,
            clock_ms=lambda: NOW,
            mask=lambda text: text.replace("hunter2", "[secret]"),
            encryption=secrecy,
        )

    async def run(self, run: Run, **effect: Any) -> ToolCompleted | ChildrenRequested:
        assert isinstance(run.state, AwaitingTools)
        return await self.calls.run(replace(CALL, **effect), run.state, "t")


def granted(*tools: str) -> Run:
    return at_tools("Agent", classes=("pure",), definition=replace(DEFINITION, tools=tools))


async def test_a_call_becomes_a_plan_with_its_secrets_masked() -> None:
    order = await Work().run(granted("Agent"), input='{"name":"helper","prompt":"log in with hunter2"}')
    assert isinstance(order, ChildrenRequested)
    assert order.spawns == (Spawn(agent="helper", prompt="log in with [secret]"),)
    assert (order.op, order.is_sealed) == ("spawn", False)


async def test_a_call_that_cannot_be_read_is_an_error_result() -> None:
    for text in ("{", "[]", '{"name":"helper"}'):
        order = await Work().run(granted("Agent"), input=text)
        assert isinstance(order, ToolCompleted)
        assert order.is_error


async def test_an_agent_that_was_not_granted_the_tool_has_no_children() -> None:
    order = await Work().run(granted("Read"), input='{"name":"helper","prompt":"go"}')
    assert isinstance(order, ToolCompleted)
    assert "not found" in order.text


async def test_long_results_are_fetched_and_put_together() -> None:
    work, run = Work(), granted("Agent")
    run.give(asked("parallel_spawn", "a", "b"))
    text = "x" * (INLINE_TEXT_BYTES + 1)
    ref = await work.blobs.put(text.encode())
    run.give(ChildReported(at_ms=NOW, child_run_id=child(0), status="completed", text="short"))
    run.give(ChildReported(at_ms=NOW, child_run_id=child(1), status="completed", text_blob=ref))
    order = await work.run(run)
    assert isinstance(order, ToolCompleted)
    assert isinstance(order.whole_blob, BlobRef), "the model sees its share, and the whole is kept"
    assert len(order.text) < len(text)
    actual = json.loads(await work.blobs.get(order.whole_blob))["results"]
    assert [entry["output"] for entry in actual] == ["short", text]


async def test_results_that_cannot_be_read_are_an_error_result() -> None:
    work, run = Work(), granted("Agent")
    run.give(asked("spawn", "a"))
    lost = BlobRef(sha256="0" * 64, size_bytes=1, media_type="text/plain")
    run.give(ChildReported(at_ms=NOW, child_run_id=child(0), status="completed", text_blob=lost))
    order = await work.run(run)
    assert isinstance(order, ToolCompleted)
    assert order.is_error


async def test_with_encryption_prompts_and_results_are_sealed_and_still_make_one_result() -> None:
    log = MemoryLog({TOPIC: 1})
    keys = keys_over(log)
    sealer = await keys.cipher_for("t", "")
    work, run = Work(ContentEncryption(keys)), granted("Agent")
    text = sealer.text('{"op":"parallel_spawn","spawns":[{"name":"a","prompt":"the secret"}]}')
    order = await work.run(run, input=text)
    assert isinstance(order, ChildrenRequested)
    assert order.is_sealed
    assert is_token(order.spawns[0].prompt, untrusted=False)
    run.give(order)
    run.give(ChildReported(at_ms=NOW, child_run_id=child(0), status="completed", text=sealer.text('it "said" so')))
    result = await work.run(run, input=text)
    assert isinstance(result, ToolCompleted)
    assert is_token(result.text, untrusted=False)
    actual = json.loads(await ContentEncryption(keys).decrypt_text(result.text, "t"))
    assert actual["results"][0]["output"] == 'it "said" so'
