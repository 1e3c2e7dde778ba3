"""Ollama's own chat API, for self-hosted servers and for the hosted service.

A self-hosted server loads a model with a window it chooses by its memory, and silently truncates a prompt that does not
fit. So the window of a turn is determined: the one pinned by `num_ctx`, else the one /api/ps reports for the loaded
model, else the one the vendor's host reports, else OLLAMA_WINDOW, which is advertised and never requested. A prompt
that is probably too long for it is logged.

The capabilities of a model are queried occasionally (/api/show), and only where it matters: `think` on a model without
thinking is an error for Ollama, and for loomlog an option that is dropped (runtime parity 1.18). When these queries
fail the turn continues without their answers.

Before: the runtime requests a turn. After: ollama_request (body), wire (transport), ollama_reply (answer).
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import urlsplit

import orjson

from loomlog.connectors.errors import ConnectorError, Transient
from loomlog.connectors.models import ollama_request, untrusted_json
from loomlog.connectors.models.ollama_reply import OllamaTurn
from loomlog.connectors.models.output_tool import with_output_tool
from loomlog.connectors.models.provider_client import HEADER_TIMEOUT_S, IDLE_TIMEOUT_S, ProviderClient, bearer_headers
from loomlog.connectors.models.wire_format import check_key, check_vision, encode_body, restrict_to_capabilities
from loomlog.connectors.protocols import Capabilities, ModelItem, ModelRequest

log = logging.getLogger("loomlog.models")

BASE_URL = "https://ollama.com"
OLLAMA_WINDOW = 4096
"""Tokens a server allots to a model by default when its memory is small; prompts below it are safe."""
QUERY_TIMEOUT_S = 2.0
"""Seconds that a query about a model may delay a turn; without an answer the turn continues."""
WINDOW_TTL_S = 60.0
"""Seconds a window is cached; the window of a loaded model changes only when the model is loaded again."""
DESCRIPTION_TTL_S = 3600.0
"""Seconds a description is cached; capabilities change only when another model gets the name."""
UNLOADED_TTL_S = 1.0
"""Seconds until the next query about a model that is not loaded; this very turn will load it."""
CACHE_MAX = 256
"""Models with cached answers; beyond it all are dropped and queried again."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """Answer of /api/show about a model; None and 0 where it is missing, as on old servers."""

    can_think: bool | None = None
    max_context_tokens: int = 0


class OllamaModel:
    """Turns over POST {base_url}/api/chat.

    Exhaust `stream` after its Reply to keep the connection for the next turn; leaving it earlier closes it.
    At the vendor's own address a key is needed: calls without one raise Permanent(refused). Elsewhere none is.
    `num_ctx` 0 pins no window; `num_gpu` -1 leaves the number of layers to the server.
    """

    def __init__(
        self,
        *,
        provider: str = "ollama",
        api_key: str = "",
        base_url: str = "",
        num_ctx: int = 0,
        num_gpu: int = -1,
        vision_models: Sequence[str] = (),
        header_timeout_s: float = HEADER_TIMEOUT_S,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.provider = provider
        self.capabilities = capabilities(num_ctx)
        self._api_key = api_key
        self._num_ctx = num_ctx
        self._num_gpu = num_gpu
        self._vision_models = tuple(vision_models)
        self._client = ProviderClient(
            provider=provider,
            base_url=(base_url or BASE_URL).rstrip("/").removesuffix("/api"),
            headers=bearer_headers(api_key),
            secret=api_key,
            header_timeout_s=header_timeout_s,
            idle_timeout_s=idle_timeout_s,
            is_ndjson=True,
        )
        self._is_hosted = self._client.host == urlsplit(BASE_URL).hostname
        self._windows: _TtlCache[int] = _TtlCache(clock)
        self._descriptions: _TtlCache[ModelDescription] = _TtlCache(clock)
        self._descriptions_by_run_keys: _TtlCache[ModelDescription] = _TtlCache(clock)
        """Cached separately for keys that runs brought: the answer to a bad key must not apply to all callers."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        check_key(self.provider, request.api_key or self._api_key, is_required=self._is_hosted)
        wire = self._client.with_key(request.api_key, bearer_headers(request.api_key))
        sees = self.capabilities.supports_vision and ollama_request.has_vision(request.model, self._vision_models)
        check_vision(self.provider, request, has_vision=sees)
        request = restrict_to_capabilities(request, self.capabilities, effort_is_thinking=True)
        if request.tools:  # with `format` a model calls no tool
            request = with_output_tool(request)
        thinks = True
        if ollama_request.think_value(request.model, request.effort):
            thinks = (await self._describe(request.model, wire)).can_think is not False
        window = await self._window(request.model, wire)
        self._warn_if_too_long(request, window)
        body = encode_body(
            self.provider,
            ollama_request.body(request, can_think=thinks, num_ctx=self._num_ctx, num_gpu=self._num_gpu),
        )
        turn = OllamaTurn(self.provider, request, lambda error: wire.to_error(error, body))
        events = wire.stream_events("/api/chat", body, idempotency_key=request.effective_idempotency_key)
        async with aclosing(events):
            async for event in events:
                for delta in turn.add_event(event):
                    yield delta
                if turn.is_finished:
                    yield turn.build_reply(window)
                    await wire.drain(events)
                    return
        raise Transient(f"{self.provider}: the stream ended without its last line", kind="broken_off")

    async def list_models(self) -> list[str]:
        """Return the installed models; the API has no pages."""
        check_key(self.provider, self._api_key, is_required=self._is_hosted)
        listed = untrusted_json.fields(await self._client.get_json("/api/tags"))
        entries = map(untrusted_json.fields, untrusted_json.items(listed.get("models")))
        names = [untrusted_json.text(entry.get("name")) or untrusted_json.text(entry.get("model")) for entry in entries]
        return [name for name in names if name]

    async def probe(self) -> None:
        check_key(self.provider, self._api_key, is_required=self._is_hosted)
        await self._client.probe("/api/tags")

    async def close(self) -> None:
        await self._client.close()

    async def _window(self, model: str, client: ProviderClient) -> int:
        if self.capabilities.max_context_tokens:
            return self.capabilities.max_context_tokens  # pinned, or set in the configuration
        if self._is_hosted:
            return (await self._describe(model, client)).max_context_tokens or OLLAMA_WINDOW
        return await self._windows.get(model, lambda: self._query_window(model, client)) or OLLAMA_WINDOW

    async def _query_window(self, model: str, client: ProviderClient) -> tuple[int, float]:
        """Return the window the model is loaded with, 0 when unknown, and for how many seconds this holds."""
        try:
            async with asyncio.timeout(QUERY_TIMEOUT_S):
                loaded = untrusted_json.fields(await client.get_json("/api/ps"))
        except (TimeoutError, ConnectorError) as error:
            log.info("%s: the context window of %s is unknown: %s", self.provider, model, error or "no answer in time")
            return 0, WINDOW_TTL_S
        for entry in map(untrusted_json.fields, untrusted_json.items(loaded.get("models"))):
            if _with_tag(model) in (entry.get("name"), entry.get("model")):
                return untrusted_json.count(entry.get("context_length")), WINDOW_TTL_S
        return 0, UNLOADED_TTL_S

    async def _describe(self, model: str, client: ProviderClient) -> ModelDescription:
        kept = self._descriptions if client is self._client else self._descriptions_by_run_keys
        return await kept.get(model, lambda: self._query_description(model, client))

    async def _query_description(self, model: str, client: ProviderClient) -> tuple[ModelDescription, float]:
        try:
            async with asyncio.timeout(QUERY_TIMEOUT_S):
                shown = untrusted_json.fields(await client.post_json("/api/show", orjson.dumps({"model": model})))
        except (TimeoutError, ConnectorError) as error:
            log.info("%s: the capabilities of %s are unknown: %s", self.provider, model, error or "no answer in time")
            return ModelDescription(), WINDOW_TTL_S
        abilities = shown.get("capabilities")
        lengths = [
            untrusted_json.count(value)
            for name, value in untrusted_json.fields(shown.get("model_info")).items()
            if name.endswith(".context_length")
        ]
        thinks = "thinking" in abilities if isinstance(abilities, list) else None
        return ModelDescription(can_think=thinks, max_context_tokens=max(lengths, default=0)), DESCRIPTION_TTL_S

    def _warn_if_too_long(self, request: ModelRequest, window: int) -> None:
        estimate = ollama_request.estimate_tokens(request)
        if estimate > window:
            log.warning(
                "%s: the prompt of %s is about %d tokens and the window of %s is %d: the server will cut the beginning."
                " Raise num_ctx or shorten the conversation",
                self.provider,
                request.call_id,
                estimate,
                request.model,
                window,
            )


def capabilities(num_ctx: int = 0) -> Capabilities:
    """Return the provider's capabilities. Its models have windows of their own, unless one is pinned for all; each
    Reply has its window.
    """
    return Capabilities(
        max_context_tokens=num_ctx,
        supports_thinking=True,
        supports_vision=True,
        supports_effort=True,
    )


def _with_tag(model: str) -> str:
    """Return the name as Ollama lists it: a name without a tag means its `latest`."""
    return model if ":" in model.rpartition("/")[2] else f"{model}:latest"


class _TtlCache(Generic[T]):
    """Answers by model, each cached for the time its `load` returned; one query about a model at a time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: dict[str, tuple[float, T]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def get(self, model: str, load: Callable[[], Awaitable[tuple[T, float]]]) -> T:
        """Return the answer about a model; `load` fetches a new one and the seconds for which it holds."""
        async with self._locks.setdefault(model, asyncio.Lock()):
            until, known = self._entries.get(model, (0.0, None))
            if known is not None and self._clock() < until:
                return known
            answer, lasts_s = await load()
            if len(self._entries) >= CACHE_MAX:
                self._entries.clear()
                self._locks.clear()
            self._entries[model] = (self._clock() + lasts_s, answer)
            return answer
