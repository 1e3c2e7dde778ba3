"""Reads ranges of one topic of the log by offset: records, the term in force at an offset, the offset of a time.

A range that begins in the middle of an events partition needs the term in force there: that of the nearest Claim before
it. The search goes backwards and is bounded; beyond the bound the newest term found is used instead, which is wrong
only if more consecutive records than the bound were all stale.

Before: audit_log.py. After: loomlog.connectors.kafka.KafkaRanges.
"""

import asyncio
from collections.abc import AsyncGenerator

from loomlog.connectors.protocols import LogRanges, LogRecord
from loomlog.schemas.codec import Codec, Undecodable, peek
from loomlog.schemas.generated.stream_events import Claim
from loomlog.services.application.limits import TERM_SEARCH_MAX

CHUNK_RECORDS = 1_000
"""Records read at a time in a backwards search, and the precision of a search by time."""
YIELD_EVERY = 500
"""Records handled before yielding to the event loop."""


class LogWindow:
    """Ranges of one topic. All methods raise Transient when the broker does not answer."""

    def __init__(self, ranges: LogRanges, codec: Codec, topic: str) -> None:
        self.topic = topic
        self.claim_ids = codec.schema_ids_of(frozenset({Claim.SCHEMA}))
        """Schema ids of Claims."""
        self._ranges = ranges

    async def end_offset(self, partition: int) -> int:
        """Return the offset after the last record."""
        return await self._ranges.end_offset(self.topic, partition)

    async def beginning_offset(self, partition: int) -> int:
        """Return the offset of the first remaining record."""
        return await self._ranges.beginning_offset(self.topic, partition)

    async def record_at(self, partition: int, offset: int) -> LogRecord | None:
        """Return the record at that offset; None when there is none."""
        records = await self._read(partition, offset, min(offset + 1, await self.end_offset(partition)))
        return records[0] if records else None

    async def records(self, partition: int, start: int, end: int) -> AsyncGenerator[LogRecord, None]:
        """Iterate records from `start` up to but not including `end`. Close the generator when leaving early."""
        if start >= end:
            return
        async with await self._ranges.read(self.topic, partition, start, end) as chunks:
            async for chunk in chunks:
                for index, record in enumerate(chunk):
                    if index % YIELD_EVERY == YIELD_EVERY - 1:
                        await asyncio.sleep(0)
                    yield record

    async def offset_before(self, partition: int, start: int, end: int, at_ms: int) -> int:
        """Return an offset in [start, end] before which every record is older than `at_ms`, as far as clocks agree."""
        while end - start > CHUNK_RECORDS:
            middle = (start + end) // 2
            records = await self._read(partition, middle, middle + 1)
            if not records or records[0].timestamp >= at_ms:
                end = middle
            else:
                start = middle
        return start

    async def term_before(self, partition: int, offset: int) -> int:
        """Return the term in force for the record at that offset of an events topic; -1 when there is none."""
        beginning = await self.beginning_offset(partition)
        end, newest = offset, -1
        while end > beginning and offset - end < TERM_SEARCH_MAX:
            start = max(beginning, end - CHUNK_RECORDS)
            for record in reversed(await self._read(partition, start, end)):
                try:
                    header = peek(record.value or b"")
                except Undecodable:
                    continue
                if header.schema_id in self.claim_ids:
                    return record.offset
                newest = max(newest, header.term)
            end = start
        return newest

    async def _read(self, partition: int, start: int, end: int) -> list[LogRecord]:
        if start < 0 or start >= end:
            return []
        records: list[LogRecord] = []
        async with await self._ranges.read(self.topic, partition, start, end) as chunks:
            async for chunk in chunks:
                records += chunk
        return records
