"""Encoding of signed checkpoints: what is signed, how it is read, and how checkpoints are linked.

The signature is the last field and covers every byte before it, frame included, so it can be verified without encoding
anything again, whatever version of the schema wrote it. A prefix prevents a signature made for another purpose from
being accepted.

Checkpoints of a partition form a chain: each names the SHA-256 of its predecessor and its key. Two signers at once make
two chains that name each other's checkpoints; that is harmless, because a checkpoint states facts.

Before: connectors/crypto/signatures.py provides `Sign` and `Verify`. After: ledger.py writes them, checkpoint_chain.py
follows them.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256

from loomlog.schemas.codec import Codec, Undecodable
from loomlog.schemas.generated.stream_records import AuditCheckpoint
from loomlog.schemas.records import Value, replace
from loomlog.services.core.audit.hashes import CHAIN_BYTES, FINGERPRINT_BYTES, HOLE

SIGNATURE_BYTES = 64
UNSIGNED = bytes(SIGNATURE_BYTES)
DOMAIN = b"loomlog audit checkpoint 1\x00"
MAX_RECORDS = 10_000
"""Maximum offsets covered by one checkpoint: 80 KB of fingerprints, and what a signer and a verifier keep in memory."""

Sign = Callable[[bytes], bytes]
"""Return the signature of a message."""
Verify = Callable[[bytes, bytes], bool]
"""Whether a signature is valid for a message under one public key; arguments (signature, message)."""
Keys = Mapping[str, Verify]
"""Verification functions by key id."""


class SignedCheckpoint(Value, frozen=True, kw_only=True):
    """A checkpoint as stored. `digest` is the value of `prev` in the next one."""

    checkpoint: AuditCheckpoint
    value: bytes
    digest: bytes
    at_offset: int
    """Offset of the checkpoint in its topic; -1 when not stored yet."""

    def verified_by(self, verify: Verify) -> bool:
        return verify(self.value[-SIGNATURE_BYTES:], DOMAIN + self.value[:-SIGNATURE_BYTES])

    def fingerprint(self, offset: int) -> bytes:
        """Return the fingerprint of a covered offset; HOLE when no record was there."""
        at = (offset - self.checkpoint.first_offset) * FINGERPRINT_BYTES
        return self.checkpoint.fingerprints[at : at + FINGERPRINT_BYTES]


def sign(checkpoint: AuditCheckpoint, signer: Sign, codec: Codec) -> bytes:
    """Encode a checkpoint with its signature."""
    unsigned = codec.encode(replace(checkpoint, signature=UNSIGNED))
    message = unsigned[:-SIGNATURE_BYTES]
    assert unsigned[-SIGNATURE_BYTES:] == UNSIGNED, "the signature must be the last field of the schema"
    return message + signer(DOMAIN + message)


def read_signed(value: bytes | None, at_offset: int, codec: Codec) -> SignedCheckpoint:
    """Decode a checkpoint and check its structure, not its signature. Raises Undecodable."""
    if value is None:
        raise Undecodable("there is no value")
    checkpoint = codec.decode(value).record
    if not isinstance(checkpoint, AuditCheckpoint):
        raise Undecodable(f"it is a {type(checkpoint).__name__}, not an AuditCheckpoint")
    if wrong := _shape_error(checkpoint):
        raise Undecodable(wrong)
    return SignedCheckpoint(checkpoint=checkpoint, value=value, digest=sha256(value).digest(), at_offset=at_offset)


def _shape_error(checkpoint: AuditCheckpoint) -> str:
    offsets = checkpoint.next_offset - checkpoint.first_offset
    if not 0 <= checkpoint.first_offset < checkpoint.next_offset or offsets > MAX_RECORDS:
        return f"it covers {checkpoint.first_offset} to {checkpoint.next_offset}"
    marks = checkpoint.fingerprints
    if len(marks) != offsets * FINGERPRINT_BYTES:
        return f"{len(marks)} bytes of fingerprints for {offsets} offsets"
    records = sum(marks[at : at + FINGERPRINT_BYTES] != HOLE for at in range(0, len(marks), FINGERPRINT_BYTES))
    if records != checkpoint.records:
        return f"{records} fingerprints for {checkpoint.records} records"
    if len(checkpoint.chain) != CHAIN_BYTES or len(checkpoint.start_chain) != CHAIN_BYTES:
        return f"running hashes of {len(checkpoint.start_chain)} and {len(checkpoint.chain)} bytes"
    return ""
