"""The Gemini API (v1beta), streamed as server-sent events.

Before: the runtime requests a turn. After: gemini_request (body), wire (transport), gemini_reply (answer).
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import quote, urlsplit

from loomlog.connectors.errors import Transient
from loomlog.connectors.models import gemini_request, untrusted_json
from loomlog.connectors.models.gemini_reply import GeminiTurn
from loomlog.connectors.models.output_tool import with_output_tool
from loomlog.connectors.models.provider_client import HEADER_TIMEOUT_S, IDLE_TIMEOUT_S, ProviderClient
from loomlog.connectors.models.wire_format import check_key, check_vision, encode_body, restrict_to_capabilities
from loomlog.connectors.protocols import Capabilities, ModelItem, ModelRequest

BASE_URL = "https://generativelanguage.googleapis.com/v1beta"
CAPABILITIES = Capabilities(
    max_context_tokens=2_000_000, supports_thinking=True, supports_vision=True, supports_effort=True
)
MODELS_PER_PAGE = 1000
MAX_PAGES = 20
"""Pages read of a model list (20,000 models); a limit for gateways that page without end."""
GENERATE_METHOD = "generateContent"
"""Method that marks a model for turns; models that do not list it are for embeddings and the like."""


class GeminiModel:
    """Turns over POST {base_url}/models/{model}:streamGenerateContent?alt=sse.

    Exhaust `stream` after its Reply to keep the connection for the next turn; leaving it earlier closes it. At the
    vendor's own address a key is needed: calls without one raise Permanent(refused). Elsewhere none is. The key is sent
    in a header, never in the URL, which proxies log.
    """

    def __init__(
        self,
        *,
        provider: str = "gemini",
        api_key: str = "",
        base_url: str = "",
        header_timeout_s: float = HEADER_TIMEOUT_S,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
    ) -> None:
        self.provider = provider
        self.capabilities = CAPABILITIES
        self._api_key = api_key
        self._client = ProviderClient(
            provider=provider,
            base_url=base_url or BASE_URL,
            headers=key_headers(api_key),
            secret=api_key,
            header_timeout_s=header_timeout_s,
            idle_timeout_s=idle_timeout_s,
        )
        self._needs_key = self._client.host == urlsplit(BASE_URL).hostname

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        check_key(self.provider, request.api_key or self._api_key, is_required=self._needs_key)
        wire = self._client.with_key(request.api_key, key_headers(request.api_key))
        sees = self.capabilities.supports_vision and gemini_request.has_vision(request.model)
        check_vision(self.provider, request, has_vision=sees)
        request = restrict_to_capabilities(request, self.capabilities, effort_is_thinking=True)
        if not gemini_request.takes_output_schema(request):
            request = with_output_tool(request)
        body = encode_body(self.provider, gemini_request.body(request))
        turn = GeminiTurn(self.provider, request, lambda error: wire.to_error(error, body))
        name = quote(gemini_request.bare_name(request.model), safe="")
        events = wire.stream_events(
            f"/models/{name}:streamGenerateContent?alt=sse", body, idempotency_key=request.effective_idempotency_key
        )
        async with aclosing(events):
            async for event in events:
                for delta in turn.add_event(event):
                    yield delta
                if turn.is_finished:
                    yield turn.build_reply()
                    await wire.drain(events)
                    return
        if not turn.is_complete:
            raise Transient(f"{self.provider}: the stream ended without a finish reason", kind="broken_off")
        yield turn.build_reply()

    async def list_models(self) -> list[str]:
        check_key(self.provider, self._api_key, is_required=self._needs_key)
        names: list[str] = []
        token = ""
        for _ in range(MAX_PAGES):
            page = untrusted_json.fields(await self._client.get_json(f"/models?pageSize={MODELS_PER_PAGE}{token}"))
            for entry in map(untrusted_json.fields, untrusted_json.items(page.get("models"))):
                methods = entry.get("supportedGenerationMethods", [GENERATE_METHOD])
                if GENERATE_METHOD in untrusted_json.items(methods):
                    names.append(gemini_request.bare_name(untrusted_json.text(entry.get("name"))))
            following = untrusted_json.text(page.get("nextPageToken"))
            if not following:
                break
            token = f"&pageToken={quote(following, safe='')}"
        return [name for name in names if name]

    async def probe(self) -> None:
        check_key(self.provider, self._api_key, is_required=self._needs_key)
        await self._client.probe("/models?pageSize=1")

    async def close(self) -> None:
        await self._client.close()


def key_headers(key: str) -> dict[str, str]:
    """Return the header in which this API expects its key."""
    return {"x-goog-api-key": key} if key else {}
