"""The programs of docs/examples as their users run them: against a broker, with a runtime behind it."""

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges, KafkaTail
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.redpanda.apply import apply
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_events import ModelReplied, RunCompleted, RunStarted
from loomlog.schemas.generated.values import Envelope, Usage
from loomlog.schemas.ids import partition_key
from loomlog.schemas.reader import TermReader
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from loomlog.services.stream.family import Topics
from tests.services.runtime.fakes import Scripted
from tests.services.runtime.small_runtime import SmallRuntime, running

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parent.parent.parent / "docs" / "examples"
PROGRAM_S = 30.0
WAIT_S = 30.0


class Site:
    """A broker with topics of our own and a runtime that serves them."""

    def __init__(
        self, kafka: str, topics: Topics, appender: KafkaAppender, ranges: KafkaRanges, partitions: int
    ) -> None:
        self.kafka = kafka
        self.topics = topics
        self.appender = appender
        self.ranges = ranges
        self.partitions = partitions
        self.model = Scripted()

    async def start_run(self, *arguments: str) -> str:
        """The run id that the first program prints."""
        told = await program("start_run.py", "--bootstrap", self.kafka, "--topic", self.topics.commands, *arguments)
        (run, run_id), (position, place) = (line.split() for line in told.splitlines())
        assert (run, position) == ("run", "position")
        assert place.startswith(f"{self.topics.commands}/{self.partition(run_id)}/")
        return run_id

    async def follow(self, folder: Path, until: str) -> str:
        """What the second program prints until that run has ended."""
        return await program(
            "follow_events.py",
            *("--bootstrap", self.kafka, "--topic", self.topics.events, "--until", until),
            *("--state", str(folder / "state.json"), "--answers", str(folder / "answers")),
        )

    def partition(self, run_id: str) -> int:
        return partition_of(partition_key(run_id).encode(), self.partitions)

    async def events(self, run_id: str) -> tuple[list[object], TermReader]:
        """The accepted events of a run so far, and the reader with the term in force."""
        partition, reader = self.partition(run_id), TermReader()
        end = await self.ranges.end_offset(self.topics.events, partition)
        found: list[object] = []
        async with await self.ranges.read(self.topics.events, partition, 0, end) as chunks:
            async for chunk in chunks:
                for record in chunk:
                    event = reader.read(record.offset, record.value)
                    if event is not None and event.aggregate == run_id:
                        found.append(event.decode().record)
        return found, reader

    async def append_stale(self, run_id: str, events: list[ModelReplied | RunCompleted]) -> None:
        """Events of that run as a fenced owner would append them: under a term that is over."""
        _, reader = await self.events(run_id)
        envelope = Envelope(term=reader.term - 1, seq=3, aggregate=run_id, tenant="default", at_ms=1, prev=bytes(16))
        key = partition_key(run_id).encode()
        records = [ProducerRecord(key=key, value=local_codec().encode_event(envelope, event)) for event in events]
        await self.appender.append(self.topics.events, self.partition(run_id), records)


