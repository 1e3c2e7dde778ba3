"""Access that a person grants to an MCP server: begun, finished once, used, renewed in time, and over."""

import asyncio
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from loomlog.connectors.configuration.mcp_block import McpOAuthBlock, McpServerBlock
from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.errors import ConnectorError, Permanent
from loomlog.connectors.mcp.oauth_client import ANSWER_BYTES_MAX
from loomlog.connectors.mcp.peer import AuthorizationNeeded
from loomlog.connectors.storage.stored_credentials import CredentialKey, MemoryStoredCredentialRows, StoredCredentials
from loomlog.connectors.tools.references import RunValues
from loomlog.services.core.refusals import Refused
from loomlog.services.families.identity.credentials import CredentialReader
from loomlog.services.families.identity.state import Credential, entry_key
from loomlog.services.families.mcp.grants import McpGrants, grant_name
from loomlog.services.families.mcp.servers import NO_RUN
from loomlog.services.families.ports.credentials import CredentialUser
from tests.connectors.mcp.authorization_server import RESOURCE, SERVER, GuardedServer
from tests.connectors.mcp.peer_server import Raw, document
from tests.services.families.mcp.world import World

KEY = SecretKey(keys=(bytes(32),))


@dataclass
class Identity:
    """The credentials that events have named, for a directory and for commands in one."""

    known: dict[str, dict[str, Credential]] = field(default_factory=dict)
    is_away: bool = False

    def credentials(self, tenant: str) -> dict[str, Credential]:
        return self.known.get(tenant, {})

    async def send(self, command: Any, *, status_route: str) -> None:
        if self.is_away:
            raise Refused("log_unavailable", "no owner answers")
        of_tenant = self.known.setdefault(command.envelope.tenant, {})
        key = entry_key(command.scope, command.scope_id, command.name)
        of_tenant.pop(key, None)
        if command.version:
            of_tenant[key] = Credential(
                scope=command.scope,
                scope_id=command.scope_id,
                name=command.name,
                version=command.version,
                created_at_ms=1,
                updated_at_ms=1,
            )


class Here:
    """Processes with one store and one log; `now_ms` is their clock."""

    def __init__(self, peer: GuardedServer, **oauth: Any) -> None:
        self.peer = peer
        self.now_ms = 1_000_000
        self.identity = Identity()
        self.rows = MemoryStoredCredentialRows()
        self.block = McpServerBlock(transport="http", url=peer.url, oauth=McpOAuthBlock(**oauth) if oauth else None)
        self.world = self.process()

    def process(self) -> World:
        """Return another process of the installation."""
        world = World(crm=self.block)
        reader = CredentialReader(self.identity, StoredCredentials(self.rows, KEY))  # type: ignore[arg-type]
        world.servers.grants = McpGrants(
            reader,
            self.identity,  # type: ignore[arg-type]
            world.servers.oauth_requests,
            secret=KEY,
            origin="http://127.0.0.1:8787",
            clock_ms=lambda: self.now_ms,
        )
        return world

    async def begin(self, world: World | None = None, scopes: tuple[str, ...] = (), user: str = "") -> str:
        """Return where the authorization server has the person go."""
        world = world or self.world
        grants, server = world.servers.grants, world.server("crm")
        assert grants is not None
        challenge = await world.servers.find_challenge(server)
        scope = "user" if user else "tenant"
        url = await grants.begin(server, challenge, scope=scope, scope_id=user, subject="ann", scopes=scopes)
        state = dict(parse_qsl(urlsplit(url).query))["state"]
        return (await grants.find_pending(state)).url

    async def finish(self, query: dict[str, str], world: World | None = None) -> None:
        servers = (world or self.world).servers
        assert servers.grants is not None
        await servers.grants.finish(query, servers.find)

    async def log_in(self, **asked: Any) -> None:
        await self.finish(self.peer.consent(await self.begin(**asked)))

    async def call(self, world: World | None = None, user: str = "ann") -> str:
        world = world or self.world
        values = RunValues(root_run_id="r_0", tenant="acme", credentials={}, user=user)
        session = await world.servers.session(world.server("crm"), values)
        return (await session.call_tool("echo", {"text": "hi"}, timeout_s=30)).text


