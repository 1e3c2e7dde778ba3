"""Callers by the texts of their tokens, for the authentication of requests.

Before: services/application/authentication.py. After: services/families/identity/directory.py.
"""

from typing import Protocol

from loomlog.services.core.access.decide import Caller


class CallerDirectory(Protocol):
    """The tokens and users of all tenants, as this process has read them."""

    @property
    def is_shared_superseded(self) -> bool:
        """Whether the shared token of the settings gives no access any more."""
        ...

    def find_caller(self, text: str) -> Caller | None:
        """Return the caller whose token in force has the text. Raises Refused(identity_unavailable)."""
        ...

    def is_in_force(self, token_id: str) -> bool:
        """Whether a token gives access."""
        ...

    def is_isolated(self, tenant: str, subject: str) -> bool:
        """Whether a subject is confined to its own data."""
        ...
