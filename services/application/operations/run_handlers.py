"""The handlers of the operations on runs.

Before: handlers.py. After: services/application/queries/runs.py, services/application/runs.
"""

import re

from loomlog.projections.run_queries import COUNT_MAX, RunFilter
from loomlog.schemas.records import replace
from loomlog.services.application.answers import runs as answers
from loomlog.services.application.bodies.models import BatchBody, to_run_request
from loomlog.services.application.errors import bad_request
from loomlog.services.application.operations import runs as api
from loomlog.services.application.operations.area import Area
from loomlog.services.application.queries.json_types import Run
from loomlog.services.application.queries.run_filters import (
    check_agent,
    check_filter_id,
    check_waiting,
    parse_statuses,
    part_of_id,
)
from loomlog.services.application.queries.run_json import run_json
from loomlog.services.application.request_context import current_request
from loomlog.services.application.runs.batch import outcome_json
from loomlog.services.application.runs.compactions import NOOP
from loomlog.services.application.runs.requests import check_user_id
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.operations import Answer, Call, Handlers
from loomlog.services.core.times import parse_time_ms

CALL_PATTERN = re.compile(r"([1-9][0-9]{0,6})\.([0-9]{1,3})")
"""A tool call as TURN.INDEX."""


class RunHandlers(Area):
    def by_operation(self) -> Handlers:
        return {
            api.GET: self.get,
            api.GET_BY_HANDLE: self.get_by_handle,
            api.LIST: self.list_all,
            api.COUNT: self.count,
            api.LIST_OF_USER: self.list_of_user,
            api.INPUT: self.post_input,
            api.RESOLVE_CALL: self.resolve_call,
            api.CANCEL: self.cancel,
            api.CANCEL_TURN: self.cancel_turn,
            api.PAUSE: self.pause,
            api.RESUME: self.resume,
            api.COMPACT: self.compact,
            api.COMPACT_BY_HANDLE: self.compact_by_handle,
            api.QUARANTINE: self.quarantine,
            api.RELEASE: self.release,
            api.APPLY_TO_MANY: self.apply_to_many,
            api.SPAWN_MANY: self.spawn_many,
        }

    # --- reads -------------------------------------------------------------------------------------------------------

    async def get(self, call: Call[api.RunGet]) -> Answer[Run]:
        row = await self._application.queries.run(call.principal, call.input.run_id)
        return Answer(value=run_json(row, self._application.barrier.topic))

    async def get_by_handle(self, call: Call[api.RunGetByHandle]) -> Answer[Run]:
        row = await self._application.queries.agent(call.principal, call.input.agent_id)
        return Answer(value=run_json(row, self._application.barrier.topic))

    async def list_all(self, call: Call[api.RunListAll]) -> Answer[answers.RunList]:
        asked = call.input
        criteria = replace(
            run_filter(asked), statuses=parse_statuses(asked.status), waiting=check_waiting(asked.waiting)
        )
        runs, following = await self._page(call, criteria)
        return Answer(value={"runs": runs, "next": following})

    async def list_of_user(self, call: Call[api.RunListOfUser]) -> Answer[answers.AgentList]:
        asked = call.input
        check_user_id(asked.user_id)
        runs, following = await self._page(
            call, RunFilter(user_id=asked.user_id, statuses=parse_statuses(asked.status))
        )
        return Answer(value={"agents": runs, "next": following})

    async def _page(
        self, call: Call[api.RunListAll] | Call[api.RunListOfUser], criteria: RunFilter
    ) -> tuple[list[Run], str | None]:
        asked = call.input
        page = await self._application.queries.runs(
            call.principal, criteria, tenant=asked.tenant, limit=asked.limit, after=asked.cursor
        )
        return [run_json(row, self._application.barrier.topic) for row in page.rows], page.next or None

    async def count(self, call: Call[api.RunCount]) -> Answer[answers.RunCountsView]:
        counts = await self._application.queries.count_runs(
            call.principal, run_filter(call.input), tenant=call.input.tenant
        )
        answer: answers.RunCountsView = {
            "running": counts.running,
            "completed": counts.completed,
            "failed": counts.failed,
            "cancelled": counts.cancelled,
            "waiting": {
                "awaiting_input": counts.parked,
                "interrupted": counts.interrupted,
                "pause_requested": counts.pause_requested,
                "quarantined": counts.quarantined,
            },
            "is_exact": counts.is_exact,
            "is_live_exact": counts.is_live_exact,
            "counted_max": COUNT_MAX,
        }
        return Answer(value=answer)

    # --- live runs ---------------------------------------------------------------------------------------------------

    async def post_input(self, call: Call[api.RunInput]) -> Answer[answers.InputAcknowledged]:
        asked = call.input
        result = await self._application.control.post_input(
            call.principal, asked.run_id, asked.text, source=asked.source or "api"
        )
        return Answer(value={"run_id": result.run_id, "delivered": True}, positions=(result.position,))

    async def resolve_call(self, call: Call[api.RunResolveCall]) -> Answer[answers.CallResolved]:
        asked = call.input
        place = CALL_PATTERN.fullmatch(asked.call)
        if place is None:
            raise bad_request(f"call is {asked.call[:40]!r}: expected TURN.INDEX, such as 1.0")
        result = await self._application.control.resolve(
            call.principal,
            asked.run_id,
            int(place[1]),
            int(place[2]),
            done=asked.outcome == "done",
            result=asked.result or "",
        )
        answer: answers.CallResolved = {"run_id": result.run_id, "call": asked.call, "repeated": result.is_repeated}
        return Answer(value=answer, positions=(result.position,))

    async def cancel(self, call: Call[api.RunCancel]) -> Answer[answers.Cancelled]:
        asked = call.input
        result = await self._application.control.cancel(
            call.principal, asked.agent_id, asked.reason or "", run_id=asked.run_id or ""
        )
        answer: answers.Cancelled = {
            "cancelled": result.cancelled,
            "agent_id": result.agent_id,
            "run_id": result.run_id,
            "cascaded": list(result.cascaded),
            "status": result.status,
            "reason": result.reason,
        }
        return Answer(value=answer, positions=(result.position,))

    async def cancel_turn(self, call: Call[api.RunCancelTurn]) -> Answer[answers.TurnCancelled]:
        asked = call.input
        result = await self._application.interrupts.cancel_turn(call.principal, asked.run_id, asked.reason or "")
        answer: answers.TurnCancelled = {"run_id": result.run_id, "stopped": True, "parked": result.parked}
        return Answer(value=answer, positions=(result.position,))

    async def pause(self, call: Call[api.RunReason]) -> Answer[answers.Pausing]:
        asked = call.input
        held = await self._application.control.pause(call.principal, asked.run_id, asked.reason or "")
        answer: answers.Pausing = {"run_id": held.run_id, "agent_id": held.agent_id, "pausing": True}
        return Answer(value=answer, positions=(held.position,))

    async def resume(self, call: Call[api.RunResume]) -> Answer[answers.Resumed]:
        held = await self._application.control.resume(call.principal, call.input.run_id)
        answer: answers.Resumed = {"run_id": held.run_id, "agent_id": held.agent_id, "resumed": True}
        return Answer(value=answer, positions=(held.position,))

    async def compact(self, call: Call[api.RunReason]) -> Answer[answers.Compacted]:
        return await self._compact(call.principal, call.input.run_id, call.input.reason)

    async def compact_by_handle(self, call: Call[api.RunHandleReason]) -> Answer[answers.Compacted]:
        row = await self._application.queries.row_of_handle(call.principal, call.input.agent_id)
        return await self._compact(call.principal, row.run_id, call.input.reason)

    async def _compact(self, caller: Caller, run_id: str, reason: str | None) -> Answer[answers.Compacted]:
        result = await self._application.compactions.compact(caller, run_id, reason or "")
        answer: answers.Compacted = {
            "run_id": result.run_id,
            "compacted": result.applied != NOOP,
            "before_tokens": result.before_tokens,
            "after_tokens": result.after_tokens,
            "applied": result.applied,
        }
        return Answer(value=answer, positions=(result.position,))

    async def quarantine(self, call: Call[api.RunReason]) -> Answer[answers.Quarantined]:
        asked = call.input
        held = await self._application.control.quarantine(call.principal, asked.run_id, asked.reason or "")
        answer: answers.Quarantined = {"run_id": held.run_id, "agent_id": held.agent_id, "quarantined": True}
        return Answer(value=answer, positions=(held.position,))

    async def release(self, call: Call[api.RunReason]) -> Answer[answers.Released]:
        asked = call.input
        held = await self._application.control.release(call.principal, asked.run_id, asked.reason or "")
        answer: answers.Released = {"run_id": held.run_id, "agent_id": held.agent_id, "released": True}
        return Answer(value=answer, positions=(held.position,))

    # --- many runs ---------------------------------------------------------------------------------------------------

    async def apply_to_many(self, call: Call[api.RunBulkAction]) -> Answer[answers.BulkAction]:
        asked = call.input
        if asked.dry_run is not False:
            return Answer(value=await self._preview(call))
        done = await self._application.bulk.act(
            call.principal, asked.action, asked.where, asked.reason or "", after=asked.cursor or ""
        )
        results: list[answers.BulkResult] = [
            {
                "run_id": one.run_id,
                "outcome": one.outcome,
                "position": one.position or None,
                "code": one.code or None,
                "error": one.error or None,
            }
            for one in done.results
        ]
        answer: answers.BulkAction = {
            "action": asked.action,
            "where": asked.where,
            "dry_run": False,
            "results": results,
            "next": done.next or None,
        }
        return Answer(value=answer, positions=tuple(one.position for one in done.results))

    async def _preview(self, call: Call[api.RunBulkAction]) -> answers.BulkAction:
        asked = call.input
        preview = await self._application.bulk.preview(
            call.principal, asked.action, asked.where, after=asked.cursor or ""
        )
        return {
            "action": asked.action,
            "where": asked.where,
            "dry_run": True,
            "matched": preview.matched,
            "more": preview.has_more,
            "runs": [run_json(row, self._application.barrier.topic) for row in preview.first],
        }

    async def spawn_many(self, call: Call[BatchBody]) -> Answer[answers.Batch]:
        body, batches, request = call.input, self._application.batches, current_request.get()
        runs = [to_run_request(one, idempotency_key="", traceparent=request.traceparent) for one in body.spawns]
        if body.mode == "detach":
            outcomes = await batches.detach(call.principal, runs, key=request.idempotency_key)
        else:
            outcomes = await batches.join(
                call.principal, runs, key=request.idempotency_key, timeout_ms=body.timeout_ms or 0
            )
        spawned = sum(bool(outcome.run_id) for outcome in outcomes)
        answer: answers.Batch = {"results": [outcome_json(one) for one in outcomes], "spawned": spawned}
        return Answer(value=answer, positions=tuple(one.position for one in outcomes if one.position))


def run_filter(asked: api.RunFilterFields) -> RunFilter:
    """Return the filter of a list, without statuses. Raises Refused."""
    check_user_id(asked.user_id)
    return RunFilter(
        agent=check_agent(asked.agent),
        agent_id=check_filter_id("agent_id", asked.agent_id),
        parent_agent_id=check_filter_id("parent_agent_id", asked.parent_agent_id),
        user_id=asked.user_id,
        session_id=check_filter_id("session_id", asked.session_id),
        root_run_id=check_filter_id("root_run_id", asked.root_run_id),
        def_id=check_filter_id("def_id", asked.def_id),
        forked_from=check_filter_id("forked_from", asked.forked_from),
        forked_from_root=check_filter_id("forked_from_root", asked.forked_from_root),
        id_part=part_of_id(asked.id_part),
        id_prefix=check_filter_id("prefix", asked.prefix),
        since_ms=parse_time_ms("from", asked.since) if asked.since else 0,
        until_ms=parse_time_ms("to", asked.until) if asked.until else 0,
    )
