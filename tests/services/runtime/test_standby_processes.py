"""Two runtime processes on a real broker, one of them killed under load: the other goes on without the group.

The group's session is longer than the test may take, so whatever is claimed here is claimed by the standby.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaTail
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.redpanda.apply import apply
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.producer import start_run_record
from loomlog.schemas.reader import TermReader
from loomlog.services.cli.stack.ports import LOOPBACK, pick_port
from loomlog.services.stream.family import Topics
from tests.services.runtime.telemetry.test_exposition import samples, value

PARTITIONS = 4
WAIT_S = 60.0
SESSION_MS = 20_000
MOST_S = SESSION_MS / 2_000
"""From the kill to the first event of the next owner; far above what it takes, and below the session."""
IN_FLIGHT_EVERY_S = 0.02
CONFIGURATION = """
providers:
  mock: { driver: mock, options: { enabled: true, latency_ms: 100, latency_jitter_ms: 100 } }
agents:
  helper: { provider: mock, model: mock-a3x2, tools: [Bench], disable_context: true }
"""
CHILD = """
import sys
from loomlog.services.runtime import main, topics
from tests.services.runtime.names import names_under
prefix = sys.argv[1]
for name, value in names_under(prefix).items():
    setattr(topics, name, value)
sys.exit(main.main())
"""


class Watch:
    """Follows the events: who owns what since when, and when a partition went on."""

    def __init__(self, tail: KafkaTail) -> None:
        self.claims: dict[int, Claim] = {}
        self.went_on: dict[int, float] = {}
        """When the first accepted event after the latest Claim of a partition was seen, monotonic."""
        self._tail = tail
        self._readers = {number: TermReader() for number in range(PARTITIONS)}
        self._changed = asyncio.Condition()

    async def run(self) -> None:
        while True:
            recordses = await self._tail.poll(timeout_s=0.5)
            for number, records in recordses.items():
                for record in records:
                    reader = self._readers[number]
                    claims = reader.claims
                    event = reader.read(record.offset, record.value)
                    if reader.claims > claims:
                        claim = local_codec().decode(record.value or b"").record
                        assert isinstance(claim, Claim)
                        self.claims[number] = claim
                        self.went_on.pop(number, None)
                    elif event is not None:
                        self.went_on.setdefault(number, time.monotonic())
            async with self._changed:
                self._changed.notify_all()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(holds)

    def owned_by(self, name: str) -> set[int]:
        return {number for number, claim in self.claims.items() if claim.owner == name}


@asynccontextmanager
async def runtime(name: str, environ: Mapping[str, str], prefix: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, prefix, env={**environ, "LOOMLOG_REPLICA_ID": name}
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def warm(port: int) -> float:
    """How many partitions that process has folded up to now; -1 while it is not up."""

    def scraped() -> bytes:
        with urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=30) as answer:
            data: bytes = answer.read()
            return data

    try:
        return value(samples(await asyncio.to_thread(scraped)), "loomlog_partitions_warm")
    except OSError:  # URLError, or a connection that is reset while the process starts
        return -1


async def load(appender: KafkaAppender, topic: str) -> None:
    """Starts runs until cancelled."""
    while True:
        record = start_run_record(agent="helper", prompt="go")
        command = ProducerRecord(key=record.key, value=record.value, headers=record.headers)
        await appender.append(topic, partition_of(record.key, PARTITIONS), [command])
        await asyncio.sleep(IN_FLIGHT_EVERY_S)


@pytest.mark.integration
async def test_the_partitions_of_a_killed_process_go_on_long_before_the_group_has_noticed(
    kafka: str, postgres: str, topic_prefix: str, tmp_path: Path
) -> None:
    await apply(kafka, prefix=topic_prefix, partitions=PARTITIONS)
    topics = Topics.of("run", topic_prefix)
    (tmp_path / "loomlog.yaml").write_text(CONFIGURATION)
    ports = {"one": pick_port(), "two": pick_port()}
    environ = {
        "PATH": "",
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "LOOMLOG_KAFKA": kafka,
        "LOOMLOG_POSTGRES": postgres,
        "LOOMLOG_HOME": str(tmp_path),
        "LOOMLOG_CONFIG_FILES": str(tmp_path / "loomlog.yaml"),
        "LOOMLOG_BENCH_ENABLED": "1",
        "LOOMLOG_SESSION_TIMEOUT_MS": str(SESSION_MS),
    }
    options = KafkaOptions(bootstrap=kafka)
    appender = KafkaAppender(options)
    tail = KafkaTail(options, topics.events, dict.fromkeys(range(PARTITIONS), 0))
    await appender.start()
    await tail.start()
    watch = Watch(tail)
    try:
        async with (
            asyncio.timeout(WAIT_S),
            asyncio.TaskGroup() as tasks,
            runtime("one", {**environ, "LOOMLOG_RUNTIME_METRICS_PORT": str(ports["one"])}, topic_prefix) as one,
            runtime("two", {**environ, "LOOMLOG_RUNTIME_METRICS_PORT": str(ports["two"])}, topic_prefix),
        ):
            beside = [tasks.create_task(watch.run()), tasks.create_task(load(appender, topics.commands))]
            await watch.until(lambda: len(watch.owned_by("one")) == len(watch.owned_by("two")) == PARTITIONS // 2)
            while [await warm(port) for port in ports.values()] != [PARTITIONS // 2] * 2:
                await asyncio.sleep(0.05)  # another process's memory: nobody here could set an event
            await watch.until(lambda: len(watch.went_on) == PARTITIONS)
            lost = watch.owned_by("one")
            one.kill()
            killed_s = time.monotonic()
            await watch.until(
                lambda: watch.owned_by("two") == set(range(PARTITIONS)) and len(watch.went_on) == PARTITIONS
            )
            took_s = max(watch.went_on[number] for number in lost) - killed_s
            print(f"went on after {took_s * 1000:.0f} ms")
            assert {watch.claims[number].reason for number in lost} == {"standby"}
            assert took_s < MOST_S
            for task in beside:
                task.cancel()
    finally:
        await appender.close()
        await tail.close()
