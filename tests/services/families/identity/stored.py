"""Credentials as a process has read them, without a log."""

from collections.abc import Iterable, Sequence
from typing import Any

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.storage.stored_credentials import (
    CredentialKey,
    MemoryStoredCredentialRows,
    StoredCredentials,
)
from loomlog.services.families.identity.credentials import CredentialReader
from loomlog.services.families.identity.state import Credential, entry_key

KEY = SecretKey(keys=(bytes(32),))
ACME = "acme"


class Stored:
    """A directory (protocol of Directory, as far as credentials go) with sealed rows."""

    def __init__(self, tenant: str = ACME) -> None:
        self.tenant = tenant
        self.known: dict[str, Credential] = {}
        self.unread: dict[str, Credential] = {}
        """What another process has stored, and this one reads when it catches up."""
        self.rows = MemoryStoredCredentialRows()
        self.store = StoredCredentials(self.rows, KEY)
        self.version = 0

    async def set(
        self,
        name: str,
        value: str = "",
        *,
        scope: str = "tenant",
        scope_id: str = "",
        reference: str = "",
        elsewhere: bool = False,
    ) -> CredentialKey:
        """Store a value, or a reference; `elsewhere`: in another process, just now."""
        self.version += 1
        key = CredentialKey(tenant=self.tenant, scope=scope, scope_id=scope_id, name=name)
        if value:
            await self.store.put(key, self.version, value)
        await self.rows.delete(key, below=self.version)
        noted = Credential(scope=scope, scope_id=scope_id, name=name, version=self.version, reference=reference)
        (self.unread if elsewhere else self.known)[entry_key(scope, scope_id, name)] = noted
        return key

    def credentials(self, tenant: str) -> dict[str, Credential]:
        return self.known if tenant == self.tenant else {}

    async def catch_up(self, tenant: str, shards: Iterable[Sequence[str]]) -> None:
        self.known |= self.unread
        self.unread = {}

    def reader(self, **more: Any) -> CredentialReader:
        directory: Any = self
        return CredentialReader(directory, self.store, **more)
