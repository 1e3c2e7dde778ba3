"""The log on a Kafka-compatible broker, over aiokafka: tails, ranges, appends, and the group that hints at ownership.

Nothing here is trusted for correctness. A tail has no group and its caller keeps the positions; an append answers with
the broker's base offset, or with UnknownOutcome when that cannot be told; the group only says who should try to own
which partition. Transactions are not used anywhere (reference kafka.md 3.4, design.md 4): only plain, idempotent
producers write, so that offsets of an events partition are dense.

Settings that matter, from measurements (reference prototype.md, kafka.md 3): linger 0 and batches built by ourselves,
one producer a process, fetch wait 50 ms (a long poll is answered as soon as data is there), decoding outside.
Not chosen: confluent-kafka (its asyncio producer cannot send headers).
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import IllegalStateError, KafkaError

from connectors.errors import Transient, UnknownOutcome
from connectors.kafka_assignment import SharingAssignor
from connectors.kafka_clients import METADATA_MAX_AGE_MS, rebootstrap, stop
from connectors.protocols import LogRecord, Outgoing, Share

MAX_BATCH_BYTES = 900_000
"""Most bytes of one append; below the broker's default message.max.bytes of 1 MiB with room for framing."""
FETCH_MAX_WAIT_MS = 50
"""Longest wait of an empty fetch where partitions come and go: a seek, a resume, another range and a question for
offsets wait for the fetch under way."""
FOLLOWING_WAIT_MS = 1_000
"""Longest wait of an empty fetch of a tail that only reads on: a new record ends it at once. Each empty fetch costs the
broker and us 0.7 ms of CPU together; a dozen tails at 50 ms took a tenth of two cores while nothing happened."""
REQUEST_TIMEOUT_MS = 10_000
"""A request without an answer for this long is given up; the client connects anew."""
METADATA_WAIT_S = 10.0
"""How long to wait for the broker when a client starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """How to reach the broker. `bootstrap` is host:port, several with commas; secrets never show in repr."""

    bootstrap: str
    client_id: str = "loomlog"
    security_protocol: str = "PLAINTEXT"
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    sasl_mechanism: str = "PLAIN"
    """PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""
    sasl_username: str = ""
    sasl_password: str = ""
    ca_file: str = ""
    """PEM file of authorities; empty = the system's."""
    cert_file: str = ""
    key_file: str = ""
    key_password: str = ""
    compression: str = ""
    """Compression of appended batches: empty or lz4."""

    def __repr__(self) -> str:
        return f"KafkaOptions(bootstrap={self.bootstrap!r}, security_protocol={self.security_protocol!r})"

    def client_arguments(self) -> dict[str, Any]:
        """Keyword arguments every aiokafka client takes."""
        arguments: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap,
            "client_id": self.client_id,
            "security_protocol": self.security_protocol,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            "metadata_max_age_ms": METADATA_MAX_AGE_MS,
        }
        if self.security_protocol.endswith("SSL"):
            context = ssl.create_default_context(cafile=self.ca_file or None)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file or None, self.key_password or None)
            arguments["ssl_context"] = context
        if self.security_protocol.startswith("SASL"):
            arguments["sasl_mechanism"] = self.sasl_mechanism
            arguments["sasl_plain_username"] = self.sasl_username
            arguments["sasl_plain_password"] = self.sasl_password
        return arguments


def _consumer(options: KafkaOptions, **more: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        **options.client_arguments(),
        enable_auto_commit=False,
        # A position out of range must stop us, not jump (reference kafka.md 3.5).
        auto_offset_reset="none",
        **{"fetch_max_wait_ms": FETCH_MAX_WAIT_MS, **more},
    )


async def _start(client: Any, what: str, options: KafkaOptions) -> None:
    try:
        async with asyncio.timeout(METADATA_WAIT_S):
            await client.start()
    except (KafkaError, OSError, TimeoutError) as error:
        try:
            # Alone among its kind, the admin client calls it close.
            await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())
        except (KafkaError, OSError):
            pass  # it never ran; the first error is the one to tell
        raise Transient(
            f"{what}: the broker at {options.bootstrap} does not answer ({type(error).__name__}: {error}); "
            "is it running?",
            kind="unavailable",
        ) from error
    rebootstrap(client.client if isinstance(client, AIOKafkaProducer) else client._client)


