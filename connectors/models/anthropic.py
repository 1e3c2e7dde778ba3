"""The Messages API of Anthropic, and of gateways that implement it.

Before: the runtime requests a turn. After: anthropic_request (body), wire (transport), anthropic_reply (answer).
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import quote, urlsplit

from loomlog.connectors.errors import Transient
from loomlog.connectors.models import anthropic_request, untrusted_json
from loomlog.connectors.models.anthropic_reply import AnthropicTurn
from loomlog.connectors.models.output_tool import with_output_tool
from loomlog.connectors.models.provider_client import HEADER_TIMEOUT_S, IDLE_TIMEOUT_S, ProviderClient
from loomlog.connectors.models.wire_format import check_key, check_vision, encode_body, restrict_to_capabilities
from loomlog.connectors.protocols import Capabilities, ModelItem, ModelRequest

log = logging.getLogger("loomlog.models")

BASE_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"
CAPABILITIES = Capabilities(
    native_prompt_cache=True,
    max_context_tokens=200_000,
    supports_thinking=True,
    supports_vision=True,
    supports_effort=True,
)
MODELS_PER_PAGE = 1000
MAX_PAGES = 20
"""Pages read of a model list (20,000 models); a limit for gateways that page without end."""
MAX_WARNINGS = 1_000
"""Warnings remembered as logged; beyond this number no more are logged."""
MODELS_WITHOUT_VISION = ("claude-2", "claude-instant")


class AnthropicModel:
    """Turns over POST {base_url}/v1/messages.

    Exhaust `stream` after its Reply to keep the connection for the next turn; leaving it earlier closes it.
    At the vendor's own address a key is needed: calls without one raise Permanent(refused). Elsewhere none is.
    """

    def __init__(
        self,
        *,
        provider: str = "anthropic",
        api_key: str = "",
        base_url: str = "",
        header_timeout_s: float = HEADER_TIMEOUT_S,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
    ) -> None:
        self.provider = provider
        self.capabilities = CAPABILITIES
        self._api_key = api_key
        self._warned: set[tuple[str, str]] = set()
        self._client = ProviderClient(
            provider=provider,
            base_url=(base_url or BASE_URL).rstrip("/").removesuffix("/v1"),
            headers={"anthropic-version": API_VERSION, **key_headers(api_key)},
            secret=api_key,
            header_timeout_s=header_timeout_s,
            idle_timeout_s=idle_timeout_s,
        )
        self._needs_key = self._client.host == urlsplit(BASE_URL).hostname

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        check_key(self.provider, request.api_key or self._api_key, is_required=self._needs_key)
        wire = self._client.with_key(request.api_key, key_headers(request.api_key))
        sees = self.capabilities.supports_vision and has_vision(request.model)
        check_vision(self.provider, request, has_vision=sees)
        request = restrict_to_capabilities(request, self.capabilities, effort_is_thinking=True)
        request = with_output_tool(request)
        fields = anthropic_request.body(request, parallel=self.capabilities.parallel_tool_calls)
        self._warn_dropped_options(request, fields)
        body = encode_body(self.provider, fields)
        turn = AnthropicTurn(self.provider, request, lambda error: wire.to_error(error, body))
        events = wire.stream_events("/v1/messages", body, idempotency_key=request.effective_idempotency_key)
        async with aclosing(events):
            async for event in events:
                for delta in turn.add_event(event):
                    yield delta
                if turn.is_finished:
                    yield turn.build_reply()
                    await wire.drain(events)
                    return
        raise Transient(f"{self.provider}: the stream ended without message_stop", kind="broken_off")

    async def list_models(self) -> list[str]:
        check_key(self.provider, self._api_key, is_required=self._needs_key)
        names: list[str] = []
        after = ""
        for _ in range(MAX_PAGES):
            page = untrusted_json.fields(await self._client.get_json(f"/v1/models?limit={MODELS_PER_PAGE}{after}"))
            names += [
                untrusted_json.text(untrusted_json.fields(entry).get("id"))
                for entry in untrusted_json.items(page.get("data"))
            ]
            last = untrusted_json.text(page.get("last_id"))
            if page.get("has_more") is not True or not last:
                break
            after = f"&after_id={quote(last, safe='')}"
        return [name for name in names if name]

    async def probe(self) -> None:
        check_key(self.provider, self._api_key, is_required=self._needs_key)
        await self._client.probe("/v1/models?limit=1")

    async def close(self) -> None:
        await self._client.close()

    def _warn_dropped_options(self, request: ModelRequest, fields: dict[str, object]) -> None:
        """Log each dropped option once per model, because every turn of a run drops the same ones."""
        for word in anthropic_request.dropped_options(request, fields):
            if (request.model, word) in self._warned or len(self._warned) >= MAX_WARNINGS:
                continue
            self._warned.add((request.model, word))
            log.warning(
                "%s: %s was dropped: %s does not take it%s",
                self.provider,
                word,
                request.model,
                " while it thinks" if "thinking" in fields else "",
            )


def key_headers(key: str) -> dict[str, str]:
    """Return the header in which this API expects its key."""
    return {"x-api-key": key} if key else {}


def has_vision(model: str) -> bool:
    """Return whether a model accepts images; all do except the oldest."""
    return not model.lower().startswith(MODELS_WITHOUT_VISION)
