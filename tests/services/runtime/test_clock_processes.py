"""A runtime whose clock is a day ahead, on a real broker: it owns nothing and says so, until its clock is right."""

import asyncio
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.redpanda.apply import apply
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.schedule_commands import ArmSchedule
from loomlog.schemas.generated.schedule_events import ScheduleFired
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.reader import TermReader
from loomlog.services.cli.stack.ports import LOOPBACK, pick_port
from loomlog.services.core.families import aggregate_id, aggregate_key
from loomlog.services.stream.family import Topics
from tests.services.families.schedule.examples import RUN, spec
from tests.services.runtime.telemetry.test_exposition import samples, value
from tests.services.runtime.test_standby_processes import CHILD, CONFIGURATION
from tests.waiting import until

DAY_S = 86_400
WAIT_S = 60.0
WITH_A_CLOCK = """
import signal, sys, time
from pathlib import Path
from tests.chaos.clock import JUMP, Clock
clock = Clock(Path(sys.argv[2]))
clock.jump()
signal.signal(JUMP, clock.jump)
time.time, time.time_ns = clock.time, clock.time_ns
"""


class Gauges:
    """The metrics of a process on this machine."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def read(self) -> tuple[bool, float, int]:
        """Whether its clock is believed, how far it is ahead, and how many partitions it owns; (False, 0, -1): it is
        not up.
        """

        def scraped() -> bytes:
            with urlopen(f"http://{LOOPBACK}:{self._port}/metrics", timeout=30) as answer:
                data: bytes = answer.read()
                return data

        try:
            page = samples(await asyncio.to_thread(scraped))
        except OSError:  # URLError, or a connection that is reset while the process starts
            return False, 0.0, -1
        names = ("clock_believed", "clock_offset_seconds", "partitions_owned")
        is_believed, offset_s, owned = (value(page, f"loomlog_{name}") for name in names)
        return bool(is_believed), offset_s, int(owned)

    async def owns(self, count: int, *, is_believed: bool) -> bool:
        believed, _, owned = await self.read()
        return (believed, owned) == (is_believed, count)


def environment(kafka: str, postgres: str, folder: Path, port: int) -> dict[str, str]:
    return {
        "PATH": "",
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "LOOMLOG_KAFKA": kafka,
        "LOOMLOG_POSTGRES": postgres,
        "LOOMLOG_HOME": str(folder),
        "LOOMLOG_CONFIG_FILES": str(folder / "loomlog.yaml"),
        "LOOMLOG_BENCH_ENABLED": "1",
        "LOOMLOG_RUNTIME_METRICS_PORT": str(port),
    }


async def start(prefix: str, clock: Path, environ: Mapping[str, str]) -> asyncio.subprocess.Process:
    """Start a runtime under the clock of a file."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", WITH_A_CLOCK + CHILD, prefix, str(clock), env=environ, stderr=asyncio.subprocess.PIPE
    )