class KafkaTail:
    """A group-less reader of one topic (protocol LogTail). Partitions not in `starts` are never read.

    `fetch_max_wait_ms` is the longest wait of an empty fetch, and so of a seek, a resume or a question for offsets.
    """

    def __init__(
        self,
        options: KafkaOptions,
        topic: str,
        starts: Mapping[int, int],
        *,
        fetch_max_wait_ms: int = FOLLOWING_WAIT_MS,
    ) -> None:
        self.topic = topic
        self._fetch_max_wait_ms = fetch_max_wait_ms
        self._options = options
        self._starts = dict(starts)
        self._partitions = {p: TopicPartition(topic, p) for p in starts}
        self._consumer: AIOKafkaConsumer | None = None

    async def start(self) -> None:
        """Connects and goes to the start offsets. Raises Transient when the broker does not answer."""
        consumer = _consumer(self._options, fetch_max_wait_ms=self._fetch_max_wait_ms)
        await _start(consumer, f"tail of {self.topic}", self._options)
        consumer.assign(list(self._partitions.values()))
        for partition, offset in self._starts.items():
            consumer.seek(self._partitions[partition], offset)
        self._consumer = consumer

    @property
    def _open(self) -> AIOKafkaConsumer:
        assert self._consumer is not None, "start() first"
        return self._consumer

    async def poll(self, *, timeout_s: float, max_records: int = 5_000) -> Mapping[int, Sequence[LogRecord]]:
        """As LogTail.poll. A position below the log's start (retention) moves to the first record there is."""
        try:
            found = await self._open.getmany(timeout_ms=int(timeout_s * 1000), max_records=max_records)
        except KafkaError as error:
            await self._leave_out_of_range(error)
            return {}
        return {tp.partition: records for tp, records in found.items()}

    async def _leave_out_of_range(self, error: KafkaError) -> None:
        beginnings = await self._open.beginning_offsets(list(self._partitions.values()))
        for tp, beginning in beginnings.items():
            if await self._open.position(tp) < beginning:
                self._open.seek(tp, beginning)
                return
        raise Transient(f"tail of {self.topic}: {type(error).__name__}: {error}", kind="unavailable") from error

    def seek(self, partition: int, offset: int) -> None:
        self._open.seek(self._partitions[partition], offset)

    def pause(self, partitions: Sequence[int]) -> None:
        """Stop fetching these partitions; what was fetched of them is dropped."""
        self._open.pause(*[self._partitions[p] for p in partitions])

    def resume(self, partitions: Sequence[int]) -> None:
        self._open.resume(*[self._partitions[p] for p in partitions])

    async def end_offsets(self) -> Mapping[int, int]:
        return await self._offsets("end_offsets")

    async def beginning_offsets(self) -> Mapping[int, int]:
        """Offset of the first record each partition still holds. Raises Transient."""
        return await self._offsets("beginning_offsets")

    async def _offsets(self, which: str) -> Mapping[int, int]:
        try:
            found = await getattr(self._open, which)(list(self._partitions.values()))
        except (KafkaError, OSError) as error:
            raise Transient(f"{which} of {self.topic}: {type(error).__name__}: {error}", kind="unavailable") from error
        return {tp.partition: offset for tp, offset in found.items()}

    async def close(self) -> None:
        if self._consumer is not None:
            await stop(self._consumer)
            self._consumer = None


async def open_tail(
    options: KafkaOptions, topic: str, starts: Mapping[int, int], *, fetch_max_wait_ms: int = FOLLOWING_WAIT_MS
) -> KafkaTail:
    """A tail that reads. Raises Transient."""
    tail = KafkaTail(options, topic, starts, fetch_max_wait_ms=fetch_max_wait_ms)
    await tail.start()
    return tail


