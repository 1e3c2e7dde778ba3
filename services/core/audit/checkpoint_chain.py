"""The sequence of checkpoints of one partition: which are trusted, and what they state about the log.

A checkpoint counts when its key is known, its signature is valid and its position is the one it names. The range it
adds to earlier checkpoints becomes the reference for the records. One that does not count leaves an unsigned range; the
running hash of the next one still covers it, but without identifying the record. Checkpoints of other topics may lie
between (`siblings`): one that is valid for such a topic says nothing here.

Before: checkpoints.py. After: verify.py.
"""

from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from loomlog.schemas.codec import Codec, Undecodable
from loomlog.schemas.generated.stream_records import AuditCheckpoint
from loomlog.schemas.records import Value
from loomlog.services.core.audit.alignment import Expected
from loomlog.services.core.audit.checkpoints import Keys, SignedCheckpoint, read_signed
from loomlog.services.core.audit.findings import FindingKind, FindingLog, PendingFinding
from loomlog.services.core.audit.hashes import HOLE, StoredRecord

REMEMBERED = 64
"""Checkpoints whose digest is remembered; covers the distance between signers running at the same time."""


class ChainBound(NamedTuple):
    """An offset where the running hash is known: after every record below `offset` it must be `chain`."""

    offset: int
    chain: bytes
    since: int
    """First offset at which a difference can have occurred."""


class SignedRange(Value, frozen=True, kw_only=True):
    """A range signed by a key; with two signers at once, ranges of different keys overlap."""

    key_id: str
    first_offset: int
    next_offset: int
    checkpoints: int


