"""The access of an operation, as data: which scopes its caller holds, and whether isolated callers may call it.

Every operation names its access once, in the row that declares it (the table of routes, the command of a family). The
shells ask decide.may_call before they read a request, so no use case asks again; what depends on the content of a
request, such as the hooks of a run, is asked where the content is known.

Isolated callers are confined to their own subject. An operation on data of the whole tenant does not take them,
whatever else they hold; one that confines them itself does.

Before: scopes.py. After: decide.py.
"""

from loomlog.schemas.records import Value
from loomlog.services.core.access.scopes import SCOPES, USER


class Access(Value, frozen=True, kw_only=True):
    """Requirements for the caller of an operation."""

    scopes: tuple[str, ...] = ()
    """All of them are needed, each held itself or through one that includes it; with `is_any` one is enough."""
    is_any: bool = False
    takes_isolated: bool = False
    """Whether isolated callers may call it, on their own data."""
    is_public: bool = False
    """It needs no token."""

    def __str__(self) -> str:
        if self.is_public:
            return "public"
        if not self.scopes:
            return "any caller"
        text = ("scope " if len(self.scopes) == 1 else "scopes ") + self.needed
        return f"{text}; isolated users: their own data" if self.takes_isolated else text

    @property
    def needed(self) -> str:
        """The scopes, for people."""
        return (" or " if self.is_any else " and ").join(self.scopes)


PUBLIC = Access(is_public=True, takes_isolated=True)
ANY_CALLER = Access(takes_isolated=True)


def requires(*scopes: str) -> Access:
    """Return the access of an operation on data of the whole tenant, or of the installation."""
    return _with_scopes(Access(scopes=scopes))


def requires_any(*scopes: str) -> Access:
    """Return the access of an operation for which one of the scopes is enough to begin with."""
    return _with_scopes(Access(scopes=scopes, is_any=True))


def own_data(*scopes: str) -> Access:
    """Return the access of an operation that confines isolated callers to their own data."""
    return _with_scopes(Access(scopes=scopes, takes_isolated=True))


def of_family(scope: str) -> Access:
    """Return the access of what a family declares: its aggregates belong to a tenant, unless the scope is that of
    isolated users.
    """
    return own_data(scope) if scope == USER else requires(scope)


def _with_scopes(access: Access) -> Access:
    assert access.scopes, "an operation names a scope"
    for scope in access.scopes:
        assert scope in SCOPES, f"{scope!r} is not in the catalogue of scopes"
    return access