class KafkaRanges:
    """Reads a range of one partition at a time: claims in a gap, a finished run, the tail for a take-over."""

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._consumer: AIOKafkaConsumer | None = None
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        consumer = _consumer(self._options)
        await _start(consumer, "range reader", self._options)
        self._consumer = consumer

    async def read(self, topic: str, partition: int, start: int, end: int) -> "RangeIterator":
        """Records from `start` up to but not including `end`, in chunks: `async with await ranges.read(...) as chunks`.

        Nothing else can be read while the range is open.
        """
        return RangeIterator(self, TopicPartition(topic, partition), start, end)

    async def end_offset(self, topic: str, partition: int) -> int:
        """Offset after the last record. Raises Transient."""
        return await self._edge("end_offsets", topic, partition)

    async def beginning_offset(self, topic: str, partition: int) -> int:
        """Offset of the first record there still is. Raises Transient."""
        return await self._edge("beginning_offsets", topic, partition)

    async def offset_at(self, topic: str, partition: int, at_ms: int) -> int:
        """Offset of the first record that is not older than that; the end when all are. Raises Transient."""
        assert self._consumer is not None
        tp = TopicPartition(topic, partition)
        try:
            found = (await self._consumer.offsets_for_times({tp: at_ms}))[tp]
        except (KafkaError, OSError) as error:
            raise Transient(
                f"time {at_ms} of {topic}/{partition}: {type(error).__name__}", kind="unavailable"
            ) from error
        return await self.end_offset(topic, partition) if found is None else int(found.offset)

    async def _edge(self, which: str, topic: str, partition: int) -> int:
        assert self._consumer is not None
        tp = TopicPartition(topic, partition)
        try:
            found = await getattr(self._consumer, which)([tp])
        except (KafkaError, OSError) as error:
            raise Transient(f"{which} of {topic}/{partition}: {type(error).__name__}", kind="unavailable") from error
        return int(found[tp])

    async def close(self) -> None:
        if self._consumer is not None:
            await stop(self._consumer)
            self._consumer = None


class RangeIterator:
    """Chunks of a range; see KafkaRanges.read."""

    def __init__(self, ranges: KafkaRanges, tp: TopicPartition, start: int, end: int) -> None:
        self._ranges, self._tp, self._at, self._end = ranges, tp, start, end

    async def __aenter__(self) -> "RangeIterator":
        await self._ranges._lock.acquire()
        assert self._ranges._consumer is not None
        if self._at < self._end:
            self._ranges._consumer.assign([self._tp])
            self._ranges._consumer.seek(self._tp, self._at)
        return self

    async def __aexit__(self, *_: object) -> None:
        consumer = self._ranges._consumer
        if consumer is not None and self._tp in consumer.assignment():
            consumer.pause(self._tp)  # or it fetches on, for nobody
        self._ranges._lock.release()

    def __aiter__(self) -> "RangeIterator":
        return self

    async def __anext__(self) -> Sequence[LogRecord]:
        consumer = self._ranges._consumer
        assert consumer is not None
        while self._at < self._end:
            try:
                found = await consumer.getmany(self._tp, timeout_ms=200, max_records=5_000)
                records = [r for r in found.get(self._tp, ()) if r.offset < self._end]
                # The position moves over what is no record (control records), so that the end is always reached.
                self._at = records[-1].offset + 1 if records else await consumer.position(self._tp)
            except KafkaError as error:
                raise Transient(
                    f"reading {self._tp.topic}/{self._tp.partition} from {self._at}: {type(error).__name__}: {error}",
                    kind="unavailable",
                ) from error
            if records:
                return records
        raise StopAsyncIteration


class KafkaAppender:
    """Appends batches (protocol LogAppender) over one idempotent producer."""

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._producer: AIOKafkaProducer | None = None

    async def start(self) -> None:
        producer = AIOKafkaProducer(
            **self._options.client_arguments(),
            enable_idempotence=True,
            acks="all",
            linger_ms=0,
            max_batch_size=MAX_BATCH_BYTES,
            max_request_size=4 * MAX_BATCH_BYTES,
            compression_type=self._options.compression or None,
            retry_backoff_ms=100,
        )
        await _start(producer, "appender", self._options)
        self._producer = producer

    async def append(self, topic: str, partition: int, records: Sequence[Outgoing]) -> int:
        assert self._producer is not None, "start() first"
        assert records, "an append needs records"
        batch = self._producer.create_batch()
        for record in records:
            if batch.append(timestamp=None, key=record.key, value=record.value, headers=list(record.headers)) is None:
                raise ValueError(
                    f"{len(records)} records for {topic}/{partition} do not fit one batch of {MAX_BATCH_BYTES} bytes"
                )
        batch.close()
        try:
            future = await self._producer.send_batch(batch, topic, partition=partition)
            metadata = await future
        except (KafkaError, OSError, TimeoutError) as error:
            raise UnknownOutcome(
                f"append of {len(records)} records to {topic}/{partition}: {type(error).__name__}: {error}"
            ) from error
        if metadata.offset < 0:
            # DuplicateSequenceNumber makes aiokafka succeed with an invalid offset (reference prototype.md 1.2).
            raise UnknownOutcome(f"append to {topic}/{partition} was answered with the offset {metadata.offset}")
        return int(metadata.offset)

    async def partitions(self, topic: str) -> int:
        assert self._producer is not None
        try:
            async with asyncio.timeout(METADATA_WAIT_S):
                found = await self._producer.partitions_for(topic)
        except (KafkaError, OSError, TimeoutError) as error:
            raise Transient(f"partitions of {topic}: {type(error).__name__}: {error}", kind="unavailable") from error
        return len(found)

    async def close(self) -> None:
        if self._producer is not None:
            producer, self._producer = self._producer, None
            try:
                # stop() flushes and an idempotent batch never expires: without a broker it would wait for ever.
                async with asyncio.timeout(METADATA_WAIT_S):
                    await producer.stop()
            except (KafkaError, TimeoutError):
                pass  # what was not appended is unknown to everybody, which is what its waiters were told


