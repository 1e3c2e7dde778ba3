"""Sign-in to the page with an identity provider: the whole way over HTTP, and what is refused on it."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.identity_providers.sign_in import open_sign_in
from loomlog.services.api.service import Service
from loomlog.services.application.authentication import Authenticator
from tests.connectors.identity_providers.provider import KEYS, block
from tests.identity_server import PAGE_CLIENT, IdentityServer, serve_identity
from tests.services.api.serving import service_of
from tests.services.api.test_ui_page import HOST, client_of, service_with_page
from tests.services.application.world import tokens

KEY = SecretKey(keys=(b"k" * 32,))
CALLBACK = f"{HOST}/ui/sign-in/callback"


@pytest.fixture
def identity() -> Iterator[IdentityServer]:
    with serve_identity(claims={"groups": ["staff"]}) as made:
        yield made


def api_of(folder: Path, identity: IdentityServer, *, key: SecretKey = KEY, **changes: Any) -> Service:
    """Return an api process with this provider."""
    folder.mkdir(exist_ok=True)
    service = service_with_page(folder)
    company = block(
        issuer=identity.issuer, client_id=PAGE_CLIENT, default_access=None, groups={"staff": "tenant"}, **changes
    )
    service.configuration = replace(service.configuration, issuers={"company": company})
    environ = {"LOGIN_SECRET": identity.client_secret}
    providers, service.sign_in = open_sign_in(service.configuration, environ, key)
    service.authenticator = Authenticator(tokens(), providers=providers)
    return service


@dataclass
class Browser:
    """A browser at an api process, which can go on at another one."""

    client: httpx.AsyncClient

    async def begin(self, to: str = "/ui/runs") -> str:
        """Click on the button; return the address at the provider."""
        answer = await self.client.get("/ui/sign-in", params={"issuer": "company", "to": to})
        assert answer.status_code == 303
        return answer.headers["location"]

    async def allow(self, address: str) -> httpx.Response:
        """Click on the provider's button, and come back."""
        async with httpx.AsyncClient(trust_env=False) as provider:
            page = await provider.get(address)
        link = page.text.split('href="')[1].split('"')[0].replace("&amp;", "&")
        assert link.startswith(CALLBACK)
        return await self.client.get(link.removeprefix(HOST))

    async def sign_in(self) -> httpx.Response:
        return await self.allow(await self.begin())

    async def me(self) -> Any:
        return await self.client.get("/v1/_me", headers={"sec-fetch-site": "same-origin"})

    def goes_on_at(self, service: Service) -> "Browser":
        other = client_of(service)
        other.cookies.update(self.client.cookies)
        return Browser(other)


def cookies_of(answer: httpx.Response) -> SimpleCookie:
    cookies = SimpleCookie()
    for text in answer.headers.get_list("set-cookie"):
        cookies.load(text)
    return cookies


async def test_a_person_signs_in_and_is_who_the_provider_says(tmp_path: Path, identity: IdentityServer) -> None:
    browser = Browser(client_of(api_of(tmp_path, identity)))
    answer = await browser.sign_in()
    assert (answer.status_code, answer.headers["location"], answer.headers["cache-control"]) == (
        303,
        "/ui/runs",
        "no-store",
    )
    session = cookies_of(answer)["loomlog_session_8787"]
    assert (session["httponly"], session["samesite"], session["path"], session["secure"]) == (True, "Strict", "/", "")
    assert session.value.startswith("lps_")
    me = (await browser.me()).json()
    assert (me["tenant_id"], me["subject"], me["name"]) == ("acme", "ann", "company/ann")
    assert me["scopes"] == ["channel:publish", "channel:read", "runs:create", "runs:read"]


async def test_under_https_the_cookies_are_for_https_alone(tmp_path: Path, identity: IdentityServer) -> None:
    client = client_of(api_of(tmp_path, identity))
    answer = await client.get("/ui/sign-in?issuer=company", headers={"x-forwarded-proto": "https"})
    pending = cookies_of(answer)["loomlog_sign_in_8787"]
    assert (pending["httponly"], pending["samesite"], pending["path"], pending["secure"]) == (
        True,
        "Lax",
        "/ui/sign-in",
        True,
    )
    query = parse_qs(urlsplit(answer.headers["location"]).query)
    assert query["redirect_uri"] == [CALLBACK.replace("http:", "https:")]


