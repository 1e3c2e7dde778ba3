"""Grants of access to MCP servers: begun by an operation, finished by a person's browser, kept sealed, renewed in time.

A grant belongs to a tenant or a user, and to one server at one address. Its tokens are a stored credential (row first,
then event), under a name that no reference reaches. What is between the beginning and the browser's return lies sealed
in a row too, which is taken once: any process of the installation finishes what another began, once.

A refresh token is used by one process at a time: many servers end a grant whose refresh token comes a second time. The
row of a renewed one is the newest whether or not its event was written: a process that dies in between loses nothing.

Before: handlers.py, servers.py. After: connectors/mcp/oauth_client.py, connectors/storage/stored_credentials.py.
"""

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from loomlog.connectors.configuration.mcp_block import McpOAuthBlock
from loomlog.connectors.credentials.short_tokens import ShortToken, ShortTokens
from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.errors import ConnectorError, Permanent
from loomlog.connectors.identity_providers.page_sessions import seal, unseal
from loomlog.connectors.mcp.oauth import (
    CLIENT_CREDENTIALS,
    CODE,
    EARLY_S,
    AuthorizationServer,
    Challenge,
    OAuthClient,
    TokenGrant,
    authorization_url,
    check_answer,
    choose_method,
    covers,
    new_verifier,
    token_request,
)
from loomlog.connectors.mcp.oauth_client import GrantRefused, OAuthRequests
from loomlog.connectors.mcp.peer import TokenSource
from loomlog.connectors.storage.stored_credentials import CredentialKey, StoredCredentials
from loomlog.connectors.tools.references import STORED, RunValues
from loomlog.schemas.generated.identity_commands import NoteCredential
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.ids import fresh_token
from loomlog.schemas.records import copy_as
from loomlog.services.core.mcp_logins import CALLBACK_PATH, CLIENT_PATH, CONSENT_PATH, AskedConsent
from loomlog.services.core.refusals import Refused
from loomlog.services.families.identity import limits
from loomlog.services.families.identity.credentials import GRANT_PREFIX, CredentialReader
from loomlog.services.families.installation import InstallationCommands
from loomlog.services.families.mcp.server import Server
from loomlog.services.families.ports.credentials import CredentialUser

log = logging.getLogger(__name__)

PURPOSE = "authorization of an MCP server"
WAIT_MS = 600_000
"""How long a person may take at the authorization server."""
ENDED = ("invalid_grant", "invalid_client", "unauthorized_client")
"""Errors of a renewal after which the grant is over (RFC 6749 5.2)."""
TOKENS_KEPT = 2_000
"""Grants whose tokens a process keeps in memory."""
STATUS_ROUTE = "GET /v1/_mcp_servers"


class PendingPlace(msgspec.Struct, frozen=True, array_like=True):
    """What the state of an authorization says: where the rest lies. It is sealed, so only we make one."""

    tenant: str
    scope: str
    scope_id: str
    server: str
    version: int

    @property
    def key(self) -> CredentialKey:
        """Key of the row that waits; no credential has a name with a dot."""
        return CredentialKey(
            tenant=self.tenant, scope=self.scope, scope_id=self.scope_id, name=f"{grant_name(self.server)}.pending"
        )

    @property
    def grant_key(self) -> CredentialKey:
        return CredentialKey(tenant=self.tenant, scope=self.scope, scope_id=self.scope_id, name=grant_name(self.server))


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """An authorization between its beginning and the browser's return."""

    subject: str
    """Subject of the caller who began it."""
    resource: str
    issuer: str
    sends_issuer: bool
    token_endpoint: str
    client: OAuthClient
    verifier: str
    redirect_uri: str
    url: str
    """Where the person goes."""
    scope: str


