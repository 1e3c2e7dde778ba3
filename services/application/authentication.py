"""Resolves a token to a Caller, and checks scopes.

Minted tokens and the tokens of users are found first, in the directory that this process folds from the log; then those
of the files and the shared one, whose table belongs to a connector (connectors.configuration.principals: hashes,
compared in constant time), and last those of identity providers (connectors.identity_providers). What a caller may do
is defined in the core (loomlog.services.core.access). They meet here, once for all transports. All tokens that do not
count are one refusal: it does not tell which it was.

The dispatch asks `require_access` with the access that the operation declares, and so does a transport before it reads
a request. Use cases ask for what no declaration says: what the hooks of a run need (runs/start.py), and whether a run
is open to the caller (queries/runs.py).

Before: a transport passes the header. After: the use cases.
"""

import time
from collections.abc import Callable, Container
from dataclasses import dataclass

from loomlog.connectors.configuration.principals import (
    OPEN_PRINCIPAL,
    Principal,
    TokenTable,
    bearer_token,
    find_principal,
)
from loomlog.connectors.crypto.operator_tokens import PREFIX
from loomlog.connectors.errors import Transient
from loomlog.connectors.identity_providers.providers import IdentityProviders
from loomlog.schemas.records import replace
from loomlog.services.core.access.decide import Caller, has_scope, may_call
from loomlog.services.core.access.rules import Access
from loomlog.services.core.access.scopes import ADMIN, OPERATOR_KEY, TENANT, USER
from loomlog.services.core.refusals import Refused
from loomlog.services.families.ports.callers import CallerDirectory

RETRY_SOON_S = 1


class Authenticator:
    """Authenticates callers of one configuration. With `restricts_operator_key` only callers with that scope may use
    the operator's provider keys. `has_minted`: there may be tokens beside those of the table, so while the directory
    is not open yet nothing is known of other texts.
    """

    directory: CallerDirectory | None = None
    """The minted tokens, once they are read."""

    def __init__(
        self,
        table: TokenTable,
        *,
        restricts_operator_key: bool = False,
        has_minted: bool = False,
        providers: IdentityProviders | None = None,
        time_s: Callable[[], float] = time.time,
    ) -> None:
        self.providers = providers or IdentityProviders({})
        self._time_s = time_s
        self._table = table
        self._restricts_operator_key = restricts_operator_key
        self._has_minted = has_minted
        self._callers: dict[Principal, Caller] = {}
        self._isolated = frozenset((one.tenant, one.subject) for _, one in table.rows if one.is_isolated)
        self._isolated_users: dict[str, IsolatedUsers] = {}

    @property
    def open_mode(self) -> bool:
        return self._table.open_mode

    async def authenticate(self, authorization: str | None) -> Caller:
        """As identify, once the keys that the token of an identity provider needs were fetched. Raises Refused."""
        if self.providers.by_name:
            await self.providers.prepare(bearer_token(authorization))
        return self.identify(authorization)

    def identify(self, authorization: str | None) -> Caller:
        """Return the caller of an Authorization header. Raises Refused: unauthorized, or identity_unavailable and
        starting while it is not known whether a minted token is in force, or no key of the provider is known that the
        token names.
        """
        text = bearer_token(authorization)
        if text and self.directory is not None and (caller := self.directory.find_caller(text)) is not None:
            return self._restricted(caller, is_member=not caller.scopes & {ADMIN, TENANT, USER})
        principal = self._principal(text)
        if principal is None:
            why = "the token is not known, or the header has another form" if authorization else "there is no token"
            raise Refused("unauthorized", f"{why}; send Authorization: Bearer <token>")
        known = self._callers.get(principal)
        if known is not None:
            return known
        made = _to_caller(principal, open_mode=principal is OPEN_PRINCIPAL)
        caller = self._restricted(made, is_member=principal.is_member)
        if principal.expires_at_s is None:
            self._callers[principal] = caller
        return caller

    def named(self, name: str) -> Caller | None:
        """Return the caller that a principal of the table is; None when none has that name."""
        principal = next((one for _, one in self._table.rows if one.name == name), None)
        return None if principal is None else _to_caller(principal, open_mode=False)

    def is_isolated(self, tenant: str, subject: str) -> bool:
        """Whether a subject is confined to itself, by the files or by a decision."""
        if (tenant, subject) in self._isolated:
            return True
        return self.directory is not None and self.directory.is_isolated(tenant, subject)

    def is_in_force(self, caller: Caller) -> bool:
        """Whether the token of a caller still gives access; those of the files do until the process ends."""
        if caller.expires_at_ms is not None and caller.expires_at_ms <= self._time_s() * 1000:
            return False
        if not caller.token_id:
            return not (caller.legacy and self._is_shared_superseded)
        return self.directory is not None and self.directory.is_in_force(caller.token_id)

    @property
    def _is_shared_superseded(self) -> bool:
        return self.directory is not None and self.directory.is_shared_superseded

    def _principal(self, text: str) -> Principal | None:
        """Return the principal of the files, or the shared or open one. Raises Refused(starting)."""
        principal = (find_principal(self._table, text) or self._find_at_providers(text)) if text else None
        if principal is None and text and self._has_minted and self.directory is None:
            raise Refused("starting", "the tokens are not read yet; try again", retry_after_s=RETRY_SOON_S)
        if principal is None and self._table.open_mode:
            # A minted token that has ended does not become an administrator.
            return None if text.startswith(PREFIX) else OPEN_PRINCIPAL
        return None if principal is not None and principal.legacy and self._is_shared_superseded else principal

    def _find_at_providers(self, text: str) -> Principal | None:
        """Return the principal of a token of an identity provider. Raises Refused(identity_unavailable)."""
        if not self.providers.by_name:
            return None
        try:
            return self.providers.find_principal(text)
        except Transient as error:
            text = f"{error}, so its tokens cannot be checked; try again in a moment"
            raise Refused("identity_unavailable", text, retry_after_s=int(error.retry_after_s or 1)) from error

    def _restricted(self, caller: Caller, *, is_member: bool) -> Caller:
        if self._restricts_operator_key and not has_scope(caller, OPERATOR_KEY):
            caller = replace(caller, operator_key_restricted=True)
        if not is_member:
            return caller
        if caller.tenant not in self._isolated_users:
            self._isolated_users[caller.tenant] = IsolatedUsers(self, caller.tenant)
        return replace(caller, isolated_users=self._isolated_users[caller.tenant])


@dataclass(frozen=True, slots=True, eq=False)
class IsolatedUsers(Container[str]):
    """The subjects of a tenant that are confined to themselves, as they are at the moment."""

    authenticator: Authenticator
    tenant: str

    def __contains__(self, subject: object) -> bool:
        return self.authenticator.is_isolated(self.tenant, str(subject))


def require_access(caller: Caller, access: Access) -> None:
    """Raise Refused(insufficient_scope) unless the caller may call an operation with this access."""
    if may_call(caller, access):
        return
    text = f"this needs the scope {access.needed}"
    if caller.is_isolated and not access.takes_isolated:
        text += ", and the token is confined to its own user"
    raise Refused("insufficient_scope", text, details={"scope": " ".join(access.scopes)})


def _to_caller(principal: Principal, *, open_mode: bool) -> Caller:
    return Caller(
        name=principal.name,
        tenant=principal.tenant,
        subject=principal.subject,
        scopes=principal.scopes,
        legacy=principal.legacy,
        open_mode=open_mode,
        expires_at_ms=None if principal.expires_at_s is None else principal.expires_at_s * 1000,
    )
