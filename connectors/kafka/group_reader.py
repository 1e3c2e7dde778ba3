"""A member of a consumer group that reads a topic and commits what is done.

aiokafka's consumer is the member and commits; a tail reads. The consumer's own fetches leave out the partitions whose
records it has just returned until the fetch in flight is over: every second batch would wait for an empty fetch.

For a topic that anything may write to and any of our processes may read: the group spreads the partitions, and the
committed offsets say where to go on. What is read and not committed is read again, by this member or another, so a
reader must be able to do it twice.

Before: __init__.py. After: tail.py; clients.py, aiokafka.
"""

import logging
from collections.abc import Mapping, Sequence

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError, UnknownMemberIdError

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.admin import count_partitions
from loomlog.connectors.kafka.clients import start, stop
from loomlog.connectors.kafka.options import KafkaOptions
from loomlog.connectors.kafka.tail import KafkaTail, open_tail
from loomlog.connectors.protocols import LogRecord

log = logging.getLogger(__name__)

POLL_INTERVAL_MS = 3_600_000
"""Longest time between two polls: a reader waits as long as what it needs is away, and keeps its partitions."""
LOOK_S = 0.25
"""Longest time for which a poll does not look whether partitions have moved."""


class KafkaGroupReader:
    """Reads the partitions of one topic that the group gives it, from the committed offsets on, else from the first."""

    def __init__(self, options: KafkaOptions, topic: str, group: str, *, session_timeout_ms: int) -> None:
        self._options = options
        self._topic = topic
        self._group = group
        self._session_timeout_ms = session_timeout_ms
        self._consumer: AIOKafkaConsumer | None = None
        self._tail: KafkaTail | None = None
        self._partitions: Sequence[int] = ()
        self._is_moved = False
        """Whether the group has given partitions that the tail does not follow yet."""
        self._committed: dict[int, int] = {}
        """Offset of the first record that is not committed, of each partition of this member."""
        self.lag = 0
        """Records of this member's partitions that were not committed when `measure_lag` last looked."""

    async def start(self) -> None:
        """Join the group. Raises Transient, and may be called again then."""
        consumer = AIOKafkaConsumer(
            **self._options.client_arguments(),
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=self._session_timeout_ms,
            heartbeat_interval_ms=max(100, self._session_timeout_ms // 5),
            max_poll_interval_ms=POLL_INTERVAL_MS,
            rebalance_timeout_ms=30_000,
        )
        self._partitions = range(await count_partitions(self._options, self._topic))
        if not self._partitions:
            raise Transient(f"group {self._group}: the topic {self._topic} does not exist", kind="unavailable")
        tail = await open_tail(self._options, self._topic, dict.fromkeys(self._partitions, 0))
        tail.pause(self._partitions)
        try:
            await start(consumer, f"group {self._group}", self._options)
        except BaseException:
            await tail.close()
            raise
        self._consumer, self._tail = consumer, tail
        consumer.subscribe([self._topic], listener=_Moves(self))

    async def poll(self, *, timeout_s: float, max_records: int) -> Mapping[int, Sequence[LogRecord]]:
        """Return the next records by partition; empty after `timeout_s`. Raises Transient."""
        assert self._consumer is not None, "poll before start"
        assert self._tail is not None, "poll before start"
        try:
            # Tells the consumer that the member lives, and raises what went wrong with it; all it has is paused.
            await self._consumer.getmany(timeout_ms=0, max_records=1)
            if self._is_moved:
                await self._follow(self._consumer, self._tail)
        except KafkaError as error:
            raise self._failed(error) from error
        polled = await self._tail.poll(timeout_s=min(timeout_s, LOOK_S), max_records=max_records)
        return {} if self._is_moved else polled

    async def _follow(self, consumer: AIOKafkaConsumer, tail: KafkaTail) -> None:
        """Let the tail read what the group has given to this member, from the committed offsets on."""
        self._is_moved = False
        try:
            assigned = {place.partition: await consumer.committed(place) for place in consumer.assignment()}
            beginnings = await tail.beginning_offsets() if None in assigned.values() else {}
        except BaseException:
            self._is_moved = True
            raise
        for number, offset in assigned.items():
            self._committed[number] = beginnings.get(number, 0) if offset is None else offset
            tail.seek(number, self._committed[number])
        tail.resume(list(assigned))

    def _on_revoked(self) -> None:
        self._committed.clear()
        if self._tail is not None:
            self._tail.pause(self._partitions)

    def _on_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        assert self._consumer is not None, "it is assigned after start"
        try:
            self._consumer.pause(*assigned)
        except IllegalStateError:
            pass  # the next rebalance is already in progress and will call again
        self._is_moved = True

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
        else:
            self._committed |= {place.partition: offset for place, offset in kept.items()}

    async def measure_lag(self) -> None:
        """Set `lag` from the ends of the log, also while nothing is polled. Raises Transient."""
        assert self._tail is not None, "measure_lag before start"
        ends = await self._tail.end_offsets()
        self.lag = sum(max(0, ends.get(number, 0) - offset) for number, offset in self._committed.items())

    async def close(self) -> None:
        """Leave the group."""
        if self._tail is not None:
            await self._tail.close()
        if self._consumer is None:
            return
        try:
            await stop(self._consumer)
        except KafkaError as error:
            log.info("the group %s was not left: %s", self._group, error)

    def _failed(self, error: KafkaError) -> Transient:
        return Transient(f"group {self._group}: {type(error).__name__}: {error}", kind="unavailable")


class _Moves(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka ships no types
    def __init__(self, reader: KafkaGroupReader) -> None:
        self._reader = reader

    async def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
        self._reader._on_revoked()

    async def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        self._reader._on_assigned(assigned)
