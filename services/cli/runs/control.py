"""`loomlog runs pause, resume, cancel, quarantine, release`: orders to one run, or to all of a filter (--where).

`compact` goes to one run only: each is a model call that somebody pays.

Before: main.py. After: api.py, and bulk.py for a filter.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.services.cli.commands import run
from loomlog.services.cli.failures import Failure, WrongUse
from loomlog.services.cli.runs import bulk
from loomlog.services.cli.runs.runs import Json, api_of_here, row_of, runs_app
from loomlog.services.cli.terminal.formatting import number
from loomlog.services.cli.terminal.output import DIM, NAME, console, print_json

__all__ = ["runs_app"]

MaybeRun = Annotated[
    str, typer.Argument(metavar="[RUN]", help="Id of the run (r_...) or its handle (a_...); or give --where.")
]
Where = Annotated[
    str, typer.Option("--where", help="All live runs of a filter: agent=a,tenant=t,status=paused,older_than=10m.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="With --where: only show which.")]
Yes = Annotated[bool, typer.Option("--yes", help="With --where: do not ask.")]
COMPACT_TIMEOUT_S = 150.0
"""The API waits two minutes for a summary before it says that it takes longer."""
Reason = Annotated[str, typer.Option("--reason", help="Why; it is kept with the run.")]


@runs_app.command("pause")
def pause(
    run_id: MaybeRun = "",
    reason: Reason = "",
    where: Where = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Let a run stand still before its next model call."""
    _one_or_all("pause", "Pausing", run_id, where, reason, dry_run=dry_run, yes=yes, as_json=as_json)


@runs_app.command("resume")
def resume(
    run_id: MaybeRun = "", where: Where = "", dry_run: DryRun = False, yes: Yes = False, as_json: Json = False
) -> None:
    """Let a paused run go on."""
    _one_or_all("resume", "Resumed", run_id, where, None, dry_run=dry_run, yes=yes, as_json=as_json)


@runs_app.command("quarantine")
def quarantine(
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept with the run.", prompt=False)],
    run_id: MaybeRun = "",
    where: Where = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Park a run until it is released: its calls are stopped, others go on."""
    _one_or_all("quarantine", "Quarantined", run_id, where, reason, dry_run=dry_run, yes=yes, as_json=as_json)


@runs_app.command("release")
def release(
    run_id: MaybeRun = "",
    reason: Reason = "",
    where: Where = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Fold a quarantined run again from the log and let it go on."""
    _one_or_all("release", "Released", run_id, where, reason, dry_run=dry_run, yes=yes, as_json=as_json)


@runs_app.command("compact")
def compact(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="Id of the run (r_...) or its handle (a_...).")],
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Replace the older part of a conversation by a summary: of a run that waits for input, or that is over."""
    answer, position = run(_compact(run_id, reason))
    if as_json:
        print_json({**answer, "position": position or None})
        return
    if not answer["compacted"]:
        console().print(Text.assemble("Nothing to compact in ", (answer["run_id"], NAME)))
        return
    spans = f": {number(answer['before_tokens'])} tokens became {number(answer['after_tokens'])}"
    line = Text.assemble("Compacted ", (answer["run_id"], NAME), spans, ("  event ", DIM), position)
    console().print(line)
    if answer["applied"] == "marker":
        console().print(Text("The next run of its session starts from the summary.", style=DIM))


@runs_app.command("cancel")
def cancel(
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept with the run.", prompt=False)],
    run_id: MaybeRun = "",
    where: Where = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """End a run that is under way."""
    if not _is_one(run_id, where, dry_run=dry_run):
        bulk.order("cancel", where, reason, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    answer, position = run(_cancel(run_id, reason))
    if as_json:
        print_json({**answer, "position": position or None})
    elif answer["cancelled"]:
        line = Text.assemble("Cancelled ", (answer["run_id"], NAME), ("  event ", DIM), position)
        console().print(line)
    if not answer["cancelled"]:
        raise Failure(f"{answer['run_id']} had ended before: {answer['status']} ({answer['reason']}).")


def _is_one(run_id: str, where: str, *, dry_run: bool) -> bool:
    if bool(run_id) == bool(where):
        raise WrongUse("Name one run, or give --where with a filter such as status=running,agent=assistant.")
    if run_id and dry_run:
        raise WrongUse("--dry-run shows what a filter means: it goes with --where.")
    return bool(run_id)


def _one_or_all(
    what: str, said: str, run_id: str, where: str, reason: str | None, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """The order to the run that is named, or to those of the filter; without a reason (None) none is sent."""
    if not _is_one(run_id, where, dry_run=dry_run):
        bulk.order(what, where, reason or "", dry_run=dry_run, yes=yes, as_json=as_json)
        return
    answer, position = run(_order(run_id, what, {} if reason is None else {"reason": reason}))
    if as_json:
        print_json({**answer, "position": position or None})
        return
    console().print(Text.assemble(f"{said} ", (answer["run_id"], NAME), ("  event ", DIM), position))


async def _order(run_id: str, what: str, body: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    async with api_of_here() as api:
        row = await row_of(api, run_id)
        answer = await api.post(f"/v1/runs/{row['run_id']}/{what}", body)
        return answer.value, answer.position


async def _compact(run_id: str, reason: str) -> tuple[Mapping[str, Any], str]:
    async with api_of_here() as api:
        row = await row_of(api, run_id)
        path = f"/v1/runs/{row['run_id']}/compact"
        answer = await api.post(path, {"reason": reason}, timeout_s=COMPACT_TIMEOUT_S)
        return answer.value, answer.position


async def _cancel(run_id: str, reason: str) -> tuple[Mapping[str, Any], str]:
    async with api_of_here() as api:
        row = await row_of(api, run_id)
        body = {"run_id": row["run_id"], "reason": reason}  # its handle may be another run's by now
        answer = await api.post(f"/v1/agents/{row['agent_id']}/cancel", body)
        return answer.value, answer.position
