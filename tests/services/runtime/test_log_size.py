"""Bytes that a run adds to the log: the workload of the benchmarks, with a short and with a long prompt."""

import secrets
import statistics
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from loomlog.connectors.configuration.load import load
from loomlog.connectors.kafka.compression import compress_batch
from loomlog.connectors.kafka.options import KafkaOptions
from loomlog.connectors.models.mock.model import MockModel, MockOptions
from loomlog.connectors.protocols import ProducerRecord
from loomlog.connectors.tools.bench import BenchTool
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.run_events import RunCompleted
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.ids import hashed_token
from loomlog.services.application.runs.run_ids import new_run_names
from loomlog.services.runtime.models.agent_definitions import AgentDefinitions
from loomlog.services.runtime.models.model_calls import RuntimeProvider
from tests.benchmarks.workload import AGENT, CONFIGURATION, PROMPT
from tests.services.runtime.small_runtime import TOPICS, Stage

SYSTEM_PROMPT = "You are measured."
COMPRESSION = KafkaOptions(bootstrap="unused").compression
HTTP_BYTES = 50
"""Bytes that a run measured over HTTP has more than one here: its request as segments, higher offsets."""
RUNS = 3
"""Runs measured; how well one compresses depends on its ids and times, and on a busy machine it is more batches: by up
to 20 bytes of 8,141, so the bounds leave that room.
"""


def batch_bytes(records: Sequence[ProducerRecord]) -> int:
    """The bytes of an append as the broker stores it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        batch_size=1 << 20,
    )
    for number, record in enumerate(records):
        builder.append(number, 1_764_000_000_000, record.key, record.value, list(record.headers))
    return len(compress_batch(bytes(builder.build()), COMPRESSION))


def start(token: str) -> StartRun:
    names = new_run_names(
        fresh_token=hashed_token(token), tenant="default", subject="local", agent_id="", idempotency_key=""
    )
    envelope = CommandEnvelope(
        command_id=names.run_id, tenant="default", subject="local", issued_at_ms=1_764_000_000_000
    )
    return StartRun(envelope=envelope, agent=AGENT, prompt=PROMPT, run_id=names.run_id, agent_id=names.agent_id)


@pytest.mark.parametrize(("prompt_bytes", "most"), [(0, 8_250), (64 * 1024, 8_325)], ids=["short", "64 KiB"])
async def test_a_run_of_the_benchmark_adds_few_bytes_to_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prompt_bytes: int, most: int
) -> None:
    prompt = SYSTEM_PROMPT + secrets.token_hex(prompt_bytes // 2)
    (tmp_path / "loomlog.yaml").write_text(CONFIGURATION.replace(SYSTEM_PROMPT, prompt))
    configuration = load({}, working_directory=tmp_path, paths=[]).configuration
    stage = Stage(tools={"Bench": BenchTool()})
    stage.definitions = AgentDefinitions(configuration, ["mock"])
    model = MockModel(options=MockOptions(latency_ms=0, latency_jitter_ms=0))
    sizes: list[int] = []
    put = stage.log.put

    def measured(topic: str, partition: int, records: Sequence[ProducerRecord]) -> int:
        if topic in (TOPICS.commands, TOPICS.events):
            sizes.append(batch_bytes(records))
        return put(topic, partition, records)

    monkeypatch.setattr(stage.log, "put", measured)
    totals: list[int] = []

    def completed() -> int:
        return sum(isinstance(event, RunCompleted) for event in stage.events())

    async with stage.owner("one", providers={"mock": RuntimeProvider(model=model)}):
        while completed() < RUNS:
            sizes.clear()
            stage.send(start(str(completed())))
            await stage.until(lambda: completed() > len(totals))
            totals.append(sum(sizes))
    assert statistics.median(totals) + HTTP_BYTES < most, totals
