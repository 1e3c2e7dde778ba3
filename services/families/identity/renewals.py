"""Access tokens that are renewed at use: the new pair is sealed as the next version, and then its event names it.

One renewal at a time for each credential in a process. Of two processes that renew at once, the one whose event comes
second takes the pair of the first. What a process got and could not write yet, it keeps, uses, and writes at the
next use.

A process that dies between row and event leaves a row that no event names, with the only refresh token that is still
good where the server replaces them. The next renewal names that row instead of asking the server, once it is old enough
that its writer cannot be about to.

Before: credentials.py. After: connectors/credentials/oauth_tokens.py, and the owner of the shard.
"""

import logging
from collections.abc import Awaitable, Callable

from loomlog.connectors.credentials.json_requests import JsonRequests
from loomlog.connectors.credentials.oauth_tokens import OAuthToken, parse_token, renewed_token, token_text
from loomlog.connectors.errors import ConnectorError, Transient
from loomlog.connectors.single_flight import SingleFlight
from loomlog.connectors.storage.stored_credentials import CredentialKey, StoredCredentials
from loomlog.schemas.generated.identity_commands import NoteCredential
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.ids import hashed_token
from loomlog.schemas.records import Value, copy_as
from loomlog.services.families.identity.state import Credential

log = logging.getLogger(__name__)

ABANDONED_MS = 60_000
"""Age of a row that no event names at which its writer is taken for dead: it waits 10 s for its answer. One from the
future is of a clock that was set back."""
SENDER = "credentials"
"""Subject of the commands."""
Note = Callable[[NoteCredential], Awaitable[bool]]
"""Sends a command; False: another version counts. Raises Transient, and Permanent when it is refused."""


class Renewed(Value, frozen=True, kw_only=True):
    """A pair that the server gave and no event names yet. `replaces`: the version that it was got with."""

    replaces: int
    version: int
    token: OAuthToken


class Renewals:
    """Renews the access tokens of credentials of the kind oauth."""

    def __init__(
        self, store: StoredCredentials, requests: JsonRequests, note: Note, *, clock_ms: Callable[[], int]
    ) -> None:
        self._store = store
        self._requests = requests
        self._note = note
        self._clock_ms = clock_ms
        self._unwritten: dict[CredentialKey, Renewed] = {}
        self._renewing: SingleFlight[CredentialKey, OAuthToken | None] = SingleFlight()

    async def access_token(self, key: CredentialKey, credential: Credential, text: str) -> str | None:
        """Return an access token that is good for a while; None: another version of the credential counts by now.

        `text`: the value of that version. Raises Permanent and Transient.
        """
        token = parse_token(text)
        if token.is_good(self._clock_ms() / 1000):
            return token.access_token
        # A call that is cancelled leaves the new pair written.
        renewed = await self._renewing.do(key, lambda: self._renew(key, credential, token))
        return None if renewed is None else renewed.access_token

    async def _renew(self, key: CredentialKey, credential: Credential, token: OAuthToken) -> OAuthToken | None:
        now_ms = self._clock_ms()
        known = self._unwritten.get(key)
        if known is not None and known.replaces != credential.version:
            del self._unwritten[key]
            known = None
        if known is None:
            newest = await self._store.rows.newest(key)
            if newest > credential.version:
                if abs(now_ms - newest) < ABANDONED_MS:
                    raise Transient("another process renews it; try again", kind="unavailable", retry_after_s=1.0)
                await self._note(_command(key, credential, newest, now_ms))
                return None
        if known is None or not known.token.is_good(now_ms / 1000):
            before = token if known is None else known.token
            renewed = await renewed_token(self._requests, before, now_s=lambda: now_ms / 1000)
            version = max(now_ms, credential.version + 1)
            known = self._unwritten[key] = Renewed(replaces=credential.version, version=version, token=renewed)
        try:
            await self._write(key, credential, known)
        except ConnectorError as error:
            log.warning("the renewed tokens of %s are not written yet, and used: %s", key.name, error)
        return known.token

    async def _write(self, key: CredentialKey, credential: Credential, renewed: Renewed) -> None:
        if await self._store.rows.newest(key) != renewed.version:
            await self._store.put(key, renewed.version, token_text(renewed.token))
        counts = await self._note(_command(key, credential, renewed.version, self._clock_ms()))
        self._unwritten.pop(key, None)
        if counts:
            await self._store.rows.delete(key, below=renewed.version)
        else:
            await self._store.rows.delete_version(key, renewed.version)


def _command(key: CredentialKey, credential: Credential, version: int, now_ms: int) -> NoteCredential:
    """Return the command that names a version, the same one from every process."""
    digest = hashed_token("renewal", "\n".join((key.tenant, key.scope, key.scope_id, key.name, str(version))))
    return copy_as(
        NoteCredential,
        key,
        envelope=CommandEnvelope(
            command_id=f"renewal.{digest}", tenant=key.tenant, subject=SENDER, issued_at_ms=now_ms
        ),
        version=version,
        reference=credential.reference,
        expires_at_ms=credential.expires_at_ms,
        replaces=credential.version,
    )
