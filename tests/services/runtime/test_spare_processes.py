"""An owner and a spare as processes on a real broker: the owner is killed under load, and the spare goes on at once.

The group's session is longer than the test may take, so whatever is claimed here is claimed by the spare.
"""

import asyncio
from pathlib import Path
from urllib.request import urlopen

import pytest

from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaTail
from loomlog.redpanda.apply import apply
from loomlog.services.cli.stack.ports import LOOPBACK, pick_port
from loomlog.services.stream.family import Topics
from tests.services.runtime.telemetry.test_exposition import samples, value
from tests.services.runtime.test_standby_processes import (
    CONFIGURATION,
    PARTITIONS,
    SESSION_MS,
    WAIT_S,
    Watch,
    load,
    runtime,
)


async def partitions(port: int, gauge: str) -> float:
    """A gauge of that process; -1 while it is not up."""

    def scraped() -> bytes:
        with urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=30) as answer:
            data: bytes = answer.read()
            return data

    try:
        return value(samples(await asyncio.to_thread(scraped)), f"loomlog_partitions_{gauge}")
    except OSError:  # URLError, or a connection that is reset while the process starts
        return -1


@pytest.mark.integration
async def test_the_runs_of_a_killed_owner_go_on_with_the_spare_and_nothing_moves_back(
    kafka: str, postgres: str, topic_prefix: str, tmp_path: Path
) -> None:
    await apply(kafka, prefix=topic_prefix, partitions=PARTITIONS)
    topics = Topics.of("run", topic_prefix)
    (tmp_path / "loomlog.yaml").write_text(CONFIGURATION)
    ports = {"one": pick_port(), "two": pick_port(), "three": pick_port()}
    shared = {
        "PATH": "",
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "LOOMLOG_KAFKA": kafka,
        "LOOMLOG_POSTGRES": postgres,
        "LOOMLOG_HOME": str(tmp_path),
        "LOOMLOG_CONFIG_FILES": str(tmp_path / "loomlog.yaml"),
        "LOOMLOG_BENCH_ENABLED": "1",
        "LOOMLOG_SESSION_TIMEOUT_MS": str(SESSION_MS),
        "LOOMLOG_SPARES": "1",
    }
    environs = {name: {**shared, "LOOMLOG_RUNTIME_METRICS_PORT": str(port)} for name, port in ports.items()}
    options = KafkaOptions(bootstrap=kafka)
    appender = KafkaAppender(options)
    tail = KafkaTail(options, topics.events, dict.fromkeys(range(PARTITIONS), 0))
    await appender.start()
    await tail.start()
    watch = Watch(tail)

    async def until_gauge(name: str, gauge: str, expected: int) -> None:
        while await partitions(ports[name], gauge) != expected:
            await asyncio.sleep(0.05)  # another process's memory: nobody here could set an event

    try:
        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(watch.run())]
            async with runtime("one", environs["one"], topic_prefix) as one:
                await watch.until(lambda: watch.owned_by("one") == set(range(PARTITIONS)))
                async with runtime("two", environs["two"], topic_prefix):
                    await until_gauge("two", "watched", PARTITIONS)
                    assert await partitions(ports["two"], "warm") == 0
                    beside.append(tasks.create_task(load(appender, topics.commands)))
                    await watch.until(lambda: len(watch.went_on) == PARTITIONS)
                    one.kill()
                    await watch.until(
                        lambda: watch.owned_by("two") == set(range(PARTITIONS)) and len(watch.went_on) == PARTITIONS
                    )
                    assert {claim.reason for claim in watch.claims.values()} == {"standby"}
                    async with runtime("three", environs["three"], topic_prefix):
                        await until_gauge("three", "watched", PARTITIONS)
                        assert watch.owned_by("two") == set(range(PARTITIONS))
                        assert {claim.reason for claim in watch.claims.values()} == {"standby"}
            for task in beside:
                task.cancel()
    finally:
        await appender.close()
        await tail.close()
