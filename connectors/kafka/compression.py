"""Compression of record batches.

aiokafka compresses with lz4 at level 9: 65 us for 18 KB of events on the machine of docs/BENCHMARKS.md, where level 1
takes 15 us for 0.5 % more bytes, and zstd at level 1 52 us for 25 % fewer. So batches are built uncompressed and
compressed here.

Before: appender.py. After: aiokafka.codec.
"""

import struct
from collections.abc import Callable, Mapping

from aiokafka.codec import gzip_encode, lz4_encode, zstd_encode
from aiokafka.record.util import calc_crc32c

CODECS = {"none": 0, "gzip": 1, "lz4": 3, "zstd": 4}
"""Codes of the record batch format."""
COMPRESSORS: Mapping[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": lambda records: gzip_encode(records, 6),
    "lz4": lambda records: lz4_encode(records, 1),
    "zstd": lambda records: zstd_encode(records, 1),
}
LENGTH_AT, CRC_AT, ATTRIBUTES_AT, RECORDS_AT = 8, 17, 21, 61
"""Offsets in a record batch of magic 2 (Kafka protocol); the length counts the bytes after itself, the CRC covers the
bytes from the attributes on.
"""


def compress_batch(batch: bytes, codec: str) -> bytes:
    """Return an uncompressed record batch of magic 2 compressed, or unchanged when that would not make it smaller."""
    records = COMPRESSORS[codec](batch[RECORDS_AT:])
    if len(records) >= len(batch) - RECORDS_AT:
        return batch
    head = bytearray(batch[:RECORDS_AT])
    struct.pack_into(">i", head, LENGTH_AT, len(head) + len(records) - LENGTH_AT - 4)
    head[ATTRIBUTES_AT + 1] |= CODECS[codec]
    struct.pack_into(">I", head, CRC_AT, calc_crc32c(bytes(head[ATTRIBUTES_AT:]) + records))
    return bytes(head) + records
