"""The term at the beginning of a log whose first events are deleted, and with them the Claim of its first records.

Before: checkpoints.py without a usable checkpoint, handler.py when it folds an aggregate again. After: TermReader.
"""

from loomlog.connectors.protocols import LogRanges
from loomlog.schemas.codec import Codec, Undecodable, peek
from loomlog.schemas.generated.stream_events import Claim

RECORDS_MAX = 10_000
"""Records that are examined when no Claim comes before: those of a fenced owner end within seconds of the Claim."""


async def term_before(ranges: LogRanges, codec: Codec, topic: str, partition: int, first: int) -> int:
    """Return the term in which reading begins at `first`, the first record there is; -1 when nothing is deleted.

    It is the highest term of the records before the first Claim: those of fenced owners are of lower ones. Raises
    Transient.
    """
    if first == 0:
        return -1
    claims = codec.schema_ids_of(frozenset({Claim.SCHEMA}))
    term = -1
    end = min(await ranges.end_offset(topic, partition), first + RECORDS_MAX)
    if first >= end:
        return term
    async with await ranges.read(topic, partition, first, end) as chunks:
        async for chunk in chunks:
            for record in chunk:
                try:
                    header = peek(record.value or b"")
                except Undecodable:
                    continue  # it belongs to no term
                if header.schema_id in claims:
                    return term
                term = max(term, header.term)
    return term
