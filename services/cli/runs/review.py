"""`loomlog review`: the main job. An agent reads a local folder and writes a report; all required services are started.

    stack     started by this process, or the one already running in the state folder
    job       agent `reviewer`, with the folder as its volume `source`, followed live
    report    report.md in the volume `out`: its path, its first lines, the number of places it names
    after     the stack stays up until Ctrl-C; with --once it is stopped

The configuration selects the model: with a provider's key in the environment a real one, otherwise the synthetic
reviewer. A running stack with other folders is not changed, because its runs use them; the error message has the
remedy.

Before: services/cli/main.py, `make run`. After: services/cli/stack/foreground.py, connectors/client/run_stream.py,
services/cli/terminal/live_view.py.
"""

import asyncio
import re
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from loomlog.connectors.client.run_stream import RunStream
from loomlog.connectors.configuration.providers import build_providers, usable_provider_ids
from loomlog.connectors.configuration.resolve import UnresolvedAgent, resolve_agent
from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import FAILED, INTERRUPTED, CliError, UsageError
from loomlog.services.cli.http.api import ApiClient
from loomlog.services.cli.settings import CliSettings, current_settings
from loomlog.services.cli.stack.foreground import StepLog, foreground_stack
from loomlog.services.cli.stack.local import cancel_on_signals
from loomlog.services.cli.stack.plan import SOURCE, ReviewFolders, StackPlan
from loomlog.services.cli.stack.up import prepare_plan, print_addresses, print_configuration
from loomlog.services.cli.terminal.formatting import pluralize
from loomlog.services.cli.terminal.live_view import show_run
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, SUCCESS, console

AGENT = "reviewer"
REPORT = "report.md"
HEAD_LINES = 16
"""Lines of the report that are shown: its summary and the first findings."""
HEAD_BYTES = 64 * 1024
STARTING_TIMEOUT_S = 120.0
"""Seconds to wait for a stack that another terminal is starting."""
LOCATION = re.compile(r"[\w./-]+\.\w+:\d+")
"""Pattern of a file and line, as in services/api/main.py:12."""
PROMPT = (
    "Review the files of the folder {name}, which is your volume `source`. Name file and line of each finding, as in "
    "path/file.py:12. Write the review to report.md in the volume `out`."
)


def review(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to review.")] = Path("."),
    once: Annotated[bool, typer.Option("--once", help="Stop everything after the review.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Where report.md goes; default: out/ in the state folder, or that of the running stack."
        ),
    ] = None,
) -> None:
    """Start everything, let an agent review a folder, and show the findings."""
    cli = current_settings()
    into = out.expanduser().absolute() if out is not None else None
    code = run(_review(cli, _require_folder(folder), into, console(), once=once))
    if code:
        raise typer.Exit(code)


async def _review(cli: CliSettings, source: Path, report_folder: Path | None, out: Console, *, once: bool) -> int:
    steps = StepLog(out, time.monotonic)
    out.print(Text.assemble("loomlog reviews ", (str(source), NAME)))
    if cli.stack.is_supervised:
        cli, folders = await _join_running_stack(cli, source, report_folder, steps)
        code = await _run_review(cli, cli.api_url, folders, steps, out)
        out.print(Text(f"The stack keeps running in {cli.home.root}; `loomlog down` stops it.", style=DIM))
        return code
    folders = ReviewFolders(source=source, out=report_folder or cli.home.root / "out")
    return await _review_in_own_stack(cli, folders, steps, out, once=once)


async def _review_in_own_stack(
    cli: CliSettings, folders: ReviewFolders, steps: StepLog, out: Console, *, once: bool
) -> int:
    code = INTERRUPTED
    with cancel_on_signals():
        plan = await prepare_plan(cli, steps, folders=folders)
        print_configuration(plan, steps, out)
        steps.report(_describe_model(plan))
        async with foreground_stack(cli, plan, steps) as standing:
            async with asyncio.TaskGroup() as tasks:
                # A failed stack ends the job at once; secondary services start in parallel with the job.
                guard = tasks.create_task(standing.wait())
                complete = tasks.create_task(standing.start_secondary(quietly=True))
                code = await _run_review(cli, plan.api_url, folders, steps, out)
                if not once:
                    await complete
                    print_addresses(standing, out)
                    _print_next_steps(out)
                    await guard
                complete.cancel()
                guard.cancel()
    out.print(f"Stopped. Everything is kept in {cli.home.root}; `loomlog up` brings it back.")
    return code


def _describe_model(plan: StackPlan) -> str:
    """Return a text about the model to be used. Raises UsageError when there is no agent, or no model for it."""
    if AGENT not in plan.configuration.agents:
        raise UsageError(
            f"The configuration has no agent `{AGENT}`, which does the review. loomlog.yaml of the repository has one: "
            "start in its folder, or name it in LOOMLOG_CONFIG_FILES."
        )
    providers = build_providers(plan.configuration, plan.settings, plan.environ)
    agent = resolve_agent(plan.configuration, AGENT, usable=usable_provider_ids(providers.values()))
    if isinstance(agent, UnresolvedAgent):
        raise UsageError(f"The review cannot begin: {agent.message}. `loomlog doctor` says more.")
    text = f"model: {agent.provider}/{agent.model}"
    if providers[agent.provider].driver == "mock":
        text += ", a script; with ANTHROPIC_API_KEY or OPENAI_API_KEY set, a real one"
    return text


