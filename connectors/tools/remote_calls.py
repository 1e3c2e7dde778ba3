"""Tool calls over the log: a request on one topic and its result on another, served by any process.

    call       append the request, wait for the result with its idempotency key
    retry      an attempt after a crash first looks for the request in its topic; when it is there and its deadline has
               not passed, nothing is sent: the attempt waits for the result, or has received it meanwhile
    results    every runtime reads all of them, from LOOKBACK_MS before its start, and keeps those that are not awaited
               yet, so that the result and the next owner may come in any order

A request that was sent twice nevertheless (its sender was wrongly presumed dead) has the same idempotency key, in the
same partition: the service answers again without repeating the effect. Not chosen: a reply partition for each runtime
(the next owner would not read it), a consumer group (a result must reach the process that waits).

Before: remote_tool.py. After: a microservice (docs/examples/serve_tool.py).
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol

from loomlog.connectors.errors import Permanent, Transient, UnknownOutcome
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import LogAppender, LogRanges, LogRecord, LogTail, ProducerRecord
from loomlog.connectors.retries import until_answered
from loomlog.schemas.codec import Codec, Undecodable
from loomlog.schemas.generated.stream_records import RemoteToolRequest, RemoteToolResult

log = logging.getLogger(__name__)

REQUESTS_TOPIC = "loom.tool.requests"
RESULTS_TOPIC = "loom.tool.results"
LOOKBACK_MS = 15 * 60_000
"""Milliseconds that a new process looks back for results of calls that it may have to continue."""
MAX_UNCLAIMED_RESULTS = 10_000
MAX_UNCLAIMED_BYTES = 64 * 1024 * 1024
"""Maximum bytes of results not awaited yet. Most belong to other processes and are never claimed; the oldest are
dropped first.
"""
POLL_S = 1.0
CONNECTION_HEADER = "ce_connection"
"""Header with the id of the client connection that a request is for."""
SEND_RETRY_S = 0.1
"""Seconds between an append with unknown outcome and its retry, until the tool's timeout; duplicates are harmless."""


ExpiryWatch = Callable[[RemoteToolRequest], Awaitable[str]]
"""Waits until no result of that request can be expected any more, and returns the reason."""


class TimeIndexedRanges(LogRanges, Protocol):
    """Log ranges with a look-up of offsets by time."""

    async def offset_at(self, topic: str, partition: int, at_ms: int) -> int:
        """Return the offset of the first record at or after that time, else the end offset. Raises Transient."""
        ...


async def wait_or_expire(result: "asyncio.Future[Any]", expiry: Awaitable[str]) -> str | None:
    """Wait for the result; return the reason from `expiry` when that ends first, else None."""
    giving_up = asyncio.ensure_future(expiry)
    try:
        await asyncio.wait([result, giving_up], return_when=asyncio.FIRST_COMPLETED)
        return None if result.done() else giving_up.result()
    finally:
        giving_up.cancel()
        await asyncio.gather(giving_up, return_exceptions=True)


def _log_unreadable(record: LogRecord, error: str) -> None:
    log.error("%s/%d/%d cannot be read: %s", record.topic, record.partition, record.offset, error)


