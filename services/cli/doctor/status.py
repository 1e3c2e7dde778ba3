"""`loomlog status`: what runs here, its addresses, and its lag. Exit 3 when nothing runs.

    stack.json and the lock    the children and their supervisor
    the API's /readyz          whether it can work
    cursors and ends           whether the read models lag
    metrics of the runtimes    what each does, and the deliveries that wait
    insights                   the runs of the last minutes

Each part is queried separately: one that does not answer is a line with its error, and the others are still shown.

Before: services/cli/main.py. After: stack/status.py, services/cli/http/api.py, services/cli/log/projections.py.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console
from rich.text import Text

from loomlog.connectors.errors import ConnectorError
from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import UNREACHABLE, CliError
from loomlog.services.cli.http.api import ApiClient, ApiUnavailable
from loomlog.services.cli.settings import CliSettings, current_settings
from loomlog.services.cli.stack.liveness import find_stall
from loomlog.services.cli.stack.record import ChildRecord
from loomlog.services.cli.stack.runtime_role import read_role
from loomlog.services.cli.terminal.formatting import duration, number, pluralize, size
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, SUCCESS, WARNING, console, print_json, print_table
from loomlog.services.cli.terminal.projection_text import problems_line, projector_line

WINDOW = "5m"
"""Window of the insights: long enough for a rate, short enough to be current."""
STATE_STYLE = {
    "ready": SUCCESS,
    "starting": WARNING,
    "waiting": WARNING,
    "stopping": WARNING,
    "stopped": DIM,
    "failed": ERROR,
    "dead": ERROR,
    "suspended": ERROR,
    "silent": ERROR,
}


def status(as_json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False) -> None:
    """Show what runs here: processes, addresses, lag, rates."""
    cli = current_settings()
    state = run(collect_status(cli))
    if as_json:
        print_json(state)
    else:
        _print_status(console(), state)
    if not state["supervised"] and not state["api"]["ready"]:
        raise typer.Exit(UNREACHABLE)


async def collect_status(cli: CliSettings) -> dict[str, Any]:
    """Return everything as JSON; parts that do not answer have `error`."""
    stack, wiring = cli.stack, cli.services_record
    record = cli.record
    has_log = bool(cli.settings.kafka or record is not None)
    api, projection, insights, *children = await asyncio.gather(
        _api_status(cli),
        _projection_status(cli) if has_log else _no_result(),
        _insights_status(cli) if cli.insights_url else _no_result(),
        *(
            _child_status(child, is_alive=child in stack.running_children)
            for child in (record.children if record is not None else ())
        ),
    )
    return {
        "home": str(cli.home.root),
        "supervised": stack.is_supervised,
        "supervisor_pid": stack.supervisor.pid if stack.is_supervised and stack.supervisor is not None else None,
        "half_dead": stack.has_orphans,
        "damage": stack.record_error or None,
        "complete": wiring is not None,
        "children": children,
        "api": api,
        "kafka": cli.settings.kafka or (record.kafka if record is not None else None),
        "volumes": {"source": wiring.source, "out": wiring.out} if wiring is not None else None,
        "open_mode": wiring.open_mode if wiring is not None else None,
        "spares": wiring.spares if wiring is not None else None,
        "projection": projection,
        "ingress": _ingress_status(children),
        "insights": insights,
        "logs": str(cli.home.logs),
    }


async def _api_status(cli: CliSettings) -> dict[str, Any]:
    async with ApiClient(cli.api_url) as api:
        try:
            await api.get("/readyz")
        except ApiUnavailable as refusal:
            missing = refusal.details.get("missing") or []
            return {"url": cli.api_url, "ready": False, "error": f"it waits for {', '.join(missing) or 'its start'}"}
        except CliError as failure:
            return {"url": cli.api_url, "ready": False, "error": str(failure)}
    return {"url": cli.api_url, "ready": True, "error": None}


async def _projection_status(cli: CliSettings) -> Mapping[str, Any]:
    """Return the lag as the API knows it; read it from the log and the tables when the API does not answer."""
    async with ApiClient(cli.api_url, cli.token) as api:
        try:
            lag: Mapping[str, Any] = await api.get("/v1/_projections")
            return lag
        except CliError:
            pass
    from loomlog.services.cli.log.projections import read_lag

    try:
        return await read_lag(cli)
    except (CliError, ConnectorError) as error:
        return {"error": str(error)}


async def _insights_status(cli: CliSettings) -> dict[str, Any]:
    async with ApiClient(cli.insights_url) as insights:
        try:
            summary: dict[str, Any] = await insights.get("/insights")
        except CliError as failure:
            return {"url": cli.insights_url, "error": str(failure)}
    return {"url": cli.insights_url, **summary}


def _ingress_status(children: Sequence[Mapping[str, Any]]) -> dict[str, int] | None:
    """Return the lag of the group of runtimes that reads loom.ingress; None when no runtime here tells its part."""
    lags = [child["ingress_lag"] for child in children if child["ingress_lag"] is not None]
    return {"lag": sum(lags)} if lags else None


async def _no_result() -> None:
    return None


async def _child_status(child: ChildRecord, *, is_alive: bool) -> dict[str, Any]:
    # The record is written at every change, except for children that died together with their supervisor.
    state: str = child.state if is_alive or child.pid is None else "dead"
    if is_alive and child.pid is not None and state == "ready":
        state = await find_stall(child.pid, listens=child.name.startswith("runtime")) or state
    role = None
    if is_alive and child.pid is not None and state == "ready" and child.name.startswith("runtime"):
        role = await read_role(child.pid)
    return {
        "name": child.name,
        "state": state,
        "role": role.name if role is not None else None,
        "partitions": role.partitions if role is not None else None,
        "ingress_lag": role.ingress_lag if role is not None else None,
        "clock_offset_s": role.clock_offset_s if role is not None else None,
        "problem": (role.clock_problem if role is not None else "") or None,
        "pid": child.pid if is_alive else None,
        "restarts": child.restarts,
        "up_s": round(max(0.0, time.time() - child.started_s), 1) if is_alive else None,
        "memory_bytes": _memory_bytes(child.pid) if is_alive else None,
        "url": child.url or None,
        "log": child.log,
    }


def _memory_bytes(pid: int | None) -> int | None:
    """Return the memory of the process and of all its descendants."""
    try:
        process = psutil.Process(pid)
        return sum(int(one.memory_info().rss) for one in (process, *process.children(recursive=True)))
    except psutil.Error:
        return None


def _print_status(out: Console, report: Mapping[str, Any]) -> None:
    _print_stack(out, report)
    if report["children"]:
        out.print()
        _print_children(out, report["children"])
        out.print()
    for child in report["children"]:
        if child["problem"]:
            _print_line(out, child["name"], Text(child["problem"], style=ERROR))
    api = report["api"]
    words = ("ready", SUCCESS)
    if not api["ready"]:
        words = (str(api["error"]), ERROR) if report["supervised"] else ("does not answer", DIM)
    _print_line(out, "api", Text.assemble((api["url"], NAME), "  ", words))
    if report["open_mode"]:
        _print_line(out, "access", Text("open: no token is set, every user of this machine has access", style=WARNING))
    if report["volumes"] and report["volumes"]["source"]:
        _print_line(
            out, "folders", Text(f"source {report['volumes']['source']}, out {report['volumes']['out'] or 'none'}")
        )
    if report["projection"] is not None:
        _print_projection(out, report["projection"])
    if report["ingress"] is not None:
        waiting = report["ingress"]["lag"]
        progress = f"{pluralize(waiting, 'record')} behind" if waiting else "up to date"
        _print_line(out, "deliveries", Text(progress, style=WARNING if waiting else SUCCESS))
    if report["insights"] is not None:
        _print_insights(out, report["insights"])


def _print_stack(out: Console, report: Mapping[str, Any]) -> None:
    if report["supervised"]:
        words = "runs" if report["complete"] else "is starting or stopping"
        line = Text.assemble(
            f"The stack {words} in ", (report["home"], NAME), f", supervisor {report['supervisor_pid']}."
        )
        out.print(line)
    elif report["half_dead"]:
        out.print(Text(f"What an earlier stack left behind still runs in {report['home']}.", style=ERROR))
        out.print("`loomlog down` stops it, `loomlog up` restarts it.")
    else:
        out.print(Text.assemble("Nothing runs in ", (report["home"], NAME), ". `loomlog up` starts it."))
    if report["damage"]:
        out.print(Text(f"The list of running processes is damaged: {report['damage']}", style=ERROR))


def _print_children(out: Console, children: list[Mapping[str, Any]]) -> None:
    print_table(
        out,
        ("PROCESS", "STATE", "PARTITIONS", "PID", "UP", "MEMORY", "RESTARTS", "ADDRESS"),
        [
            (
                child["name"],
                Text(child["state"], style=STATE_STYLE.get(child["state"], "")),
                _role_text(child),
                str(child["pid"] or ""),
                duration(child["up_s"]) if child["up_s"] is not None else "",
                size(child["memory_bytes"]) if child["memory_bytes"] else "",
                Text(str(child["restarts"]), style=WARNING if child["restarts"] else ""),
                child["url"] or "",
            )
            for child in children
        ],
        right_aligned=(3, 4, 5, 6),
    )


def _role_text(child: Mapping[str, Any]) -> str:
    """Return what a runtime does: it owns partitions, or waits for the death of an owner; empty for the rest."""
    match child["role"]:
        case "owner":
            return f"owns {child['partitions']}"
        case "spare":
            return f"spare for {child['partitions']}"
        case "idle":
            return "owns nothing"
    return ""


def _print_projection(out: Console, projection: Mapping[str, Any]) -> None:
    if projection.get("error"):
        _print_line(out, "read models", Text(str(projection["error"]), style=ERROR))
        return
    behind = projection["lag"]
    words = f"{pluralize(behind, 'record')} behind" if behind else "up to date"
    parts = pluralize(len(projection["partitions"]), "partition")
    _print_line(out, "read models", Text.assemble((words, WARNING if behind else SUCCESS), f", {parts}"))
    for one in projection["projectors"]:
        _print_line(out, "", projector_line(one))
    if projection["problems"]:
        _print_line(out, "", problems_line(projection["problems"]))


def _print_insights(out: Console, insights: Mapping[str, Any]) -> None:
    if insights.get("error"):
        _print_line(out, "insights", Text(str(insights["error"]), style=ERROR))
        return
    window = insights["windows"].get(WINDOW) or next(iter(insights["windows"].values()))
    p95 = window["duration_ms"]["p95"]
    text = (
        f"last {WINDOW}: {pluralize(window['runs'], 'run')}, {window['runs_per_minute']:.1f} a minute, "
        f"{window['error_ratio']:.0%} failed"
    )
    spent = f"{number(round(window['input_tokens_per_minute']))} tokens a minute"
    if p95 is not None:
        spent += f", 95% within {duration(p95 / 1000)}"
    reading = "" if insights["is_whole"] else "  still reading its history"
    _print_line(out, "insights", Text.assemble((insights["url"], NAME), (reading, WARNING)))
    _print_line(out, "", Text(text))
    _print_line(out, "", Text(spent))


def _print_line(out: Console, name: str, text: Text) -> None:
    out.print(Text.assemble((f"{name:<13}", DIM), text))
