"""`loomlog up` and `loomlog down`: the whole stack in the foreground until Ctrl-C, or detached; and stopping it.

Before: services/cli/main.py. After: foreground.py, detached.py, stack/shutdown.py.
"""

import asyncio
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from loomlog.services.cli.commands import run
from loomlog.services.cli.settings import CliSettings, current_settings
from loomlog.services.cli.stack.detached import start_detached
from loomlog.services.cli.stack.foreground import ForegroundStack, StepLog, foreground_stack, require_not_running
from loomlog.services.cli.stack.home import open_home
from loomlog.services.cli.stack.local import cancel_on_signals
from loomlog.services.cli.stack.plan import ReviewFolders, StackPlan, create_plan
from loomlog.services.cli.stack.shutdown import stop_stack
from loomlog.services.cli.terminal.output import DIM, NAME, WARNING, console, error_console, print_json

Runtimes = Annotated[int, typer.Option("--runtimes", help="Processes that own partitions and run agents.")]

Spares = Annotated[
    int | None,
    typer.Option(
        "--spares",
        help="Further runtimes that wait and take over at once when one dies; default: LOOMLOG_SPARES, else 2 "
        "(1 when less than 4 GiB of memory is available).",
        show_default=False,
    ),
]


def up(
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return when everything is ready.")] = False,
    runtimes: Runtimes = 1,
    spares: Spares = None,
) -> None:
    """Start broker, Postgres, topics and all services; stay until Ctrl-C."""
    cli = current_settings()
    require_not_running(cli)
    if detach:
        start_detached(cli, runtimes, spares, console())
    else:
        run(_up(cli, runtimes, spares, console()))


def down(as_json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False) -> None:
    """Stop everything that runs in this state folder, including leftovers of an earlier stack."""
    cli = current_settings()
    out = console()
    has_home = cli.home.root.is_dir()
    began = time.monotonic()
    # Not open_home: a stack on a full disk can be stopped too.
    report = error_console().print if as_json else out.print
    stopped = has_home and run(stop_stack(cli.home, report))
    took_s = time.monotonic() - began
    if as_json:
        print_json({"home": str(cli.home.root), "stopped": stopped, "took_s": round(took_s, 1)})
    elif not has_home:
        out.print(f"Nothing runs: there is no state folder {cli.home.root}.")
    elif stopped:
        out.print(f"Stopped in {took_s:.1f} s. Everything is kept in {cli.home.root}; `loomlog up` goes on.")
    else:
        out.print(f"Nothing was running in {cli.home.root}.")


async def prepare_plan(
    cli: CliSettings,
    steps: StepLog,
    *,
    runtimes: int = 1,
    spares: int | None = None,
    folders: ReviewFolders | None = None,
) -> StackPlan:
    """Create the plan of a stack. Leftovers of an earlier stack are stopped first: they may hold our ports."""
    home = await asyncio.to_thread(open_home, cli.home.root)
    if cli.stack.has_orphans:
        await stop_stack(home, steps.report)
    return await asyncio.to_thread(
        lambda: create_plan(cli, working_directory=Path.cwd(), runtimes=runtimes, spares=spares, folders=folders)
    )


async def _up(cli: CliSettings, runtimes: int, spares: int | None, out: Console) -> None:
    steps = StepLog(out, time.monotonic)
    out.print(Text.assemble("loomlog starts in ", (str(cli.home.root), NAME)))
    with cancel_on_signals():
        made = await prepare_plan(cli, steps, runtimes=runtimes, spares=spares)
        print_configuration(made, steps, out)
        async with foreground_stack(cli, made, steps) as standing:
            await standing.start_secondary()
            print_addresses(standing, out)
            out.print()
            out.print("Try it:")
            out.print(Text.assemble("  loomlog run assistant ", ('"What is an event log good for?"', NAME)))
            out.print("  loomlog review              an agent reviews this folder")
            out.print("  loomlog status              what runs, how far it is")
            out.print(Text("Ctrl-C stops everything; nothing is lost.", style=DIM))
            await standing.wait()
    out.print(f"Stopped. Everything is kept in {cli.home.root}; `loomlog up` goes on.")


def print_configuration(plan: StackPlan, steps: StepLog, out: Console) -> None:
    """Print the configuration files that were read, and their warnings."""
    files = ", ".join(_display_path(file) for file in plan.files) or "none"
    steps.report(f"configuration: {files}")
    for warning in plan.warnings:
        out.print(Text(f"          {warning}", style=WARNING))


def print_addresses(stack: ForegroundStack, out: Console) -> None:
    """Print the addresses of what runs."""
    made = stack.plan
    out.print()
    _print_address(out, "API", made.api_url, "documentation at /v1/docs")
    if made.settings.ui_enabled:
        _print_address(out, "Web page", f"{made.api_url}/ui", "`loomlog ui` opens it")
    if made.insights_url:
        _print_address(out, "Insights", f"{made.insights_url}/insights", "/metrics for Prometheus")
    _print_address(out, "Broker", stack.stack.kafka, "")
    _print_address(out, "Logs", _display_path(stack.cli.home.logs), "")
    if made.open_mode:
        out.print(
            Text(
                "  No token is set: every user of this machine has access. LOOMLOG_AUTH_TOKEN requires a token.",
                style=WARNING,
            )
        )


def _print_address(out: Console, name: str, value: str, remark: str) -> None:
    out.print(Text.assemble("  ", (f"{name:<10}", DIM), (value, NAME), (f"  {remark}" if remark else "", DIM)))


def _display_path(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
