"""The handlers of the operations on sessions.

Before: handlers.py. After: services/application/queries/runs.py, services/application/runs/compactions.py.
"""

from loomlog.services.application.answers.runs import SessionCopied, Transcript
from loomlog.services.application.operations import sessions as api
from loomlog.services.application.operations.area import Area
from loomlog.services.application.queries.run_json import session_json, transcript_json
from loomlog.services.core.operations import Answer, Call, Handlers


class SessionHandlers(Area):
    def by_operation(self) -> Handlers:
        return {api.TRANSCRIPT: self.transcript, api.COPY: self.copy}

    async def transcript(self, call: Call[api.SessionTranscript]) -> Answer[Transcript]:
        asked = call.input
        page = await self._application.queries.transcript(
            call.principal, asked.session_id, limit=asked.limit, after=asked.cursor
        )
        answer: Transcript = {
            "session": session_json(page.session_id, page.newest),
            "events": transcript_json(page.rows, page.runs_before),
            "next": page.next or None,
        }
        return Answer(value=answer)

    async def copy(self, call: Call[api.SessionCopy]) -> Answer[SessionCopied]:
        asked = call.input
        result = await self._application.compactions.replay(
            call.principal, asked.session_id, asked.agent, compress=bool(asked.compress)
        )
        answer: SessionCopied = {
            "new_session_id": result.session_id,
            "seed_run_id": result.seed_run_id,
            "events_copied": result.events,
            "compacted": result.compacted,
        }
        return Answer(value=answer, positions=(result.position,))
