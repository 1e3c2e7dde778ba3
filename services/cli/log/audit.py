"""`loomlog audit verify` and `loomlog audit keygen`: verifying that the log is what was written and signed.

    loomlog audit verify                      everything, against the auditor's signed checkpoints
    loomlog audit verify --run RUN            the chain of that run or aggregate and the checkpoints that cover it
    loomlog audit verify --entities           only the events of entities (loom.entity.events)
    loomlog audit verify --channels           only the events of channels that are not deleted yet
    loomlog audit verify --since 24h          what was signed since then, and what is not signed yet
    loomlog audit verify --topic COPY         a copy of the events of runs, or with --entities of entities, against the
                                              same checkpoints

Exits 1 on any violation. Stale and not yet signed records are listed, but are no violations. Only the public keys are
trusted: run it on another machine than the log's, with keys that were stored elsewhere.

Before: services/cli/main.py. After: verification.py.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from loomlog.connectors.configuration.driver_options import kafka_options, postgres_options
from loomlog.connectors.crypto.signatures import (
    PublicKey,
    load_public_keys,
    load_signing_key,
    verification_keys,
    write_new_key,
)
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.kafka import KafkaOptions, count_partitions
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.kafka.schema_registry import load_codec
from loomlog.connectors.protocols import Blobs
from loomlog.connectors.storage.blobs import FileBlobs
from loomlog.connectors.storage.postgres import open_reader
from loomlog.projections.audit import ENDED, find_run
from loomlog.projections.engine.builds import PREFIX as SCHEMA
from loomlog.projections.tables import EVERY_TENANT
from loomlog.redpanda.topics import load_topics
from loomlog.schemas.codec import Codec
from loomlog.schemas.ids import partition_key
from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import FAILED, CliError, Unreachable, UsageError
from loomlog.services.cli.log.reader import (
    CHANNEL_TOPIC,
    ENTITY_TOPIC,
    EVENTS_TOPIC,
    EVENTS_TOPICS,
    is_aggregate_id,
    open_ranges,
    topic_of_aggregate,
)
from loomlog.services.cli.log.verification import (
    LogReaders,
    RunRange,
    VerificationTask,
    unsigned_since_ms,
    verify_partition,
)
from loomlog.services.cli.settings import CLIENT_ID, CliSettings, load_cli_settings
from loomlog.services.cli.terminal.audit_text import audit_json, print_reports
from loomlog.services.cli.terminal.formatting import pluralize
from loomlog.services.cli.terminal.output import console, print_json
from loomlog.services.cli.terminal.times import parse_since
from loomlog.services.core.audit.verify import VerificationReport
from loomlog.services.core.families import aggregate_key

CHECKPOINTS_TOPIC = "loom.audit.checkpoints"

audit_app = typer.Typer(help="Is the log what was written and signed?", no_args_is_help=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationRequest:
    """Options of one `audit verify` call."""

    run_id: str = ""
    partition: int | None = None
    since_ms: int | None = None
    newest_checkpoints: int | None = None
    topic: str = ""
    """Copy to read instead of the original topic; empty for the original."""
    entities_only: bool = False
    channels_only: bool = False
    max_unsigned_s: float | None = None
    follow_blobs: bool = True

    @property
    def events_topics(self) -> tuple[str, ...]:
        """Return which topics of events are verified: of a single run or aggregate, and of a copy, only its own."""
        if is_aggregate_id(self.run_id):
            return (topic_of_aggregate(self.run_id),)
        if self.entities_only or self.channels_only:
            return (ENTITY_TOPIC if self.entities_only else CHANNEL_TOPIC,)
        return (EVENTS_TOPIC,) if self.run_id or self.topic else EVENTS_TOPICS


@audit_app.command("verify")
def verify(
    run_id: Annotated[
        str,
        typer.Option(
            "--run", help="Only this run, or aggregate (FAMILY:TENANT/NAME), and the checkpoints that cover it."
        ),
    ] = "",
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition.")] = None,
    since: Annotated[
        str, typer.Option(help="Only what was signed since then: 2026-01-31T12:00:00Z, or 24h, 90m, 7d ago.")
    ] = "",
    keys_file: Annotated[
        Path | None,
        typer.Option("--public-keys", help="File of the public keys to trust, instead of LOOMLOG_AUDIT_PUBLIC_KEYS."),
    ] = None,
    entities: Annotated[bool, typer.Option("--entities", help="Only entities, loom.entity.events.")] = False,
    channels: Annotated[bool, typer.Option("--channels", help="Only channels, loom.channel.events.")] = False,
    topic: Annotated[str, typer.Option(help="Read the records from this topic: a copy of the events.")] = "",
    max_unsigned_s: Annotated[
        float | None, typer.Option(min=0, help="A record that is not signed after so many seconds is a violation.")
    ] = None,
    blobs: Annotated[bool, typer.Option(help="Fetch and compare the blobs that events name.")] = True,
    json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
) -> None:
    """Verify the log against the signed checkpoints; exit 1 on any violation."""
    if run_id and (partition is not None or since):
        raise UsageError("--run says which partition and which time; leave --partition and --since out.")
    if entities and run_id and not is_aggregate_id(run_id):
        raise UsageError(f"--entities has no runs, and {run_id} is no aggregate (FAMILY:TENANT/NAME).")
    if entities and channels:
        raise UsageError("--entities and --channels are two topics: verify one after the other, or without both.")
    if channels and run_id and not is_aggregate_id(run_id):
        raise UsageError(f"--channels has no runs, and {run_id} is no aggregate (FAMILY:TENANT/NAME).")
    request = VerificationRequest(
        run_id=run_id,
        entities_only=entities,
        channels_only=channels,
        partition=partition,
        since_ms=parse_since(since, time.time_ns() // 1_000_000) if since else None,
        topic=topic,
        max_unsigned_s=max_unsigned_s,
        follow_blobs=blobs,
    )
    _check_topic(topic, request.events_topics[0])
    cli = load_cli_settings(os.environ, working_directory=Path.cwd())
    began = time.monotonic()
    reports = run(_verify_request(cli, request, load_trusted_keys(cli, keys_file)))
    seconds = time.monotonic() - began
    if json:
        print_json(audit_json(reports, seconds))
    else:
        print_reports(console(), reports, seconds)
    if not all(report.is_clean for report in reports):
        raise typer.Exit(FAILED)


@audit_app.command("keygen")
def keygen(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the private key is written; it must not exist.")],
) -> None:
    """Create a key that signs checkpoints; its public half is written to FILE.pub."""
    key, public_file = write_new_key(file)
    out = console()
    out.print(f"private key  {file}  (LOOMLOG_AUDIT_KEY_FILE; only the auditor needs it)")
    out.print(f"public key   {public_file}  (add its line to the file of LOOMLOG_AUDIT_PUBLIC_KEYS)")
    out.print(f"key id       {key.key_id}")


def _check_topic(topic: str, original: str) -> None:
    """Reject another topic of the installation as a copy; all its records would look edited. Raises UsageError."""
    if topic == original or topic not in {one.name for one in load_topics()}:
        return
    option = {ENTITY_TOPIC: "--entities", CHANNEL_TOPIC: "--channels"}.get(topic)
    hint = f" {option} verifies that one." if option else ""
    raise UsageError(f"--topic is {topic}, which is no copy of {original}: its records are not what was signed.{hint}")


def load_trusted_keys(cli: CliSettings, file: Path | None) -> dict[str, PublicKey]:
    """Load the keys to trust: the file's, or those of the settings and the own public key. Raises Permanent."""
    if file is not None:
        return load_public_keys(file)
    settings = cli.settings
    listed = load_public_keys(settings.audit_public_keys)
    return verification_keys(listed, load_signing_key(file=settings.audit_key_file, text=settings.audit_key))


