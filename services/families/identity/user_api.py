"""The operations on what a tenant's users have done, and on who may call what. Pure.

Users are registered, or known by their runs alone; both are listed together. What is changed is in api.py.

Before: __init__.py. After: user_handlers.py carries them out.
"""

from functools import partial
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from loomlog.services.core.access.rules import ANY_CALLER, requires
from loomlog.services.core.access.scopes import ADMIN, TENANT
from loomlog.services.core.operations import (
    PRINTABLE,
    AnyOperation,
    Effect,
    Http,
    Input,
    McpTool,
    NoInput,
    Operation,
    Output,
)
from loomlog.services.families.identity.api import TAG, Subject, Time

UNAVAILABLE = "projection_unavailable"
TEXT_MAX = 256


class UserInspect(Input, frozen=True, kw_only=True):
    subject: Subject


class AccessExplain(Input, frozen=True, kw_only=True):
    who: Annotated[
        str,
        Meta(max_length=TEXT_MAX, pattern=PRINTABLE, description="Id or name of a token or principal, or a user."),
    ]
    operation: Annotated[str, Meta(max_length=TEXT_MAX, pattern=PRINTABLE, description="Name of an operation.")]
    at: Annotated[
        str,
        Meta(max_length=64, pattern=PRINTABLE, description="When the token is presented, RFC 3339; absent: now."),
    ] = ""


class UserRow(Output, frozen=True, kw_only=True):
    """A user: registered, or known by runs only. What is not registered is absent."""

    user_id: str
    running_count: Annotated[int, Meta(description="Top-level runs that have not ended.")]
    total_count: Annotated[int, Meta(description="Top-level runs among the newest of the tenant.")]
    last_started_at: Time | UnsetType = UNSET
    registered: bool
    display_name: str | UnsetType = UNSET
    access_mode: str | UnsetType = UNSET
    status: str | UnsetType = UNSET


class UserList(Output, frozen=True, kw_only=True):
    users: Annotated[list[UserRow], Meta(description="Sorted by id.")]


class UserActivityFacts(Output, frozen=True, kw_only=True):
    running_count: int
    total_count: int
    last_started_at: Time | UnsetType = UNSET


class UserBudget(Output, frozen=True, kw_only=True):
    soft: Annotated[int | None, Meta(description="Tokens.")]
    hard: int | None


class UserUsage(Output, frozen=True, kw_only=True):
    calls: int
    cost: float


class InspectedUser(Output, frozen=True, kw_only=True):
    """What there is of a subject; of one that is not known there is nothing, and every number is 0."""

    tenant: str
    subject: str
    activity: UserActivityFacts
    chats: Annotated[int, Meta(description="Sessions.")]
    memory: Annotated[dict[str, int], Meta(description="Keys by scope.")]
    budget: UserBudget
    usage: UserUsage
    tokens: Annotated[int, Meta(description="Tokens in force.")]
    errors: Annotated[list[str], Meta(description="What could not be looked at.")]
    notes: list[str]


class TenantRow(Output, frozen=True, kw_only=True):
    tenant: str
    users: int
    runs: int


class TenantList(Output, frozen=True, kw_only=True):
    tenants: Annotated[list[TenantRow], Meta(description="Sorted by name.")]
    notes: list[str]


class AccessExplained(Output, frozen=True, kw_only=True):
    """Whether a caller may call an operation, and why."""

    who: str
    kind: Annotated[str, Meta(description="minted token, principal of the files, or user.")]
    tenant_id: str
    subject: str
    operation: str
    allowed: bool
    why: str
    needs: Annotated[str, Meta(description="The access of the operation.")]
    scopes: Annotated[list[str], Meta(description="Those that the caller holds itself.")]
    isolated: bool


_read = partial(Operation, effect=Effect.READ, tag=TAG, unavailable_code=UNAVAILABLE)
LIST_USERS = _read(
    name="user.list",
    summary="List users: those that are registered, and those that have run something.",
    input=NoInput,
    output=UserList,
    access=ANY_CALLER,
    http=(Http(route="GET /v1/_users", id="list_users"),),
    mcp=(McpTool(tool="directory", op="users"),),
)
INSPECT_USER = _read(
    name="user.inspect",
    summary="Show what there is of a user: runs, chats, memory, budget, usage and tokens.",
    input=UserInspect,
    output=InspectedUser,
    access=requires(TENANT),
    http=(Http(route="GET /v1/_users/{subject}", id="inspect_user"),),
    mcp=(McpTool(tool="directory", op="inspect"),),
)
LIST_TENANTS = _read(
    name="tenant.list",
    summary="List the tenants that have runs, users or tokens.",
    input=NoInput,
    output=TenantList,
    access=requires(ADMIN),
    http=(Http(route="GET /v1/_tenants", id="list_tenants", takes_tenant=False),),
    mcp=(McpTool(tool="directory", op="tenants"),),
)
EXPLAIN_ACCESS = _read(
    name="access.explain",
    summary="Tell whether a token, a principal or a user may call an operation, and why.",
    input=AccessExplain,
    output=AccessExplained,
    access=requires(TENANT),
    unavailable_code="identity_unavailable",
    http=(Http(route="GET /v1/_access/explain", id="explain_access", refusal_statuses=(404,)),),
)
USER_OPERATIONS: tuple[AnyOperation, ...] = (LIST_USERS, INSPECT_USER, LIST_TENANTS, EXPLAIN_ACCESS)
