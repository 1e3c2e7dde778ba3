"""The embedder built from configuration. Building opens no connection.

A key is read from the variable that `api_key_env` names. Without that name the vendor's own variable is read for the
vendor's own address; another server gets no key, as with the providers of models.

Before: services' main, with the block `memory.embedder`. After: http_embedder.py, stub.py, health.py.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit

from loomlog.connectors.configuration.providers import OLLAMA_LOCAL, OLLAMA_LOCAL_URL
from loomlog.connectors.configuration.setting_types import TRUE_WORDS
from loomlog.connectors.embedders.embedder import EMBEDDING_DIMENSIONS_MAX, Embedder
from loomlog.connectors.embedders.embedding_apis import (
    GEMINI_EMBEDDINGS,
    OLLAMA_EMBEDDINGS,
    OPENAI_EMBEDDINGS,
    VOYAGE_EMBEDDINGS,
    EmbeddingApi,
)
from loomlog.connectors.embedders.errors import EmbedderNotConfigured
from loomlog.connectors.embedders.health import HealthTrackingEmbedder
from loomlog.connectors.embedders.http_embedder import HttpEmbedder
from loomlog.connectors.embedders.options import EmbedderOptions
from loomlog.connectors.embedders.stub import STUB_DIMENSIONS, StubEmbedder
from loomlog.connectors.errors import Permanent

STUB = "stub"
STUB_VARIABLES = ("LOOMLOG_EMBEDDER_STUB", "LOOMCYCLE_EMBEDDER_STUB")
"""Switches that replace the configured embedder by the stub, for tests."""
APIS: Mapping[str, EmbeddingApi] = {
    "openai": OPENAI_EMBEDDINGS,
    "gemini": GEMINI_EMBEDDINGS,
    "voyage": VOYAGE_EMBEDDINGS,
    "anthropic": VOYAGE_EMBEDDINGS,  # Anthropic has no embeddings and recommends Voyage's
    "ollama": OLLAMA_EMBEDDINGS,
    OLLAMA_LOCAL: OLLAMA_EMBEDDINGS,
}
TIMEOUT_MS_MAX = 600_000
BATCH_SIZE_MAX = 2_048
"""Texts of a request that the largest API accepts."""


def build_embedder(
    options: EmbedderOptions | None,
    environment: Mapping[str, str],
    *,
    clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> HealthTrackingEmbedder | None:
    """Return the embedder; None without a block. Raises EmbedderNotConfigured, a ValueError."""
    if any(environment.get(name, "").strip().casefold() in TRUE_WORDS for name in STUB_VARIABLES) and (
        options is None or options.provider != STUB
    ):
        options = EmbedderOptions(provider=STUB)
    if options is None:
        return None
    _check("dimensions", options.dimensions, 0, EMBEDDING_DIMENSIONS_MAX, " (0: those of the model)")
    _check("timeout_ms", options.timeout_ms, 1, TIMEOUT_MS_MAX)
    _check("batch_size", options.batch_size, 1, BATCH_SIZE_MAX)
    return HealthTrackingEmbedder(_build(options, environment, sleep), clock_ms=clock_ms)


def _build(
    options: EmbedderOptions, environment: Mapping[str, str], sleep: Callable[[float], Awaitable[None]]
) -> Embedder:
    if options.provider == STUB:
        return StubEmbedder(model=options.model or STUB, dimensions=options.dimensions or STUB_DIMENSIONS)
    api = APIS.get(options.provider)
    if api is None:
        raise EmbedderNotConfigured(
            f"memory.embedder.provider is {options.provider!r:.60}; there are {', '.join((STUB, *APIS))}"
        )
    model = options.model or next(iter(api.dimensions), "")
    if not model:
        raise EmbedderNotConfigured(f"memory.embedder.model is missing; {options.provider} has no default model")
    base_url = options.base_url.strip()
    if options.provider == OLLAMA_LOCAL:
        base_url = base_url or environment.get("OLLAMA_BASE_URL", "").strip() or OLLAMA_LOCAL_URL
    if api is OLLAMA_EMBEDDINGS:
        base_url = base_url.rstrip("/").removesuffix("/api")
    try:
        return HttpEmbedder(
            api,
            provider=options.provider,
            model=model,
            api_key=_key(options, api, base_url, environment),
            base_url=base_url,
            dimensions=options.dimensions,
            timeout_s=options.timeout_ms / 1_000,
            batch_size=options.batch_size,
            sleep=sleep,
        )
    except Permanent as error:
        raise EmbedderNotConfigured(f"memory.embedder: {error}") from error


def _key(options: EmbedderOptions, api: EmbeddingApi, base_url: str, environment: Mapping[str, str]) -> str:
    """Return the key to send; empty for another server than the vendor's, unless its variable is named."""
    is_vendor = not base_url or _host(base_url) == _host(api.base_url)
    variable = options.api_key_env or (api.key_env if is_vendor else "")
    key = environment.get(variable, "").strip() if variable else ""
    if variable and not key:
        raise EmbedderNotConfigured(
            f"memory.embedder: {variable} is not set; it holds the API key of the embedder {options.provider}"
        )
    return key


def _host(url: str) -> str:
    """Return the host of a URL; empty for text that is none, which the driver refuses."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _check(name: str, value: int, minimum: int, maximum: int, note: str = "") -> None:
    if not minimum <= value <= maximum:
        raise EmbedderNotConfigured(f"memory.embedder.{name} is {value}; expected {minimum} to {maximum:,}{note}")
