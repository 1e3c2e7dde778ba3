"""`loomlog replay RUN`: proves a run from the log, or an aggregate of another family. Exits 1 on any difference.

The audit index has the run's offsets, the log its events; without Postgres the whole partition is read instead. A run
that continues or was forked from an earlier one needs that one's conversation first, so the chain is folded from its
beginning. A file written by `loomlog runs export` is replayed alone, without broker, Postgres and settings. What has a
colon is the id of an aggregate of the entity topics (services/cli/log/entity_replay.py).

Before: services/cli/main.py. After: services/stream/archive/run_log.py, bundle_replay.py.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from loomlog.connectors.configuration.driver_options import kafka_options, postgres_options
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.kafka import count_partitions, open_ranges
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.kafka.schema_registry import load_codec
from loomlog.connectors.protocols import LogRanges
from loomlog.connectors.storage.postgres import PostgresReader, open_reader
from loomlog.projections.audit import ENDED, AuditRow, find_run
from loomlog.projections.engine.builds import PREFIX as SCHEMA
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.run_queries import run_by_id
from loomlog.projections.runs import RunRow
from loomlog.projections.tables import EVERY_TENANT
from loomlog.schemas.codec import Codec, local_codec
from loomlog.schemas.ids import ID_PATTERN, partition_key
from loomlog.schemas.records import replace
from loomlog.services.application.log.records import (
    EVENTS_TOPIC,
    find_term_before,
    is_aggregate_id,
    to_json_value,
)
from loomlog.services.application.queries.consistency_check import find_differences
from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import FAILED, CliError, Unreachable, UsageError
from loomlog.services.cli.log import entity_replay
from loomlog.services.cli.settings import CLIENT_ID, CliSettings, current_settings
from loomlog.services.cli.terminal.event_text import OMITTED_FIELDS, fit_to_width, format_fields
from loomlog.services.cli.terminal.formatting import duration, pluralize
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, SUCCESS, WARNING, console, print_json
from loomlog.services.cli.terminal.tool_names import ToolNames
from loomlog.services.core.run.history.replay import ReplayResult
from loomlog.services.stream.archive.bundle import BrokenBundle
from loomlog.services.stream.archive.bundle_replay import replay_bundle
from loomlog.services.stream.archive.run_log import LineageSegment, ReadStats, RunLog, fold_run
from loomlog.services.stream.partition.fold import BrokenHistory

PROJECTION_WAIT_S = 5.0
"""Seconds to wait for the read models, which are milliseconds behind; a longer lag is reported."""
POLL_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """Result of a replay and its comparison. `comparison_skipped` is why the read models were not compared."""

    replayed: ReplayResult
    partition: int
    stale_records: int
    """Number of the run's records that are ignored, because their writer had been replaced."""
    earlier_runs: int
    """Number of earlier runs whose conversation it continues."""
    drift: tuple[str, ...]
    comparison_skipped: str = ""
    compared_with: str = "the read models"
    source: str = ""
    """File the run was read from; empty for the log."""


