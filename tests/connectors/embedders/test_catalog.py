import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from loomlog.connectors.embedders.catalog import build_embedder
from loomlog.connectors.embedders.errors import EmbedderNotConfigured
from loomlog.connectors.embedders.health import HealthTrackingEmbedder
from loomlog.connectors.embedders.options import EmbedderOptions
from tests.connectors.models import fault_server
from tests.connectors.models.fault_server import FaultServer, Peer

KEYS = {"OPENAI_API_KEY": "sk-o", "GEMINI_API_KEY": "sk-g", "VOYAGE_API_KEY": "sk-v", "OLLAMA_API_KEY": "sk-l"}


def built(environment: Mapping[str, str] = KEYS, **options: Any) -> HealthTrackingEmbedder:
    embedder = build_embedder(EmbedderOptions(**options), environment)
    assert embedder is not None
    return embedder


def refusal(environment: Mapping[str, str] = KEYS, **options: Any) -> str:
    with pytest.raises(EmbedderNotConfigured) as caught:
        built(environment, **options)
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


@pytest.mark.parametrize(
    ("provider", "model", "effective", "dimension"),
    [
        ("openai", "", "text-embedding-3-small", 1_536),
        ("openai", "text-embedding-3-large", "text-embedding-3-large", 3_072),
        ("openai", "text-embedding-ada-002", "text-embedding-ada-002", 1_536),
        ("openai", "another", "another", 0),
        ("gemini", "", "gemini-embedding-001", 3_072),
        ("gemini", "text-embedding-004", "text-embedding-004", 768),
        ("voyage", "", "voyage-3.5", 1_024),
        ("anthropic", "", "voyage-3.5", 1_024),
        ("anthropic", "voyage-3-lite", "voyage-3-lite", 512),
        ("ollama", "nomic-embed-text", "nomic-embed-text", 0),
        ("ollama-local", "nomic-embed-text", "nomic-embed-text", 0),
        ("stub", "", "stub", 256),
    ],
)
async def test_each_provider_has_a_model_and_a_dimension(
    provider: str, model: str, effective: str, dimension: int
) -> None:
    embedder = built(provider=provider, model=model)
    assert (embedder.provider, embedder.model, embedder.dimension) == (provider, effective, dimension)
    assert embedder.health.state == "untried"
    assert built(provider=provider, model=model, dimensions=64).dimension == 64


def test_no_block_is_no_embedder() -> None:
    assert build_embedder(None, KEYS) is None


@pytest.mark.parametrize("name", ["LOOMLOG_EMBEDDER_STUB", "LOOMCYCLE_EMBEDDER_STUB"])
def test_the_stub_replaces_what_is_configured(name: str) -> None:
    on = {name: "1"}
    for options in (None, EmbedderOptions(provider="openai", dimensions=512), EmbedderOptions(provider="unknown")):
        embedder = build_embedder(options, on)
        assert embedder is not None
        assert (embedder.provider, embedder.model, embedder.dimension) == ("stub", "stub", 256)
    of_the_block = built(on, provider="stub", model="stub-64", dimensions=64)
    assert (of_the_block.model, of_the_block.dimension) == ("stub-64", 64)
    assert build_embedder(None, {name: "0"}) is None


@pytest.mark.parametrize(
    ("provider", "variable"),
    [
        ("openai", "OPENAI_API_KEY"),
        ("gemini", "GEMINI_API_KEY"),
        ("voyage", "VOYAGE_API_KEY"),
        ("anthropic", "VOYAGE_API_KEY"),
        ("ollama", "OLLAMA_API_KEY"),
    ],
)
def test_a_missing_key_is_named(provider: str, variable: str) -> None:
    assert f"{variable} is not set" in refusal({variable: " "}, provider=provider, model="m")
    assert "MY_KEY is not set" in refusal(KEYS, provider=provider, model="m", api_key_env="MY_KEY")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dimensions": 4_001}, "memory.embedder.dimensions is 4001; expected 0 to 4,000"),
        ({"dimensions": -1}, "memory.embedder.dimensions is -1"),
        ({"timeout_ms": 0}, "memory.embedder.timeout_ms is 0; expected 1 to 600,000"),
        ({"batch_size": 0}, "memory.embedder.batch_size is 0; expected 1 to 2,048"),
        ({"base_url": "ftp://x"}, "base_url must be http(s)"),
        ({"base_url": "http://["}, "base_url is not a URL"),
    ],
)
def test_values_that_cannot_be_used_are_refused(options: dict[str, Any], message: str) -> None:
    assert message in refusal(provider="openai", **options)


