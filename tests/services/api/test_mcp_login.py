"""A person grants access to an MCP server in a browser: our page first, then the server's, and back."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import pytest_asyncio

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.services.families.identity.services import IdentityOptions
from loomlog.services.families.mcp.servers import McpOptions
from tests.connectors.mcp.authorization_server import GuardedServer
from tests.services.api.serving import Served, served
from tests.services.application.world import ACME, GLOBEX

pytestmark = pytest.mark.asyncio(loop_scope="session")
SERVERS = "/v1/_mcp_servers"


class Here:
    """A served API with a server `crm` that asks for tokens."""

    def __init__(self, made: Served, peer: GuardedServer) -> None:
        self.served = made
        self.peer = peer

    def browser(self) -> httpx.AsyncClient:
        """Return a browser without a token."""
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.served.app), base_url="http://127.0.0.1:8787")

    async def begin(self) -> str:
        """Return the address that the operator opens."""
        answer = await self.served.client(ACME).post(f"{SERVERS}/crm/login", json={})
        assert answer.status_code == 200, answer.text
        url: str = answer.json()["url"]
        return url

    async def row(self) -> dict[str, Any]:
        [row] = (await self.served.client(ACME).get(SERVERS)).json()["servers"]
        return dict(row)


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[Here]:
    options = [IdentityOptions(secret=SecretKey(keys=(bytes(32),))), McpOptions(private_hosts=("127.0.0.1",))]
    async with GuardedServer() as peer, served(tmp_path, family_options=options) as made:
        overlay = {"transport": "http", "url": peer.url}
        body = {"op": "create", "name": "crm", "overlay": overlay, "discover": False}
        answer = await made.client(ACME).post("/v1/_mcpserverdef", json=body)
        assert answer.status_code == 200, answer.text
        yield Here(made, peer)


def link_of(page: httpx.Response) -> str:
    return page.text.split('href="')[1].split('"')[0].replace("&amp;", "&")


async def test_a_person_is_shown_who_asks_and_comes_back_with_access(here: Here) -> None:
    refused = await here.served.client(ACME).post(f"{SERVERS}/crm/probe")
    assert (refused.status_code, "login crm" in refused.text) == (409, True)
    assert (await here.row())["authorization"] == "needs_authorization"
    async with here.browser() as browser:
        page = await browser.get(await here.begin())
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert here.peer.url in page.text
        leads = await browser.get(link_of(page))
        assert leads.status_code == 302
        done = await browser.get(
            "/v1/_mcp_oauth/callback", params=here.peer.consent(leads.headers["location"], session_state="x")
        )
        assert (done.status_code, "Access granted" in done.text) == (200, True)
    row = await here.row()
    assert (row["authorization"], row["tool_count"], row["error"]) == ("granted", 1, "")
    known = await here.served.client(ACME).post("/v1/_credentialdef", json={"op": "list"})
    assert [one["name"] for one in known.json()["credentials"]] == ["mcp-oauth-crm"]
    records = [one for log in here.served.world.log.records.values() for one in log]
    assert not any(b"access-1" in (one.value or b"") or b"refresh-1" in (one.value or b"") for one in records)


async def test_a_browser_that_did_not_consent_finishes_nothing(here: Here) -> None:
    async with here.browser() as mine, here.browser() as theirs:
        url = await here.begin()
        leads = await mine.get(link_of(await mine.get(url)))
        brought = here.peer.consent(leads.headers["location"])
        assert (await theirs.get("/v1/_mcp_oauth/callback", params=brought)).status_code == 403
        # A link with a hash that another browser was given leads to the page, and not on.
        go = parse_qs(urlsplit(link_of(await mine.get(url))).query)["go"][0]
        assert (await theirs.get(f"{url}&go={go}")).status_code == 200
        assert (await theirs.get("/v1/_mcp_oauth/callback", params=brought)).status_code == 403
    assert (await here.row())["authorization"] != "granted"


async def test_a_state_that_is_made_up_is_refused(here: Here) -> None:
    async with here.browser() as browser:
        answer = await browser.get("/v1/_mcp_oauth/authorize", params={"state": "made-up"})
    assert (answer.status_code, "begin again" in answer.text) == (400, True)


async def test_another_tenant_neither_sees_nor_begins_it(here: Here) -> None:
    assert (await here.served.client(GLOBEX).post(f"{SERVERS}/crm/login", json={})).status_code == 404


async def test_the_client_document_names_the_callback(here: Here) -> None:
    async with here.browser() as browser:
        document = (await browser.get("/v1/_mcp_oauth/client.json")).json()
    assert document["client_id"].endswith("/v1/_mcp_oauth/client.json")
    assert document["redirect_uris"] == [document["client_id"].replace("client.json", "callback")]
