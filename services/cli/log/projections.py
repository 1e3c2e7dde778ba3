"""`loomlog projections ls, lag, problems, rebuild`: the read models, their lag, records they lack, and rebuilding them.

There are two: of runs, and of the entities of all other families. Lag is computed from the cursors in Postgres and the
current ends of the log, and is shown with the projectors' last status. Problems are the records that could not be
projected to a row (projections/problems.py). A rebuild builds all tables of a read model a second time from the first
record, compares them with the live ones and switches without interrupting readers (projections/engine/rebuild.py); with
--family, it rebuilds the rows of that family alone.

Before: services/cli/main.py. After: projections/.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from loomlog.connectors.configuration.driver_options import installation_key, kafka_options, postgres_options
from loomlog.connectors.errors import Permanent
from loomlog.connectors.kafka import count_partitions, open_ranges, open_tail
from loomlog.connectors.kafka.schema_registry import load_codec
from loomlog.connectors.storage.postgres import PostgresReader, connect, open_reader
from loomlog.projections.engine.builds import (
    CHANNEL_TABLES,
    ENTITY_TABLES,
    LIVE,
    RUN_TABLES,
    has_status,
    read_builds,
    read_status,
)
from loomlog.projections.engine.cursors import list_cursors
from loomlog.projections.engine.lag import ProjectionLag, lag_json, read_progress
from loomlog.projections.engine.parallel_rebuild import ParallelRebuild
from loomlog.projections.engine.read_models import EntityModel, ReadModel, RunModel
from loomlog.projections.engine.rebuild import RebuildProgress, RebuildReport, rebuild
from loomlog.projections.entities import count_entities, list_folds
from loomlog.projections.problems import PAGE_MAX, ProblemRow, count_problems, list_problems
from loomlog.schemas.position import Position
from loomlog.services.application.log.projection_problems import problem_json
from loomlog.services.application.log.records import CHANNEL_TOPIC, ENTITY_TOPIC, EVENTS_TOPIC
from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import FAILED, CliError
from loomlog.services.cli.settings import CLIENT_ID, CliSettings, current_settings
from loomlog.services.cli.terminal.formatting import duration, number, one_line
from loomlog.services.cli.terminal.output import DIM, ERROR, SUCCESS, console, print_json, print_table
from loomlog.services.cli.terminal.projection_text import print_lag
from loomlog.services.core.families import CHANNEL_SET
from loomlog.services.families import FamilyProblem
from loomlog.services.families.entity_folds import entity_model
from loomlog.services.families.registry import families_of

PROGRESS_INTERVAL_S = 1.0
ERROR_CHARACTERS = 100
"""Characters of an error on one line; --json has all of it."""

Json = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]


class ModelName(StrEnum):
    """A read model, as users name it."""

    RUNS = "runs"
    ENTITIES = "entities"
    CHANNELS = "channels"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Where a read model is, and from which topic it is made."""

    topic: str
    schema: str
    make: Callable[[CliSettings], Callable[[], ReadModel]]
    """Returns a function that processes of a rebuild can be given."""


SOURCES = {
    ModelName.RUNS: ModelSource(topic=EVENTS_TOPIC, schema=RUN_TABLES.prefix, make=lambda cli: RunModel),
    ModelName.ENTITIES: ModelSource(
        topic=ENTITY_TOPIC,
        schema=ENTITY_TABLES.prefix,
        make=lambda cli: partial(entity_model, installation_key(cli.settings)),
    ),
    ModelName.CHANNELS: ModelSource(
        topic=CHANNEL_TOPIC,
        schema=CHANNEL_TABLES.prefix,
        make=lambda cli: partial(entity_model, installation_key(cli.settings), CHANNEL_SET),
    ),
}
Topic = Annotated[
    ModelName, typer.Option("--topic", help="The read model: of runs, of the other families, or of channels.")
]

projections_app = typer.Typer(
    help="The read models: their lag, their problems, and rebuilding them.", no_args_is_help=True
)


@projections_app.command("ls")
def list_models(as_json: Json = False) -> None:
    """List the read models and the families in them, with their versions."""
    cli = current_settings()
    models = run(read_models(cli))
    if as_json:
        print_json({"models": models})
    else:
        print_models(console(), models)


