"""docs/examples/channels as its users run it: two programs against a broker, with an owner of the queues behind it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.kafka import KafkaAppender
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.channel_commands import PublishMessage
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.families.channel import FAMILY
from loomlog.services.runtime.clock import clock_ms
from loomlog.services.stream.family import Topics
from tests.examples.owned import owner, printed

pytestmark = pytest.mark.integration

FOLDER = Path(__file__).parents[2] / "docs" / "examples" / "channels"
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
        out, _ = await printed(FOLDER / name, self.file.parent, "--bootstrap", self.kafka, *arguments)
        return out


@pytest.fixture
async def site(kafka: str, topic_prefix: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with owner(kafka, topic_prefix, "channel", FAMILY) as (topics, appender):
        yield Site(kafka, topics, appender, tmp_path)


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
