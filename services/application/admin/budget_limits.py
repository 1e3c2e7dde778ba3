"""Spending limits and usage reports: who may set which limit, and who sees which figures.

A limit is a command to the budgets (services/families/budget); the call returns once its event was read back. From then
on the limit holds: every start of this process carries the position of the newest limit that it has read, and no
runtime decides about a start before it has read that far (services/runtime/run/start_handler.py). Another API process
reaches that position a moment later, or at once when it receives it from the response (PositionBarrier).

Usage from before an account had a limit is read from the read models and sent with the command, because budgets count
only accounts with a limit. The read models must have processed the whole log at the time of the request.

    operator    the whole installation: administrators
    tenant      a tenant, and its users: administrators, and operators of that tenant

Before: a transport. After: services/families/budget/accounts.py; projections/usage.py for reports.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from loomlog.connectors.errors import ConnectorError, Transient
from loomlog.projections.tables import EVERY_TENANT, Scope
from loomlog.schemas.generated.budget_commands import RemoveLimit, SetLimit
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.services.application import limits
from loomlog.services.application.authentication import require_scope
from loomlog.services.application.errors import RETRY_LATER_S, bad_request, unavailable
from loomlog.services.application.queries.json_types import UsageCurrency, UsageDimensions, UsageRow
from loomlog.services.application.queries.read_models import scope_of
from loomlog.services.application.streaming.run_stream import StreamSources
from loomlog.services.application.transfer.budget_limits import to_command
from loomlog.services.core import spending_limits
from loomlog.services.core.access.decide import Caller, access_filter
from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.refusals import Refused
from loomlog.services.core.spending_limits import AMOUNT_MAX, account_error
from loomlog.services.families.budget.accounts import BudgetAccounts
from loomlog.services.families.budget.amounts import account_at
from loomlog.services.families.budget.calendar_month import day_of, first_day, month_of
from loomlog.services.families.budget.state import AccountUsage, Limit, account_key
from loomlog.services.stream.archive.state_file import StatedLimit
from loomlog.services.stream.entities.answers import CommandInvalid, CommandUnanswered

DIMENSIONS = {
    **{name: name for name in ("tenant", "provider", "model", "source", "agent", "day")},
    "user": "user_id",
}
"""Dimensions by which a report can be grouped, with their columns. `source` is the owner of the key that paid."""
OUTPUT_NAMES = {"tenant": "tenant_id"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRequest:
    """A limit as requested; None = no such limit. `tenant` None: the caller's."""

    scope: str
    tenant: str | None = None
    scope_id: str = ""
    soft_tokens: int | None = None
    hard_tokens: int | None = None
    soft_micros: int | None = None
    hard_micros: int | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitView:
    """A limit with the amounts used and reserved under it this month."""

    limit: Limit
    account: AccountUsage


