import asyncio

import pytest

from loomlog.redpanda.cluster import ClusterProblem, ask
from loomlog.services.cli.stack.ports import pick_port


async def test_a_port_without_a_listener_is_named_with_its_address() -> None:
    port = pick_port()
    with pytest.raises(ClusterProblem, match=f"no broker listens .*127.0.0.1:{port}"):
        await ask(f"127.0.0.1:{port}", timeout_s=2)


@pytest.mark.parametrize("address", ["localhost", "host:port", ":9092", ""])
async def test_an_address_without_host_or_port_is_refused(address: str) -> None:
    with pytest.raises(ClusterProblem, match="is not HOST:PORT"):
        await ask(address, timeout_s=1)


async def test_another_server_on_the_port_is_no_broker() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ClusterProblem, match=f"connecting to 127.0.0.1:{port}"):
            await ask(f"127.0.0.1:{port}", timeout_s=2)


async def test_a_port_that_never_answers_ends_in_time() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with asyncio.timeout(30):
            with pytest.raises(ClusterProblem):
                await ask(f"127.0.0.1:{port}", timeout_s=0.2)


@pytest.mark.integration
async def test_a_broker_returns_its_cluster_id_and_address(kafka: str) -> None:
    answer = await ask(kafka, timeout_s=30)
    assert answer.brokers == (kafka,)
    assert answer.cluster_id
