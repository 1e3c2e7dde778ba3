"""The handlers of the operations on stored credentials: the sealed row first, then the event that names it.

Before: services.py. After: credentials.py, and the owner of the shard.
"""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from loomlog.connectors.configuration.credential_block import GITHUB_APP, INLINE, OAUTH
from loomlog.connectors.credentials.github_apps import parse_app
from loomlog.connectors.credentials.oauth_tokens import parse_token
from loomlog.connectors.errors import Permanent
from loomlog.connectors.storage.stored_credentials import CredentialKey, StoredCredentials
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.generated.identity_commands import NoteCredential
from loomlog.schemas.generated.identity_events import CredentialNoted
from loomlog.schemas.records import copy_as
from loomlog.services.core.operations import Answer, Call, Handlers, NoInput
from loomlog.services.core.refusals import Refused
from loomlog.services.core.times import parse_time_ms
from loomlog.services.families.identity import api, limits
from loomlog.services.families.identity.credential_removal import ROUTE, CredentialRemoval
from loomlog.services.families.identity.credentials import SEALED_BACKENDS, CredentialReader, rewrap
from loomlog.services.families.identity.directory import Directory
from loomlog.services.families.identity.state import Credential, UseOfCredential, entry_key
from loomlog.services.families.installation import InstallationCommands

EXPIRED = "it should have been replaced by now"


class CredentialHandlers:
    """One method for each operation. All raise Refused, Unavailable and ConnectorError."""

    def __init__(
        self,
        commands: InstallationCommands,
        directory: Directory,
        reader: CredentialReader,
        removal: CredentialRemoval,
        *,
        clock_ms: Callable[[], int],
    ) -> None:
        self._commands = commands
        self._directory = directory
        self._reader = reader
        self._removal = removal
        self._clock_ms = clock_ms

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {
            api.CREATE_CREDENTIAL: self.create,
            api.GET_CREDENTIAL: self.get,
            api.LIST_CREDENTIALS: self.list,
            api.DELETE_CREDENTIAL: self.delete,
            api.REWRAP_CREDENTIALS: self.rewrap,
        }

    async def create(self, call: Call[api.CredentialCreate]) -> Answer[api.CredentialRow]:
        """Store a value."""
        asked, key = call.input, _key(call)
        self._check_value(asked, key.tenant)
        store = self._require_store() if asked.value else None
        before, known = self._find(key), self._directory.credentials(key.tenant)
        if before is None and len(known) >= limits.CREDENTIALS_PER_TENANT_MAX:
            text = f"the tenant has {limits.CREDENTIALS_PER_TENANT_MAX} credentials: remove one first"
            raise Refused("too_many", text)
        expires_at_ms = parse_time_ms("expires_at", asked.expires_at) if asked.expires_at else 0
        rows = None if self._reader.store is None else self._reader.store.rows
        # A process that died may have left a row of a version that is not named.
        newest = max(0 if before is None else before.version, 0 if rows is None else await rows.newest(key))
        version = max(self._clock_ms(), newest + 1)
        if store is not None:
            await store.put(key, version, asked.value)
        command = NoteCredential(
            envelope=call.envelope(),
            scope=key.scope,
            scope_id=key.scope_id,
            name=key.name,
            version=version,
            reference="" if asked.backend == INLINE else f"{asked.backend}:{asked.reference}",
            expires_at_ms=expires_at_ms,
        )
        try:
            answer = await self._commands.send(command, status_route=ROUTE)
        except Refused:
            if rows is not None:
                await rows.delete_version(key, version)
            raise
        event = answer.events[-1]
        assert isinstance(event, CredentialNoted), event
        if rows is not None:
            # A repeated request has the version of the first one, whose row is there.
            await rows.delete(key, below=event.version)
            if event.version != version:
                await rows.delete_version(key, version)
        noted = self._find(key) or _noted(event, self._clock_ms())
        return Answer(value=self._row(noted), positions=(answer.position,))

    async def get(self, call: Call[api.CredentialNamed]) -> Answer[api.CredentialRow]:
        """Return a credential without its value."""
        key = _key(call)
        named = self._find(key)
        if named is None:
            raise Refused("not_found", f"there is no credential {key.name} of this {key.scope}")
        return Answer(value=replace(self._row(named), uses=[_use_row(one) for one in named.uses]))

    async def list(self, call: Call[api.CredentialsList]) -> Answer[api.CredentialRows]:
        """Return the credentials of a tenant, a user or an agent."""
        scope, scope_id = call.input.scope, _scope_id(call)
        known = sorted(self._directory.credentials(call.caller.tenant).items())
        rows = [self._row(one) for _, one in known if (one.scope, one.scope_id) == (scope, scope_id)]
        return Answer(value=api.CredentialRows(scope=scope, credentials=rows))

    async def delete(self, call: Call[api.CredentialNamed]) -> Answer[api.CredentialRemoved]:
        """Remove a credential."""
        key = _key(call)
        named = self._find(key)
        removed = api.CredentialRemoved(name=key.name, scope=key.scope, deleted=named is not None)
        if named is None:
            return Answer(value=removed)
        return Answer(value=removed, positions=(await self._removal.remove(key, named.version, call.envelope()),))

    async def rewrap(self, call: Call[NoInput]) -> Answer[api.CredentialsRewrapped]:
        """Encrypt all values under the current key."""
        wrapped, deleted = await rewrap(self._require_store(), self._directory, now_ms=self._clock_ms())
        return Answer(value=api.CredentialsRewrapped(rewrapped=wrapped, deleted=deleted))

    def _check_value(self, asked: api.CredentialCreate, tenant: str) -> None:
        """Raise Refused for a value or a reference that could not be used."""
        is_sealed = asked.backend in SEALED_BACKENDS
        if is_sealed is bool(asked.reference) or is_sealed is not bool(asked.value):
            expected = "value, and no reference" if is_sealed else "reference, and no value"
            raise Refused("bad_request", f"backend {asked.backend}: expected {expected}")
        _require_value(asked.value)
        try:
            if asked.backend == OAUTH:
                parse_token(asked.value)
            elif asked.backend == GITHUB_APP:
                parse_app(asked.value)
            elif not is_sealed:
                self._reader.stores.require(tenant, asked.backend, asked.reference)
        except Permanent as error:
            raise Refused("bad_request", f"{'value' if is_sealed else 'reference'}: {error}") from error

    def _find(self, key: CredentialKey) -> Credential | None:
        return self._directory.credentials(key.tenant).get(entry_key(key.scope, key.scope_id, key.name))

    def _require_store(self) -> StoredCredentials:
        if self._reader.store is None:
            text = "set LOOMLOG_SECRET_KEY in every process, and start again"
            raise Refused("credentials_off", f"there is nothing to encrypt credentials with here: {text}")
        return self._reader.store

    def _row(self, credential: Credential) -> api.CredentialRow:
        ends = credential.expires_at_ms
        backend, _, locator = (credential.reference or INLINE).partition(":")
        return api.CredentialRow(
            name=credential.name,
            scope=credential.scope,
            backend=backend,
            reference=locator or UNSET,
            created_at=format_rfc3339(credential.created_at_ms),
            updated_at=format_rfc3339(credential.updated_at_ms),
            scope_id=credential.scope_id or UNSET,
            expires_at=format_rfc3339(ends) if ends else UNSET,
            note=EXPIRED if 0 < ends <= self._clock_ms() else UNSET,
            use_count=credential.use_count or UNSET,
            last_used_at=format_rfc3339(credential.uses[0].at_ms) if credential.uses else UNSET,
        )


