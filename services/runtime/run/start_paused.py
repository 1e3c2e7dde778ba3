"""Paused startup: LOOMLOG_START_PAUSED pauses everything before the first partition is taken.

It appends the same record as POST /v1/_pause, so the pause outlives this process and `loomlog resume` lifts it. The
record contains the value of the switch, and each value takes effect once (services/core/pauses.py): an operator who
restores an installation starts it paused, inspects it and resumes; a replica that crashes afterwards and restarts with
the same environment continues.

Before: services/runtime/main.py. After: services/stream/global_tables/pauses.py.
"""

import logging

from loomlog.connectors.protocols import LogAppender, LogRanges, ProducerRecord
from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.stream_records import PauseSet
from loomlog.services.core.pauses import ALL
from loomlog.services.stream.global_tables.pauses import PARTITION, PauseGlobalTable

log = logging.getLogger("loomlog.runtime")

REASON = "start-paused"


async def pause_once(
    pauses: PauseGlobalTable,
    appender: LogAppender,
    ranges: LogRanges,
    codec: Codec,
    *,
    switch: str,
    by: str,
    at_ms: int,
) -> None:
    """Append the pause unless this value of the switch has taken effect before, and read it back. Raises UnknownOutcome
    or Transient: then no partition may be taken, and the process ends.
    """
    if switch in pauses.table.used_switches:
        log.warning(
            "LOOMLOG_START_PAUSED=%s has paused this installation before, so it pauses nothing now; another value does",
            switch,
        )
        return
    reason = REASON if switch == "1" else f"{REASON} {switch}"
    record = PauseSet(scope=ALL, tenant="", agent="", paused=True, reason=reason, by=by, at_ms=at_ms, switch=switch)
    await appender.append(pauses.topic, PARTITION, [ProducerRecord(key=None, value=codec.encode(record))])
    await pauses.catch_up(ranges)
    log.warning("everything is paused because LOOMLOG_START_PAUSED is set; `loomlog resume` lifts it")
