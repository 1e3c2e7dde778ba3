"""The broker's time from the stamp of an append, and what is refused as such."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.kafka import KafkaAppender, KafkaGroup, KafkaOptions, KafkaRanges
from loomlog.connectors.kafka.broker_time import read_broker_time
from loomlog.connectors.protocols import ProducerRecord
from loomlog.redpanda.apply import apply
from loomlog.redpanda.topics import load_topics
from tests.connectors.kafka.cluster import LOST, NOT_LEADER, Cluster
from tests.waiting import until

TOPIC_AUTHORIZATION_FAILED = 29


class Stamps(Cluster):
    """A cluster that stamps what is appended; `code` is that of its responses."""

    def __init__(self, stamp_ms: int, *, code: int = 0, version_fields: int = 2) -> None:
        super().__init__({0: 1})
        self.stamp_ms, self.code, self._fields = stamp_ms, code, version_fields
        self.added: list[str] = []

    async def add_topic(self, topic: str) -> None:
        self.added.append(topic)

    async def send(self, node: int, request: Any, **_: Any) -> Any:
        if self.code < 0:
            raise LOST
        ((topic, ((partition, data),)),) = request._topics
        self.requests.append((node, {(topic, partition): data}))
        rest = (self.stamp_ms, 0)[: self._fields]
        return type("Response", (), {"topics": [(topic, [(partition, self.code, 7, *rest)])]})


async def read(cluster: Stamps) -> int:
    client: Any = cluster
    return await read_broker_time(client, "loom.clock")


async def test_the_stamp_of_the_response_is_the_brokers_time() -> None:
    cluster = Stamps(1_800_000_000_123)
    assert await read(cluster) == 1_800_000_000_123
    ((node, batches),) = cluster.requests
    assert (node, list(batches)) == (1, [("loom.clock", 0)])
    (data,) = batches.values()
    assert len(data) < 100


@pytest.mark.parametrize("fields", [2, 0])
async def test_the_times_of_writers_are_refused_with_what_to_do(fields: int) -> None:
    with pytest.raises(Permanent, match="loomlog topics apply"):
        await read(Stamps(-1, version_fields=fields))


@pytest.mark.parametrize("code", [NOT_LEADER, TOPIC_AUTHORIZATION_FAILED, -1])
async def test_what_the_broker_refuses_is_read_again_later(code: int) -> None:
    cluster = Stamps(1, code=code)
    with pytest.raises(Transient):
        await read(cluster)
    assert cluster.updates == 1


async def test_a_missing_topic_is_looked_for_once_each_time() -> None:
    cluster = Stamps(1)
    cluster.leaders.clear()
    with pytest.raises(Transient, match="loomlog topics apply"):
        await read(cluster)
    assert (cluster.added, cluster.requests) == (["loom.clock"], [])


# --- over a real broker ----------------------------------------------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="session")
async def appender(kafka: str, topic_prefix: str) -> AsyncIterator[KafkaAppender]:
    names = ("clock", "run.commands")
    topics = [one for one in load_topics(prefix=topic_prefix, partitions=2) if one.name.endswith(names)]
    assert len(topics) == len(names)
    await apply(kafka, topics=topics)
    appender = KafkaAppender(KafkaOptions(bootstrap=kafka))
    await appender.start()
    yield appender
    await appender.close()


@pytest.mark.integration
async def test_the_broker_says_what_time_it_is(appender: KafkaAppender, topic_prefix: str) -> None:
    topic = f"{topic_prefix}.clock"
    for _ in range(3):
        before_ms = int(time.time() * 1_000)
        stamp_ms = await appender.read_broker_time(topic)
        assert before_ms <= stamp_ms <= int(time.time() * 1_000)
    ranges = KafkaRanges(appender._options)
    await ranges.start()
    try:
        assert await ranges.end_offset(topic, 0) == 3
    finally:
        await ranges.close()


@pytest.mark.integration
async def test_other_topics_say_nothing_about_it_and_appends_go_on(appender: KafkaAppender, topic_prefix: str) -> None:
    topic = f"{topic_prefix}.run.commands"
    record = ProducerRecord(key=b"k", value=b"v")
    first = await appender.append(topic, 0, [record])
    with pytest.raises(Permanent, match="has the times of its writers"):
        await appender.read_broker_time(topic)
    with pytest.raises(Transient, match="topics apply"):
        await appender.read_broker_time(f"{topic_prefix}.missing")
    assert await appender.append(topic, 0, [record]) == first + 2


@pytest.mark.integration
async def test_a_process_that_may_not_own_leaves_the_group_and_comes_back(
    kafka: str, appender: KafkaAppender, topic_prefix: str
) -> None:
    may_own = {"a": True, "b": False}
    groups = {
        name: KafkaGroup(
            KafkaOptions(bootstrap=kafka),
            f"{topic_prefix}.run.commands",
            f"{topic_prefix}-group",
            session_timeout_ms=20_000,
            incarnation=name,
            may_own=lambda name=name: may_own[name],  # type: ignore[misc]  # the lambda has a default
        )
        for name in may_own
    }
    for group in groups.values():
        await group.start()
    stays = [asyncio.create_task(group.stay()) for group in groups.values()]
    a, b = groups.values()
    try:
        await until(lambda: a.assigned == {0, 1})
        assert (b.assigned, set(a.members)) == (frozenset(), {"a"})
        may_own |= {"a": False, "b": True}
        a.changed.clear()
        await until(lambda: b.assigned == {0, 1})
        assert (a.assigned, a.members, a.changed.is_set()) == (frozenset(), {}, True)
        may_own["a"] = True
        await until(lambda: len(a.assigned) == len(b.assigned) == 1)
        may_own["b"] = False
        await until(lambda: a.assigned == {0, 1} and not b.assigned)
    finally:
        for task in stays:
            task.cancel()
        for group in groups.values():
            await group.close()