class McpGrants:
    """The grants of a process. `origin`: address of the API for browsers; `requests`: of a server, with its network."""

    def __init__(
        self,
        reader: CredentialReader,
        commands: InstallationCommands,
        requests: Callable[[Server], OAuthRequests],
        *,
        secret: SecretKey | None,
        origin: str,
        clock_ms: Callable[[], int],
    ) -> None:
        self.origin = origin.rstrip("/")
        self._reader = reader
        self._commands = commands
        self._requests = requests
        self._secret = secret
        self._clock_ms = clock_ms
        self._known: OrderedDict[CredentialKey, tuple[int, TokenGrant]] = OrderedDict()
        self._of_clients = ShortTokens(ahead_s=EARLY_S, clock_s=self._now_s, tokens_max=TOKENS_KEPT)

    # --- beginning ---------------------------------------------------------------------------------------------------

    async def begin(
        self,
        server: Server,
        challenge: Challenge,
        *,
        scope: str,
        scope_id: str,
        subject: str,
        scopes: Sequence[str] = (),
    ) -> str:
        """Return where a person grants access to a server. Raises Refused, Transient and Permanent."""
        store, secret = self._require_store()
        if self._reader.count(server.tenant) >= limits.CREDENTIALS_PER_TENANT_MAX:
            text = f"the tenant has {limits.CREDENTIALS_PER_TENANT_MAX} credentials: remove one first"
            raise Refused("too_many", text)
        requests, oauth = self._requests(server), server.block.oauth or McpOAuthBlock()
        resource, authorization = await requests.discover(server.block.url, challenge)
        if not authorization.authorization_endpoint:
            raise Permanent("the authorization server has no place for people", kind="unsupported")
        redirect_uri = self.origin + CALLBACK_PATH
        client = await self._client(server, oauth, requests, authorization, redirect_uri)
        scope_text = " ".join(scopes or oauth.scopes) or challenge.scope or " ".join(resource.scopes)
        place = PendingPlace(server.tenant, scope, scope_id, server.name, self._clock_ms())
        state, verifier = seal(secret, place, PURPOSE), new_verifier()
        pending = Pending(
            subject=subject,
            resource=resource.resource,
            issuer=authorization.issuer,
            sends_issuer=authorization.sends_issuer,
            token_endpoint=authorization.token_endpoint,
            client=client,
            verifier=verifier,
            redirect_uri=redirect_uri,
            url=authorization_url(
                authorization,
                client,
                resource=resource.resource,
                scope=scope_text,
                state=state,
                verifier=verifier,
                redirect_uri=redirect_uri,
            ),
            scope=scope_text,
        )
        await store.put(place.key, place.version, msgspec.json.encode(pending).decode())
        await store.rows.delete(place.key, below=place.version)
        return f"{self.origin}{CONSENT_PATH}?state={state}"

    async def find_pending(self, state: str) -> AskedConsent:
        """Return what a person is asked for. Raises Refused for a state that is not ours, too old, or used."""
        store, place = self._open(state)
        text = await store.get(place.key, place.version)
        if text is None:
            raise _state_refused()
        pending = msgspec.json.decode(text, type=Pending)
        return AskedConsent(
            subject=pending.subject,
            tenant=place.tenant,
            user=place.scope_id,
            resource=pending.resource,
            scopes=pending.scope,
            issuer=pending.issuer,
            url=pending.url,
        )

    async def finish(self, query: Mapping[str, str], server_of: Callable[[str, str], Server | None]) -> PendingPlace:
        """Exchange the code that a browser brings for tokens, and store them. Raises Refused, Transient and Permanent.

        A state counts once, whatever comes of it.
        """
        store, place = self._open(query.get("state", ""))
        text = await store.take(place.key, place.version)
        if text is None:
            raise _state_refused()
        pending = msgspec.json.decode(text, type=Pending)
        server = server_of(place.tenant, place.server)
        if server is None or not covers(pending.resource, server.block.url):
            raise Refused("not_found", f"{place.server[:80]} is no longer the server that access was asked for")
        authorization = AuthorizationServer(
            issuer=pending.issuer, sends_issuer=pending.sends_issuer, token_endpoint=pending.token_endpoint
        )
        code = check_answer(query, authorization)
        request = token_request(
            pending.token_endpoint,
            pending.client,
            CODE,
            code=code,
            code_verifier=pending.verifier,
            redirect_uri=pending.redirect_uri,
            resource=pending.resource,
        )
        grant = await self._requests(server).request_tokens(
            request,
            resource=pending.resource,
            issuer=pending.issuer,
            client=pending.client,
            endpoint=pending.token_endpoint,
            now_s=self._now_s(),
        )
        if not grant.scope:
            grant = msgspec.structs.replace(grant, scope=pending.scope)
        async with store.rows.lock(place.grant_key):
            newest = await store.newest(place.grant_key)
            version = await self._put(store, place.grant_key, grant, above=newest[0] if newest else 0)
            await self._note(place.grant_key, version, subject=pending.subject)
        return place

    # --- using -------------------------------------------------------------------------------------------------------

    def source(self, server: Server, values: RunValues) -> TokenSource | None:
        """Return where the token for a run comes from; None: there is no grant."""
        if any(name.lower() == "authorization" for name in server.block.headers):
            return None
        if server.block.oauth is not None and server.block.oauth.grant == CLIENT_CREDENTIALS:
            return _ClientTokens(self, server)
        named = self._reader.find_grant(grant_name(server.name), CredentialUser(tenant=server.tenant, user=values.user))
        return None if named is None else _GrantedTokens(self, server, named.key)

    async def current(self, server: Server, key: CredentialKey) -> TokenGrant | None:
        """Return the tokens of a grant; None when it has ended, or is for another address. Raises ConnectorError."""
        named = self._reader.find_grant(key.name, CredentialUser(tenant=key.tenant, user=key.scope_id))
        if named is None or named.key != key or self._reader.store is None:
            return None
        version, grant = self._known.get(key, (0, None))
        if grant is None or version < named.credential.version:
            row = await self._reader.store.newest(key)
            grant = None if row is None else _grant_of(row[1])
            if row is not None and grant is not None:
                self._remember(key, row[0], grant)
        return grant if grant is not None and covers(grant.resource, server.block.url) else None

    async def renew(self, server: Server, key: CredentialKey, rejected: str) -> TokenGrant | None:
        """Return tokens that are not those rejected; None: the grant is over. Raises Transient and Permanent."""
        store, _ = self._require_store()
        async with store.rows.lock(key):
            row = await store.newest(key)
            grant = None if row is None else _grant_of(row[1])
            if row is None or grant is None:
                return None
            version = row[0]
            if grant.access_token == rejected or grant.is_due(self._now_s()):
                if not grant.refresh_token:
                    return None
                try:
                    grant = await self._requests(server).renew(grant, now_s=self._now_s())
                except GrantRefused as refused:
                    if refused.code not in ENDED:
                        raise
                    log.warning("the grant for %s is over: %s", server.name, refused)
                    await self._end(store, key, version)
                    return None
                version = await self._put(store, key, grant, above=version)
            self._remember(key, version, grant)
            named = self._reader.find_grant(key.name, CredentialUser(tenant=key.tenant, user=key.scope_id))
            if named is None or named.credential.version < version:
                await self._note(key, version)
            return grant

    async def client_tokens(self, server: Server, rejected: str) -> str:
        """Return the token that the server's client has for itself. Raises Transient and Permanent."""
        oauth = server.block.oauth
        assert oauth is not None
        secret = await self._secret_of(server, oauth)
        place = (
            server.tenant,
            repr((server.name, server.block.url, oauth)),
            hashlib.sha256(secret.encode()).hexdigest(),
        )
        obtain = partial(self._obtain_for_client, server, oauth, secret)
        return await self._of_clients.get(place, obtain, rejected=rejected)

    async def _obtain_for_client(self, server: Server, oauth: McpOAuthBlock, secret: str) -> ShortToken:
        requests = self._requests(server)
        resource, authorization = await requests.discover(server.block.url, Challenge())
        client = _configured_client(oauth, authorization, secret)
        request = token_request(
            authorization.token_endpoint,
            client,
            CLIENT_CREDENTIALS,
            resource=resource.resource,
            scope=" ".join(oauth.scopes or resource.scopes),
        )
        grant = await requests.request_tokens(
            request,
            resource=resource.resource,
            issuer=authorization.issuer,
            client=client,
            endpoint=authorization.token_endpoint,
            now_s=self._now_s(),
        )
        return ShortToken(value=grant.access_token, expires_at_s=grant.expires_at_s)

    def _now_s(self) -> float:
        return self._clock_ms() / 1000

    async def _client(
        self,
        server: Server,
        oauth: McpOAuthBlock,
        requests: OAuthRequests,
        authorization: AuthorizationServer,
        redirect_uri: str,
    ) -> OAuthClient:
        """Return what we are to an authorization server: configured, a document of ours, or registered now."""
        if oauth.client_id:
            return _configured_client(oauth, authorization, await self._secret_of(server, oauth))
        if authorization.takes_client_documents and self.origin.startswith("https://"):
            return OAuthClient(client_id=self.origin + CLIENT_PATH)
        if authorization.registration_endpoint:
            return await requests.register(authorization, redirect_uri)
        raise Permanent(
            f"{authorization.issuer[:200]} registers no clients: make one there with the redirect address "
            f"{redirect_uri}, and name it under `oauth` of the server (client_id, client_secret)",
            kind="unsupported",
        )

    async def _secret_of(self, server: Server, oauth: McpOAuthBlock) -> str:
        if not STORED.fullmatch(oauth.client_secret):
            return oauth.client_secret
        user = CredentialUser(tenant=server.tenant, purpose=f"client of {server.name}")
        return (await self._reader.resolve(oauth.client_secret, user)).value

    def _open(self, state: str) -> tuple[StoredCredentials, PendingPlace]:
        store, secret = self._require_store()
        place = unseal(secret, state, PURPOSE, PendingPlace)
        if place is None or not 0 <= self._clock_ms() - place.version < WAIT_MS:
            raise _state_refused()
        return store, place

    def _require_store(self) -> tuple[StoredCredentials, SecretKey]:
        if self._reader.store is None or self._secret is None:
            text = "set LOOMLOG_SECRET_KEY in every process, and start again"
            raise Refused("credentials_off", f"there is nothing to encrypt tokens with here: {text}")
        return self._reader.store, self._secret

    async def _put(self, store: StoredCredentials, key: CredentialKey, grant: TokenGrant, *, above: int) -> int:
        version = max(self._clock_ms(), above + 1)
        await store.put(key, version, msgspec.json.encode(grant).decode())
        self._remember(key, version, grant)
        return version

    async def _note(self, key: CredentialKey, version: int, *, subject: str = "mcp") -> None:
        """Tell the log which version counts, and delete those before it."""
        envelope = CommandEnvelope(
            command_id=f"mcp-grant.{fresh_token(self._clock_ms())}",
            tenant=key.tenant,
            subject=subject,
            issued_at_ms=self._clock_ms(),
        )
        command = copy_as(NoteCredential, key, envelope=envelope, version=version)
        await self._commands.send(command, status_route=STATUS_ROUTE)
        if self._reader.store is not None:
            await self._reader.store.rows.delete(key, below=version)

    async def _end(self, store: StoredCredentials, key: CredentialKey, version: int) -> None:
        self._known.pop(key, None)
        try:
            await self._note(key, 0)
            await store.rows.delete(key, below=version + 1)
        except (Refused, ConnectorError) as error:
            log.warning("the end of the grant %s is not recorded: %s", key.name, error)

    def _remember(self, key: CredentialKey, version: int, grant: TokenGrant) -> None:
        self._known[key] = (version, grant)
        self._known.move_to_end(key)
        if len(self._known) > TOKENS_KEPT:
            self._known.popitem(last=False)


