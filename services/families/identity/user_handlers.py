"""The handlers of the operations on what users have done, and on who may call what.

An explanation asks the same rules as a request does, with the caller that the token would be.

Before: services.py. After: directory.py, the read models.
"""

from msgspec import UNSET

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.run_queries import USER_RUNS_MAX, UserActivity
from loomlog.projections.tables import EVERY_TENANT
from loomlog.services.core.access.decide import Caller, may_call
from loomlog.services.core.operations import Answer, Call, Handlers, NoInput
from loomlog.services.core.refusals import Refused
from loomlog.services.core.times import parse_time_ms
from loomlog.services.families.budget.spending_limits import BudgetLimits
from loomlog.services.families.identity import user_api as api
from loomlog.services.families.identity.directory import Directory, caller_of
from loomlog.services.families.identity.state import SCOPES_OF_MODE, Token
from loomlog.services.families.opening import FamilyContext
from loomlog.services.families.ports.run_reads import RunReads
from loomlog.services.families.ports.users import UserSources

NO_ACTIVITY = UserActivity(tenant="", user_id="", runs=0, running=0, last_started_at_ms=0)


class UserHandlers:
    """One method for each operation. All raise Refused."""

    def __init__(self, context: FamilyContext, directory: Directory, runs: RunReads) -> None:
        self._directory = directory
        self._runs = runs
        self._sources = context.get(UserSources)
        self._budgets = context.get(BudgetLimits)
        self._decrypt = context.decrypt
        self._clock_ms = context.clock_ms

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {
            api.LIST_USERS: self.list_users,
            api.INSPECT_USER: self.inspect,
            api.LIST_TENANTS: self.list_tenants,
            api.EXPLAIN_ACCESS: self.explain,
        }

    async def list_users(self, call: Call[NoInput]) -> Answer[api.UserList]:
        """Return the users of a tenant; an isolated caller sees itself."""
        tenant, caller = call.caller.tenant, call.principal
        only = caller.subject if caller.is_isolated else None
        activity = {one.user_id: one for one in await self._runs.user_activity(tenant, only)}
        registered = self._directory.users(tenant)
        names = sorted({*activity, *registered} if only is None else {only} & {*activity, *registered})
        return Answer(value=api.UserList(users=[await self._row(tenant, name, activity.get(name)) for name in names]))

    async def _row(self, tenant: str, name: str, activity: UserActivity | None) -> api.UserRow:
        user, done = self._directory.users(tenant).get(name), activity or NO_ACTIVITY
        shown = "" if user is None else await self._decrypt(user.display_name, tenant)
        return api.UserRow(
            user_id=name,
            running_count=done.running,
            total_count=done.runs,
            last_started_at=format_rfc3339(done.last_started_at_ms) if done.runs else UNSET,
            registered=user is not None,
            display_name=shown or UNSET,
            access_mode=UNSET if user is None else user.access_mode,
            status=UNSET if user is None else user.status,
        )

    async def inspect(self, call: Call[api.UserInspect]) -> Answer[api.InspectedUser]:
        """Return what there is of a subject."""
        caller, subject = call.caller, call.input.subject
        if caller.is_admin and not caller.is_tenant_named:
            raise Refused("tenant_required", "name the tenant of the user: ?tenant=<name>")
        tenant = caller.tenant
        (activity,) = await self._runs.user_activity(tenant, subject) or [NO_ACTIVITY]
        usage = await self._runs.usage(tenant, (), user_id=subject, since_day="", until_day="")
        memory, errors = await self._sources.count_memory(tenant, subject)
        limit = self._budgets.limit_of_user(tenant, subject)
        tokens = self._directory.tokens_of_user(tenant, subject)
        value = api.InspectedUser(
            tenant=tenant,
            subject=subject,
            activity=api.UserActivityFacts(
                running_count=activity.running,
                total_count=activity.runs,
                last_started_at=format_rfc3339(activity.last_started_at_ms) if activity.runs else UNSET,
            ),
            chats=activity.sessions,
            memory=dict(memory),
            budget=api.UserBudget(
                soft=None if limit is None else limit.soft_tokens,
                hard=None if limit is None else limit.hard_tokens,
            ),
            usage=api.UserUsage(
                calls=sum(row["calls"] for row in usage), cost=sum(row["cost_micros"] for row in usage) / 1e6
            ),
            tokens=sum(self._directory.is_in_force(one.def_id) for one in tokens),
            errors=list(errors),
            notes=_notes(activity.runs),
        )
        return Answer(value=value)

    async def list_tenants(self, call: Call[NoInput]) -> Answer[api.TenantList]:
        """Return the tenants with what they have."""
        activity = await self._runs.user_activity(EVERY_TENANT, None)
        users: dict[str, set[str]] = {
            tenant: set(self._directory.users(tenant)) for tenant in self._directory.tenants()
        }
        runs: dict[str, int] = {}
        for one in activity:
            runs[one.tenant] = runs.get(one.tenant, 0) + one.runs
            users.setdefault(one.tenant, set()).add(one.user_id)
        rows = [
            api.TenantRow(tenant=tenant, users=len(users[tenant] - {""}), runs=runs.get(tenant, 0))
            for tenant in sorted(users)
            if tenant
        ]
        return Answer(value=api.TenantList(tenants=rows, notes=_notes(sum(runs.values()))))

    async def explain(self, call: Call[api.AccessExplain]) -> Answer[api.AccessExplained]:
        """Return whether a caller may call an operation, and why."""
        asked = call.input
        operation = next((one for one in self._sources.operations() if one.name == asked.operation), None)
        if operation is None:
            raise Refused(
                "bad_request", f"operation: there is no {asked.operation[:80]!r}; `loomlog operations` lists them"
            )
        at_ms = parse_time_ms("at", asked.at) if asked.at else self._clock_ms()
        kind, caller, ended = self._find(call, asked.who, at_ms)
        allowed = not ended and may_call(caller, operation.access)
        value = api.AccessExplained(
            who=asked.who,
            kind=kind,
            tenant_id=caller.tenant,
            subject=caller.subject,
            operation=operation.name,
            allowed=allowed,
            why=ended or _why(caller, operation.access.needed, allowed=allowed, takes=operation.access.takes_isolated),
            needs=str(operation.access),
            scopes=sorted(caller.scopes),
            isolated=caller.is_isolated,
        )
        return Answer(value=value)

    def _find(self, call: Call[api.AccessExplain], who: str, at_ms: int) -> tuple[str, Caller, str]:
        """Return what that is, the caller it would be, and why it gives no access at that time. Raises Refused."""
        tenant, directory = call.caller.tenant, self._directory
        sees_all = call.principal.is_admin and not call.caller.is_tenant_named
        token = directory.token(who)
        if token is None:
            named = [one for one in directory.tokens("" if sees_all else tenant) if one.name == who]
            token = next((one for one in reversed(named) if one.is_in_force(at_ms)), named[-1] if named else None)
        if token is not None and (sees_all or token.tenant == tenant):
            return "minted token", caller_of(token), _ended(token, at_ms)
        user = directory.users(tenant).get(who)
        if user is not None:
            scopes = frozenset(SCOPES_OF_MODE[user.access_mode])
            ended = "" if user.status == "active" else "the user is disabled"
            return "user", Caller(name=who, tenant=tenant, subject=who, scopes=scopes), ended
        caller = self._sources.principal(who)
        if caller is not None and (sees_all or caller.tenant == tenant):
            return "principal of the files", caller, ""
        raise Refused("not_found", f"there is no token, user or principal {who[:80]!r} here")


def _ended(token: Token, at_ms: int) -> str:
    if at_ms < token.created_at_ms:
        return f"the token was made later, at {format_rfc3339(token.created_at_ms)}"
    if token.is_in_force(at_ms):
        return ""
    if token.retired_at_ms:
        return f"the token has ended at {format_rfc3339(token.retired_at_ms)}"
    return f"the token has expired at {format_rfc3339(token.expires_at_ms)}"


def _why(caller: Caller, needed: str, *, allowed: bool, takes: bool) -> str:
    if allowed:
        return f"its scopes include {needed}" if needed else "any caller may"
    if caller.is_isolated and not takes:
        return "the operation is on data of the whole tenant, and the caller is confined to its own"
    return f"the scope {needed} is missing"


def _notes(runs: int) -> list[str]:
    return [f"counted among the newest {USER_RUNS_MAX} runs"] if runs >= USER_RUNS_MAX else []