@pytest.fixture
async def peer():
    async with GuardedServer() as peer:
        yield peer


@pytest.fixture
async def here(peer):
    here = Here(peer)
    yield here
    await here.world.servers.close()


async def test_a_server_that_asks_is_used_once_a_person_has_granted_access(peer, here):
    with pytest.raises(AuthorizationNeeded, match="run: loomlog mcp servers login crm"):
        await here.call()
    url = await here.begin()
    asked = dict(parse_qsl(urlsplit(url).query))
    assert (asked["code_challenge_method"], asked["resource"], asked["scope"]) == ("S256", peer.url, "read")
    await here.finish(peer.consent(url))
    assert await here.call() == "hi", "at once: a missing grant is no failure that is waited out"
    assert peer.forms[0]["resource"] == peer.url
    assert "access-1" not in str(here.rows.rows), "sealed"
    assert [(one.scope, one.name) for one in here.identity.credentials("acme").values()] == [
        ("tenant", "mcp-oauth-crm")
    ]


async def test_another_process_finishes_what_one_began_and_nobody_does_twice(peer, here):
    brought = peer.consent(await here.begin())
    other = here.process()
    await here.finish(brought, other)
    assert await here.call() == "hi"
    with pytest.raises(Refused, match="was used already"):
        await here.finish({**brought, "code": "code-0"})
    await other.servers.close()


async def test_a_grant_of_a_user_serves_the_runs_of_that_user_alone(peer, here):
    await here.log_in(user="ann")
    assert await here.call(user="ann") == "hi"
    with pytest.raises(AuthorizationNeeded):
        await here.call(user="bob")


async def test_a_token_is_renewed_before_it_ends_and_by_one_process(peer, here):
    await here.log_in()
    other = here.process()
    here.now_ms += 590_000
    assert await asyncio.gather(here.call(), here.call(other), here.call(user="bob")) == ["hi"] * 3
    assert [form["grant_type"] for form in peer.forms] == ["authorization_code", "refresh_token"]
    assert peer.forms[1]["resource"] == peer.url
    await other.servers.close()


async def test_a_token_that_the_server_no_longer_takes_is_renewed_once(peer, here):
    await here.log_in()
    assert await here.call() == "hi"
    peer.tokens.clear()
    assert await here.call() == "hi"
    assert len(peer.forms) == 2
    peer.tokens.clear()
    peer.pages["/as/token"] = lambda headers, body: {"access_token": "bad", "token_type": "bearer", "expires_in": 60}
    with pytest.raises(AuthorizationNeeded):
        await here.call()


async def test_a_renewed_token_whose_event_was_not_written_counts(peer, here):
    await here.log_in()
    here.now_ms += 590_000
    here.identity.is_away = True  # the process dies between the row and the event
    with pytest.raises(Refused):
        await here.call()
    here.identity.is_away = False
    other = here.process()
    assert await here.call(other) == "hi"
    assert [form["grant_type"] for form in peer.forms] == ["authorization_code", "refresh_token"]
    await other.servers.close()


async def test_a_grant_that_the_server_has_ended_is_over_and_the_error_says_what_to_do(peer, here):
    await here.log_in()
    peer.tokens.clear()
    peer.refresh_tokens.clear()
    with pytest.raises(AuthorizationNeeded, match="login crm"):
        await here.call()
    assert here.identity.credentials("acme") == {}
    assert not here.rows.rows


async def test_more_access_is_named_with_its_scopes(peer, here):
    await here.log_in()
    peer.needs_scope = "write"
    with pytest.raises(AuthorizationNeeded, match=r"scope 'write'.*login crm --scopes write"):
        await here.call()
    await here.log_in(scopes=("read", "write"))
    assert await here.call() == "hi"


