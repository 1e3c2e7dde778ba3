"""A vendor nobody wrote a driver for, by configuration only: from the text of a file to the bytes on the wire."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.load import load
from loomlog.connectors.configuration.providers import build_providers, usable_provider_ids
from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.models.catalog import build_model
from loomlog.connectors.protocols import Model, Reply, TextDelta
from loomlog.schemas.conversation import ImageBlock, Message
from tests.connectors.models import fault_server, samples
from tests.connectors.models.fault_server import Answer, FaultServer
from tests.connectors.models.samples import called, request, results, user

GATEWAY = """
providers:
  gateway:
    driver: openai
    base_url: {url}/openai/v1/
    api_key_env: GATEWAY_API_KEY
    max_concurrent: 3
    options: {{ echo_reasoning: true, reasoning_models: [grok-4], idle_timeout_ms: 1500 }}
    capabilities: {{ supports_vision: false, max_context_tokens: 32768, supports_thinking: true }}
"""
KEYLESS = "providers: {{box: {{driver: openai, base_url: '{url}'}}}}"


def gateway(tmp_path: Path, text: str, environ: Mapping[str, str]) -> tuple[Model, frozenset[str]]:
    (tmp_path / "loomlog.yaml").write_text(text)
    loaded = load(environ, working_directory=tmp_path)
    providers = build_providers(loaded.configuration, loaded.settings, environ)
    [ours] = [provider for name, provider in providers.items() if name in ("gateway", "box")]
    return build_model(ours), usable_provider_ids(providers.values())


async def last(model: Model, *messages: Message, name: str) -> Reply:
    *_, reply = [item async for item in model.stream(request(*messages, model=name, effort="high", max_tokens=99))]
    assert isinstance(reply, Reply)
    return reply


async def test_address_key_options_and_capabilities_come_from_the_file(tmp_path: Path) -> None:
    async with FaultServer(fault_server.stream(samples.OPENAI_FRAMES)) as server:
        environ = {"GATEWAY_API_KEY": "sk-gateway"}
        model, usable = gateway(tmp_path, GATEWAY.format(url=server.url), environ)
        conversation = (user("a"), called("c", reasoning="hm"), results(("c", "b")))
        assert (await last(model, *conversation, name="grok-4-fast")).text == "I look für Sie."
        await model.close()
    assert "gateway" in usable
    [sent] = server.requests
    assert (sent.path, sent.headers["authorization"]) == ("/openai/v1/chat/completions", "Bearer sk-gateway")
    assert (sent.json["reasoning_effort"], sent.json["max_completion_tokens"]) == ("high", 99)
    assert sent.json["messages"][2]["reasoning_content"] == "hm"
    assert model.provider == "gateway"
    assert (model.capabilities.max_context_tokens, model.capabilities.supports_thinking) == (32_768, True)


async def test_an_image_is_refused_where_the_file_says_there_is_no_vision(tmp_path: Path) -> None:
    async with FaultServer(fault_server.stream(samples.OPENAI_FRAMES)) as server:
        model, _ = gateway(tmp_path, GATEWAY.format(url=server.url), {"GATEWAY_API_KEY": "k"})
        image = Message(role="user", blocks=(ImageBlock(media_type="image/png", data="AA"),))
        with pytest.raises(Permanent, match="gateway: the conversation contains an image"):
            await last(model, image, name="grok-4")
        await model.close()
    assert server.requests == []


async def test_without_its_key_it_is_not_usable_and_without_a_keys_name_it_needs_none(tmp_path: Path) -> None:
    async with FaultServer(fault_server.stream(samples.OPENAI_FRAMES)) as server:
        keyed, usable = gateway(tmp_path, GATEWAY.format(url=server.url), {})
        assert "gateway" not in usable
        await keyed.close()
        model, usable = gateway(tmp_path, KEYLESS.format(url=server.url), {})
        assert "box" in usable
        await last(model, user("a"), name="llama")
        await model.close()
    assert "authorization" not in server.requests[0].headers
    assert (server.requests[0].path, server.requests[0].json["max_tokens"]) == ("/chat/completions", 99)


WHOLE = {
    "id": "x",
    "model": "old-1",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "I look.",
                "reasoning_content": "hm",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "Search", "arguments": '{"query":"x"}'}},
                    {"id": "b", "type": "function", "function": {"name": "Search", "arguments": "{}"}},
                ],
            },
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4},
}
SIMPLE = (
    "providers: {{box: {{driver: openai, base_url: '{url}', options: {{reasoning_models: [old-]}}, capabilities:"
    " {{streaming: false, parallel_tool_calls: false, supports_effort: false}}}}}}"
)


async def test_a_server_that_cannot_stream_is_asked_for_the_whole_answer(tmp_path: Path) -> None:
    async with FaultServer(fault_server.document(WHOLE)) as server:
        model, _ = gateway(tmp_path, SIMPLE.format(url=server.url), {})
        items = [item async for item in model.stream(request(model="old-1", effort="high"))]
        await model.close()
    reply = items[-1]
    assert isinstance(reply, Reply)
    assert (reply.text, reply.reasoning, reply.stop_reason) == ("I look.", "hm", "tool_use")
    assert [(call.id, call.input) for call in reply.tool_calls] == [("a", '{"query":"x"}'), ("b", "{}")]
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (3, 4)
    assert [item.text for item in items[:-1] if isinstance(item, TextDelta)] == ["hm", "I look."]
    [sent] = server.requests
    assert (sent.json["stream"], sent.json["parallel_tool_calls"]) == (False, False)
    assert "reasoning_effort" not in sent.json
    assert (sent.headers["accept"], sent.headers["idempotency-key"]) == ("application/json", "r_1/1/0")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (fault_server.document({"choices": [{"message": {"content": "cut"}}]}), "broken_off"),
        (fault_server.document({"error": {"code": 429, "message": "slow down"}}), "rate_limited"),
        (fault_server.document([]), "broken_off"),
        (fault_server.status(200, b"<html>", content_type="text/html"), "unavailable"),
        (fault_server.error(503, "down"), "unavailable"),
    ],
)
async def test_what_is_no_whole_answer_is_worth_another_try(tmp_path: Path, answer: Answer, kind: str) -> None:
    async with FaultServer(answer) as server:
        model, _ = gateway(tmp_path, SIMPLE.format(url=server.url), {})
        with pytest.raises(Transient) as caught:
            await last(model, user("a"), name="old-1")
        assert caught.value.kind == kind
        await model.close()


@pytest.mark.parametrize("status", [404, 405])
async def test_a_gateway_that_lists_no_models_lists_nothing_and_is_there(tmp_path: Path, status: int) -> None:
    async with FaultServer(fault_server.error(status, "no such thing")) as server:
        model, _ = gateway(tmp_path, KEYLESS.format(url=server.url), {})
        assert await model.list_models() == []
        await model.probe()
        await model.close()


async def test_the_key_is_a_name_in_the_file_and_its_value_is_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="NAME of an environment variable") as caught:
        gateway(tmp_path, "providers: {box: {driver: openai, api_key_env: sk-abc-secret}}", {})
    assert "sk-abc-secret" not in str(caught.value)
