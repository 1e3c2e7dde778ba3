"""`loomlog snapshot create, ls, export, restore, rm`: the state as one file, over the API.

An export gets its name when it has arrived whole and was checked to its last line, so a broken file never looks like a
good one. A restore takes a file, or the id of one that is kept where the API is.

Before: services/cli/main.py. After: services/cli/http/api.py; services/stream/archive/state_validation.py checks a
file.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import FAILED, CliError, UsageError
from loomlog.services.cli.http.api import ApiResponse
from loomlog.services.cli.log.export_file import check_target, partial_export
from loomlog.services.cli.runs.runs import Json, open_api
from loomlog.services.cli.terminal.formatting import pluralize, size
from loomlog.services.cli.terminal.output import DIM, NAME, WARNING, console, print_json, print_table
from loomlog.services.stream.archive.state_file import SUFFIX, BrokenStateFile
from loomlog.services.stream.archive.state_validation import ValidatedState, validate_state

SNAPSHOT_ID_PATTERN = re.compile(r"snap_[0-9]+_[0-9a-f]{8}")
FILE_TIMEOUT_S = 24 * 3600.0
"""Longest wait for a file to be written or taken in; a state may have millions of runs."""
SNAPSHOTS_PATH = "/v1/_snapshots"

snapshot_app = typer.Typer(name="snapshot", help="The state, or that of a tenant, as one file.", no_args_is_help=True)
SnapshotId = Annotated[str, typer.Argument(metavar="ID", help="Of a snapshot (snap_...); `snapshot ls` lists them.")]


@snapshot_app.command("create")
def create(
    tenant: Annotated[str, typer.Option("--tenant", help="Only this tenant.")] = "",
    label: Annotated[str, typer.Option("--label", help="A name for people.")] = "",
    history: Annotated[
        bool, typer.Option("--history/--no-history", help="Also runs that are over and nobody goes on with.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Write the state as it is now to a file that is kept beside the payloads."""
    body: dict[str, Any] = {"include_history": history}
    body |= {name: value for name, value in (("tenant", tenant), ("label", label)) if value}
    found = run(_post(SNAPSHOTS_PATH, body)).value
    if as_json:
        print_json(found)
        return
    out = console()
    what = f"{pluralize(found['runs'], 'run')}, {found['live_runs']} under way, {size(found['byte_size'])}"
    out.print(Text.assemble("Snapshot ", (found["id"], NAME), f"  {what}"))
    out.print(Text.assemble(("The state up to ", DIM), ", ".join(found["positions"]) or "nothing"))
    _print_warnings(out, found["warnings"])


@snapshot_app.command("ls")
def list_snapshots(as_json: Json = False) -> None:
    """List the snapshots that are kept, newest first."""
    found = run(_get(SNAPSHOTS_PATH))
    if as_json:
        print_json(found)
        return
    rows = [
        (
            entry["id"],
            entry["created_at"],
            entry["tenant"] or "all",
            str(entry["runs"]),
            str(entry["live_runs"]),
            size(entry["byte_size"]),
            entry["label"],
        )
        for entry in found["entries"]
    ]
    print_table(console(), ("ID", "CREATED", "TENANT", "RUNS", "LIVE", "SIZE", "LABEL"), rows, right_aligned=(3, 4, 5))


@snapshot_app.command("export")
def export(
    snapshot_id: SnapshotId,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Where to; named after the snapshot if not given.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    as_json: Json = False,
) -> None:
    """Write a snapshot to a file here, and check it to its last line."""
    _require_snapshot_id(snapshot_id)
    path = file or Path(f"{snapshot_id}{SUFFIX}")
    check_target(path, force=force)
    state = run(_download_snapshot(snapshot_id, path))
    if as_json:
        print_json(
            {
                "file": str(path),
                "size_bytes": path.stat().st_size,
                "sha256": state.sha256,
                "runs": state.runs,
                "live_runs": state.live_runs,
                "events": state.events,
                "pauses": state.pauses,
                "limits": state.limits,
                "blobs": state.blobs,
            }
        )
        return
    what = f"{pluralize(state.runs, 'run')}, {pluralize(state.events, 'event')}, {size(path.stat().st_size)}"
    console().print(Text.assemble("Exported ", (snapshot_id, NAME), (f"  {what}", DIM), f"\n{path}"))


