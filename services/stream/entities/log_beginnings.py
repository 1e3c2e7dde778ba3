"""The term at the beginning of a log whose first events are deleted, and with them the Claim of its first records.

Before: checkpoints.py without a usable checkpoint, handler.py when it folds an aggregate again. After: TermReader.
"""

from loomlog.connectors.protocols import LogRanges
from loomlog.schemas.codec import Codec
from loomlog.schemas.reader import term_at_cut

RECORDS_MAX = 10_000
"""Records that are examined when no Claim comes before: those of a fenced owner end within seconds of the Claim."""


async def term_before(ranges: LogRanges, codec: Codec, topic: str, partition: int, first: int) -> int:
    """Return the term in which reading begins at `first`, the first record there is; -1 when nothing is deleted.

    Raises Transient.
    """
    if first == 0:
        return -1
    term = -1
    end = min(await ranges.end_offset(topic, partition), first + RECORDS_MAX)
    if first >= end:
        return term
    async with await ranges.read(topic, partition, first, end) as chunks:
        async for chunk in chunks:
            highest, is_claimed = term_at_cut((record.value for record in chunk), codec)
            term = max(term, highest)
            if is_claimed:
                break
    return term
