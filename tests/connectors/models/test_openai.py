import json
from typing import Any

import pytest

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.models.deepseek import DEEPSEEK
from loomlog.connectors.models.openai import OpenAiModel
from loomlog.connectors.models.openai_request import OPENAI
from loomlog.connectors.protocols import ModelItem, ModelRequest, Reply
from loomlog.schemas.conversation import ImageBlock, Message
from tests.connectors.models import fault_server, samples
from tests.connectors.models.fault_server import FaultServer, Peer
from tests.connectors.models.samples import called, openai_frame, request, results, user


async def turn(model: OpenAiModel, asked: ModelRequest | None = None) -> Reply:
    items: list[ModelItem] = [item async for item in model.stream(asked or request())]
    assert isinstance(items[-1], Reply)
    return items[-1]


async def test_a_turn_goes_to_chat_completions_with_the_key() -> None:
    async with FaultServer(fault_server.stream(samples.OPENAI_FRAMES)) as server:
        model = OpenAiModel(api_key="sk-1", base_url=server.url + "/v1/")
        assert (await turn(model)).usage == samples.OPENAI_USAGE
        await model.close()
    [sent] = server.requests
    assert (sent.method, sent.path) == ("POST", "/v1/chat/completions")
    assert sent.headers["authorization"] == "Bearer sk-1"
    assert sent.headers["idempotency-key"] == "r_1/1/0"


async def test_a_gateway_may_need_no_key_but_the_vendor_does() -> None:
    async with FaultServer(fault_server.stream(samples.OPENAI_FRAMES)) as server:
        model = OpenAiModel(base_url=server.url)
        await turn(model)
        await model.close()
    assert "authorization" not in server.requests[0].headers
    for base_url in ("", "https://api.openai.com/v1"):
        vendor = OpenAiModel(base_url=base_url)
        with pytest.raises(Permanent, match="no API key"):
            await turn(vendor)
        await vendor.close()


async def test_a_stream_that_ends_cleanly_after_its_finish_reason_is_complete() -> None:
    async with FaultServer(fault_server.stream(samples.OPENAI_FRAMES[:-1])) as server:
        model = OpenAiModel(base_url=server.url)
        assert (await turn(model)).tool_calls == samples.OPENAI_CALLS
        await model.close()


async def test_rate_limit_resets_are_read_from_their_own_headers() -> None:
    headers = {"x_ratelimit_reset_requests": "1m30s", "x_ratelimit_reset_tokens": "20ms"}
    async with FaultServer(fault_server.error(429, "slow down", **headers)) as server:
        model = OpenAiModel(base_url=server.url)
        with pytest.raises(Transient) as caught:
            await turn(model)
        await model.close()
    assert caught.value.retry_after_s == pytest.approx(0.02)


async def test_a_model_that_cannot_see_is_not_asked_to() -> None:
    image = Message(role="user", blocks=(ImageBlock(media_type="image/png", data="AA"),))
    for dialect, name in ((OPENAI, "gpt-3.5-turbo"), (DEEPSEEK, "deepseek-chat")):
        model = OpenAiModel(base_url="http://127.0.0.1:1", dialect=dialect)
        with pytest.raises(Permanent, match="cannot see images") as caught:
            await turn(model, request(image, model=name))
        assert caught.value.kind == "unsupported"
        await model.close()


async def test_a_request_that_is_no_json_is_permanent() -> None:
    model = OpenAiModel(base_url="http://127.0.0.1:1")
    with pytest.raises(Permanent, match="cannot be written as JSON") as caught:
        await turn(model, request(user("half an emoji: \ud83d")))
    assert caught.value.kind == "invalid"
    await model.close()


async def test_a_server_that_is_driven_by_the_prompt_works() -> None:
    """The way a scripted endpoint of a test suite answers: HTTP/1.1, no length, closed at the end, one role chunk,
    whole tool calls, usage in a chunk of its own."""

    async def scripted(peer: Peer) -> None:
        sent: Any = peer.request.json
        step = sum(message["role"] == "assistant" for message in sent["messages"])
        await peer.head(200, content_type="text/event-stream", connection="close")
        call = {"index": 0, "id": "call_9_0", "type": "function", "function": {"name": "Search", "arguments": "{}"}}
        wanted = {"tool_calls": [call]} if step == 0 else {"content": sent["messages"][-1]["content"]}
        frames = [
            openai_frame({"role": "assistant", "content": ""}),
            openai_frame(wanted),
            openai_frame({}, "tool_calls" if step == 0 else "stop"),
            openai_frame(usage={"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}),
            samples.DONE,
        ]
        for frame in frames:
            await peer.send(frame)
        peer.writer.close()

    async with FaultServer(scripted) as server:
        model = OpenAiModel(base_url=server.url)
        first = await turn(model, request(user("go")))
        assert [call.name for call in first.tool_calls] == ["Search"]
        call_id = first.tool_calls[0].id
        second = await turn(model, request(user("go"), called(call_id), results((call_id, "the result"))))
        await model.close()
    assert (second.text, second.stop_reason, second.usage.input_tokens) == ("the result", "end_turn", 11)
    sent = json.loads(server.requests[1].body)["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool"]
    assert sent[-1]["tool_call_id"] == call_id


async def test_its_capabilities() -> None:
    model = OpenAiModel()
    assert model.capabilities.max_context_tokens == 128_000
    assert model.capabilities.supports_vision
    assert model.capabilities.supports_effort
    assert not model.capabilities.native_prompt_cache
    await model.close()