@snapshot_app.command("restore")
def restore(
    source: Annotated[str, typer.Argument(metavar="FILE|ID", help="A file of `snapshot export`, or a snapshot.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check it and say what would be added.")] = False,
    sealed: Annotated[
        bool, typer.Option("--sealed", help="Also live runs whose keys are not here; they end as cancelled.")
    ] = False,
    in_clear: Annotated[
        bool, typer.Option("--in-clear", help="Also content in clear where it is encrypted; it stays readable.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Take in a state. What is here already is left as it is; runs that were under way go on here."""
    path = Path(source)
    is_file = path.is_file()
    if not is_file and not SNAPSHOT_ID_PATTERN.fullmatch(source):
        raise UsageError(f"{source} is neither a file here nor the id of a snapshot (snap_...).")
    how = {"dry_run": dry_run, "sealed": sealed, "in_clear": in_clear}
    found = run(_restore_file(path, how) if is_file else _restore_stored(source, how)).value
    if as_json:
        print_json(found)
    else:
        _print_restore(console(), found)
    if found["runs_failed"]:
        raise typer.Exit(FAILED)


@snapshot_app.command("rm")
def remove(snapshot_id: SnapshotId) -> None:
    """Delete a snapshot that is kept; also when there is none."""
    _require_snapshot_id(snapshot_id)
    run(_delete(f"{SNAPSHOTS_PATH}/{snapshot_id}"))
    console().print(Text.assemble("Removed ", (snapshot_id, NAME), ("  no event: it was not in the log", DIM)))


def _require_snapshot_id(snapshot_id: str) -> None:
    """It becomes a part of paths, here and there. Raises UsageError."""
    if not SNAPSHOT_ID_PATTERN.fullmatch(snapshot_id):
        raise UsageError(f"{snapshot_id} is no id of a snapshot (snap_...); `loomlog snapshot ls` lists them.")


async def _get(path: str) -> Any:
    async with open_api() as api:
        return await api.get(path)


async def _post(path: str, body: Mapping[str, Any]) -> ApiResponse:
    async with open_api() as api:
        return await api.post(path, body, timeout_s=FILE_TIMEOUT_S)


async def _delete(path: str) -> None:
    async with open_api() as api:
        await api.delete(path)


async def _restore_file(path: Path, options: Mapping[str, bool]) -> ApiResponse:
    params = {name: 1 for name, is_on in options.items() if is_on}
    async with open_api() as api:
        return await api.send_file(f"{SNAPSHOTS_PATH}/restore", path, params=params, timeout_s=FILE_TIMEOUT_S)


async def _restore_stored(snapshot_id: str, options: Mapping[str, bool]) -> ApiResponse:
    async with open_api() as api:
        return await api.post(f"{SNAPSHOTS_PATH}/{snapshot_id}/restore", options, timeout_s=FILE_TIMEOUT_S)


async def _download_snapshot(snapshot_id: str, path: Path) -> ValidatedState:
    """The file gets its name when it is whole and was checked."""
    try:
        with partial_export(path) as partial:
            async with open_api() as api:
                await api.download(f"{SNAPSHOTS_PATH}/{snapshot_id}/export?format=gzip", partial)
            with partial.open("rb") as written:
                return validate_state(written)
    except BrokenStateFile as error:
        raise CliError(f"The export of {snapshot_id} did not arrive whole: {error}. Try again.") from error


def _print_restore(out: Console, report: Mapping[str, Any]) -> None:
    verb = "Would restore" if report["dry_run"] else "Restored"
    out.print(
        f"{verb} {pluralize(report['runs_restored'], 'run')} ({report['runs_continued']} go on here), "
        f"{pluralize(report['events_restored'], 'event')}, {pluralize(report['pauses_restored'], 'pause')}, "
        f"{pluralize(report['limits_restored'], 'limit')}, "
        f"{pluralize(report['blobs_restored'], 'payload')}; {pluralize(report['runs_skipped'], 'run')} here already"
    )
    for position in report["positions"]:
        out.print(Text.assemble(("event ", DIM), position))
    if report["runs_sealed"]:
        out.print(
            Text(
                f"{pluralize(report['runs_sealed'], 'run')} cannot be read here: keys are missing or erased.",
                style=WARNING,
            )
        )
    if report["runs_failed"]:
        out.print(Text(f"{pluralize(report['runs_failed'], 'run')} could not be restored.", style=WARNING))
    _print_warnings(out, report["warnings"])


def _print_warnings(out: Console, warnings: list[str]) -> None:
    for warning in warnings:
        out.print(Text(warning, style=WARNING))
