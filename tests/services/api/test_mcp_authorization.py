"""What tells a client of MCP where it gets a token."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from loomlog.connectors.identity_providers.providers import IdentityProviders
from loomlog.services.api.app import build_app
from loomlog.services.api.service import Service
from loomlog.services.application.authentication import Authenticator
from tests.connectors.identity_providers.provider import ISSUER, Provider, block
from tests.services.api.serving import service_of
from tests.services.application.world import tokens

HOST = "http://loomlog.example.com"
WELL_KNOWN = "/.well-known/oauth-protected-resource"


def api_with(folder: Path, provider: Provider, **changes: Any) -> Service:
    service = service_of(None, folder)
    issuers = {"company": block(**changes)}
    service.configuration = replace(service.configuration, issuers=issuers)
    service.authenticator = Authenticator(tokens(), providers=IdentityProviders(issuers, provider.fetch))
    return service


def client_of(service: Service, token: str = "") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=build_app(service), raise_app_exceptions=False)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return httpx.AsyncClient(transport=transport, base_url=HOST, headers=headers)


@pytest.mark.parametrize("path", ["", "/v1/_mcp"])
async def test_the_document_names_the_providers(tmp_path: Path, path: str) -> None:
    answer = await client_of(api_with(tmp_path, Provider())).get(WELL_KNOWN + path)
    assert answer.json() == {
        "resource": HOST + path,
        "authorization_servers": [ISSUER],
        "scopes_supported": ["email", "openid", "profile"],
        "bearer_methods_supported": ["header"],
        "resource_name": "loomlog",
    }
    assert answer.headers["access-control-allow-origin"] == "*"


async def test_the_configured_address_is_the_resource(tmp_path: Path) -> None:
    service = api_with(tmp_path, Provider())
    service.public_url = "https://loomlog.example.com/"
    answer = await client_of(service).get(f"{WELL_KNOWN}/v1/_mcp")
    assert answer.json()["resource"] == "https://loomlog.example.com/v1/_mcp"


async def test_a_client_without_a_token_reads_where_the_document_is(tmp_path: Path) -> None:
    client = client_of(api_with(tmp_path, Provider()))
    answer = await client.post("/v1/_mcp", json={})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == (
        f'Bearer realm="loomlog", resource_metadata="{HOST}{WELL_KNOWN}/v1/_mcp"'
    )
    other = await client.get("/v1/_me")
    assert other.headers["www-authenticate"].endswith(f'resource_metadata="{HOST}{WELL_KNOWN}"')


async def test_a_token_for_another_audience_is_no_token_here(tmp_path: Path) -> None:
    provider = Provider()
    audience = (f"{HOST}/v1/_mcp",)
    service = api_with(tmp_path, provider, audience=audience, default_access="isolated")
    answer = await client_of(service, provider.token(aud=audience[0])).post("/v1/_mcp", json={})
    assert answer.status_code == 400, "no message of MCP, by a caller who may send one"
    answer = await client_of(service, provider.token(aud=HOST)).post("/v1/_mcp", json={})
    assert answer.status_code == 401
    assert "resource_metadata=" in answer.headers["www-authenticate"]


async def test_a_host_that_is_none_is_not_repeated(tmp_path: Path) -> None:
    headers = {"host": 'evil", error="x'}
    answer = await client_of(api_with(tmp_path, Provider())).get("/v1/_me", headers=headers)
    assert answer.headers["www-authenticate"].endswith(f'resource_metadata="http://localhost{WELL_KNOWN}"')


async def test_without_providers_nothing_is_said_about_them(tmp_path: Path) -> None:
    client = client_of(service_of(None, tmp_path))
    assert (await client.get(WELL_KNOWN)).json()["code"] == "route_not_found"
    assert (await client.get("/v1/_me")).headers["www-authenticate"] == 'Bearer realm="loomlog"'
