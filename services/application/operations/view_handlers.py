"""The handlers of the operations on what happened across runs.

Before: services/application/dispatch.py. After: services/application/queries/runs.py.
"""

import orjson
from msgspec import UNSET

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.newest_frames import FrameFilter
from loomlog.projections.tables import EVERY_TENANT
from loomlog.projections.transcript import TranscriptRow
from loomlog.services.application.operations import views as api
from loomlog.services.application.operations.area import Area
from loomlog.services.core.operations import Answer, Call, Handlers
from loomlog.services.core.times import parse_time_ms


class ViewHandlers(Area):
    def by_operation(self) -> Handlers:
        return {api.LIST_EVENTS: self.list_events}

    async def list_events(self, call: Call[api.EventsAsked]) -> Answer[api.TranscriptEvents]:
        """Return the stored frames of a tenant; of all tenants for an administrator who names none."""
        asked, caller = call.input, call.caller
        criteria = FrameFilter(
            type=asked.type,
            from_ms=parse_time_ms("from", asked.since) if asked.since else None,
            to_ms=parse_time_ms("to", asked.until) if asked.until else None,
        )
        spans_all = caller.is_admin and not caller.is_tenant_named
        page = await self._application.queries.newest_frames(
            EVERY_TENANT if spans_all else caller.tenant,
            criteria,
            limit=asked.limit,
            offset=asked.offset,
            after=asked.cursor,
        )
        return Answer(
            value=api.TranscriptEvents(
                events=[_event(row) for row in page.rows],
                total=page.total,
                total_is_exact=page.is_total_exact,
                limit=asked.limit,
                offset=asked.offset,
                next=page.next or None,
            )
        )


def _event(row: TranscriptRow) -> api.TranscriptEvent:
    return api.TranscriptEvent(
        seq=row.place,
        session_id=row.session_id,
        run_id=row.run_id,
        tenant_id=row.tenant,
        timestamp=format_rfc3339(row.ts_ns // 1_000_000),
        type=row.type,
        payload=orjson.loads(row.event),
        segments=UNSET if row.payload is None else orjson.loads(row.payload),
    )