async def _run_review(cli: CliSettings, api_url: str, folders: ReviewFolders, steps: StepLog, out: Console) -> int:
    """Run the agent and return the exit code."""
    report = folders.out / REPORT
    before = await asyncio.to_thread(_file_version, report)
    out.print()
    async with ApiClient(api_url, cli.token) as api:
        body = {"agent": AGENT, "prompt": PROMPT.format(name=folders.source.name or folders.source)}
        followed = RunStream(api, body=body, idempotency_key=str(uuid.uuid4()))
        try:
            row = await show_run(api, followed, out)
        except asyncio.CancelledError:
            if followed.ids.run_id:
                out.print()
                out.print("The review is in the log and goes on whenever the stack is up; this shows it then:")
                out.print(f"  loomlog runs follow {followed.ids.run_id}")
            raise
    out.print()
    if row["status"] != "completed":
        what = "is quarantined" if row["quarantined"] else row["status"]
        why = row["quarantine_error"] or row["error"] or row["stop_reason"] or "without a reason"
        out.print(Text(f"The review {what}: {why}", style=ERROR))
        return FAILED
    if await asyncio.to_thread(_file_version, report) == before:
        out.print(Text(f"The run completed, but {report} was not written; what it said is above.", style=ERROR))
        return FAILED
    await asyncio.to_thread(_show_report, report, row, steps, out)
    return 0


def _show_report(report: Path, row: Mapping[str, Any], steps: StepLog, out: Console) -> None:
    with open(report, "rb") as file:
        text = file.read(HEAD_BYTES).decode(errors="replace")
    lines = text.splitlines()
    for line in lines[:HEAD_LINES]:
        shown = line if len(line) + 3 < out.width or not out.is_terminal else line[: out.width - 4] + "…"
        out.print(Text(f"  {shown}", style="bold" if line.startswith("#") else ""))
    if len(lines) > HEAD_LINES:
        out.print(Text(f"  and {pluralize(len(lines) - HEAD_LINES, 'more line')}", style=DIM))
    out.print()
    places = len(set(LOCATION.findall(text)))
    out.print(
        Text.assemble(("Report    ", SUCCESS), (str(report), NAME), (f"  names {pluralize(places, 'place')}", DIM))
    )
    out.print(Text.assemble(("Result    ", SUCCESS), f"after {steps.seconds:.1f} s"))
    run_id = row["run_id"]
    out.print()
    out.print("Look into it:")
    out.print(f"  loomlog runs show {run_id}")
    out.print(f"  loomlog replay {run_id}")
    out.print(f"  loomlog events tail --run {run_id}")


def _print_next_steps(out: Console) -> None:
    out.print()
    out.print(Text("Everything stays up until Ctrl-C; nothing is lost then.", style=DIM))


async def _join_running_stack(
    cli: CliSettings, source: Path, report_folder: Path | None, steps: StepLog
) -> tuple[CliSettings, ReviewFolders]:
    """Wait for the running stack and return its settings, and its folders if they match. Raises Failure."""
    try:
        async with asyncio.timeout(STARTING_TIMEOUT_S):
            while cli.services_record is None:
                await asyncio.sleep(0.2)
                cli = await asyncio.to_thread(current_settings)
                if not cli.stack.is_supervised:
                    raise CliError("The stack that was starting here has stopped; run this again.")
    except TimeoutError:
        raise CliError(
            f"A stack is starting in {cli.home.root} and was not complete within {STARTING_TIMEOUT_S:g} s; "
            "`loomlog status` shows how far it is."
        ) from None
    wiring = cli.services_record
    folders = ReviewFolders(source=Path(wiring.source), out=Path(wiring.out))
    if folders != ReviewFolders(source=source, out=report_folder or folders.out) or not wiring.out:
        raise CliError(
            f"A stack is running already, and its agents see {wiring.source or 'no folder'} as `{SOURCE}` and write to "
            f"{wiring.out or 'no folder'}; this review needs "
            f"{source}{f' and {report_folder}' if report_folder else ''}. Folders are not "
            "changed under runs that may be using them: `loomlog down` first, or use another state folder, "
            "LOOMLOG_HOME=<folder>, with other ports."
        )
    steps.report(f"uses the stack that runs here (supervisor {wiring.supervisor_pid})")
    return cli, folders


def _require_folder(folder: Path) -> Path:
    path = folder.expanduser().absolute()
    try:
        path = path.resolve(strict=True)
    except OSError as error:
        raise UsageError(f"There is no folder {path} to review: {error.strerror}.") from error
    if not path.is_dir():
        raise UsageError(f"{path} is not a folder; give the folder to review.")
    return path


def _file_version(path: Path) -> tuple[int, int] | None:
    try:
        file_status = path.stat()
    except FileNotFoundError:
        return None
    return file_status.st_mtime_ns, file_status.st_ino
