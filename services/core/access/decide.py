"""The decisions about access, each once and for every transport: may it, does it see it, in whose name does it act.

    may(caller, scope)            the right to do a kind of thing
    sees(caller, owner)           the right to know that a thing exists; what is not seen is answered as if it were not
    reach(caller)                 the same right for lists: which tenant and which user a query is confined to
    identity(caller, ...)         in whose name a run works, whatever the request says

An isolated caller is confined to its own subject everywhere, in reads, streams and cancels alike; the reference forgot
it in three of those places.

Before: services/application/authentication.py makes a Caller from a token. After: every use case of services/commands.
"""

from loomlog.schemas.records import Value
from loomlog.services.core.access.scopes import ADMIN, INCLUDES, SCOPES, TENANT, USER

DEFAULT_USER = "default"
"""The user of a run that the shared token starts without naming one."""


class Caller(Value, frozen=True, kw_only=True):
    """Who asks. `legacy` marks the shared token: its requests may name the user they work for."""

    name: str
    tenant: str
    subject: str
    scopes: frozenset[str]
    legacy: bool = False
    open_mode: bool = False
    operator_key_restricted: bool = False
    """Its runs may not spend the operator's provider keys."""

    @property
    def is_admin(self) -> bool:
        return ADMIN in self.scopes

    @property
    def is_isolated(self) -> bool:
        """Confined to its own subject."""
        return USER in self.scopes and not self.scopes & {ADMIN, TENANT}


class ResourceOwner(Value, frozen=True, kw_only=True):
    """Whose a thing is."""

    tenant: str
    user_id: str
    is_foreign: bool = False
    """The user is the one an imported run says it had: it is shown with it, and nothing new is done in its name."""


class AccessFilter(Value, frozen=True, kw_only=True):
    """What a list may hold; None leaves it open."""

    tenant: str | None
    user_id: str | None


class RunIdentity(Value, frozen=True, kw_only=True):
    """In whose name a run works."""

    tenant: str
    subject: str
    user_id: str
    operator_key_restricted: bool = False
    """As in Caller."""


def has_scope(caller: Caller, scope: str) -> bool:
    """Whether the caller holds the scope or one that includes it."""
    assert scope in SCOPES, f"{scope!r} is not in the catalogue of scopes"
    return scope in caller.scopes or any(scope in INCLUDES.get(held, ()) for held in caller.scopes)


def can_see(caller: Caller, owner: ResourceOwner) -> bool:
    """Whether the thing exists as far as this caller is concerned."""
    if caller.is_admin:
        return True
    if caller.tenant != owner.tenant:
        return False
    return not caller.is_isolated or owner.user_id == caller.subject


def access_filter(caller: Caller) -> AccessFilter:
    """The widest list the caller may have."""
    if caller.is_admin:
        return AccessFilter(tenant=None, user_id=None)
    return AccessFilter(tenant=caller.tenant, user_id=caller.subject if caller.is_isolated else None)


def resolve_identity(caller: Caller, *, user_id: str, session: ResourceOwner | None = None) -> RunIdentity:
    """In whose name a new run works. A tenant on the wire is never heard; a user only from the shared token.

    `session` is the owner of the session that is continued: its runs stay with its tenant and its user, unless the user
    is hearsay.
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
