"""The auditor as a process on the real broker, `verify` over its checkpoints, and tampered copies."""

import asyncio
import base64
import dataclasses
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from loomlog.connectors.crypto.signatures import SigningKey, generate_key
from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, open_ranges
from loomlog.connectors.protocols import LogRecord, ProducerRecord
from loomlog.redpanda.apply import apply
from loomlog.redpanda.topics import Topic
from loomlog.schemas.codec import local_codec
from loomlog.schemas.records import replace
from loomlog.services.application.log.records import read_range
from loomlog.services.application.log.verification import VerificationTask
from loomlog.services.application.log.verifier import verify_partitions
from loomlog.services.cli.stack.services import PROGRAM_ROOT
from loomlog.services.core.audit.findings import FindingKind
from loomlog.services.core.audit.verify import VerificationReport
from tests.projections.stories import a3x2
from tests.services.core.audit.written import Log, flipped, renumbered, violations

PATIENCE_S = 60.0
PARTITIONS = 4
CHILD = """
import asyncio, os, sys
from pathlib import Path
from loomlog.connectors.process import logs
from loomlog.connectors.configuration.environment import read_settings
from loomlog.schemas.codec import local_codec
from loomlog.services.auditor.main import run
from loomlog.services.auditor.settings import auditor_settings
logs.configure_logging()
settings, _ = read_settings(os.environ, working_directory=Path.cwd())
from dataclasses import replace
settings = replace(auditor_settings(settings), events_topic=sys.argv[1], checkpoints_topic=sys.argv[2])
sys.exit(asyncio.run(run([settings], local_codec())))
"""
"""The process over topics of this test."""


async def fresh_copy(kafka: str, name: str) -> str:
    topic = Topic(name=name, partitions=PARTITIONS, replicas=1, keyed=True, settings={})
    await apply(kafka, topics=[topic])
    return name


def environment(kafka: str, folder: Path, key: SigningKey, trusted: Path) -> dict[str, str]:
    return {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(PROGRAM_ROOT),
        "LOOMLOG_HOME": str(folder),
        "LOOMLOG_KAFKA": kafka,
        "LOOMLOG_AUDIT_KEY": base64.b64encode(key.key.private_bytes_raw()).decode(),
        "LOOMLOG_AUDIT_PUBLIC_KEYS": str(trusted),
        "LOOMLOG_AUDIT_EVERY_RECORDS": "20",
        "LOOMLOG_AUDIT_EVERY_MS": "200",
    }


class Running:
    """An auditor for the length of a block."""

    def __init__(self, environ: dict[str, str], task: VerificationTask, output: Path) -> None:
        self._environ, self._output = environ, output
        self._arguments = ("-P", "-c", CHILD, task.topic, task.checkpoints_topic)

    async def __aenter__(self) -> "Running":
        with self._output.open("ab") as output:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, *self._arguments, env=self._environ, stdout=output, stderr=output
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            assert await self.process.wait() == 0, self._output.read_text()


async def until_covered(
    options: KafkaOptions, task: VerificationTask, accepted: Callable[[VerificationReport], bool]
) -> list[VerificationReport]:
    """Verifies until `accepted` holds for every partition."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            reports = await verify_partitions(partial(open_ranges, options), local_codec(), task, range(PARTITIONS))
            if all(map(accepted, reports)):
                return reports


async def copy(kafka: str, topic: str, partition: int, records: Sequence[LogRecord]) -> None:
    """Produces unchanged records, times included, as a copy tool does."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka, acks="all")
    await producer.start()
    try:
        for record in records:
            await producer.send(
                topic,
                record.value,
                key=record.key,
                partition=partition,
                timestamp_ms=record.timestamp,
                headers=list(record.headers),
            )
        await producer.flush()
    finally:
        await producer.stop()


