"""Spending limits: who may set which limit, and who sees which.

A limit is a command to the budgets; the call returns once its event was read back. From then on the limit holds: every
start of this process carries the position of the newest limit that it has read, and no runtime decides about a start
before it has read that far (services/runtime/run/start_handler.py). Another API process reaches that position a moment
later, or at once when it receives it from the response (PositionBarrier).

Usage from before an account had a limit is read from the read models and sent with the command, because budgets count
only accounts with a limit. The read models must have processed the whole log at the time of the request.

    operator    the whole installation: administrators
    tenant      a tenant, and its users: administrators, and operators of that tenant

Before: services/application/operations/budget_handlers.py. After: accounts.py.
"""

from collections.abc import Callable, Iterator

from loomlog.connectors.errors import ConnectorError, describe_unreachable
from loomlog.projections.tables import EVERY_TENANT
from loomlog.schemas.generated.budget_commands import RemoveLimit, SetLimit
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.records import copy_as
from loomlog.services.core.access.decide import Caller, access_filter, has_scope
from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.calendar_month import first_day, month_of
from loomlog.services.core.refusals import Refused
from loomlog.services.core.spending_limits import AMOUNT_MAX, OPERATOR, SCOPES, TENANT, USER, account_error
from loomlog.services.families.budget.accounts import BudgetAccounts
from loomlog.services.families.budget.amounts import account_at
from loomlog.services.families.budget.state import AccountUsage, Limit, account_key
from loomlog.services.families.budget.state_files import export_limits, to_command
from loomlog.services.families.ports.recorded_spending import RecordedSpending
from loomlog.services.families.ports.spending_limits import LimitRequest, LimitView
from loomlog.services.stream.archive.state_file import StatedLimit
from loomlog.services.stream.entities.answers import CommandInvalid, CommandUnanswered

RETRY_LATER_S, RETRY_SOON_S = 5, 1


class BudgetLimits:
    """The use cases (port SpendingLimits). All methods raise Refused."""

    def __init__(
        self,
        accounts: BudgetAccounts,
        spending: RecordedSpending,
        *,
        clock_ms: Callable[[], int],
        currency: str,
        wait_s: float,
    ) -> None:
        """`currency`: of prices and of limits in money."""
        self._accounts = accounts
        self._spending = spending
        self._clock_ms = clock_ms
        self._currency = currency
        self._wait_s = wait_s
        self.caught_up = accounts.caught_up

    # --- limits ------------------------------------------------------------------------------------------------------

    async def limits(self, caller: Caller, tenant: str = "") -> list[LimitView]:
        """Return the limits the caller may see, the widest first. An administrator may select one tenant."""
        within = access_filter(caller)
        budgets, now = self._accounts.state, self._clock_ms()
        views = [
            _view_of(limit, account_at(budgets, key, now))
            for key, limit in budgets.limits.items()
            if (within.tenant is None or limit.tenant == within.tenant)
            and (not tenant or limit.tenant == tenant)
            and (within.user_id is None or (limit.scope == USER and limit.scope_id == within.user_id))
        ]
        return sorted(views, key=lambda view: (view.tenant, SCOPES.index(view.scope), view.scope_id))

    def limit_of_user(self, tenant: str, user: str) -> Limit | None:
        """Return the limit of a user; None when there is none."""
        return self._accounts.state.limits.get(account_key(USER, tenant, user))

    def exported(self) -> Iterator[StatedLimit]:
        """See the port."""
        return export_limits(self._accounts.state, self._clock_ms())

    async def set(self, caller: Caller, request: LimitRequest) -> tuple[LimitView, str]:
        """Set a limit; returns it as it is now, and the position of its event."""
        tenant, scope_id = self._resolve_account(caller, request.scope, request.tenant, request.scope_id)
        key = account_key(request.scope, tenant, scope_id)
        currency = self._currency
        is_new = key not in self._accounts.state.limits
        tokens, micros = await self._spent_this_month(request.scope, tenant, scope_id, currency) if is_new else (0, 0)
        command = copy_as(
            SetLimit,
            request,
            envelope=self._accounts.envelope(caller.subject),
            tenant=tenant,
            scope_id=scope_id,
            currency=currency,
            used_tokens=tokens,
            used_micros=micros,
        )
        position = await self._request(command)
        budgets = self._accounts.state
        limit = budgets.limits.get(key)
        if limit is None:
            raise Refused("not_found", f"the limit of {request.scope} {scope_id} was set, and has been removed since")
        return _view_of(limit, account_at(budgets, key, self._clock_ms())), position

    async def restore(self, caller: Caller, limit: StatedLimit, *, dry_run: bool) -> str | None:
        """See the port."""
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
        if scope == OPERATOR and not has_scope(caller, ADMIN):
            raise Refused("insufficient_scope", f"this needs the scope {ADMIN}", details={"scope": ADMIN})
        of = (tenant or "") if scope == OPERATOR else tenant or (scope_id if scope == TENANT else "")
        if scope != OPERATOR and not of:
            of = caller.tenant
        if not caller.is_admin and of != caller.tenant:
            not_yours = f"the limits of tenant {of[:80]} are not yours"
            raise Refused("insufficient_scope", not_yours, details={"scope": ADMIN})
        if scope == TENANT and not scope_id:
            scope_id = of
        wrong = account_error(scope, of, scope_id)
        if wrong:
            raise Refused("bad_request", wrong)
        return of, scope_id

    async def _spent_this_month(self, scope: str, tenant: str, scope_id: str, currency: str) -> tuple[int, int]:
        """Return what the account has used this month. Raises Refused(not_yet) when the read models are behind."""
        tokens, micros = await self._spending.spent_since(
            EVERY_TENANT if scope == OPERATOR else tenant,
            first_day(month_of(self._clock_ms())),
            user_id=scope_id if scope == USER else None,
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
            raise Refused("bad_request", str(error)) from error
        except ConnectorError as error:
            text = describe_unreachable("the log", error)
            raise Refused("log_unavailable", text, retry_after_s=RETRY_SOON_S) from error
        refusal = answer.events[-1]
        if isinstance(refusal, CommandRefused):
            if refusal.code == "quarantined":
                raise Refused("limit_pending", refusal.message, retry_after_s=RETRY_LATER_S)
            raise Refused("bad_request", refusal.message)
        return answer.position


def _view_of(limit: Limit, account: AccountUsage) -> LimitView:
    return copy_as(
        LimitView,
        limit,
        used_tokens=account.used_tokens,
        used_micros=account.used_micros,
        reserved_tokens=account.reserved_tokens,
        reserved_micros=account.reserved_micros,
    )