async def _verify_request(
    cli: CliSettings, request: VerificationRequest, keys: dict[str, PublicKey]
) -> list[VerificationReport]:
    options = kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka())
    codec = await load_codec(cli.settings)
    reports: list[VerificationReport] = []
    for topic in request.events_topics:
        reports += await _verify_topic(cli, options, codec, request, keys, topic)
    return reports


def events_task(
    request: VerificationRequest, keys: Mapping[str, PublicKey], topic: str, blobs: Blobs | None = None
) -> VerificationTask:
    """Return the task for a topic of events; all of them share their checkpoints topic."""
    return VerificationTask(
        topic=topic,
        records_topic=request.topic or topic,
        checkpoints_topic=CHECKPOINTS_TOPIC,
        keys=keys,
        blobs=blobs,
        since_ms=request.since_ms,
        newest_checkpoints=request.newest_checkpoints,
        run_id=request.run_id,
        max_unsigned_s=request.max_unsigned_s,
        siblings=frozenset(EVENTS_TOPICS) - {topic},
        is_log_kept=topic != CHANNEL_TOPIC,
    )


async def _verify_topic(
    cli: CliSettings,
    options: KafkaOptions,
    codec: Codec,
    request: VerificationRequest,
    keys: dict[str, PublicKey],
    topic: str,
) -> list[VerificationReport]:
    blobs = FileBlobs(cli.settings.effective_blob_folder) if request.follow_blobs else None
    task = events_task(request, keys, topic, blobs)
    count = await _require_topics(options, task, is_single_partition=request.partition is not None)
    if request.partition is not None and request.partition >= count:
        raise UsageError(f"--partition is {request.partition}; {task.records_topic} has {count}.")
    partitions: Sequence[int] = range(count) if request.partition is None else [request.partition]
    place: RunRange | None = None
    if is_aggregate_id(request.run_id):
        partitions = [partition_of(aggregate_key(request.run_id), count)]
    elif request.run_id:
        partitions = [partition_of(partition_key(request.run_id).encode(), count)]
        place = await _find_run_range(cli, request.run_id, partitions[0])
    return await verify_partitions(options, codec, task, partitions, place)


