"""Removal of stored credentials: the event first, so that no version is named whose row is gone; then the rows.

Before: credential_handlers.py; services/application/admin/erasure.py for those of a subject. After:
connectors/storage/stored_credentials.py.
"""

from collections.abc import Callable

from loomlog.connectors.storage.stored_credentials import CredentialKey, StoredCredentials
from loomlog.schemas.generated.identity_commands import NoteCredential
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.ids import hashed_token
from loomlog.schemas.records import copy_as
from loomlog.services.families.identity.directory import Directory
from loomlog.services.families.installation import InstallationCommands

ROUTE = "POST /v1/_credentialdef"
TENANT, USER, AGENT = "tenant", "user", "agent"


class CredentialRemoval:
    """Removes credentials. `store` None: there are no rows."""

    def __init__(
        self,
        commands: InstallationCommands,
        directory: Directory,
        store: StoredCredentials | None,
        *,
        clock_ms: Callable[[], int],
    ) -> None:
        self._commands = commands
        self._directory = directory
        self._store = store
        self._clock_ms = clock_ms

    async def remove(self, key: CredentialKey, version: int, envelope: CommandEnvelope) -> str:
        """Remove a credential, up to a version; return the position of the event. Raises Refused and Unavailable, and
        ConnectorError once the event is there.
        """
        command = copy_as(NoteCredential, key, envelope=envelope, version=0)
        answer = await self._commands.send(command, status_route=ROUTE)
        if self._store is not None:
            await self._store.rows.delete(key, below=version + 1)
        return answer.position

    def of_subject(self, tenant: str, user: str) -> dict[CredentialKey, int]:
        """Return the credentials of a user with their versions; of the user "", those of the tenant and its agents."""
        return {
            CredentialKey(tenant=tenant, scope=one.scope, scope_id=one.scope_id, name=one.name): one.version
            for one in self._directory.credentials(tenant).values()
            if ((one.scope, one.scope_id) == (USER, user) if user else one.scope != USER)
        }

    async def erase_subject(self, tenant: str, user: str, *, erasure_id: str, by: str) -> int:
        """Remove the credentials of a subject, and rows that no event names. Return the number of credentials.

        Raises Refused, Unavailable, ConnectorError; it is repeated then.
        """
        known = self.of_subject(tenant, user)
        for key, version in sorted(known.items()):
            envelope = CommandEnvelope(
                command_id=hashed_token("erased credential", tenant, erasure_id, key.scope, key.scope_id, key.name),
                tenant=tenant,
                subject=by,
                issued_at_ms=self._clock_ms(),
            )
            await self.remove(key, version, envelope)
        if self._store is not None:
            for scope, scope_id in ((USER, user),) if user else ((TENANT, None), (AGENT, None)):
                await self._store.rows.delete_owned(tenant, scope, scope_id)
        return len(known)
