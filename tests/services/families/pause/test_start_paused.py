"""Start-paused: once for each value of the switch, in memory and with a whole process over a real broker."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.configuration.load import load
from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.redpanda.apply import apply
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.entity_events import CommandHadNoEffect, CommandRefused
from loomlog.schemas.generated.pause_commands import LiftPause, SetPause
from loomlog.schemas.generated.pause_events import PauseLifted, PauseSet
from loomlog.schemas.generated.run_events import ModelCallRequested, RunCompleted, RunPaused, RunPauseRequested
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.producer import start_run_record
from loomlog.schemas.reader import TermReader
from loomlog.services.core.families import aggregate_key
from loomlog.services.families.pause import FAMILY, PAUSES
from loomlog.services.families.pause.start_paused import REASON, StartPause, StartRefused
from loomlog.services.runtime import main
from loomlog.services.runtime import topics as runtime_topics
from loomlog.services.stream.entities.answers import Answer, CommandUnanswered
from loomlog.services.stream.entities.hosting import EntityParts
from loomlog.services.stream.family import Topics
from tests.services.runtime.names import names_under
from tests.services.runtime.small_runtime import Stage
from tests.services.runtime.test_process import CONFIGURATION, WAIT_S, stopped
from tests.services.stream.entities.world import PATIENCE_S, EntityWorld
from tests.services.stream.entities.world import TOPICS as ENTITIES

CODEC = local_codec()
EVENTS = ENTITIES.events


def lift(command_id: str = "c_lift") -> LiftPause:
    return LiftPause(envelope=CommandEnvelope(command_id=command_id, tenant="", subject="op"), scope="all")


@pytest.fixture
async def world() -> AsyncIterator[EntityWorld]:
    made = EntityWorld(families=(FAMILY,))
    yield made
    await made.close()


class Starting:
    """A runtime that starts with the switch: it has read the log and asks for nothing yet."""

    def __init__(self, parts: EntityParts, switch: str, name: str) -> None:
        self.parts = parts
        self.pause = StartPause(parts.replicas, switch=switch, by=name, at_ms=7)

    async def ask(self) -> None:
        await self.pause.ask(self.parts.client)

    def held(self) -> list[tuple[str, str, str]]:
        return [(held.scope, held.reason, held.by) for held in self.pause.table().pauses_for("acme", "helper")]


async def starting(world: EntityWorld, switch: str = "1", name: str = "rt-1") -> Starting:
    return Starting(await world.sender(), switch, name)


async def come_up(world: EntityWorld, switch: str = "1", name: str = "rt-1") -> Starting:
    made = await starting(world, switch, name)
    await made.ask()
    await world.until(lambda: made.pause.table() is not None and not made.pause.is_pending)
    return made


def events(world: EntityWorld) -> list[Any]:
    """What was decided about pauses."""
    reader, actual = TermReader(codec=CODEC), []
    for record in world.log.records[EVENTS, partition_of(aggregate_key(PAUSES), world.partitions)]:
        event = reader.read(record.offset, record.value)
        if event is not None and event.aggregate == PAUSES:
            actual.append(event.decode().record)
    return actual


async def test_everything_is_paused_with_who_and_why_before_there_is_an_owner(world: EntityWorld) -> None:
    made = await starting(world)
    assert made.held() == [("all", REASON, "rt-1")]
    assert made.pause.is_pending
    await world.process()
    await made.ask()
    await world.until(lambda: made.held() and not made.pause.is_pending)
    assert events(world) == [PauseSet(scope="all", reason=REASON, by="rt-1", switch="1")]
    assert made.held() == [("all", REASON, "rt-1")]


async def test_two_runtimes_that_start_together_pause_once(world: EntityWorld) -> None:
    one, other = await starting(world), await starting(world, name="rt-2")
    assert (len(one.held()), len(other.held())) == (1, 1)
    await world.process()
    await asyncio.gather(one.ask(), other.ask())
    await world.until(lambda: one.held() == other.held() and not one.pause.is_pending and not other.pause.is_pending)
    assert [type(event) for event in events(world)] == [PauseSet]


async def test_of_two_that_start_together_the_later_pauses_nothing_after_a_resume(world: EntityWorld) -> None:
    late = await starting(world, name="rt-2")
    await world.process()
    early = await come_up(world)
    assert late.held(), "it is paused, whether it has read that or not"
    await world.until(lambda: late.held() == [("all", REASON, "rt-1")])
    await early.parts.client.ask(lift(), wait_s=PATIENCE_S)
    await world.until(lambda: not late.held())
    await late.ask()
    await world.until(lambda: not early.held())
    assert [type(event) for event in events(world) if not isinstance(event, CommandHadNoEffect)] == [
        PauseSet,
        PauseLifted,
    ]
    assert late.held() == []


async def test_a_runtime_that_owns_the_pauses_itself_has_them_decided_too(world: EntityWorld) -> None:
    process = await world.process()
    made = Starting(process.entities.parts, "1", "rt-1")
    await made.ask()
    await world.until(lambda: made.held() and not made.pause.is_pending)
    assert [type(event) for event in events(world)] == [PauseSet]


async def test_a_replica_that_restarts_after_the_resume_pauses_nothing_again(world: EntityWorld) -> None:
    await world.process()
    first = await come_up(world)
    await first.parts.client.ask(lift(), wait_s=PATIENCE_S)
    await world.until(lambda: not first.held())
    again = await starting(world)
    assert (again.held(), again.pause.is_pending) == ([], False)
    await again.ask()
    assert len(events(world)) == 2
    assert (await come_up(world, "restore-2")).held() == [("all", f"{REASON} restore-2", "rt-1")]


async def test_what_an_operator_has_paused_keeps_his_reason_and_the_value_counts_as_used(world: EntityWorld) -> None:
    await world.process()
    operator = await world.sender()
    envelope = CommandEnvelope(command_id="c_set", tenant="", subject="op")
    await operator.client.ask(SetPause(envelope=envelope, scope="all", reason="deploy"), wait_s=PATIENCE_S)
    made = await starting(world)
    assert made.held() == [("all", "deploy", "op")]
    await made.ask()
    await world.until(lambda: made.held() and not made.pause.is_pending)
    assert made.held() == [("all", "deploy", "op")]
    await operator.client.ask(lift(), wait_s=PATIENCE_S)
    await world.until(lambda: not made.held())
    assert (await starting(world)).held() == []


async def test_runs_stand_still_while_it_is_not_decided_and_go_on_when_it_was_lifted_before(world: EntityWorld) -> None:
    made = await starting(world)
    stage = Stage()
    stage.pauses = made.pause.table()
    async with stage.owner("one") as runtime:
        stage.start()
        await stage.until(lambda: stage.has(RunPaused))
        await world.process()
        await made.ask()
        await made.parts.client.ask(lift(), wait_s=PATIENCE_S)
        await world.until(lambda: not made.held())
        stage.pauses = made.pause.table()
        runtime.host.apply_wide_pauses()
        await stage.until(lambda: stage.has(RunCompleted))
    assert [event.scope for event in stage.events() if isinstance(event, RunPauseRequested)] == ["all"]


class Silent:
    """Answers after some commands that it leaves without an answer (protocol EntityCommands)."""

    def __init__(self, errors: list[Exception], answer: Any) -> None:
        self.errors = errors
        self.answer = answer
        self.asked: list[SetPause] = []

    async def ask(self, command: Any, *, wait_s: float) -> Answer:
        self.asked.append(command)
        if self.errors:
            raise self.errors.pop()
        return Answer(events=(self.answer,), topic=EVENTS, partition=0, offset=1)


async def test_it_asks_until_it_is_answered_always_with_one_id(
    world: EntityWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loomlog.connectors.retries.RETRY_S", 0)
    made = await starting(world)
    commands = Silent([CommandUnanswered("no owner"), Transient("no log", kind="unavailable")], PauseSet(scope="all"))
    await made.pause.ask(commands)
    assert [command.envelope.command_id for command in commands.asked] == ["start-paused:1"] * 3
    assert made.pause.is_pending, "what counts is what the replica shows"
    assert made.held()


async def test_a_process_that_may_not_pause_does_not_work(world: EntityWorld) -> None:
    made = await starting(world)
    with pytest.raises(StartRefused, match="too long"):
        await made.pause.ask(Silent([], CommandRefused(code="bad_request", message="switch: too long")))
    assert made.held()


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
    entity_commands = Topics.of("entity", topic_prefix).commands
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
                key = aggregate_key(PAUSES)
                resumed = [ProducerRecord(key=key, value=CODEC.encode(lift()))]
                await appender.append(entity_commands, partition_of(key, partitions), resumed)
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
