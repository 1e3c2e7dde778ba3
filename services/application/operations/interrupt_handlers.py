"""The handlers of the operations on questions of runs.

Before: handlers.py. After: services/application/runs/interrupts.py.
"""

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.services.application.answers.runs import InterruptList, InterruptResolved
from loomlog.services.application.operations import interrupts as api
from loomlog.services.application.operations.area import Area
from loomlog.services.application.queries.run_json import interrupt_json
from loomlog.services.application.runs import interrupts
from loomlog.services.application.runs.requests import check_user_id
from loomlog.services.core.operations import Answer, Call, Handlers


class InterruptHandlers(Area):
    def by_operation(self) -> Handlers:
        return {api.RESOLVE: self.resolve, api.LIST_OF_RUN: self.list_of_run, api.LIST: self.list_all}

    async def resolve(self, call: Call[api.InterruptResolve]) -> Answer[InterruptResolved]:
        asked = call.input
        response = interrupts.InterruptResponse(
            kind=asked.kind or "question",
            disposition=asked.disposition or interrupts.ANSWER,
            answer=asked.answer or "",
            resolved_by=asked.resolved_by or "",
        )
        result = await self._application.interrupts.resolve(call.principal, asked.run_id, asked.interrupt_id, response)
        answer: InterruptResolved = {
            "interrupt_id": result.interrupt_id,
            "status": result.status,
            "resolved_at": format_rfc3339(result.resolved_at_ms),
        }
        return Answer(value=answer, positions=(result.position,))

    async def list_of_run(self, call: Call[api.InterruptListOfRun]) -> Answer[InterruptList]:
        asked = call.input
        page = await self._application.interrupts.list_of_run(call.principal, asked.run_id, status=asked.status)
        return Answer(value=_page_json(page))

    async def list_all(self, call: Call[api.InterruptListAll]) -> Answer[InterruptList]:
        asked = call.input
        check_user_id(asked.user_id)
        page = await self._application.interrupts.list_all(
            call.principal, user_id=asked.user_id, status=asked.status, limit=asked.limit, after=asked.cursor
        )
        return Answer(value=_page_json(page))


def _page_json(page: interrupts.InterruptList) -> InterruptList:
    return {"interrupts": [interrupt_json(row) for row in page.rows], "total": page.total, "next": page.next or None}
