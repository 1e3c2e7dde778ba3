"""The values of stored credentials, for what uses them by name: keys of providers, headers, environments of tools.

Before: runs and what starts them. After: services/families/identity/credentials.py.
"""

from collections.abc import Iterable
from typing import ClassVar, Protocol

from loomlog.connectors.storage.stored_credentials import CredentialKey
from loomlog.schemas.records import Secretive, Value


class CredentialUser(Value, frozen=True, kw_only=True):
    """The user of a credential: a run, or what starts one."""

    tenant: str
    user: str = ""
    agent: str = ""
    purpose: str = ""
    """What for, such as `tool mcp__crm__find`; empty: the use is not noted."""
    run_id: str = ""
    """The run, or the root of its tree."""


class CredentialValue(Secretive, frozen=True, kw_only=True):
    """The value of a credential at one time, and whose it is."""

    SECRETS: ClassVar[frozenset[str]] = frozenset({"value"})

    key: CredentialKey
    value: str


class CredentialValues(Protocol):
    """Finds credentials and reads their values. No error says a value."""

    def has(self, name: str, user: CredentialUser) -> bool:
        """Whether there is a credential of that name for the user, as far as this process has read."""
        ...

    async def find_value(self, name: str, user: CredentialUser) -> CredentialValue | None:
        """Return the value of a name; None: there is no such credential. Raises Permanent and Transient."""
        ...

    async def resolve(self, reference: str, user: CredentialUser) -> CredentialValue:
        """Return the value that a reference like $cred:git means now. Raises Permanent and Transient."""
        ...

    async def resolve_known(self, references: Iterable[str], user: CredentialUser) -> dict[str, CredentialValue]:
        """Return the values of references by them, without those that name nothing. Raises as `resolve` does."""
        ...
