"""httpx transport with as many connections as requests, each in its own pool; only the first ones are kept open after
their answer.

Before: provider_client.py. After: connectors/http/connection_pool.py, httpx.
"""

import ssl
from collections.abc import AsyncIterator, Callable
from functools import partial

import httpx

from loomlog.connectors.http.connection_pool import ConnectionPools

KEEPALIVE_CONNECTIONS = 256
"""Connections kept open after their answer: more than the turns that follow a tool within a moment, with 1,000 active
runs in a process.
"""


class PooledTransport(httpx.AsyncBaseTransport):
    """Transport without a connection limit. `keepalive_s`: seconds that an unused connection stays open."""

    def __init__(self, *, verify: ssl.SSLContext, keepalive_s: float) -> None:
        self._verify = verify
        self._keepalive_s = keepalive_s
        self._pools = ConnectionPools(self._create_pool)

    @property
    def in_use(self) -> int:
        """Number of active requests; a request ends when its answer is closed."""
        return self._pools.in_use

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        number, pool = self._pools.acquire()
        try:
            response = await pool.handle_async_request(request)
        except BaseException:
            self._pools.release(number, is_reusable=False)
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _PooledBody(response.stream, partial(self._pools.release, number))
        return response

    async def aclose(self) -> None:
        await self._pools.aclose()

    def _create_pool(self, number: int) -> httpx.AsyncHTTPTransport:
        limits = httpx.Limits(
            max_connections=1,
            max_keepalive_connections=1 if number < KEEPALIVE_CONNECTIONS else 0,
            keepalive_expiry=self._keepalive_s,
        )
        return httpx.AsyncHTTPTransport(verify=self._verify, trust_env=False, limits=limits)


class _PooledBody(httpx.AsyncByteStream):
    """A body that releases its pool when it is closed, by one call of `on_close(is_reusable=...)`."""

    def __init__(self, stream: httpx.AsyncByteStream, on_close: Callable[..., None]) -> None:
        self._stream = stream
        self._on_close: Callable[..., None] | None = on_close
        self._is_complete = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            yield piece
        self._is_complete = True

    async def aclose(self) -> None:
        is_sound = False
        try:
            await self._stream.aclose()
            is_sound = self._is_complete
        finally:
            closed, self._on_close = self._on_close, None
            if closed is not None:
                closed(is_reusable=is_sound)
