"""The operations on limits of what is spent, and on what was spent, in the formats of reference surfaces 1.8. Pure.

Limits count tokens, as clients know them; `soft_limit_micros` and `hard_limit_micros` limit money, in millionths of the
currency, and are never exceeded. `cost` is a number for people to read; `cost_micros` is the exact one.

Before: __init__.py. After: budget_handlers.py carries them out.
"""

from functools import partial
from typing import Annotated

from msgspec import Meta

from loomlog.services.application import limits
from loomlog.services.application.answers.policies import Limit, LimitList, LimitRemoved, UsageReport
from loomlog.services.application.bodies.fields import model_fields
from loomlog.services.application.bodies.models import LimitBody
from loomlog.services.application.operations.fields import QUERY_CHARACTERS_MAX, TenantFilter, http
from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import RUNS_READ, TENANT
from loomlog.services.core.operations import AnyOperation, Effect, Input, Operation, Tag

TAG = Tag(name="Budgets", description="Usage, and limits on it.")
LIMITS = "/v1/_limits"
BODY_BYTES_MAX = 64 * 1024
DEFAULT_GROUP_BY = "tenant,source"
"""Grouping of usage when the request names none."""
Text = Annotated[str, Meta(max_length=QUERY_CHARACTERS_MAX)]


class LimitListAll(Input, frozen=True, kw_only=True):
    """The limits that the caller may see."""

    tenant: TenantFilter = ""


class LimitRemove(Input, frozen=True, kw_only=True):
    """The account whose limits are removed."""

    scope: Annotated[Text, Meta(description="operator, tenant or user.")] = ""
    tenant: Annotated[Text, Meta(description="The caller's if absent.")] = ""
    scope_id: Annotated[str, Meta(max_length=limits.NAME_BYTES_MAX, description="The user.")] = ""


class UsageAsked(Input, frozen=True, kw_only=True):
    """What a report on usage sums."""

    group_by: Annotated[
        Text, Meta(description="tenant, user, provider, model, source, agent, day with commas between.")
    ] = DEFAULT_GROUP_BY
    since: Annotated[Text, Meta(description="From the day of this time (RFC 3339).")] = ""
    until: Annotated[Text, Meta(description="Before this time (RFC 3339); its day is included if it has begun.")] = ""
    tenant: TenantFilter = ""


_read = partial(Operation, effect=Effect.READ, tag=TAG, access=requires(RUNS_READ))
_write = partial(Operation, effect=Effect.WRITE, tag=TAG, access=requires(TENANT), unavailable_code="log_unavailable")
LIST = _read(
    name="limit.list",
    summary="List budget limits with their use in this month.",
    input=LimitListAll,
    output=LimitList,
    unavailable_code="log_unavailable",
    http=(http(route=f"GET {LIMITS}", id="list_limits"),),
)
SET = _write(
    name="limit.set",
    summary="Set the monthly limits of the installation, a tenant or a user; replaces earlier ones.",
    input=model_fields(LimitBody),
    output=Limit,
    http=(http(route=f"PUT {LIMITS}", id="set_limit", body_bytes_max=BODY_BYTES_MAX),),
)
REMOVE = _write(
    name="limit.remove",
    summary="Remove the limits of an account.",
    input=LimitRemove,
    output=LimitRemoved,
    http=(http(route=f"DELETE {LIMITS}", id="remove_limit", status=204),),
)
REPORT = _read(
    name="usage.report",
    summary="Report usage and cost over whole UTC days; rows are split by currency.",
    input=UsageAsked,
    output=UsageReport,
    unavailable_code="projection_unavailable",
    http=(http(route="GET /v1/_usage", id="report_usage", names={"since": "from", "until": "to"}),),
)
BUDGET_OPERATIONS: tuple[AnyOperation, ...] = (LIST, SET, REMOVE, REPORT)
