"""As many connections as requests; those that stay open are used again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from loomlog.connectors.models import connections
from loomlog.connectors.models.connections import PooledTransport

MOMENTS = 60
"""More turns of the loop than a request takes here."""
HEADERS = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class Server:
    """Answers when it may; counts connections."""

    def __init__(self) -> None:
        self.url = ""
        self.connections = 0
        self.waiting = 0
        self.may = asyncio.Event()
        self.broken = False
        self.left = asyncio.Event()
        """A client has closed a connection."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.waiting += 1
                await self.may.wait()
                self.waiting -= 1
                if self.broken:
                    return
                writer.write(HEADERS + b"ok")
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left.set()
        finally:
            writer.close()

    async def until_waiting(self, count: int) -> None:
        async with asyncio.timeout(30):
            while self.waiting < count:
                await asyncio.sleep(0)


@asynccontextmanager
async def talking() -> AsyncIterator[tuple[httpx.AsyncClient, Server]]:
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    verify = httpx.create_ssl_context(trust_env=False)
    client = httpx.AsyncClient(
        transport=PooledTransport(verify=verify, keepalive_s=30.0), trust_env=False, timeout=30.0
    )
    try:
        async with client:
            yield client, server
    finally:
        server.may.set()
        listening.close()


async def together(client: httpx.AsyncClient, server: Server, count: int) -> list[httpx.Response]:
    """So many requests at once."""
    server.may.clear()
    asking = [asyncio.create_task(client.get(server.url)) for _ in range(count)]
    await server.until_waiting(count)
    server.may.set()
    return await asyncio.gather(*asking)


async def test_requests_at_once_have_a_connection_each_and_the_next_ones_the_same() -> None:
    async with talking() as (client, server):
        answers = await together(client, server, 19)
        assert [answer.content for answer in answers] == [b"ok"] * 19
        assert server.connections == 19
        await together(client, server, 19)
        assert server.connections == 19


async def test_only_the_first_connections_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "KEEPALIVE_CONNECTIONS", 8)
    async with talking() as (client, server):
        await together(client, server, 12)
        await together(client, server, 12)
        assert server.connections == 16, "eight were kept, four made anew"


async def test_one_after_the_other_stays_on_one_connection() -> None:
    async with talking() as (client, server):
        await together(client, server, 3)
        for _ in range(5):
            await together(client, server, 1)
        assert server.connections == 3


async def test_a_request_that_fails_or_is_given_up_leaves_its_place() -> None:
    async with talking() as (client, server):
        given_up = asyncio.create_task(client.get(server.url))
        await server.until_waiting(1)
        given_up.cancel()
        await asyncio.wait([given_up])
        server.broken = True
        with pytest.raises(httpx.RemoteProtocolError):
            await together(client, server, 1)
        server.broken = False
        server.waiting = 0
        server.may.set()
        async with client.stream("GET", server.url) as left:
            assert left.status_code == 200
            assert in_use(client) == 1
        assert in_use(client) == 0, "closed before its body was read"
        await together(client, server, 1)
        assert in_use(client) == 0


def in_use(client: httpx.AsyncClient) -> int:
    transport = client._transport
    assert isinstance(transport, PooledTransport)
    return transport.in_use


async def test_who_is_cancelled_while_an_answer_is_closed_costs_nobody_a_connection() -> None:
    """httpcore shields its leave-taking from anyio's cancelling, which stops no `VerificationTask.cancel`."""
    async with talking() as (client, server):
        server.may.set()
        for steps in range(MOMENTS):
            cancelled = asyncio.create_task(client.get(server.url))
            for _ in range(steps):
                await asyncio.sleep(0)
            cancelled.cancel()
            await asyncio.wait([cancelled])
            async with asyncio.timeout(30):
                assert (await client.get(server.url)).content == b"ok", f"after {steps} turns of the loop"
            assert in_use(client) == 0


async def test_what_was_given_up_is_closed() -> None:
    async with talking() as (client, server):
        given_up = asyncio.create_task(client.get(server.url))
        await server.until_waiting(1)
        given_up.cancel()
        await asyncio.wait([given_up])
        async with asyncio.timeout(30):
            server.may.set()
            await server.left.wait()