async def test_the_configured_address_is_where_the_provider_sends_people_back(
    tmp_path: Path, identity: IdentityServer
) -> None:
    service = api_of(tmp_path, identity)
    service.public_url = "https://loomlog.example.com/"
    query = parse_qs(urlsplit(await Browser(client_of(service)).begin()).query)
    assert query["redirect_uri"] == ["https://loomlog.example.com/ui/sign-in/callback"]
    assert query["code_challenge_method"] == ["S256"]
    assert query["scope"] == ["openid profile email"]
    assert len(query["state"][0]) == len(query["nonce"][0]) == 43


async def test_another_process_finishes_what_one_began_and_serves_the_session(
    tmp_path: Path, identity: IdentityServer
) -> None:
    first = Browser(client_of(api_of(tmp_path / "one", identity)))
    address = await first.begin()
    second = first.goes_on_at(api_of(tmp_path / "two", identity))
    assert (await second.allow(address)).headers["location"] == "/ui/runs"
    third = second.goes_on_at(api_of(tmp_path / "three", identity))
    assert (await third.me()).status_code == 200


async def test_a_confidential_client_shows_its_secret(tmp_path: Path) -> None:
    with serve_identity(claims={"groups": ["staff"]}, client_secret="s3cret:with%chars") as identity:
        browser = Browser(client_of(api_of(tmp_path, identity, client_secret_env="LOGIN_SECRET")))
        assert (await browser.sign_in()).headers["location"] == "/ui/runs"
        (request,) = identity.requests
        assert "s3cret" not in str(request)


async def test_roles_may_be_in_the_access_token_alone(tmp_path: Path) -> None:
    with serve_identity(access_claims={"groups": ["staff"]}) as identity:
        browser = Browser(client_of(api_of(tmp_path, identity)))
        assert (await browser.sign_in()).headers["location"] == "/ui/runs"
        identity.access_claims["aud"] = "billing"
        assert (await browser.sign_in()).headers["location"] == "/ui/login?problem=refused"