@pytest.mark.integration
async def test_a_process_whose_clock_is_a_day_ahead_fires_nothing_until_it_is_right(
    kafka: str, postgres: str, topic_prefix: str, tmp_path: Path
) -> None:
    await apply(kafka, prefix=topic_prefix, partitions=1)
    topics = Topics.of("entity", topic_prefix)
    (tmp_path / "loomlog.yaml").write_text(CONFIGURATION)
    clock = tmp_path / "clock"
    clock.write_text(str(DAY_S))
    port = pick_port()
    environ = environment(kafka, postgres, tmp_path, port)
    codec, gauges = local_codec(), Gauges(port)
    appender, ranges = KafkaAppender(KafkaOptions(bootstrap=kafka)), KafkaRanges(KafkaOptions(bootstrap=kafka))
    await appender.start()
    await ranges.start()

    async def events() -> list[tuple[Any, int]]:
        """The accepted events of entities with their times."""
        reader, found = TermReader(codec=codec), list[tuple[Any, int]]()
        end = await ranges.end_offset(topics.events, 0)
        async with await ranges.read(topics.events, 0, 0, end) as chunks:
            async for chunk in chunks:
                for record in chunk:
                    if (raw := reader.read(record.offset, record.value)) is not None:
                        event = raw.decode(codec)
                        found.append((event.record, event.envelope.at_ms))
        return found

    async def has_fired(count: int) -> bool:
        return sum(isinstance(event, ScheduleFired) for event, _ in await events()) >= count

    command = ArmSchedule(
        envelope=CommandEnvelope(command_id="c1", tenant="acme", issued_at_ms=int(time.time() * 1_000)),
        name="often",
        def_id="def_1",
        revision=1,
        spec=spec("@every 1s", overlap="allow"),
        run=RUN,
    )
    key = aggregate_key(aggregate_id("schedule", "acme", "often"))
    await appender.append(topics.commands, partition_of(key, 1), [ProducerRecord(key=key, value=codec.encode(command))])
    process = await start(topic_prefix, clock, environ)
    try:
        async with asyncio.timeout(WAIT_S):
            await until(lambda: gauges.owns(0, is_believed=False), within_s=WAIT_S)
            _, offset_s, _ = await gauges.read()
            assert offset_s == pytest.approx(DAY_S, abs=1)
            assert await ranges.end_offset(topics.events, 0) == 0, "it has claimed nothing"
            clock.unlink()
            process.send_signal(signal.SIGUSR2)
            await until(lambda: gauges.owns(1, is_believed=True), within_s=WAIT_S)
            await until(lambda: has_fired(2), within_s=WAIT_S)
            for count in (4, 6):  # it is set forward while it owns, twice
                clock.write_text(str(DAY_S))
                process.send_signal(signal.SIGUSR2)
                await until(lambda: gauges.owns(0, is_believed=False), within_s=WAIT_S)
                clock.unlink()
                process.send_signal(signal.SIGUSR2)
                await until(lambda: gauges.owns(1, is_believed=True), within_s=WAIT_S)
                await until(lambda count=count: has_fired(count), within_s=WAIT_S)  # type: ignore[misc]
            now_ms = int(time.time() * 1_000)
            assert [event for event, at_ms in await events() if at_ms > now_ms] == []
    finally:
        if process.returncode is None:
            process.kill()
        _, said = await process.communicate()
        await appender.close()
        await ranges.close()
    lines = [line for line in said.decode().splitlines() if "the clock of this process" in line]
    assert ["s ahead of the broker's" in line for line in lines] == [True, False, True, False, True, False], lines


@pytest.mark.integration
async def test_a_spare_takes_over_from_an_owner_whose_clock_was_set(
    kafka: str, postgres: str, topic_prefix: str, tmp_path: Path
) -> None:
    await apply(kafka, prefix=topic_prefix, partitions=2)
    (tmp_path / "loomlog.yaml").write_text(CONFIGURATION)
    ports = {name: pick_port() for name in ("one", "two")}
    gauges = {name: Gauges(port) for name, port in ports.items()}
    processes: dict[str, asyncio.subprocess.Process] = {}
    try:
        for name, owned in (("one", 2), ("two", 0)):
            more = {"LOOMLOG_REPLICA_ID": name, "LOOMLOG_SPARES": "1", "LOOMLOG_SESSION_TIMEOUT_MS": "20000"}
            environ = environment(kafka, postgres, tmp_path, ports[name]) | more
            processes[name] = await start(topic_prefix, tmp_path / f"clock {name}", environ)
            await until(lambda name=name, owned=owned: gauges[name].owns(owned, is_believed=True))  # type: ignore[misc]
        (tmp_path / "clock one").write_text(str(-3_600))
        processes["one"].send_signal(signal.SIGUSR2)
        await until(lambda: gauges["two"].owns(2, is_believed=True))
        assert await gauges["one"].owns(0, is_believed=False)
        (tmp_path / "clock one").unlink()
        processes["one"].send_signal(signal.SIGUSR2)
        await until(lambda: gauges["one"].owns(0, is_believed=True))
        assert await gauges["two"].owns(2, is_believed=True), "nothing moves back"
    finally:
        for process in processes.values():
            if process.returncode is None:
                process.kill()
            await process.communicate()
