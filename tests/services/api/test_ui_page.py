"""The page over HTTP: which address answers with what, how it is cached, and the headers that protect it."""

import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from loomlog.connectors.configuration.principals import TokenTable
from loomlog.connectors.configuration.settings import Settings
from loomlog.services.api import main as api_main
from loomlog.services.api.app import build_app
from loomlog.services.api.service import Service
from loomlog.services.api.settings import ApiSettings, api_settings
from loomlog.services.api.ui_page import accepts_gzip, matches
from loomlog.services.application.authentication import Authenticator
from loomlog.services.web.static_files import WebPage, WebPageError, load_web_page
from tests.services.api.serving import service_of
from tests.services.web.test_static_files import folder_of

HOST = "http://127.0.0.1:8787"


def service_with_page(folder: Path, *, login_origins: tuple[str, ...] = (), open_mode: bool = False) -> Service:
    service = service_of(None, folder)
    (folder / "page").mkdir()
    service.web_page = load_web_page("1.2.3", folder_of(folder / "page"))
    service.login_origins = login_origins
    if open_mode:
        service.authenticator = Authenticator(TokenTable(rows=(), open_mode=True))
    return service


def client_of(service: Service) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=build_app(service), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url=HOST)


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return service_with_page(tmp_path)


@pytest.fixture
def page(service: Service) -> WebPage:
    assert service.web_page is not None
    return service.web_page


@pytest_asyncio.fixture(loop_scope="session")
async def client(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(service) as opened:
        yield opened


@pytest.mark.parametrize(
    "path",
    [
        "/ui",
        "/ui/",
        "/ui/runs",
        "/ui/runs/r_1/events",
        "/ui/memory/user/a/notes/b.json",
        "/ui/library/agents/doc%2Fmanager",
        "/ui/channels/%2e%2e/x",
        "/ui/runs?status=running&agent=a",
        "/ui/-",
    ],
)
async def test_every_address_of_a_page_is_the_index(path: str, client: httpx.AsyncClient, page: WebPage) -> None:
    answer = await client.get(path)
    assert answer.status_code == 200
    assert answer.content == page.index.content
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("path", ["/uix", "/UI", "/u"])
async def test_other_addresses_are_not_the_page(path: str, client: httpx.AsyncClient) -> None:
    assert (await client.get(path)).json()["code"] == "route_not_found"


async def test_files_are_kept_forever_below_their_build(client: httpx.AsyncClient, page: WebPage) -> None:
    answer = await client.get(f"/ui/-/{page.build}/vendor/preact.js")
    assert (answer.status_code, answer.text) == (200, "export const h = 1\n")
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize(
    "path",
    ["-/0000000000000000/app.js", "-/{build}/none.js", "-/{build}/index.html", "-/{build}/../__init__.py", "-/{build}"],
)
async def test_a_file_that_is_not_there_is_a_404_that_no_cache_keeps(
    path: str, client: httpx.AsyncClient, page: WebPage
) -> None:
    raw = f"/ui/{path.format(build=page.build)}".replace("..", "%2e%2e")
    answer = await client.get(raw)
    assert answer.status_code == 404
    assert (answer.json()["code"], answer.json()["build"]) == ("not_found", page.build)
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("destination", ["script", "style", "image"])
async def test_a_script_outside_of_a_build_is_not_answered_with_a_document(
    destination: str, client: httpx.AsyncClient
) -> None:
    answer = await client.get("/ui/app.js", headers={"sec-fetch-dest": destination})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_the_version_is_never_kept(client: httpx.AsyncClient, page: WebPage) -> None:
    answer = await client.get("/ui/version.json")
    assert answer.json() == {"version": "1.2.3", "build": page.build}
    assert answer.headers["cache-control"] == "no-store"


async def test_a_file_is_compressed_for_who_takes_it(client: httpx.AsyncClient, page: WebPage) -> None:
    path = f"/ui/-/{page.build}/app.js"
    packed = await client.get(path, headers={"accept-encoding": "br, gzip"})
    plain = await client.get(path, headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) == len(page.files["app.js"].compressed)
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content == gzip.decompress(page.files["app.js"].compressed)
    assert packed.headers["etag"] != plain.headers["etag"]
    assert packed.headers["vary"] == plain.headers["vary"] == "accept-encoding"


async def test_what_the_browser_has_is_not_sent_again(client: httpx.AsyncClient) -> None:
    first = await client.get("/ui/runs")
    again = await client.get("/ui/other", headers={"if-none-match": f'"x", {first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert again.headers["cache-control"] == "no-cache"
    changed = await client.get("/ui", headers={"if-none-match": '"x"'})
    assert changed.status_code == 200


async def test_head_answers_as_get_without_a_body(client: httpx.AsyncClient, page: WebPage) -> None:
    for path in ("/ui", "/ui/runs", "/ui/version.json", f"/ui/-/{page.build}/app.js"):
        got, head = await client.get(path), await client.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers == got.headers


async def test_every_answer_has_the_headers_that_protect_it(client: httpx.AsyncClient, page: WebPage) -> None:
    for path in ("/ui", "/ui/runs/r_1", "/ui/version.json", f"/ui/-/{page.build}/app.js"):
        headers = (await client.get(path)).headers
        assert headers["content-security-policy"] == page.content_security_policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert "camera=()" in headers["permissions-policy"]
    for path in ("/ui/-/x/y.js", "/ui/logout", "/ui?token=x"):
        headers = (await client.get(path)).headers
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")


async def test_only_the_sign_in_page_keeps_its_opener_and_only_where_origins_are_allowed(tmp_path: Path) -> None:
    async with client_of(service_with_page(tmp_path, login_origins=("https://portal.example",))) as client:
        assert (await client.get("/ui/login")).headers["cross-origin-opener-policy"] == "unsafe-none"
        assert (await client.get("/ui/runs")).headers["cross-origin-opener-policy"] == "same-origin"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/ui", "GET, HEAD"),
        ("DELETE", "/ui/runs/r_1", "GET, HEAD"),
        ("PUT", "/ui/logout", "GET, HEAD, POST"),
        ("GET", "/ui/session", "POST"),
    ],
)
async def test_another_method_is_a_405(method: str, path: str, allowed: str, client: httpx.AsyncClient) -> None:
    answer = await client.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert answer.json()["code"] == "method_not_allowed"


async def test_a_process_without_the_page_says_why(tmp_path: Path) -> None:
    service = service_of(None, tmp_path)
    service.web_page_absence = "it is switched off (LOOMLOG_UI_ENABLED=0)"
    async with client_of(service) as client:
        answer = await client.get("/ui/runs")
    assert (answer.status_code, answer.json()["code"]) == (404, "route_not_found")
    assert "LOOMLOG_UI_ENABLED" in answer.json()["error"]


async def test_the_page_does_not_wait_for_the_log(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/_me", headers={"authorization": "Bearer acme-token"})).status_code == 200
    assert (await client.get("/ui")).status_code == 200


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("*", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000, *", False),
        ("br", False),
        ("identity;q=1, *;q=0", False),
        ("", False),
    ],
)
def test_gzip_is_accepted_as_the_header_says(header: str, expected: bool) -> None:
    assert accepts_gzip(header) is expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [('"a"', True), ('W/"a"', True), ('"b", "a"', True), ("*", True), ('"b"', False), ("", False)],
)
def test_an_etag_is_found_in_a_list(header: str, expected: bool) -> None:
    assert matches(header, frozenset({'"a"'})) is expected


