"""What aiokafka's clients (0.14) lack to outlive their brokers.

    rebootstrap   a client forgets the addresses it was given as soon as it knows brokers. When those it knows are all
                  away it asks nobody else, for ever: one that refreshed its view while two of three brokers were down
                  knows one broker, and stands still when later that one goes, although the other two are back
    stop          the cancellation of a resting fetch comes out of Consumer.stop()

Both were found by killing brokers of a cluster (tests/chaos --brokers 3, two-lost before controller). Kafka's own
clients do the first since 4.0 (KIP-899, metadata.recovery.strategy=rebootstrap).

Before: kafka.py. After: aiokafka.
"""

import asyncio
from collections.abc import Collection
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

METADATA_MAX_AGE_MS = 10_000
"""How old the view of the cluster may get without a reason to refresh it. aiokafka's five minutes are long for knowing
one broker of three; a refresh is one small request."""


def rebootstrap(client: Any) -> None:
    """From now on the AIOKafkaClient asks the addresses it was given when none of the brokers it knows answers."""
    update = client._metadata_update

    async def update_or_begin_anew(cluster: Any, topics: Collection[str]) -> bool:
        if await update(cluster, topics):
            return True
        try:
            await client.bootstrap()
        except KafkaError:
            return False
        return bool(await update(cluster, topics))

    client._metadata_update = update_or_begin_anew


async def stop(consumer: AIOKafkaConsumer) -> None:
    """Stop a consumer without being cancelled by it.

    In a task that nobody cancelled this would be a death without a word: a TaskGroup takes it for a planned end.
    """
    try:
        await consumer.stop()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        await consumer._client.close()  # what stop() did not get to
