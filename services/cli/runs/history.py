"""`loomlog runs diff, fork, export, import`: comparing runs, forking from an event, runs as files.

Before: watch.py. After: the API; services/stream/archive/bundle_replay.py checks a file before it gets its
name.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from loomlog.connectors.client.run_stream import RunStream
from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import FAILED, CliError, UsageError
from loomlog.services.cli.http.api import ApiResponse
from loomlog.services.cli.http.requests import open_api, print_written
from loomlog.services.cli.log.export_file import check_target, partial_export
from loomlog.services.cli.runs.control import runs_app
from loomlog.services.cli.runs.runs import (
    Json,
    RunId,
    count_turns_before,
    follow,
    get_run,
    resolve_run_id,
    wait_until_accepted,
)
from loomlog.services.cli.terminal.formatting import money, number, one_line, pluralize
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, SUCCESS, WARNING, console, print_json, print_table
from loomlog.services.cli.terminal.run_text import run_line

if TYPE_CHECKING:
    from loomlog.services.stream.archive.bundle_replay import BundleReplay

TEXT_SETTINGS = ("provider", "model", "effort", "system_prompt")
LIST_SETTINGS = ("tools", "stop")
STEP_COLUMNS = 48
"""Characters of a step in the table; `--json` has all of it."""
IMPORT_TIMEOUT_S = 600.0
"""Seconds to wait for an import; a large file is read three times and folded once before the answer."""

__all__ = ["runs_app"]


@runs_app.command("diff")
def diff(
    a: Annotated[
        str,
        typer.Argument(metavar="A", help="A run: its id, handle, or the start of one.", callback=resolve_run_id),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="Another run.", callback=resolve_run_id)],
    at: Annotated[int | None, typer.Option("--at", min=1, help="A as it was at that seq.")] = None,
    with_at: Annotated[int | None, typer.Option("--with-at", min=1, help="B as it was at that seq.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also the steps that are the same.")] = False,
    as_json: Json = False,
) -> None:
    """Show where two runs first differ, and how. Exits 0 in either case."""
    report = run(_get_diff(a, b, at, with_at))
    if as_json:
        print_json(report)
    else:
        _print_diff(console(), report, include_equal=everything)


async def _get_diff(a: str, b: str, at: int | None, with_at: int | None) -> Mapping[str, Any]:
    async with open_api() as api:
        one, other = await get_run(api, a), await get_run(api, b)
        params: dict[str, str | int] = {"with": other["run_id"], "at": at or "", "with_at": with_at or ""}
        report: Mapping[str, Any] = await api.get(f"/v1/runs/{one['run_id']}/diff", params)
        return report


def _print_diff(out: Console, comparison: Mapping[str, Any], *, include_equal: bool) -> None:
    a, b = comparison["a"], comparison["b"]
    for name, side in (("a", a), ("b", b)):
        tokens = f"{number(side['input_tokens'])} tokens in, {number(side['output_tokens'])} out"
        cost = money(side["cost_micros"], side["currency"] or "")
        spent = f"{side['status']} at {side['at']}, {pluralize(side['turns'], 'turn')}, {tokens}, {cost}"
        out.print(Text.assemble((f"{name}  ", DIM), (side["run_id"], NAME), (f"  {spent}", DIM)))
    prefix = _describe_shared_prefix(a, b)
    if prefix:
        out.print(Text(f"   {prefix}", style=DIM))
    out.print()
    if comparison["same"]:
        out.print(Text("The runs are equal: same definition, same steps, same result.", style=SUCCESS))
        return
    settings = [*comparison["definition"], *comparison["system"]]
    steps = pluralize(len(comparison["steps"]), "step")
    if comparison["first"] is None:
        what = f"The conversations are equal: {steps}."
        out.print(Text(what, style="" if settings else SUCCESS))
    else:
        out.print(
            Text.assemble(
                f"{comparison['shared_steps']} of {steps} are equal; the first difference is step ",
                (str(comparison["first"]["place"]), WARNING),
                f": {', '.join(comparison['first']['differs'])}.",
            )
        )
    for title, changed in (("SETTING", settings), ("OWN TOTALS", comparison["outcome"])):
        if changed:
            out.print()
            rows = [(one["name"], _shorten(one["a"]), _shorten(one["b"])) for one in changed]
            print_table(out, (title, "A", "B"), rows)
    if comparison["first"] is None:
        return
    out.print()
    shown = [pair for pair in comparison["steps"] if include_equal or pair["differs"]]
    table = [
        (str(pair["place"]), ", ".join(pair["differs"]), _format_step(pair["a"]), _format_step(pair["b"]))
        for pair in shown
    ]
    print_table(out, ("STEP", "DIFFERS", "A", "B"), table)


def _describe_shared_prefix(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    for name, fork, origin, other in (("b", b, "a", a), ("a", a, "b", b)):
        forked = fork["forked_from"]
        if forked is not None and forked["run_id"] == other["run_id"]:
            return f"{name} is a fork of {origin}: events 1 to {forked['seq']} are shared, totals count its own turns"
    return ""


def _format_step(step: Mapping[str, Any] | None) -> str:
    if step is None:
        return "-"
    calls = [f"{call['name']}({call['text']})" if step["who"] == "agent" else call["text"] for call in step["calls"]]
    return one_line(f"{step['who']}: {' '.join([step['text'], *calls]).strip()}", STEP_COLUMNS)


def _shorten(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return one_line(text, STEP_COLUMNS)


@runs_app.command("fork")
def fork(
    run_id: RunId,
    at: Annotated[int, typer.Option("--at", min=1, help="Seq of the last event that is shared.")],
    prompt: Annotated[str, typer.Option("--prompt", help="What is said there; needed after an answer.")] = "",
    definition: Annotated[
        str, typer.Option(help="current, or the beginning of a definition's hash; as the run when not given.")
    ] = "",
    agent: Annotated[str, typer.Option(help="Another agent, as it is configured now.")] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change the definition: model=..., ...")
    ] = None,
    should_follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Show the fork until it ends.")] = True,
    idempotency_key: Annotated[
        str, typer.Option("--idempotency-key", help="The same key again gives the same fork, not a second one.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Start a new run that shares the events 1 to SEQ of another and makes new calls from there."""
    body: dict[str, Any] = {
        "at": at,
        "prompt": prompt or None,
        "definition": definition or None,
        "agent": agent or None,
    }
    body["overrides"] = parse_overrides(settings or ())
    key = idempotency_key or str(uuid.uuid4())
    run(_start_fork(run_id, body, key, should_follow=should_follow, as_json=as_json))


