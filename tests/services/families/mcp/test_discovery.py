"""Servers of the files are asked at the start, and again when their time has come."""

from loomlog.connectors.configuration.mcp_block import McpServerBlock
from loomlog.services.families.mcp.discovery import ASK_AGAIN_S, RETRY_S, McpDiscovery
from tests.connectors.mcp.peer_server import PeerServer, Raw
from tests.services.families.mcp.world import World


async def test_a_server_is_asked_at_the_start_and_again_later_and_sooner_when_it_failed():
    now = [0.0]
    async with PeerServer() as peer:
        world = World(crm=McpServerBlock(transport="http", url=peer.url))
        discovery = McpDiscovery(world.servers, now_s=lambda: now[0])

        async def asked_at(time_s: float) -> int:
            now[0] = time_s
            before = peer.methods().count("tools/list")
            await discovery.ask_due()
            return peer.methods().count("tools/list") - before

        assert await asked_at(0) == 1
        assert await asked_at(ASK_AGAIN_S - 1) == 0
        peer.answers["tools/list"] = lambda request: Raw(500)
        assert await asked_at(ASK_AGAIN_S) == 1
        assert await asked_at(ASK_AGAIN_S + RETRY_S - 1) == 0
        assert await asked_at(ASK_AGAIN_S + RETRY_S) == 1
        await world.servers.close()
    assert len(world.log.events) == 2, "the list, and that it failed, each once"