class BudgetLimits:
    """The use cases. All methods raise Refused."""

    def __init__(
        self,
        sources: StreamSources,
        accounts: BudgetAccounts,
        *,
        end_offset: Callable[[int], Awaitable[int]],
        clock_ms: Callable[[], int],
        currency: str,
        wait_s: float,
        spent_wait_s: float = limits.SPENT_WAIT_S,
    ) -> None:
        """`end_offset` returns the end of a partition of the run events, and raises Transient. `currency`: of prices
        and of limits in money.
        """
        self._end_offset = end_offset
        self._spent_wait_s = spent_wait_s
        self._sources = sources
        self._accounts = accounts
        self._clock_ms = clock_ms
        self._currency = currency
        self._wait_s = wait_s

    # --- limits ------------------------------------------------------------------------------------------------------

    async def limits(self, caller: Caller, tenant: str = "") -> list[LimitView]:
        """Return the limits the caller may see, the widest first. An administrator may select one tenant."""
        within = access_filter(caller)
        budgets, now = self._accounts.state, self._clock_ms()
        views = [
            LimitView(limit=limit, account=account_at(budgets, key, now))
            for key, limit in budgets.limits.items()
            if (within.tenant is None or limit.tenant == within.tenant)
            and (not tenant or limit.tenant == tenant)
            and (within.user_id is None or (limit.scope == spending_limits.USER and limit.scope_id == within.user_id))
        ]
        order = spending_limits.SCOPES.index
        return sorted(views, key=lambda view: (view.limit.tenant, order(view.limit.scope), view.limit.scope_id))

    async def set(self, caller: Caller, request: LimitRequest) -> tuple[LimitView, str]:
        """Set a limit; returns it as it is now, and the position of its event."""
        tenant, scope_id = self._resolve_account(caller, request.scope, request.tenant, request.scope_id)
        key = account_key(request.scope, tenant, scope_id)
        currency = self._currency
        is_new = key not in self._accounts.state.limits
        tokens, micros = await self._spent_this_month(request.scope, tenant, scope_id, currency) if is_new else (0, 0)
        command = SetLimit(
            envelope=self._accounts.envelope(caller.subject),
            tenant=tenant,
            scope=request.scope,
            scope_id=scope_id,
            soft_tokens=request.soft_tokens,
            hard_tokens=request.hard_tokens,
            soft_micros=request.soft_micros,
            hard_micros=request.hard_micros,
            strict=request.strict,
            currency=currency,
            used_tokens=tokens,
            used_micros=micros,
        )
        position = await self._request(command)
        budgets = self._accounts.state
        limit = budgets.limits.get(key)
        if limit is None:
            raise Refused("not_found", f"the limit of {request.scope} {scope_id} was set, and has been removed since")
        return LimitView(limit=limit, account=account_at(budgets, key, self._clock_ms())), position

    async def restore(self, caller: Caller, limit: StatedLimit, *, dry_run: bool) -> str | None:
        """Set a limit of another installation here; returns its position, or None when the account has one."""
        require_scope(caller, ADMIN)
        if account_key(limit.scope, limit.tenant, limit.scope_id) in self._accounts.state.limits:
            return None
        envelope = self._accounts.envelope(caller.subject)
        return "" if dry_run else await self._request(to_command(limit, envelope, self._clock_ms()))

    async def remove(self, caller: Caller, scope: str, tenant: str | None, scope_id: str) -> str:
        """Remove a limit; returns the position of the event, empty when there was no such limit."""
        of, scope_id = self._resolve_account(caller, scope, tenant, scope_id)
        if account_key(scope, of, scope_id) not in self._accounts.state.limits:
            return ""
        return await self._request(
            RemoveLimit(envelope=self._accounts.envelope(caller.subject), tenant=of, scope=scope, scope_id=scope_id)
        )

    def _resolve_account(self, caller: Caller, scope: str, tenant: str | None, scope_id: str) -> tuple[str, str]:
        """Return tenant and scope_id of an account the caller may limit."""
        if scope == spending_limits.OPERATOR:
            require_scope(caller, ADMIN)
        of = (
            (tenant or "")
            if scope == spending_limits.OPERATOR
            else tenant or (scope_id if scope == spending_limits.TENANT else "")
        )
        if scope != spending_limits.OPERATOR and not of:
            of = caller.tenant
        if not caller.is_admin and of != caller.tenant:
            not_yours = f"the limits of tenant {of[:80]} are not yours"
            raise Refused("insufficient_scope", not_yours, details={"scope": ADMIN})
        if scope == spending_limits.TENANT and not scope_id:
            scope_id = of
        wrong = account_error(scope, of, scope_id)
        if wrong:
            raise bad_request(wrong)
        return of, scope_id

    async def _spent_this_month(self, scope: str, tenant: str, scope_id: str, currency: str) -> tuple[int, int]:
        """Return what the account has used this month.

        Raises Refused(not_yet) when the read models are behind: with too small a sum the limit would admit runs
        that it has to refuse.
        """
        partitions = self._sources.hub.partitions
        try:
            ends = dict(zip(partitions, await asyncio.gather(*map(self._end_offset, partitions)), strict=True))
        except Transient as error:
            raise unavailable("log", error) from error
        await self._sources.barrier.wait_for_all(ends, timeout_s=self._spent_wait_s)
        within: Scope = EVERY_TENANT if scope == spending_limits.OPERATOR else tenant
        tokens, micros = await self._sources.projection.spent_since(
            within,
            first_day(month_of(self._clock_ms())),
            user_id=scope_id if scope == spending_limits.USER else None,
            currency=currency,
        )
        # Reported usage comes from providers: a sum that no limit could have must not prevent a limit from being set.
        return min(max(0, tokens), AMOUNT_MAX), min(max(0, micros), AMOUNT_MAX)

    async def _request(self, command: SetLimit | RemoveLimit) -> str:
        try:
            answer = await self._accounts.request(command, wait_s=self._wait_s)
        except CommandUnanswered as error:
            raise Refused(
                "limit_pending",
                f"the change is on its way to the log, but no runtime has made it within {self._wait_s:g} s; "
                "GET /v1/_limits shows it once it is set, and repeating the request does no harm",
                retry_after_s=RETRY_LATER_S,
            ) from error
        except CommandInvalid as error:
            raise bad_request(str(error)) from error
        except ConnectorError as error:
            raise unavailable("log", error) from error
        refusal = answer.events[-1]
        if isinstance(refusal, CommandRefused):
            if refusal.code == "quarantined":
                raise Refused("limit_pending", refusal.message, retry_after_s=RETRY_LATER_S)
            raise bad_request(refusal.message)
        return answer.position

    # --- usage -------------------------------------------------------------------------------------------------------

    async def usage(
        self,
        caller: Caller,
        group_by: Sequence[str],
        *,
        tenant: str = "",
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> list[UsageRow]:
        """Return sums by these dimensions and by currency, over whole UTC days; `until_ms` is exclusive."""
        unknown = [name for name in group_by if name not in DIMENSIONS]
        if unknown:
            raise bad_request(f"group_by names {', '.join(unknown)[:80]}: expected some of {', '.join(DIMENSIONS)}")
        within = access_filter(caller)
        await self._sources.barrier.wait_for_own_writes(None)
        if tenant and within.tenant not in (None, tenant):
            raise Refused("insufficient_scope", f"the usage of {tenant[:80]} is not yours", details={"scope": ADMIN})
        try:
            rows = await self._sources.projection.usage(
                tenant or scope_of(within),
                [DIMENSIONS[name] for name in group_by],
                user_id=within.user_id,
                since_day="" if since_ms is None else day_of(since_ms),
                until_day="" if until_ms is None else day_of(until_ms - 1),
            )
        except ValueError as error:
            raise bad_request(str(error)) from error
        return [_usage_row(row, group_by) for row in rows]


def _usage_row(row: Mapping[str, Any], group_by: Sequence[str]) -> UsageRow:
    """Convert a row to the format of the API: empty dimensions and an empty currency are left out."""
    columns = {name: DIMENSIONS[name] for name in group_by}
    dimensions = {OUTPUT_NAMES.get(name, column): row[column] for name, column in columns.items() if row[column]}
    currency: UsageCurrency = {"currency": row["currency"]} if row["currency"] else {}
    return {
        **cast("UsageDimensions", dimensions),
        "input_tokens": row["input_tokens"],
        "output_tokens": row["output_tokens"],
        "cache_creation_input_tokens": row["cache_creation_input_tokens"],
        "cache_read_input_tokens": row["cache_read_input_tokens"],
        "cost": row["cost_micros"] / 1_000_000,
        "cost_micros": row["cost_micros"],
        **currency,
        "call_count": row["calls"],
        "unpriced_calls": row["unpriced_calls"],
    }
