"""A member of a consumer group that reads a topic and commits what is done, on aiokafka's consumer.

For a topic that anything may write to and any of our processes may read: the group spreads the partitions, and the
committed offsets say where to go on. What is read and not committed is read again, by this member or another, so a
reader must be able to do it twice.

Before: __init__.py. After: clients.py, aiokafka.
"""

import logging
from collections.abc import Mapping, Sequence

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError, UnknownMemberIdError

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.clients import start, stop
from loomlog.connectors.kafka.options import FETCH_MAX_WAIT_MS, KafkaOptions
from loomlog.connectors.protocols import LogRecord

log = logging.getLogger(__name__)

POLL_INTERVAL_MS = 3_600_000
"""Longest time between two polls: a reader waits as long as what it needs is away, and keeps its partitions."""


class KafkaGroupReader:
    """Reads the partitions of one topic that the group gives it, from the committed offsets on, else from the first."""

    def __init__(self, options: KafkaOptions, topic: str, group: str, *, session_timeout_ms: int) -> None:
        self._options = options
        self._topic = topic
        self._group = group
        self._session_timeout_ms = session_timeout_ms
        self._consumer: AIOKafkaConsumer | None = None

    async def start(self) -> None:
        """Join the group. Raises Transient, and may be called again then."""
        consumer = AIOKafkaConsumer(
            self._topic,
            **self._options.client_arguments(),
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=self._session_timeout_ms,
            heartbeat_interval_ms=max(100, self._session_timeout_ms // 5),
            max_poll_interval_ms=POLL_INTERVAL_MS,
            rebalance_timeout_ms=30_000,
            fetch_max_wait_ms=FETCH_MAX_WAIT_MS,
        )
        await start(consumer, f"group {self._group}", self._options)
        self._consumer = consumer

    async def poll(self, *, timeout_s: float, max_records: int) -> Mapping[int, Sequence[LogRecord]]:
        """Return the next records by partition; empty after `timeout_s`. Raises Transient."""
        assert self._consumer is not None, "poll before start"
        try:
            polled = await self._consumer.getmany(timeout_ms=int(timeout_s * 1000), max_records=max_records)
        except KafkaError as error:
            raise self._failed(error) from error
        return {place.partition: records for place, records in polled.items()}

    async def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit the offset of the next record of each partition; those that moved away meanwhile are left to their
        next reader. Raises Transient.
        """
        assert self._consumer is not None, "commit before start"
        assigned = self._consumer.assignment()
        kept = {TopicPartition(self._topic, number): offset for number, offset in offsets.items()}
        kept = {place: offset for place, offset in kept.items() if place in assigned}
        if not kept:
            return
        try:
            await self._consumer.commit(kept)
        except (CommitFailedError, IllegalStateError, UnknownMemberIdError) as error:
            log.info("%s: not committed, the partitions have moved: %s", self._topic, error)
        except KafkaError as error:
            raise self._failed(error) from error

    async def close(self) -> None:
        """Leave the group."""
        if self._consumer is None:
            return
        try:
            await stop(self._consumer)
        except KafkaError as error:
            log.info("the group %s was not left: %s", self._group, error)

    def _failed(self, error: KafkaError) -> Transient:
        return Transient(f"group {self._group}: {type(error).__name__}: {error}", kind="unavailable")