async def _require_topics(options: KafkaOptions, task: VerificationTask, *, is_single_partition: bool = False) -> int:
    """Return the number of partitions to verify. Raises Failure when the records or the checkpoints topic is missing.

    `is_single_partition`: only one partition is verified, so a mismatch of the others is ignored.
    """
    topics = (task.records_topic, task.checkpoints_topic)
    counts = [await count_partitions(options, topic) for topic in topics]
    for topic, count in zip(topics, counts, strict=True):
        if not count:
            raise CliError(f"There is no topic {topic} at {options.bootstrap}. `loomlog topics apply` makes it.")
    if not is_single_partition and (wrong := partition_mismatch(task, *counts)):
        raise CliError(wrong)
    return counts[0]


def partition_mismatch(task: VerificationTask, count: int, signed_count: int) -> str:
    """Describe a mismatch between `count` partitions and the `signed_count` that the auditor signs; empty for none."""
    if count == signed_count:
        return ""
    rest = (
        f"{signed_count - count} that were signed are missing"
        if count < signed_count
        else f"{count - signed_count} are not signed"
    )
    return (
        f"{task.records_topic} has {pluralize(count, 'partition')}, {task.checkpoints_topic} has "
        f"{signed_count}: {rest}. "
        "It is not the log that was signed, nor a whole copy of it; --partition N verifies one partition alone."
    )


async def verify_partitions(
    options: KafkaOptions,
    codec: Codec,
    task: VerificationTask,
    partitions: Sequence[int],
    run_range: RunRange | None = None,
) -> list[VerificationReport]:
    """Verify the partitions one after the other, and return a report for each."""
    async with open_ranges(options) as records, open_ranges(options) as checkpoints:
        log = LogReaders(records, checkpoints, codec)
        reports = []
        for partition in partitions:
            now_ms = time.time_ns() // 1_000_000
            reports.append(await verify_partition(log, task, partition, now_ms=now_ms, run_range=run_range))
    if task.run_id and (reports[0].watched is None or not reports[0].watched.seq):
        kind = "aggregate" if is_aggregate_id(task.run_id) else "run"
        raise CliError(
            f"There is no {kind} {task.run_id} in {task.records_topic}/{reports[0].partition}, where it would lie."
        )
    return reports


async def oldest_unsigned_age_s(cli: CliSettings) -> float:
    """Age in seconds of the oldest event that no checkpoint covers; 0 without one.

    Trusts the newest checkpoints without verifying them; `loomlog audit verify` does that. Raises Failure, or Transient
    when the broker does not answer.
    """
    options = kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka())
    codec = await load_codec(cli.settings)
    oldest: list[int] = []
    request = VerificationRequest()
    for task in (events_task(request, {}, topic) for topic in request.events_topics):
        count = await _require_topics(options, task)
        async with open_ranges(options) as ranges:
            log = LogReaders(ranges, ranges, codec)
            times = [await unsigned_since_ms(log, task, partition) for partition in range(count)]
        oldest += [at_ms for at_ms in times if at_ms is not None]
    return max(0.0, time.time() - min(oldest) / 1000) if oldest else 0.0


async def verify_newest(cli: CliSettings, checkpoints: int) -> list[VerificationReport]:
    """Verify, without blobs, what the newest checkpoints of every partition cover and what came after them."""
    request = VerificationRequest(newest_checkpoints=checkpoints, follow_blobs=False)
    return await _verify_request(cli, request, load_trusted_keys(cli, None))


async def _find_run_range(cli: CliSettings, run_id: str, partition: int) -> RunRange | None:
    """Return the offsets of a run from the read models; None when they are unavailable, so the
    whole partition is read.
    """
    try:
        reader = await open_reader(
            postgres_options(cli.settings, CLIENT_ID, dsn=cli.postgres()), schema=SCHEMA, max_connections=1
        )
    except (Unreachable, ConnectorError):
        return None
    try:
        row = await find_run(reader, EVERY_TENANT, run_id)
    except ConnectorError:
        return None
    finally:
        await reader.close()
    if row is None or row.partition != partition:
        return None
    return RunRange(row.first_offset, row.last_offset if row.status in ENDED else -1)
