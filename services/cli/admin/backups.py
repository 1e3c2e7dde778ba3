"""`loomlog backup create, ls, export, restore, rm`: the state as one file, over the API.

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
from msgspec.structs import asdict
from rich.console import Console
from rich.text import Text

from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import FAILED, CliError, UsageError
from loomlog.services.cli.http.api import ApiResponse
from loomlog.services.cli.http.requests import get, open_api, send
from loomlog.services.cli.log.export_file import check_target, partial_export
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.formatting import pluralize, size
from loomlog.services.cli.terminal.output import DIM, NAME, WARNING, console, print_json, print_table
from loomlog.services.stream.archive.state_file import SUFFIX, BrokenStateFile
from loomlog.services.stream.archive.state_validation import ValidatedState, validate_state

BACKUP_ID_PATTERN = re.compile(r"snap_[0-9]+_(?:[0-9a-f]{32}|[0-9a-f]{8})")
FILE_TIMEOUT_S = 24 * 3600.0
"""Longest wait in seconds for a file to be written or imported; a state may have millions of runs."""
BACKUPS_PATH = "/v1/_snapshots"

backup_app = typer.Typer(
    name="backup", help="Back up everything, or a tenant, to one file, and restore it.", no_args_is_help=True
)
BackupId = Annotated[str, typer.Argument(metavar="ID", help="Id of a backup (snap_...); `backup ls` lists them.")]


@backup_app.command("create")
def create(
    tenant: Annotated[str, typer.Option("--tenant", help="Only this tenant.")] = "",
    label: Annotated[str, typer.Option("--label", help="A name for people.")] = "",
    history: Annotated[
        bool, typer.Option("--history/--no-history", help="Also runs that have ended and that no live run continues.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Write the current state to a file that is stored next to the payloads."""
    body: dict[str, Any] = {"include_history": history}
    body |= {name: value for name, value in (("tenant", tenant), ("label", label)) if value}
    backup = send("POST", BACKUPS_PATH, body, timeout_s=FILE_TIMEOUT_S).value
    if as_json:
        print_json(backup)
        return
    out = console()
    what = f"{pluralize(backup['runs'], 'run')}, {backup['live_runs']} under way, "
    what += f"{_aggregates_text(backup)}{size(backup['byte_size'])}"
    out.print(Text.assemble("Backup ", (backup["id"], NAME), f"  {what}"))
    out.print(Text.assemble(("State up to ", DIM), ", ".join(backup["positions"]) or "nothing"))
    _print_warnings(out, backup["warnings"])


@backup_app.command("ls")
def list_backups(as_json: Json = False) -> None:
    """List the stored backups, newest first."""
    backups = get(BACKUPS_PATH)
    if as_json:
        print_json(backups)
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
        for entry in backups["entries"]
    ]
    print_table(console(), ("ID", "CREATED", "TENANT", "RUNS", "LIVE", "SIZE", "LABEL"), rows, right_aligned=(3, 4, 5))


@backup_app.command("export")
def export(
    backup_id: BackupId,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Where to; named after the backup if not given.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    as_json: Json = False,
) -> None:
    """Write a backup to a local file, and check it to its last line."""
    _require_backup_id(backup_id)
    path = file or Path(f"{backup_id}{SUFFIX}")
    check_target(path, force=force)
    state = run(_download_backup(backup_id, path))
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
                "aggregates": state.aggregates,
                "aggregate_events": state.aggregate_events,
                "left_out": [asdict(one) for one in state.left_out],
            }
        )
        return
    what = f"{pluralize(state.runs, 'run')}, {pluralize(state.events, 'event')}, "
    what += f"{_aggregates_text({'aggregates': state.aggregates})}{size(path.stat().st_size)}"
    out = console()
    out.print(Text.assemble("Exported ", (backup_id, NAME), (f"  {what}", DIM), f"\n{path}"))
    _print_warnings(out, [one.sentence for one in state.left_out])