def replay_run(
    run_id: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="Id of a run (r_...), a file of `runs export`, or an aggregate of a family: FAMILY:TENANT/NAME.",
        ),
    ],
    to_seq: Annotated[int, typer.Option("--to", min=0, help="Only up to this seq; 0: all of it.")] = 0,
    timeline: Annotated[bool, typer.Option(help="Print every event.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
) -> None:
    """Fold a run or an aggregate again from its records, without calls, and compare; exit 1 on drift."""
    is_file = Path(run_id).is_file()
    if not is_file and is_aggregate_id(run_id):
        _replay_aggregate(run_id, to_seq, timeline=timeline, as_json=as_json)
        return
    if not is_file and not (run_id.startswith("r_") and ID_PATTERN.match(run_id)):
        raise UsageError(
            f"{run_id} is neither a file here nor the id of a run (r_...) or of an aggregate (FAMILY:TENANT/NAME)."
        )
    report = _replay_file(Path(run_id), to_seq) if is_file else _replay_log(run_id, to_seq)
    if as_json:
        print_json(_report_json(report))
    else:
        _print_report(console(), report, timeline=timeline)
    if report.drift:
        raise typer.Exit(FAILED)


def _replay_aggregate(aggregate: str, to_seq: int, *, timeline: bool, as_json: bool) -> None:
    families = entity_replay.load_family_set()
    entity_replay.check_aggregate_id(aggregate, families)
    cli = current_settings()
    report = run(entity_replay.build_report(cli, families, aggregate, to_seq))
    if as_json:
        print_json(entity_replay.report_json(report))
    else:
        entity_replay.print_report(console(), report, timeline=timeline)
    if report.drift:
        raise typer.Exit(FAILED)


def _replay_log(run_id: str, to_seq: int) -> ReplayReport:
    return run(build_report(current_settings(), run_id, to_seq))


def _replay_file(path: Path, to_seq: int) -> ReplayReport:
    """Replay a bundle; needs no broker, no Postgres and no settings."""
    try:
        with path.open("rb") as file:
            replay = replay_bundle(file, to_seq=to_seq)
    except BrokenBundle as error:
        raise CliError(f"{path} cannot be replayed: {error}.") from error
    _require_seq(replay.replayed, to_seq)
    return ReplayReport(
        replayed=replay.replayed,
        partition=replay.header.partition,
        stale_records=0,
        earlier_runs=replay.ancestors,
        drift=replay.drift,
        source=str(path),
        compared_with="the bundle",
        comparison_skipped=f"it ends at seq {to_seq}" if to_seq else replay.not_compared,
    )


async def build_report(cli: CliSettings, run_id: str, to_seq: int = 0) -> ReplayReport:
    """Fold the run from the log and compare it with the read models. Raises CliError or Unreachable."""
    options = kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka())
    count = await count_partitions(options, EVENTS_TOPIC)
    if not count:
        raise CliError(f"There is no topic {EVENTS_TOPIC} at {options.bootstrap}. `loomlog topics apply` makes it.")
    partition = partition_of(partition_key(run_id).encode(), count)
    codec = await load_codec(cli.settings)
    reader, why_not = await _open_reader(cli)
    try:
        async with open_ranges(options) as ranges:
            place = await _find_audit_row(reader, run_id)
            replayed, chain, stale = await _fold_run(ranges, partition, run_id, place, to_seq, codec)
        drift = list(replayed.drift)
        if to_seq and not why_not:
            why_not = f"it ends at seq {to_seq}"
        if reader is not None and not why_not:
            other, why_not = await _compare(reader, replayed)
            drift += other
    finally:
        if reader is not None:
            await reader.close()
    return ReplayReport(
        replayed=replayed,
        partition=partition,
        stale_records=stale,
        earlier_runs=chain,
        drift=tuple(drift),
        comparison_skipped=why_not,
    )


async def _open_reader(cli: CliSettings) -> tuple[PostgresReader | None, str]:
    """Return a reader of the read models, or None and the reason."""
    try:
        options = postgres_options(cli.settings, CLIENT_ID, dsn=cli.postgres())
        return await open_reader(options, schema=SCHEMA, max_connections=1), ""
    except Unreachable as error:
        return None, str(error)


async def _find_audit_row(reader: PostgresReader | None, run_id: str) -> AuditRow | None:
    try:
        return None if reader is None else await find_run(reader, EVERY_TENANT, run_id)
    except ConnectorError:
        return None  # the whole partition is read then; the comparison reports what is unavailable


async def _fold_run(
    ranges: LogRanges,
    partition: int,
    run_id: str,
    audit_row: AuditRow | None,
    to_seq: int = 0,
    codec: Codec | None = None,
) -> tuple[ReplayResult, int, int]:
    """Return (the run folded from the log, number of earlier runs it continues, number of its stale records)."""
    codec = codec or local_codec()
    log = RunLog(ranges, codec, EVENTS_TOPIC, partition)
    start = await ranges.beginning_offset(EVENTS_TOPIC, partition)
    end = await ranges.end_offset(EVENTS_TOPIC, partition)
    if audit_row is not None and audit_row.partition == partition:
        start = max(start, audit_row.first_offset)
        # A run that has ended has no later records; for any other the log may be ahead of the index.
        end = min(end, audit_row.last_offset + 1) if audit_row.status in ENDED else end
    term = await find_term_before(ranges, EVENTS_TOPIC, partition, start, codec)
    anywhere = LineageSegment(run_id=run_id, first_offset=start, end_offset=end)
    first = await log.first(anywhere, term=term)
    if first is None:
        raise CliError(f"There is no run {run_id} in {EVENTS_TOPIC}/{partition}, where it would lie.")
    tally = ReadStats()
    try:
        links = await log.lineage(replace(anywhere, first_offset=first.offset), first)
    except BrokenHistory as error:
        raise CliError(f"{error}.") from error
    replayed = await fold_run(log, links, codec=codec, to_seq=to_seq, tally=tally)
    _require_seq(replayed, to_seq)
    return replayed, len(links) - 1, tally.stale


def _require_seq(replayed: ReplayResult, to_seq: int) -> None:
    if to_seq > replayed.seq and not replayed.drift:
        raise CliError(f"{replayed.run_id} has {pluralize(replayed.seq, 'event')}; there is no seq {to_seq} yet.")


