"""What a range reader knows of the broker before it is asked."""

import pytest
from aiokafka import TopicPartition

from loomlog.connectors.kafka import KafkaRanges, open_ranges
from tests.connectors.kafka.test_tail import log

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.integration
async def test_the_leaders_of_a_topic_are_known_before_the_first_question(kafka: str, topic_prefix: str) -> None:
    async with log(kafka, f"{topic_prefix}topic") as made:
        await made.write(1, b"one", b"two")
        ranges = KafkaRanges(made.options)
        await ranges.start()
        try:
            assert ranges._consumer is not None
            cluster = ranges._consumer._client.cluster
            partitions = [TopicPartition(made.topic, number) for number in range(2)]
            assert [cluster.leader_for_partition(partition) for partition in partitions] == [None, None]
            await ranges.learn_leaders(made.topic)
            assert None not in [cluster.leader_for_partition(partition) for partition in partitions]
            assert await ranges.end_offset(made.topic, 1) == 2
        finally:
            await ranges.close()


@pytest.mark.integration
async def test_the_offsets_of_many_partitions_are_asked_together(kafka: str, topic_prefix: str) -> None:
    async with log(kafka, f"{topic_prefix}topic") as made:
        await made.write(1, b"one", b"two")
        async with open_ranges(made.options) as ranges:
            places = [(made.topic, 0), (made.topic, 1)]
            assert await ranges.boundary_offsets(places) == {places[0]: (0, 0), places[1]: (0, 2)}
            assert await ranges.boundary_offsets([]) == {}
