"""`loomlog mcp`: this installation as an MCP server for editors and assistants.

    loomlog mcp                     on standard input and output, over the API of this installation
    loomlog mcp --upstream URL      over that of another one
    loomlog mcp install             what to add to Claude Code and other clients
    loomlog mcp servers ls          servers of others, whose tools agents use

Before: services/cli/main.py. After: thin_client.py.
"""

from typing import Annotated, Any

import orjson
import typer

from loomlog.services.cli.commands import CommandGroup, run
from loomlog.services.cli.errors import UsageError
from loomlog.services.cli.mcp.servers import servers_app
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.settings import current_settings
from loomlog.services.cli.terminal.output import console, print_json

mcp_app = typer.Typer(
    cls=CommandGroup,
    invoke_without_command=True,
    help="Serve MCP on standard input and output, over the API: for editors and assistants.",
)
mcp_app.add_typer(servers_app, name="servers")
TOKEN = "LOOMLOG_TOKEN"
TRANSPORTS = ("stdio", "http")


@mcp_app.callback()
def serve_mcp(
    context: typer.Context,
    upstream: Annotated[str, typer.Option("--upstream", help="Address of the API; absent: that of here.")] = "",
) -> None:
    """Serve MCP on standard input and output, over the API: for editors and assistants."""
    if context.invoked_subcommand is None:
        from loomlog.services.cli.mcp.thin_client import serve

        base_url, token = _target(upstream)
        run(serve(base_url, token))


@mcp_app.command("install")
def install(
    transport: Annotated[str, typer.Option("--transport", help="stdio or http.")] = "stdio",
    upstream: Annotated[str, typer.Option("--upstream", help="Address of the API; absent: that of here.")] = "",
    as_json: Json = False,
) -> None:
    """Print what to add to Claude Code, and to clients that read a file of MCP servers."""
    if transport not in TRANSPORTS:
        raise UsageError(f"--transport: expected one of {', '.join(TRANSPORTS)}, not {transport[:40]!r}.")
    base_url, _ = _target(upstream)
    entry = _entry(transport, base_url)
    if as_json:
        print_json({"mcpServers": {"loomlog": entry}})
        return
    out = console()
    out.print(f"Claude Code (the token is read from {TOKEN} when it starts):")
    out.print(f"  claude mcp add-json loomlog '{orjson.dumps(entry).decode()}'", soft_wrap=True)
    out.print("Other clients, in their file of MCP servers:")
    out.print_json(orjson.dumps({"mcpServers": {"loomlog": entry}}).decode())


def _target(upstream: str) -> tuple[str, str]:
    """Return address and token of the API."""
    settings = current_settings()
    return (upstream or settings.api_url).rstrip("/"), settings.token


def _entry(transport: str, base_url: str) -> dict[str, Any]:
    if transport == "http":
        return {
            "type": "http",
            "url": f"{base_url}/v1/_mcp",
            "headers": {"Authorization": f"Bearer ${{{TOKEN}}}"},
        }
    arguments = ["mcp", "--upstream", base_url]
    return {"type": "stdio", "command": "loomlog", "args": arguments, "env": {TOKEN: f"${{{TOKEN}}}"}}