class CheckpointChain:
    """Follow the checkpoints of one partition. `resumed` is for a sequence that starts in the middle."""

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        keys: Keys,
        codec: Codec,
        notebook: FindingLog,
        covered: int,
        resumed: bool,
        siblings: frozenset[str] = frozenset(),
    ) -> None:
        """`siblings`: the other events topics whose checkpoints are in the same topic."""
        self.covered = covered
        """Offset up to which records were signed, or would have been."""
        self.newest: AuditCheckpoint | None = None
        self.unknown_keys: Counter[str] = Counter()
        self._topic, self._partition = topic, partition
        self._topics = siblings | {topic}
        self._keys, self._codec, self._notebook = keys, codec, notebook
        self._ranges: dict[str, SignedRange] = {}
        self._chain: bytes | None = None
        self._digests: deque[bytes] = deque(maxlen=REMEMBERED)
        self._key_ids: dict[bytes, str] = {}
        self._missing: dict[bytes, PendingFinding] = {}
        self._forgiving = resumed
        """The next checkpoint may name an unknown predecessor: we started here, or the one before did not count."""

    @property
    def ranges(self) -> tuple[SignedRange, ...]:
        """Return the ranges signed by each key, in the order in which the keys came into use."""
        return tuple(self._ranges.values())

    def read(self, record: StoredRecord) -> tuple[Sequence[Expected], Sequence[ChainBound], int]:
        """Return (expected records, offsets with a known running hash, number of new records) of a checkpoint."""
        signed = self._trusted(record)
        if signed is None:
            self._forgiving = True
            return (), (), 0
        if signed.checkpoint.topic != self._topic:
            return (), (), 0
        self._follow(signed)
        checkpoint = signed.checkpoint
        if checkpoint.next_offset <= self.covered:
            return (), (), 0  # another signer had already covered this range
        bounds: list[ChainBound] = []
        expected: list[Expected] = []
        if checkpoint.first_offset > self.covered:
            expected.append(Expected(self.covered, b""))
            bounds.append(ChainBound(checkpoint.first_offset, checkpoint.start_chain, self.covered))
        elif checkpoint.first_offset == self.covered and self._chain not in (None, checkpoint.start_chain):
            self._note(
                FindingKind.ILLEGAL, record, f"it begins at {self.covered} with another running hash than was signed"
            )
        first = max(self.covered, checkpoint.first_offset)
        for offset in range(first, checkpoint.next_offset):
            fingerprint = signed.fingerprint(offset)
            if fingerprint != HOLE:
                expected.append(Expected(offset, fingerprint))
        bounds.append(ChainBound(checkpoint.next_offset, checkpoint.chain, first))
        self._extend_ranges(checkpoint, first)
        self.covered, self._chain, self.newest = checkpoint.next_offset, checkpoint.chain, checkpoint
        return expected, bounds, sum(1 for one in expected if one.fingerprint)

    def _trusted(self, record: StoredRecord) -> SignedCheckpoint | None:
        """Return the checkpoint if it counts here or for a sibling; otherwise record a finding.

        What it says of itself is believed only after its signature, so a damaged one is a finding for every topic.
        """
        try:
            signed = read_signed(record.value, record.offset, self._codec)
        except Undecodable as error:
            self._note(FindingKind.EDITED, record, f"the checkpoint cannot be read: {error}")
            return None
        checkpoint = signed.checkpoint
        verify = self._keys.get(checkpoint.key_id)
        if verify is None:
            self.unknown_keys[checkpoint.key_id] += 1
            if self.unknown_keys[checkpoint.key_id] == 1:
                self._note(
                    FindingKind.UNKNOWN_KEY, record, f"signed by the key {checkpoint.key_id!r}, which is not listed"
                )
            return None
        if not signed.verified_by(verify):
            self._note(
                FindingKind.BAD_SIGNATURE,
                record,
                f"the signature by the key {checkpoint.key_id} is not of this checkpoint",
            )
            return None
        if checkpoint.topic not in self._topics or checkpoint.partition != self._partition:
            self._note(FindingKind.INSERTED, record, f"it was signed for {checkpoint.topic}/{checkpoint.partition}")
            return None
        if record.key != str(self._partition).encode() or record.headers:
            self._note(FindingKind.EDITED, record, "its record has another key or headers than a signer writes")
        return signed

    def _follow(self, signed: SignedCheckpoint) -> None:
        """Check that a checkpoint names its predecessor correctly."""
        checkpoint, digest = signed.checkpoint, signed.digest
        if digest in self._digests:
            self._add_suspicion(FindingKind.INSERTED, signed, "the same checkpoint is there twice")
            return
        if (moved := self._missing.pop(digest, None)) is not None:
            moved.kind, moved.offset = FindingKind.REORDERED, signed.at_offset
            moved.detail = "the checkpoint is stored after one that was made later"
        before = self._key_ids.get(checkpoint.prev)
        if not checkpoint.prev:
            if self._digests and checkpoint.first_offset >= self.covered:
                self._add_suspicion(FindingKind.ILLEGAL, signed, "it says that no checkpoint came before it")
        elif before is not None:
            if before != checkpoint.previous_key_id:
                self._add_suspicion(
                    FindingKind.ILLEGAL, signed, f"it says that {checkpoint.previous_key_id!r} signed before it"
                )
        elif moved is None and not self._forgiving:
            self._missing[checkpoint.prev] = self._add_suspicion(
                FindingKind.REMOVED, signed, "the checkpoint that came before it is not there"
            )
        self._forgiving = False
        self._digests.append(digest)
        self._key_ids[digest] = checkpoint.key_id
        while len(self._key_ids) > REMEMBERED:
            del self._key_ids[next(iter(self._key_ids))]
        while len(self._missing) > REMEMBERED:
            del self._missing[next(iter(self._missing))]

    def _extend_ranges(self, checkpoint: AuditCheckpoint, first: int) -> None:
        known = self._ranges.get(checkpoint.key_id)
        self._ranges[checkpoint.key_id] = SignedRange(
            key_id=checkpoint.key_id,
            first_offset=first if known is None else known.first_offset,
            next_offset=checkpoint.next_offset,
            checkpoints=1 if known is None else known.checkpoints + 1,
        )

    def _note(self, kind: FindingKind, record: StoredRecord, detail: str) -> PendingFinding:
        return self._notebook.note(PendingFinding(kind=kind, offset=record.offset, detail=detail, in_checkpoints=True))

    def _add_suspicion(self, kind: FindingKind, signed: SignedCheckpoint, detail: str) -> PendingFinding:
        return self._notebook.note(
            PendingFinding(kind=kind, offset=signed.at_offset, detail=detail, in_checkpoints=True)
        )
