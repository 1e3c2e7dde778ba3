"""The operations on tokens, users, quotas and credentials, as transports offer them. Pure.

Administrators make tokens of any tenant; operators register the users of theirs and give them tokens, whose scopes
follow from the access mode. The text of a token is in one answer and nowhere else.

Before: __init__.py. After: handlers.py carries them out.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import ADMIN, TENANT
from loomlog.services.core.error_codes import STATUS_BY_CODE
from loomlog.services.core.operations import (
    PRINTABLE,
    AnyOperation,
    Effect,
    Http,
    Input,
    McpTool,
    NoInput,
    NoOutput,
    Operation,
    Output,
    Tag,
)
from loomlog.services.core.refusals import Refused
from loomlog.services.families.identity import limits

TAG = Tag(name="Access", description="Tokens, users and quotas: who may do what, taken back at once.")
TOKEN_TOOL = "OperatorTokenDef"
"""Name in the refusals of operations on tokens."""
CREDENTIAL_TOOL = "CredentialDef"
"""Name in the refusals of operations on credentials."""
REFERENCE_CHARACTERS_MAX = 800
TEXT_MAX = 256
Text = Annotated[str, Meta(max_length=TEXT_MAX, pattern=PRINTABLE)]
"""A name or an id; decide.py says which characters it has."""

# --- inputs ----------------------------------------------------------------------------------------------------------

DefId = Annotated[Text | None, Meta(description="Id of the token.")]
TokenName = Annotated[Text | None, Meta(description="Name of the token, instead.")]
OfTenant = Annotated[Text | None, Meta(description="Tenant of the name; needed where two have it.")]
ExpiresAt = Annotated[Text | None, Meta(description="When the token ends by itself, RFC 3339.")]


class TokenCreate(Input, frozen=True, kw_only=True):
    name: Annotated[Text, Meta(description="Name of the token, one in its tenant.")]
    tenant_id: Annotated[Text, Meta(description="Tenant that the holder belongs to.")]
    subject: Annotated[Text | None, Meta(description="Subject of the holder; absent: tok-<name>.")] = None
    scopes: Annotated[
        list[str],
        Meta(min_length=1, max_length=limits.SCOPES_MAX, description="Scopes of access; there are none by default."),
    ]
    expires_at: ExpiresAt = None
    import_token: Annotated[
        Annotated[
            str,
            Meta(
                min_length=limits.IMPORTED_CHARACTERS_MIN,
                max_length=limits.IMPORTED_CHARACTERS_MAX,
                pattern=PRINTABLE,
            ),
        ]
        | None,
        Meta(description="Text that the token is to have; absent: a random one."),
    ] = None
    supersede_shared: Annotated[
        bool, Meta(description="Whether the shared token gives no access from now on; for administrators.")
    ] = False


class TokenRotate(Input, frozen=True, kw_only=True):
    def_id: DefId = None
    name: TokenName = None
    tenant_id: OfTenant = None
    grace_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=limits.GRACE_MS_MAX // 1000)] | None,
        Meta(description="How long the old text still gives access; absent: as the settings say; 0: not at all."),
    ] = None
    expires_at: ExpiresAt = None


class TokenRetire(Input, frozen=True, kw_only=True):
    def_id: DefId = None
    name: TokenName = None
    tenant_id: OfTenant = None
    retired: Annotated[bool, Meta(description="True: a token that has ended does not come back.")] = True


class TokenGet(Input, frozen=True, kw_only=True):
    def_id: Annotated[Text, Meta(description="Id of the token.")]


class TokenList(Input, frozen=True, kw_only=True):
    name: Annotated[Text, Meta(description="Name of the tokens.")]
    tenant_id: OfTenant = None


class TokenNamesList(Input, frozen=True, kw_only=True):
    tenant_id: Annotated[Text, Meta(description="Tenant of the tokens; absent: all of them.")] = ""


Subject = Annotated[Text, Meta(description="Subject of the user: 1 to 64 letters, digits, _ and -.")]
DisplayName = Annotated[
    Annotated[str, Meta(max_length=limits.DISPLAY_NAME_CHARACTERS_MAX, pattern=PRINTABLE)] | None,
    Meta(description="Name for people; encrypted where content is."),
]
AccessMode = Annotated[
    Literal["tenant", "isolated"] | None,
    Meta(description="tenant: sees what the tenant has; isolated: confined to its own data."),
]
Status = Annotated[Literal["active", "disabled"] | None, Meta(description="active, or disabled: without any token.")]


class UserRegister(Input, frozen=True, kw_only=True):
    subject: Subject
    display_name: DisplayName = None
    access_mode: AccessMode = None
    status: Status = None


class UserChange(Input, frozen=True, kw_only=True):
    subject: Subject
    display_name: DisplayName = None
    access_mode: AccessMode = None
    status: Status = None


class UserNamed(Input, frozen=True, kw_only=True):
    subject: Subject


class UserTokenMint(Input, frozen=True, kw_only=True):
    subject: Subject
    name: Annotated[Text | None, Meta(description="Name of the token; absent: one is made.")] = None
    expires_at: ExpiresAt = None


class UserTokenNamed(Input, frozen=True, kw_only=True):
    subject: Subject
    def_id: Annotated[Text, Meta(description="Id of the token.")]


Bound = Annotated[int, Meta(ge=0, le=limits.QUOTA_MAX)] | None
"""A quota; None: there is none."""


class QuotaPut(Input, frozen=True, kw_only=True):
    scope: Annotated[Literal["tenant", "user", "key"], Meta(description="What is bounded: tenant, user or token.")]
    scope_id: Annotated[
        str, Meta(max_length=128, pattern=PRINTABLE, description="Subject of the user, or id of the token.")
    ] = ""
    runs_at_once: Annotated[Bound, Meta(description="Top-level runs that work at once.")] = None
    runs_per_minute: Annotated[Bound, Meta(description="Top-level runs that start in a minute.")] = None
    calls_per_minute: Annotated[Bound, Meta(description="Requests in a minute, of each API process.")] = None
    open_streams: Annotated[Bound, Meta(description="Event streams open at once, of each API process.")] = None
    users: Annotated[Bound, Meta(description="Registered users; of a tenant only.")] = None
    tokens: Annotated[Bound, Meta(description="Tokens in force; of a tenant only.")] = None


CredentialName = Annotated[Text, Meta(description="Name of the credential: 1 to 64 letters, digits, _ and -.")]
CredentialScope = Annotated[
    Literal["tenant", "user", "agent"],
    Meta(description="Whose it is. One of the agent goes before the user's, and that before the tenant's."),
]
ScopeId = Annotated[
    Annotated[str, Meta(max_length=128, pattern=PRINTABLE)],
    Meta(description="Subject of the user, absent: your own; or name of the agent."),
]


class CredentialCreate(Input, frozen=True, kw_only=True):
    name: CredentialName
    scope: CredentialScope = "tenant"
    scope_id: ScopeId = ""
    value: Annotated[
        str,
        Meta(
            max_length=limits.CREDENTIAL_BYTES_MAX,
            description="Its value: write-only, at most 16 KiB, and in no log, transcript or answer. Of the backends "
            "oauth and github_app a JSON object.",
        ),
    ] = ""
    backend: Annotated[
        Text,
        Meta(
            min_length=1,
            description="Where the value is: `inline`, stored here; `oauth`, stored here, with an access token that is "
            "renewed at use; `github_app`, stored here, the key of an app whose tokens $ghapp:NAME is; `env`, or the "
            "name of one of `credential_stores`, outside, as `reference` says.",
        ),
    ] = "inline"
    reference: Annotated[
        Annotated[str, Meta(max_length=REFERENCE_CHARACTERS_MAX, pattern=PRINTABLE)],
        Meta(description="Its place in a store outside: NAME of a variable, path/to/secret or path/to/secret#field."),
    ] = ""
    expires_at: Annotated[Text | None, Meta(description="When it should be replaced, RFC 3339; a note only.")] = None

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("name", self.name), ("scope", self.scope), ("scope_id", self.scope_id)]

    def __repr__(self) -> str:
        return f"CredentialCreate(name={self.name!r}, scope={self.scope!r}, scope_id={self.scope_id!r})"


class CredentialNamed(Input, frozen=True, kw_only=True):
    name: CredentialName
    scope: CredentialScope = "tenant"
    scope_id: ScopeId = ""


class CredentialsList(Input, frozen=True, kw_only=True):
    scope: CredentialScope = "tenant"
    scope_id: ScopeId = ""


# --- answers ---------------------------------------------------------------------------------------------------------

Time = Annotated[str, Meta(description="RFC 3339, with nanoseconds.")]


class TokenRow(Output, frozen=True, kw_only=True):
    """A token without its text; what does not apply is absent."""

    def_id: str
    name: str
    tenant_id: str
    subject: str
    allowed_scopes: list[str]
    created_at: Time
    created_by: str
    created_by_agent_id: Annotated[str, Meta(description="Always empty: agents make no tokens.")] = ""
    retired: Annotated[bool, Meta(description="It gives no access any more, or will not after its grace.")]
    active: Annotated[bool, Meta(description="Its text gives access now.")]
    token_suffix: Annotated[str, Meta(description="The first characters behind lct_.")] | UnsetType = UNSET
    rotated_from: str | UnsetType = UNSET
    retired_at: Time | UnsetType = UNSET
    expires_at: Time | UnsetType = UNSET
    imported: bool | UnsetType = UNSET


class TokenMade(TokenRow, frozen=True, kw_only=True):
    """A new token. A repeated request has no text: the first answer had it."""

    token: Annotated[str, Meta(description="Its text, here and nowhere else.")] | UnsetType = UNSET
    prior_retires_at: Annotated[str, Meta(description="When the text before the rotation ends.")] | UnsetType = UNSET
    warning: str


class TokenRetiredAnswer(Output, frozen=True, kw_only=True):
    def_id: str
    name: str
    retired: bool


class TokenVersions(Output, frozen=True, kw_only=True):
    name: str
    tokens: Annotated[list[TokenRow], Meta(description="The newest first.")]


class TokenNamesRow(Output, frozen=True, kw_only=True):
    """A name with its tokens; the last two are absent when none gives access."""

    name: str
    tenant_id: str
    version_count: int
    live_version_count: int
    latest_version: int
    last_updated: Time
    active_def_id: str | UnsetType = UNSET
    active_retired: bool | UnsetType = UNSET


class TokenNames(Output, frozen=True, kw_only=True):
    names: list[TokenNamesRow]


class RegisteredUser(Output, frozen=True, kw_only=True):
    tenant_id: str
    subject: str
    display_name: str
    access_mode: str
    status: str
    created_at: Time
    created_by: str


class UserTokenMade(Output, frozen=True, kw_only=True):
    """A new token of a user. A repeated request has no text: the first answer had it."""

    def_id: str
    token: Annotated[str, Meta(description="Its text, here and nowhere else.")] | UnsetType = UNSET
    token_suffix: str
    name: str
    scopes: list[str]
    created_at: Time
    expires_at: Time | UnsetType = UNSET
    warning: str


class UserTokenRow(Output, frozen=True, kw_only=True):
    def_id: str
    name: str
    scopes: list[str]
    created_at: Time
    expires_at: Time | UnsetType = UNSET
    retired_at: Time | UnsetType = UNSET
    active: bool


class UserTokens(Output, frozen=True, kw_only=True):
    subject: str
    tokens: Annotated[list[UserTokenRow], Meta(description="The newest first.")]


class UserTokenRevoked(Output, frozen=True, kw_only=True):
    def_id: str
    retired_at: Time


class CredentialUseRow(Output, frozen=True, kw_only=True):
    """What an agent and a user have used a credential for."""

    purpose: Annotated[str, Meta(description="Such as `tool mcp__crm__find`, `model anthropic`, `schedule nightly`.")]
    agent: str | UnsetType = UNSET
    user: str | UnsetType = UNSET
    run_id: Annotated[str, Meta(description="The last run with it: the root of its tree.")] | UnsetType = UNSET
    count: Annotated[int, Meta(description="Number of uses.")]
    last_used_at: Annotated[str, Meta(description="RFC 3339; a use is noted within a minute.")]


class CredentialRow(Output, frozen=True, kw_only=True):
    """A credential without its value."""

    name: str
    scope: str
    backend: str
    reference: Annotated[str, Meta(description="Where the value is in a store outside.")] | UnsetType = UNSET
    created_at: Time
    updated_at: Time
    scope_id: str | UnsetType = UNSET
    expires_at: Time | UnsetType = UNSET
    note: str | UnsetType = UNSET
    use_count: Annotated[int, Meta(description="Number of uses, of all versions.")] | UnsetType = UNSET
    last_used_at: Time | UnsetType = UNSET
    uses: (
        Annotated[
            list[CredentialUseRow],
            Meta(description="The last 20 by agent, user and purpose, newest first; not in lists."),
        ]
        | UnsetType
    ) = UNSET


class CredentialRows(Output, frozen=True, kw_only=True):
    scope: str
    credentials: Annotated[list[CredentialRow], Meta(description="Sorted by name.")]


class CredentialRemoved(Output, frozen=True, kw_only=True):
    name: str
    scope: str
    deleted: Annotated[bool, Meta(description="There was one.")]


class CredentialsRewrapped(Output, frozen=True, kw_only=True):
    rewrapped: Annotated[int, Meta(description="Values that are encrypted under the current key now.")]
    deleted: Annotated[int, Meta(description="Values that were not used, left over by processes that died.")]


class QuotaRow(Output, frozen=True, kw_only=True):
    """Bounds of a tenant, a user or a token; what has none is absent."""

    scope: str
    scope_id: str
    runs_at_once: int | UnsetType = UNSET
    runs_per_minute: int | UnsetType = UNSET
    calls_per_minute: int | UnsetType = UNSET
    open_streams: int | UnsetType = UNSET
    users: int | UnsetType = UNSET
    tokens: int | UnsetType = UNSET


class QuotaList(Output, frozen=True, kw_only=True):
    tenant_id: str
    quotas: list[QuotaRow]


# --- operations ------------------------------------------------------------------------------------------------------


def _as_tool_refusal(refused: Refused, *, tool: str = TOKEN_TOOL) -> Refused:
    """Return a refusal of an operation of a tool with the code tool_refused and its own as the reason."""
    if STATUS_BY_CODE.get(refused.code) == 503:  # nothing is wrong with the request
        return refused
    reason = refused.details.get("refusal", refused.code)
    return Refused("tool_refused", refused.message, details={"tool": tool, "reason": reason})


_operation = partial(Operation, tag=TAG, unavailable_code="identity_unavailable")
_route = Http(
    route="POST /v1/_operatortokendef",
    id="change_token",
    summary="Create, rotate, retire or read a token.",
    body_name="OperatorTokenOperation",
    example={"op": "list", "name": "ci"},
    takes_tenant=False,
    refusal_statuses=(422, 503),
)


def _of_tokens(op: str) -> Callable[..., AnyOperation]:
    """Return what declares an operation on tokens, which all share a route and a tool."""
    return partial(
        _operation,
        name=f"identity.{op}_token",
        access=requires(ADMIN),
        http=(replace(_route, op=op),),
        mcp=(McpTool(tool=TOKEN_TOOL.lower(), op=op),),
        refused=_as_tool_refusal,
    )


CREATE_TOKEN = _of_tokens("create")(
    summary="Make a token, or take one whose text is chosen.",
    input=TokenCreate,
    output=TokenMade,
    effect=Effect.WRITE,
)
ROTATE_TOKEN = _of_tokens("rotate")(
    summary="Give a token a new text; the old one gives access for a while.",
    input=TokenRotate,
    output=TokenMade,
    effect=Effect.WRITE,
)
RETIRE_TOKEN = _of_tokens("retire")(
    summary="End a token at once.", input=TokenRetire, output=TokenRetiredAnswer, effect=Effect.WRITE
)
GET_TOKEN = _of_tokens("get")(
    summary="Get a token, without its text.", input=TokenGet, output=TokenRow, effect=Effect.READ
)
LIST_TOKENS = _of_tokens("list")(
    summary="List the tokens of a name.", input=TokenList, output=TokenVersions, effect=Effect.READ
)
TOKEN_NAMES = _operation(
    name="identity.token_names",
    summary="List the names of tokens, with the number of tokens that each has had.",
    input=TokenNamesList,
    output=TokenNames,
    access=requires(ADMIN),
    effect=Effect.READ,
    http=(Http(route="GET /v1/_operatortokendef/names", id="list_token_names", takes_tenant=False),),
)

_user_operation = partial(
    _operation,
    access=requires(TENANT),
    invalid_code="invalid_body",
    field_codes={
        "subject": "missing_subject",
        "access_mode": "invalid_access_mode",
        "status": "invalid_status",
    },
    missing_codes={"subject": "missing_subject"},
)
REGISTER_USER = _user_operation(
    name="identity.register_user",
    summary="Register a user.",
    input=UserRegister,
    output=RegisteredUser,
    effect=Effect.WRITE,
    http=(
        Http(
            route="POST /v1/_users",
            id="register_user",
            status=201,
            example={"subject": "ada", "access_mode": "isolated"},
            refusal_statuses=(409,),
        ),
    ),
)
CHANGE_USER = _user_operation(
    name="identity.change_user",
    summary="Change a user; one that is disabled loses all tokens.",
    input=UserChange,
    output=RegisteredUser,
    effect=Effect.WRITE,
    http=(
        Http(
            route="PATCH /v1/_users/{subject}",
            id="change_user",
            refusal_statuses=(404,),
            example={"access_mode": "isolated"},
        ),
    ),
)
REMOVE_USER = _user_operation(
    name="identity.remove_user",
    summary="Remove a user and all tokens of that user.",
    input=UserNamed,
    output=NoOutput,
    effect=Effect.WRITE,
    http=(Http(route="DELETE /v1/_users/{subject}", id="remove_user", status=204, refusal_statuses=(404,)),),
)
MINT_USER_TOKEN = _user_operation(
    name="identity.mint_user_token",
    summary="Make a token of a user, with the scopes of the access mode.",
    input=UserTokenMint,
    output=UserTokenMade,
    effect=Effect.WRITE,
    http=(
        Http(
            route="POST /v1/_users/{subject}/tokens",
            id="mint_user_token",
            example={"name": "laptop"},
            status=201,
            body_optional=True,
            refusal_statuses=(404, 409),
        ),
    ),
)
LIST_USER_TOKENS = _user_operation(
    name="identity.list_user_tokens",
    summary="List the tokens of a user, without their texts.",
    input=UserNamed,
    output=UserTokens,
    effect=Effect.READ,
    http=(Http(route="GET /v1/_users/{subject}/tokens", id="list_user_tokens", refusal_statuses=(404,)),),
)
REVOKE_USER_TOKEN = _user_operation(
    name="identity.revoke_user_token",
    summary="End a token of a user at once.",
    input=UserTokenNamed,
    output=UserTokenRevoked,
    effect=Effect.WRITE,
    http=(Http(route="DELETE /v1/_users/{subject}/tokens/{def_id}", id="revoke_user_token", refusal_statuses=(404,)),),
)
LIST_QUOTAS = _operation(
    name="identity.list_quotas",
    summary="List the quotas of a tenant, of its users and of its tokens.",
    input=NoInput,
    output=QuotaList,
    access=requires(TENANT),
    effect=Effect.READ,
    http=(Http(route="GET /v1/_quotas", id="list_quotas"),),
)
SET_QUOTA = _operation(
    name="identity.set_quota",
    summary="Set the quota of a tenant, a user or a token; without any bound it is removed.",
    input=QuotaPut,
    output=QuotaRow,
    access=requires(ADMIN),
    effect=Effect.WRITE,
    http=(Http(route="PUT /v1/_quotas", id="set_quota", example={"scope": "tenant", "runs_at_once": 20}),),
)
_credential_route = Http(
    route="POST /v1/_credentialdef",
    id="change_credential",
    summary="Store, remove or list credentials; no value is ever shown.",
    body_name="CredentialOperation",
    example={"op": "list", "scope": "tenant"},
    refusal_statuses=(422, 503),
)


def _of_credentials(op: str) -> Callable[..., AnyOperation]:
    """Return what declares an operation on credentials, which all share a route and a tool."""
    return partial(
        _operation,
        name=f"identity.{op}_credential",
        access=requires(TENANT),
        http=(replace(_credential_route, op=op),),
        mcp=(McpTool(tool=CREDENTIAL_TOOL.lower(), op=op),),
        refused=partial(_as_tool_refusal, tool=CREDENTIAL_TOOL),
    )


CREATE_CREDENTIAL = _of_credentials("create")(
    summary="Store a credential, or a new value of one.",
    input=CredentialCreate,
    output=CredentialRow,
    effect=Effect.WRITE,
    secret_fields=("value",),
)
GET_CREDENTIAL = _of_credentials("get")(
    summary="Get a credential without its value.",
    input=CredentialNamed,
    output=CredentialRow,
    effect=Effect.READ,
)
LIST_CREDENTIALS = _of_credentials("list")(
    summary="List credentials without their values.",
    input=CredentialsList,
    output=CredentialRows,
    effect=Effect.READ,
)
DELETE_CREDENTIAL = _of_credentials("delete")(
    summary="Remove a credential with its value.",
    input=CredentialNamed,
    output=CredentialRemoved,
    effect=Effect.WRITE,
)
REWRAP_CREDENTIALS = _operation(
    name="identity.rewrap_credentials",
    summary="Encrypt all stored credentials under the current secret key; the previous one can go then.",
    input=NoInput,
    output=CredentialsRewrapped,
    access=requires(ADMIN),
    effect=Effect.WRITE,
    http=(Http(route="POST /v1/_credentialdef/rewrap", id="rewrap_credentials", takes_tenant=False),),
)
OPERATIONS = (
    CREATE_CREDENTIAL,
    GET_CREDENTIAL,
    LIST_CREDENTIALS,
    DELETE_CREDENTIAL,
    REWRAP_CREDENTIALS,
    CREATE_TOKEN,
    ROTATE_TOKEN,
    RETIRE_TOKEN,
    GET_TOKEN,
    LIST_TOKENS,
    TOKEN_NAMES,
    REGISTER_USER,
    CHANGE_USER,
    REMOVE_USER,
    MINT_USER_TOKEN,
    LIST_USER_TOKENS,
    REVOKE_USER_TOKEN,
    LIST_QUOTAS,
    SET_QUOTA,
)
