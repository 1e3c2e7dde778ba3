"""`loomlog replay FAMILY:TENANT/NAME`: proves an aggregate from the log. Exit 1 on drift.

The family's declaration folds it, so every family of this installation has it. The row in Postgres says from which
offset on there is something to read and is compared with the fold; without Postgres the whole partition is read. An
aggregate whose first events are deleted, as those of channels are in time, cannot be replayed.

    counter:acme/hits  in loom.entity.events/0
        1   17    0 ms  CounterIncremented  by=3 value=3
    row       at seq 1, equal

Before: replay.py. After: services/stream/entities/replay.py.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import json
from rich.console import Console
from rich.text import Text

from loomlog.connectors.configuration.driver_options import kafka_options, postgres_options
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.kafka import count_partitions, open_ranges
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.kafka.schema_registry import load_codec
from loomlog.connectors.protocols import LogRanges
from loomlog.connectors.storage.postgres import PostgresReader, open_reader
from loomlog.projections.entities import EntityRow, load_entities
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.codec import Codec
from loomlog.schemas.reader import RawEvent
from loomlog.services.application.log.records import (
    ENTITY_TOPIC,
    TOPICS_OF_SETS,
    find_term_before,
    to_json_value,
)
from loomlog.services.cli.errors import CliError, NotFound, Unreachable, UsageError
from loomlog.services.cli.settings import CLIENT_ID, CliSettings
from loomlog.services.cli.terminal.event_text import fit_to_width, format_fields
from loomlog.services.cli.terminal.formatting import duration, pluralize
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, SUCCESS, WARNING
from loomlog.services.core.families import NAME_BYTES_MAX, aggregate_key
from loomlog.services.families import FamilyProblem
from loomlog.services.families.entity_folds import TABLES
from loomlog.services.families.registry import all_families
from loomlog.services.stream.archive.run_log import LineageSegment, ReadStats, RunLog
from loomlog.services.stream.entities.families import EntityFamilies, FamilySet
from loomlog.services.stream.entities.replay import AggregateEvent, AggregateReplay, replay_aggregate

ROW_WAIT_S = 5.0
"""Seconds to wait for the row, which is milliseconds behind; a longer lag is reported."""
POLL_INTERVAL_S = 0.1
STATE_LINE_CHARACTERS = 100
"""Longer states are printed over several lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateReport:
    """Result of a replay and its comparison with the row. `not_compared` is why there was none."""

    replayed: AggregateReplay
    topic: str
    partition: int
    stale_records: int
    """Number of the aggregate's records that are ignored, because their writer had been replaced."""
    drift: tuple[str, ...]
    not_compared: str = ""


def check_aggregate_id(text: str, families: FamilySet) -> None:
    """Raise UsageError unless the text is the full id of an aggregate of one of the families."""
    family, _, rest = text.partition(":")
    _tenant, slash, name = rest.partition("/")
    if not slash or not 1 <= len(name.encode(errors="replace")) <= NAME_BYTES_MAX or not text.isprintable():
        raise UsageError(
            f"{text} is not the id of an aggregate: expected FAMILY:TENANT/NAME, such as counter:acme/hits, and a name "
            f"of 1 to {NAME_BYTES_MAX} bytes. An aggregate of the whole installation has no tenant: FAMILY:/NAME."
        )
    if family not in families.by_name:
        known = ", ".join(families.by_name) or "none"
        raise UsageError(f"{text}: there is no family {family!r} here. LOOMLOG_FAMILIES adds to these: {known}.")


def load_family_set() -> FamilySet:
    """Return the families of this installation. Raises UsageError."""
    try:
        return FamilySet(all_families())
    except FamilyProblem as problem:
        raise UsageError(f"{problem}.") from problem


