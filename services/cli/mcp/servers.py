"""`loomlog mcp servers`: MCP servers whose tools agents use.

    loomlog mcp servers ls            which there are, of files and definitions, and what is known of them
    loomlog mcp servers tools crm     the tools that one has listed
    loomlog mcp servers probe crm     connect to one now, and record its tools

Before: command.py. After: services/cli/http/api.py.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.services.cli.commands import CommandGroup, run
from loomlog.services.cli.http.api import quote_segment
from loomlog.services.cli.operations import Tenant
from loomlog.services.cli.runs.runs import Json, open_api
from loomlog.services.cli.terminal.output import ERROR, NAME, WARNING, console, print_json, print_table

PATH = "/v1/_mcp_servers"
DESCRIPTION_CHARACTERS = 80
servers_app = typer.Typer(cls=CommandGroup, no_args_is_help=True, help="MCP servers whose tools agents use.")
ServerName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the server.")]


@servers_app.command("ls")
def list_servers(tenant: Tenant = "", as_json: Json = False) -> None:
    """List the servers that agents of the tenant may use."""
    answer = run(_request("GET", PATH, tenant))
    if as_json:
        print_json(answer)
        return
    rows = [
        (
            Text(server["name"], style=NAME),
            server["source"],
            server["transport"],
            str(server["tool_count"]),
            server["listed_at"] or "never",
            Text(server["error"], style=ERROR),
        )
        for server in answer["servers"]
    ]
    print_table(console(), ("server", "source", "transport", "tools", "listed", "error"), rows)


@servers_app.command("tools")
def list_tools(name: ServerName, tenant: Tenant = "", as_json: Json = False) -> None:
    """List the tools of a server, as it listed them last."""
    _show(run(_request("GET", f"{PATH}/{quote_segment(name)}/tools", tenant)), as_json=as_json)


@servers_app.command("probe")
def probe(name: ServerName, tenant: Tenant = "", as_json: Json = False) -> None:
    """Connect to a server now, and record the tools it lists."""
    _show(run(_request("POST", f"{PATH}/{quote_segment(name)}/probe", tenant)), as_json=as_json)


def _show(answer: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    rows = [
        (Text(tool["name"], style=NAME), tool["effect"], tool["description"][:DESCRIPTION_CHARACTERS])
        for tool in answer["tools"]
    ]
    print_table(console(), ("tool", "effect", "what it does"), rows)
    for problem in answer["problems"]:
        console().print(f"left out: {problem}", style=WARNING, markup=False, soft_wrap=True)


async def _request(method: str, path: str, tenant: str) -> Any:
    async with open_api() as api:
        params = {"tenant": tenant} if tenant else {}
        return (await api.request(method, path, params=params)).value
