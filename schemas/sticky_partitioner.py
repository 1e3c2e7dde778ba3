"""Partition choice for fresh tokens: runs that begin at about the same time share a partition.

An owner commits the events of all its runs in one append, and the broker's cost grows with the number of partitions in
it: each has a log to write and flush, and readers to notify. Runs that begin together proceed in step for a while, so
in one partition the same records cost less (decision 27 has the figures). Kafka's own producers do so with records that
have no key.

A partition is kept for a twentieth of a second or for 64 runs, whichever is less; then comes the next one, so that over
a second all get the same share. A token is moved to its partition by trial: its last two characters are changed until
it matches. 78 of its 80 random bits are left with four partitions.

Nothing depends on it. Ids made otherwise are equally valid, such as those of chosen handles and idempotency keys.

Before: code that starts runs (the API; producer.py). After: schemas/ids.py defines tokens.
"""

from loomlog.schemas.ids import ALPHABET, TOKEN_CHARACTERS

STICKY_MS = 50
STICKY_RUNS = 64
"""Milliseconds and runs for which a partition is kept. A generation of short runs fits in, and the owner that receives
all of them has no more than 64 runs to process before the others get theirs.
"""
TRIES_MAX = 128
"""Suffixes tried, out of the 1,024 of a token. With 24 partitions one token of 200 stays in its original partition,
with a thousand most do; a partition has few runs there in any case.
"""

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_MASK_32 = 0xFFFFFFFF
_DIGITS = ALPHABET.encode()
_SUFFIXES = [_DIGITS[end >> 5] | _DIGITS[end & 31] << 8 for end in range(1024)]
"""The last two characters of a token as murmur2 reads them."""


class StickyPartitioner:
    """Partition chooser of one process. Starts at the first token's own partition and then rotates."""

    def __init__(self, partitions: int) -> None:
        """Raises ValueError when there is no partition."""
        if partitions < 1:
            raise ValueError(f"partitions: {partitions}, expected at least 1")
        self._partitions = partitions
        self._partition = -1
        self._runs_left = 0
        self._since_ms = 0

    def assign_partition(self, token: str, at_ms: int) -> str:
        """Return a fresh token (schemas/ids.py) moved to the current partition, nearly always with another suffix."""
        begun, first = _prefix_hash(token), ALPHABET.index(token[-2]) << 5 | ALPHABET.index(token[-1])
        if self._partition < 0:
            self._partition = self._partition_of(begun, first)
            self._runs_left, self._since_ms = STICKY_RUNS, at_ms
        elif not self._runs_left or not 0 <= at_ms - self._since_ms < STICKY_MS:
            self._partition = (self._partition + 1) % self._partitions
            self._runs_left, self._since_ms = STICKY_RUNS, at_ms
        self._runs_left -= 1
        for tried in range(first, first + TRIES_MAX):
            end = tried & 1023
            if self._partition_of(begun, end) == self._partition:
                return f"{token[:-2]}{ALPHABET[end >> 5]}{ALPHABET[end & 31]}"
        return token

    def _partition_of(self, prefix_hash: int, suffix: int) -> int:
        """Return the partition of the token with this suffix, as in connectors/kafka/partitioner.py."""
        mixed = (prefix_hash ^ _SUFFIXES[suffix]) * _MULTIPLIER & _MASK_32
        mixed = (mixed ^ mixed >> 13) * _MULTIPLIER & _MASK_32
        return ((mixed ^ mixed >> 15) & 0x7FFFFFFF) % self._partitions


def _prefix_hash(token: str) -> int:
    """Return the murmur2 state of a token without its last two characters."""
    data = token.encode()
    assert len(data) == TOKEN_CHARACTERS, f"{token}: not a token"
    mixed = _SEED ^ TOKEN_CHARACTERS
    for at in range(0, TOKEN_CHARACTERS - 2, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK_32
        mixed = mixed * _MULTIPLIER & _MASK_32 ^ (word ^ word >> 24) * _MULTIPLIER & _MASK_32
    return mixed
