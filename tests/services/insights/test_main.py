"""The process on a real broker: windows, dead letters, kill -9 and restart, and how it ends."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.kafka.schema_registry import load_codec
from loomlog.redpanda.apply import apply
from loomlog.redpanda.topics import load_topics
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.stream_records import DeadLetter, RunTally, ToolTally
from loomlog.services.insights.web import bind_socket
from tests.connectors.kafka.test_schema_registry import FakeRegistry, registry
from tests.services.insights.given import tally

__all__ = ["registry"]  # a fixture, used by its name

ROOT = Path(__file__).parents[3]
READY_S = 40.0
"""Start of the process, join of the group and reading the history, on a busy machine."""


class Topics:
    """The topics of one test, with helpers."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap = bootstrap
        self.source, self.letters = f"{prefix}.insights.runs", f"{prefix}.dead-letter"
        self.group = f"{prefix}-group"
        self.changelog = f"{self.group}-minutes-changelog"
        self.codec = local_codec()
        self._prefix = prefix

    async def make(self) -> None:
        topics = [t for t in load_topics("local", prefix=self._prefix) if t.name in (self.source, self.letters)]
        assert len(topics) == 2
        await apply(self.bootstrap, topics=topics)

    async def produce(self, *values: RunTally | bytes | None) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap)
        await producer.start()
        try:
            for value in values:
                key = str(value.offset).encode() if isinstance(value, RunTally) else b"unreadable"
                raw = self.codec.encode(value) if isinstance(value, RunTally) else value
                await producer.send_and_wait(self.source, raw, key=key, headers=[("h", b"1")])
        finally:
            await producer.stop()

    async def dead_letters(self, count: int) -> list[DeadLetter]:
        """At least `count` letters, and any others written by then."""
        consumer = AIOKafkaConsumer(self.letters, bootstrap_servers=self.bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        letters: list[DeadLetter] = []
        try:
            async with asyncio.timeout(30):
                while len(letters) < count:
                    for records in (await consumer.getmany(timeout_ms=500)).values():
                        letters += [self.codec.decode(record.value).record for record in records]
        finally:
            await consumer.stop()
        return letters


class Process:
    """A running insights process."""

    def __init__(self, child: asyncio.subprocess.Process, port: int, log: Path) -> None:
        self.child, self.port, self.log = child, port, log

    async def report(self) -> dict[str, Any]:
        async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
            return dict((await client.get(f"http://127.0.0.1:{self.port}/insights")).json())

    async def until(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first report for which `condition` holds."""
        last: dict[str, Any] = {}

        async def holds() -> bool:
            nonlocal last
            assert self.child.returncode is None, self.log.read_text()
            try:
                last = await self.report()
            except httpx.HTTPError:
                return False
            return condition(last)

        try:
            await eventually(holds)
        except TimeoutError:
            raise AssertionError(f"{last}\n{self.log.read_text()}") from None
        return last

    async def ended(self, within_s: float) -> int:
        async with asyncio.timeout(within_s):
            return await self.child.wait()


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(READY_S):
        while not await condition():
            await asyncio.sleep(0.1)


@pytest.fixture
async def topics(kafka: str, topic_prefix: str) -> AsyncIterator[Topics]:
    topics = Topics(kafka, topic_prefix)
    await topics.make()
    yield topics
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        names = [name for name in await admin.list_topics() if name.startswith(topic_prefix)]
        await admin.delete_topics(names)
    finally:
        await admin.close()


@asynccontextmanager
async def running(topics: Topics, tmp_path: Path, *, port: int = 0, **changes: object) -> AsyncIterator[Process]:
    if not port:
        with bind_socket(0) as free:
            port = free.getsockname()[1]
    options = {
        "bootstrap": topics.bootstrap,
        "port": port,
        "source_topic": topics.source,
        "dead_letter_topic": topics.letters,
        "group": topics.group,
    } | changes
    log = tmp_path / f"{time.monotonic_ns()}.log"
    with log.open("wb") as out:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.services.insights.child", json.dumps(options), stderr=out, stdout=out, cwd=ROOT
        )  # fmt: skip
    try:
        yield Process(child, port, log)
    finally:
        if child.returncode is None:
            os.kill(child.pid, signal.SIGKILL)
            await child.wait()


async def spoil(bootstrap: str, topic: str) -> None:
    """Writes foreign records into every partition of a topic."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        for partition in await producer.partitions_for(topic):
            for value in (b"garbage", b"", None, b"{}"):
                await producer.send_and_wait(topic, value, key=b"k", partition=partition)
    finally:
        await producer.stop()


def runs_now(count: int, *, first_offset: int = 100, **changes: object) -> Sequence[RunTally]:
    """Tallies of one run each."""
    fields = {"ended_at_ms": time.time_ns() // 1_000_000, "took_ms": 1_500} | changes
    return [tally(offset=first_offset + n, **fields) for n in range(count)]  # type: ignore[arg-type]  # as in tally


@pytest.mark.integration
async def test_tallies_become_windows_unreadable_records_dead_letters_and_sigterm_ends_it(
    topics: Topics, tmp_path: Path
) -> None:
    tools = (ToolTally(name="Bash", calls=2, errors=1),)
    counted = [
        *runs_now(20, tools=tools, runs=3),
        *runs_now(5, first_offset=200, term=150, status="failed", agent="broken"),
    ]
    stale = runs_now(1, first_offset=300, term=5)
    # The claim at 150 must be known before the stale tally is read, and the topic has four partitions.
    async with running(topics, tmp_path) as process:
        await topics.produce(*counted, counted[0])
        await process.until(lambda report: report["records"]["counted"] + report["records"]["duplicate"] == 26)
        await topics.produce(*stale, b"garbage", None)
        report = await process.until(
            lambda report: report["records"]["unreadable"] + report["records"]["stale"] == 3 and report["is_whole"]
        )
        letters = await topics.dead_letters(2)
        await stays_empty_with_one_replica(topics.bootstrap, topics.changelog)
        process.child.terminate()
        assert await process.ended(5) == 0, process.log.read_text()
        assert "Traceback" not in process.log.read_text()

    assert report["records"] | {"unreadable": 0} == {
        "counted": 25, "stale": 1, "duplicate": 1, "late": 0, "early": 0, "overflow": 0, "unreadable": 0
    }  # fmt: skip
    window = report["windows"]["5m"]
    assert window["runs"] == 65
    assert window["statuses"] == {"completed": 60, "failed": 5}
    assert window["error_ratio"] == 5 / 65
    assert window["agents"][1] == {"tenant": "acme", "agent": "broken", "runs": 5, "errors": 5, "error_ratio": 1.0}
    assert window["tools"] == [{"tool": "Bash", "calls": 40, "errors": 20, "error_ratio": 0.5}]
    assert 1_000 < window["duration_ms"]["p95"] <= 1_500
    assert {(letter.value, letter.kind, letter.topic) for letter in letters} == {
        (b"garbage", "undecodable", topics.source),
        (None, "undecodable", topics.source),
    }
    assert all(letter.key == b"unreadable" and letter.headers[0].value == b"1" for letter in letters)


@pytest.mark.integration
async def test_with_a_registry_tallies_and_dead_letters_have_its_ids(
    topics: Topics, registry: FakeRegistry, tmp_path: Path
) -> None:
    topics.codec = await load_codec(Settings(schema_registry=registry.url))
    async with running(topics, tmp_path, schema_registry=registry.url) as process:
        await topics.produce(*runs_now(1), b"garbage")
        await process.until(lambda report: report["records"]["counted"] == 1)
        (letter,) = await topics.dead_letters(1)
    assert (letter.value, letter.kind) == (b"garbage", "undecodable")


@pytest.mark.integration
async def test_after_kill_nine_the_windows_are_rebuilt_and_nothing_is_dead_lettered_twice(
    topics: Topics, tmp_path: Path
) -> None:
    async with running(topics, tmp_path) as process:
        await topics.produce(*runs_now(30), b"garbage")
        await process.until(lambda report: report["windows"]["15m"]["runs"] == 30)
        await topics.dead_letters(1)
        await eventually(lambda: _all_committed(topics, 31))
        os.kill(process.child.pid, signal.SIGKILL)
        await process.ended(5)
    await spoil(topics.bootstrap, topics.changelog)
    await topics.produce(*runs_now(4, first_offset=500))
    async with running(topics, tmp_path, port=process.port) as process:
        report = await process.until(lambda report: bool(report["is_whole"]))
        assert report["windows"]["15m"]["runs"] == 34
        assert report["records"]["unreadable"] == 1
        assert report["parked"] == {}
        await topics.produce(b"more")
        letters = {letter.value for letter in await topics.dead_letters(2)}
    assert letters == {b"garbage", b"more"}


async def _all_committed(topics: Topics, records: int) -> bool:
    admin = AIOKafkaAdminClient(bootstrap_servers=topics.bootstrap)
    await admin.start()
    try:
        offsets = await admin.list_consumer_group_offsets(topics.group)
        return bool(sum(meta.offset for tp, meta in offsets.items() if tp.topic == topics.source) == records)
    finally:
        await admin.close()


async def stays_empty_with_one_replica(bootstrap: str, changelog: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        (described,) = await admin.describe_topics([changelog])
    finally:
        await admin.close()
    assert [len(partition["replicas"]) for partition in described["partitions"]] == [1, 1, 1, 1]
    reader = AIOKafkaConsumer(changelog, bootstrap_servers=bootstrap)
    await reader.start()
    try:
        ends = await reader.end_offsets([TopicPartition(changelog, number) for number in range(4)])
        assert list(ends.values()) == [0, 0, 0, 0]
    finally:
        await reader.stop()


@pytest.mark.integration
async def test_a_topic_that_is_missing_is_named_and_ends_the_process(topics: Topics, tmp_path: Path) -> None:
    async with running(topics, tmp_path, dead_letter_topic=f"{topics.letters}-missing") as process:
        assert await process.ended(READY_S) == 1
    assert f"topic {topics.letters}-missing has 0 partitions, expected at least 1" in process.log.read_text()


async def test_a_broker_that_is_not_there_ends_the_process(tmp_path: Path) -> None:
    async with running(Topics("127.0.0.1:1", "none"), tmp_path) as process:
        assert await process.ended(READY_S) == 1
    assert "could not start on the broker at 127.0.0.1:1" in process.log.read_text()


async def test_settings_that_cannot_be_used_end_the_process(tmp_path: Path) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "loomlog.services.insights.main",
        cwd=ROOT,
        env={"PATH": ""},
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(READY_S):
        _, errors = await child.communicate()
    assert child.returncode == 1
    assert b"LOOMLOG_KAFKA is not set" in errors
