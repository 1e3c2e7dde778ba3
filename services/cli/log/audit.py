"""`loomlog audit`: verifying that the log is what was written and signed; who did what is in acts.py.

    loomlog audit verify                      everything, against the auditor's signed checkpoints
    loomlog audit verify --run RUN            the chain of that run or aggregate and the checkpoints that cover it
    loomlog audit verify --entities           only the events of entities (loom.entity.events)
    loomlog audit verify --channels           only the events of channels that are not deleted yet
    loomlog audit verify --since 24h          what was signed since then, and what is not signed yet
    loomlog audit verify --topic COPY         a copy of the events of runs, or with --entities of entities, against the
                                              same checkpoints

Exits 1 on any violation. Stale and not yet signed records are listed, but are no violations. Only the public keys are
trusted: run it on another machine than the log's, with keys that were stored elsewhere.

Before: services/cli/main.py. After: services/application/log/verifier.py.
"""

import time
from collections.abc import Mapping
from functools import partial
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
from loomlog.connectors.kafka import count_partitions, open_ranges
from loomlog.connectors.kafka.schema_registry import load_codec
from loomlog.connectors.storage.blobs import FileBlobs
from loomlog.connectors.storage.postgres import open_reader
from loomlog.projections.audit import AuditRow, find_run
from loomlog.projections.engine.builds import PREFIX as SCHEMA
from loomlog.projections.tables import EVERY_TENANT
from loomlog.redpanda.topics import load_topics
from loomlog.services.application.log.audit_json import audit_json
from loomlog.services.application.log.records import CHANNEL_TOPIC, ENTITY_TOPIC
from loomlog.services.application.log.verifier import LogSources, LogVerifier, VerificationRequest
from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import FAILED, Unreachable, UsageError
from loomlog.services.cli.log.acts import list_acts
from loomlog.services.cli.settings import CLIENT_ID, CliSettings, current_settings
from loomlog.services.cli.terminal.audit_text import print_reports
from loomlog.services.cli.terminal.output import console, print_json
from loomlog.services.cli.terminal.times import parse_since
from loomlog.services.core.audit.verify import VerificationReport

audit_app = typer.Typer(help="Who did what, and is the log what was written and signed?", no_args_is_help=True)
audit_app.command("acts")(list_acts)


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
    if request.conflict:
        raise UsageError(request.conflict)
    _check_topic(topic, request.events_topics[0])
    cli = current_settings()
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
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
) -> None:
    """Create a key that signs checkpoints; its public half is written to FILE.pub."""
    key, public_file = write_new_key(file)
    if as_json:
        print_json({"private_key": str(file), "public_key": str(public_file), "key_id": key.key_id})
        return
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
    cli: CliSettings, request: VerificationRequest, keys: Mapping[str, PublicKey]
) -> list[VerificationReport]:
    return await (await _open_verifier(cli, keys)).verify(request)


async def _open_verifier(cli: CliSettings, keys: Mapping[str, PublicKey]) -> LogVerifier:
    """Return the verifier of the log of the settings. Raises CliError, Transient."""
    options = kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka())
    return LogVerifier(
        LogSources(
            open_ranges=partial(open_ranges, options),
            count_partitions=partial(count_partitions, options),
            find_run=partial(_find_run, cli),
            codec=await load_codec(cli.settings),
            keys=keys,
            blobs=FileBlobs(cli.settings.effective_blob_folder),
            place=options.bootstrap,
        )
    )


async def oldest_unsigned_age_s(cli: CliSettings) -> float:
    """Age in seconds of the oldest event that no checkpoint covers; 0 without one."""
    return await (await _open_verifier(cli, {})).oldest_unsigned_age_s()


async def verify_newest(cli: CliSettings, checkpoints: int) -> list[VerificationReport]:
    """Verify, without blobs, what the newest checkpoints of every partition cover and what came after them."""
    request = VerificationRequest(newest_checkpoints=checkpoints, follow_blobs=False)
    return await _verify_request(cli, request, load_trusted_keys(cli, None))


async def _find_run(cli: CliSettings, run_id: str) -> AuditRow | None:
    """Return the place of a run from the read models; None when they are unavailable."""
    try:
        reader = await open_reader(
            postgres_options(cli.settings, CLIENT_ID, dsn=cli.postgres()), schema=SCHEMA, max_connections=1
        )
    except (Unreachable, ConnectorError):
        return None
    try:
        return await find_run(reader, EVERY_TENANT, run_id)
    except ConnectorError:
        return None
    finally:
        await reader.close()
