import asyncio

import httpcore
import pytest

from loomlog.connectors.tools.checked_network import MAX_ADDRESSES, CheckedNetwork, RequestNotSent, resolve_with_system
from tests.connectors.tools.web_server import PUBLIC, Names, running


def network(names: Names, *private: str) -> CheckedNetwork:
    return CheckedNetwork(private_hosts=frozenset(private), resolve=names.resolve, network=names)


async def refusal(names: Names, host: str, *private: str) -> str:
    with pytest.raises(RequestNotSent) as caught:
        await network(names, *private).connect_tcp(host, 1)
    return str(caught.value)


async def test_the_checked_address_is_the_one_that_is_dialled() -> None:
    async with running() as server:
        names = Names({"site.example": [[PUBLIC], ["127.0.0.1"]]})
        stream = await network(names).connect_tcp("site.example", server.port)
        await stream.aclose()
        assert names.dialled == [PUBLIC]


async def test_a_name_that_turns_private_is_not_dialled() -> None:
    names = Names({"rebind.example": [["127.0.0.1"]]})
    text = await refusal(names, "rebind.example")
    assert "has no public address" in text
    assert "127.0.0.1" not in text
    assert names.dialled == []


async def test_of_mixed_addresses_only_the_public_ones_are_tried() -> None:
    async with running() as server:
        names = Names({"mixed.example": [["10.0.0.1", "169.254.169.254", PUBLIC]]})
        stream = await network(names).connect_tcp("mixed.example", server.port)
        await stream.aclose()
        assert names.dialled == [PUBLIC]


async def test_a_private_host_may_be_private_but_never_link_local() -> None:
    async with running() as server:
        names = Names({"intra.example": [["127.0.0.1"], ["169.254.169.254"]]})
        opened = network(names, "intra.example")
        stream = await opened.connect_tcp("intra.example", server.port)
        await stream.aclose()
        assert names.dialled == ["127.0.0.1"]
        with pytest.raises(RequestNotSent):
            await opened.connect_tcp("intra.example", server.port)
        with pytest.raises(RequestNotSent):
            await network(Names({"sub.intra.example": [["127.0.0.1"]]}), "intra.example").connect_tcp(
                "sub.intra.example", server.port
            )


async def test_a_name_that_does_not_resolve_is_said() -> None:
    assert "could not be resolved" in await refusal(Names({"gone.example": [[]]}), "gone.example")


async def test_the_next_address_is_tried_when_one_refuses_and_not_for_ever() -> None:
    refused: list[str] = []

    class Closed(Names):
        async def connect_tcp(self, host: str, *_: object, **__: object) -> httpcore.AsyncNetworkStream:
            refused.append(host)
            raise httpcore.ConnectError("refused")

    names = Closed({"many.example": [[f"1.1.1.{n}" for n in range(20)]]})
    assert "Could not connect" in await refusal(names, "many.example")
    assert refused == [f"1.1.1.{n}" for n in range(MAX_ADDRESSES)]


async def test_local_sockets_are_closed() -> None:
    with pytest.raises(RequestNotSent):
        await network(Names()).connect_unix_socket("/run/some.sock")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "2130706433", "0x7f.1"])
async def test_the_systems_own_resolver_shows_loopback_behind_every_spelling(host: str) -> None:
    async with asyncio.timeout(30):
        assert await resolve_with_system(host, 80) == ["127.0.0.1"]
