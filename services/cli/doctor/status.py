"""`loomlog status`: what runs here, where it answers, and how far it is. Exit 3 when nothing does.

    stack.json and the lock    the children and their supervisor
    the API's /readyz          can it work
    cursors and ends           are the read models behind
    insights                   what the runs of the last minutes were like

Each part is asked by itself: one that does not answer is a line that says so, and the others are shown all the same.

Before: main.py. After: stack/status.py, api.py, read_models.py.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console
from rich.text import Text

from loomlog.connectors.errors import ConnectorError
from loomlog.services.cli.commands import run
from loomlog.services.cli.failures import UNREACHABLE, Failure
from loomlog.services.cli.http.api import Api, NotNow
from loomlog.services.cli.log.projections import lag_of, problems_line, projector_line
from loomlog.services.cli.settings import CliSettings, cli_settings
from loomlog.services.cli.stack.liveness import standstill
from loomlog.services.cli.stack.record import ChildRecord
from loomlog.services.cli.terminal.formatting import counted, duration, number, size
from loomlog.services.cli.terminal.output import BAD, DIM, GOOD, NAME, ODD, console, print_json, print_table

WINDOW = "5m"
"""Of insights: long enough for a rate, short enough to be about now."""
STATE_STYLE = {
    "ready": GOOD,
    "starting": ODD,
    "waiting": ODD,
    "stopping": ODD,
    "stopped": DIM,
    "failed": BAD,
    "dead": BAD,
    "suspended": BAD,
    "silent": BAD,
}


def status(as_json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False) -> None:
    """Show what runs here: processes, addresses, lag, rates."""
    cli = cli_settings(os.environ, working_directory=Path.cwd())
    found = run(status_of(cli))
    if as_json:
        print_json(found)
    else:
        _print(console(), found)
    if not found["supervised"] and not found["api"]["ready"]:
        raise typer.Exit(UNREACHABLE)


async def status_of(cli: CliSettings) -> dict[str, Any]:
    """Everything as JSON; parts that do not answer have `error`."""
    stack, wiring = cli.stack, cli.wiring
    record = cli.record
    has_log = bool(cli.settings.kafka or record is not None)
    api, projection, insights, *children = await asyncio.gather(
        _api(cli),
        _or_error(lag_of(cli)) if has_log else _nothing(),
        _insights(cli) if cli.insights_url else _nothing(),
        *(_child(child, is_alive=child in stack.alive) for child in (record.children if record is not None else ())),
    )
    return {
        "home": str(cli.home.root),
        "supervised": stack.supervised,
        "supervisor_pid": stack.supervisor.pid if stack.supervised and stack.supervisor is not None else None,
        "half_dead": stack.half_dead,
        "damage": stack.damage or None,
        "complete": wiring is not None,
        "children": children,
        "api": api,
        "kafka": cli.settings.kafka or (record.kafka if record is not None else None),
        "volumes": {"source": wiring.source, "out": wiring.out} if wiring is not None else None,
        "open_mode": wiring.open_mode if wiring is not None else None,
        "projection": projection,
        "insights": insights,
        "logs": str(cli.home.logs),
    }


async def _api(cli: CliSettings) -> dict[str, Any]:
    async with Api(cli.api_url) as api:
        try:
            await api.get("/readyz")
        except NotNow as refusal:
            missing = refusal.details.get("missing") or []
            return {"url": cli.api_url, "ready": False, "error": f"it waits for {', '.join(missing) or 'its start'}"}
        except Failure as failure:
            return {"url": cli.api_url, "ready": False, "error": str(failure)}
    return {"url": cli.api_url, "ready": True, "error": None}


async def _insights(cli: CliSettings) -> dict[str, Any]:
    async with Api(cli.insights_url) as insights:
        try:
            found: dict[str, Any] = await insights.get("/insights")
        except Failure as failure:
            return {"url": cli.insights_url, "error": str(failure)}
    return {"url": cli.insights_url, **found}


async def _or_error(asked: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    try:
        return await asked
    except (Failure, ConnectorError) as error:
        return {"error": str(error)}


async def _nothing() -> None:
    return None


async def _child(child: ChildRecord, *, is_alive: bool) -> dict[str, Any]:
    # The list is written at every change; what died together with its supervisor could not be.
    state: str = child.state if is_alive or child.pid is None else "dead"
    if is_alive and child.pid is not None and state == "ready":
        state = await standstill(child.pid, listens=child.name.startswith("runtime")) or state
    return {
        "name": child.name,
        "state": state,
        "pid": child.pid if is_alive else None,
        "restarts": child.restarts,
        "up_s": round(max(0.0, time.time() - child.started_s), 1) if is_alive else None,
        "memory_bytes": _memory(child.pid) if is_alive else None,
        "url": child.url or None,
        "log": child.log,
    }


def _memory(pid: int | None) -> int | None:
    """Of the process and all it has started."""
    try:
        process = psutil.Process(pid)
        return sum(int(one.memory_info().rss) for one in (process, *process.children(recursive=True)))
    except psutil.Error:
        return None


def _print(out: Console, found: Mapping[str, Any]) -> None:
    _print_stack(out, found)
    if found["children"]:
        out.print()
        _print_children(out, found["children"])
        out.print()
    api = found["api"]
    words = ("ready", GOOD)
    if not api["ready"]:
        words = (str(api["error"]), BAD) if found["supervised"] else ("does not answer", DIM)
    _line(out, "api", Text.assemble((api["url"], NAME), "  ", words))
    if found["open_mode"]:
        _line(out, "access", Text("open: no token is set, whoever is on this machine may use it", style=ODD))
    if found["volumes"] and found["volumes"]["source"]:
        _line(out, "folders", Text(f"source {found['volumes']['source']}, out {found['volumes']['out'] or 'none'}"))
    if found["projection"] is not None:
        _print_projection(out, found["projection"])
    if found["insights"] is not None:
        _print_insights(out, found["insights"])


def _print_stack(out: Console, found: Mapping[str, Any]) -> None:
    if found["supervised"]:
        words = "runs" if found["complete"] else "is starting or stopping"
        line = Text.assemble(
            f"The stack {words} in ", (found["home"], NAME), f", supervisor {found['supervisor_pid']}."
        )
        out.print(line)
    elif found["half_dead"]:
        out.print(Text(f"What an earlier stack left behind still runs in {found['home']}.", style=BAD))
        out.print("`loomlog down` stops it, `loomlog up` stops it and starts anew.")
    else:
        out.print(Text.assemble("Nothing runs in ", (found["home"], NAME), ". `loomlog up` starts it."))
    if found["damage"]:
        out.print(Text(f"The list of running processes is damaged: {found['damage']}", style=BAD))


def _print_children(out: Console, children: list[Mapping[str, Any]]) -> None:
    print_table(
        out,
        ("PROCESS", "STATE", "PID", "UP", "MEMORY", "RESTARTS", "ADDRESS"),
        [
            (
                child["name"],
                Text(child["state"], style=STATE_STYLE.get(child["state"], "")),
                str(child["pid"] or ""),
                duration(child["up_s"]) if child["up_s"] is not None else "",
                size(child["memory_bytes"]) if child["memory_bytes"] else "",
                Text(str(child["restarts"]), style=ODD if child["restarts"] else ""),
                child["url"] or "",
            )
            for child in children
        ],
        right=(2, 3, 4, 5),
    )


def _print_projection(out: Console, found: Mapping[str, Any]) -> None:
    if found.get("error"):
        _line(out, "read models", Text(str(found["error"]), style=BAD))
        return
    behind = found["lag"]
    words = f"{counted(behind, 'record')} behind" if behind else "up to date"
    parts = counted(len(found["partitions"]), "partition")
    _line(out, "read models", Text.assemble((words, ODD if behind else GOOD), f", {parts}"))
    for one in found["projectors"]:
        _line(out, "", projector_line(one))
    if found["problems"]:
        _line(out, "", problems_line(found["problems"]))


def _print_insights(out: Console, found: Mapping[str, Any]) -> None:
    if found.get("error"):
        _line(out, "insights", Text(str(found["error"]), style=BAD))
        return
    window = found["windows"].get(WINDOW) or next(iter(found["windows"].values()))
    p95 = window["duration_ms"]["p95"]
    said = (
        f"last {WINDOW}: {counted(window['runs'], 'run')}, {window['runs_per_minute']:.1f} a minute, "
        f"{window['error_ratio']:.0%} failed, {number(round(window['input_tokens_per_minute']))} tokens in a minute"
    )
    if p95 is not None:
        said += f", 95 % within {duration(p95 / 1000)}"
    if not found["is_whole"]:
        said += " (still reading its history)"
    _line(out, "insights", Text.assemble((found["url"], NAME), f"  {said}"))


def _line(out: Console, name: str, text: Text) -> None:
    out.print(Text.assemble((f"{name:<13}", DIM), text))
