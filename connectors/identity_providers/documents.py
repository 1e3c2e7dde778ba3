"""JSON documents that a provider publishes, read with bounds: time, size, no redirects, no proxy of the environment.

Before: signing_keys.py. After: httpx.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx
import orjson

from loomlog.connectors.configuration.issuer_check import is_confidential_url
from loomlog.connectors.errors import Permanent, Transient

DOCUMENT_BYTES_MAX = 512 * 1024
"""Bytes of a document; the keys of the largest providers are some 20 KB."""
FETCH_WAIT_S = 5.0
"""Seconds for a document: the request of a person or service waits for it."""
DISCOVERY_PATH = "/.well-known/openid-configuration"
Document = Mapping[str, Any]
Fetch = Callable[[str], Awaitable[Document]]
"""Reads the JSON object at an address. Raises Transient or Permanent."""


class DocumentClient:
    """HTTP client for documents; one for all providers of a process."""

    def __init__(self) -> None:
        self._opened: httpx.AsyncClient | None = None

    @property
    def _client(self) -> httpx.AsyncClient:
        """The client, opened at the first use: reading the certificates takes 20 ms."""
        if self._opened is None:
            self._opened = httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=FETCH_WAIT_S)
        return self._opened

    async def fetch(self, url: str) -> Document:
        """Return the JSON object at an address. Raises Transient or Permanent."""
        try:
            async with asyncio.timeout(FETCH_WAIT_S), self._client.stream("GET", url) as response:
                if response.status_code != httpx.codes.OK:
                    raise Transient(
                        f"{url} answered {response.status_code}", kind="unavailable", status=response.status_code
                    )
                body = bytearray()
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > DOCUMENT_BYTES_MAX:
                        raise Permanent(f"{url} has more than {DOCUMENT_BYTES_MAX} bytes", kind="invalid")
        except (TimeoutError, httpx.HTTPError) as error:
            raise Transient(f"{url} does not answer ({type(error).__name__})", kind="network") from error
        return parse_document(bytes(body), url)

    async def close(self) -> None:
        """Close its connections."""
        if self._opened is not None:
            await self._opened.aclose()


async def discover(fetch: Fetch, issuer: str) -> Document:
    """Return the configuration that a provider publishes (OpenID Connect Discovery 1.0). Raises Transient or Permanent,
    also for one that claims to be another provider.
    """
    url = issuer.rstrip("/") + DISCOVERY_PATH
    document = await fetch(url)
    check_discovery(document, issuer, url)
    return document


def check_discovery(document: Document, issuer: str, url: str) -> None:
    """Raise Permanent for the configuration of another provider."""
    if document.get("issuer") != issuer:
        raise Permanent(f"{url} is the configuration of another issuer than {issuer}", kind="invalid")


def endpoint_of(document: Document, name: str) -> str:
    """Return an address of a provider's configuration. Raises Permanent for one that is missing or insecure."""
    url = document.get(name)
    if not isinstance(url, str) or not url:
        raise Permanent(f"the provider has no {name}", kind="invalid")
    try:
        is_usable = is_confidential_url(url)
    except ValueError:
        is_usable = False
    if not is_usable:
        raise Permanent(f"the provider's {name} is not an address with https", kind="invalid")
    return url


def parse_document(body: bytes, url: str) -> Document:
    """Return the JSON object of a body. Raises Permanent."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Permanent(f"{url} is not valid JSON", kind="invalid") from error
    if not isinstance(document, dict):
        raise Permanent(f"{url} is not a JSON object", kind="invalid")
    return document
