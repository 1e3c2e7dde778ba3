"""Publishes a record on one of the small topics that every process reads whole: accepted means acknowledged there.

Hooks, pauses and probe requests are not commands to a run: no owner decides on them, and every process with the table
applies them. When the log does not answer, the outcome is unknown, and a repetition does no harm: a table folds the
same record twice to the same result.

Before: services/application/admin/hooks.py, services/application/admin/pauses.py and
services/application/admin/probes.py. After: services/stream/global_tables/global_table.py in every process.
"""

import asyncio
from typing import Any

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.protocols import LogAppender, ProducerRecord
from loomlog.schemas.codec import Codec
from loomlog.schemas.position import Position
from loomlog.schemas.records import Record
from loomlog.services.application import limits
from loomlog.services.application.errors import RETRY_SOON_S, RequestRefused
from loomlog.services.stream.global_tables.global_table import PARTITION, GlobalTable


class TablePublisher:
    """Publishes to the topic of one global table."""

    def __init__(self, table: GlobalTable[Any], appender: LogAppender, codec: Codec) -> None:
        self._table = table
        self._appender = appender
        self._codec = codec

    async def publish(self, record: Record, *, unknown_message: str) -> Position:
        """Return the position of the record, once it is in the log.

        Raises RequestRefused(log_unavailable); `unknown_message` describes the unknown outcome and what to do.
        """
        outgoing = ProducerRecord(key=None, value=self._codec.encode(record))
        try:
            async with asyncio.timeout(limits.PUBLISH_WAIT_S):
                offset = await self._appender.append(self._table.topic, PARTITION, [outgoing])
        except (UnknownOutcome, TimeoutError) as error:
            raise RequestRefused(
                "log_unavailable", unknown_message, retry_after_s=RETRY_SOON_S, details={"outcome": "unknown"}
            ) from error
        return Position(topic=self._table.topic, partition=PARTITION, offset=offset)

    async def publish_and_wait(self, record: Record, *, status_route: str) -> str:
        """Return the position of the record, once it is in the log and in our own table, which the route `status_route`
        shows.
        """
        unknown = f"the log did not acknowledge; {status_route} tells what is so, and asking again does no harm"
        position = await self.publish(record, unknown_message=unknown)
        await self._table.wait(position.partition, position.offset, timeout_s=limits.CONTROL_WAIT_S)
        return str(position)
