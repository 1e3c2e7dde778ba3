"""Fresh tokens for runs that begin at about the same time: they share a partition.

An owner commits what all its runs have to say in one append, and the broker's work for that grows with the partitions
in it: each has a log to write, to flush and to tell its readers of. Runs that begin together go in step for a while,
so when they lie in one partition there is less to do for the same records (decision 27 has the figures). Kafka's own
producers do so with records that have no key.

A partition is stayed with for a twentieth of a second or for 64 runs, whichever is less; then it is the next one's
turn, so that a second later all have the same share. A token gets into its partition by trial: the last two characters
are changed until it is there. 78 of its 80 random bits are left with four partitions.

Nothing depends on it. Ids made otherwise are as good, and those of chosen handles and idempotency keys are.

Before: whoever starts runs (the API; producer.py). After: schemas/ids.py says what a token is.
"""

from loomlog.schemas.ids import ALPHABET, TOKEN_CHARACTERS

STICKY_MS = 50
STICKY_RUNS = 64
"""For how long and for how many runs a partition is stayed with. A generation of short runs fits in, and the owner that
gets all of them has no more than 64 runs to do before the others have theirs."""
TRIES_MAX = 128
"""Of the 1,024 ends of a token. With 24 partitions one token of 200 stays where it fell, with a thousand most do; a
partition has few runs there in any case."""

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_MASK_32 = 0xFFFFFFFF
_DIGITS = ALPHABET.encode()
_SUFFIXES = [_DIGITS[end >> 5] | _DIGITS[end & 31] << 8 for end in range(1024)]
"""The last two characters of a token as murmur2 reads them."""


class StickyPartitioner:
    """Chooses for one process. It begins where the first token falls by chance, and then takes turns."""

    def __init__(self, partitions: int) -> None:
        """Raises ValueError when there is no partition."""
        if partitions < 1:
            raise ValueError(f"partitions: {partitions}, expected at least 1")
        self._partitions = partitions
        self._partition = -1
        self._runs_left = 0
        self._since_ms = 0

    def assign_partition(self, token: str, at_ms: int) -> str:
        """A fresh token (schemas/ids.py), nearly always with another end, in the partition whose turn it is."""
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
        """The partition of the token with this end, as connectors/kafka/partitioner.py says."""
        mixed = (prefix_hash ^ _SUFFIXES[suffix]) * _MULTIPLIER & _MASK_32
        mixed = (mixed ^ mixed >> 13) * _MULTIPLIER & _MASK_32
        return ((mixed ^ mixed >> 15) & 0x7FFFFFFF) % self._partitions


def _prefix_hash(token: str) -> int:
    """murmur2 of a token up to its last two characters."""
    data = token.encode()
    assert len(data) == TOKEN_CHARACTERS, f"{token}: not a token"
    mixed = _SEED ^ TOKEN_CHARACTERS
    for at in range(0, TOKEN_CHARACTERS - 2, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK_32
        mixed = mixed * _MULTIPLIER & _MASK_32 ^ (word ^ word >> 24) * _MULTIPLIER & _MASK_32
    return mixed
