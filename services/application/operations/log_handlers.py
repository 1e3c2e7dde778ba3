"""The handlers of the operations on the log.

Before: services/application/dispatch.py. After: services/application/log/, services/application/queries/audit_log.py.
"""

from msgspec import UNSET

from loomlog.services.application.answers.runs import EventList
from loomlog.services.application.errors import bad_request
from loomlog.services.application.log.browser import RecordQuery
from loomlog.services.application.log.json_types import (
    CheckpointList,
    DeadLetterDetail,
    DeadLetterList,
    DeadLetterReplay,
    DeadLetterSummary,
    LogPage,
    LogTopicList,
)
from loomlog.services.application.operations import log as api
from loomlog.services.application.operations.area import Area
from loomlog.services.application.queries.audit_log import EventQuery
from loomlog.services.application.queries.json_types import EventRecord
from loomlog.services.application.queries.partitions import PartitionList
from loomlog.services.application.queries.run_json import event_json
from loomlog.services.core.operations import Answer, Call, Handlers, NoInput
from loomlog.services.core.times import parse_time_ms


class LogHandlers(Area):
    def by_operation(self) -> Handlers:
        return {
            api.LIST_TOPICS: self.topics,
            api.LIST_PARTITIONS: self.partitions,
            api.LIST_RECORDS: self.records,
            api.LIST_EVENTS: self.events,
            api.GET_EVENT: self.event,
            api.LIST_DEAD_LETTERS: self.dead_letters,
            api.GET_DEAD_LETTER: self.dead_letter,
            api.REPLAY_DEAD_LETTER: self.replay,
            api.ACKNOWLEDGE_DEAD_LETTER: self.acknowledge,
            api.LIST_CHECKPOINTS: self.checkpoints,
        }

    async def topics(self, call: Call[NoInput]) -> Answer[LogTopicList]:
        """Return the topics."""
        return Answer(value=await self._application.log.topics(call.principal))

    async def partitions(self, call: Call[api.LogListPartitions]) -> Answer[PartitionList]:
        """Return the partitions of the events topics."""
        return Answer(value=await self._application.partitions.list(call.principal, takeovers=call.input.takeovers))

    async def records(self, call: Call[api.LogListRecords]) -> Answer[LogPage]:
        """Return records of a partition."""
        asked = call.input
        if asked.since and asked.tail is not UNSET:
            raise bad_request("from and tail both say where to begin: leave one out")
        from_offset, from_ms = _place("from", asked.since)
        query = RecordQuery(
            topic=asked.topic,
            partition=asked.partition,
            from_offset=from_offset,
            from_ms=from_ms,
            tail=None if asked.tail is UNSET else asked.tail,
            type=asked.type,
            run_id=asked.run_id,
            limit=asked.limit,
            cursor=asked.cursor,
        )
        return Answer(value=await self._application.log.records(call.principal, query))

    async def events(self, call: Call[api.LogListEvents]) -> Answer[EventList]:
        """Return events that the caller may see."""
        asked = call.input
        from_offset, from_ms = _place("from", asked.since)
        to_offset, to_ms = _place("to", asked.until)
        query = EventQuery(
            run_id=asked.run_id,
            type=asked.type,
            partition=None if asked.partition is UNSET else asked.partition,
            from_offset=from_offset,
            to_offset=to_offset,
            from_ms=from_ms,
            to_ms=to_ms,
            limit=asked.limit,
            cursor=asked.cursor,
        )
        page = await self._application.audit_log.events(call.principal, query)
        events = [event_json(view) for view in page.events]
        return Answer(value={"events": events, "next": page.next or None, "resume": page.resume or None})

    async def event(self, call: Call[api.LogGetEvent]) -> Answer[EventRecord]:
        """Return one record."""
        asked = call.input
        view = await self._application.audit_log.record(call.principal, asked.topic, asked.partition, asked.offset)
        return Answer(value=event_json(view))

    async def dead_letters(self, call: Call[api.DeadLettersList]) -> Answer[DeadLetterList]:
        """Return dead letters."""
        asked = call.input
        page = await self._application.dead_letters.list(
            call.principal,
            kind="" if asked.kind is UNSET else asked.kind,
            before=None if asked.cursor is UNSET else asked.cursor,
            limit=asked.limit,
        )
        return Answer(value=page)

    async def dead_letter(self, call: Call[api.DeadLetterNamed]) -> Answer[DeadLetterDetail]:
        """Return one dead letter."""
        return Answer(value=await self._application.dead_letters.get(call.principal, call.input.offset))

    async def replay(self, call: Call[api.DeadLetterReplayInput]) -> Answer[DeadLetterReplay]:
        """Append the original of a dead letter again."""
        replayed = await self._application.dead_letters.replay(
            call.principal, call.input.offset, allow_repeat=bool(call.input.again)
        )
        return Answer(value=replayed)

    async def acknowledge(self, call: Call[api.DeadLetterAcknowledge]) -> Answer[DeadLetterSummary]:
        """Note that nothing more is needed of a dead letter."""
        acknowledged = await self._application.dead_letters.acknowledge(
            call.principal, call.input.offset, reason=call.input.reason
        )
        return Answer(value=acknowledged)

    async def checkpoints(self, call: Call[api.AuditListCheckpoints]) -> Answer[CheckpointList]:
        """Return the newest signed checkpoints."""
        return Answer(value=await self._application.audits.checkpoints(limit=call.input.limit))


def _place(name: str, text: str) -> tuple[int | None, int | None]:
    """Return the end of a range as an offset, when it is a number, or else as a time. Raises Refused."""
    if not text:
        return None, None
    if not (text.isascii() and text.isdecimal()):
        return None, parse_time_ms(name, text)
    if len(text) > api.OFFSET_DIGITS_MAX:
        raise bad_request(f"{name} is {text[:60]!r}: expected a whole number from 0 to {api.OFFSET_MAX}")
    return int(text), None
