"""Stored credentials of a subject that is erased.

Before: services/application/admin/erasure.py. After: services/families/identity/credential_removal.py.
"""

from collections.abc import Mapping
from typing import Protocol

from loomlog.connectors.storage.stored_credentials import CredentialKey


class CredentialErasure(Protocol):
    """Finds and removes the stored credentials of a subject."""

    def of_subject(self, tenant: str, user: str) -> Mapping[CredentialKey, int]:
        """Return the credentials of a user with their versions; of the user "", those of the tenant and its agents."""
        ...

    async def erase_subject(self, tenant: str, user: str, *, erasure_id: str, by: str) -> int:
        """Return how many credentials were removed. Raises Refused, Unavailable, ConnectorError; repeat it then."""
        ...
