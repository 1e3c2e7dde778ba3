"""The handlers of the operations on limits of what is spent, and on what was spent.

Before: handlers.py. After: services/families/budget/spending_limits.py, services/application/queries/usage.py.
"""

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.services.application.answers.policies import Limit, LimitList, LimitRemoved, UsageReport
from loomlog.services.application.bodies.models import LimitBody
from loomlog.services.application.operations import budgets as api
from loomlog.services.application.operations.area import Area
from loomlog.services.core.operations import Answer, Call, Handlers
from loomlog.services.core.times import parse_time_ms
from loomlog.services.families.ports.spending_limits import LimitRequest, LimitView


class BudgetHandlers(Area):
    def by_operation(self) -> Handlers:
        return {api.LIST: self.list_all, api.SET: self.set, api.REMOVE: self.remove, api.REPORT: self.report}

    async def list_all(self, call: Call[api.LimitListAll]) -> Answer[LimitList]:
        views = await self._application.limits.limits(call.principal, call.input.tenant)
        return Answer(value={"limits": [_limit_json(view) for view in views]})

    async def set(self, call: Call[LimitBody]) -> Answer[Limit]:
        body = call.input
        asked = LimitRequest(
            scope=body.scope,
            tenant=body.tenant_id or None,
            scope_id=body.scope_id or "",
            soft_tokens=body.soft_limit,
            hard_tokens=body.hard_limit,
            soft_micros=body.soft_limit_micros,
            hard_micros=body.hard_limit_micros,
            strict=bool(body.strict),
        )
        view, position = await self._application.limits.set(call.principal, asked)
        return Answer(value=_limit_json(view), positions=(position,))

    async def remove(self, call: Call[api.LimitRemove]) -> Answer[LimitRemoved]:
        asked = call.input
        position = await self._application.limits.remove(
            call.principal, asked.scope, asked.tenant or None, asked.scope_id
        )
        return Answer(value={"removed": bool(position)}, positions=(position,) if position else ())

    async def report(self, call: Call[api.UsageAsked]) -> Answer[UsageReport]:
        asked = call.input
        group_by = [name.strip() for name in (asked.group_by or api.DEFAULT_GROUP_BY).split(",") if name.strip()]
        rows = await self._application.usage.report(
            call.principal,
            group_by,
            tenant=asked.tenant,
            since_ms=parse_time_ms("from", asked.since) if asked.since else None,
            until_ms=parse_time_ms("to", asked.until) if asked.until else None,
        )
        return Answer(
            value={"group_by": group_by, "from": asked.since or None, "to": asked.until or None, "rows": rows}
        )


def _limit_json(limit: LimitView) -> Limit:
    return {
        "tenant_id": limit.tenant,
        "scope": limit.scope,
        "scope_id": limit.scope_id,
        "soft_limit": limit.soft_tokens,
        "hard_limit": limit.hard_tokens,
        "used": limit.used_tokens,
        "reserved": limit.reserved_tokens,
        "strict": limit.strict,
        "soft_limit_micros": limit.soft_micros,
        "hard_limit_micros": limit.hard_micros,
        "used_micros": limit.used_micros,
        "reserved_micros": limit.reserved_micros,
        "currency": limit.currency or None,
        "updated_at": format_rfc3339(limit.at_ms),
        "updated_by": limit.by,
    }
