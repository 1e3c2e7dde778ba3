"""Coming up without acting: LOOMLOG_START_PAUSED pauses everything before the first partition is taken.

It is the same record that POST /v1/_pause appends, so it outlives this process and `loomlog resume` lifts it.

Before: main.py. After: services/stream/pauses.py.
"""

import logging

from connectors.protocols import LogAppender, LogRanges, Outgoing
from schemas.codec import Codec
from schemas.stream_records import PauseSet
from services.core.pauses import ALL
from services.stream.pauses import PARTITION, PauseBoard

log = logging.getLogger("loomlog.runtime")

REASON = "start-paused"


async def pause_everything(
    board: PauseBoard, appender: LogAppender, ranges: LogRanges, codec: Codec, *, by: str, at_ms: int
) -> None:
    """Append the pause unless everything is paused already, and read it. Raises UnknownOutcome or Transient: then
    nothing may be taken, and the process ends.
    """
    if board.table.has(ALL, "", ""):
        return
    record = PauseSet(scope=ALL, tenant="", agent="", paused=True, reason=REASON, by=by, at_ms=at_ms)
    await appender.append(board.topic, PARTITION, [Outgoing(key=None, value=codec.encode(record))])
    await board.catch_up(ranges)
    log.warning("everything is paused because LOOMLOG_START_PAUSED is set; `loomlog resume` lifts it")