@pytest.mark.parametrize(
    "claims",
    [
        {"groups": ["others"]},
        {"groups": ["staff"], "aud": "another-client"},
        {"groups": ["staff"], "nonce": "of-another-sign-in"},
        {"groups": ["staff"], "nonce": None},
        {"groups": ["staff"], "iss": "https://evil.example.com"},
        {"groups": ["staff"], "exp": 1},
        {"groups": ["staff"], "sub": None},
    ],
)
async def test_an_answer_that_does_not_count_signs_no_person_in(
    tmp_path: Path, identity: IdentityServer, claims: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    identity.claims = claims
    browser = Browser(client_of(api_of(tmp_path, identity)))
    with caplog.at_level(logging.DEBUG, "loomlog"):
        answer = await browser.sign_in()
    assert answer.headers["location"] == "/ui/login?problem=refused"
    assert "loomlog_session_8787" not in cookies_of(answer)
    assert (await browser.me()).status_code == 401
    assert "eyJ" not in caplog.text


async def test_a_forged_signature_signs_no_person_in(tmp_path: Path, identity: IdentityServer) -> None:
    browser = Browser(client_of(api_of(tmp_path, identity)))
    await browser.sign_in()
    identity.provider.keys = {"one": KEYS["RS256"][1]}
    assert (await browser.sign_in()).headers["location"] == "/ui/login?problem=refused"


async def test_a_person_who_says_no_is_told_so(tmp_path: Path, identity: IdentityServer) -> None:
    browser = Browser(client_of(api_of(tmp_path, identity)))
    state = parse_qs(urlsplit(await browser.begin()).query)["state"][0]
    answer = await browser.client.get(f"/ui/sign-in/callback?error=access_denied&state={state}")
    assert answer.headers["location"] == "/ui/login?problem=denied"
    assert not identity.requests


@pytest.mark.parametrize(
    "query", ["", "?code=x", "?code=x&state=other", "?state={state}", "?code=x&state={state}", "?code=%00&state=%ff"]
)
async def test_an_answer_that_was_made_up_signs_no_person_in(
    tmp_path: Path, identity: IdentityServer, query: str
) -> None:
    browser = Browser(client_of(api_of(tmp_path, identity)))
    state = parse_qs(urlsplit(await browser.begin()).query)["state"][0]
    answer = await browser.client.get("/ui/sign-in/callback" + query.format(state=state))
    assert answer.headers["location"] == "/ui/login?problem=denied"


async def test_another_browser_cannot_finish_a_sign_in(tmp_path: Path, identity: IdentityServer) -> None:
    service = api_of(tmp_path, identity)
    address = await Browser(client_of(service)).begin()
    answer = await Browser(client_of(service)).allow(address)
    assert answer.headers["location"] == "/ui/login?problem=refused"


async def test_a_code_counts_once(tmp_path: Path, identity: IdentityServer) -> None:
    browser = Browser(client_of(api_of(tmp_path, identity)))
    address = await browser.begin()
    pending = dict(browser.client.cookies)
    identity.codes["stolen"] = {"code_challenge": "another", "code_challenge_method": "S256", "client_id": PAGE_CLIENT}
    state = parse_qs(urlsplit(address).query)["state"][0]
    answer = await browser.client.get(f"/ui/sign-in/callback?code=stolen&state={state}")
    assert answer.headers["location"] == "/ui/login?problem=denied"
    assert "loomlog_sign_in_8787" in pending
    assert "loomlog_sign_in_8787" not in browser.client.cookies


@pytest.mark.parametrize(
    "to",
    [
        "",
        "https://evil.example.com",
        "//evil.example.com",
        "/v1/_me",
        "/ui/\\evil",
        "/ui/\n",
        "/uievil",
        "/ui/" + "a" * 2_000,
    ],
)
async def test_a_sign_in_leads_to_a_page_of_ours(tmp_path: Path, identity: IdentityServer, to: str) -> None:
    browser = Browser(client_of(api_of(tmp_path, identity)))
    assert (await browser.allow(await browser.begin(to))).headers["location"] == "/ui"


async def test_a_provider_that_is_away_is_named_as_that(tmp_path: Path, identity: IdentityServer) -> None:
    browser = Browser(client_of(api_of(tmp_path, identity)))
    address = await browser.begin()
    identity.answers["/token"] = (503, b"busy")
    assert (await browser.allow(address)).headers["location"] == "/ui/login?problem=away"
    identity.answers["/.well-known/openid-configuration"] = (500, b"")
    assert await browser.begin() == "/ui/login?problem=away"


@pytest.mark.parametrize(
    "answer", [b"", b"[]", b"{}", b"nonsense", b'{"id_token": 7}', b'{"id_token": "a.b.c"}', b"[" * 300_000]
)
async def test_an_answer_that_is_none_of_oauth_signs_no_person_in(
    tmp_path: Path, identity: IdentityServer, answer: bytes
) -> None:
    browser = Browser(client_of(api_of(tmp_path, identity)))
    address = await browser.begin()
    identity.answers["/token"] = (200, answer)
    assert "/ui/login?problem=" in (await browser.allow(address)).headers["location"]
    assert (await browser.me()).status_code == 401


async def test_without_sign_in_there_is_no_address_for_it(tmp_path: Path, identity: IdentityServer) -> None:
    without, client = client_of(service_with_page(tmp_path)), client_of(api_of(tmp_path / "with", identity))
    for path in ("/ui/sign-in?issuer=company", "/ui/sign-in/callback?code=x&state=y"):
        assert (await without.get(path)).status_code == 404
    assert (await client.get("/ui/sign-in?issuer=other")).status_code == 404
    assert (await client.post("/ui/sign-in?issuer=company")).status_code == 405


async def test_a_session_ends_with_its_time_its_provider_or_its_group(tmp_path: Path, identity: IdentityServer) -> None:
    browser = Browser(client_of(api_of(tmp_path / "first", identity)))
    await browser.sign_in()
    for changed in (
        api_of(tmp_path / "key", identity, key=SecretKey(keys=(b"x" * 32,))),
        api_of(tmp_path / "groups", identity, groups_claim="roles"),
        service_with_page(tmp_path),
    ):
        assert (await browser.goes_on_at(changed).me()).status_code == 401
    service = api_of(tmp_path / "later", identity)
    service.authenticator.providers.time_s = lambda: 10**11
    assert (await browser.goes_on_at(service).me()).status_code == 401
    rotated = api_of(tmp_path / "rotated", identity, key=SecretKey(keys=(b"x" * 32, *KEY.keys)))
    assert (await browser.goes_on_at(rotated).me()).status_code == 200


async def test_the_sign_in_page_learns_which_providers_there_are(tmp_path: Path, identity: IdentityServer) -> None:
    service = api_of(tmp_path, identity, title="Example Ltd.", device_client_id="cli")
    answer = (await client_of(service).get("/ui/login-config.json")).json()
    assert answer["issuers"] == [
        {
            "name": "company",
            "title": "Example Ltd.",
            "page": True,
            "issuer": identity.issuer,
            "device_client_id": "cli",
            "scopes": ["openid", "profile", "email"],
        }
    ]
    assert "issuers" not in (await client_of(service_of(None, tmp_path)).get("/ui/login-config.json")).json()
