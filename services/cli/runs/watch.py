"""`loomlog runs watch`: a line for each run that starts, ends, or begins or ceases to wait, until Ctrl-C.

Before: services/cli/main.py. After: GET /v1/runs/stream.
"""

from collections.abc import Mapping
from contextlib import aclosing
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.services.cli.commands import run
from loomlog.services.cli.http.events import follow_events
from loomlog.services.cli.http.requests import open_api
from loomlog.services.cli.runs.history import runs_app
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.formatting import money, number, one_line, pluralize
from loomlog.services.cli.terminal.output import DIM, NAME, WARNING, console, error_console, print_json_line
from loomlog.services.cli.terminal.run_text import STATUS_STYLE, display_status

PATH = "/v1/runs/stream"
OPENED = "stream_open"

__all__ = ["runs_app"]


@runs_app.command("watch")
def watch(
    status: Annotated[
        str, typer.Option(help="Only changes to these: running, completed, failed, cancelled; several with commas.")
    ] = "all",
    agent: Annotated[str, typer.Option(help="Only runs of this agent.")] = "",
    user: Annotated[str, typer.Option(help="Only runs of this user.")] = "",
    tenant: Annotated[str, typer.Option(help="Only runs of this tenant (administrators).")] = "",
    as_json: Json = False,
) -> None:
    """Print a line for each run that starts, ends, or begins or ceases to wait, until Ctrl-C."""
    run(_watch({"status": status, "agent": agent, "user_id": user, "tenant": tenant}, as_json=as_json))


async def _watch(params: Mapping[str, str], *, as_json: bool) -> None:
    out = console()
    was_connected = False
    async with open_api() as api, aclosing(follow_events(api, PATH, params)) as frames:
        async for name, frame in frames:
            if name == OPENED:
                if was_connected:
                    error_console().print(Text("Connected again; changes between are not shown.", style=WARNING))
                was_connected = True
            elif as_json:
                print_json_line(frame)
            else:
                out.print(change_line(frame))


def change_line(frame: Mapping[str, Any]) -> Text:
    """Format a change: when, which run, what it is now, and at its end what it used."""
    status = display_status(frame)
    why = frame.get("error") or frame.get("stop_reason") or frame.get("pause_reason") or ""
    spent = ""
    if usage := frame.get("usage"):
        tokens = number(usage["input_tokens"] + usage["output_tokens"])
        cost = money(frame["cost_micros"], frame["currency"] or "")
        spent = f"  {pluralize(frame['iterations'], 'turn')}, {tokens} tokens, {cost}"
    return Text.assemble(
        (frame["ts"][11:23], DIM),
        "  ",
        (frame["run_id"], NAME),
        f"  {one_line(frame['agent'], 32)}  {one_line(frame['user_id'], 32)}  ",
        (status, STATUS_STYLE.get(status, WARNING if status != "running" else "")),
        (spent, DIM),
        (f"  {one_line(why, 60)}" if why else "", DIM),
    )
