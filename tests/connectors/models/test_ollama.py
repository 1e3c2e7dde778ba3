import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from loomlog.connectors.errors import Permanent
from loomlog.connectors.models.ollama import OllamaModel
from loomlog.connectors.protocols import ModelRequest, Reply
from loomlog.schemas.conversation import ImageBlock, Message
from loomlog.schemas.records import replace
from tests.connectors.models import fault_server, samples
from tests.connectors.models.fault_server import Answer, FaultServer
from tests.connectors.models.samples import request, user

TURN = fault_server.stream(samples.OLLAMA_LINES, content_type="application/x-ndjson")
LOADED = fault_server.document({"models": [{"name": "qwen3:8b", "context_length": 16_384}, {"name": "other:latest"}]})
THINKS = fault_server.document({"capabilities": ["completion", "tools", "thinking"], "model_info": {}})
DOES_NOT_THINK = fault_server.document({"capabilities": ["completion", "tools"], "model_info": {}})


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@asynccontextmanager
async def talking(
    *, turn: Answer = TURN, others: dict[str, Answer] | None = None, **how: Any
) -> AsyncIterator[tuple[OllamaModel, FaultServer]]:
    async with FaultServer(fault_server.routed(turn, **(others or {"ps": LOADED}))) as server:
        model = OllamaModel(provider="ollama-local", base_url=server.url, **how)
        try:
            async with asyncio.timeout(30):
                yield model, server
        finally:
            await model.close()


async def turn_of(model: OllamaModel, asked: ModelRequest | None = None) -> Reply:
    *_, reply = [item async for item in model.stream(asked or request(model="qwen3:8b"))]
    assert isinstance(reply, Reply)
    return reply


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "loomlog.models"]


def paths(server: FaultServer) -> list[str]:
    return [received.path for received in server.requests]


@pytest.mark.parametrize("suffix", ["", "/", "/api", "/api/"])
async def test_a_turn_goes_to_the_chat_address_and_needs_no_key(suffix: str) -> None:
    async with FaultServer(fault_server.routed(TURN, ps=LOADED)) as server:
        model = OllamaModel(base_url=server.url + suffix)
        reply = await turn_of(model)
        await model.close()
    sent = server.requests[-1]
    assert (sent.method, sent.path) == ("POST", "/api/chat")
    assert "authorization" not in sent.headers
    assert sent.headers["accept"] == "application/x-ndjson"
    assert reply.usage == samples.OLLAMA_USAGE


async def test_the_hosted_one_needs_a_key_and_sends_it() -> None:
    hosted = OllamaModel()
    with pytest.raises(Permanent, match="no API key") as caught:
        await turn_of(hosted)
    assert caught.value.kind == "refused"
    for call in (hosted.list_models, hosted.probe):
        with pytest.raises(Permanent, match="no API key"):
            await call()
    await hosted.close()
    async with talking(api_key="sk-1") as (model, server):
        await turn_of(model)
        assert {received.headers["authorization"] for received in server.requests} == {"Bearer sk-1"}


async def test_a_pinned_window_is_asked_for_and_nothing_else() -> None:
    async with talking(num_ctx=32_768, num_gpu=99) as (model, server):
        assert (await turn_of(model)).max_context_tokens == 32_768
        assert model.capabilities.max_context_tokens == 32_768
        assert paths(server) == ["/api/chat"]
        assert server.requests[0].json["options"] == {"num_ctx": 32_768, "num_gpu": 99}


async def test_the_window_of_a_loaded_model_is_read_and_not_asked_for() -> None:
    async with talking() as (model, server):
        assert (await turn_of(model)).max_context_tokens == 16_384
        assert paths(server) == ["/api/ps", "/api/chat"]
        assert "options" not in server.requests[-1].json


async def test_a_window_is_read_once_a_minute_and_by_one_turn_at_a_time() -> None:
    clock = Clock()
    async with talking(clock=clock) as (model, server):
        await asyncio.gather(*(turn_of(model) for _ in range(5)))
        assert paths(server).count("/api/ps") == 1
        clock.now_s = 61.0
        await turn_of(model)
        assert paths(server).count("/api/ps") == 2


