import json

import pytest

from loomlog.connectors.errors import Permanent
from loomlog.connectors.models.gemini import GeminiModel
from loomlog.connectors.protocols import Reply
from loomlog.schemas.conversation import ImageBlock, Message
from tests.connectors.models import fault_server, samples
from tests.connectors.models.fault_server import FaultServer, Peer
from tests.connectors.models.samples import request


async def test_a_turn_goes_to_the_streaming_method_with_the_key_in_a_header() -> None:
    async with FaultServer(fault_server.stream(samples.GEMINI_FRAMES)) as server:
        model = GeminiModel(api_key="sk-1", base_url=server.url + "/v1beta/")
        *_, reply = [item async for item in model.stream(request(model="models/gemini-2.5-pro"))]
        await model.close()
    [sent] = server.requests
    assert (sent.method, sent.path) == ("POST", "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse")
    assert sent.headers["x-goog-api-key"] == "sk-1"
    assert isinstance(reply, Reply)
    assert reply.usage == samples.GEMINI_USAGE


async def test_a_name_cannot_change_the_address() -> None:
    async with FaultServer(fault_server.stream(samples.GEMINI_FRAMES)) as server:
        model = GeminiModel(base_url=server.url)
        assert [item async for item in model.stream(request(model="x/../../y?key=1#"))]
        await model.close()
    assert server.requests[0].path == "/models/x%2F..%2F..%2Fy%3Fkey%3D1%23:streamGenerateContent?alt=sse"


async def test_a_stream_that_ends_cleanly_after_its_finish_reason_is_complete() -> None:
    frames = [samples.gemini_frame({"text": "hi"}, finish="STOP", usage=False)]
    async with FaultServer(fault_server.stream(frames)) as server:
        model = GeminiModel(base_url=server.url)
        *_, reply = [item async for item in model.stream(request())]
        await model.close()
    assert isinstance(reply, Reply)
    assert reply.text == "hi"


async def test_without_a_key_the_vendor_is_not_called() -> None:
    model = GeminiModel()
    with pytest.raises(Permanent, match="no API key") as caught:
        await anext(model.stream(request()))
    assert caught.value.kind == "refused"
    for call in (model.list_models, model.probe):
        with pytest.raises(Permanent, match="no API key"):
            await call()
    await model.close()


async def test_a_model_that_cannot_see_is_not_asked_to() -> None:
    model = GeminiModel(api_key="sk-1")
    image = Message(role="user", blocks=(ImageBlock(media_type="image/png", data="AA"),))
    with pytest.raises(Permanent, match=r"gemini-pro cannot see images") as caught:
        await anext(model.stream(request(image, model="gemini-pro")))
    assert caught.value.kind == "unsupported"
    await model.close()


async def test_models_that_make_text_are_listed_page_by_page() -> None:
    pages = {
        "/models?pageSize=1000": {
            "models": [
                {"name": "models/gemini-2.5-pro", "supportedGenerationMethods": ["generateContent", "countTokens"]},
                {"name": "models/embedding-001", "supportedGenerationMethods": ["embedContent"]},
            ],
            "nextPageToken": "a b",
        },
        "/models?pageSize=1000&pageToken=a%20b": {"models": [{"name": "models/gemini-3-pro"}]},
    }

    async def answer(peer: Peer) -> None:
        await fault_server.status(200, json.dumps(pages[peer.request.path]).encode())(peer)

    async with FaultServer(answer) as server:
        model = GeminiModel(base_url=server.url)
        assert await model.list_models() == ["gemini-2.5-pro", "gemini-3-pro"]
        await model.close()


async def test_a_listing_that_pages_for_ever_ends() -> None:
    page = {"models": [{"name": "models/a"}], "nextPageToken": "x"}
    async with FaultServer(fault_server.document(page)) as server:
        model = GeminiModel(base_url=server.url)
        assert len(await model.list_models()) == 20
        await model.close()


async def test_its_capabilities() -> None:
    model = GeminiModel()
    assert model.capabilities.max_context_tokens == 2_000_000
    assert model.capabilities.supports_thinking
    assert model.capabilities.supports_vision
    assert not model.capabilities.native_prompt_cache
    await model.close()
