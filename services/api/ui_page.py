"""The web page over HTTP: index.html for every address below /ui, and the files of the build that is served.

An address of a page may hold any text, dots and slashes too (/ui/memory/a/b.json is the page of a key), so files have
addresses of their own below /ui/-/<build>/, and everything else is the index, unless the browser says that it wants a
script, a style or an image. A file of another build answers 404: the page then loads itself again.

`/ui?token=` and `/ui/logout` are links for people: they set and clear the cookie (ui_session.py), and redirect. So do
`/ui/sign-in` and what an identity provider answers it with (ui_sign_in.py).

Before: app.py, for every path below /ui that is no row of the table. After: services/web/static_files.py.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from loomlog.services.api.request_start import begin_request
from loomlog.services.api.responses import refusal_response
from loomlog.services.api.service import Service
from loomlog.services.api.ui_session import cleared_cookie, is_from_another_site, may_be_linked, session_cookie
from loomlog.services.api.ui_sign_in import CALLBACK_PATH, SIGN_IN_PATH, begin_sign_in, finish_sign_in
from loomlog.services.core.refusals import Refused
from loomlog.services.web.static_files import StaticFile, WebPage

PREFIX = "/ui"
BUILDS = "/ui/-/"
SESSION_PATH = "/ui/session"
LOGOUT_PATH = "/ui/logout"
VERSION_PATH = "/ui/version.json"
LOGIN_PAGE = "/ui/login"
FIRST_PAGE = "/runs"
"""What /ui itself shows (frame.js)."""
FILES_LABEL = "/ui/-/{build}/{file}"
"""Path of files in metrics."""
REVALIDATE, KEEP, NEVER = "no-cache", "public, max-age=31536000, immutable", "no-store"
"""Cache-Control of the index, of a build's files, and of everything that must be asked for again."""
SUBRESOURCES = frozenset({"script", "style", "image", "font", "worker", "sharedworker", "serviceworker", "manifest"})
"""Values of Sec-Fetch-Dest for which a document is no answer."""
PERMISSIONS = "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()"
RawHeaders = list[tuple[bytes, bytes]]


def is_page_path(path: str) -> bool:
    """Return whether a path is that of the page or below it."""
    return path == PREFIX or path.startswith("/ui/")


def build_page_app(service: Service) -> ASGIApp:
    """Build the application that answers every path of the page."""
    page = service.web_page
    served = _ServedPage(page, has_login_origins=bool(service.login_origins)) if page is not None else None

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        path, method = scope["path"], scope["method"]
        try:
            if served is None:
                raise Refused("route_not_found", f"there is no web page here: {service.web_page_absence}")
            _check_method(method, path)
            if path in (PREFIX, "/ui/") and b"token=" in scope["query_string"]:
                status, headers, body = await _sign_in_by_link(service, request)
            elif path in (SIGN_IN_PATH, CALLBACK_PATH) and method == "GET":
                act = begin_sign_in if path == SIGN_IN_PATH else finish_sign_in
                status, headers, body = _redirect(*await act(service, request))
            elif path == LOGOUT_PATH:
                status, headers, body = _sign_out_by_link(request)
            else:
                status, headers, body = served.respond(path, request.headers)
        except Refused as refusal:
            request_id = begin_request(request).request_id
            more = {"x-request-id": request_id, "cache-control": NEVER, **COMMON_HEADERS}
            if refusal.code == "method_not_allowed":
                more["allow"] = _allowed(path)
            response = refusal_response(refusal, more)
            status, headers, body = response.status_code, response.raw_headers, bytes(response.body)
        service.metrics.count(method, FILES_LABEL if path.startswith(BUILDS) else PREFIX, status)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})

    return answer


COMMON_HEADERS: Mapping[str, str] = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": PERMISSIONS,
}


class _ServedPage:
    """The answers for all files, made once."""

    def __init__(self, page: WebPage, *, has_login_origins: bool) -> None:
        common = {**COMMON_HEADERS, "content-security-policy": page.content_security_policy}
        alone = {**common, "cross-origin-opener-policy": "same-origin"}
        # A page of an allowed origin opens the sign-in page and sends the token to it, which needs the opener.
        open_to_opener = {**common, "cross-origin-opener-policy": "unsafe-none"} if has_login_origins else alone
        self._folder = f"{BUILDS}{page.build}/"
        self._build = page.build
        self._index = _Variants(page.index, REVALIDATE, alone)
        self._login = _Variants(page.index, REVALIDATE, open_to_opener)
        self._version = _Variants(page.version_file, NEVER, alone)
        self._files = {path: _Variants(file, KEEP, alone) for path, file in page.files.items()}
        self._links = [
            (pattern, {view: self._link_to(files) for view, files in by_view.items()})
            for pattern, by_view in page.modules
        ]

    def respond(self, path: str, headers: Mapping[str, str]) -> tuple[int, RawHeaders, bytes]:
        """Return status, headers and body. Raises Refused."""
        if path.startswith(BUILDS):
            variants = self._files.get(path[len(self._folder) :]) if path.startswith(self._folder) else None
            if variants is None:
                text = f"there is no file {path[:200]}; the build served here is {self._build}"
                raise Refused("not_found", text, details={"build": self._build})
            return variants.respond(headers)
        if path == VERSION_PATH:
            return self._version.respond(headers)
        if headers.get("sec-fetch-dest") in SUBRESOURCES:
            raise Refused("not_found", f"{path[:200]} is an address of the page; files are in {self._folder}")
        if path == LOGIN_PAGE:
            return self._login.respond(headers)
        status, raw, body = self._index.respond(headers)
        return status, [*raw, *self._link(path)], body

    def _link(self, path: str) -> RawHeaders:
        """Return the header that names what the module of an address imports."""
        place = path.removeprefix(PREFIX).rstrip("/") or FIRST_PAGE
        links = next((links for pattern, links in self._links if pattern.fullmatch(place)), {"": b""})
        link = links.get(place.rpartition("/")[2], links[""])
        return [(b"link", link)] if link else []

    def _link_to(self, files: Sequence[str]) -> bytes:
        return ", ".join(f"<{self._folder}{file}>; rel=modulepreload" for file in files).encode()