class _GrantedTokens:
    """Tokens of a stored grant (protocol TokenSource)."""

    def __init__(self, grants: McpGrants, server: Server, key: CredentialKey) -> None:
        self.owner = f"{key.scope}:{key.scope_id}"
        self._grants = grants
        self._server = server
        self._key = key

    async def token(self, rejected: str = "") -> str:
        grant = await self._grants.current(self._server, self._key)
        if grant is not None and (grant.access_token == rejected or grant.is_due(self._grants._now_s())):
            grant = await self._grants.renew(self._server, self._key, rejected)
        return "" if grant is None else grant.access_token


class _ClientTokens:
    """Tokens that a client has for itself (protocol TokenSource)."""

    owner = "client"

    def __init__(self, grants: McpGrants, server: Server) -> None:
        self._grants = grants
        self._server = server

    async def token(self, rejected: str = "") -> str:
        return await self._grants.client_tokens(self._server, rejected)


def _configured_client(oauth: McpOAuthBlock, authorization: AuthorizationServer, secret: str) -> OAuthClient:
    method = choose_method(authorization, secret)
    return OAuthClient(client_id=oauth.client_id, client_secret=secret, method=method)


def grant_name(server: str) -> str:
    """Return the name of the credential that holds the grant of a server."""
    name = GRANT_PREFIX + server
    return name if limits.NAME.match(name) else GRANT_PREFIX + hashlib.sha256(server.encode()).hexdigest()[:32]


def remedy_of(server: Server) -> str:
    """Return what a person does when a server asks for a token."""
    if any(name.lower() == "authorization" for name in server.block.headers):
        return "see `headers`"
    if server.block.oauth is not None and server.block.oauth.grant == CLIENT_CREDENTIALS:
        return "see `oauth`: its client is not let in"
    return f"run: loomlog mcp servers login {server.name}"


def _grant_of(text: str) -> TokenGrant | None:
    """Return a stored grant; None for a text that a person stored under its name."""
    try:
        return msgspec.json.decode(text, type=TokenGrant)
    except msgspec.MsgspecError:
        return None


def _state_refused() -> Refused:
    return Refused(
        "bad_request", "this authorization was not begun here, took too long, or was used already: begin again"
    )
