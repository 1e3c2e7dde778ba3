"""From an event's record in the log to its frame at a client, for what stream_client.py has written down.

A record's time is that of its append (CreateTime: the batch was built then, so the flush with its fsync is inside). Log
and clients share this machine's clock.
"""

from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from loomlog.connectors.kafka import KafkaOptions, KafkaRanges, count_partitions
from loomlog.projections.frames.frame import FRAMES_PER_EVENT
from loomlog.schemas.codec import Undecodable, local_codec
from loomlog.schemas.reader import TermReader

EVENTS = "loom.run.events"


async def of_file(kafka: str, file: Path) -> list[float]:
    """As `latencies_s`, of one file."""
    partitions = await count_partitions(KafkaOptions(bootstrap=kafka, client_id="event-to-client"), EVENTS)
    return await latencies_s(kafka, partitions, [file])


async def latencies_s(kafka: str, partitions: int, files: Iterable[Path]) -> list[float]:
    """Seconds of every frame in the files, the first of each event only."""
    arrived: dict[tuple[str, int], float] = {}
    for file in files:
        for line in file.read_text().splitlines():
            run_id, seq, at_ms = line.split()
            arrived.setdefault((run_id, int(seq) // FRAMES_PER_EVENT), float(at_ms))
    ranges = KafkaRanges(KafkaOptions(bootstrap=kafka, client_id="event-to-client"))
    await ranges.start()
    result = []
    try:
        for number in range(partitions):
            async for run_id, seq, timestamp_ms in _events(ranges, number):
                at_ms = arrived.pop((run_id, seq), None)
                if at_ms is not None:
                    result.append((at_ms - timestamp_ms) / 1000)
    finally:
        await ranges.close()
    assert not arrived, f"{len(arrived)} frames are of no event in the log"
    return result


async def _events(ranges: KafkaRanges, number: int) -> AsyncIterator[tuple[str, int, int]]:
    """Run, seq and time of every event of a partition."""
    end = await ranges.end_offset(EVENTS, number)
    reader = TermReader(codec=local_codec())
    async with await ranges.read(EVENTS, number, 0, end) as chunks:
        async for chunk in chunks:
            for record in chunk:
                try:
                    raw = reader.read(record.offset, record.value)
                except Undecodable:
                    continue
                if raw is not None:
                    yield raw.aggregate, raw.seq, record.timestamp