async def test_a_client_that_needs_no_person_gets_its_tokens_itself(peer):
    here = Here(peer, grant="client_credentials", client_id="robot", client_secret="s3cret", scopes=("read",))
    assert await here.call() == "hi"
    assert (peer.forms[0]["client_id"], peer.forms[0]["scope"], peer.forms[0]["resource"]) == (
        "robot",
        "read",
        peer.url,
    )
    peer.tokens.clear()
    assert await here.call() == "hi"
    await here.world.servers.close()


async def test_a_server_that_asks_says_so_in_its_listing_and_a_grant_ends_that(peer, here):
    server = here.world.server("crm")
    with pytest.raises(AuthorizationNeeded):
        await here.world.servers.discover(server, "start")
    assert here.world.servers.listed(server).reason == "needs_authorization"
    await here.log_in()
    await here.world.servers.discover(server, "probe")
    assert here.world.servers.listed(server).reason == ""


async def test_tokens_that_a_server_sends_back_are_masked(peer, here):
    await here.log_in()
    peer.answers["tools/call"] = lambda request: {"content": [{"type": "text", "text": f"you sent {[*peer.tokens]}"}]}
    assert await here.call() == "you sent ['[redacted:credential]']"


async def test_a_grant_is_for_its_address_alone_and_no_header_reaches_it(peer, here):
    await here.log_in()
    reader = here.world.servers.grants._reader
    assert reader.find(grant_name("crm"), CredentialUser(tenant="acme")) is None
    here.block = McpServerBlock(transport="http", url=peer.url.replace("/mcp", "/other"))
    moved = here.process()
    key = reader.find_grant(grant_name("crm"), CredentialUser(tenant="acme")).key
    assert await moved.servers.grants.current(moved.server("crm"), key) is None


async def test_a_server_with_an_authorization_header_of_its_own_gets_no_grant(peer, here):
    await here.log_in()
    here.block = McpServerBlock(transport="http", url=peer.url, headers={"authorization": "Bearer own"})
    world = here.process()
    assert world.servers.grants.source(world.server("crm"), NO_RUN) is None
    with pytest.raises(AuthorizationNeeded, match="see `headers`"):
        await here.call(world)
    await world.servers.close()


# --- hostile ---------------------------------------------------------------------------------------------------------

