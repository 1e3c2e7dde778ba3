from typing import Any

import pytest

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.models.anthropic import AnthropicModel
from loomlog.connectors.models.catalog import DRIVERS, ProviderSpec, build_model, build_models
from loomlog.connectors.models.gemini import GeminiModel
from loomlog.connectors.models.mock.model import MockModel
from loomlog.connectors.models.model_capabilities import capabilities_of
from loomlog.connectors.models.ollama import OllamaModel
from loomlog.connectors.models.openai import OpenAiModel
from loomlog.connectors.protocols import Model, Reply
from loomlog.schemas.conversation import ImageBlock, Message
from tests.connectors.models import fault_server, samples
from tests.connectors.models.fault_server import FaultServer
from tests.connectors.models.samples import called, request, results, user


async def test_every_driver_is_built_under_its_providers_id() -> None:
    specs = [
        ProviderSpec(id="anthropic", driver="anthropic", api_key="k"),
        ProviderSpec(id="openai", driver="openai", api_key="k"),
        ProviderSpec(id="deepseek", driver="deepseek", api_key="k"),
        ProviderSpec(id="gemini", driver="gemini", api_key="k"),
        ProviderSpec(id="ollama-local", driver="ollama", base_url="http://127.0.0.1:1"),
        ProviderSpec(id="gateway", driver="openai", base_url="http://127.0.0.1:1/v1"),
        ProviderSpec(id="mock", driver="mock"),
    ]
    models = build_models({spec.id: spec for spec in specs})
    assert {name: (model.provider, type(model)) for name, model in models.items()} == {
        "anthropic": ("anthropic", AnthropicModel),
        "openai": ("openai", OpenAiModel),
        "deepseek": ("deepseek", OpenAiModel),
        "gemini": ("gemini", GeminiModel),
        "ollama-local": ("ollama-local", OllamaModel),
        "gateway": ("gateway", OpenAiModel),
        "mock": ("mock", MockModel),
    }
    assert models["deepseek"].capabilities.supports_thinking
    await closed(*models.values())


def test_an_unknown_driver_names_the_known_ones() -> None:
    with pytest.raises(
        Permanent, match=r"x: no driver 'telepathy'; there are anthropic, openai, deepseek, gemini, ollama, mock"
    ) as caught:
        build_models({"x": ProviderSpec(id="x", driver="telepathy")})
    assert caught.value.kind == "unsupported"


async def test_capabilities_can_be_changed_one_by_one() -> None:
    model = build_model(
        ProviderSpec(id="x", driver="openai", capabilities={"supports_vision": False, "max_context_tokens": 8192})
    )
    assert (model.capabilities.supports_vision, model.capabilities.max_context_tokens) == (False, 8192)
    assert model.capabilities.supports_effort
    await closed(model)


@pytest.mark.parametrize(
    ("driver", "values"),
    [
        ("mock", {"options": {"latency_ms": "soon"}}),
        ("mock", {"options": {"latency_ms": -1}}),
        ("mock", {"options": {"rate_429": 1.5}}),
        ("mock", {"options": {"rate_500": float("nan")}}),
        ("mock", {"options": {"rate_500": True}}),
        ("mock", {"options": {"stable": "yes"}}),
        ("openai", {"options": {"echo_reasoning": 1}}),
        ("ollama", {"options": {"num_ctx": -1}}),
        ("ollama", {"options": {"num_ctx": 4096.5}}),
        ("ollama", {"options": {"num_gpu": "all"}}),
        ("ollama", {"options": {"vision_models": "llava"}}),
        ("gemini", {"base_url": "nowhere"}),
        ("openai", {"options": {"reasoning_models": "grok"}}),
        ("openai", {"capabilities": {"telepathy": True}}),
        ("openai", {"capabilities": {"supports_vision": 1}}),
        ("openai", {"capabilities": {"max_context_tokens": True}}),
        ("openai", {"base_url": "nowhere"}),
    ],
)
def test_values_that_cannot_be_used_name_themselves(driver: str, values: dict[str, Any]) -> None:
    with pytest.raises(Permanent, match=r"x: .*(expected|must be)") as caught:
        build_model(ProviderSpec(id="x", driver=driver, **values))
    assert caught.value.kind == "invalid"


def test_options_of_another_version_are_left_alone() -> None:
    build_model(ProviderSpec(id="x", driver="mock", options={"num_ctx": 4096}))


def test_a_key_is_not_shown() -> None:
    assert "sk-123" not in repr(ProviderSpec(id="x", driver="openai", api_key="sk-123"))


async def test_mock_stable_never_fails_and_mock_does_as_it_is_told() -> None:
    failing = {"rate_429": 1.0, "latency_ms": 0, "latency_jitter_ms": 0.0}
    asked = request(model="mock-generic")
    for spec in (
        ProviderSpec(id="mock-stable", driver="mock", options=failing),
        ProviderSpec(id="other", driver="mock", options=failing | {"stable": True}),
    ):
        assert [item async for item in build_model(spec).stream(asked)]
    with pytest.raises(Transient, match="mock 429"):
        await first(build_model(ProviderSpec(id="mock", driver="mock", options=failing)))


async def test_reasoning_options_reach_the_wire() -> None:
    options = {"echo_reasoning": True, "reasoning_models": ["grok-"]}
    async with FaultServer(fault_server.stream(samples.OPENAI_FRAMES)) as server:
        model = build_model(ProviderSpec(id="x", driver="openai", base_url=server.url, options=options))
        asked = request(user("a"), called("c", reasoning="hm"), results(("c", "b")), model="grok-4", effort="low")
        assert [item async for item in model.stream(asked)]
        await closed(model)
    sent = server.requests[0].json
    assert sent["reasoning_effort"] == "low"
    assert sent["messages"][2]["reasoning_content"] == "hm"


async def test_options_of_ollama_reach_the_wire() -> None:
    options = {"num_ctx": 8192, "num_gpu": 3, "vision_models": ["mine"]}
    image = Message(role="user", blocks=(ImageBlock(media_type="image/png", data="AA"),))
    async with FaultServer(fault_server.stream(samples.OLLAMA_LINES)) as server:
        model = build_model(ProviderSpec(id="x", driver="ollama", base_url=server.url, options=options))
        assert [item async for item in model.stream(request(image, model="mine:7b"))]
        await closed(model)
    assert server.requests[0].json["options"] == {"num_ctx": 8192, "num_gpu": 3}


async def test_every_driver_is_built_with_the_capabilities_that_routing_reads_without_it() -> None:
    for driver in DRIVERS:
        model = build_model(ProviderSpec(id="x", driver=driver, api_key="k"))
        assert model.capabilities == capabilities_of(driver)
        await closed(model)
    model = build_model(ProviderSpec(id="x", driver="ollama", api_key="k", options={"num_ctx": 8192}))
    assert model.capabilities == capabilities_of("ollama", {"num_ctx": 8192})
    await closed(model)


async def test_timeouts_reach_the_wire() -> None:
    async with FaultServer(fault_server.silent) as server:
        model = build_model(ProviderSpec(id="x", driver="openai", base_url=server.url, header_timeout_s=0.03))
        with pytest.raises(Transient, match=r"within 0\.03 s"):
            await first(model)
        await closed(model)


async def first(model: Model) -> object:
    async for item in model.stream(request(model="mock-generic")):
        return item
    return Reply


async def closed(*models: Model) -> None:
    for model in models:
        await model.close()
