"""Access tokens that are renewed at use, and tokens of GitHub Apps: once for all who wait, and nothing is lost."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from loomlog.connectors.credentials.json_requests import JsonRequests
from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.storage.stored_credentials import CredentialKey
from loomlog.schemas.generated.identity_commands import NoteCredential
from loomlog.schemas.records import replace
from loomlog.services.families.identity.credentials import CredentialReader
from loomlog.services.families.identity.renewals import ABANDONED_MS, Renewals
from loomlog.services.families.identity.state import entry_key
from loomlog.services.families.ports.credentials import CredentialUser
from tests.connectors.credentials.peer import Answer, Peer, Request
from tests.connectors.credentials.test_github_apps import answer_token, app_text
from tests.services.families.identity.stored import Stored

ADA = CredentialUser(tenant="acme", user="ada", agent="helper")
NOW_MS = 1_760_000_000_000
HOUR_MS = 3_600_000


class Server:
    """An OAuth server that replaces refresh tokens, with a process or two that use them."""

    def __init__(self) -> None:
        self.stored = Stored()
        self.now_ms = NOW_MS
        self.good = "refresh-1"
        self.given = 1
        self.failures: list[Exception] = []
        """Raised when a version is noted."""

    def answer(self, request: Request) -> Answer:
        if request.form["refresh_token"] != self.good:
            return 400, {"error": "invalid_grant", "error_description": request.form["refresh_token"]}
        self.given += 1
        self.good = f"refresh-{self.given}"
        return 200, {"access_token": f"access-{self.given}", "refresh_token": self.good, "expires_in": 3600}

    async def note(self, command: NoteCredential) -> bool:
        if self.failures:
            raise self.failures.pop()
        key = entry_key(command.scope, command.scope_id, command.name)
        before = self.stored.known.get(key)
        if before is None or before.version != command.replaces:
            return False
        self.stored.known[key] = replace(before, version=command.version)
        return True

    def process(self) -> CredentialReader:
        requests = JsonRequests(private_hosts=("127.0.0.1",))
        renewals = Renewals(self.stored.store, requests, self.note, clock_ms=lambda: self.now_ms)
        return self.stored.reader(renewals=renewals, requests=requests, clock_s=lambda: self.now_ms / 1000)

    async def store(self, peer: Peer, **changes: Any) -> CredentialKey:
        fields = {"token_url": peer.url + "/token", "client_id": "c", "refresh_token": "refresh-1", **changes}
        self.stored.version = NOW_MS - 2 * ABANDONED_MS
        return await self.stored.set("crm", json.dumps(fields), reference="oauth:")

    async def text(self, key: CredentialKey) -> str:
        version = self.stored.known[entry_key("tenant", "", "crm")].version
        return await self.stored.store.get(key, version) or ""


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def peer(server: Server) -> AsyncIterator[Peer]:
    async with Peer(server.answer) as peer:
        yield peer


async def use(process: CredentialReader) -> str:
    return (await process.resolve("$cred:crm", ADA)).value


async def test_a_token_is_renewed_once_when_it_is_about_to_end(server: Server, peer: Peer) -> None:
    key = await server.store(peer, client_secret="s3cret")
    process = server.process()
    peer.held.clear()
    uses = [asyncio.create_task(use(process)) for _ in range(5)]
    while not peer.requests:
        await asyncio.sleep(0)
    uses[0].cancel()
    peer.held.set()
    assert await asyncio.gather(*uses[1:]) == ["access-2"] * 4
    assert peer.requests[0].form == {
        "grant_type": "refresh_token",
        "refresh_token": "refresh-1",
        "client_id": "c",
        "client_secret": "s3cret",
    }
    assert '"refresh-2"' in await server.text(key)
    assert len(server.stored.rows.rows) == 1
    server.now_ms += HOUR_MS - 301_000
    assert await use(server.process()) == "access-2"
    server.now_ms += 2_000
    assert await use(process) == "access-3"
    assert len(peer.requests) == 2


async def test_the_secret_of_the_client_may_be_in_a_header(server: Server, peer: Peer) -> None:
    await server.store(peer, client_secret="s3:cret", auth="basic", scope="read")
    await use(server.process())
    (request,) = peer.requests
    assert request.headers["authorization"] == "Basic YzpzMyUzQWNyZXQ="
    assert request.form == {"grant_type": "refresh_token", "refresh_token": "refresh-1", "scope": "read"}


async def test_a_refusal_is_named_and_changes_nothing(server: Server, peer: Peer) -> None:
    await server.store(peer, refresh_token="hunter2-hunter2")
    rows = dict(server.stored.rows.rows)
    with pytest.raises(Permanent, match=r"\$cred:crm: the refresh token is not accepted any more") as caught:
        await use(server.process())
    assert "hunter2" not in str(caught.value)
    assert server.stored.rows.rows == rows


async def test_a_pair_that_is_not_written_yet_is_used_and_written_later(server: Server, peer: Peer) -> None:
    key = await server.store(peer)
    process = server.process()
    server.failures = [Transient("the log is away", kind="unavailable")]
    assert await use(process) == "access-2"
    assert '"refresh-1"' in await server.text(key)
    assert await use(process) == "access-2"
    assert '"refresh-2"' in await server.text(key)
    assert len(peer.requests) == 1


async def test_a_row_of_a_process_that_died_before_its_event_is_named_and_nothing_is_lost(
    server: Server, peer: Peer
) -> None:
    key = await server.store(peer)
    server.failures = [Transient("killed", kind="unavailable")]
    await use(server.process())
    assert len(server.stored.rows.rows) == 2
    with pytest.raises(Transient, match="another process renews it"):
        await use(server.process())
    server.now_ms += ABANDONED_MS + 1
    assert await use(server.process()) == "access-2"
    assert '"refresh-2"' in await server.text(key)
    assert len(peer.requests) == 1


async def test_of_two_processes_the_second_takes_the_pair_of_the_first(server: Server, peer: Peer) -> None:
    key = await server.store(peer)
    process = server.process()
    text = await server.text(key)
    before = server.stored.known[entry_key("tenant", "", "crm")]
    await use(server.process())
    server.good = "refresh-1"
    renewals = process._renewals
    assert renewals is not None
    with pytest.raises(Transient):
        await renewals.access_token(key, before, text)
    assert await use(process) == "access-2"


async def test_a_credential_that_is_removed_is_not_brought_back(server: Server, peer: Peer) -> None:
    key = await server.store(peer)
    peer.held.clear()
    using = asyncio.create_task(use(server.process()))
    while not peer.requests:
        await asyncio.sleep(0)
    server.stored.known.clear()
    await server.stored.rows.delete(key, below=NOW_MS)
    peer.held.set()
    assert await using == "access-2"
    assert (server.stored.known, server.stored.rows.rows) == ({}, {})


# --- applications of GitHub ------------------------------------------------------------------------------------------


async def test_a_token_of_an_app_is_kept_until_it_is_about_to_end() -> None:
    server = Server()
    async with Peer(answer_token) as peer:
        await server.stored.set("bot", app_text(peer.url), reference="github_app:")
        process = server.process()
        tokens = await asyncio.gather(*(process.resolve("$ghapp:bot", ADA) for _ in range(3)))
        assert {one.value for one in tokens} == {"ghs_minted"}
        assert len(peer.requests) == 1
        server.now_ms += HOUR_MS
        await process.resolve("$ghapp:bot", ADA)
        assert len(peer.requests) == 2
        with pytest.raises(Permanent, match=r"use \$ghapp:bot"):
            await process.resolve("$cred:bot", ADA)
        await server.stored.set("git", "hunter2-hunter2")
        with pytest.raises(Permanent, match=r"\$ghapp:git: expected a JSON object") as caught:
            await process.resolve("$ghapp:git", ADA)
        assert "hunter2" not in str(caught.value)