class KafkaGroup:
    """Membership of a consumer group, only to learn which partitions to own. It reads no records.

    `assigned` changes when a rebalance ends; `changed` is set then. While one is under way the old assignment stands,
    so that an owner keeps serving what it holds (design.md 4). `life` names this process in `members`.
    """

    def __init__(
        self,
        options: KafkaOptions,
        topic: str,
        group: str,
        *,
        session_timeout_ms: int,
        life: str,
        stands_by: bool = False,
    ) -> None:
        self.assigned: frozenset[int] = frozenset()
        self.members: Mapping[str, Share] = {}
        """Everybody's share by life; empty before the first rebalance."""
        self.changed = asyncio.Event()
        self._topic = topic
        self._sharing = SharingAssignor(life, stands_by=stands_by)
        self._consumer = AIOKafkaConsumer(
            **options.client_arguments(),
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="latest",
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=max(100, session_timeout_ms // 5),
            rebalance_timeout_ms=30_000,
            fetch_max_wait_ms=1_000,
            # One only: aiokafka 0.14 sends a JoinGroup for each strategy, the list grown by one each time. Every one of
            # them begins the rebalance anew, and two members can drive each other round for ever.
            partition_assignment_strategy=[self._sharing],
        )
        self._options = options

    async def start(self) -> None:
        await _start(self._consumer, f"group for {self._topic}", self._options)
        self._consumer.subscribe([self._topic], listener=_Listener(self))

    async def stay(self) -> None:
        """Keeps the membership alive; runs until cancelled. Paused partitions give no records."""
        while True:
            try:
                await self._consumer.getmany(timeout_ms=500, max_records=1)
            except KafkaError as error:
                raise Transient(
                    f"group of {self._topic}: {type(error).__name__}: {error}", kind="unavailable"
                ) from error

    def holds(self, held: Callable[[], Iterable[int]]) -> None:
        """Asks `held` at every rebalance which partitions this process holds, so that few of them move."""
        self._sharing.held = held

    def _assigned(self, partitions: frozenset[int]) -> None:
        self.assigned = partitions
        self.members = self._sharing.latest()
        self.changed.set()

    async def close(self) -> None:
        """Leaves the group, so that others take over at once."""
        try:
            async with asyncio.timeout(METADATA_WAIT_S):
                await stop(self._consumer)
        except (KafkaError, TimeoutError):
            pass  # the session will run out


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka ships no types
    def __init__(self, group: KafkaGroup) -> None:
        self._group = group

    async def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
        """Keep serving: terms make it safe, and dropping would repeat every open call."""

    async def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        try:
            self._group._consumer.pause(*assigned)
        except IllegalStateError:
            pass  # the next rebalance is already under way and will call again
        self._group._assigned(frozenset(tp.partition for tp in assigned))


async def topic_partitions(options: KafkaOptions, topic: str) -> int:
    """Partitions of a topic; 0 when it does not exist. Raises Transient when the broker does not answer."""
    admin = AIOKafkaAdminClient(**options.client_arguments())
    await _start(admin, "admin", options)
    try:
        found = await admin.describe_topics([topic])
    except (KafkaError, OSError) as error:
        raise Transient(f"describe {topic}: {type(error).__name__}: {error}", kind="unavailable") from error
    finally:
        await admin.close()
    return len(found[0]["partitions"]) if found and found[0]["error_code"] == 0 else 0
