"""The state of who has access: tokens, users, quotas and credentials of one aggregate, and what an event makes of them.

A tenant is divided into shards, because a state must fit one row. What has to be decided together is in one shard: all
tokens of a name, a user with all tokens of that user. Tokens of administrators are one aggregate of the installation,
whichever tenant their holders belong to, so that the last one is known.

Before: decide.py has an event, or a checkpoint a state. After: directory.py finds tokens and users in all of them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar, assert_never

from msgspec import field

from loomlog.schemas.generated.identity_events import (
    CredentialNoted,
    CredentialsUsed,
    QuotaSet,
    TokenMinted,
    TokenRetired,
    TokenRotated,
    UserChanged,
    UserRegistered,
    UserRemoved,
)
from loomlog.schemas.generated.values import AccessToken, CredentialUse, TenantQuota
from loomlog.schemas.records import Value, copy_as, replace
from loomlog.services.core.access.scopes import (
    ADMIN,
    CHANNEL_PUBLISH,
    CHANNEL_READ,
    RUNS_CREATE,
    RUNS_READ,
    TENANT,
    USER,
)
from loomlog.services.core.families import INSTALLATION
from loomlog.services.families.identity import limits

NAME = "identity"
ValueT = TypeVar("ValueT")
ACTIVE, DISABLED = "active", "disabled"
STATUSES = (ACTIVE, DISABLED)
TENANT_WIDE, ISOLATED = "tenant", "isolated"
SCOPES_OF_MODE: Mapping[str, tuple[str, ...]] = {
    TENANT_WIDE: (RUNS_CREATE, RUNS_READ, CHANNEL_PUBLISH, CHANNEL_READ),
    ISOLATED: (USER,),
}
"""Scopes of a user's tokens by access mode (parity: reference surfaces 1.8)."""
QUOTA_SCOPES = ("tenant", "user", "key")
CREDENTIAL_SCOPES = ("tenant", "user", "agent")

IdentityEvent = (
    TokenMinted
    | TokenRotated
    | TokenRetired
    | UserRegistered
    | UserChanged
    | UserRemoved
    | QuotaSet
    | CredentialNoted
    | CredentialsUsed
)


class Token(Value, frozen=True, kw_only=True):
    """A token; the fields are those of AccessToken."""

    def_id: str
    name: str
    tenant: str
    subject: str
    user: str = ""
    scopes: tuple[str, ...] = ()
    hashed: str
    suffix: str = ""
    expires_at_ms: int = 0
    is_imported: bool = False
    created_at_ms: int = 0
    created_by: str = ""
    retired_at_ms: int = 0
    """When it ends or has ended, by a retirement or at the end of a rotation's grace; 0: it is not retired."""
    rotated_from: str = ""
    """Id of the token that it has replaced."""

    @property
    def is_isolated(self) -> bool:
        """Whether its holder is confined to its own subject."""
        return USER in self.scopes and not {ADMIN, TENANT} & set(self.scopes)

    def is_in_force(self, now_ms: int) -> bool:
        """Whether its text gives access."""
        return not (0 < self.retired_at_ms <= now_ms or 0 < self.expires_at_ms <= now_ms)


class User(Value, frozen=True, kw_only=True):
    """A registered user. `display_name` is content: encrypted where there are keys."""

    subject: str
    display_name: str = ""
    access_mode: str
    status: str
    created_at_ms: int = 0
    created_by: str = ""


class UseOfCredential(Value, frozen=True, kw_only=True):
    """What an agent and a user have used a credential for."""

    purpose: str
    agent: str = ""
    user: str = ""
    run_id: str = ""
    """The last run with it."""
    count: int = 0
    at_ms: int = 0
    """When the last use was noted."""


class Credential(Value, frozen=True, kw_only=True):
    """What is known of a credential besides its value."""

    scope: str
    scope_id: str = ""
    name: str
    version: int
    reference: str = ""
    expires_at_ms: int = 0
    created_at_ms: int = 0
    updated_at_ms: int = 0
    uses: tuple[UseOfCredential, ...] = ()
    """The last USES_KEPT_MAX, newest first."""
    use_count: int = 0


class Identity(Value, frozen=True, kw_only=True):
    """The tokens, users, quotas and credentials of an aggregate."""

    tenant: str = ""
    """Empty: it is that of the installation."""
    tokens: Mapping[str, Token] = field(default_factory=dict)
    """By id, in the order in which they were made."""
    users: Mapping[str, User] = field(default_factory=dict)
    """By subject."""
    quotas: Mapping[str, TenantQuota] = field(default_factory=dict)
    """By `entry_key`."""
    credentials: Mapping[str, Credential] = field(default_factory=dict)
    """By `entry_key`."""
    is_shared_superseded: bool = False
    """The shared token gives no access any more."""

    def tokens_of(self, user: str, name: str = "") -> list[Token]:
        """Return the tokens of a user; without one, those of a name."""
        return [one for one in self.tokens.values() if (one.user == user if user else one.name == name)]


def initial(aggregate: str) -> Identity:
    """Return the state of an aggregate without events."""
    return Identity(tenant=aggregate.partition(":")[2].rpartition("/")[0])


def shard_of(kind: str, *parts: str) -> str:
    """Return the name of the aggregate of a tenant in which something is decided."""
    digest = hashlib.sha256(entry_key(kind, *parts).encode("utf-8", "surrogatepass")).digest()
    return f"{digest[0] % limits.SHARDS:02x}"


def shard_of_credential(scope: str, scope_id: str, name: str) -> str:
    """Return the aggregate of a credential."""
    return shard_of("credential", scope, scope_id, name)


