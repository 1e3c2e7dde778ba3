"""A tool that ends its process: a whole one over a real broker, started again each time, as a supervisor does it."""

import asyncio
import sys
from pathlib import Path

import pytest

from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.redpanda.apply import apply
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_events import RunCompleted, RunQuarantined, ToolCallRequested
from loomlog.schemas.producer import start_run_record
from loomlog.schemas.reader import TermReader
from loomlog.services.stream.family import Topics

CODEC = local_codec()
WAIT_S = 60.0
LOSSES_MAX = 2
"""In the child: the bound itself is tried in memory (stream/test_quarantine.py), and a death takes seconds."""
FATAL = 7
CHILD = """
import os, sys
from pathlib import Path
import uvloop
from loomlog.connectors.configuration.load import load
from loomlog.connectors.models.mock import model
from loomlog.connectors.models.mock.script import ScriptTurn, ScriptedCall
from loomlog.connectors.protocols import EffectClass
from loomlog.connectors.tools.bench import BenchTool
from loomlog.services.core.run import limits
from loomlog.services.runtime import main, topics
from tests.services.runtime.names import names_under

prefix, losses_max, code, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])

async def call(self, arguments, context):
    os._exit(code)

BenchTool.call = call
BenchTool.effect_class = lambda self, arguments: EffectClass.UNSAFE
model.SCRIPTS["mock-fatal"] = lambda request: ScriptTurn(calls=(ScriptedCall(name="Bench", input="{}"),))
limits.LOSSES_MAX = losses_max
for name, value in names_under(prefix).items():
    setattr(topics, name, value)
uvloop.run(main.run(load(dict(os.environ), working_directory=folder)))
"""
CONFIGURATION = """
providers:
  mock: { driver: mock, options: { enabled: true, latency_ms: 0, latency_jitter_ms: 0 } }
agents:
  helper: { provider: mock, model: mock-generic, tools: [] }
  fatal: { provider: mock, model: mock-fatal, tools: [Bench], unbounded_iterations: true }
"""


@pytest.mark.integration
async def test_a_tool_that_ends_its_process_parks_its_run_and_the_process_stays(
    kafka: str, postgres: str, topic_prefix: str, tmp_path: Path
) -> None:
    await apply(kafka, prefix=topic_prefix)
    topics = Topics.of("run", topic_prefix)
    (tmp_path / "loomlog.yaml").write_text(CONFIGURATION)
    environ = {
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "LOOMLOG_KAFKA": kafka,
        "LOOMLOG_POSTGRES": postgres,
        "LOOMLOG_CONFIG_FILES": str(tmp_path / "loomlog.yaml"),
        "LOOMLOG_BENCH_ENABLED": "1",
        "LOOMLOG_METRICS_ENABLED": "0",
    }
    options = KafkaOptions(bootstrap=kafka)
    appender, ranges = KafkaAppender(options), KafkaRanges(options)
    await appender.start()
    await ranges.start()
    partitions = await appender.partitions(topics.commands)

    async def start(agent: str) -> int:
        """Put a StartRun into the log; its partition."""
        record = start_run_record(agent=agent, prompt="hello", codec=CODEC)
        partition = partition_of(record.key, partitions)
        command = ProducerRecord(key=record.key, value=record.value, headers=record.headers)
        await appender.append(topics.commands, partition, [command])
        return partition

    async def count(partition: int, kind: type[object]) -> int:
        reader, actual = TermReader(codec=CODEC), 0
        end = await ranges.end_offset(topics.events, partition)
        async with await ranges.read(topics.events, partition, 0, end) as chunks:
            async for chunk in chunks:
                for record in chunk:
                    raw = reader.read(record.offset, record.value)
                    actual += raw is not None and isinstance(raw.decode(CODEC).record, kind)
        return actual

    async def spawned() -> asyncio.subprocess.Process:
        words = (topic_prefix, str(LOSSES_MAX), str(FATAL), str(tmp_path))
        return await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-c", CHILD, *words, env=environ, stderr=asyncio.subprocess.DEVNULL
        )

    child = await spawned()
    deaths = 0
    try:
        async with asyncio.timeout(WAIT_S):
            bad = await start("fatal")
            while not await count(bad, RunQuarantined):
                if child.returncode is not None:
                    assert child.returncode == FATAL
                    deaths += 1
                    assert deaths <= LOSSES_MAX + 1, "a restart loop"
                    child = await spawned()
                await asyncio.sleep(0.05)
            good = await start("helper")
            while not await count(good, RunCompleted):
                assert child.returncode is None
                await asyncio.sleep(0.05)
        assert deaths == LOSSES_MAX + 1
        assert await count(bad, ToolCallRequested) == deaths, "the model asked again each time"
        assert await count(bad, RunQuarantined) == 1
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()
        await appender.close()
        await ranges.close()
