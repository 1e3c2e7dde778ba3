"""Starts aiokafka's clients (0.14), and adds what they lack to survive the loss of their brokers.

    rebootstrap   a client discards its bootstrap addresses as soon as it knows brokers. When all brokers it knows are
                  gone, it asks no other, forever: a client that refreshed its metadata while two of three brokers were
                  down knows one broker, and stops when that one goes later, although the other two are back
    stop          the cancellation of an idle fetch is raised from Consumer.stop()

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
    # Only the admin client names it close.
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
            pass  # it never ran; the first error is the one to raise
        raise Transient(
            f"{role}: the broker at {options.bootstrap} does not answer ({type(error).__name__}: {error}); "
            "is it running?",
            kind="unavailable",
        ) from error


def enable_rebootstrap(client: Any) -> None:
    """Make an AIOKafkaClient ask its bootstrap addresses when no broker it knows answers."""
    update = client._metadata_update

    async def update_or_rebootstrap(cluster: Any, topics: Collection[str]) -> bool:
        if await update(cluster, topics):
            return True
        try:
            await client.bootstrap()
        except KafkaError:
            return False
        return bool(await update(cluster, topics))

    client._metadata_update = update_or_rebootstrap


async def stop(consumer: AIOKafkaConsumer) -> None:
    """Stop a consumer without being cancelled by it.

    In a task that was not cancelled, that would be a silent end: a TaskGroup takes it for a planned one.
    """
    try:
        await consumer.stop()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        await consumer._client.close()  # stop() did not reach it
