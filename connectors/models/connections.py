"""A transport of httpx that has as many connections as requests, each in a pool of its own.

The pools of httpcore look at each of their connections, sockets included, whenever a request begins or ends: with 1,000
calls under way that took half of a runtime's CPU. A pool of one has nothing to look through. A request goes to the
first that is free, so the connections that were used last time are used again, and only the first ones stay open after
their answer.

Before: wire.py. After: httpx and httpcore.
"""

import heapq
import ssl
from collections.abc import AsyncIterator, Callable
from functools import partial

import httpx

KEPT = 256
"""Connections that stay open after their answer: more than the turns that follow a tool within a moment, when 1,000
runs of a process are at work."""


class Connections(httpx.AsyncBaseTransport):
    """Without a bound of its own. `keepalive_s`: how long a connection that is not in use stays open."""

    def __init__(self, *, verify: ssl.SSLContext, keepalive_s: float) -> None:
        self._verify = verify
        self._keepalive_s = keepalive_s
        self._pools: list[httpx.AsyncHTTPTransport] = []
        self._free: list[int] = []
        """A heap of the pools that carry no request."""

    @property
    def in_use(self) -> int:
        """Requests under way, until their answers are closed."""
        return len(self._pools) - len(self._free)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        number = heapq.heappop(self._free) if self._free else self._one_more()
        try:
            response = await self._pools[number].handle_async_request(request)
        except BaseException:
            self._give_back(number)
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Held(response.stream, partial(self._give_back, number))
        return response

    async def aclose(self) -> None:
        for pool in self._pools:
            await pool.aclose()

    def _one_more(self) -> int:
        limits = httpx.Limits(
            max_connections=1,
            max_keepalive_connections=1 if len(self._pools) < KEPT else 0,
            keepalive_expiry=self._keepalive_s,
        )
        self._pools.append(httpx.AsyncHTTPTransport(verify=self._verify, trust_env=False, limits=limits))
        return len(self._pools) - 1

    def _give_back(self, number: int) -> None:
        heapq.heappush(self._free, number)


class _Held(httpx.AsyncByteStream):
    """A body whose pool is free again once it is closed."""

    def __init__(self, stream: httpx.AsyncByteStream, closed: Callable[[], None]) -> None:
        self._stream = stream
        self._closed: Callable[[], None] | None = closed

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._stream.__aiter__()

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            closed, self._closed = self._closed, None
            if closed is not None:
                closed()
