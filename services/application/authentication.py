"""Resolves a token to a Caller, and checks scopes.

The table of tokens belongs to a connector (connectors.configuration.principals: hashes, compared in constant time), as
do the tokens of identity providers (connectors.identity_providers); what a caller may do is defined in the core
(loomlog.services.core.access). They meet here, once for all transports. All tokens that do not count get one answer.

A transport asks `require_access` with the access that the operation declares, before it reads a request; use cases ask
`require_scope` only for what depends on the content.

Before: a transport passes the header. After: the use cases.
"""

from loomlog.connectors.configuration.principals import (
    OPEN_PRINCIPAL,
    Principal,
    TokenTable,
    bearer_token,
    find_principal,
)
from loomlog.connectors.errors import Transient
from loomlog.connectors.identity_providers.providers import IdentityProviders
from loomlog.schemas.records import replace
from loomlog.services.core.access.decide import Caller, ResourceOwner, can_control, has_scope, may_call
from loomlog.services.core.access.rules import Access
from loomlog.services.core.access.scopes import OPERATOR_KEY, TENANT
from loomlog.services.core.refusals import Refused


class Authenticator:
    """Authenticates callers of one configuration. With `restricts_operator_key` only callers with that scope may use
    the operator's provider keys.
    """

    def __init__(
        self, table: TokenTable, *, restricts_operator_key: bool = False, providers: IdentityProviders | None = None
    ) -> None:
        self.providers = providers or IdentityProviders({})
        self._table = table
        self._restricts_operator_key = restricts_operator_key
        self._callers: dict[Principal, Caller] = {}
        self._isolated_users: dict[str, frozenset[str]] = {}
        for _, principal in table.rows:
            if principal.is_isolated:
                others = self._isolated_users.get(principal.tenant, frozenset())
                self._isolated_users[principal.tenant] = others | {principal.subject}

    @property
    def open_mode(self) -> bool:
        return self._table.open_mode

    async def authenticate(self, authorization: str | None) -> Caller:
        """As identify, once the keys that the token of an identity provider needs were fetched. Raises Refused."""
        if self.providers.by_name:
            await self.providers.prepare(bearer_token(authorization))
        return self.identify(authorization)

    def identify(self, authorization: str | None) -> Caller:
        """Return the caller of an Authorization header. Raises Refused: unauthorized, or identity_unavailable while no
        key of the provider that the token names is known.
        """
        text = bearer_token(authorization)
        principal = self._principal(text)
        if principal is None:
            why = "the token is not known, or the header has another form" if authorization else "there is no token"
            raise Refused("unauthorized", f"{why}; send Authorization: Bearer <token>")
        caller = self._callers.get(principal)
        if caller is None:
            caller = _to_caller(principal, open_mode=self._table.open_mode)
            if self._restricts_operator_key and not has_scope(caller, OPERATOR_KEY):
                caller = replace(caller, operator_key_restricted=True)
            if principal.is_member:
                caller = replace(caller, isolated_users=self._isolated_users.get(caller.tenant, frozenset()))
            if principal.expires_at_s is None:
                self._callers[principal] = caller
        return caller

    def _principal(self, text: str) -> Principal | None:
        if self._table.open_mode:
            return OPEN_PRINCIPAL
        return (find_principal(self._table, text) or self._find_at_providers(text)) if text else None

    def _find_at_providers(self, text: str) -> Principal | None:
        """Return the principal of a token of an identity provider. Raises Refused(identity_unavailable)."""
        if not self.providers.by_name:
            return None
        try:
            return self.providers.find_principal(text)
        except Transient as error:
            text = f"{error}, so its tokens cannot be checked; try again in a moment"
            raise Refused("identity_unavailable", text, retry_after_s=int(error.retry_after_s or 1)) from error


def require_scope(caller: Caller, scope: str) -> None:
    """Raise Refused(insufficient_scope) unless the caller has the scope."""
    if not has_scope(caller, scope):
        raise Refused("insufficient_scope", f"this needs the scope {scope}", details={"scope": scope})


def require_access(caller: Caller, access: Access) -> None:
    """Raise Refused(insufficient_scope) unless the caller may call an operation with this access."""
    if may_call(caller, access):
        return
    text = f"this needs the scope {access.needed}"
    if caller.is_isolated and not access.takes_isolated:
        text += ", and the token is confined to its own user"
    raise Refused("insufficient_scope", text, details={"scope": " ".join(access.scopes)})


def require_control(caller: Caller, owner: ResourceOwner) -> None:
    """Raise Refused(insufficient_scope) when the runs of the owner are closed to the caller."""
    if not can_control(caller, owner):
        text = f"this is a run of the isolated user {owner.user_id}: only that user and operators may change it"
        raise Refused("insufficient_scope", text, details={"scope": TENANT})


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