INSIDE = "https://169.254.169.254/latest"
HOSTILE = {
    "metadata of another resource": (
        lambda peer: peer.resource.update(resource="https://other.example"),
        "another res",
    ),
    "no authorization server": (lambda peer: peer.resource.update(authorization_servers=[]), "no authorization server"),
    "a server without https": (
        lambda peer: peer.resource.update(authorization_servers=["http://login.example"]),
        "no authorization server with https",
    ),
    "another issuer": (lambda peer: peer.metadata.update(issuer="https://login.example"), "another issuer"),
    "no PKCE": (lambda peer: peer.metadata.update(code_challenge_methods_supported=None), "does not support PKCE"),
    "plain PKCE": (lambda peer: peer.metadata.update(code_challenge_methods_supported=["plain"]), "support PKCE"),
    "metadata at a link-local address": (
        lambda peer: peer.challenge.update(resource_metadata=INSIDE),
        "has no public address",
    ),
    "an issuer at a link-local address": (
        lambda peer: peer.resource.update(authorization_servers=[INSIDE]),
        "has no public address",
    ),
    "registration at a link-local address": (
        lambda peer: peer.metadata.update(registration_endpoint=INSIDE),
        "has no public address",
    ),
    "a token endpoint without https": (
        lambda peer: peer.metadata.update(token_endpoint="http://169.254.169.254/token"),
        "token_endpoint of the authorization server is not an address with https",
    ),
    "a redirect to a link-local address": (
        lambda peer: peer.pages.update({RESOURCE: lambda headers, body: Raw(302, {"location": INSIDE})}),
        "answered 302",
    ),
    "a redirect of the issuer": (
        lambda peer: peer.pages.update({SERVER: lambda headers, body: Raw(307, {"location": INSIDE})}),
        "answered 307",
    ),
    "huge metadata": (lambda peer: peer.resource.update(x="x" * ANSWER_BYTES_MAX), "has more than"),
    "metadata that is a list": (
        lambda peer: peer.pages.update({RESOURCE: lambda headers, body: document([])}),
        "is not a JSON object",
    ),
    "no registration": (lambda peer: peer.metadata.update(registration_endpoint=None), "registers no clients"),
    "a client without an id": (
        lambda peer: peer.pages.update({"/as/register": lambda headers, body: {}}),
        "registered no client",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
async def test_what_a_hostile_server_says_of_itself_is_refused(peer, here, case):
    change, problem = HOSTILE[case]
    change(peer)
    with pytest.raises(ConnectorError, match=problem):
        await here.begin()
    assert not here.rows.rows
    assert not peer.forms


BROUGHT: dict[str, tuple[dict[str, str], str]] = {
    "another issuer": ({"iss": "https://evil.example"}, "of another authorization server"),
    "no issuer": ({"iss": ""}, "of another authorization server"),
    "an error": ({"error": "access_denied", "error_description": "no\nthanks"}, "access_denied: no thanks"),
    "another code": ({"code": "made-up"}, "invalid_grant"),
    "no code": ({"code": ""}, "has no code"),
}


@pytest.mark.parametrize("case", BROUGHT)
async def test_what_a_browser_brings_is_checked_and_the_state_is_used_up(peer, here, case):
    changes, problem = BROUGHT[case]
    brought = peer.consent(await here.begin())
    with pytest.raises(Permanent, match=problem):
        await here.finish({**brought, **changes})
    with pytest.raises(Refused, match="was used already"):
        await here.finish(brought)
    assert here.identity.credentials("acme") == {}


@pytest.mark.parametrize("change", ["made up", "cut", "late", "begun again"])
async def test_a_state_that_is_not_ours_or_no_longer_counts_is_refused(peer, here, change):
    brought = peer.consent(await here.begin())
    match change:
        case "made up":
            brought["state"] = "A" * 80
        case "cut":
            brought["state"] = brought["state"][:-4]
        case "late":
            here.now_ms += 600_000
        case "begun again":
            here.now_ms += 1
            await here.begin()
    with pytest.raises(Refused, match="begin again"):
        await here.finish(brought)
    assert not peer.forms


TOKENS = {
    "another type": {"access_token": "a", "token_type": "mac"},
    "none": {"token_type": "bearer"},
    "a line break": {"access_token": "a\nb", "token_type": "bearer"},
    "too long": {"access_token": "a" * 6_001, "token_type": "bearer"},
    "a huge refresh token": {"access_token": "a", "refresh_token": "r" * 6_001, "token_type": "bearer"},
}


@pytest.mark.parametrize("case", TOKENS)
async def test_tokens_that_cannot_be_sent_or_kept_are_refused(peer, here, case):
    peer.pages["/as/token"] = lambda headers, body: TOKENS[case]
    with pytest.raises(Permanent, match="the authorization server gave no"):
        await here.log_in()
    assert here.identity.credentials("acme") == {}


async def test_a_grant_that_a_person_wrote_by_hand_is_none(here):
    world = here.world
    key = CredentialKey(tenant="acme", scope="tenant", name=grant_name("crm"))
    await StoredCredentials(here.rows, KEY).put(key, 1, "not json")
    here.identity.known["acme"] = {
        entry_key("tenant", "", key.name): Credential(
            scope="tenant", scope_id="", name=key.name, version=1, created_at_ms=1, updated_at_ms=1
        )
    }
    assert await world.servers.grants.current(world.server("crm"), key) is None
