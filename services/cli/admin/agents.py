"""`loomlog agents`: the agents that may be run, their definitions, and a check of the configuration.

    ls              the agents of the running installation
    show NAME       one agent with its definition
    check           validate the configuration files here; no service has to run

Before: services/cli/main.py. After: services/api/process_handlers.py, connectors/configuration.
"""

import os
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.text import Text

from loomlog.services.cli.commands import CommandGroup
from loomlog.services.cli.errors import CliError
from loomlog.services.cli.http.api import quote_segment
from loomlog.services.cli.http.requests import get
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.output import ERROR, SUCCESS, WARNING, console, fact_line, print_json, print_table

agents_app = typer.Typer(cls=CommandGroup, no_args_is_help=True, help="Agents: list, show, check the configuration.")
AGENTS_PATH = "/v1/_runnable-agents"


@agents_app.command("ls")
def list_agents(as_json: Json = False) -> None:
    """List the agents that may be run."""
    page = get(AGENTS_PATH)
    if as_json:
        print_json(page)
        return
    rows = [
        (
            agent["name"],
            _model(agent),
            ", ".join(agent["tools"]) or "-",
            Text("-") if agent["available"] else Text(agent["unavailable_reason"], style=WARNING),
            agent["description"],
        )
        for agent in page["agents"]
    ]
    print_table(console(), ("NAME", "MODEL", "TOOLS", "PROBLEM", "DESCRIPTION"), rows)


@agents_app.command("show")
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the agent.")], as_json: Json = False
) -> None:
    """Show an agent with its definition."""
    agent = get(f"{AGENTS_PATH}/{quote_segment(name)}")
    if as_json:
        print_json(agent)
        return
    out = console()
    out.print(fact_line("name", agent["name"]))
    out.print(fact_line("model", _model(agent)))
    out.print(fact_line("tools", ", ".join(agent["tools"]) or "-"))
    out.print(fact_line("volumes", ", ".join(agent["volumes"]) or "-"))
    if not agent["available"]:
        out.print(Text(agent["unavailable_reason"], style=WARNING))
    out.print(yaml.safe_dump(agent["definition"], sort_keys=False, allow_unicode=True, width=100).rstrip())


@agents_app.command("check")
def check(as_json: Json = False) -> None:
    """Validate the configuration files of this folder as the services do when `loomlog up` starts them here; exit 1
    when one of them would not start.
    """
    # Imported here: the other commands need no configuration.
    from loomlog.connectors.configuration.findings import ConfigurationError
    from loomlog.services.families.process_start import load_for_start

    environ = {name: value for name, value in os.environ.items() if name != "LOOMLOG_TOKEN"}
    try:
        loaded = load_for_start(environ, working_directory=Path.cwd(), open_on_this_machine=True)
    except ConfigurationError as problem:
        findings = [str(finding) for finding in problem.findings]
        if as_json:
            print_json({"ok": False, "files": [], "agents": [], "findings": findings, "warnings": []})
            raise typer.Exit(1) from None
        for finding in findings:
            console().print(Text(finding, style=ERROR))
        raise CliError(f"{len(findings)} mistakes; no service would start.") from problem
    warnings = [str(warning) for warning in loaded.warnings]
    names = sorted(loaded.configuration.agents)
    if as_json:
        files = [str(file) for file in loaded.files]
        print_json({"ok": True, "files": files, "agents": names, "findings": [], "warnings": warnings})
        return
    out = console()
    for warning in warnings:
        out.print(Text(warning, style=WARNING))
    files_text = ", ".join(str(file) for file in loaded.files) or "no file"
    out.print(Text(f"ok  {files_text}: agents {', '.join(names) or 'none'}", style=SUCCESS))


def _model(agent: Any) -> str:
    return f"{agent['provider'] or '-'}/{agent['model'] or '-'}"
