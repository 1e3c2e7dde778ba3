"""A transport of httpx that has as many connections as requests, each in a pool of its own. Only the first ones stay
open after their answer.

Before: wire.py. After: leases.py, httpx.
"""

import ssl
from collections.abc import AsyncIterator, Callable
from functools import partial

import httpx

from loomlog.connectors.http.connection_pool import Leases

KEPT = 256
"""Connections that stay open after their answer: more than the turns that follow a tool within a moment, when 1,000
runs of a process are at work."""


class Connections(httpx.AsyncBaseTransport):
    """Without a bound of its own. `keepalive_s`: how long a connection that is not in use stays open."""

    def __init__(self, *, verify: ssl.SSLContext, keepalive_s: float) -> None:
        self._verify = verify
        self._keepalive_s = keepalive_s
        self._leases = Leases(self._pool)

    @property
    def in_use(self) -> int:
        """Requests under way, until their answers are closed."""
        return self._leases.in_use

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        number, pool = self._leases.take()
        try:
            response = await pool.handle_async_request(request)
        except BaseException:
            self._leases.give_back(number, is_sound=False)
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Held(response.stream, partial(self._leases.give_back, number))
        return response

    async def aclose(self) -> None:
        await self._leases.aclose()

    def _pool(self, number: int) -> httpx.AsyncHTTPTransport:
        limits = httpx.Limits(
            max_connections=1,
            max_keepalive_connections=1 if number < KEPT else 0,
            keepalive_expiry=self._keepalive_s,
        )
        return httpx.AsyncHTTPTransport(verify=self._verify, trust_env=False, limits=limits)


class _Held(httpx.AsyncByteStream):
    """A body whose pool is free again once it is closed. `closed(is_sound=...)` is called then, once."""

    def __init__(self, stream: httpx.AsyncByteStream, closed: Callable[..., None]) -> None:
        self._stream = stream
        self._closed: Callable[..., None] | None = closed
        self._is_whole = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            yield piece
        self._is_whole = True

    async def aclose(self) -> None:
        is_sound = False
        try:
            await self._stream.aclose()
            is_sound = self._is_whole
        finally:
            closed, self._closed = self._closed, None
            if closed is not None:
                closed(is_sound=is_sound)
