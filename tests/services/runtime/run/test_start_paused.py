"""Start-paused: once for each value of the switch, in memory and with a whole process over a real broker."""

import asyncio
from pathlib import Path

import pytest

from loomlog.connectors.configuration import load
from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.redpanda.apply import apply
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_events import ModelCallRequested, RunCompleted, RunPaused
from loomlog.schemas.generated.stream_records import PauseSet
from loomlog.schemas.producer import start_run_record
from loomlog.schemas.reader import TermReader
from loomlog.services.runtime import main
from loomlog.services.runtime import topics as runtime_topics
from loomlog.services.runtime.run.start_paused import REASON, pause_once
from loomlog.services.stream.family import Topics
from loomlog.services.stream.global_tables.pauses import PARTITION, PauseGlobalTable
from tests.services.runtime.names import names_under
from tests.services.runtime.test_process import CONFIGURATION, WAIT_S, stopped

TOPIC = "control"
CODEC = local_codec()
RESUMED = PauseSet(scope="all", tenant="", agent="", paused=False, by="op")


async def come_up(log: MemoryLog, switch: str = "1") -> PauseGlobalTable:
    board = PauseGlobalTable(CODEC, TOPIC)
    await board.catch_up(log)
    await pause_once(board, log, log, CODEC, switch=switch, by="rt-1", at_ms=7)
    return board


def put(log: MemoryLog, change: PauseSet) -> None:
    log.put(TOPIC, 0, [ProducerRecord(key=None, value=CODEC.encode(change))])


async def test_everything_is_paused_with_who_and_why_before_anything_else() -> None:
    board = await come_up(MemoryLog({TOPIC: 1}))
    (held,) = board.table.pauses_for("acme", "helper")
    assert (held.scope, held.reason, held.by) == ("all", REASON, "rt-1")


async def test_a_second_runtime_adds_nothing() -> None:
    log = MemoryLog({TOPIC: 1})
    await come_up(log)
    board = await come_up(log)
    assert len(log.records[TOPIC, 0]) == 1
    assert board.table.has_entry("all", "", "")


async def test_a_replica_that_restarts_after_the_resume_pauses_nothing_again() -> None:
    log = MemoryLog({TOPIC: 1})
    await come_up(log)
    put(log, RESUMED)
    assert not (await come_up(log)).table.has_entry("all", "", "")
    assert (await come_up(log, "restore-2")).table.has_entry("all", "", ""), "another value is another occasion"


async def test_of_two_that_start_together_the_later_record_pauses_nothing_even_after_a_resume() -> None:
    log = MemoryLog({TOPIC: 1})
    late = PauseGlobalTable(CODEC, TOPIC)
    await late.catch_up(log)
    await come_up(log)
    put(log, RESUMED)
    await pause_once(late, log, log, CODEC, switch="1", by="rt-2", at_ms=8)
    assert len(log.records[TOPIC, 0]) == 3
    assert not late.table.has_entry("all", "", "")


async def test_what_an_operator_has_paused_keeps_his_reason_and_the_value_counts_as_used() -> None:
    log = MemoryLog({TOPIC: 1})
    put(log, PauseSet(scope="all", tenant="", agent="", paused=True, reason="deploy", by="op"))
    (held,) = (await come_up(log)).table.pauses_for("acme", "helper")
    assert (held.reason, held.by) == ("deploy", "op")
    put(log, RESUMED)
    assert not (await come_up(log)).table.has_entry("all", "", "")


async def test_without_an_acknowledgement_the_runtime_does_not_come_up() -> None:
    log = MemoryLog({TOPIC: 1})
    log.lose_acks = 1
    with pytest.raises(UnknownOutcome):
        await come_up(log)


@pytest.mark.integration
async def test_over_a_real_broker_runs_stand_still_until_they_are_resumed_and_a_restart_pauses_nothing(
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
    control = f"{topic_prefix}.control.events"
    for name, value in names_under(topic_prefix).items():
        monkeypatch.setattr(runtime_topics, name, value)
    (tmp_path / "loomlog.yaml").write_text(CONFIGURATION)
    environ = {
        "LOOMLOG_KAFKA": kafka,
        "LOOMLOG_POSTGRES": postgres,
        "LOOMLOG_CONFIG_FILES": str(tmp_path / "loomlog.yaml"),
        "LOOMLOG_START_PAUSED": "restore-2026-11-21",
        "LOOMLOG_METRICS_ENABLED": "0",
    }
    loaded = load(environ, working_directory=tmp_path)
    options = KafkaOptions(bootstrap=kafka)
    appender, ranges = KafkaAppender(options), KafkaRanges(options)
    await appender.start()
    await ranges.start()
    partitions = await appender.partitions(topics.commands)

    async def start() -> int:
        """Put a StartRun into the log; its partition."""
        record = start_run_record(agent="helper", prompt="hello", codec=CODEC)
        partition = partition_of(record.key, partitions)
        command = ProducerRecord(key=record.key, value=record.value, headers=record.headers)
        await appender.append(topics.commands, partition, [command])
        return partition

    async def events_of(partition: int) -> list[object]:
        reader, actual = TermReader(codec=CODEC), list[object]()
        end = await ranges.end_offset(topics.events, partition)
        async with await ranges.read(topics.events, partition, 0, end) as chunks:
            async for chunk in chunks:
                for record in chunk:
                    raw = reader.read(record.offset, record.value)
                    if raw is not None:
                        actual.append(raw.decode(CODEC).record)
        return actual

    async def until(partition: int, kind: type[object], times: int, process: asyncio.Task[None]) -> list[object]:
        while True:
            assert not process.done(), process
            events = await events_of(partition)
            if sum(isinstance(event, kind) for event in events) >= times:
                return events
            await asyncio.sleep(0.05)

    async with asyncio.timeout(2 * WAIT_S):
        try:
            process = asyncio.create_task(main.run(loaded))
            try:
                partition = await start()
                events = await until(partition, RunPaused, 1, process)
                assert not any(isinstance(event, ModelCallRequested) for event in events)
                await appender.append(control, PARTITION, [ProducerRecord(key=None, value=CODEC.encode(RESUMED))])
                await until(partition, RunCompleted, 1, process)
            finally:
                await stopped(process, is_up="is up" in caplog.text)
            caplog.clear()
            process = asyncio.create_task(main.run(loaded))
            try:
                partition = await start()
                before = sum(isinstance(event, RunPaused) for event in await events_of(partition))
                ended = sum(isinstance(event, RunCompleted) for event in await events_of(partition))
                events = await until(partition, RunCompleted, ended + 1, process)
                assert sum(isinstance(event, RunPaused) for event in events) == before
                assert "another value does" in caplog.text
            finally:
                await stopped(process, is_up="is up" in caplog.text)
        finally:
            await appender.close()
            await ranges.close()