async def _compare(reader: PostgresReader, replayed: ReplayResult) -> tuple[list[str], str]:
    """Return (differences, why nothing was compared); waits up to PROJECTION_WAIT_S for read models that lag."""
    deadline = asyncio.get_running_loop().time() + PROJECTION_WAIT_S
    while True:
        try:
            place = await find_run(reader, EVERY_TENANT, replayed.run_id)
            row: RunRow | None = await run_by_id(reader, EVERY_TENANT, replayed.run_id)
        except ConnectorError as error:
            return [], str(error)
        reached = place.last_seq if place is not None else 0
        if reached > replayed.seq:
            return [], f"the run has continued meanwhile, to seq {reached}"
        if reached == replayed.seq or (place is not None and place.halted_offset is not None):
            return find_differences(replayed, place, row), ""
        if asyncio.get_running_loop().time() > deadline:
            return [], f"the read models are at seq {reached} of {replayed.seq}; `loomlog projections lag` shows why"
        await asyncio.sleep(POLL_INTERVAL_S)


def _report_json(report: ReplayReport) -> dict[str, Any]:
    replayed = report.replayed
    return {
        "run_id": replayed.run_id,
        "topic": EVENTS_TOPIC,
        "partition": report.partition,
        "first_offset": replayed.entries[0].offset if replayed.entries else None,
        "last_offset": replayed.last_offset,
        "seq": replayed.seq,
        "status": replayed.status,
        "source": report.source or None,
        "state_sha256": replayed.state_sha256,
        "tail_digest": replayed.tail_digest.hex(),
        "stale": report.stale_records,
        "continues": report.earlier_runs,
        "compared": not report.comparison_skipped,
        "not_compared": report.comparison_skipped or None,
        "drift": list(report.drift),
        "first_drift_seq": replayed.first_drift_seq or None,
        "events": [
            {
                "seq": entry.seq,
                "offset": entry.offset,
                "term": entry.term,
                "at": format_rfc3339(entry.at_ms),
                "type": entry.type,
                "cause_id": entry.cause_id or None,
                "payload": to_json_value(entry.payload),
            }
            for entry in replayed.entries
        ],
    }


def _print_report(out: Console, report: ReplayReport, *, timeline: bool) -> None:
    replayed = report.replayed
    lies = report.source or f"{EVENTS_TOPIC}/{report.partition}"
    out.print(Text.assemble(("run ", DIM), (replayed.run_id, NAME), ("  in ", DIM), lies))
    if timeline:
        _print_timeline(out, replayed)
    out.print()
    whole = pluralize(replayed.seq, "event")
    _print_line(
        out,
        "history",
        f"{whole}, sequence complete, hash chain valid, last hash {replayed.tail_digest.hex()[:16]}",
        report,
    )
    if report.stale_records:
        _print_line(out, "stale", f"{pluralize(report.stale_records, 'record')} of replaced owners, ignored", None)
    if report.earlier_runs:
        _print_line(out, "continues", pluralize(report.earlier_runs, "earlier run"), None)
    _print_line(out, "state", f"{replayed.status}, sha256 {replayed.state_sha256}", None)
    text = f"replay matches {report.compared_with}"
    if report.comparison_skipped:
        text = f"replay is deterministic; not compared with {report.compared_with}: {report.comparison_skipped}"
    if report.drift:
        at = f"  first at seq {replayed.first_drift_seq}" if replayed.first_drift_seq else ""
        out.print(Text(f"drift{at}", style=ERROR))
        for sentence in report.drift:
            out.print(Text(f"  {sentence}", style=ERROR))
    else:
        _print_line(out, "replay", text, None, style=WARNING if report.comparison_skipped else SUCCESS)


def _print_timeline(out: Console, replayed: ReplayResult) -> None:
    began = replayed.entries[0].at_ms if replayed.entries else 0
    width = len(str(replayed.last_offset))
    names = ToolNames()
    for entry in replayed.entries:
        payload = names.annotate(replayed.run_id, entry.type, to_json_value(entry.payload))
        after = duration((entry.at_ms - began) / 1000)
        line = Text.assemble(
            (f"{entry.seq:5}  {entry.offset:{width}}  {after:>9}  ", DIM),
            (f"{entry.type:<18}", "bold"),
            (f"  {format_fields(payload, skip=OMITTED_FIELDS)}", DIM),
        )
        out.print(fit_to_width(line, out))


def _print_line(out: Console, name: str, text: str, unless_drift: ReplayReport | None, *, style: str = "") -> None:
    if unless_drift is not None and unless_drift.replayed.drift:
        return  # the problems the fold found are printed in full below
    out.print(Text.assemble((f"{name:<10}", DIM), (text, style)))
