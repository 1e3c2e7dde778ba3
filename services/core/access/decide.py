"""Access decisions, each made once and for every transport: permission, visibility, identity.

    may_call(caller, access)        permission for an operation, by the access that it names (rules.py)
    has_scope(caller, scope)        permission for a kind of operation
    can_see(caller, owner)          permission to know that a thing exists; otherwise the response is "not found"
    can_control(caller, owner)      permission to change it; the runs of isolated callers are closed to members
    access_filter(caller)           permission to see, for lists: the tenant and the user a query is confined to
    resolve_tenant(caller, named)   the tenant of a request
    resolve_identity(caller, ...)   the identity of a new run, whatever the request contains

An isolated caller is confined to its own subject everywhere, in reads, streams and cancels alike; the reference omits
it in three of those places.

Before: services/application/authentication.py makes a Caller from a token. After: every use case of
services/application.
"""

import re
from collections.abc import Container
from functools import lru_cache

from loomlog.schemas.records import Value
from loomlog.services.core.access.rules import Access
from loomlog.services.core.access.scopes import ADMIN, INCLUDES, SCOPES, TENANT, USER
from loomlog.services.core.refusals import Refused
from loomlog.services.core.shares import Holder

TENANT_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z", re.ASCII)
"""As in the configuration. A slash in it would make the ids of two aggregates equal."""
SCOPE_SETS_MAX = 1_024
"""Sets of scopes whose inclusions are remembered; tokens have far fewer."""
DEFAULT_USER = "default"
"""User of a run that the shared token starts without naming one."""


class Caller(Value, frozen=True, kw_only=True):
    """An authenticated caller. `legacy` marks the shared token: its requests may name the user they act for."""

    name: str
    tenant: str
    subject: str
    scopes: frozenset[str]
    legacy: bool = False
    open_mode: bool = False
    operator_key_restricted: bool = False
    """The caller's runs may not use the operator's provider keys."""
    isolated_users: Container[str] = frozenset()
    """Subjects of the tenant's isolated callers, known of members only: they may see their runs, not control them."""
    token_id: str = ""
    """Id of a minted token; empty: the token is that of a file, or the shared one."""
    expires_at_ms: int | None = None
    """When the token counts no more and its open streams end; None: it does not expire."""

    @property
    def holder(self) -> Holder:
        """For whom the caller holds what tenants share."""
        return Holder(tenant=self.tenant, principal=self.subject)

    @property
    def is_admin(self) -> bool:
        return ADMIN in self.scopes

    @property
    def is_isolated(self) -> bool:
        """Whether the caller is confined to its own subject."""
        return USER in self.scopes and not self.scopes & {ADMIN, TENANT}


class ResourceOwner(Value, frozen=True, kw_only=True):
    """The owner of a resource."""

    tenant: str
    user_id: str
    is_foreign: bool = False
    """The user was named by an imported run: it is shown with the run, and nothing new is done in its name."""


class AccessFilter(Value, frozen=True, kw_only=True):
    """Restriction of a list query; None means no restriction."""

    tenant: str | None
    user_id: str | None


class RunIdentity(Value, frozen=True, kw_only=True):
    """The identity of a run."""

    tenant: str
    subject: str
    user_id: str
    operator_key_restricted: bool = False
    """As in Caller."""


def has_scope(caller: Caller, scope: str) -> bool:
    """Whether the caller holds the scope or one that includes it."""
    assert scope in SCOPES, f"{scope!r} is not in the catalogue of scopes"
    return scope in _with_included(caller.scopes)


def held_scopes(caller: Caller) -> frozenset[str]:
    """Return the scopes that the caller holds, with those that they include."""
    return _with_included(caller.scopes)


def may_call(caller: Caller, access: Access) -> bool:
    """Whether the caller may call an operation with this access."""
    if access.is_public:
        return True
    if caller.is_isolated and not access.takes_isolated:
        return False
    held = _with_included(caller.scopes)
    return not access.scopes or (
        not held.isdisjoint(access.scopes) if access.is_any else held.issuperset(access.scopes)
    )


@lru_cache(maxsize=SCOPE_SETS_MAX)
def _with_included(scopes: frozenset[str]) -> frozenset[str]:
    """Return scopes and what they include; every request asks several times."""
    return scopes.union(*(INCLUDES.get(scope, frozenset()) for scope in scopes))


def can_see(caller: Caller, owner: ResourceOwner) -> bool:
    """Whether a resource exists from the caller's point of view."""
    if caller.is_admin:
        return True
    if caller.tenant != owner.tenant:
        return False
    return not caller.is_isolated or owner.user_id == caller.subject


def can_control(caller: Caller, owner: ResourceOwner) -> bool:
    """Whether a caller who can see a run may also send to it, cancel it, fork it or continue its session."""
    return owner.user_id == caller.subject or owner.user_id not in caller.isolated_users


def access_filter(caller: Caller) -> AccessFilter:
    """Return the least restrictive filter that the caller may use for a list."""
    if caller.is_admin:
        return AccessFilter(tenant=None, user_id=None)
    return AccessFilter(tenant=caller.tenant, user_id=caller.subject if caller.is_isolated else None)


def resolve_tenant(caller: Caller, named: str) -> str:
    """Return the tenant of a request; administrators may name another one than their own. Raises Refused."""
    if not named or named == caller.tenant:
        return caller.tenant
    if not caller.is_admin:
        text = f"the tenant {named[:80]} is not yours"
        raise Refused("insufficient_scope", text, details={"scope": ADMIN})
    if not TENANT_NAME.match(named):
        raise Refused("bad_request", "tenant: expected at most 64 letters, digits, _ and -")
    return named


def resolve_identity(caller: Caller, *, user_id: str, session: ResourceOwner | None = None) -> RunIdentity:
    """Resolve the identity of a new run. A tenant in the request is ignored; a user counts only with the shared token.

    `session` is the owner of the continued session: its runs keep the session's tenant and its user, unless the user is
    foreign (`is_foreign`).
    """
    restricted = caller.operator_key_restricted
    if session is not None and not session.is_foreign:
        return RunIdentity(
            tenant=session.tenant,
            subject=caller.subject,
            user_id=session.user_id,
            operator_key_restricted=restricted,
        )
    user = (user_id or DEFAULT_USER) if caller.legacy else caller.subject
    tenant = caller.tenant if session is None else session.tenant
    return RunIdentity(tenant=tenant, subject=caller.subject, user_id=user, operator_key_restricted=restricted)
