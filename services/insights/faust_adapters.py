"""Adapters of Faust to three rules of ours: read the last minutes again, commit our own offsets, keep no changelog.

Faust's own way (a changelog topic for the table, its own committed offsets) counts twice after a kill, because
changelog and commit are not one write, and after a restart its windows never expire. The insights topic already is the
changelog: on every assignment, and whenever Faust seeks, the windows are cleared and the last minutes are read again.
The table is in memory only; every start loses it anyway.

    ReplayApp           creates no folder for a store; main.py handles its crashes
    ReplayConsumer      seek: to the first record of the history, or the first undone one before it
                        fetch: nothing of the topic before the seek, and drops what was under way meanwhile
                        commit: only offsets that ReadProgress has as done
    WindowTable         a windowed table that writes to memory only
    faust_settings      all settings of Faust

Faust still creates and subscribes a changelog topic for the table (it stays empty; one replica is enough).

Before: app.py builds these. After: Faust calls them.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

import faust
from faust.transport.drivers.aiokafka import Consumer, Transport
from faust.types import TP, EventT, Message, TopicT
from faust.types.auth import CredentialsT

from loomlog.services.insights.broker import broker_urls
from loomlog.services.insights.minute_windows import MinuteTotals
from loomlog.services.insights.progress import PartitionStart, ReadProgress, start_offset
from loomlog.services.insights.settings import InsightsSettings

SESSION_S = 10.0
"""After a kill the next start takes over at once (static membership); this is for a machine that does not return."""
COMMIT_S = 1.0
"""A crash repeats the dead letters of the last second."""
EMPTY_FETCH_WAIT_S = 0.2
"""Interval of polls while no partition may be read."""
MAX_REQUEST_BYTES = 1_048_576
"""A dead letter is at most about 640 KiB (dead_letters.py)."""
LOGGER = logging.getLogger("faust.rereading")
"""Logger of the classes below: their messages are Faust's, and connectors/process/logs.py filters them like Faust's."""


class ReplayApp(faust.App):
    """A Faust app with the topic to reread, the start of its history, and the read progress."""

    logger = LOGGER

    def __init__(
        self, *args: Any, source: str, since_ms: Callable[[], int], on_rewind: Callable[[], None], **options: Any
    ):
        super().__init__(*args, **options)
        self.source = source
        self.since_ms = since_ms
        """Current start of the history in milliseconds."""
        self.on_rewind = on_rewind
        """Called when reading restarts: clears the windows."""
        self.progress = ReadProgress()

    def _create_directories(self) -> None:
        # The memory store needs no folder; Faust would make one in the working directory.
        pass

    def _new_transport(self) -> Transport:
        return ReplayTransport(self.conf.broker_consumer, self)


class ReplayConsumer(Consumer):
    """Starts at the beginning of the history, whatever was committed.

    After a rebalance Faust delivers records while it still seeks, from a position chosen by aiokafka. They would count
    now and again after the seek. So the topic is fetched only from positions that a seek has set, and fetched records
    are delivered only while these positions are valid.
    """

    logger = LOGGER
    app: ReplayApp

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._seek_lock = asyncio.Lock()
        """Held by a seek, and by a fetch."""
        self._epoch = 0
        """Grows whenever the positions become invalid."""
        self._fetch_epoch = 0

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Reads nothing until the seek that follows; app.py ends the process if there is none."""
        self._invalidate_positions()
        await super().on_partitions_assigned(assigned, generation_id)

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Seeks all partitions of the topic; returns their offsets."""
        self._invalidate_positions()
        async with self._seek_lock:
            starts: dict[int, PartitionStart] = await self._thread.call_thread(self._rewind)
            self.app.progress.begin(starts)
            self.app.on_rewind()
        return {TP(self.app.source, partition): start.offset for partition, start in starts.items()}

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Message]]:
        """Yields fetched records; those of the topic only while the positions of their fetch are valid."""
        async for tp, message in super().getmany(timeout):
            if tp.topic != self.app.source or self._fetch_epoch == self._epoch:
                yield tp, message

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Any:
        async with self._seek_lock:
            self._fetch_epoch = self._epoch
            positioned = self.app.progress.partitions
            fetchable = {
                tp for tp in active_partitions or () if tp.topic != self.app.source or tp.partition in positioned
            }
            # An empty set would mean all partitions.
            if fetchable:
                return await super()._getmany(fetchable, timeout)
        await self.sleep(EMPTY_FETCH_WAIT_S)
        return {}

    def _invalidate_positions(self) -> None:
        self._epoch += 1
        self.app.progress.begin({})

    async def _rewind(self) -> dict[int, PartitionStart]:
        # Runs in the consumer's thread, where the aiokafka consumer lives.
        consumer = self._thread._ensure_consumer()
        partitions = [tp for tp in consumer.assignment() if tp.topic == self.app.source]
        if not partitions:
            return {}
        # Requested together: each waits for the fetch under way on the same connection, up to 1.5 s.
        since, beginnings, ends, *commits = await asyncio.gather(
            consumer.offsets_for_times(dict.fromkeys(partitions, self.app.since_ms())),
            consumer.beginning_offsets(partitions),
            consumer.end_offsets(partitions),
            *(consumer.committed(tp) for tp in partitions),
        )
        starts: dict[int, PartitionStart] = {}
        for tp, committed in zip(partitions, commits, strict=True):
            offset = start_offset(
                since=None if since[tp] is None else since[tp].offset,
                committed=committed,
                beginning=beginnings[tp],
                end=ends[tp],
            )
            consumer.seek(tp, offset)
            starts[tp.partition] = PartitionStart(offset=offset, committed=committed, end=ends[tp])
        return starts

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        done = self.app.progress.offsets_to_commit()
        if not done:
            return True
        if not await super()._commit({TP(self.app.source, partition): offset for partition, offset in done.items()}):
            return False
        self.app.progress.mark_committed(done)
        return True

    async def partition_counts(self) -> dict[str, int]:
        """Number of partitions of every visible topic."""
        cluster = await self._thread.call_thread(self._thread._ensure_consumer()._client.fetch_all_metadata)
        return {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in cluster.topics()}

    async def fetch_end_offsets(self, partitions: int) -> dict[int, int]:
        """Offset after the last record of each partition of the topic, from the broker."""
        offsets = await self.highwaters(*(TP(self.app.source, partition) for partition in range(partitions)))
        return {tp.partition: offset for tp, offset in offsets.items()}


class ReplayTransport(Transport):
    Consumer = ReplayConsumer


class WindowTable(faust.Table[int, MinuteTotals]):
    """A windowed table in memory only."""

    logger = LOGGER

    def on_key_set(self, key: Any, value: Any) -> None:
        # Faust pushes the window's end on a heap at every write; once is enough, and the heap stays small.
        window_end = key[1][1]
        if key not in self._partition_timestamp_keys[(0, window_end)]:
            self._maybe_set_key_ttl(key, 0)

    def on_key_del(self, key: Any) -> None:
        self._maybe_del_key_ttl(key, 0)

    def _new_changelog_topic(self, **options: Any) -> TopicT:
        # We write nothing to it; records of another writer must not prevent our start.
        topic: TopicT = super()._new_changelog_topic(**options)
        raw: faust.Schema[bytes, bytes] = faust.Schema(
            key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw", allow_empty=True
        )
        return topic.derive_topic(schema=raw)

    def apply_changelog_batch(self, batch: Iterable[EventT[Any]]) -> None:
        """Does nothing: the changelog has no records of ours."""

    def reset_windows(self) -> None:
        """Clears all windows, outside of the processing of an event."""
        self.data.clear()
        self._partition_timestamp_keys.clear()
        self._partition_timestamps.clear()


def faust_settings(
    settings: InsightsSettings, *, credentials: CredentialsT | None, member: str, partitions: int, request_s: float
) -> dict[str, Any]:
    """All settings of Faust. `member` is the name in the group, `partitions` the number for source and table."""
    return {
        "env": {},  # else environment variables of Faust would override these settings
        "broker": broker_urls(settings.kafka),
        "broker_client_id": settings.kafka.client_id,
        "broker_credentials": credentials,
        "store": "memory://",
        "Table": WindowTable,
        "key_serializer": "raw",
        "value_serializer": "raw",
        "web_enabled": False,
        "topic_disable_leader": True,
        "reply_create_topic": False,
        "topic_partitions": partitions,
        "topic_replication_factor": settings.replication_factor,
        "table_standby_replicas": 0,
        "stream_wait_empty": False,
        "consumer_group_instance_id": member,
        "consumer_auto_offset_reset": "earliest",
        "broker_session_timeout": SESSION_S,
        "broker_heartbeat_interval": SESSION_S / 5,
        "broker_rebalance_timeout": SESSION_S,
        "broker_request_timeout": request_s,
        "broker_commit_interval": COMMIT_S,
        "producer_request_timeout": request_s,
        "producer_acks": -1,
        "producer_max_request_size": MAX_REQUEST_BYTES,
    }