class _Variants:
    """A file as it is sent plain and compressed, with the headers of each."""

    def __init__(self, file: StaticFile, cache_control: str, common: Mapping[str, str]) -> None:
        self._file = file
        self._etags = frozenset({file.etag, file.gzip_etag})
        shared = {**common, "cache-control": cache_control, "vary": "accept-encoding"}
        kind = {"content-type": file.media_type}
        self._plain = _raw({**shared, **kind, "etag": file.etag, "content-length": str(len(file.content))})
        self._gzip = _raw(
            {
                **shared,
                **kind,
                "etag": file.gzip_etag,
                "content-encoding": "gzip",
                "content-length": str(len(file.compressed)),
            }
        )
        self._unchanged = {etag: _raw({**shared, "etag": etag}) for etag in self._etags}

    def respond(self, headers: Mapping[str, str]) -> tuple[int, RawHeaders, bytes]:
        is_compressed = bool(self._file.compressed) and accepts_gzip(headers.get("accept-encoding", ""))
        etag = self._file.gzip_etag if is_compressed else self._file.etag
        if matches(headers.get("if-none-match", ""), self._etags):
            return 304, self._unchanged[etag], b""
        if is_compressed:
            return 200, self._gzip, self._file.compressed
        return 200, self._plain, self._file.content


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether an Accept-Encoding header admits gzip (RFC 9110 12.5.3)."""
    quality: dict[str, bool] = {}
    for part in accept_encoding.lower().split(","):
        name, _, parameters = part.partition(";")
        weight = parameters.strip().removeprefix("q=").strip()
        quality[name.strip()] = not weight or weight.strip("0.") != ""
    return quality.get("gzip", quality.get("x-gzip", quality.get("*", False)))


def matches(if_none_match: str, etags: frozenset[str]) -> bool:
    """Return whether an If-None-Match header names one of the ETags; the comparison is weak, as RFC 9110 has it."""
    if not if_none_match:
        return False
    return any(one.strip().removeprefix("W/") in etags or one.strip() == "*" for one in if_none_match.split(","))


def _check_method(method: str, path: str) -> None:
    if method not in ("GET", "HEAD") or path == SESSION_PATH:
        raise Refused("method_not_allowed", f"{path[:200]} takes {_allowed(path)}, not {method}")


def _allowed(path: str) -> str:
    if path == SESSION_PATH:
        return "POST"
    return "GET, HEAD, POST" if path == LOGOUT_PATH else "GET, HEAD"


async def _sign_in_by_link(service: Service, request: Request) -> tuple[int, RawHeaders, bytes]:
    """Set the cookie and take the token out of the address. A link of another site signs no person in."""
    pairs = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
    rest = urlencode([(name, value) for name, value in pairs if name != "token"])
    tokens: Sequence[str] = [value for name, value in pairs if name == "token"]
    cookie = ""
    if request.method == "GET" and may_be_linked(request) and tokens and not service.authenticator.open_mode:
        try:
            await service.authenticator.authenticate(f"Bearer {tokens[0]}")
            cookie = session_cookie(request, tokens[0])
        except Refused:
            cookie = ""  # the page asks for a token
    return _redirect(f"{PREFIX}?{rest}" if rest else PREFIX, [cookie] if cookie else [])


def _sign_out_by_link(request: Request) -> tuple[int, RawHeaders, bytes]:
    may_clear = request.method == "GET" and not is_from_another_site(request)
    cookie = cleared_cookie(request) if may_clear else ""
    return _redirect(PREFIX, [cookie] if cookie else [])


def _redirect(place: str, cookies: Sequence[str]) -> tuple[int, RawHeaders, bytes]:
    headers = {**COMMON_HEADERS, "location": place, "cache-control": NEVER, "content-length": "0"}
    return 303, [*_raw(headers), *((b"set-cookie", cookie.encode("latin-1")) for cookie in cookies)], b""


def _raw(headers: Mapping[str, str]) -> RawHeaders:
    return [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
