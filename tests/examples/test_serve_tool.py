"""The example of a microservice that serves a tool, against a broker, with a runtime that calls it."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges, KafkaTail
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import EffectClass, ProducerRecord, Reply
from loomlog.connectors.tools.remote_calls import RemoteCallClient
from loomlog.connectors.tools.remote_tool import RemoteTool
from loomlog.redpanda.apply import apply
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.run_events import RunCompleted, ToolCallRequested, ToolReturned
from loomlog.schemas.generated.stream_records import RemoteToolRequest
from loomlog.schemas.generated.values import AgentDefinition, CommandEnvelope, ToolCall, Usage
from loomlog.schemas.ids import partition_key
from loomlog.schemas.reader import TermReader
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import CommandRefusal
from loomlog.services.runtime.clock import clock_ms
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from loomlog.services.stream.family import Topics
from tests.services.runtime.fakes import AGENT, OneAgent, Scripted
from tests.services.runtime.small_runtime import SmallRuntime, running

pytestmark = pytest.mark.integration

PROGRAM = Path(__file__).parents[2] / "docs" / "examples" / "serve_tool.py"
RUN = "r_order"
WAIT_S = 30.0
TOOL = "add_to_order"
USAGE = Usage(input_tokens=1, output_tokens=1)
TURNS = (
    Reply(
        text="I add it",
        tool_calls=(ToolCall(id="call-1", name=TOOL, input='{"order": "17", "item": "a lamp"}'),),
        stop_reason="tool_use",
        usage=USAGE,
    ),
    Reply(text="added", stop_reason="end_turn", usage=USAGE),
)


class Definitions(OneAgent):
    def resolve(self, agent: str, **_: object) -> AgentDefinition | CommandRefusal:
        return replace(AGENT, tools=(TOOL,))


class Site:
    """A broker with topics of our own."""

    def __init__(self, kafka: str, prefix: str, folder: Path, appender: KafkaAppender, ranges: KafkaRanges) -> None:
        self.options = KafkaOptions(bootstrap=kafka)
        self.topics = Topics.of("run", prefix)
        self.requests, self.results = f"{prefix}.tool.requests", f"{prefix}.tool.results"
        self.group = f"{prefix}.orders"
        self.done = folder / "done.json"
        self.appender = appender
        self.ranges = ranges

    async def start_run(self) -> None:
        key = partition_key(RUN).encode()
        envelope = CommandEnvelope(command_id=RUN, tenant="acme", subject="someone", issued_at_ms=1)
        command = StartRun(envelope=envelope, agent=AGENT.name, prompt="a lamp for order 17", run_id=RUN)
        partition = partition_of(key, await self.appender.partitions(self.topics.commands))
        value = local_codec().encode(command)
        await self.appender.append(self.topics.commands, partition, [ProducerRecord(key=key, value=value)])

    @asynccontextmanager
    async def runtime(self, name: str) -> AsyncIterator[None]:
        """A runtime with the tool; leaving is its death."""
        async with AsyncExitStack() as stack:
            appender, ranges, searching = (
                KafkaAppender(self.options),
                KafkaRanges(self.options),
                KafkaRanges(self.options),
            )
            for client in (appender, ranges, searching):
                await client.start()
                stack.push_async_callback(client.close)
            partitions = await appender.partitions(self.topics.commands)
            commands = KafkaTail(self.options, self.topics.commands, dict.fromkeys(range(partitions), 0))
            calls = RemoteCallClient(
                local_codec(), appender, searching, clock_ms=clock_ms, source=name, results_topic=self.results
            )
            results = KafkaTail(self.options, self.results, await calls.catch_up())
            for tail in (commands, results):
                await tail.start()
                stack.push_async_callback(tail.close)
            commands.pause(range(partitions))
            tool = RemoteTool(
                calls,
                name=TOOL,
                description="Adds an item to an order.",
                input_schema={"type": "object"},
                effect=EffectClass.IDEMPOTENT,
                timeout_s=WAIT_S,
                clock_ms=clock_ms,
                topic=self.requests,
            )
            runtime = SmallRuntime(
                appender,
                ranges,
                commands,
                partitions=partitions,
                topics=self.topics,
                model=Scripted(TURNS),
                tracing=NO_TRACING,
                name=name,
                tools={TOOL: tool},
                definitions=Definitions(),
            )
            following = asyncio.create_task(calls.follow(results))
            try:
                async with running(runtime):
                    yield
            finally:
                following.cancel()
                await asyncio.wait([following])

    @asynccontextmanager
    async def service(self) -> AsyncIterator[None]:
        """The microservice; leaving kills it."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(PROGRAM), "--bootstrap", self.options.bootstrap, "--group", self.group),
            *("--requests", self.requests, "--results", self.results, "--done", str(self.done)),
            stdout=asyncio.subprocess.PIPE,
            # The program stands alone: it imports the client and nothing of this tree.
            env={name: os.environ[name] for name in ("PATH", "PYTHONPATH")},
            cwd="/",
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(WAIT_S):
                assert await process.stdout.readline() == b"serving\n"
            yield
        finally:
            process.send_signal(signal.SIGKILL)
            await process.communicate()

    async def records(self, topic: str) -> list[Any]:
        found: list[Any] = []
        for partition in range(await self.appender.partitions(topic)):
            end = await self.ranges.end_offset(topic, partition)
            async with await self.ranges.read(topic, partition, 0, end) as chunks:
                async for chunk in chunks:
                    found += chunk
        return found

    async def sent(self) -> list[RemoteToolRequest]:
        found = [local_codec().decode(record.value).record for record in await self.records(self.requests)]
        return [request for request in found if isinstance(request, RemoteToolRequest)]

    async def events(self) -> list[Any]:
        """The accepted events of the run."""
        partition = partition_of(partition_key(RUN).encode(), await self.appender.partitions(self.topics.events))
        reader = TermReader()
        records = [record for record in await self.records(self.topics.events) if record.partition == partition]
        found = [reader.read(record.offset, record.value) for record in records]
        return [event.decode().record for event in found if event is not None]

    async def until_ended(self) -> list[Any]:
        async with asyncio.timeout(WAIT_S):
            while True:
                events = await self.events()
                if any(isinstance(event, RunCompleted) for event in events):
                    return events
                await asyncio.sleep(0.05)

    def orders(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = json.loads(self.done.read_text())["orders"]
        return found


@pytest.fixture
async def site(kafka: str, topic_prefix: str, tmp_path: Path) -> AsyncIterator[Site]:
    await apply(kafka, prefix=topic_prefix)
    options = KafkaOptions(bootstrap=kafka)
    async with AsyncExitStack() as stack:
        appender, ranges = KafkaAppender(options), KafkaRanges(options)
        for client in (appender, ranges):
            await client.start()
            stack.push_async_callback(client.close)
        yield Site(kafka, topic_prefix, tmp_path, appender, ranges)


async def test_an_agent_uses_a_tool_of_another_process(site: Site) -> None:
    async with site.service(), site.runtime("one"):
        await site.start_run()
        events = await site.until_ended()
    (returned,) = [event for event in events if isinstance(event, ToolReturned)]
    assert (returned.text, returned.is_error) == ("order 17 has 1 items now", False)
    assert site.orders() == {"17": ["a lamp"]}


async def test_after_a_crash_of_runtime_and_service_the_same_call_is_answered_and_its_work_done_once(
    site: Site,
) -> None:
    async with site.runtime("one"):
        await site.start_run()
        async with asyncio.timeout(WAIT_S):
            while not await site.sent():
                await asyncio.sleep(0.05)
    async with site.service():  # does it while no runtime is there
        async with asyncio.timeout(WAIT_S):
            while not await site.records(site.results):
                await asyncio.sleep(0.05)
    async with site.service(), site.runtime("two"):  # is killed and started again
        events = await site.until_ended()
    assert [request.request_id for request in await site.sent()] == [f"{RUN}:1.0:1"]
    attempts = [event.attempt for event in events if isinstance(event, ToolCallRequested)]
    assert attempts == [1, 2]
    assert site.orders() == {"17": ["a lamp"]}