@pytest.mark.integration
async def test_a_signed_log_is_clean_and_a_tampered_copy_is_not(kafka: str, topic_prefix: str, tmp_path: Path):
    await apply(kafka, prefix=topic_prefix, partitions=PARTITIONS)
    options = KafkaOptions(bootstrap=kafka)
    partition = 2
    written = Log()
    appender = KafkaAppender(options)
    await appender.start()
    appended = 0

    async def append(runs: Sequence[str]) -> None:
        nonlocal appended
        for run_id in runs:
            written.add(run_id, *a3x2(run_id))
        new = [ProducerRecord(key=r.key, value=r.value, headers=r.headers) for r in written.records[appended:]]
        assert await appender.append(task.topic, partition, new) == appended
        appended += len(new)

    one, two = generate_key(), generate_key()
    trusted = tmp_path / "public"
    trusted.write_text(f"{one.public.text}\n{two.public.text}\n")
    task = VerificationTask(
        topic=f"{topic_prefix}.run.events",
        records_topic=f"{topic_prefix}.run.events",
        checkpoints_topic=f"{topic_prefix}.audit.checkpoints",
        keys={one.key_id: one.public, two.key_id: two.public},
        blobs=None,
    )
    output = tmp_path / "auditor.log"

    def all_signed(report: VerificationReport) -> bool:
        return report.unsigned == 0 and report.covered == (len(written.records) if report.partition == partition else 0)

    try:
        written.claim()
        await append(["r_1", "r_2", "r_3"])
        async with Running(environment(kafka, tmp_path, one, trusted), task, output):
            await until_covered(options, task, all_signed)
            await append(["r_4"])
            await until_covered(options, task, all_signed)
        await append(["r_5"])
        async with Running(environment(kafka, tmp_path, two, trusted), task, output):
            reports = await until_covered(options, task, all_signed)
    finally:
        await appender.close()
    report = reports[partition]
    assert report.is_clean, report.findings
    assert [(r.key_id, r.first_offset, r.next_offset) for r in report.ranges] == [
        (one.key_id, 0, 49),
        (two.key_id, 49, 61),
    ]
    logged = output.read_text()
    assert f"signs from offset 49 on, after the key {one.key_id}" in logged
    assert base64.b64encode(one.key.private_bytes_raw()).decode() not in logged

    async with open_ranges(options) as ranges:
        records = [
            replace(w, timestamp=r.timestamp)
            for w, r in zip(written.records, await read_range(ranges, task.topic, partition, 0, 61), strict=True)
        ]
    value = records[20].value or b""
    for name, tampered, expected in (
        ("same", records, []),
        (
            "edited",
            [replace(r, value=flipped(value, len(value) - 1)) if r.offset == 20 else r for r in records],
            [(FindingKind.EDITED, 20, "r_2", 8)],
        ),
        ("removed", [r for r in records if r.offset != 20], [(FindingKind.REMOVED, 20, "r_2", 8)]),
        ("without-claim", records[1:], [(FindingKind.REMOVED, 0, "", -1)]),
        ("twice", [*records[:21], *records[20:]], [(FindingKind.INSERTED, 21, "r_2", 8)]),
        ("cut", records[:50], [(FindingKind.TRUNCATED, 50, "", -1)]),
        (
            "moved",
            [*records[:20], *records[21:40], records[20], *records[40:]],
            [(FindingKind.REORDERED, 20, "r_2", 8)],
        ),
    ):
        topic = await fresh_copy(kafka, f"{topic_prefix}.{name}.events")
        await copy(kafka, topic, partition, renumbered(tampered))
        (copied,) = await verify_partitions(
            partial(open_ranges, options), local_codec(), dataclasses.replace(task, records_topic=topic), [partition]
        )
        assert violations(copied) == expected, name


@pytest.mark.integration
async def test_an_auditor_without_a_key_ends_with_a_message(tmp_path: Path):
    environ = environment("127.0.0.1:1", tmp_path, generate_key(), tmp_path / "none")
    del environ["LOOMLOG_AUDIT_KEY"]
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "loomlog.services.auditor.main", env=environ, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE_S):
        _, errors = await process.communicate()
    assert process.returncode == 1, time.monotonic() - began
    assert "loomlog audit keygen" in errors.decode()
