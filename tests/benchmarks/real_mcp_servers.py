"""Two MCP servers of others, from the npm registry: `make try-mcp-servers`.

They are started with npx and used as agents use them: their tools are listed, and one of each is called. Fails when a
call does not return what it should.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from loomlog.connectors.configuration.mcp_block import McpServerBlock
from loomlog.services.families.mcp.tools import McpTools
from loomlog.services.runtime.tools.toolset import ProcessToolset
from tests.services.families.mcp.world import World, context

FILES, EVERYTHING = "@modelcontextprotocol/server-filesystem", "@modelcontextprotocol/server-everything"
PASSED = ("PATH", "HOME")


def server(package: str, *arguments: str) -> McpServerBlock:
    """Return a server that npx starts."""
    return McpServerBlock(transport="stdio", command="npx", args=("--yes", package, *arguments))


async def use_both(folder: Path) -> None:
    """List the tools of both and call one of each."""
    note = folder / "note.txt"
    note.write_text("ship it")
    environment = {name: os.environ[name] for name in PASSED if name in os.environ}
    world = World(environment, files=server(FILES, str(folder)), everything=server(EVERYTHING))
    try:
        for name in ("files", "everything"):
            listed = await world.servers.discover(world.server(name), "start")
            print(f"{name}: {', '.join(tool.name for tool in listed.tools)}")
            for problem in listed.problems:
                print(f"  left out: {problem}")
        await call(world, "mcp__files__read_text_file", {"path": str(note)}, "ship it")
        await call(world, "mcp__everything__echo", {"message": "hello"}, "hello")
    finally:
        await world.servers.close()


async def call(world: World, name: str, arguments: dict, expected: str) -> None:
    """Call a tool; fail unless its result has a text."""
    tool = ProcessToolset({}, tenant_tools=McpTools(world.servers)).for_principal("acme", "ann").find(name)
    assert tool is not None, f"{name} is not listed"
    result = await tool.call(arguments, context())
    print(f"{name}: {result.text[:200]}")
    assert not result.is_error, result.text
    assert expected in result.text, result.text


def main() -> int:
    """Use both servers."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(use_both(Path(folder).resolve()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