async def test_the_sign_in_page_learns_what_it_needs(tmp_path: Path) -> None:
    service = service_with_page(tmp_path, login_origins=("https://portal.example",), open_mode=True)
    async with client_of(service) as client:
        answer = await client.get("/ui/login-config.json")
    expected = {"login_origins": ["https://portal.example"], "open_mode": True, "version": "1.2.3"}
    assert json.loads(answer.content) == expected
    assert answer.headers["cache-control"] == "no-store"


def settings_of(**more: object) -> ApiSettings:
    return api_settings(Settings(kafka="b:9092", postgres="postgresql://u@h/d", **more))  # type: ignore[arg-type]


def test_the_process_reads_the_page_unless_it_is_switched_off() -> None:
    page, absence = api_main._load_page(settings_of())
    assert page is not None
    assert "app.js" in page.files
    assert absence == ""
    assert api_main._load_page(settings_of(ui_enabled=False)) == (None, "it is switched off (LOOMLOG_UI_ENABLED=0)")


def test_files_that_cannot_be_served_leave_the_api_without_a_page(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(version: str) -> WebPage:
        raise WebPageError("index.html:3: <style>")

    monkeypatch.setattr(api_main, "load_web_page", fails)
    assert api_main._load_page(settings_of()) == (None, "index.html:3: <style>")
    assert "the web page is not served: index.html:3" in caplog.text


async def test_an_address_names_the_modules_of_its_page(tmp_path: Path) -> None:
    service = service_with_page(tmp_path)
    folder = tmp_path / "page"
    (folder / "navigation.js").write_text(
        '{ path: "/runs", load: () => import("./pages/runs.js") },\n'
        '{ path: "/runs/:run/*view", load: () => import("./pages/run.js") },\n'
    )
    (folder / "pages").mkdir()
    for name in ("runs.js", "run.js"):
        (folder / "pages" / name).write_text("export default 1;\n")
    service.web_page = page = load_web_page("1.2.3", folder)
    async with client_of(service) as client:
        paths = ("/ui", "/ui/", "/ui/runs", "/ui/runs/r_1/events", "/ui/memory", "/ui/login")
        links = {path: (await client.get(path)).headers.get("link") for path in paths}
    of_runs = f"</ui/-/{page.build}/pages/runs.js>; rel=modulepreload"
    assert [links[path] for path in ("/ui", "/ui/", "/ui/runs")] == [of_runs] * 3
    assert links["/ui/runs/r_1/events"] == of_runs.replace("runs.js", "run.js")
    assert links["/ui/memory"] is links["/ui/login"] is None
