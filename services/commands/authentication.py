"""From a token to a Caller, and the one sentence with which a right is demanded.

The table of tokens is a connector's (connectors.configuration.principals: hashes, compared in constant time); what a
caller may do is the core's (services.core.access). Here the two meet, once for all transports.

Before: a transport hands over what it got. After: every use case begins with `demand`.
"""

from connectors.configuration.principals import Principal, TokenTable, authenticate
from services.commands.declined import Declined
from services.core.access.decide import Caller, may


class Gate:
    """Knows the callers of one configuration."""

    def __init__(self, table: TokenTable) -> None:
        self._table = table
        self._callers: dict[Principal, Caller] = {}

    @property
    def open_mode(self) -> bool:
        return self._table.open_mode

    def identify(self, authorization: str | None) -> Caller:
        """Whom an Authorization header belongs to. Raises Declined(unauthorized)."""
        principal = authenticate(self._table, authorization)
        if principal is None:
            why = "the token is not known, or the header has another form" if authorization else "there is no token"
            raise Declined("unauthorized", f"{why}; send Authorization: Bearer <token>")
        caller = self._callers.get(principal)
        if caller is None:
            caller = self._callers[principal] = _caller(principal, open_mode=self._table.open_mode)
        return caller


def demand(caller: Caller, scope: str) -> None:
    """Raises Declined(insufficient_scope) unless the caller may do what needs the scope."""
    if not may(caller, scope):
        raise Declined("insufficient_scope", f"this needs the scope {scope}", details={"scope": scope})


def _caller(principal: Principal, *, open_mode: bool) -> Caller:
    return Caller(
        name=principal.name,
        tenant=principal.tenant,
        subject=principal.subject,
        scopes=principal.scopes,
        legacy=principal.legacy,
        open_mode=open_mode,
    )
