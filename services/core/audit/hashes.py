"""The running hash of an events partition: a signed checkpoint states it for all records below an offset.

    record hash    SHA-256 of time, key, SHA-256 of the value, and headers, each with its length
    chain          SHA-256 of (chain before, offset, record hash); 32 zeros at the beginning
    fingerprint    first 8 bytes of the record hash; a checkpoint lists them, so that a verifier can identify the
                   changed record and not only detect a change

Everything the broker stores of a record is included, stale records and Claims too. The chain is the proof; the
fingerprints only locate a change, because 64 bits can be matched with enough machines.

Not chosen: a Merkle tree. It proves single records to outsiders without the log; here the verifier has the log.

Before: a Kafka record. After: ledger.py signs it, verify.py compares it.
"""

import struct
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple, Protocol

CHAIN_BYTES = 32
START_CHAIN = bytes(CHAIN_BYTES)
FINGERPRINT_BYTES = 8
HOLE = bytes(FINGERPRINT_BYTES)
"""Marks an offset without a record. A real record hash starts with these bytes once in 2**64."""
ABSENT = -1
"""Length of a key or value that is null."""

_HEAD = struct.Struct(">qi")
_LENGTH = struct.Struct(">i")
_OFFSET = struct.Struct(">q")


class StoredRecord(Protocol):
    """A record as read; loomlog.connectors.protocols.LogRecord without topic and partition."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes]]: ...


class HashedRecord(NamedTuple):
    """A record with its hashes. `value_hash` is the SHA-256 of the value; the next event names its first bytes."""

    record: StoredRecord
    record_hash: bytes
    value_hash: bytes

    @property
    def fingerprint(self) -> bytes:
        return self.record_hash[:FINGERPRINT_BYTES]


def hash_record(record: StoredRecord) -> HashedRecord:
    """Compute the hashes of a record; about 3 microseconds for a kilobyte."""
    value, key = record.value, record.key
    value_hash = sha256(value).digest() if value is not None else b""
    parts = [_HEAD.pack(record.timestamp, ABSENT if key is None else len(key)), key or b"", value_hash]
    for name, content in record.headers:
        raw = name.encode()
        data: bytes | None = content  # a producer other than ours may have written null
        parts.append(_LENGTH.pack(len(raw)))
        parts.append(raw)
        parts.append(_LENGTH.pack(ABSENT if data is None else len(data)))
        parts.append(data or b"")
    return HashedRecord(record, sha256(b"".join(parts)).digest(), value_hash)


def extend_chain(chain: bytes, offset: int, record_hash: bytes) -> bytes:
    """Return the chain after the record at that offset."""
    return sha256(chain + _OFFSET.pack(offset) + record_hash).digest()
