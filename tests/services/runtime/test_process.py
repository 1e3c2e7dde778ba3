"""The whole process with everything that can be switched on: registry, traces, metrics, and its environment hidden."""

import asyncio
import os
import signal
from pathlib import Path
from urllib.request import urlopen

import pytest

from loomlog.connectors.configuration.load import ProcessConfiguration, load
from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.kafka.schema_registry import load_codec
from loomlog.connectors.protocols import ProducerRecord
from loomlog.redpanda.apply import apply
from loomlog.schemas.generated.run_events import ModelReplied, RunCompleted, RunStarted
from loomlog.schemas.producer import start_run_record
from loomlog.schemas.reader import TermReader
from loomlog.services.runtime import main
from loomlog.services.runtime import topics as runtime_topics
from loomlog.services.stream.family import Topics
from tests.connectors.kafka.test_schema_registry import FakeRegistry
from tests.services.runtime.names import names_under
from tests.services.runtime.telemetry.test_exposition import samples, value
from tests.services.runtime.telemetry.test_otel import collector

WAIT_S = 30.0
CONFIGURATION = """
providers:
  mock: { driver: mock, options: { enabled: true, latency_ms: 0, latency_jitter_ms: 0 } }
agents:
  helper: { provider: mock, model: mock-generic, tools: [] }
"""


async def stopped(process: asyncio.Task[None], *, is_up: bool) -> None:
    """Ends the process that runs in this one as its supervisor would, once it listens to signals."""
    if is_up and not process.done():
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        process.cancel()
    await asyncio.wait([process])
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().remove_signal_handler(number)
    if not process.cancelled():
        process.result()


@pytest.mark.integration
async def test_a_run_goes_through_with_registry_ids_traces_and_metrics(
    kafka: str,
    postgres: str,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    await apply(kafka, prefix=topic_prefix)
    topics = Topics.of("run", topic_prefix)
    for name, topic in names_under(topic_prefix).items():
        monkeypatch.setattr(runtime_topics, name, topic)
    (tmp_path / "loomlog.yaml").write_text(CONFIGURATION)
    registry = FakeRegistry()
    server = await asyncio.start_server(registry.serve, "127.0.0.1", 0)
    async with collector() as (address, taken), asyncio.timeout(WAIT_S):
        environ = {
            "LOOMLOG_KAFKA": kafka,
            "LOOMLOG_POSTGRES": postgres,
            "LOOMLOG_CONFIG_FILES": str(tmp_path / "loomlog.yaml"),
            "LOOMLOG_SCHEMA_REGISTRY": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}",
            "LOOMLOG_OTEL_EXPORTER_OTLP_ENDPOINT": address,
            "LOOMLOG_RUNTIME_METRICS_PORT": "0",
        }
        loaded = load(environ, working_directory=tmp_path)
        process = asyncio.create_task(main.run(loaded))
        codec = await load_codec(loaded.settings)
        options = KafkaOptions(bootstrap=kafka)
        appender, ranges = KafkaAppender(options), KafkaRanges(options)
        await appender.start()
        await ranges.start()
        try:
            record = start_run_record(agent="helper", prompt="hello", codec=codec)
            partitions = await appender.partitions(topics.commands)
            partition = partition_of(record.key, partitions)
            command = ProducerRecord(key=record.key, value=record.value, headers=record.headers)
            await appender.append(topics.commands, partition, [command])
            reader, events = TermReader(codec=codec), []
            while not any(isinstance(event, RunCompleted) for event in events):
                assert not process.done(), process
                end = await ranges.end_offset(topics.events, partition)
                async with await ranges.read(topics.events, partition, reader.next_offset, end) as chunks:
                    async for chunk in chunks:
                        for log_record in chunk:
                            assert int.from_bytes(log_record.value[1:5], "big") >= 1000
                            raw = reader.read(log_record.offset, log_record.value)
                            if raw is not None:
                                events.append(raw.decode(codec).record)
                await asyncio.sleep(0.05)
            line = next(line for line in caplog.messages if "is up" in line)
            page = await asyncio.to_thread(lambda: urlopen(line.rpartition(" ")[2], timeout=30).read())
        finally:
            await stopped(process, is_up="is up" in caplog.text)
            await appender.close()
            await ranges.close()
            server.close()
    assert value(samples(page), "loomlog_runs_ended_total", status="completed") == 1
    assert 1 <= value(samples(page), "loomlog_partitions_owned") <= partitions
    started = next(event for event in events if isinstance(event, RunStarted))
    replied = next(event for event in events if isinstance(event, ModelReplied))
    assert started.traceparent[3:35] == replied.traceparent[3:35]
    assert any(b"invoke_agent helper" in body for _, body in taken)


@pytest.mark.parametrize(("bash", "calls"), [("1", ["hidden", "run"]), ("0", ["run"])])
def test_the_environment_is_hidden_before_anything_runs_when_commands_are_allowed(
    bash: str, calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    async def run(loaded: ProcessConfiguration) -> None:
        done.append("run")

    (tmp_path / "loomlog.yaml").write_text(CONFIGURATION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOOMLOG_CONFIG_FILES", str(tmp_path / "loomlog.yaml"))
    monkeypatch.setenv("LOOMLOG_BASH_ENABLED", bash)
    monkeypatch.setattr(main, "run", run)
    monkeypatch.setattr(main, "disable_process_dumping", lambda: done.append("hidden"))
    monkeypatch.setattr(main.logs, "configure_logging", lambda level: None)
    assert main.main() == 0
    assert done == calls
