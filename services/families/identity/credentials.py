"""Stored credentials: their values are sealed rows, and the log has which version counts.

A row is written before the event that names it, and versions that no event names any more are deleted after it. A
process that dies in between leaves a sealed row that is not used; `rewrap` deletes those. A value is looked up where it
is used: that of the agent goes before that of the user, and that before the tenant's.

A credential may be a reference to a store outside of loomlog, a pair of tokens that is renewed, or the key of a GitHub
App, whose tokens `$ghapp:` means. All that use one ask here.

A reference that names nothing here may name what another process has just stored, and a row that is gone what another
has just replaced: this process then reads what there is in the log, and looks once more.

Before: credential_handlers.py; the runtime for headers, keys and runs. After: connectors/storage/stored_credentials.py.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial

from loomlog.connectors.configuration.credential_block import GITHUB_APP, INLINE, OAUTH
from loomlog.connectors.credentials.github_apps import AHEAD_S, installation_token, parse_app
from loomlog.connectors.credentials.json_requests import JsonRequests
from loomlog.connectors.credentials.outside_stores import NO_STORES, OutsideStores
from loomlog.connectors.credentials.short_tokens import ShortTokens
from loomlog.connectors.errors import ConnectorError, Permanent
from loomlog.connectors.storage.stored_credentials import CredentialKey, SealedCredential, StoredCredentials
from loomlog.connectors.tools.references import STORED
from loomlog.schemas.records import Value
from loomlog.services.families.identity.credential_uses import CredentialUses, UseKey
from loomlog.services.families.identity.directory import Directory
from loomlog.services.families.identity.renewals import Renewals
from loomlog.services.families.identity.state import Credential, entry_key
from loomlog.services.families.ports.credentials import CredentialUser, CredentialValue

READS_MAX = 3
"""Versions that are tried in a row: each may be replaced while it is read."""
SEALED_BACKENDS = frozenset({INLINE, OAUTH, GITHUB_APP})
"""Backends whose values are stored here."""
CACHE_MAX = 10_000
"""Values that a process keeps; the least recently used are dropped and read again."""
LEFT_OVER_MS = 3_600_000
"""Age after which a row that no event names was left over. Versions are times."""
GRANT_PREFIX = "mcp-oauth-"
"""Beginning of the names of grants of MCP servers, which no reference reaches: they go to their own server alone."""


class NamedCredential(Value, frozen=True, kw_only=True):
    """The credential that a name means."""

    key: CredentialKey
    credential: Credential


class CredentialMissing(Permanent):
    """There is no credential of that name."""

    def __init__(self, reference: str) -> None:
        text = f"{reference} names no stored credential of the agent, the user or the tenant: store it, or correct it"
        super().__init__(text, kind="not_found")


class CredentialReader:
    """The port CredentialValues, and what only families need. `store` None: without a secret key there are none."""

    def __init__(
        self,
        directory: Directory,
        store: StoredCredentials | None,
        *,
        stores: OutsideStores = NO_STORES,
        requests: JsonRequests | None = None,
        renewals: Renewals | None = None,
        uses: CredentialUses | None = None,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        """`requests` reach the addresses that credentials name: those of GitHub and its kind."""
        self.store = store
        self.stores = stores
        self._directory = directory
        self._requests = requests or JsonRequests()
        self._renewals = renewals
        self._uses = uses
        self._clock_s = clock_s
        self._installation_tokens = ShortTokens(ahead_s=AHEAD_S, clock_s=clock_s)
        self._cache: OrderedDict[tuple[CredentialKey, int], str] = OrderedDict()

    def find(self, name: str, user: CredentialUser) -> NamedCredential | None:
        """Return the credential of a name, as far as this process has read; None: there is none, or it is a grant."""
        return None if name.startswith(GRANT_PREFIX) else self.find_grant(name, user)

    def has(self, name: str, user: CredentialUser) -> bool:
        """See CredentialValues."""
        return self.find(name, user) is not None

    async def find_value(self, name: str, user: CredentialUser) -> CredentialValue | None:
        """See CredentialValues."""
        named = self.find(name, user)
        return None if named is None else await self.read(named, user)

    def find_grant(self, name: str, user: CredentialUser) -> NamedCredential | None:
        """Return the credential of a name, also one that is a grant; None when there is none."""
        known = self._directory.credentials(user.tenant)
        for scope, scope_id in _owners(user):
            credential = known.get(entry_key(scope, scope_id, name))
            if credential is not None:
                key = CredentialKey(tenant=user.tenant, scope=scope, scope_id=scope_id, name=name)
                return NamedCredential(key=key, credential=credential)
        return None

    def count(self, tenant: str) -> int:
        """Return how many credentials a tenant has."""
        return len(self._directory.credentials(tenant))

    async def resolve(self, reference: str, user: CredentialUser) -> CredentialValue:
        """Return the value that a reference like $cred:git means now.

        Raises CredentialMissing, other Permanent errors where it cannot be had, and Transient. No error says a value.
        """
        match = STORED.fullmatch(reference)
        if match is None:
            raise Permanent(f"{reference[:80]!r} is no reference to a credential: expected $cred:name", kind="invalid")
        named = self.find(match["name"], user)
        if named is None:
            await self._catch_up(match["name"], user)
            named = self.find(match["name"], user)
        if named is None:
            raise CredentialMissing(reference)
        is_app = backend_of(named.credential) == GITHUB_APP
        if match["kind"] == "cred":
            if is_app:
                raise Permanent(f"{reference} is the key of a GitHub App: use $ghapp:{match['name']}", kind="refused")
            return await self.read(named, user)
        key = await self.read(named, user)
        with _errors_of(reference):
            token = await self._installation_token(key, named.credential.version)
        return CredentialValue(key=key.key, value=token)

    async def _installation_token(self, key: CredentialValue, version: int) -> str:
        app = parse_app(key.value)
        place = (key.key, version, hashlib.sha256(key.value.encode()).digest())
        obtain = partial(installation_token, self._requests, app, now_s=self._clock_s)
        return await self._installation_tokens.get(place, obtain)

    async def resolve_all(self, references: Mapping[str, str], user: CredentialUser) -> dict[str, str]:
        """Return the values of references by the names that they are given. Raises as `resolve` does."""
        return {name: (await self.resolve(reference, user)).value for name, reference in references.items()}

    async def resolve_known(self, references: Iterable[str], user: CredentialUser) -> dict[str, CredentialValue]:
        """Return the values of references by them, without those that name nothing. Raises as `resolve` does."""
        values = {}
        for reference in references:
            with suppress(CredentialMissing):
                values[reference] = await self.resolve(reference, user)
        return values

    async def read(self, named: NamedCredential, user: CredentialUser) -> CredentialValue:
        """Return the value of a credential, or of what has replaced it meanwhile. Raises Permanent and Transient."""
        with _errors_of(f"$cred:{named.key.name}"):
            for _ in range(READS_MAX):
                if value := await self._current_value(named):
                    self._note_use(named, user)
                    return CredentialValue(key=named.key, value=value)
                await self._catch_up(named.key.name, user)
                newer = self.find(named.key.name, user)
                if newer is None or newer == named:
                    break
                named = newer
            raise Permanent("the value of the stored credential is gone; store it again", kind="refused")

    def _note_use(self, named: NamedCredential, user: CredentialUser) -> None:
        if self._uses is not None and user.purpose:
            key = UseKey(
                tenant=named.key.tenant,
                scope=named.key.scope,
                scope_id=named.key.scope_id,
                name=named.key.name,
                purpose=user.purpose,
                agent=user.agent,
                user=user.user,
            )
            self._uses.note(key, named.credential.version, user.run_id)

    async def _current_value(self, named: NamedCredential) -> str | None:
        """Return the value of a version; None when another one counts, or it is gone. Raises ConnectorError."""
        backend, _, locator = named.credential.reference.partition(":")
        if backend and backend not in SEALED_BACKENDS:
            return await self.stores.read(named.key.tenant, backend, locator)
        text = await self._stored_value(named)
        if text is None or backend != OAUTH:
            return text
        if self._renewals is None:
            raise Permanent("nothing renews access tokens in this process", kind="unsupported")
        return await self._renewals.access_token(named.key, named.credential, text)

    async def _catch_up(self, name: str, user: CredentialUser) -> None:
        shards = [("credential", scope, scope_id, name) for scope, scope_id in _owners(user)]
        await self._directory.catch_up(user.tenant, shards)

    async def _stored_value(self, named: NamedCredential) -> str | None:
        """Return the value of the row of a version; None when it is gone. Raises ConnectorError."""
        place = (named.key, named.credential.version)
        value = self._cache.get(place)
        if value is not None:
            self._cache.move_to_end(place)
        elif self.store is not None:
            value = await self.store.get(*place)
            if value is not None:
                self._cache[place] = value
                if len(self._cache) > CACHE_MAX:
                    self._cache.popitem(last=False)
        return value


def backend_of(credential: Credential) -> str:
    """Return where the value of a credential is: `inline`, or the first part of its reference."""
    return credential.reference.partition(":")[0] or INLINE


@contextmanager
def _errors_of(reference: str) -> Iterator[None]:
    """Let errors name the reference."""
    try:
        yield
    except ConnectorError as error:
        error.args = (f"{reference}: {error}",)
        raise


def _owners(user: CredentialUser) -> list[tuple[str, str]]:
    """Return scope and id of those whose credentials count, the first that has one wins."""
    of_run = [("agent", user.agent), ("user", user.user)]
    return [*((scope, scope_id) for scope, scope_id in of_run if scope_id), ("tenant", "")]


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