async def _start_fork(run_id: str, body: Mapping[str, Any], key: str, *, should_follow: bool, as_json: bool) -> None:
    async with open_api() as api:
        row = await get_run(api, run_id)
        path = f"/v1/runs/{row['run_id']}/fork?ids=1"
        followed = RunStream(api, body=body, idempotency_key=key, path=path)
        if should_follow:
            origin = {"forked_from": {"run_id": row["run_id"], "seq": body["at"]}}
            turns = 0 if as_json else await count_turns_before(api, origin)
            await follow(api, followed, as_json=as_json, turns_before=turns)
            return
        await wait_until_accepted(followed)
        ids = followed.ids
        if as_json:
            forked_from = {"run_id": row["run_id"], "seq": body["at"]}
            position = ids.position or None
            print_json({**asdict(ids), "forked_from": forked_from, "position": position, "idempotency_key": key})
            return
        out = console()
        out.print(run_line(ids))
        out.print(Text(f"`loomlog runs diff {row['run_id']} {ids.run_id}` compares them.", style=DIM))


def parse_overrides(settings: Sequence[str]) -> dict[str, Any] | None:
    """Parse `name=value` pairs into the API's form; commas separate list items. Raises UsageError."""
    overrides: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        name = name.strip()
        if not equals or not name:
            raise UsageError(f"--set {setting!r}: expected NAME=VALUE, for example model=...")
        overrides[name] = _parse_value(name, value)
    return overrides or None


def _parse_value(name: str, value: str) -> Any:
    if name in TEXT_SETTINGS:
        return value
    if name in LIST_SETTINGS and not value.startswith("["):
        return [part.strip() for part in value.split(",") if part.strip()]
    try:
        return json.loads(value)
    except ValueError:
        return value  # the API reports the type it expects of that field, or that the field is unknown


@runs_app.command("export")
def export(
    run_id: RunId,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Where to; named after the run if not given.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    as_json: Json = False,
) -> None:
    """Write a run, and all runs it continues, to one file that replays without a broker."""
    path, replay = run(_download_export(run_id, file, force=force))
    size_bytes = path.stat().st_size
    if as_json:
        print_json(
            {
                "file": str(path),
                "size_bytes": size_bytes,
                "run_id": replay.header.run_id,
                "runs": len(replay.header.runs),
                "seq": replay.replayed.seq,
                "state_sha256": replay.replayed.state_sha256,
                "drift": list(replay.drift),
            }
        )
    else:
        out = console()
        events, runs = pluralize(replay.replayed.seq, "event"), pluralize(replay.ancestors, "earlier run")
        whole = f"{events}, {runs}, {size_bytes} bytes"
        out.print(Text.assemble("Exported ", (replay.header.run_id, NAME), (f"  {whole}", DIM), f"\n{path}"))
        for sentence in replay.drift:
            out.print(Text(f"  {sentence}", style=ERROR))
    if replay.drift:
        raise typer.Exit(FAILED)


async def _download_export(run_id: str, file: Path | None, *, force: bool) -> tuple[Path, "BundleReplay"]:
    """Download an export; the file gets its final name once it is complete and was replayed.

    Folding a file needs the codec and the run's rules: imported here, so that the other commands of runs start fast.
    """
    from loomlog.services.stream.archive.bundle import SUFFIX, BrokenBundle
    from loomlog.services.stream.archive.bundle_replay import replay_bundle

    async with open_api() as api:
        row = await get_run(api, run_id)
        path = file or Path(f"{row['run_id']}{SUFFIX}")
        check_target(path, force=force)
        try:
            with partial_export(path) as partial:
                await api.download(f"/v1/runs/{row['run_id']}/export", partial)
                with partial.open("rb") as written:
                    replay = replay_bundle(written, through_bytes=False)
        except BrokenBundle as error:
            raise CliError(f"The export of {row['run_id']} did not arrive whole: {error}. Try again.") from error
        return path, replay


@runs_app.command("import")
def import_run(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="What `runs export` wrote.")
    ],
    in_clear: Annotated[
        bool, typer.Option("--in-clear", help="Also content in clear where it is encrypted; it stays readable.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Import an exported run with all runs it continues. Idempotent."""
    response = run(_upload_import(file, in_clear=in_clear))
    if as_json:
        print_written(response)
        return
    out = console()
    for one in response.value["runs"]:
        outcome = "imported" if one["imported"] else "existed already"
        out.print(Text.assemble((one["run_id"], NAME), f"  {outcome}"))
    out.print(Text.assemble(("event ", DIM), response.position))


async def _upload_import(file: Path, *, in_clear: bool) -> ApiResponse:
    params = {"in_clear": 1} if in_clear else None
    async with open_api() as api:
        return await api.send_file("/v1/runs/import", file, params=params, timeout_s=IMPORT_TIMEOUT_S)
