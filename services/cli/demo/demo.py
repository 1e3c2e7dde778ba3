"""`loomlog demo`: a runtime is killed (SIGKILL) in the middle of a run, and it is shown what became of the run.

    stack      its own, in the folder `demo` of the state folder, on free ports; or the one that --keep left there
    run        twelve calls of the tool Ledger, which appends a line with the call's key to a file
    kill       of the runtime that owns the run, while a call is under way; a spare claims its partitions
    evidence   lines of the file (counted outside of loomlog), the run in the log, and its replay (evidence.py)

Not chosen: the user's own stack. Its runs would be interrupted as well, and its agents would be offered the Ledger.

Before: services/cli/main.py. After: services/cli/stack/foreground.py, evidence.py.
"""

import asyncio
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from loomlog.connectors.client.run_stream import RunStream
from loomlog.services.cli.commands import run
from loomlog.services.cli.demo.evidence import DemoEvidence, read_evidence
from loomlog.services.cli.errors import FAILED, CliError
from loomlog.services.cli.http.api import ApiClient
from loomlog.services.cli.settings import CliSettings, current_settings, load_cli_settings
from loomlog.services.cli.stack.foreground import StepLog, foreground_stack
from loomlog.services.cli.stack.home import open_home, write_atomically
from loomlog.services.cli.stack.local import cancel_on_signals
from loomlog.services.cli.stack.plan import create_plan
from loomlog.services.cli.stack.record import ChildRecord
from loomlog.services.cli.stack.runtime_role import read_role
from loomlog.services.cli.stack.shutdown import stop_stack
from loomlog.services.cli.stack.status import read_stack_status
from loomlog.services.cli.terminal.formatting import pluralize
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, SUCCESS, console

FOLDER, LEDGER, CONFIGURATION_FILE = "demo", "ledger.txt", "demo.yaml"
AGENT = "demo"
CONFIGURATION = f"""\
# Written by `loomlog demo`.
providers:
  mock: {{ driver: mock, options: {{ enabled: true }} }}
agents:
  {AGENT}: {{ provider: mock, model: mock-ledger, tools: [Ledger] }}
"""
PROMPT, CALLS = "ledger 3", 12
"""The script of mock-ledger makes four calls, three times."""
KILL_AFTER_RESULTS = 5
"""Results before the kill, which is then done when the next call is under way."""
RUN_TIMEOUT_S = 60.0
"""Seconds for the run; it takes about three and, without a spare, some seconds more."""
ROLE_TIMEOUT_S = 20.0
"""Seconds to wait for an owner and a spare: after a demo that was run a moment ago, the group's session."""
ROLE_INTERVAL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRun:
    """A run whose runtime was killed. `killed_ms` is UTC milliseconds, and 0 if the run ended before."""

    run_id: str
    killed_ms: int


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack of the demo running until Ctrl-C.")] = False,
) -> None:
    """Kill a runtime in the middle of a run, and show that nothing was lost or done twice."""
    cli = current_settings()
    code = run(_demo(cli, console(), keep=keep))
    if code:
        raise typer.Exit(code)


async def _demo(user: CliSettings, out: Console, *, keep: bool) -> int:
    steps = StepLog(out, time.monotonic)
    folder = user.home.root / FOLDER
    environ = await asyncio.to_thread(_prepare_folder, user, folder)
    cli = await asyncio.to_thread(lambda: load_cli_settings(environ, working_directory=folder))
    out.print(
        Text.assemble("loomlog demo: a runtime is killed in the middle of a run; its stack is in ", (str(folder), NAME))
    )
    with cancel_on_signals():
        async with _stack(cli, folder, steps, keep=keep) as (running, guard):
            code = await _kill_and_verify(running, folder, steps, out)
            if keep and guard is not None:
                out.print(
                    Text("The stack stays up until Ctrl-C; `loomlog demo` in another terminal uses it.", style=DIM)
                )
                await guard
    return code


@asynccontextmanager
async def _stack(
    cli: CliSettings, folder: Path, steps: StepLog, *, keep: bool
) -> AsyncIterator[tuple[CliSettings, "asyncio.Task[None] | None"]]:
    """Start the demo's stack, or use the one that runs. Yields its settings, and a task that fails when it ends."""
    if cli.stack.is_supervised:
        if cli.services_record is None:
            raise CliError(f"Another demo is starting or stopping in {folder}; run this again in some seconds.")
        steps.report(f"uses the stack that runs there (supervisor {cli.services_record.supervisor_pid})")
        yield cli, None
        return
    home = await asyncio.to_thread(open_home, folder)
    if cli.stack.has_orphans:
        await stop_stack(home, steps.report)
    plan = await asyncio.to_thread(lambda: create_plan(cli, working_directory=folder, spares=1))
    async with foreground_stack(cli, plan, steps) as stack, asyncio.TaskGroup() as tasks:
        guard = tasks.create_task(stack.wait())
        await stack.start_secondary()
        running = await asyncio.to_thread(lambda: load_cli_settings(cli.environ, working_directory=folder))
        yield running, guard
        guard.cancel()