def shard_of_token(tenant: str, user: str, name: str) -> str:
    """Return the aggregate of a token. `tenant` empty: it is one of an administrator."""
    if not tenant:
        return INSTALLATION
    return shard_of("user", user) if user else shard_of("token", name)


def entry_key(*parts: str) -> str:
    """Return the name of an entry; names have no line breaks (decide.py)."""
    return "\n".join(parts)


def evolve(state: Identity, event: IdentityEvent, at_ms: int) -> Identity:
    """Return the state after an event."""
    match event:
        case TokenMinted(token=token):
            minted = token_of(token, at_ms, event.by)
            superseded = state.is_shared_superseded or event.supersede_shared
            return replace(_with_token(state, minted), is_shared_superseded=superseded)
        case TokenRotated(def_id=def_id, token=token):
            retired = _retired(state, (def_id,), event.retired_at_ms)
            return _with_token(retired, replace(token_of(token, at_ms, event.by), rotated_from=def_id))
        case TokenRetired(def_id=def_id):
            return _retired(state, (def_id,), at_ms)
        case UserRegistered():
            return _with_user(state, _user_of(event, at_ms, event.by))
        case UserChanged():
            return _changed(state, event, at_ms)
        case UserRemoved(subject=subject):
            ended = _retired(state, [one.def_id for one in state.tokens_of(subject)], at_ms)
            return replace(ended, users={key: one for key, one in ended.users.items() if key != subject})
        case QuotaSet():
            key = entry_key(event.scope, event.scope_id)
            others = {other: quota for other, quota in state.quotas.items() if other != key}
            return replace(state, quotas=others if event.quota == TenantQuota() else {**others, key: event.quota})
        case CredentialNoted():
            return _with_credential(state, event, at_ms)
        case CredentialsUsed(uses=uses):
            return replace(state, credentials=_with_uses(state.credentials, uses, at_ms))
        case _:
            assert_never(event)


def token_of(token: AccessToken, at_ms: int, by: str) -> Token:
    """Return the token that an event makes."""
    return copy_as(
        Token,
        token,
        tenant=_shared(token.tenant),
        scopes=_shared(token.scopes),
        created_at_ms=at_ms,
        created_by=_shared(by),
    )


@lru_cache(maxsize=4_096)
def _shared(value: ValueT) -> ValueT:
    """Return the one object with that value: many tokens have the same scopes, and each process has all tokens."""
    return value


def _with_token(state: Identity, token: Token) -> Identity:
    """Return the state with a token, and without the oldest ended ones of its name or user."""
    ended = [one.def_id for one in state.tokens_of(token.user, token.name) if one.retired_at_ms]
    dropped = set(ended[: max(0, len(ended) - limits.RETIRED_KEPT_MAX)])
    kept = {key: one for key, one in state.tokens.items() if key not in dropped} if dropped else state.tokens
    return replace(state, tokens={**kept, token.def_id: token})


def _retired(state: Identity, def_ids: Any, at_ms: int) -> Identity:
    tokens = dict(state.tokens)
    for def_id in def_ids:
        token = tokens.get(def_id)
        if token is not None and not 0 < token.retired_at_ms <= at_ms:
            tokens[def_id] = replace(token, retired_at_ms=at_ms)
    return replace(state, tokens=tokens)


def _with_user(state: Identity, user: User) -> Identity:
    return replace(state, users={**state.users, user.subject: user})


def _user_of(event: UserRegistered | UserChanged, at_ms: int, by: str) -> User:
    return copy_as(User, event, created_at_ms=at_ms, created_by=by)


def _changed(state: Identity, event: UserChanged, at_ms: int) -> Identity:
    """Return the state with a changed user, whose tokens have the scopes of the access mode, or have ended."""
    before = state.users.get(event.subject)
    user = _user_of(event, at_ms, event.by)
    if before is not None:
        user = replace(user, created_at_ms=before.created_at_ms, created_by=before.created_by)
    scopes = SCOPES_OF_MODE.get(user.access_mode, ())
    tokens = {
        key: replace(one, scopes=scopes) if one.user == user.subject else one for key, one in state.tokens.items()
    }
    after = replace(_with_user(state, user), tokens=tokens)
    if user.status == ACTIVE:
        return after
    return _retired(after, [one.def_id for one in after.tokens_of(user.subject)], at_ms)


def _with_credential(state: Identity, event: CredentialNoted, at_ms: int) -> Identity:
    key = entry_key(event.scope, event.scope_id, event.name)
    before = state.credentials.get(key)
    others = {other: one for other, one in state.credentials.items() if other != key}
    if not event.version:
        return replace(state, credentials=others)
    credential = copy_as(
        Credential,
        event,
        created_at_ms=at_ms if before is None else before.created_at_ms,
        updated_at_ms=at_ms,
        uses=() if before is None else before.uses,
        use_count=0 if before is None else before.use_count,
    )
    return replace(state, credentials={**others, key: credential})


def _with_uses(
    credentials: Mapping[str, Credential], uses: Sequence[CredentialUse], at_ms: int
) -> Mapping[str, Credential]:
    changed = dict(credentials)
    for use in uses:
        key = entry_key(use.scope, use.scope_id, use.name)
        credential = changed.get(key)
        if credential is None:
            continue
        who = (use.purpose, use.agent, use.user)
        before = next((one for one in credential.uses if (one.purpose, one.agent, one.user) == who), None)
        newest = UseOfCredential(
            purpose=use.purpose,
            agent=use.agent,
            user=use.user,
            run_id=use.run_id,
            count=use.count + (0 if before is None else before.count),
            at_ms=at_ms,
        )
        others = [one for one in credential.uses if one is not before]
        kept = (newest, *others)[: limits.USES_KEPT_MAX]
        changed[key] = replace(credential, uses=kept, use_count=credential.use_count + use.count)
    return changed
