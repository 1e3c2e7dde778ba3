"""Read models as a runtime uses them: the audit index for the owner of a run partition."""

from loomlog.connectors.errors import Transient
from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.audit import AuditRow, find_run, last_run_of_session
from loomlog.projections.engine.cursors import list_cursors
from loomlog.projections.tables import EVERY_TENANT
from loomlog.services.runtime.run.run_index import EndedRun


class ProjectedIndex:
    """Protocol loomlog.services.runtime.run.run_index.RunIndex over the projections. All methods raise Transient
    or Permanent.
    """

    def __init__(self, reader: PostgresReader, events_topic: str) -> None:
        self._reader = reader
        self._topic = events_topic

    async def next_offset(self, partition: int) -> int:
        for cursor in await list_cursors(self._reader):
            if cursor.topic == self._topic and cursor.partition == partition:
                return cursor.next_offset
        raise Transient(f"the projections have not begun with {self._topic}/{partition} yet", kind="unavailable")

    async def find_run(self, run_id: str) -> EndedRun | None:
        row = await find_run(self._reader, EVERY_TENANT, run_id)
        return _ended_run(row) if row is not None else None

    async def last_run_of_session(self, session_id: str) -> EndedRun | None:
        row = await last_run_of_session(self._reader, EVERY_TENANT, session_id)
        return _ended_run(row) if row is not None else None


def _ended_run(row: AuditRow) -> EndedRun:
    return EndedRun(
        run_id=row.run_id,
        tenant=row.tenant,
        session_id=row.session_id,
        partition=row.partition,
        first_offset=row.first_offset,
        last_offset=row.last_offset,
        ended_at_ms=row.ended_at_ms or 0,
    )
