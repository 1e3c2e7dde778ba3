"""The newest checkpoint of a partition, after verifying the chain before it: a signer's starting point.

A signer that continues a chain it cannot verify would vouch for it, so every failed check is a SigningContradiction: an
unknown key, a wrong signature, a checkpoint whose named predecessor is not the actual one. A record that is
no checkpoint at all states nothing, so it is skipped: otherwise one stray record would end the signing of a partition
for ever. `loomlog audit verify` reports it. Checkpoints of other topics may lie
between: they are verified and passed over.

Before: services/auditor reads the partition of checkpoints. After: ledger.py.
"""

from collections import deque

from loomlog.schemas.codec import Codec, Undecodable
from loomlog.services.core.audit.checkpoint_chain import REMEMBERED
from loomlog.services.core.audit.checkpoints import Keys, SignedCheckpoint, read_signed
from loomlog.services.core.audit.hashes import StoredRecord
from loomlog.services.core.audit.ledger import SigningContradiction


class CheckpointTail:
    """Reads the checkpoints of one partition, in order."""

    def __init__(
        self, *, topic: str, partition: int, keys: Keys, codec: Codec, siblings: frozenset[str] = frozenset()
    ) -> None:
        """`siblings`: the other events topics whose checkpoints are in the same topic."""
        self.newest: SignedCheckpoint | None = None
        """The checkpoint with the highest covered offset."""
        self.next_offset = 0
        """Next offset to read."""
        self.skipped = ""
        """Why the last record was skipped; empty if it was a checkpoint."""
        self._topic, self._partition = topic, partition
        self._topics = siblings | {topic}
        self._keys, self._codec = keys, codec
        self._digests: deque[bytes] = deque(maxlen=REMEMBERED)
        self._is_gap = False
        """The last record was skipped, so the next checkpoint may name one that we do not know."""

    def read(self, record: StoredRecord) -> SignedCheckpoint | None:
        """Read and verify the next checkpoint; None when the record is none, or one of a sibling.

        Raises SigningContradiction.
        """
        self.next_offset, self.skipped = record.offset + 1, ""
        where = f"the checkpoint at offset {record.offset}"
        try:
            signed = read_signed(record.value, record.offset, self._codec)
        except Undecodable as error:
            self.skipped, self._is_gap = f"{where} cannot be read: {error}", True
            return None
        checkpoint = signed.checkpoint
        verify = self._keys.get(checkpoint.key_id)
        if verify is None:
            raise SigningContradiction(
                f"{where} was signed by the key {checkpoint.key_id}, which is not known here: after a rotation the old "
                "public key has to be listed in LOOMLOG_AUDIT_PUBLIC_KEYS"
            )
        if not signed.verified_by(verify):
            raise SigningContradiction(f"{where} has a wrong signature")
        if checkpoint.topic not in self._topics or checkpoint.partition != self._partition:
            raise SigningContradiction(f"{where} was signed for {checkpoint.topic}/{checkpoint.partition}")
        if checkpoint.topic != self._topic:
            return None
        if checkpoint.prev and checkpoint.prev not in self._digests and not self._is_gap:
            if self._digests:
                raise SigningContradiction(f"{where} names a checkpoint before it that is not there")
            raise SigningContradiction(f"{where} is the first one there is, but names one before it")
        self._is_gap = False
        self._digests.append(signed.digest)
        if self.newest is None or checkpoint.next_offset > self.newest.checkpoint.next_offset:
            self.newest = signed
        return signed