async def build_report(cli: CliSettings, families: FamilySet, aggregate: str, to_seq: int = 0) -> AggregateReport:
    """Fold an aggregate from the log and compare it with its row. Raises CliError or Unreachable."""
    options = kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka())
    topic_set = families.of(aggregate).declaration.topics
    topic = TOPICS_OF_SETS[topic_set]
    count = await count_partitions(options, topic)
    if not count:
        raise CliError(f"There is no topic {topic} at {options.bootstrap}. `loomlog topics apply` makes it.")
    partition = partition_of(aggregate_key(aggregate), count)
    codec = await load_codec(cli.settings)
    reader, not_compared = await _open_reader(cli, TABLES[topic_set].prefix)
    try:
        async with open_ranges(options) as ranges:
            row = await _find_row(reader, aggregate)
            events, stale = await read_events(ranges, partition, aggregate, codec, row=row, topic=topic)
            beginning = await ranges.beginning_offset(topic, partition)
        if beginning and (events[0].seq > 1 if events else row is not None):
            raise CliError(deleted_text(aggregate, topic, partition, beginning))
        if not events:
            raise NotFound(f"There is no aggregate {aggregate} in {topic}/{partition}, where it would lie.")
        if to_seq > events[-1].seq:
            raise CliError(f"{aggregate} has {pluralize(events[-1].seq, 'event')}; there is no seq {to_seq} yet.")
        chosen = [event for event in events if not to_seq or event.seq <= to_seq]
        replayed = replay_aggregate(EntityFamilies(families), aggregate, chosen, codec=codec)
        drift = list(replayed.drift)
        if to_seq:
            not_compared = f"it ends at seq {to_seq}"
        if reader is not None and not not_compared:
            differences, not_compared = await _compare(reader, replayed)
            drift += differences
    finally:
        if reader is not None:
            await reader.close()
    return AggregateReport(
        replayed=replayed,
        topic=topic,
        partition=partition,
        stale_records=stale,
        drift=tuple(drift),
        not_compared=not_compared,
    )


def deleted_text(aggregate: str, topic: str, partition: int, beginning: int) -> str:
    """Say that an aggregate cannot be replayed, because the log begins at that offset."""
    return (
        f"The events of {aggregate} before offset {beginning} of {topic}/{partition} are deleted, so its state does "
        "not follow from the log any more. Its row has the state; `loomlog tail` has what is left of the history."
    )


async def read_events(
    ranges: LogRanges,
    partition: int,
    aggregate: str,
    codec: Codec,
    *,
    row: EntityRow | None = None,
    topic: str = ENTITY_TOPIC,
) -> tuple[list[RawEvent], int]:
    """Return the accepted events of an aggregate and the number of its stale records. Raises Transient.

    The row says where the first event is; it is only a hint: if seq 1 is not there, the whole partition is read.
    """
    beginning = await ranges.beginning_offset(topic, partition)
    start = beginning if row is None or row.partition != partition else max(beginning, row.first_offset)
    events, stale = await _read_from(ranges, topic, partition, start, aggregate, codec)
    if start > beginning and (not events or events[0].seq != 1):
        events, stale = await _read_from(ranges, topic, partition, beginning, aggregate, codec)
    return events, stale


async def _read_from(
    ranges: LogRanges, topic: str, partition: int, start: int, aggregate: str, codec: Codec
) -> tuple[list[RawEvent], int]:
    term = await find_term_before(ranges, topic, partition, start, codec)
    segment = LineageSegment(run_id=aggregate, first_offset=start, end_offset=await ranges.end_offset(topic, partition))
    stats = ReadStats()
    accepted = RunLog(ranges, codec, topic, partition).accepted(segment, term=term, tally=stats)
    return [recorded.event async for recorded in accepted], stats.stale


async def _open_reader(cli: CliSettings, schema: str) -> tuple[PostgresReader | None, str]:
    """Return a reader of the rows, or None and the reason."""
    try:
        options = postgres_options(cli.settings, CLIENT_ID, dsn=cli.postgres())
        return await open_reader(options, schema=schema, max_connections=1), ""
    except Unreachable as error:
        return None, str(error)


async def _find_row(reader: PostgresReader | None, aggregate: str) -> EntityRow | None:
    try:
        rows = [] if reader is None else await load_entities(reader, [aggregate])
    except ConnectorError:
        return None  # the whole partition is read then; the comparison reports what is unavailable
    return rows[0] if rows else None


async def _compare(reader: PostgresReader, replayed: AggregateReplay) -> tuple[list[str], str]:
    """Return (differences, why nothing was compared); waits up to ROW_WAIT_S for a row that lags."""
    deadline = asyncio.get_running_loop().time() + ROW_WAIT_S
    while True:
        try:
            rows = await load_entities(reader, [replayed.aggregate])
        except ConnectorError as error:
            return [], str(error)
        reached = rows[0].seq if rows else 0
        if reached > replayed.seq:
            return [], f"the aggregate has continued meanwhile, to seq {reached}"
        if rows and (reached == replayed.seq or rows[0].halted_offset >= 0):
            return find_differences(replayed, rows[0]), ""
        if asyncio.get_running_loop().time() > deadline:
            return [], f"the row is at seq {reached} of {replayed.seq}; `loomlog projections lag` shows why"
        await asyncio.sleep(POLL_INTERVAL_S)