def test_a_key_that_is_no_header_is_refused_without_showing_it() -> None:
    message = refusal({"OPENAI_API_KEY": "sk\nsecret"}, provider="openai")
    assert "API key contains" in message
    assert "secret" not in message


@pytest.mark.parametrize("provider", ["ollama", "ollama-local"])
def test_ollama_needs_a_model(provider: str) -> None:
    assert "memory.embedder.model is missing" in refusal(provider=provider)


def test_an_unknown_provider_is_refused_with_the_known_ones() -> None:
    assert "'cohere'; there are stub, openai, gemini, voyage" in refusal(provider="cohere")


@pytest.mark.parametrize(
    ("options", "environment", "header"),
    [
        ({"provider": "openai", "model": "m"}, KEYS, None),  # a vendor's key goes to no other server
        ({"provider": "openai", "model": "m", "api_key_env": "MY_KEY"}, {"MY_KEY": "sk-my"}, "Bearer sk-my"),
        ({"provider": "ollama", "model": "m"}, {}, None),
        ({"provider": "ollama-local", "model": "m"}, KEYS, None),
    ],
)
async def test_the_key_that_another_server_is_sent(
    options: dict[str, Any], environment: Mapping[str, str], header: str | None
) -> None:
    body = {"data": [{"embedding": [1.0]}], "embeddings": [[1.0]]}
    async with FaultServer(fault_server.document(body)) as server:
        embedder = built(environment, base_url=server.url, **options)
        assert await embedder.embed(["a"]) == [[1.0]]
        assert server.requests[0].headers.get("authorization") == header
        assert embedder.health.state == "ok"
        await embedder.close()


@pytest.mark.parametrize("suffix", ["", "/", "/api", "/api/"])
async def test_ollama_local_is_reached_at_the_address_of_its_variable(suffix: str) -> None:
    async with FaultServer(fault_server.document({"embeddings": [[1.0, 0.0]]})) as server:
        embedder = built({"OLLAMA_BASE_URL": server.url + suffix}, provider="ollama-local", model="m")
        await embedder.embed(["a"])
        assert server.requests[0].path == "/api/embed"
        assert embedder.dimension == 2
        await embedder.close()


async def test_timeout_batch_size_clock_and_sleep_reach_the_driver() -> None:
    delays_s: list[float] = []

    async def sleep(delay_s: float) -> None:
        delays_s.append(delay_s)

    async def answer(peer: Peer) -> None:
        if "silent" in peer.request.json["input"]:
            await fault_server.silent(peer)
        elif len(delays_s) == 0:
            await fault_server.error(503, "no")(peer)
        else:
            vectors = [[1.0]] * len(peer.request.json["input"])
            await fault_server.document({"embeddings": vectors})(peer)

    async with FaultServer(answer) as server, asyncio.timeout(30):
        options = EmbedderOptions(provider="ollama-local", model="m", base_url=server.url, timeout_ms=200, batch_size=2)
        embedder = build_embedder(options, {}, clock_ms=lambda: 77, sleep=sleep)
        assert embedder is not None
        assert len(await embedder.embed(["a", "b", "c"])) == 3
        assert [len(request.json["input"]) for request in server.requests] == [2, 2, 1]
        with pytest.raises(Exception, match=r"no answer within 0\.2 s|did not answer in time"):
            await embedder.embed(["silent"])
        assert (embedder.health.last_failure_kind, embedder.health.last_failure_at_ms) == ("timeout", 77)
        await embedder.close()