def _prepare_folder(user: CliSettings, folder: Path) -> Mapping[str, str]:
    """Write the configuration, and return the environment of the demo: none of the user's settings, free ports."""
    outer = open_home(user.home.root)
    folder.mkdir(exist_ok=True)
    if not (folder / "cache").exists():
        (folder / "cache").symlink_to(outer.cache)  # the broker's jars are fetched once
    write_atomically(folder / CONFIGURATION_FILE, CONFIGURATION)
    kept = {name: value for name, value in user.environ.items() if not name.startswith(("LOOMLOG_", "LOOMCYCLE_"))}
    return kept | {
        "LOOMLOG_HOME": str(folder),
        "LOOMLOG_CONFIG_FILES": str(folder / CONFIGURATION_FILE),
        "LOOMLOG_KAFKA_PORT": "0",
        "LOOMLOG_POSTGRES_PORT": "0",
        "LOOMLOG_LISTEN_ADDR": "127.0.0.1:0",
        "LOOMLOG_INSIGHTS_ENABLED": "0",
        "LOOMLOG_LEDGER_PATH": str(folder / LEDGER),
        # A call with an unknown outcome is not repeated: the tool is asked first.
        "LOOMLOG_LEDGER_EFFECT": "unsafe",
        "LOOMLOG_LEDGER_RECONCILES": "1",
    }


async def _kill_and_verify(cli: CliSettings, folder: Path, steps: StepLog, out: Console) -> int:
    owner = await _find_owner(cli)
    steps.report(f"{owner.name} (process {owner.pid}) owns the partitions, a spare waits")
    async with asyncio.timeout(RUN_TIMEOUT_S):
        done = await _run_and_kill(cli, owner, steps)
    evidence = await read_evidence(cli, done.run_id, folder / LEDGER, killed_ms=done.killed_ms)
    _print_evidence(evidence, out)
    problems = evidence.problems(CALLS)
    for problem in problems:
        out.print(Text(problem, style=ERROR))
    return FAILED if problems else 0


async def _find_owner(cli: CliSettings) -> ChildRecord:
    """Return the runtime that owns all partitions, once a spare watches it. Raises CliError."""
    try:
        async with asyncio.timeout(ROLE_TIMEOUT_S):
            while True:
                stack = await asyncio.to_thread(read_stack_status, cli.home)
                runtimes = [child for child in stack.running_children if child.name.startswith("runtime")]
                roles = [await read_role(child.pid) if child.pid is not None else None for child in runtimes]
                names = [role.name if role is not None else "" for role in roles]
                if names.count("owner") == 1 and "spare" in names:
                    return runtimes[names.index("owner")]
                await asyncio.sleep(ROLE_INTERVAL_S)
    except TimeoutError:
        raise CliError(
            f"No runtime owned the partitions with a spare beside it within {ROLE_TIMEOUT_S:g} s; "
            f"the logs in {cli.home.logs} say why."
        ) from None


async def _run_and_kill(cli: CliSettings, owner: ChildRecord, steps: StepLog) -> DemoRun:
    """Start the run, kill the owner in its middle, and return when the run has ended."""
    results, killed_ms = 0, 0
    assert owner.pid is not None, "a runtime with a role runs"
    async with ApiClient(cli.api_url, cli.token) as api:
        stream = RunStream(api, body={"agent": AGENT, "prompt": PROMPT}, idempotency_key=str(uuid.uuid4()))
        async with aclosing(stream.frames()) as frames:
            async for frame in frames:
                if frame.name == "agent" and not results:
                    steps.report(f"run {stream.ids.run_id} starts: {CALLS} tool calls are to come")
                results += frame.name == "tool_result"
                if frame.name == "tool_call" and results >= KILL_AFTER_RESULTS and not killed_ms:
                    killed_ms = time.time_ns() // 1_000_000
                    os.kill(owner.pid, signal.SIGKILL)
                    steps.report(f"kill -9 of {owner.name} after {pluralize(results, 'result')}, a call is under way")
        assert stream.final_frame is not None, "the frames end with a final one"
        steps.report(f"run ended: {stream.final_frame.name}")
        return DemoRun(run_id=stream.ids.run_id, killed_ms=killed_ms)


def _print_evidence(evidence: DemoEvidence, out: Console) -> None:
    out.print()
    if evidence.takeover_ms is not None:
        _print_line(out, "take-over", f"the next owner's first event came {evidence.takeover_ms} ms after the kill")
    _print_line(
        out,
        "effects",
        f"{pluralize(evidence.calls, 'tool call')}, {pluralize(evidence.lines, 'line')} in the ledger, "
        f"{evidence.distinct_lines} of them different",
    )
    _print_line(out, "replay", f"{pluralize(evidence.events, 'event')}, {evidence.replay_text}")
    _print_line(out, "run", evidence.run_id)


def _print_line(out: Console, name: str, text: str) -> None:
    out.print(Text.assemble((f"{name:<11}", SUCCESS), text))