def find_differences(replayed: AggregateReplay, row: EntityRow) -> list[str]:
    """Return how a row differs from the fold, a sentence each."""
    if row.halted_offset >= 0:
        return [f"the row was halted at offset {row.halted_offset}, at seq {row.seq}: {row.quarantine}"]
    differences = [
        f"the row says {name} {theirs}, the log says {ours}"
        for name, ours, theirs in (
            ("seq", replayed.seq, row.seq),
            ("last offset", replayed.entries[-1].offset, row.last_offset),
            ("last digest", replayed.tail_digest.hex(), row.digest.hex()),
            ("version of the fold", replayed.version, row.version),
        )
        if ours != theirs
    ]
    if row.state.encode() != replayed.state_json:
        differences.append("the row has another state than the fold gives")
    return differences


# --- output -----------------------------------------------------------------------------------------------------------


def report_json(report: AggregateReport) -> dict[str, Any]:
    """Return the report with the names that the report of a run has."""
    replayed = report.replayed
    return {
        "aggregate": replayed.aggregate,
        "topic": report.topic,
        "partition": report.partition,
        "first_offset": replayed.entries[0].offset,
        "last_offset": replayed.entries[-1].offset,
        "seq": replayed.seq,
        "version": replayed.version,
        "state": json.decode(replayed.state_json),
        "state_sha256": replayed.state_sha256,
        "tail_digest": replayed.tail_digest.hex(),
        "quarantine": replayed.state.quarantine or None,
        "repaired": list(replayed.repaired),
        "stale": report.stale_records,
        "compared": not report.not_compared,
        "not_compared": report.not_compared or None,
        "drift": list(report.drift),
        "first_drift_seq": replayed.first_drift_seq or None,
        "events": [
            {
                "seq": entry.envelope.seq,
                "offset": entry.offset,
                "term": entry.envelope.term,
                "at": format_rfc3339(entry.envelope.at_ms),
                "type": entry.type,
                "cause_id": entry.envelope.cause_id or None,
                "imported": entry.is_imported,
                "payload": to_json_value(entry.payload),
            }
            for entry in replayed.entries
        ],
    }


def print_report(out: Console, report: AggregateReport, *, timeline: bool) -> None:
    replayed = report.replayed
    out.print(Text.assemble((replayed.aggregate, NAME), ("  in ", DIM), f"{report.topic}/{report.partition}"))
    if timeline:
        _print_timeline(out, replayed.entries)
    out.print()
    if not report.drift:
        events = pluralize(replayed.seq, "event")
        text = f"{events}, sequence complete, hash chain valid, last hash {replayed.tail_digest.hex()[:16]}"
        _print_line(out, "history", text)
    if report.stale_records:
        _print_line(out, "stale", f"{pluralize(report.stale_records, 'record')} of replaced owners, ignored")
    for sentence in replayed.repaired:
        _print_line(out, "repaired", sentence, style=WARNING)
    if replayed.state.quarantine:
        _print_line(out, "quarantine", replayed.state.quarantine, style=WARNING)
    _print_line(out, "state", f"sha256 {replayed.state_sha256}, by version {replayed.version} of the fold")
    _print_state(out, replayed.state_json)
    if report.drift:
        at = f"  first at seq {replayed.first_drift_seq}" if replayed.first_drift_seq else ""
        out.print(Text(f"drift{at}", style=ERROR))
        for sentence in report.drift:
            out.print(Text(f"  {sentence}", style=ERROR))
    elif report.not_compared:
        _print_line(out, "row", f"not compared: {report.not_compared}", style=WARNING)
    else:
        _print_line(out, "row", f"at seq {replayed.seq}, equal", style=SUCCESS)


def _print_timeline(out: Console, entries: Sequence[AggregateEvent]) -> None:
    began_ms = entries[0].envelope.at_ms
    width = len(str(entries[-1].offset))
    for entry in entries:
        after = duration((entry.envelope.at_ms - began_ms) / 1000)
        line = Text.assemble(
            (f"{entry.envelope.seq:5}  {entry.offset:{width}}  {after:>9}  ", DIM),
            (f"{entry.type:<18}", "bold"),
            (f"  {format_fields(entry.payload)}{'  imported' if entry.is_imported else ''}", DIM),
        )
        out.print(fit_to_width(line, out))


def _print_state(out: Console, state_json: bytes) -> None:
    text = state_json.decode()
    if len(text) > STATE_LINE_CHARACTERS:
        text = json.format(state_json, indent=2).decode()
    for line in text.splitlines():
        out.print(Text(f"  {line}"))


def _print_line(out: Console, name: str, text: str, *, style: str = "") -> None:
    out.print(Text.assemble((f"{name:<10}", DIM), (text, style)))
