"""Model calls of runs with an output schema: what is requested, and what becomes of the answer."""

import asyncio
from typing import Any

import pytest

from loomlog.connectors.output_schema import schema_sha256, schema_text
from loomlog.connectors.protocols import Reply, TextDelta
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.schemas.generated.values import AgentDefinition, ToolCall, Usage
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import ModelAnswered, ModelFailed
from loomlog.services.core.run.state import AwaitingModel
from tests.services.core.run.given import DEFINITION, begun
from tests.services.runtime.given import values
from tests.services.runtime.models.test_model_calls import DELTAS, Work

SCHEMA = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}
TYPED = replace(
    DEFINITION, output_schema=schema_text(SCHEMA), output_schema_sha256=schema_sha256(SCHEMA), output_retries=2
)


def reply(text: str, *calls: ToolCall, **more: Any) -> Reply:
    return Reply(text=text, tool_calls=calls, stop_reason="tool_use" if calls else "end_turn", usage=Usage(), **more)


async def ask(work: Work, definition: AgentDefinition = TYPED, **more: Any) -> ModelAnswered:
    state = begun(definition, **more).state
    assert isinstance(state, AwaitingModel)
    return await work.answered(state)


async def test_the_model_is_asked_for_the_schema_and_its_record_is_the_answer() -> None:
    work = Work(reply('```json\n{"total": 3}\n```', reasoning_signature="sig"))
    order = await ask(work)
    assert work.model.requests[0].output_schema == SCHEMA
    assert order.output is not None
    assert (order.text, order.output.result) == ('{"total":3}', '{"total":3}')
    assert order.reasoning_signature == ""  # it signed other text


async def test_an_answer_that_is_no_record_stays_as_it_was_and_says_where() -> None:
    order = await ask(Work(reply('{"total":"3"}')))
    assert order.output is not None
    assert (order.text, order.output.result, order.output.path) == ('{"total":"3"}', "", "$.total")


async def test_a_record_is_shown_whole_and_not_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomlog.services.runtime.models.previews.FLUSH_INTERVAL_S", 0.0)
    work = Work(TextDelta(text='{"total"'), TextDelta(text="Hm.", thinking=True), reply('{"total":3}'))
    opened = asyncio.Event()
    work.model.before_reply = opened.wait  # the reply waits until the preview was seen
    sending = asyncio.get_running_loop().create_task(work.previews.run())
    calling = asyncio.get_running_loop().create_task(ask(work))
    async with asyncio.timeout(30):
        while not values(work.log, DELTAS):
            await asyncio.sleep(0)
    opened.set()
    await calling
    sending.cancel()
    await asyncio.wait([sending])
    assert [delta.text for delta in values(work.log, DELTAS)] == ["Hm."]


async def test_a_call_of_the_output_tool_is_a_final_answer() -> None:
    call = ToolCall(id="c", name="final_answer", input='{"total":3}')
    order = await ask(Work(reply("Here:", call)))
    assert (order.text, order.tool_calls) == ('{"total":3}', ())
    assert order.output is not None
    assert order.output.result


async def test_an_answer_with_calls_is_not_checked() -> None:
    order = await ask(Work(reply("", ToolCall(id="c", name="Read", input="{}"))))
    assert order.output is None


async def test_a_long_schema_is_read_from_the_blob_store() -> None:
    work = Work(reply('{"total":3}'))
    ref = await work.blobs.put(TYPED.output_schema.encode())
    assert isinstance(work.blobs, MemoryBlobs)
    order = await ask(work, replace(TYPED, output_schema="", output_schema_blob=ref))
    assert work.model.requests[0].output_schema == SCHEMA
    assert order.output is not None
    assert order.output.result


async def test_a_schema_that_cannot_be_used_fails_the_call_and_not_the_process() -> None:
    broken = replace(TYPED, output_schema='{"type":"array"}', output_schema_sha256="cd" * 32)
    state = begun(broken).state
    order = await Work(reply("[]")).run(state)
    assert isinstance(order, ModelFailed)
    assert "output schema" in order.message


async def test_without_a_schema_and_in_a_conversation_nothing_is_asked_for() -> None:
    for definition, interactive in ((DEFINITION, False), (TYPED, True)):
        work = Work(reply("hello"))
        order = await ask(work, definition, interactive=interactive)
        assert (work.model.requests[0].output_schema, order.output, order.text) == (None, None, "hello")
