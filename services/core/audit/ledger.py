"""A signer's state for one partition: where the last checkpoint ended, and the hashes of the records since.

Before anything is signed the log has to agree with what was signed before, by us or by another signer:

    resume   start from the last checkpoint; its range is read again and must produce its running hash
    adopt    another signer's checkpoint, for offsets already read, must state our hash; then we continue after it

A contradiction is final for the partition: a signer must not cover up a change. Verification identifies the record; the
signer only reports that there is one.

Pure. Memory: MAX_RECORDS hashes. Before: services/auditor reads. After: checkpoints.sign.
"""

from collections import deque
from typing import NamedTuple

from loomlog.schemas.codec import FRAME_BYTES, Codec
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.generated.stream_records import AuditCheckpoint
from loomlog.services.core.audit.checkpoints import MAX_RECORDS, UNSIGNED, SignedCheckpoint
from loomlog.services.core.audit.hashes import (
    FINGERPRINT_BYTES,
    HOLE,
    START_CHAIN,
    StoredRecord,
    extend_chain,
    hash_record,
)


class SigningContradiction(Exception):
    """The log differs from what was signed. The text describes where."""


class SignedEntry(NamedTuple):
    """A record after the last checkpoint; `term` is the one in force after it."""

    offset: int
    record_hash: bytes
    term: int


class SigningCursor:
    """The signer's view of one partition."""

    def __init__(self, *, topic: str, partition: int, codec: Codec) -> None:
        self.next_offset = 0
        """Next offset to read."""
        self.signed_offset = 0
        """First offset of the next checkpoint."""
        self._topic, self._partition = topic, partition
        self._claim_ids = codec.schema_ids_of(frozenset({Claim.SCHEMA}))
        self._chain = START_CHAIN
        self._start_term = self._term = -1
        self._last: SignedCheckpoint | None = None
        self._entries: deque[SignedEntry] = deque()
        self._to_repeat: SignedCheckpoint | None = None
        """The checkpoint whose range is being read again."""

    @property
    def last(self) -> SignedCheckpoint | None:
        return self._last

    @property
    def waiting(self) -> int:
        """Number of records read and not signed yet."""
        return len(self._entries) if self._to_repeat is None else 0

    @property
    def is_full(self) -> bool:
        """Whether a checkpoint can cover no more offsets; sign before reading on."""
        return self.next_offset - self.signed_offset >= MAX_RECORDS

    def resume(self, signed: SignedCheckpoint, log_begins: int, log_ends: int, *, is_log_kept: bool = True) -> None:
        """Resume from a checkpoint with a verified signature. Raises SigningContradiction when its range is missing;
        without `is_log_kept` only when its end is: then it is continued unread where its first records are deleted.
        """
        checkpoint = signed.checkpoint
        if log_ends < checkpoint.next_offset:
            raise SigningContradiction(
                f"the log ends at offset {log_ends}, but it was signed up to {checkpoint.next_offset}: it was cut off"
            )
        if log_begins > checkpoint.first_offset and not is_log_kept:
            self._last = signed
            self.next_offset = self.signed_offset = max(checkpoint.next_offset, log_begins)
            self._chain, self._start_term, self._term = checkpoint.chain, checkpoint.term, checkpoint.term
            return
        if log_begins > checkpoint.first_offset:
            raise SigningContradiction(
                f"the log begins at offset {log_begins}, but it was signed from {checkpoint.first_offset} on"
            )
        self._to_repeat = signed
        self.next_offset = self.signed_offset = checkpoint.first_offset
        self._chain = checkpoint.start_chain
        self._start_term = self._term = checkpoint.start_term

    def begin(self, log_begins: int) -> None:
        """Start without earlier checkpoints: the first one begins with the first record in the log."""
        self.next_offset = self.signed_offset = log_begins

    def read(self, record: StoredRecord) -> None:
        """Read the next record. Raises SigningContradiction at the end of a range that was signed differently."""
        self.mark_signed(record.offset)
        assert record.offset >= self.next_offset, "records come in order"
        value = record.value or b""
        if value[:1] == b"\0" and int.from_bytes(value[1:FRAME_BYTES], "big") in self._claim_ids:
            self._term = record.offset
        self._entries.append(SignedEntry(record.offset, hash_record(record).record_hash, self._term))
        self.next_offset = record.offset + 1
        self.mark_signed(self.next_offset)

    def mark_signed(self, offset: int) -> None:
        """Declare that all records below the offset were read. Raises SigningContradiction like `read`."""
        repeated = self._to_repeat
        if repeated is not None and offset >= repeated.checkpoint.next_offset:
            self._to_repeat = None
            self._check_agreement(repeated)

    def adopt(self, signed: SignedCheckpoint) -> None:
        """Continue after another signer's checkpoint that ends within the range already read.

        Raises SigningContradiction.
        """
        assert self._to_repeat is None, "our own last range comes first"
        assert signed.checkpoint.next_offset <= self.next_offset, "read so far first"
        if signed.checkpoint.next_offset > self.signed_offset:
            self._check_agreement(signed)

    def draft(self, *, key_id: str, at_ms: int) -> AuditCheckpoint | None:
        """Return the next checkpoint without its signature; None when there is nothing new."""
        if not self.waiting:
            return None
        first, end = self.signed_offset, min(self.next_offset, self.signed_offset + MAX_RECORDS)
        chain, term, marks, records = self._chain, self._start_term, bytearray(), 0
        for entry in self._entries:
            if entry.offset >= end:
                break
            marks += HOLE * (entry.offset - first - len(marks) // FINGERPRINT_BYTES)
            marks += entry.record_hash[:FINGERPRINT_BYTES]
            chain, term = extend_chain(chain, entry.offset, entry.record_hash), entry.term
            records += 1
        marks += HOLE * (end - first - len(marks) // FINGERPRINT_BYTES)
        last = self._last
        return AuditCheckpoint(
            topic=self._topic,
            partition=self._partition,
            first_offset=first,
            next_offset=end,
            records=records,
            start_chain=self._chain,
            chain=chain,
            fingerprints=bytes(marks),
            start_term=self._start_term,
            term=term,
            prev=last.digest if last is not None else b"",
            previous_key_id=last.checkpoint.key_id if last is not None else "",
            at_ms=at_ms,
            key_id=key_id,
            signature=UNSIGNED,
        )

    def _check_agreement(self, signed: SignedCheckpoint) -> None:
        """Continue after a checkpoint if the records read produce its running hash. Raises SigningContradiction."""
        checkpoint = signed.checkpoint
        chain, term = self._chain, self._start_term
        while self._entries and self._entries[0].offset < checkpoint.next_offset:
            entry = self._entries.popleft()
            chain, term = extend_chain(chain, entry.offset, entry.record_hash), entry.term
        if chain != checkpoint.chain:
            raise SigningContradiction(
                f"offsets {self.signed_offset} to {checkpoint.next_offset - 1} are not what the checkpoint of "
                f"{checkpoint.key_id} at offset {signed.at_offset} says: a record was changed, removed or added"
            )
        self._chain, self._start_term, self._last = chain, term, signed
        self.signed_offset = checkpoint.next_offset
