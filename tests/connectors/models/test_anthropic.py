import json

import pytest

from loomlog.connectors.errors import Permanent
from loomlog.connectors.models.anthropic import AnthropicModel, has_vision
from loomlog.connectors.protocols import Reply, SystemBlock
from loomlog.schemas.conversation import ImageBlock, Message
from loomlog.schemas.generated.values import Sampling
from loomlog.schemas.records import replace
from tests.connectors.models import fault_server, samples
from tests.connectors.models.fault_server import FaultServer, Peer
from tests.connectors.models.samples import request


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_a_turn_goes_to_the_messages_address_with_key_and_version(suffix: str) -> None:
    async with FaultServer(fault_server.stream(samples.ANTHROPIC_FRAMES)) as server:
        model = AnthropicModel(api_key="sk-1", base_url=server.url + suffix)
        *_, reply = [item async for item in model.stream(request())]
        await model.close()
    [sent] = server.requests
    assert (sent.method, sent.path) == ("POST", "/v1/messages")
    assert (sent.headers["x-api-key"], sent.headers["anthropic-version"]) == ("sk-1", "2023-06-01")
    assert sent.json["stream"] is True
    assert isinstance(reply, Reply)
    assert reply.usage == samples.ANTHROPIC_USAGE


async def test_without_a_key_the_vendor_is_not_called() -> None:
    model = AnthropicModel()
    with pytest.raises(Permanent, match="no API key") as caught:
        await anext(model.stream(request()))
    assert caught.value.kind == "refused"
    with pytest.raises(Permanent, match="no API key"):
        await model.list_models()
    await model.close()


async def test_a_gateway_may_need_no_key() -> None:
    async with FaultServer(fault_server.stream(samples.ANTHROPIC_FRAMES)) as server:
        model = AnthropicModel(base_url=server.url)
        assert [item async for item in model.stream(request())]
        await model.close()
    assert "x-api-key" not in server.requests[0].headers


async def test_a_model_that_cannot_see_is_not_asked_to() -> None:
    model = AnthropicModel(api_key="sk-1")
    image = Message(role="user", blocks=(ImageBlock(media_type="image/png", data="AA"),))
    with pytest.raises(Permanent, match=r"claude-2\.1 cannot see images") as caught:
        await anext(model.stream(request(image, model="claude-2.1")))
    assert caught.value.kind == "unsupported"
    assert has_vision("claude-sonnet-4-5")
    assert not has_vision("claude-instant-1.2")
    await model.close()


async def test_models_are_listed_page_by_page() -> None:
    pages = {
        "/v1/models?limit=1000": {"data": [{"id": "a"}], "has_more": True, "last_id": "a b"},
        "/v1/models?limit=1000&after_id=a%20b": {"data": [{"id": "b"}], "has_more": False, "last_id": "b"},
    }

    async def answer(peer: Peer) -> None:
        await fault_server.status(200, json.dumps(pages[peer.request.path]).encode())(peer)

    async with FaultServer(answer) as server:
        model = AnthropicModel(base_url=server.url)
        assert await model.list_models() == ["a", "b"]
        await model.close()


async def test_a_listing_that_pages_for_ever_ends() -> None:
    body = json.dumps({"data": [{"id": "a"}], "has_more": True, "last_id": "a"}).encode()
    async with FaultServer(fault_server.status(200, body)) as server:
        model = AnthropicModel(base_url=server.url)
        assert len(await model.list_models()) == 20
        await model.close()


async def test_sampling_that_a_thinking_model_refuses_is_dropped_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wishes = Sampling(temperature=0.5, top_p=0.9, stop=("x",))
    asked = request(model="claude-sonnet-4-5", effort="high", max_tokens=20_000, sampling=wishes)
    async with FaultServer(fault_server.stream(samples.ANTHROPIC_FRAMES)) as server:
        model = AnthropicModel(base_url=server.url)
        for _ in range(2):
            assert [item async for item in model.stream(asked)]
        assert [item async for item in model.stream(replace(asked, effort="", sampling=Sampling(top_k=3)))]
        await model.close()
    assert {"temperature", "top_p"}.isdisjoint(server.requests[0].json)
    lines = [record.getMessage() for record in caplog.records if record.name == "loomlog.models"]
    assert lines == [
        "anthropic: temperature was dropped: claude-sonnet-4-5 does not take it while it thinks",
        "anthropic: top_p was dropped: claude-sonnet-4-5 does not take it while it thinks",
    ]


async def test_what_a_gateway_is_said_to_lack_is_not_asked_of_it() -> None:
    async with FaultServer(fault_server.stream(samples.ANTHROPIC_FRAMES)) as server:
        model = AnthropicModel(base_url=server.url)
        model.capabilities = replace(
            model.capabilities, native_prompt_cache=False, supports_thinking=False, parallel_tool_calls=False
        )
        asked = request(
            model="claude-sonnet-4-5",
            effort="high",
            max_tokens=20_000,
            system=(SystemBlock(text="Be short.", cacheable=True),),
        )
        assert [item async for item in model.stream(asked)]
        await model.close()
    sent = server.requests[0].json
    assert sent["system"] == [{"type": "text", "text": "Be short."}]
    assert "thinking" not in sent
    assert sent["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


async def test_its_capabilities() -> None:
    model = AnthropicModel()
    assert model.capabilities.max_context_tokens == 200_000
    assert model.capabilities.native_prompt_cache
    assert model.capabilities.supports_thinking
    await model.close()
