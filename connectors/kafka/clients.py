"""Starting aiokafka's clients (0.14), and what they lack to outlive their brokers.

    rebootstrap   a client forgets the addresses it was given as soon as it knows brokers. When those it knows are all
                  away it asks nobody else, for ever: one that refreshed its view while two of three brokers were down
                  knows one broker, and stands still when later that one goes, although the other two are back
    stop          the cancellation of a resting fetch comes out of Consumer.stop()

Both were found by killing brokers of a cluster (tests/chaos --brokers 3, two-lost before controller). Kafka's own
clients do the first since 4.0 (KIP-899, metadata.recovery.strategy=rebootstrap).

Before: appender.py, tail.py, ranges.py, group.py. After: aiokafka.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.options import METADATA_WAIT_S, RETRY_BACKOFF_MS, KafkaOptions


async def connect(options: KafkaOptions, role: str) -> AIOKafkaClient:
    """Connections to the cluster, without a consumer or a producer. Raises Transient when no broker answers."""
    client = AIOKafkaClient(**options.client_arguments(), retry_backoff_ms=RETRY_BACKOFF_MS)
    await _start_or_close(client.bootstrap, client.close, role, options)
    enable_rebootstrap(client)
    return client


async def start(client: Any, role: str, options: KafkaOptions) -> None:
    """Start a consumer or an admin client. Raises Transient when no broker answers."""
    # Alone among its kind, the admin client calls it close.
    close = client.close if isinstance(client, AIOKafkaAdminClient) else client.stop
    await _start_or_close(client.start, close, role, options)
    enable_rebootstrap(client._client)


async def _start_or_close(
    start_client: Callable[[], Awaitable[None]], close: Callable[[], Awaitable[None]], role: str, options: KafkaOptions
) -> None:
    try:
        async with asyncio.timeout(METADATA_WAIT_S):
            await start_client()
    except (KafkaError, OSError, TimeoutError) as error:
        try:
            await close()
        except (KafkaError, OSError):
            pass  # it never ran; the first error is the one to tell
        raise Transient(
            f"{role}: the broker at {options.bootstrap} does not answer ({type(error).__name__}: {error}); "
            "is it running?",
            kind="unavailable",
        ) from error


def enable_rebootstrap(client: Any) -> None:
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
