"""Stored credentials: their values are sealed rows, and the log has which version counts.

A row is written before the event that names it, and versions that no event names any more are deleted after it. A
process that dies in between leaves a sealed row that is not used; `rewrap` deletes those. A value is looked up where it
is used: that of the agent goes before that of the user, and that before the tenant's.

Before: credential_handlers.py; the runtime for headers, keys and runs. After: connectors/storage/stored_credentials.py.
"""

from collections import OrderedDict
from collections.abc import Mapping

from loomlog.connectors.storage.stored_credentials import CredentialKey, SealedCredential, StoredCredentials
from loomlog.schemas.records import Value
from loomlog.services.families.identity.directory import Directory
from loomlog.services.families.identity.state import Credential, entry_key

CACHE_MAX = 10_000
"""Values that a process keeps; the least recently used are dropped and read again."""
LEFT_OVER_MS = 3_600_000
"""Age after which a row that no event names was left over. Versions are times."""
PREFIX = "$cred:"
GRANT_PREFIX = "mcp-oauth-"
"""Beginning of the names of grants of MCP servers, which no reference reaches: they go to their own server alone."""


class NamedCredential(Value, frozen=True, kw_only=True):
    """The credential that a reference means."""

    key: CredentialKey
    credential: Credential


class CredentialReader:
    """Finds credentials and reads their values. `store` None: without a secret key there are none."""

    def __init__(self, directory: Directory, store: StoredCredentials | None) -> None:
        self.store = store
        self._directory = directory
        self._cache: OrderedDict[tuple[CredentialKey, int], str] = OrderedDict()

    def find(self, tenant: str, name: str, *, user: str = "", agent: str = "") -> NamedCredential | None:
        """Return the credential of a name for a run; None when there is none, or it is a grant."""
        return None if name.startswith(GRANT_PREFIX) else self.find_grant(tenant, name, user=user, agent=agent)

    def find_grant(self, tenant: str, name: str, *, user: str = "", agent: str = "") -> NamedCredential | None:
        """Return the credential of a name, also one that is a grant; None when there is none."""
        known = self._directory.credentials(tenant)
        for scope, scope_id in (("agent", agent), ("user", user), ("tenant", "")):
            credential = known.get(entry_key(scope, scope_id, name))
            if credential is not None and (scope_id or scope == "tenant"):
                key = CredentialKey(tenant=tenant, scope=scope, scope_id=scope_id, name=name)
                return NamedCredential(key=key, credential=credential)
        return None

    def count(self, tenant: str) -> int:
        """Return how many credentials a tenant has."""
        return len(self._directory.credentials(tenant))

    async def value(self, named: NamedCredential) -> str:
        """Return the value of a credential; empty when it is gone meanwhile. Raises ConnectorError."""
        place = (named.key, named.credential.version)
        value = self._cache.get(place)
        if value is None and self.store is not None:
            value = await self.store.get(*place)
            if value is not None:
                self._cache[place] = value
                if len(self._cache) > CACHE_MAX:
                    self._cache.popitem(last=False)
        elif value is not None:
            self._cache.move_to_end(place)
        return value or ""

    async def values(
        self, tenant: str, references: Mapping[str, str], *, user: str = "", agent: str = ""
    ) -> dict[str, str]:
        """Return the values of references like $cred:git, by the names that they are given; without those that are not
        stored. Raises ConnectorError.
        """
        read: dict[str, str] = {}
        for name, reference in references.items():
            named = self.find(tenant, reference.removeprefix(PREFIX), user=user, agent=agent)
            if named is not None and (value := await self.value(named)):
                read[name] = value
        return read


async def rewrap(store: StoredCredentials, directory: Directory, *, now_ms: int) -> tuple[int, int]:
    """Encrypt all rows under the current key, and delete those left over. Return the numbers of both.

    Raises ConnectorError.
    """
    wrapped = deleted = 0
    last: SealedCredential | None = None
    while rows := await store.rows.after(last):
        for row in rows:
            key = row.key
            known = directory.credentials(key.tenant).get(entry_key(key.scope, key.scope_id, key.name))
            if known is not None and known.version == row.version:
                await store.rewrap(row)
                wrapped += 1
            elif row.version < now_ms - LEFT_OVER_MS:
                await store.rows.delete_version(key, row.version)
                deleted += 1
        last = rows[-1]
    return wrapped, deleted