def _use_row(use: UseOfCredential) -> api.CredentialUseRow:
    return api.CredentialUseRow(
        purpose=use.purpose,
        agent=use.agent or UNSET,
        user=use.user or UNSET,
        run_id=use.run_id or UNSET,
        count=use.count,
        last_used_at=format_rfc3339(use.at_ms),
    )


def _scope_id(call: Call[Any]) -> str:
    """Return whose credential is meant. Raises Refused."""
    asked = call.input
    if asked.scope == "tenant":
        if asked.scope_id:
            raise Refused("bad_request", "scope_id: the tenant has none")
        return ""
    if asked.scope == "user":
        return asked.scope_id or call.principal.subject
    if not asked.scope_id:
        raise Refused("bad_request", "scope_id: name the agent")
    scope_id: str = asked.scope_id
    return scope_id


def _key(call: Call[Any]) -> CredentialKey:
    """Return the key of the credential that a call names. Raises Refused."""
    asked = call.input
    if not limits.NAME.match(asked.name):
        raise Refused("bad_request", "name: expected 1 to 64 letters, digits, _ and -")
    return CredentialKey(tenant=call.caller.tenant, scope=asked.scope, scope_id=_scope_id(call), name=asked.name)


def _require_value(value: str) -> None:
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise Refused("bad_request", "value: it holds half of a surrogate pair") from error
    if size > limits.CREDENTIAL_BYTES_MAX:
        raise Refused("bad_request", f"value: {size} bytes, at most {limits.CREDENTIAL_BYTES_MAX}")


def _noted(event: CredentialNoted, at_ms: int) -> Credential:
    return copy_as(Credential, event, created_at_ms=at_ms, updated_at_ms=at_ms)
