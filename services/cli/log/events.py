"""`loomlog events tail` and `loomlog events get`: the decoded log, each record classified by the reading rule.

`get` uses the API for the topics it has a route for and the broker for all others; `tail` reads the broker, because
only the broker lets a client wait for new records.

    04:26:10.123  loom.run.events/0:84  r_7m17...  seq 1  RunStarted  agent_id=... definition=reviewer

Before: services/cli/main.py. After: reader.py, services/cli/http/api.py.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer
from rich.console import Console

from loomlog.connectors.configuration.driver_options import kafka_options, postgres_options
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.kafka import KafkaTail, count_partitions, open_ranges
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.kafka.schema_registry import load_codec
from loomlog.connectors.storage.postgres import open_reader
from loomlog.projections.audit import find_run
from loomlog.projections.engine.builds import PREFIX as SCHEMA
from loomlog.projections.tables import EVERY_TENANT
from loomlog.schemas.ids import partition_key
from loomlog.schemas.position import Position
from loomlog.services.application.log.records import (
    EVENTS_TOPIC,
    LEGAL,
    TOPIC_PREFIX,
    RecordClassifier,
    RecordView,
    find_term_before,
    has_terms,
    is_aggregate_id,
    read_record,
    record_json,
    topic_of_aggregate,
)
from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import CliError, NotFound, Unreachable, UsageError
from loomlog.services.cli.http.api import ApiClient, ApiError, quote_segment
from loomlog.services.cli.settings import CLIENT_ID, CliSettings, current_settings
from loomlog.services.cli.terminal.event_text import fit_to_width, print_record, record_line
from loomlog.services.cli.terminal.output import console, print_json, print_json_line
from loomlog.services.cli.terminal.times import parse_since
from loomlog.services.cli.terminal.tool_names import ToolNames
from loomlog.services.core.families import aggregate_key

API_TOPICS = ("loom.run.events", "loom.run.commands")
"""Topics of which the API returns single records."""
FINAL_EVENTS = frozenset({"RunCompleted", "RunFailed", "RunCancelled", "RunRefused"})
POLL_TIMEOUT_S = 0.5
MAX_SORTED_RECORDS = 20_000
"""Records sorted by time before they are shown; some tens of megabytes."""

Json = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]

events_app = typer.Typer(help="The log itself: tail it, get one record.", no_args_is_help=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRequest:
    """Options of one `events tail` call."""

    topic: str
    run_id: str = ""
    types: frozenset[str] = frozenset()
    partition: int | None = None
    start: str = ""
    since_ms: int | None = None
    follow: bool = True
    limit: int = 0


@events_app.command("tail")
def tail(
    run_id: Annotated[
        str,
        typer.Option(
            "--run", help="Only records of this run, until it ends, or of this aggregate (FAMILY:TENANT/NAME)."
        ),
    ] = "",
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only records of this type, such as ToolReturned; repeatable."),
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition.")] = None,
    start: Annotated[
        str, typer.Option("--from", help="beginning, end, -N for the last N of each partition, or an offset.")
    ] = "",
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="From a time on: 10m, 24h or 2026-01-31T12:00:00Z.")
    ] = "",
    topic: Annotated[str, typer.Option(help="Another topic, such as loom.run.commands.")] = EVENTS_TOPIC,
    follow: Annotated[bool, typer.Option(help="Wait for more at the end.")] = True,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0, help="Stop after this time; 0 = never.")
    ] = 0.0,
    limit: Annotated[int, typer.Option(min=0, help="Stop after this many records; 0 = no bound.")] = 0,
    as_json: Json = False,
) -> None:
    """Show records as they arrive: from its beginning for a run, otherwise from now on."""
    cli = current_settings()
    if is_aggregate_id(run_id) and topic == EVENTS_TOPIC:
        topic = topic_of_aggregate(run_id)
    request = TailRequest(
        topic=_full_topic(topic),
        run_id=run_id,
        types=frozenset(name.rpartition(".")[2] for name in types or ()),
        partition=partition,
        start=start,
        since_ms=parse_since(since, time.time_ns() // 1_000_000) if since else None,
        follow=follow,
        limit=limit,
    )
    run(_print_tail_until(cli, request, timeout_s, as_json=as_json))


@events_app.command("get")
def get(
    record_position: Annotated[
        str, typer.Argument(metavar="TOPIC/PARTITION/OFFSET", help="Or a position: loom.run.events/2:17.")
    ],
    direct: Annotated[bool, typer.Option("--direct", help="Ask the broker, not the API.")] = False,
    as_json: Json = False,
) -> None:
    """Show one record in full, also a stale one."""
    place, _, offset_text = record_position.rpartition(":" if ":" in record_position else "/")
    try:
        position = Position.parse(f"{place}:{offset_text}")
    except ValueError:
        raise UsageError(
            f"{record_position!r} is no place in the log: expected TOPIC/PARTITION/OFFSET or a position like "
            "loom.run.events/2:17."
        ) from None
    topic, partition, offset = _full_topic(position.topic), position.partition, position.offset
    cli = current_settings()
    if topic in API_TOPICS and not direct:
        shown = run(_read_from_api(cli, topic, partition, offset))
    else:
        shown = record_json(run(_read_from_broker(cli, topic, partition, offset)))
    if as_json:
        print_json(shown)
    else:
        print_record(console(), shown)


async def _print_tail_until(cli: CliSettings, request: TailRequest, timeout_s: float, *, as_json: bool) -> None:
    try:
        async with asyncio.timeout(timeout_s or None):
            await _print_tail(cli, request, as_json=as_json)
    except TimeoutError:
        return


async def _print_tail(cli: CliSettings, request: TailRequest, *, as_json: bool) -> None:
    out = console()
    shown = 0
    kept: list[RecordView] = []
    names = ToolNames()
    async with aclosing(_tail_records(cli, request)) as records:
        async for view in records:
            if request.run_id and view.run_id != request.run_id:
                continue
            view = replace(view, payload=names.annotate(view.run_id, view.type, view.payload))
            if not request.types or view.type in request.types:
                shown += 1
                kept.append(view)
                # A bounded tail is sorted by time across partitions; an unbounded one is shown in order of arrival.
                if request.follow or len(kept) >= MAX_SORTED_RECORDS:
                    _print_records(kept, out, as_json=as_json)
                    kept = []
            is_last = request.run_id and view.kind == LEGAL and view.type in FINAL_EVENTS
            if is_last or (request.limit and shown >= request.limit):
                break
    _print_records(kept, out, as_json=as_json)


def _print_records(views: list[RecordView], out: Console, *, as_json: bool) -> None:
    for view in sorted(views, key=lambda view: (view.at_ms, view.partition, view.offset)):
        if as_json:
            print_json_line(record_json(view))
        else:
            out.print(fit_to_width(record_line(view), out))


async def _tail_records(cli: CliSettings, request: TailRequest) -> AsyncGenerator[RecordView]:
    """Yield the records from the requested start, classified."""
    options = kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka())
    count = await count_partitions(options, request.topic)
    if not count:
        raise CliError(f"There is no topic {request.topic} at {options.bootstrap}. `loomlog topics apply` makes ours.")
    codec = await load_codec(cli.settings)
    numbers = _select_partitions(request, count)
    async with open_ranges(options) as ranges:
        ends = {number: await ranges.end_offset(request.topic, number) for number in numbers}
        beginnings = {number: await ranges.beginning_offset(request.topic, number) for number in numbers}
        known = await _find_first_offset(cli, request) if request.run_id and not request.start else None
        starts = {
            number: _start_offset(request, beginnings[number], ends[number], known, len(numbers)) for number in numbers
        }
        if request.since_ms is not None:
            for number in numbers:
                starts[number] = await ranges.offset_at(request.topic, number, request.since_ms)
        # The read models may not have a run that has just started, so its partition is searched before it is unknown.
        is_searched = bool(request.run_id and not request.start and known is None and has_terms(request.topic))
        judges = {
            number: RecordClassifier(
                request.topic,
                term=await find_term_before(ranges, request.topic, number, start, codec)
                if has_terms(request.topic)
                else -1,
                next_offset=start,
                codec=codec,
            )
            for number, start in starts.items()
        }
    open_ = {number for number in numbers if starts[number] < ends[number]}
    if not open_ and not request.follow:
        return
    records = KafkaTail(options, request.topic, starts)
    await records.start()
    try:
        while request.follow or open_:
            if is_searched and not open_:
                raise _not_found(request, numbers)
            polled = await records.poll(timeout_s=POLL_TIMEOUT_S)
            for number, polled_records in polled.items():
                for record in polled_records:
                    if request.follow or record.offset < ends[number]:
                        view = judges[number].classify(record)
                        is_searched = is_searched and view.run_id != request.run_id
                        yield view
                if polled_records and polled_records[-1].offset + 1 >= ends[number]:
                    open_.discard(number)
        if is_searched:
            raise _not_found(request, numbers)
    finally:
        await records.close()


def _not_found(request: TailRequest, numbers: list[int]) -> NotFound:
    kind = "Aggregate" if is_aggregate_id(request.run_id) else "Run"
    searched = f"partition {numbers[0]}" if len(numbers) == 1 else "all partitions"
    return NotFound(f"{kind} {request.run_id} not found (searched {request.topic}, {searched}).")


def _select_partitions(request: TailRequest, count: int) -> list[int]:
    if request.partition is not None and request.partition >= count:
        raise UsageError(f"{request.topic} has partitions 0 to {count - 1}; there is no {request.partition}.")
    if request.partition is not None:
        return [request.partition]
    # All records of a run are in the partition of its key, in every topic of the family.
    if request.run_id and request.topic.startswith("loom.run."):
        return [partition_of(partition_key(request.run_id).encode(), count)]
    if is_aggregate_id(request.run_id) and request.topic.startswith(("loom.entity.", "loom.channel.")):
        return [partition_of(aggregate_key(request.run_id), count)]
    return list(range(count))


def _start_offset(request: TailRequest, beginning: int, end: int, first_offset: int | None, partitions: int) -> int:
    """Return the offset to start at in a partition that holds beginning .. end - 1."""
    text = request.start.strip().lower()
    if not text and request.run_id:
        return max(beginning, first_offset if first_offset is not None else beginning)
    if text in ("", "end"):
        return end
    if text == "beginning":
        return beginning
    if re.fullmatch(r"-\d{1,9}", text):
        return max(beginning, end + int(text))
    if not re.fullmatch(r"\d{1,18}", text):
        raise UsageError(f"--from is {request.start!r}; expected beginning, end, -N or an offset.")
    if partitions > 1:
        raise UsageError("--from is an offset, and every partition has its own: name one with --partition.")
    return min(max(beginning, int(text)), end)


async def _find_first_offset(cli: CliSettings, request: TailRequest) -> int | None:
    """Return the run's first event offset from the audit index; None when it is unknown."""
    if request.topic != EVENTS_TOPIC:
        return None
    try:
        reader = await open_reader(
            postgres_options(cli.settings, CLIENT_ID, dsn=cli.postgres()), schema=SCHEMA, max_connections=1
        )
    except Unreachable:
        return None
    try:
        row = await find_run(reader, EVERY_TENANT, request.run_id)
    except ConnectorError:
        return None  # then the whole partition is read: slower, but as correct
    finally:
        await reader.close()
    return row.first_offset if row is not None else None


async def _read_from_api(cli: CliSettings, topic: str, partition: int, offset: int) -> Mapping[str, Any]:
    async with ApiClient(cli.api_url, cli.token) as api:
        try:
            view: Mapping[str, Any] = await api.get(f"/v1/events/{quote_segment(topic)}/{partition}/{offset}")
        except ApiError as refusal:
            if refusal.status == 404:
                raise NotFound(
                    f"{refusal} --direct asks the broker, which also shows what cannot be read."
                ) from refusal
            raise
        return view


async def _read_from_broker(cli: CliSettings, topic: str, partition: int, offset: int) -> RecordView:
    options = kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka())
    count = await count_partitions(options, topic)
    if partition >= count:
        has = f"it has partitions 0 to {count - 1}" if count else "there is no such topic"
        raise CliError(f"There is no partition {partition} of {topic}: {has}.")
    codec = await load_codec(cli.settings)
    async with open_ranges(options) as ranges:
        return await read_record(ranges, topic, partition, offset, codec)


def _full_topic(topic: str) -> str:
    """Expand the short form of a topic: `run.events` is `loom.run.events`."""
    return topic if topic.startswith(TOPIC_PREFIX) else TOPIC_PREFIX + topic
