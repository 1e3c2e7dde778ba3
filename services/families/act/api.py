"""The operation on acts: their list. Pure.

Before: __init__.py. After: handlers.py carries it out.
"""

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import TENANT
from loomlog.services.core.operations import PRINTABLE, Effect, Http, Input, Operation, Output, Tag
from loomlog.services.families.act.limits import NAME_CHARACTERS_MAX

TAG = Tag(name="Acts", description="Who did what.")
ACTS_DEFAULT, ACTS_MAX = 50, 500
TIME_CHARACTERS_MAX = 64
CURSOR_CHARACTERS_MAX = 1_000

Time = Annotated[str, Meta(max_length=TIME_CHARACTERS_MAX, pattern=PRINTABLE, description="A time (RFC 3339).")]
Detail = dict[str, Any] | list[Any] | str | int | float | bool | None


class ActList(Input, frozen=True, kw_only=True):
    """Which acts to list."""

    who: Annotated[
        str,
        Meta(max_length=NAME_CHARACTERS_MAX, pattern=PRINTABLE, description="Only acts of this subject of a caller."),
    ] = ""
    what: Annotated[
        str,
        Meta(
            max_length=NAME_CHARACTERS_MAX,
            pattern=PRINTABLE,
            description="Only this operation, such as hook.register, or all of a family, such as hook.",
        ),
    ] = ""
    since: Annotated[Time, Meta(description="Only acts asked for at this time (RFC 3339) or later.")] = ""
    until: Annotated[Time, Meta(description="Only acts asked for before this time (RFC 3339).")] = ""
    limit: Annotated[int, Meta(ge=1, le=ACTS_MAX, description="Most entries of one answer.")] = ACTS_DEFAULT
    cursor: Annotated[
        str, Meta(max_length=CURSOR_CHARACTERS_MAX, pattern=PRINTABLE, description="`next` of an earlier answer.")
    ] = ""


class ActShown(Output, frozen=True, kw_only=True):
    """An act, or refusals of one kind."""

    act_id: str
    at: Annotated[str, Meta(description="When it was asked, RFC 3339.")]
    tenant_id: str
    who: Annotated[str, Meta(description="Subject of the caller.")]
    token: Annotated[str, Meta(description="Name of the caller's token.")]
    token_id: Annotated[str, Meta(description="Its id where it was minted, else empty.")]
    transport: Annotated[str, Meta(description="http, web, cli, mcp or grpc.")]
    request_id: str
    what: Annotated[str, Meta(description="Name of the operation, or id of a route that is none.")]
    target: str
    outcome: Annotated[str, Meta(description="begun, done, refused, or unknown.")]
    code: Annotated[str | UnsetType, Meta(description="Code of the refusal.")] = UNSET
    count: Annotated[int | UnsetType, Meta(description="Refusals that the entry stands for.")] = UNSET
    ended_at: Annotated[str | UnsetType, Meta(description="RFC 3339.")] = UNSET
    request: Annotated[Detail | UnsetType, Meta(description="Fields of the request, without secrets.")] = UNSET
    before: Annotated[Detail | UnsetType, Meta(description="What there was.")] = UNSET
    after: Annotated[Detail | UnsetType, Meta(description="What there is now, or the answer.")] = UNSET


class ActPage(Output, frozen=True, kw_only=True):
    """Acts, newest first."""

    acts: list[ActShown]
    next: Annotated[str, Meta(description="Cursor of the next page; empty at the end.")]


LIST = Operation(
    name="act.list",
    summary="List administrative acts, newest first: who did what, and how it has ended.",
    input=ActList,
    output=ActPage,
    access=requires(TENANT),
    effect=Effect.READ,
    tag=TAG,
    spans_tenants=True,
    unavailable_code="projection_unavailable",
    http=(Http(route="GET /v1/_audit", id="list_acts"),),
)
OPERATIONS = (LIST,)