async def test_a_model_that_is_not_loaded_yet_has_the_small_window_until_it_is() -> None:
    clock = Clock()
    async with talking(clock=clock) as (model, server):
        asked = request(model="new")
        assert (await turn_of(model, asked)).max_context_tokens == 4096
        assert "options" not in server.requests[-1].json
        clock.now_s = 2.0
        server.answer = fault_server.routed(
            TURN, ps=fault_server.document({"models": [{"model": "new:latest", "context_length": 9}]})
        )
        assert (await turn_of(model, asked)).max_context_tokens == 9


@pytest.mark.parametrize("answer", [fault_server.error(500, "no"), fault_server.silent, fault_server.document([])])
async def test_a_server_that_does_not_say_its_window_gets_its_turn_all_the_same(
    answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loomlog.connectors.models.ollama.QUERY_TIMEOUT_S", 0.03)
    async with talking(others={"ps": answer}) as (model, _):
        assert (await turn_of(model)).max_context_tokens == 4096


async def test_a_window_said_in_the_configuration_counts() -> None:
    async with talking() as (model, server):
        model.capabilities = replace(model.capabilities, max_context_tokens=12_000)
        assert (await turn_of(model)).max_context_tokens == 12_000
        assert paths(server) == ["/api/chat"]


async def test_the_hosted_window_is_the_one_the_model_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomlog.connectors.models.ollama.BASE_URL", "http://127.0.0.1")
    shown = fault_server.document({"model_info": {"general.architecture": "glm", "glm.context_length": 131_072}})
    async with talking(others={"show": shown}, api_key="k") as (model, server):
        assert (await turn_of(model)).max_context_tokens == 131_072
        assert paths(server) == ["/api/show", "/api/chat"]
        assert server.requests[0].json == {"model": "qwen3:8b"}


@pytest.mark.parametrize(
    ("shown", "sent"),
    [
        (THINKS, True),
        (DOES_NOT_THINK, None),
        (fault_server.document({"license": "old server"}), True),
        (fault_server.error(404, "no"), True),
    ],
)
async def test_a_model_is_asked_to_think_unless_its_server_says_it_cannot(shown: Answer, sent: bool | None) -> None:
    async with talking(others={"show": shown}, num_ctx=8192) as (model, server):
        for _ in range(2):
            await turn_of(model, request(model="qwen3:8b", effort="high"))
        assert server.requests[-1].json.get("think") is sent
        assert paths(server) == ["/api/show", "/api/chat", "/api/chat"]


async def test_without_a_wish_to_think_nothing_is_asked() -> None:
    async with talking(num_ctx=8192) as (model, server):
        await turn_of(model, request(model="qwen3:8b", effort="low"))
        assert paths(server) == ["/api/chat"]
        assert server.requests[0].json["think"] is False


async def test_a_prompt_over_the_window_is_said_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with talking(num_ctx=1000) as (model, _):
        with caplog.at_level(logging.WARNING, logger="loomlog.models"):
            await turn_of(model, request(user("x" * 3000), model="qwen3:8b"))
            assert said(caplog) == []
            await turn_of(model, request(user("x" * 8000), model="qwen3:8b", call_id="r_7:1.1"))
    [line] = said(caplog)
    assert "ollama-local: the prompt of r_7:1.1 is about 2" in line
    assert "the window of qwen3:8b is 1000" in line
    assert "num_ctx" in line


async def test_an_image_goes_to_models_with_vision_only() -> None:
    image = request(Message(role="user", blocks=(ImageBlock(media_type="image/png", data="AA"),)), model="qwen3:8b")
    async with talking() as (model, server):
        with pytest.raises(Permanent, match="qwen3:8b cannot see images"):
            await turn_of(model, image)
        assert server.requests == []
        await turn_of(model, replace(image, model="gemma3:4b"))
        assert server.requests[-1].json["messages"][-1]["images"] == ["AA"]
    async with talking(vision_models=["qwen3"]) as (model, _):
        await turn_of(model, image)


async def test_installed_models_are_listed() -> None:
    tags = {"models": [{"name": "qwen3:8b", "model": "qwen3:8b"}, {"model": "llama3.2:latest"}]}
    async with talking(others={"tags": fault_server.document(tags)}) as (model, _):
        assert await model.list_models() == ["qwen3:8b", "llama3.2:latest"]
        await model.probe()


async def test_its_capabilities() -> None:
    model = OllamaModel()
    assert model.capabilities.max_context_tokens == 0
    assert model.capabilities.supports_thinking
    assert model.capabilities.supports_effort
    await model.close()
