"""Requests of OAuth over the checked network: no redirects, bounded answers, no address that may not be dialled.

Before: services/families/mcp/grants.py. After: oauth.py, connectors/tools/checked_network.py.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import httpcore
import orjson

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.mcp.http_transport import HttpNetwork
from loomlog.connectors.mcp.oauth import (
    AuthorizationServer,
    Challenge,
    OAuthClient,
    ResourceMetadata,
    TokenGrant,
    TokenRequest,
    client_document,
    is_safe_url,
    read_registration,
    read_resource_metadata,
    read_server_metadata,
    read_tokens,
    renewal_request,
    resource_metadata_urls,
    server_metadata_urls,
)
from loomlog.connectors.tools.checked_network import RequestNotSent
from loomlog.connectors.tools.results import ToolCallRefused
from loomlog.connectors.tools.web_client import USER_AGENT, parse_web_url

ANSWER_BYTES_MAX = 256 * 1024
"""Bytes of a document or an answer."""
WAIT_S = 10.0
"""Seconds for one request."""
ISSUERS_MAX = 3
"""Authorization servers of a resource that are tried."""


class GrantRefused(Permanent):
    """An authorization server refused to give tokens. `code` is that of RFC 6749 5.2."""

    def __init__(self, code: str, description: str) -> None:
        text = "".join(c if c.isprintable() else " " for c in f"{code[:100]}: {description[:300] or 'no reason'}")
        super().__init__(f"the authorization server answered {text}", kind="refused")
        self.code = code


class OAuthRequests:
    """Sends the requests. `check_host` raises Permanent for a host that must not be asked."""

    def __init__(self, network: HttpNetwork, check_host: Callable[[str], None] = lambda host: None) -> None:
        self._network = network
        self._check_host = check_host

    async def discover(self, server_url: str, challenge: Challenge) -> tuple[ResourceMetadata, AuthorizationServer]:
        """Return who gives tokens for a server of MCP. Raises Transient and Permanent."""
        resource = await self._first(
            resource_metadata_urls(server_url, challenge), lambda document: read_resource_metadata(document, server_url)
        )
        problem: Permanent | None = None
        for issuer in resource.issuers[:ISSUERS_MAX]:
            try:
                return resource, await self._first(
                    server_metadata_urls(issuer),
                    lambda document, issuer=issuer: read_server_metadata(document, issuer),  # type: ignore[misc]
                )
            except Permanent as error:
                problem = problem or error
        assert problem is not None
        raise problem

    async def register(self, server: AuthorizationServer, redirect_uri: str) -> OAuthClient:
        """Return a client that the authorization server now knows (RFC 7591). Raises Transient and Permanent."""
        body = orjson.dumps(client_document("", redirect_uri))
        request = TokenRequest(
            url=server.registration_endpoint, headers={"Content-Type": "application/json"}, body=body
        )
        return read_registration(await self._post(request), server)

    async def request_tokens(
        self,
        request: TokenRequest,
        *,
        resource: str,
        issuer: str,
        client: OAuthClient,
        endpoint: str,
        now_s: float,
    ) -> TokenGrant:
        """Return the tokens that a request gives. Raises GrantRefused, Transient and Permanent."""
        answer = await self._post(request)
        return read_tokens(answer, resource=resource, issuer=issuer, endpoint=endpoint, client=client, now_s=now_s)

    async def renew(self, grant: TokenGrant, *, now_s: float) -> TokenGrant:
        """Return new tokens in place of old ones. Raises GrantRefused, Transient and Permanent."""
        return read_tokens(
            await self._post(renewal_request(grant)),
            resource=grant.resource,
            issuer=grant.issuer,
            endpoint=grant.token_endpoint,
            client=grant.client,
            now_s=now_s,
            before=grant.refresh_token,
        )

    async def _first(self, urls: list[str], read: Callable[[Mapping[str, Any]], Any]) -> Any:
        """Return what the first address has that answers with a document. Raises what the first one raised."""
        problem: Permanent | None = None
        for url in urls:
            try:
                status, document = await self._exchange("GET", url, {}, b"")
                if status != 200:
                    raise Permanent(f"{url[:300]} answered {status}", kind="refused", status=status)
            except Permanent as error:
                problem = problem or error
                continue
            return read(document)
        assert problem is not None
        raise problem

    async def _post(self, request: TokenRequest) -> Mapping[str, Any]:
        status, document = await self._exchange("POST", request.url, request.headers, request.body)
        if 200 <= status < 300:
            return document
        if status == 429 or status >= 500:
            raise Transient(f"the authorization server answered {status}", kind="unavailable", status=status)
        raise GrantRefused(str(document.get("error") or status), str(document.get("error_description") or ""))

    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, Any]]:
        if not is_safe_url(url):
            raise Permanent(f"{url[:200]!r} is not an address with https", kind="refused")
        try:
            parsed = parse_web_url(url)
            self._check_host(parsed.raw_host.decode("ascii"))
            target = httpcore.URL(
                scheme=parsed.raw_scheme, host=parsed.raw_host, port=parsed.port, target=parsed.raw_path
            )
            sent = {
                "Host": parsed.netloc.decode("ascii"),
                "User-Agent": USER_AGENT,
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "Content-Length": str(len(body)),
                **headers,
            }
            raw = [(name.encode("ascii"), value.encode("utf-8")) for name, value in sent.items()]
            async with asyncio.timeout(WAIT_S), self._network.open_pool(0) as pool:
                async with pool.stream(method, target, headers=raw, content=body or None) as response:
                    return response.status, _parse(await _read(response), url, response.status)
        except RequestNotSent as reason:
            raise Permanent(str(reason), kind="refused") from reason
        except ToolCallRefused as reason:
            raise Permanent(str(reason), kind="refused") from reason
        except (TimeoutError, httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError) as e:
            raise Transient(f"{url[:300]} does not answer ({type(e).__name__})", kind="network") from e


async def _read(response: httpcore.Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_stream():
        body += chunk
        if len(body) > ANSWER_BYTES_MAX:
            raise Permanent(f"the answer has more than {ANSWER_BYTES_MAX} bytes", kind="invalid")
    return bytes(body)


def _parse(body: bytes, url: str, status: int) -> Mapping[str, Any]:
    with suppress(orjson.JSONDecodeError):
        document = orjson.loads(body)
        if isinstance(document, dict):
            return document
    if 200 <= status < 300:
        raise Permanent(f"{url[:300]} is not a JSON object", kind="invalid")
    return {}