@projections_app.command("lag")
def lag(topic: Topic = ModelName.RUNS, as_json: Json = False) -> None:
    """Show how many records the read models are behind the log, by partition."""
    cli = current_settings()
    report = run(read_lag(cli, topic))
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
    cli = current_settings()
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
    topic: Topic = ModelName.RUNS,
    families: Annotated[
        list[str] | None,
        typer.Option("--family", help="Only the rows of this family of entities; may be given several times."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Rebuild a read model from the first record, compare it with the live one, and switch."""
    cli = current_settings()
    out = console()
    topic = _model_of(families) if families else topic
    report = run(_run_rebuild(cli, out, topic, families or [], allow_difference=allow_difference, is_quiet=as_json))
    positions = run(_read_positions(cli, topic)) if report.switched else []
    if as_json:
        print_json(_report_json(report, positions))
    else:
        _print_report(out, report, positions)
    if not report.switched:
        raise typer.Exit(FAILED)


async def read_models(cli: CliSettings) -> list[dict[str, Any]]:
    """Return the read models that exist as JSON. Raises Unreachable, Transient or CliError."""
    models = []
    for name in ModelName:
        reader = await _open_reader(cli, name)
        try:
            if await has_status(reader, reader.schema):
                models.append(await _model_json(reader, name))
        finally:
            await reader.close()
    return models


async def _model_json(reader: PostgresReader, name: ModelName) -> dict[str, Any]:
    live = next(build for build in await read_builds(reader) if build.state == LIVE)
    statuses = await read_status(reader)
    model: dict[str, Any] = {
        "name": name.value,
        "topic": SOURCES[name].topic,
        "build": live.number,
        "version": live.version,
        "state": statuses[0].state if statuses else None,
        "problems": await count_problems(reader),
    }
    if name is not ModelName.RUNS:
        versions = {fold.family: fold.version for fold in await list_folds(reader)}
        counts = await count_entities(reader)
        model["families"] = [
            {"family": family, "version": versions.get(family), "aggregates": counts.get(family, 0)}
            for family in sorted(versions.keys() | counts.keys())
        ]
    return model


def print_models(out: Console, models: Sequence[Mapping[str, Any]]) -> None:
    """Print the read models as a table, and below it the families of entities."""
    if not models:
        out.print(Text("The read models do not exist yet: the projector makes them when it first runs.", style=DIM))
        return
    print_table(
        out,
        ("MODEL", "TOPIC", "BUILD", "VERSION", "STATE", "PROBLEMS"),
        [
            (
                model["name"],
                model["topic"],
                str(model["build"]),
                str(model["version"]),
                model["state"] or "no projector yet",
                Text(str(model["problems"]), style=ERROR if model["problems"] else ""),
            )
            for model in models
        ],
        right_aligned=(2, 3, 5),
    )
    families = [family for model in models for family in model.get("families", ())]
    if families:
        print_table(
            out,
            ("FAMILY", "VERSION", "AGGREGATES"),
            [
                (
                    family["family"],
                    Text("unknown", style=ERROR) if family["version"] is None else str(family["version"]),
                    str(family["aggregates"]),
                )
                for family in families
            ],
            right_aligned=(1, 2),
        )


async def read_lag(cli: CliSettings, name: ModelName = ModelName.RUNS) -> ProjectionLag:
    """Read the lag from the tables and the log. Raises Unreachable, Transient or CliError."""
    kafka = kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka())
    reader, topic = await _open_reader(cli, name), SOURCES[name].topic
    try:
        progress = await read_progress(reader)
    except Permanent as error:
        raise _missing_tables_error(error) from error
    finally:
        await reader.close()
    count = await count_partitions(kafka, topic)
    async with open_ranges(kafka) as ranges:
        ends = await ranges.end_offsets(topic, count)
    return lag_json(progress, topic, ends, now_s=time.time())


async def read_problems(cli: CliSettings, limit: int) -> dict[str, Any]:
    """Return the first `limit` problems of all read models and their total number as JSON.

    Raises Unreachable, Transient or CliError.
    """
    rows: list[ProblemRow] = []
    count = 0
    for name in ModelName:
        reader = await _open_reader(cli, name)
        try:
            if name is ModelName.RUNS or await has_status(reader, reader.schema):
                rows += await list_problems(reader, limit=limit)
                count += await count_problems(reader)
        except Permanent as error:
            raise _missing_tables_error(error) from error
        finally:
            await reader.close()
    return {"count": count, "problems": [_problem_json(row) for row in rows[:limit]]}


def print_problems(out: Console, report: Mapping[str, Any]) -> None:
    """Print the problems as a table."""
    if not report["count"]:
        out.print(Text("Everything in the log could be projected.", style=SUCCESS))
        return
    print_table(
        out,
        ("RECORD", "AT", "RUN OR ENTITY", "KIND", "ERROR"),
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


async def _open_reader(cli: CliSettings, name: ModelName) -> PostgresReader:
    return await open_reader(
        postgres_options(cli.settings, CLIENT_ID, dsn=cli.postgres()), schema=SOURCES[name].schema, max_connections=1
    )


def _missing_tables_error(error: Permanent) -> Exception:
    """Convert a failed read to the error that explains it."""
    if error.kind != "not_found":
        return error
    return CliError("The read models do not exist yet: the projector makes them when it first runs.")


async def _read_positions(cli: CliSettings, name: ModelName) -> list[str]:
    reader = await _open_reader(cli, name)
    try:
        cursors = await list_cursors(reader)
    finally:
        await reader.close()
    return [
        str(Position(topic=cursor.topic, partition=cursor.partition, offset=cursor.next_offset - 1))
        for cursor in cursors
        if cursor.next_offset
    ]


async def _run_rebuild(
    cli: CliSettings,
    out: Console,
    name: ModelName,
    families: Sequence[str],
    *,
    allow_difference: bool,
    is_quiet: bool,
) -> RebuildReport:
    source = SOURCES[name]
    make_model = source.make(cli)
    try:
        model = make_model()
    except FamilyProblem as error:
        raise CliError(str(error)) from error
    _check_families(model, families)
    kafka = kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka())
    postgres = postgres_options(cli.settings, "loomlog-rebuild", dsn=cli.postgres())
    partitions = await count_partitions(kafka, source.topic)
    if not partitions:
        raise CliError(f"There is no topic {source.topic} at {kafka.bootstrap}. `loomlog topics apply` makes it.")
    reporter = _RebuildProgress(out, is_quiet=is_quiet)
    owner = f"loomlog-rebuild-{socket.gethostname()}-{os.getpid()}"
    connecting, opening = (
        partial(connect, postgres),
        partial(open_tail, kafka, source.topic),
    )
    return await rebuild(
        connecting,
        opening,
        source.topic,
        partitions,
        owner=owner,
        model=model,
        families=frozenset(families) or None,
        require_equal=False if allow_difference else None,
        codec=await load_codec(cli.settings),
        on_progress=reporter.on_progress,
        fill=ParallelRebuild(
            connect=connecting,
            open_tail=opening,
            make_codec=partial(load_codec, cli.settings),
            topic=source.topic,
            owner=owner,
            make_model=make_model,
        ),
    )


def _model_of(families: Sequence[str]) -> ModelName:
    """Return the read model of these families; that of entities unless all of them are in the channel topics."""
    try:
        channels = {family.name for family in families_of(CHANNEL_SET)}
    except FamilyProblem as error:
        raise CliError(str(error)) from error
    return ModelName.CHANNELS if channels.issuperset(families) else ModelName.ENTITIES


def _check_families(model: ReadModel, families: Sequence[str]) -> None:
    known = model.folds if isinstance(model, EntityModel) else {}
    if missing := [family for family in families if family not in known]:
        raise CliError(
            f"There is no family {missing[0]} here; there is {', '.join(known) or 'none'}. "
            "LOOMLOG_FAMILIES names the modules of further families."
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


def _report_json(report: RebuildReport, positions: Sequence[str]) -> dict[str, Any]:
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
        "families": None if report.families is None else sorted(report.families),
        "positions": list(positions),
    }


def _print_report(out: Console, report: RebuildReport, positions: Sequence[str]) -> None:
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
        text = f"Build {report.build} is live now, from {took}; build {report.replaced} is kept."
        if report.families is not None:
            text = f"The rows of {', '.join(sorted(report.families))} were replaced, from {took}."
        out.print(Text(text, style=SUCCESS))
        out.print(Text(f"projected up to {', '.join(positions) or 'the beginning'}", style=DIM))
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
        **problem_json(row),
        "key_hex": None if row.key is None else row.key.hex(),
        "value_hex": None if row.value is None else row.value.hex(),
    }
