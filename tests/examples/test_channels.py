"""docs/examples/channels as its users run it: two programs against a broker, with an owner of the queues behind it."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges, KafkaTail
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.redpanda.apply import apply
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.channel_commands import PublishMessage
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.families.channel import FAMILY
from loomlog.services.runtime.clock import clock_ms
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.entities.hosting import HostedEntities, build_entity_parts
from loomlog.services.stream.family import Topics
from loomlog.services.stream.host import Host
from loomlog.services.stream.ownership.membership import FixedMembership
from tests.examples.test_memory_service import NoRows

pytestmark = pytest.mark.integration

FOLDER = Path(__file__).parents[2] / "docs" / "examples" / "channels"
PROGRAM_S = 30.0
QUEUE = ("--channel", "orders/new", "--scope", "user", "--scope-id", "ada", "--tenant", "acme")
KEY = b"acme/orders%2Fnew/user/ada"


class Site:
    """A broker with topics of our own, and an owner of the queues in them."""

    def __init__(self, kafka: str, topics: Topics, appender: KafkaAppender, folder: Path) -> None:
        self.kafka = kafka
        self.topics = topics
        self.file = folder / "orders.jsonl"
        self._appender = appender

    async def publish(self, order: int) -> str:
        value = json.dumps({"order": order})
        return await self._program(
            "publish.py", *QUEUE, "--topic", self.topics.commands, "--id", f"order-{order}", value
        )

    async def consume(self, count: int) -> list[Any]:
        options = ("--topic", self.topics.events, "--to", str(self.file), "--count", str(count))
        await self._program("consume.py", *QUEUE, *options)
        return [json.loads(line) for line in self.file.read_text().splitlines()]

    async def delay(self, value: Any, ms: int) -> None:
        """Publish a message that becomes visible later, as another service does."""
        command = PublishMessage(
            envelope=CommandEnvelope(command_id="later", tenant="acme", subject="other"),
            channel="orders/new",
            scope="user",
            scope_id="ada",
            value=json.dumps(value),
            deliver_at_ms=clock_ms() + ms,
        )
        partition = partition_of(KEY, await self._appender.partitions(self.topics.commands))
        record = ProducerRecord(key=KEY, value=local_codec().encode(command))
        await self._appender.append(self.topics.commands, partition, [record])

    async def _program(self, name: str, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(FOLDER / name), "--bootstrap", self.kafka, *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # The program stands alone: it imports the client and nothing of this tree.
            env={name: os.environ[name] for name in ("PATH", "PYTHONPATH")},
            cwd=self.file.parent,
        )
        try:
            async with asyncio.timeout(PROGRAM_S):
                out, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, errors.decode()
        return out.decode()


@pytest.fixture
async def site(kafka: str, topic_prefix: str, tmp_path: Path) -> AsyncIterator[Site]:
    await apply(kafka, prefix=topic_prefix)
    topics, options = Topics.of("channel", topic_prefix), KafkaOptions(bootstrap=kafka)
    async with AsyncExitStack() as stack:
        appender, ranges = KafkaAppender(options), KafkaRanges(options)
        for client in (appender, ranges):
            await client.start()
            stack.push_async_callback(client.close)
        partitions = await appender.partitions(topics.commands)
        commands = KafkaTail(options, topics.commands, dict.fromkeys(range(partitions), 0))
        await commands.start()
        stack.push_async_callback(commands.close)
        commands.pause(range(partitions))
        codec, rows = local_codec(), NoRows()
        parts = build_entity_parts(
            (FAMILY,), codec, appender=appender, ranges=ranges, partitions=partitions, topics=topics, rows=rows
        )
        entities = HostedEntities(
            parts,
            codec,
            appender=appender,
            ranges=ranges,
            commands=commands,
            dead_letters=DeadLetters(codec, appender, topic=topics.dead_letters, service="test", clock_ms=clock_ms),
            rows=rows,
            run_topics=Topics.of("run", topic_prefix),
            clock_ms=clock_ms,
            name="channels",
        )
        host = Host(entities.topic_set, membership=FixedMembership(frozenset(range(partitions))))
        entities.attach(host)
        owning = asyncio.create_task(host.run())
        try:
            yield Site(kafka, topics, appender, tmp_path)
        finally:
            owning.cancel()
            await asyncio.wait([owning])


async def test_messages_are_published_once_and_consumed_once(site: Site) -> None:
    for order in (1, 2, 1):  # the first one again, as after a crash
        assert (await site.publish(order)).startswith(f"{site.topics.commands}/")
    first = await site.consume(2)
    assert [message["value"] for message in first] == [{"order": 1}, {"order": 2}]
    assert {message["publisher"] for message in first} == {"publish example"}
    await site.publish(3)
    again = await site.consume(3)
    assert again[:2] == first
    assert again[2]["value"] == {"order": 3}


async def test_work_that_was_done_before_a_crash_is_not_done_again(site: Site) -> None:
    await site.publish(1)
    await site.consume(1)
    site.file.with_name(
        site.file.name + ".state"
    ).unlink()  # the crash came after the work, before positions were saved
    await site.publish(2)
    assert [message["value"] for message in await site.consume(2)] == [{"order": 1}, {"order": 2}]


async def test_a_delayed_message_is_consumed_when_it_has_surfaced(site: Site) -> None:
    await site.delay({"later": True}, ms=1_000)
    assert [message["value"] for message in await site.consume(1)] == [{"later": True}]
