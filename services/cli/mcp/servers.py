"""`loomlog mcp servers`: MCP servers whose tools agents use.

    loomlog mcp servers ls            which there are, of files and definitions, and what is known of them
    loomlog mcp servers tools crm     the tools that one has listed
    loomlog mcp servers login crm     grant access to one that asks for it, in a browser
    loomlog mcp servers probe crm     connect to one now, and record its tools

Before: command.py. After: services/cli/http/api.py.
"""

import webbrowser
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.services.cli.commands import CommandGroup
from loomlog.services.cli.http.api import quote_segment
from loomlog.services.cli.http.requests import get, send
from loomlog.services.cli.operations import Tenant
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.output import ERROR, NAME, WARNING, console, print_json, print_table

PATH = "/v1/_mcp_servers"
DESCRIPTION_CHARACTERS = 80
AUTHORIZATIONS = {"granted": "granted", "needs_authorization": "needs login"}
servers_app = typer.Typer(cls=CommandGroup, no_args_is_help=True, help="MCP servers whose tools agents use.")
ServerName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the server.")]


@servers_app.command("ls")
def list_servers(tenant: Tenant = "", as_json: Json = False) -> None:
    """List the servers that agents of the tenant may use."""
    answer = get(PATH, {"tenant": tenant})
    if as_json:
        print_json(answer)
        return
    rows = [
        (
            Text(server["name"], style=NAME),
            server["source"],
            server["transport"],
            str(server["tool_count"]),
            Text(AUTHORIZATIONS.get(server["authorization"], ""), style=WARNING),
            server["listed_at"] or "never",
            Text(server["error"], style=ERROR),
        )
        for server in answer["servers"]
    ]
    print_table(console(), ("server", "source", "transport", "tools", "access", "listed", "error"), rows)


@servers_app.command("tools")
def list_tools(name: ServerName, tenant: Tenant = "", as_json: Json = False) -> None:
    """List the tools of a server, as it listed them last."""
    _show(get(f"{PATH}/{quote_segment(name)}/tools", {"tenant": tenant}), as_json=as_json)


@servers_app.command("probe")
def probe(name: ServerName, tenant: Tenant = "", as_json: Json = False) -> None:
    """Connect to a server now, and record the tools it lists."""
    _show(send("POST", f"{PATH}/{quote_segment(name)}/probe", params={"tenant": tenant}).value, as_json=as_json)


@servers_app.command("login")
def login(
    name: ServerName,
    user: Annotated[
        str, typer.Option("--user", metavar="SUBJECT", help="For the runs of one user; - is yourself.")
    ] = "",
    scopes: Annotated[str, typer.Option("--scopes", help="Scopes to ask for, with spaces between.")] = "",
    should_open: Annotated[bool, typer.Option("--open/--no-open", help="Open the address in a browser.")] = True,
    tenant: Tenant = "",
    as_json: Json = False,
) -> None:
    """Grant access to a server that asks for it: prints an address, and opens it."""
    body: dict[str, Any] = {"scope": "user" if user else "tenant", "scopes": scopes.split()}
    if user and user != "-":
        body["scope_id"] = user
    answer = send("POST", f"{PATH}/{quote_segment(name)}/login", body, params={"tenant": tenant}).value
    if as_json:
        print_json(answer)
        return
    console().print(f"Grant access here, until {answer['expires_at']}:", markup=False)
    console().print(answer["url"], style=NAME, markup=False, soft_wrap=True)
    if should_open:
        webbrowser.open(answer["url"])
    console().print(f"Afterwards: loomlog mcp servers tools {name}", markup=False)


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