class RemoteCallClient:
    """Client of all remote calls in this process."""

    def __init__(
        self,
        codec: Codec,
        appender: LogAppender,
        ranges: TimeIndexedRanges,
        *,
        clock_ms: Callable[[], int],
        source: str,
        results_topic: str = RESULTS_TOPIC,
    ) -> None:
        """Take `ranges` for exclusive use. `on_unreadable` is called with each result that cannot be read."""
        self.on_unreadable: Callable[[LogRecord, str], None] = _log_unreadable
        self._codec = codec
        self._appender = appender
        self._ranges = ranges
        self._clock_ms = clock_ms
        self._source = source
        self._results_topic = results_topic
        self._waiters: dict[bytes, list[asyncio.Future[LogRecord]]] = {}
        self._unclaimed: OrderedDict[bytes, LogRecord] = OrderedDict()
        self._unclaimed_bytes = 0

    async def call(self, topic: str, request: RemoteToolRequest, *, since_ms: int | None = None) -> RemoteToolResult:
        """Return the result; waits without a timeout. `since_ms`: an earlier attempt may have sent the request since
        then.

        Raises Transient when the broker does not answer, Permanent for an invalid result.
        """
        async with self._expect_result(request.idempotency_key) as result:
            if not result.done() and (since_ms is None or not await self._is_in_progress(topic, request, since_ms)):
                await self._send(topic, request)
            return self._decode_result(await result, request.idempotency_key, request.tenant)

    async def wait_for_result(
        self, topic: str, idempotency_key: str, tenant: str, since_ms: int, *, expiry_watch: ExpiryWatch
    ) -> RemoteToolResult | str:
        """Return the result of a call that may have been sent, or the reason why none is to be expected.

        The reason: no request in its topic, or the one from `expiry_watch`, which runs during the wait. Raises as
        `call`.
        """
        async with self._expect_result(idempotency_key) as result:
            if not result.done():
                request = await self._find_request(topic, idempotency_key, since_ms)
                if request is None:
                    return f"no request of this call is in {topic}, but one may still be on its way"
                why = await wait_or_expire(result, expiry_watch(request))
                if why is not None:
                    return why
            return self._decode_result(result.result(), idempotency_key, tenant)

    async def catch_up(self) -> dict[int, int]:
        """Read the results of the last LOOKBACK_MS; return the offsets from which to tail. Raises Transient.

        Runs before the first call: an attempt that continues another one must know the results received meanwhile.
        """
        topic = self._results_topic
        since_ms = self._clock_ms() - LOOKBACK_MS
        ends: dict[int, int] = {}
        for number in range(await self._appender.partitions(topic)):
            start = await self._ranges.offset_at(topic, number, since_ms)
            ends[number] = end = await self._ranges.end_offset(topic, number)
            if start < end:
                async with await self._ranges.read(topic, number, start, end) as chunks:
                    async for chunk in chunks:
                        self.feed({number: chunk})
        return ends

    async def follow(self, tail: LogTail) -> None:
        """Read results until cancelled."""
        while True:
            self.feed(await tail.poll(timeout_s=POLL_S))

    def feed(self, batches: Mapping[int, Sequence[LogRecord]]) -> None:
        """Deliver results to the waiting calls, and keep them for later ones."""
        for records in batches.values():
            for record in records:
                self._handle_result(record)

    def _handle_result(self, record: LogRecord) -> None:
        if not record.key or record.value is None:
            self.on_unreadable(record, "a result needs the key of its request, and a value")
            return
        for future in self._waiters.get(record.key, ()):
            if not future.done():
                future.set_result(record)
        # The first result is kept: a repeated look-up returns the same result.
        if record.key not in self._unclaimed:
            self._unclaimed[record.key] = record
            self._unclaimed_bytes += len(record.value)
            while len(self._unclaimed) > MAX_UNCLAIMED_RESULTS or self._unclaimed_bytes > MAX_UNCLAIMED_BYTES:
                _, oldest = self._unclaimed.popitem(last=False)
                self._unclaimed_bytes -= len(oldest.value or b"")

    @asynccontextmanager
    async def _expect_result(self, idempotency_key: str) -> AsyncIterator[asyncio.Future[LogRecord]]:
        """Yield a future of the result's record."""
        key = idempotency_key.encode()
        future: asyncio.Future[LogRecord] = asyncio.get_running_loop().create_future()
        if (known := self._unclaimed.get(key)) is not None:
            future.set_result(known)
        others = self._waiters.setdefault(key, [])
        others.append(future)
        try:
            yield future
        finally:
            others.remove(future)
            if not others:
                del self._waiters[key]

    def _decode_result(self, record: LogRecord, idempotency_key: str, tenant: str) -> RemoteToolResult:
        try:
            result = self._codec.decode(record.value or b"").record
        except Undecodable as error:
            self.on_unreadable(record, str(error))
            raise Permanent(f"the tool answered with a record that cannot be read: {error}", kind="invalid") from error
        if not isinstance(result, RemoteToolResult):
            self.on_unreadable(record, f"a {type(result).__name__}, expected a RemoteToolResult")
            raise Permanent(f"the tool answered with a {type(result).__name__}", kind="invalid")
        if (result.idempotency_key, result.tenant) != (idempotency_key, tenant):
            self.on_unreadable(record, f"it is for {result.idempotency_key} of tenant {result.tenant}")
            raise Permanent("the tool answered for another call under this key", kind="invalid")
        return result

    async def _send(self, topic: str, request: RemoteToolRequest) -> None:
        key = request.idempotency_key.encode()
        headers = [
            ("ce_specversion", b"1.0"),
            ("ce_id", request.request_id.encode()),
            ("ce_type", RemoteToolRequest.SCHEMA.encode()),
            ("ce_source", f"/{self._source}".encode()),
            # A service that shares the topic with others selects its requests without decoding.
            ("ce_subject", request.tool.encode()),
        ]
        if request.connection_id:
            headers.append((CONNECTION_HEADER, request.connection_id.encode()))
        record = ProducerRecord(key=key, value=self._codec.encode(request), headers=headers)
        partition = partition_of(key, await self._count_partitions(topic))
        await until_answered(
            partial(self._appender.append, topic, partition, [record]),
            f"{topic}: the request {request.request_id}",
            failures=(UnknownOutcome,),
            retry_s=SEND_RETRY_S,
        )

    async def _is_in_progress(self, topic: str, request: RemoteToolRequest, since_ms: int) -> bool:
        """Return whether an earlier attempt was sent and the service may still begin or finish it."""
        before = await self._find_request(topic, request.idempotency_key, since_ms)
        return before is not None and before.deadline_ms > self._clock_ms()

    async def _find_request(self, topic: str, idempotency_key: str, since_ms: int) -> RemoteToolRequest | None:
        """Return the last request with that key."""
        key = idempotency_key.encode()
        partition = partition_of(key, await self._count_partitions(topic))
        start = await self._ranges.offset_at(topic, partition, since_ms)
        end = await self._ranges.end_offset(topic, partition)
        latest: RemoteToolRequest | None = None
        if start < end:
            async with await self._ranges.read(topic, partition, start, end) as chunks:
                async for chunk in chunks:
                    for record in chunk:
                        if record.key == key and record.value is not None:
                            sent = self._codec.decode(record.value).record
                            latest = sent if isinstance(sent, RemoteToolRequest) else latest
        return latest

    async def _count_partitions(self, topic: str) -> int:
        count = await self._appender.partitions(topic)
        if count < 1:
            raise Transient(f"there is no topic {topic} for requests of tools", kind="unavailable")
        return count
