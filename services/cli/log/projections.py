"""`loomlog projections lag, problems, rebuild`: the lag of the read models, records they lack, and rebuilding them.

Lag is computed from the cursors in Postgres and the current ends of the log, and is shown with the projector's last
status. Problems are the records that could not be projected to a row (projections/problems.py). A rebuild builds all
tables a second time from the first record, compares them with the live ones and switches without interrupting readers
(projections/engine/rebuild.py).

Before: services/cli/main.py. After: projections/.
"""

import os
import socket
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from loomlog.connectors.configuration.driver_options import kafka_options, postgres_options
from loomlog.connectors.errors import Permanent
from loomlog.connectors.kafka import FETCH_MAX_WAIT_MS, count_partitions, open_tail
from loomlog.connectors.kafka.schema_registry import load_codec
from loomlog.connectors.storage.postgres import PostgresReader, connect, open_reader
from loomlog.projections.engine.builds import PREFIX as SCHEMA
from loomlog.projections.engine.cursors import list_cursors
from loomlog.projections.engine.lag import ProjectionLag, lag_json, read_progress
from loomlog.projections.engine.parallel_rebuild import ParallelRebuild
from loomlog.projections.engine.rebuild import RebuildProgress, RebuildReport, rebuild
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.problems import PAGE_MAX, ProblemRow, count_problems, list_problems
from loomlog.schemas.position import Position
from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import FAILED, CliError
from loomlog.services.cli.log.reader import EVENTS_TOPIC, open_ranges
from loomlog.services.cli.settings import CLIENT_ID, CliSettings, load_cli_settings
from loomlog.services.cli.terminal.formatting import duration, number, one_line
from loomlog.services.cli.terminal.output import DIM, ERROR, SUCCESS, console, print_json, print_table
from loomlog.services.cli.terminal.projection_text import print_lag

PROGRESS_INTERVAL_S = 1.0
ERROR_CHARACTERS = 100
"""Characters of an error on one line; --json has all of it."""

Json = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]

projections_app = typer.Typer(
    help="The read models: their lag, their problems, and rebuilding them.", no_args_is_help=True
)


@projections_app.command("lag")
def lag(as_json: Json = False) -> None:
    """Show how many records the read models are behind the log, by partition."""
    cli = load_cli_settings(os.environ, working_directory=Path.cwd())
    report = run(read_lag(cli))
    if as_json:
        print_json(report)
    else:
        print_lag(console(), report)


@projections_app.command("problems")
def show_problems(
    limit: Annotated[int, typer.Option(min=1, max=PAGE_MAX, help="At most so many, by their place.")] = 50,
    as_json: Json = False,
) -> None:
    """List the records that could not be projected: position and reason."""
    cli = load_cli_settings(os.environ, working_directory=Path.cwd())
    report = run(read_problems(cli, limit))
    if as_json:
        print_json(report)
    else:
        print_problems(console(), report)


