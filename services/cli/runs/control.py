"""`loomlog runs pause, resume, cancel, quarantine, release`: commands to one run, or to all that match a filter
(--where).

`compact` accepts one run only: each is a model call that has a cost.

Before: services/cli/main.py. After: services/cli/http/api.py, and bulk.py for a filter.
"""

from typing import Annotated

import typer
from rich.text import Text

from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import CliError, UsageError
from loomlog.services.cli.http.api import ApiResponse
from loomlog.services.cli.http.requests import open_api, print_written
from loomlog.services.cli.runs import bulk
from loomlog.services.cli.runs.runs import Json, RunId, get_run, resolve_run_id, runs_app, send_to_run
from loomlog.services.cli.terminal.formatting import number
from loomlog.services.cli.terminal.output import DIM, NAME, console

__all__ = ["runs_app"]

OptionalRunId = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Id of the run (r_...), its handle (a_...), or the start of one; or give --where.",
        callback=resolve_run_id,
    ),
]
FilterOption = Annotated[
    str, typer.Option("--where", help="All live runs of a filter: agent=a,tenant=t,status=paused,older_than=10m.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="With --where: only show which.")]
Yes = Annotated[bool, typer.Option("--yes", help="With --where: do not ask.")]
COMPACT_TIMEOUT_S = 150.0
"""Seconds; the API waits two minutes for a summary before it answers that it takes longer."""
Reason = Annotated[str, typer.Option("--reason", help="Why; it is kept with the run.")]


@runs_app.command("pause")
def pause(
    run_id: OptionalRunId = "",
    reason: Reason = "",
    run_filter: FilterOption = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Pause a run before its next model call."""
    _apply_to_runs("pause", "Pausing", run_id, run_filter, reason, dry_run=dry_run, yes=yes, as_json=as_json)


@runs_app.command("resume")
def resume(
    run_id: OptionalRunId = "",
    run_filter: FilterOption = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Resume a paused run."""
    _apply_to_runs("resume", "Resumed", run_id, run_filter, None, dry_run=dry_run, yes=yes, as_json=as_json)


@runs_app.command("quarantine")
def quarantine(
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept with the run.", prompt=False)],
    run_id: OptionalRunId = "",
    run_filter: FilterOption = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Quarantine a run until it is released: its calls are stopped, other runs continue."""
    _apply_to_runs("quarantine", "Quarantined", run_id, run_filter, reason, dry_run=dry_run, yes=yes, as_json=as_json)


@runs_app.command("release")
def release(
    run_id: OptionalRunId = "",
    reason: Reason = "",
    run_filter: FilterOption = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Fold a quarantined run again from the log and let it continue."""
    _apply_to_runs("release", "Released", run_id, run_filter, reason, dry_run=dry_run, yes=yes, as_json=as_json)


@runs_app.command("compact")
def compact(
    run_id: RunId,
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Replace the older part of a conversation by a summary, in a run that waits for input or has ended."""
    response = send_to_run(run_id, "compact", {"reason": reason}, timeout_s=COMPACT_TIMEOUT_S)
    if as_json:
        print_written(response)
        return
    answer = response.value
    if not answer["compacted"]:
        console().print(Text.assemble("Nothing to compact in ", (answer["run_id"], NAME)))
        return
    spans = f": {number(answer['before_tokens'])} tokens became {number(answer['after_tokens'])}"
    line = Text.assemble("Compacted ", (answer["run_id"], NAME), spans, ("  event ", DIM), response.position)
    console().print(line)
    if answer["applied"] == "marker":
        console().print(Text("The next run of its session starts from the summary.", style=DIM))


@runs_app.command("cancel")
def cancel(
    run_id: OptionalRunId = "",
    reason: Reason = "",
    run_filter: FilterOption = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Cancel a live run."""
    if not _targets_one_run(run_id, run_filter, dry_run=dry_run):
        bulk.run_bulk_action("cancel", run_filter, reason, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    response = run(_post_cancel(run_id, reason))
    answer = response.value
    if as_json:
        print_written(response)
    elif answer["cancelled"]:
        line = Text.assemble("Cancelled ", (answer["run_id"], NAME), ("  event ", DIM), response.position)
        console().print(line)
    if not answer["cancelled"]:
        raise CliError(f"{answer['run_id']} had ended before: {answer['status']} ({answer['reason']}).")


def _targets_one_run(run_id: str, run_filter: str, *, dry_run: bool) -> bool:
    if bool(run_id) == bool(run_filter):
        raise UsageError("Name one run, or give --where with a filter such as status=running,agent=assistant.")
    if run_id and dry_run:
        raise UsageError("--dry-run shows what a filter means: it goes with --where.")
    return bool(run_id)


def _apply_to_runs(
    action: str, verb: str, run_id: str, run_filter: str, reason: str | None, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Send a command to the named run, or to those of the filter; `reason` is sent unless it is None."""
    if not _targets_one_run(run_id, run_filter, dry_run=dry_run):
        bulk.run_bulk_action(action, run_filter, reason or "", dry_run=dry_run, yes=yes, as_json=as_json)
        return
    response = send_to_run(run_id, action, {} if reason is None else {"reason": reason})
    if as_json:
        print_written(response)
        return
    console().print(Text.assemble(f"{verb} ", (response.value["run_id"], NAME), ("  event ", DIM), response.position))


async def _post_cancel(run_id: str, reason: str) -> ApiResponse:
    async with open_api() as api:
        row = await get_run(api, run_id)
        body = {"run_id": row["run_id"], "reason": reason}  # its handle may belong to another run by now
        return await api.post(f"/v1/agents/{row['agent_id']}/cancel", body)
