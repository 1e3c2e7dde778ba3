"""Signing in to the page and out, which requests the cookie counts for, and what other sites may do in open mode."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from loomlog.services.api.ui_session import host_names, is_own_host
from tests.services.api.test_ui_page import HOST, client_of, service_with_page

TOKEN = "acme-token"
BEARER = {"authorization": f"Bearer {TOKEN}"}
COOKIE = {"cookie": f"loomlog_session_8787={TOKEN}"}
OWN = {"sec-fetch-site": "same-origin"}
OTHER_SITES = ("cross-site", "same-site")


@pytest_asyncio.fixture(loop_scope="session")
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(service_with_page(tmp_path)) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def open_client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    service = service_with_page(tmp_path, open_mode=True)
    service.own_hosts = host_names("https://loom.example/base")
    async with client_of(service) as opened:
        yield opened


# --- signing in ------------------------------------------------------------------------------------------------------


async def test_a_token_becomes_a_cookie_that_no_script_and_no_other_site_gets(client: httpx.AsyncClient) -> None:
    answer = await client.post("/ui/session", headers={**BEARER, **OWN})
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["set-cookie"] == f"loomlog_session_8787={TOKEN}; HttpOnly; SameSite=Strict; Path=/"
    assert answer.headers["cache-control"] == "no-store"
    client.cookies.clear()


@pytest.mark.parametrize("proto", ["https", "HTTPS, http"])
async def test_the_cookie_is_secure_where_the_browser_came_by_https(proto: str, client: httpx.AsyncClient) -> None:
    headers = {**BEARER, "x-forwarded-proto": proto, "host": "loom.example"}
    answer = await client.post("/ui/session", headers=headers)
    assert answer.headers["set-cookie"] == f"loomlog_session={TOKEN}; HttpOnly; SameSite=Strict; Path=/; Secure"


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}, {**COOKIE, **OWN}]
)
async def test_without_a_known_token_in_the_header_nobody_signs_in(
    headers: dict[str, str], client: httpx.AsyncClient
) -> None:
    answer = await client.post("/ui/session", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("site", OTHER_SITES)
async def test_a_page_of_another_site_signs_nobody_in(site: str, client: httpx.AsyncClient) -> None:
    answer = await client.post("/ui/session", headers={**BEARER, "sec-fetch-site": site})
    assert (answer.status_code, answer.json()["code"]) == (403, "cross_site_login_refused")
    assert "set-cookie" not in answer.headers


async def test_in_open_mode_there_is_no_token_to_keep(open_client: httpx.AsyncClient) -> None:
    answer = await open_client.post("/ui/session", headers=OWN)
    assert answer.status_code == 204
    assert "set-cookie" not in answer.headers


async def test_in_open_mode_a_minted_token_that_has_ended_is_refused(open_client: httpx.AsyncClient) -> None:
    answer = await open_client.get("/v1/_me", headers={"authorization": "Bearer lct_gone"})
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")


@pytest.mark.parametrize("site", ["none", "same-origin"])
async def test_a_link_with_the_token_signs_in_and_loses_it(site: str, client: httpx.AsyncClient) -> None:
    answer = await client.get(f"/ui?agent=a+b&token={TOKEN}", headers={"sec-fetch-site": site})
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui?agent=a+b")
    assert answer.headers["set-cookie"].startswith(f"loomlog_session_8787={TOKEN};")
    assert answer.headers["referrer-policy"] == "no-referrer"
    client.cookies.clear()


@pytest.mark.parametrize("headers", [{}, *({"sec-fetch-site": site} for site in OTHER_SITES)])
async def test_a_link_of_another_site_signs_nobody_in(headers: dict[str, str], client: httpx.AsyncClient) -> None:
    answer = await client.get(f"/ui/?token={TOKEN}", headers=headers)
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui")
    assert "set-cookie" not in answer.headers


async def test_a_link_with_an_unknown_token_leads_to_the_page_without_it(client: httpx.AsyncClient) -> None:
    answer = await client.get("/ui?token=wrong", headers=OWN)
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui")
    assert "set-cookie" not in answer.headers


# --- requests with the cookie ----------------------------------------------------------------------------------------


async def test_the_cookie_identifies_the_caller_of_our_own_page(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/_me", headers={**COOKIE, **OWN})
    assert (answer.status_code, answer.json()["subject"]) == (200, "acme-op")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert answer.headers["cache-control"] == "no-store"


async def test_answers_to_a_token_in_the_header_are_as_they_were(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/_me", headers=BEARER)
    assert answer.status_code == 200
    assert "content-security-policy" not in answer.headers


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("GET", {}),
        ("GET", {"sec-fetch-site": "none"}),
        ("GET", {"sec-fetch-site": "same-origin"}),
        ("GET", {"origin": HOST}),
        ("POST", {"sec-fetch-site": "same-origin", "origin": HOST}),
        ("POST", {"origin": HOST}),
        ("POST", {}),
    ],
)
async def test_the_cookie_counts_where_our_page_or_no_page_asks(
    method: str, more: dict[str, str], client: httpx.AsyncClient
) -> None:
    path = "/v1/_me" if method == "GET" else "/v1/_resolve/probe"
    answer = await client.request(method, path, headers={**COOKIE, **more})
    # The probe needs an administrator, and its caller is none: it is known by then.
    assert answer.status_code == (200 if method == "GET" else 403), answer.text
    assert method == "GET" or answer.json()["code"] == "insufficient_scope"


@pytest.mark.parametrize(
    ("method", "more"),
    [
        *((method, {"sec-fetch-site": site, "origin": HOST}) for site in OTHER_SITES for method in ("GET", "POST")),
        ("POST", {"sec-fetch-site": "none"}),
        ("POST", {"origin": "https://evil.example"}),
        ("POST", {"origin": "http://127.0.0.1:9999"}),
        ("POST", {"origin": "null"}),
        ("GET", {"origin": "http://[bad"}),
    ],
)
async def test_the_cookie_is_nothing_where_another_site_asks(
    method: str, more: dict[str, str], client: httpx.AsyncClient
) -> None:
    path = "/v1/_me" if method == "GET" else "/v1/_resolve/probe"
    answer = await client.request(method, path, headers={**COOKIE, **more})
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")


async def test_a_header_wins_over_the_cookie_even_if_it_is_wrong(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/_me", headers={**COOKIE, **OWN, "authorization": "Bearer wrong"})
    assert answer.status_code == 401
    assert "content-security-policy" not in answer.headers


@pytest.mark.parametrize(
    "cookie",
    [
        "loomlog_session_8787=wrong",
        "loomlog_session_8787=",
        f"loomlog_session={TOKEN}",
        f"loomlog_session_9999={TOKEN}",
        f"x_loomlog_session_8787={TOKEN}",
    ],
)
async def test_another_cookie_is_no_token(cookie: str, client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/_me", headers={"cookie": cookie, **OWN})
    assert answer.status_code == 401
    assert "wrong" not in answer.text


async def test_the_cookie_is_read_among_others(client: httpx.AsyncClient) -> None:
    cookie = f'a=b; c; loomlog_session_8787="{TOKEN}";d=e'
    assert (await client.get("/v1/_me", headers={"cookie": cookie, **OWN})).status_code == 200


async def test_the_cookie_of_the_original_is_read_after_ours_and_cleared_by_its_own_name(
    client: httpx.AsyncClient,
) -> None:
    original = {"cookie": f"loomcycle_session={TOKEN}"}
    assert (await client.get("/v1/_me", headers=original)).json()["tenant_id"] == "acme"
    assert (await client.get("/v1/_me", headers={**original, "sec-fetch-site": "cross-site"})).status_code == 401
    both = {"cookie": f"loomcycle_session=wrong; loomlog_session_8787={TOKEN}"}
    assert (await client.get("/v1/_me", headers=both)).status_code == 200
    answer = await client.post("/ui/logout", headers={**original, **OWN})
    assert answer.headers["set-cookie"].startswith("loomcycle_session=; Max-Age=0")
    client.cookies.clear()


async def test_an_unknown_route_is_named_only_to_who_is_signed_in(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/nothing", headers={**COOKIE, **OWN})).status_code == 404
    assert (await client.get("/v1/nothing", headers={**COOKIE, "sec-fetch-site": "cross-site"})).status_code == 401


# --- signing out -----------------------------------------------------------------------------------------------------

CLEARED = "loomlog_session_8787=; Max-Age=0; HttpOnly; SameSite=Strict; Path=/"


@pytest.mark.parametrize("more", [{}, OWN, {"sec-fetch-site": "none"}])
async def test_the_link_signs_out_and_leads_to_the_page(more: dict[str, str], client: httpx.AsyncClient) -> None:
    answer = await client.get("/ui/logout", headers={**COOKIE, **more})
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui")
    assert answer.headers["set-cookie"] == CLEARED


async def test_the_page_signs_out_also_with_a_token_that_is_no_longer_known(client: httpx.AsyncClient) -> None:
    answer = await client.post("/ui/logout", headers={"cookie": "loomlog_session_8787=revoked", **OWN})
    assert (answer.status_code, answer.headers["set-cookie"]) == (204, CLEARED)


@pytest.mark.parametrize("site", OTHER_SITES)
async def test_another_site_signs_nobody_out(site: str, client: httpx.AsyncClient) -> None:
    link = await client.get("/ui/logout", headers={**COOKIE, "sec-fetch-site": site})
    form = await client.post("/ui/logout", headers={**COOKIE, "sec-fetch-site": site})
    assert (link.status_code, form.status_code, form.json()["code"]) == (303, 403, "cross_site_refused")
    assert "set-cookie" not in {**link.headers, **form.headers}


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_request_without_the_cookie_clears_nothing(method: str, client: httpx.AsyncClient) -> None:
    """As a browser without Sec-Fetch-Site sends what another site started."""
    assert "set-cookie" not in (await client.request(method, "/ui/logout")).headers


# --- open mode -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        *({"sec-fetch-site": site} for site in OTHER_SITES),
        {"origin": "https://evil.example"},
        {"origin": "http://localhost:3000"},
        {"origin": "null"},
    ],
)
async def test_without_tokens_another_site_changes_nothing(
    headers: dict[str, str], open_client: httpx.AsyncClient
) -> None:
    answer = await open_client.post("/v1/_resolve/probe", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "cross_site_refused")


@pytest.mark.parametrize(
    "headers",
    [{}, OWN, {"origin": HOST}, {"origin": "https://loom.example"}, {"sec-fetch-site": "same-origin", "origin": HOST}],
)
async def test_without_tokens_programs_and_our_page_may_do_everything(
    headers: dict[str, str], open_client: httpx.AsyncClient
) -> None:
    answer = await open_client.post("/v1/_resolve/probe", headers=headers)
    assert answer.json()["code"] == "starting", "the handler was reached"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_without_tokens_a_name_that_may_be_a_sites_is_refused(
    method: str, open_client: httpx.AsyncClient
) -> None:
    path = "/v1/_me" if method == "GET" else "/v1/_resolve/probe"
    answer = await open_client.request(method, path, headers={"host": "evil.example:8787"})
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden_host")
    assert "LOOMLOG_PUBLIC_URL" in answer.json()["error"]
    unknown = await open_client.get("/v1/nothing", headers={"host": "evil.example:8787"})
    assert unknown.status_code == 403


async def test_with_tokens_any_host_is_served(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/_me", headers={**BEARER, "host": "any.example"})).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "127.0.0.1",
        "127.0.0.1:8787",
        "[::1]:8787",
        "[::1]",
        "192.168.1.5:80",
        "localhost:8787",
        "LocalHost",
        "a.localhost",
        "api:8787",
        "host.docker.internal:8787",
        "loom.example",
        "loom.example:443",
        "LOOM.example.:80",
    ],
)
def test_addresses_and_names_of_this_machine_are_its_own(host: str) -> None:
    assert is_own_host(host, host_names("https://loom.example", "")) is (host != "LOOM.example.:80")


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.nip.io", "localhost.evil.example:8787", "loom.example.evil.example", "1.2.3"]
)
def test_other_names_are_not(host: str) -> None:
    assert not is_own_host(host, host_names("https://loom.example"))