@projections_app.command("rebuild")
def rebuild_all(
    allow_difference: Annotated[
        bool, typer.Option("--allow-difference", help="Switch even if the new tables differ from the live ones.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Rebuild all read models from the first record, compare them with the live ones, and switch."""
    cli = load_cli_settings(os.environ, working_directory=Path.cwd())
    out = console()
    report = run(_run_rebuild(cli, out, allow_difference=allow_difference, is_quiet=as_json))
    positions = run(_read_positions(cli)) if report.switched else {}
    if as_json:
        print_json(_report_json(report, positions))
    else:
        _print_report(out, report, positions)
    if not report.switched:
        raise typer.Exit(FAILED)


async def read_lag(cli: CliSettings) -> ProjectionLag:
    """Read the lag from the tables and the log. Raises Unreachable, Transient or CliError."""
    kafka = kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka())
    reader = await _open_reader(cli)
    try:
        progress = await read_progress(reader)
    except Permanent as error:
        raise _missing_tables_error(error) from error
    finally:
        await reader.close()
    count = await count_partitions(kafka, EVENTS_TOPIC)
    async with open_ranges(kafka) as ranges:
        ends = {number: await ranges.end_offset(EVENTS_TOPIC, number) for number in range(count)}
    return lag_json(progress, EVENTS_TOPIC, ends, now_s=time.time())


async def read_problems(cli: CliSettings, limit: int) -> dict[str, Any]:
    """Return the first `limit` problems and their total number as JSON. Raises Unreachable, Transient or Failure."""
    reader = await _open_reader(cli)
    try:
        rows, count = await list_problems(reader, limit=limit), await count_problems(reader)
    except Permanent as error:
        raise _missing_tables_error(error) from error
    finally:
        await reader.close()
    return {"count": count, "problems": [_problem_json(row) for row in rows]}


def print_problems(out: Console, report: Mapping[str, Any]) -> None:
    """Print the problems as a table."""
    if not report["count"]:
        out.print(Text("Everything in the log could be projected.", style=SUCCESS))
        return
    print_table(
        out,
        ("RECORD", "AT", "RUN", "KIND", "ERROR"),
        [
            (
                str(Position(topic=problem["topic"], partition=problem["partition"], offset=problem["offset"])),
                problem["at"],
                problem["run_id"] or "",
                problem["kind"],
                one_line(problem["error"], ERROR_CHARACTERS),
            )
            for problem in report["problems"]
        ],
    )
    if left := report["count"] - len(report["problems"]):
        out.print(Text(f"{left} more; --limit shows them.", style=DIM))
    advice = "`loomlog projections rebuild` leaves out what can be read once the cause is removed."
    out.print(Text(f"{advice} --json has the bytes.", style=DIM))


async def _open_reader(cli: CliSettings) -> PostgresReader:
    return await open_reader(
        postgres_options(cli.settings, CLIENT_ID, dsn=cli.postgres()), schema=SCHEMA, max_connections=1
    )


def _missing_tables_error(error: Permanent) -> Exception:
    """Convert a failed read to the error that explains it."""
    if error.kind != "not_found":
        return error
    return CliError("The read models do not exist yet: the projector makes them when it first runs.")


async def _read_positions(cli: CliSettings) -> dict[int, int]:
    reader = await _open_reader(cli)
    try:
        return {cursor.partition: cursor.next_offset for cursor in await list_cursors(reader)}
    finally:
        await reader.close()


async def _run_rebuild(cli: CliSettings, out: Console, *, allow_difference: bool, is_quiet: bool) -> RebuildReport:
    kafka = kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka())
    postgres = postgres_options(cli.settings, "loomlog-rebuild", dsn=cli.postgres())
    partitions = await count_partitions(kafka, EVENTS_TOPIC)
    if not partitions:
        raise CliError(f"There is no topic {EVENTS_TOPIC} at {kafka.bootstrap}. `loomlog topics apply` makes it.")
    reporter = _RebuildProgress(out, is_quiet=is_quiet)
    owner = f"loomlog-rebuild-{socket.gethostname()}-{os.getpid()}"
    connecting, opening = (
        partial(connect, postgres),
        partial(open_tail, kafka, EVENTS_TOPIC, fetch_max_wait_ms=FETCH_MAX_WAIT_MS),
    )
    return await rebuild(
        connecting,
        opening,
        EVENTS_TOPIC,
        partitions,
        owner=owner,
        require_equal=False if allow_difference else None,
        codec=await load_codec(cli.settings),
        on_progress=reporter.on_progress,
        fill=ParallelRebuild(
            connect=connecting,
            open_tail=opening,
            make_codec=partial(load_codec, cli.settings),
            topic=EVENTS_TOPIC,
            owner=owner,
        ),
    )


class _RebuildProgress:
    """Progress output of a rebuild, at most one line a second."""

    def __init__(self, out: Console, *, is_quiet: bool) -> None:
        self._out = out
        self._is_quiet = is_quiet
        self._reported_at = time.monotonic()

    def on_progress(self, progress: RebuildProgress) -> None:
        now = time.monotonic()
        if self._is_quiet or now - self._reported_at < PROGRESS_INTERVAL_S:
            return
        self._reported_at = now
        left = duration(progress.remaining / max(progress.events_per_s, 1.0))
        self._out.print(
            Text(f"{number(progress.events)} events, {number(progress.remaining)} to go, about {left}", style=DIM)
        )


def _report_json(report: RebuildReport, positions: Mapping[int, int]) -> dict[str, Any]:
    return {
        "build": report.build,
        "replaced": report.replaced,
        "switched": report.switched,
        "equal": report.equal,
        "events": report.events,
        "seconds": round(report.seconds, 3),
        "dropped": list(report.dropped),
        "tables": {
            name: {"live_rows": live.rows, "new_rows": new.rows, "equal": live == new}
            for name, (live, new) in report.tables.items()
        },
        "positions": _position_texts(positions),
    }


def _position_texts(next_offsets: Mapping[int, int]) -> list[str]:
    """Return the positions of the last projected events of runs, by partition."""
    return [
        str(Position(topic=EVENTS_TOPIC, partition=partition, offset=next_offset - 1))
        for partition, next_offset in sorted(next_offsets.items())
        if next_offset
    ]


def _print_report(out: Console, report: RebuildReport, positions: Mapping[int, int]) -> None:
    print_table(
        out,
        ("TABLE", "LIVE ROWS", "NEW ROWS", ""),
        [
            (name, str(live.rows), str(new.rows), Text("equal", SUCCESS) if live == new else Text("DIFFERENT", ERROR))
            for name, (live, new) in report.tables.items()
        ],
        right_aligned=(1, 2),
    )
    took = f"{number(report.events)} events in {duration(report.seconds)}"
    if report.switched:
        reached = ", ".join(_position_texts(positions))
        out.print(
            Text(f"Build {report.build} is live now, from {took}; build {report.replaced} is kept.", style=SUCCESS)
        )
        out.print(Text(f"projected up to {reached or 'the beginning'}", style=DIM))
    else:
        out.print(
            Text(
                f"Build {report.build} ({took}) differs and was not switched to; build {report.replaced} stays live. "
                "The new one is kept for a look until the next rebuild; --allow-difference switches.",
                style=ERROR,
            )
        )


def _problem_json(row: ProblemRow) -> dict[str, Any]:
    return {
        "topic": row.topic,
        "partition": row.partition,
        "offset": row.offset,
        "at": format_rfc3339(row.timestamp_ms),
        "run_id": row.run_id or None,
        "kind": row.kind,
        "error": row.error,
        "key_hex": None if row.key is None else row.key.hex(),
        "value_hex": None if row.value is None else row.value.hex(),
    }