async def program(name: str, *arguments: str) -> str:
    """What a program of the examples prints; it must end with 0."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / name),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PROGRAM_S):
            out, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    # aiokafka may tell of a retry there: a topic that was just made has no leader for a moment.
    assert process.returncode == 0, errors.decode()
    return out.decode()


@pytest.fixture
async def site(kafka: str, topic_prefix: str) -> AsyncIterator[Site]:
    await apply(kafka, prefix=topic_prefix)
    topics, options = Topics.of("run", topic_prefix), KafkaOptions(bootstrap=kafka)
    async with AsyncExitStack() as stack:
        appender, ranges = KafkaAppender(options), KafkaRanges(options)
        for client in (appender, ranges):
            await client.start()
            stack.push_async_callback(client.close)
        reading = KafkaRanges(options)
        await reading.start()
        stack.push_async_callback(reading.close)
        partitions = await appender.partitions(topics.commands)
        commands = KafkaTail(options, topics.commands, dict.fromkeys(range(partitions), 0))
        await commands.start()
        stack.push_async_callback(commands.close)
        commands.pause(range(partitions))
        found = Site(kafka, topics, appender, reading, partitions)
        runtime = SmallRuntime(
            appender,
            ranges,
            commands,
            partitions=partitions,
            topics=topics,
            model=found.model,
            tracing=NO_TRACING,
            name="examples",
        )
        await stack.enter_async_context(running(runtime))
        yield found


@asynccontextmanager
async def held(model: Scripted) -> AsyncIterator[None]:
    """The model does not answer its second turn before this is left."""
    model.held = True
    async with asyncio.timeout(PROGRAM_S):
        yield
    model.let_go.set()


async def test_a_run_started_over_the_log_is_answered_over_the_log(site: Site, tmp_path: Path) -> None:
    run_id = await site.start_run("--agent", "helper", "How are you?")
    assert await site.follow(tmp_path, run_id) == f"{run_id}: the answer\n"
    assert (tmp_path / "answers" / f"{run_id}.txt").read_text() == "the answer"
    state = json.loads((tmp_path / "state.json").read_text())
    assert state["positions"].keys() == {str(number) for number in range(site.partitions)}
    assert state["texts"] == {}


async def test_the_same_idempotency_key_is_the_same_run(site: Site, tmp_path: Path) -> None:
    asked = ("--agent", "helper", "--idempotency-key", "order-17", "How are you?")
    run_id = await site.start_run(*asked)
    assert await site.start_run(*asked) == run_id
    assert await site.start_run(*asked, "--tenant", "other") != run_id
    await site.follow(tmp_path, run_id)
    events, _ = await site.events(run_id)
    assert sum(isinstance(event, RunStarted) for event in events) == 1


async def test_a_stale_record_is_ignored(site: Site, tmp_path: Path) -> None:
    usage = Usage()
    wrong = ModelReplied(
        turn=1, attempt=1, text="wrong", stop_reason="end_turn", usage=usage, provider="p", model="m", duration_ms=1
    )
    async with held(site.model):
        run_id = await site.start_run("--agent", "helper", "How are you?")
        await site.model.holding.wait()
        await site.append_stale(run_id, [wrong, RunCompleted(stop_reason="end_turn", usage=usage)])
    assert await site.follow(tmp_path, run_id) == f"{run_id}: the answer\n"
    _, reader = await site.events(run_id)
    assert reader.stale == 2


async def test_what_was_done_is_not_done_again_after_a_crash(site: Site, tmp_path: Path) -> None:
    first = await site.start_run("--agent", "helper", "one")
    await site.follow(tmp_path, first)
    second = await site.start_run("--agent", "helper", "two")
    assert await site.follow(tmp_path, second) == f"{second}: the answer\n"
    # As if the program had died after writing both answers and before it saved any position.
    (tmp_path / "state.json").unlink()
    third = await site.start_run("--agent", "helper", "three")
    assert await site.follow(tmp_path, third) == f"{third}: the answer\n"
    # And from the beginning everything comes again.
    shutil.rmtree(tmp_path / "answers")
    (tmp_path / "state.json").unlink()
    fourth = await site.start_run("--agent", "helper", "four")
    printed = await site.follow(tmp_path, fourth)
    assert {line.partition(":")[0] for line in printed.splitlines()} >= {fourth}
    assert len(list((tmp_path / "answers").iterdir())) == printed.count("\n")


async def test_a_refused_run_says_why(site: Site, tmp_path: Path) -> None:
    run_id = await site.start_run("--agent", "nobody", "How are you?")
    assert await site.follow(tmp_path, run_id) == f"{run_id}: did not complete: no agent nobody\n"


async def test_a_topic_that_does_not_exist_is_said(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / "follow_events.py"),
        *("--bootstrap", kafka, "--topic", f"{topic_prefix}.none"),
        *("--state", str(tmp_path / "s"), "--answers", str(tmp_path / "a")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PROGRAM_S):
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert "there is no topic" in errors.decode()
