import asyncio
from collections.abc import Awaitable, Callable

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka import KafkaAppender, KafkaGroup, KafkaOptions, KafkaRanges, KafkaTail, count_partitions
from loomlog.services.cli.stack.ports import pick_port


async def group(options: KafkaOptions) -> None:
    await KafkaGroup(options, "topic", "group", session_timeout_ms=1_000, incarnation="a").start()


@pytest.mark.parametrize(
    "start",
    [
        lambda options: KafkaAppender(options).start(),
        lambda options: KafkaRanges(options).start(),
        lambda options: KafkaTail(options, "topic", {0: 0}).start(),
        group,
        lambda options: count_partitions(options, "topic"),
    ],
    ids=["appender", "ranges", "tail", "group", "admin"],
)
async def test_a_broker_that_is_away_is_transient_for_every_client(
    start: Callable[[KafkaOptions], Awaitable[object]],
) -> None:
    bootstrap = f"127.0.0.1:{pick_port()}"
    async with asyncio.timeout(30):
        with pytest.raises(Transient, match=f"the broker at {bootstrap} does not answer"):
            await start(KafkaOptions(bootstrap=bootstrap))


async def test_the_group_offers_one_strategy() -> None:
    """With two, aiokafka sends two different JoinGroups a round, and members rebalance for ever."""
    group = KafkaGroup(
        KafkaOptions(bootstrap="127.0.0.1:1"), "topic", "group", session_timeout_ms=1_000, incarnation="a"
    )
    assert len(group._consumer._partition_assignment_strategy) == 1
    await group.close()
