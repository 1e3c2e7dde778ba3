"""Chat completions of OpenAI, DeepSeek and every server and gateway with this wire.

Before: the runtime requests a turn. After: openai_request (body), wire (transport), openai_reply (answer).
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import urlsplit

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.models import openai_request, untrusted_json
from loomlog.connectors.models.openai_reply import OpenAiTurn
from loomlog.connectors.models.openai_request import OPENAI, Dialect
from loomlog.connectors.models.output_tool import with_output_tool
from loomlog.connectors.models.provider_client import HEADER_TIMEOUT_S, IDLE_TIMEOUT_S, ProviderClient, bearer_headers
from loomlog.connectors.models.wire_format import check_key, check_vision, encode_body, restrict_to_capabilities
from loomlog.connectors.protocols import Capabilities, ModelItem, ModelRequest, Reply

NO_MODEL_LIST_STATUSES = (404, 405)
"""Statuses of GET /models at gateways that only forward turns."""
RESET_HEADERS = ("x-ratelimit-reset-requests", "x-ratelimit-reset-tokens")


class OpenAiModel:
    """Turns over POST {base_url}/chat/completions.

    Exhaust `stream` after its Reply to keep the connection for the next turn; leaving it earlier closes it. At the
    vendor's own address a key is needed: calls without one raise Permanent(refused). Elsewhere none is. From a server
    that cannot stream (capability `streaming` false) the whole answer is requested, which must arrive within the header
    timeout.
    """

    def __init__(
        self,
        *,
        provider: str = "openai",
        api_key: str = "",
        base_url: str = "",
        dialect: Dialect = OPENAI,
        header_timeout_s: float = HEADER_TIMEOUT_S,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
    ) -> None:
        self.provider = provider
        self.capabilities = capabilities(dialect)
        self._dialect = dialect
        self._api_key = api_key
        self._client = ProviderClient(
            provider=provider,
            base_url=base_url or dialect.base_url,
            headers=bearer_headers(api_key),
            secret=api_key,
            header_timeout_s=header_timeout_s,
            idle_timeout_s=idle_timeout_s,
            reset_headers=RESET_HEADERS,
        )
        self._needs_key = self._client.host == urlsplit(dialect.base_url).hostname

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        check_key(self.provider, request.api_key or self._api_key, is_required=self._needs_key)
        wire = self._client.with_key(request.api_key, bearer_headers(request.api_key))
        sees = self.capabilities.supports_vision and openai_request.has_vision(request.model, self._dialect)
        check_vision(self.provider, request, has_vision=sees)
        request = restrict_to_capabilities(request, self.capabilities)
        if not openai_request.takes_output_schema(request, self._dialect):
            request = with_output_tool(request)
        streaming = self.capabilities.streaming
        fields = openai_request.body(
            request,
            self._dialect,
            provider=self.provider,
            parallel=self.capabilities.parallel_tool_calls,
            streaming=streaming,
        )
        body = encode_body(self.provider, fields)
        turn = OpenAiTurn(self.provider, request, lambda error: wire.to_error(error, body))
        if not streaming:
            whole = await wire.post_json("/chat/completions", body, idempotency_key=request.effective_idempotency_key)
            for delta in turn.add_chunk(untrusted_json.fields(whole)):
                yield delta
            yield self._reply(turn)
            return
        events = wire.stream_events("/chat/completions", body, idempotency_key=request.effective_idempotency_key)
        async with aclosing(events):
            async for event in events:
                for delta in turn.add_event(event):
                    yield delta
                if turn.is_finished:
                    yield turn.build_reply()
                    await wire.drain(events)
                    return
        yield self._reply(turn)

    def _reply(self, turn: OpenAiTurn) -> Reply:
        if not turn.is_complete:
            raise Transient(f"{self.provider}: the answer ended without a finish reason", kind="broken_off")
        return turn.build_reply()

    async def list_models(self) -> list[str]:
        """Return the models; the API has no pages. A gateway without a list has none."""
        check_key(self.provider, self._api_key, is_required=self._needs_key)
        try:
            listed = untrusted_json.fields(await self._client.get_json("/models"))
        except Permanent as error:
            if self._needs_key or error.status not in NO_MODEL_LIST_STATUSES:
                raise
            return []
        names = [
            untrusted_json.text(untrusted_json.fields(entry).get("id"))
            for entry in untrusted_json.items(listed.get("data"))
        ]
        return [name for name in names if name]

    async def probe(self) -> None:
        """Check that the provider answers; a gateway without a list of models has answered too."""
        check_key(self.provider, self._api_key, is_required=self._needs_key)
        try:
            await self._client.probe("/models")
        except Permanent as error:
            if self._needs_key or error.status not in NO_MODEL_LIST_STATUSES:
                raise

    async def close(self) -> None:
        await self._client.close()


def capabilities(dialect: Dialect) -> Capabilities:
    return Capabilities(
        max_context_tokens=dialect.max_context_tokens,
        supports_thinking=dialect.supports_thinking,
        supports_vision=dialect.supports_vision,
        supports_effort=bool(dialect.effort_models),
    )