@backup_app.command("restore")
def restore(
    source: Annotated[str, typer.Argument(metavar="FILE|ID", help="A file of `backup export`, or the id of a backup.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check it and count what would be added.")] = False,
    sealed: Annotated[
        bool, typer.Option("--sealed", help="Also live runs whose keys are missing; they end as cancelled.")
    ] = False,
    in_clear: Annotated[
        bool, typer.Option("--in-clear", help="Also plaintext content where content is encrypted; it stays readable.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Restore a backup. What exists already is not changed; live runs continue here."""
    path = Path(source)
    is_file = path.is_file()
    if not is_file and not BACKUP_ID_PATTERN.fullmatch(source):
        raise UsageError(f"{source} is neither a local file nor the id of a backup (snap_...).")
    how = {"dry_run": dry_run, "sealed": sealed, "in_clear": in_clear}
    report = (run(_restore_file(path, how)) if is_file else _restore_stored(source, how)).value
    if as_json:
        print_json(report)
    else:
        _print_restore(console(), report)
    if report["runs_failed"] or report.get("aggregates_failed"):
        raise typer.Exit(FAILED)


@backup_app.command("rm")
def remove(backup_id: BackupId, as_json: Json = False) -> None:
    """Delete a stored backup. Idempotent."""
    _require_backup_id(backup_id)
    send("DELETE", f"{BACKUPS_PATH}/{backup_id}")
    if as_json:
        print_json({"backup_id": backup_id, "removed": True})
        return
    console().print(Text.assemble("Removed ", (backup_id, NAME), ("  no event: it was not in the log", DIM)))


def _require_backup_id(backup_id: str) -> None:
    """Check an id that becomes part of local and remote paths. Raises UsageError."""
    if not BACKUP_ID_PATTERN.fullmatch(backup_id):
        raise UsageError(f"{backup_id} is not the id of a backup (snap_...); `loomlog backup ls` lists them.")


async def _restore_file(path: Path, options: Mapping[str, bool]) -> ApiResponse:
    params = {name: 1 for name, is_on in options.items() if is_on}
    async with open_api() as api:
        return await api.send_file(f"{BACKUPS_PATH}/restore", path, params=params, timeout_s=FILE_TIMEOUT_S)


def _restore_stored(backup_id: str, options: Mapping[str, bool]) -> ApiResponse:
    return send("POST", f"{BACKUPS_PATH}/{backup_id}/restore", options, timeout_s=FILE_TIMEOUT_S)


async def _download_backup(backup_id: str, path: Path) -> ValidatedState:
    """Download a backup; the file gets its final name once it is complete and checked."""
    try:
        with partial_export(path) as partial:
            async with open_api() as api:
                await api.download(f"{BACKUPS_PATH}/{backup_id}/export?format=gzip", partial)
            with partial.open("rb") as written:
                return validate_state(written)
    except BrokenStateFile as error:
        raise CliError(f"The export of {backup_id} did not arrive whole: {error}. Try again.") from error


def _print_restore(out: Console, report: Mapping[str, Any]) -> None:
    verb = "Would restore" if report["dry_run"] else "Restored"
    out.print(
        f"{verb} {pluralize(report['runs_restored'], 'run')} ({report['runs_continued']} continue here), "
        f"{pluralize(report['events_restored'], 'event')}, {pluralize(report['pauses_restored'], 'pause')}, "
        f"{pluralize(report['limits_restored'], 'limit')}, "
        f"{pluralize(report['blobs_restored'], 'payload')}; {pluralize(report['runs_skipped'], 'run')} existed already"
    )
    if any(report.get(f"aggregates_{what}") for what in ("restored", "skipped", "failed")):
        out.print(
            f"{verb} {pluralize(report['aggregates_restored'], 'aggregate')} of other families, "
            f"{pluralize(report['aggregate_events_restored'], 'event')}; "
            f"{report['aggregates_skipped']} existed already, {report['aggregates_failed']} could not be restored"
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


def _aggregates_text(counts: Mapping[str, Any]) -> str:
    """Return how many aggregates of other families there are, with a comma; nothing without any."""
    number = counts.get("aggregates", 0)
    return f"{pluralize(number, 'aggregate')} of other families, " if number else ""


def _print_warnings(out: Console, warnings: list[str]) -> None:
    for warning in warnings:
        out.print(Text(warning, style=WARNING))
