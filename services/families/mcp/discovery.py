"""Asks the servers of the files for their tools: when the runtime starts, and again from time to time.

The owner of partition 0 does it, so exactly one live runtime does. A server that answers as before costs no event.

Before: services.py. After: servers.py.
"""

import asyncio
import logging
from collections.abc import Callable

from loomlog.connectors.errors import ConnectorError
from loomlog.services.families.definition.table import FILE, SHARED
from loomlog.services.families.mcp.server import Server
from loomlog.services.families.mcp.servers import McpServers

log = logging.getLogger("loomlog.runtime")

POLL_S = 1.0
"""Seconds between two looks whether this process is to ask."""
ASK_AGAIN_S = 600.0
"""Seconds after which a server is asked again: over HTTP it cannot say by itself that its tools changed."""
RETRY_S = 30.0
"""Seconds after which a server that did not answer is asked again."""


class McpDiscovery:
    """Keeps the lists of the servers of the files. `now_s` is a monotonic clock."""

    def __init__(self, servers: McpServers, *, now_s: Callable[[], float]) -> None:
        self._servers = servers
        self._now_s = now_s
        self._due_s: dict[str, float] = {}

    async def run(self, is_active: Callable[[], bool]) -> None:
        """Ask while this process is the one that does, until cancelled."""
        while True:
            if is_active():
                await self.ask_due()
            await asyncio.sleep(POLL_S)

    async def ask_due(self) -> None:
        """Ask the servers whose time has come."""
        due = [
            server
            for server in self._servers.servers(SHARED)
            if server.source == FILE and self._due_s.get(server.name, 0.0) <= self._now_s()
        ]
        await asyncio.gather(*map(self._ask, due))

    async def _ask(self, server: Server) -> None:
        delay_s = ASK_AGAIN_S
        try:
            await self._servers.discover(server, "start")
        except ConnectorError as error:
            delay_s = RETRY_S
            log.warning("the MCP server %s did not list its tools: %s", server.name, error)
        self._due_s[server.name] = self._now_s() + delay_s
