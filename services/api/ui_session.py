"""What a browser sends by itself: the cookie of the web page, and where a request comes from.

A person signs in once (POST /ui/session), and the browser keeps the token in a cookie that no script can read. The
cookie's value is the token, checked at every request as a Bearer token is: replicas share no sessions, and a token that
is taken away ends them all. An Authorization header always wins.

A browser sends its cookies, and in open mode its mere reach, along with requests that any other page makes. So the
cookie counts only for requests of our own page (Sec-Fetch-Site, which pages cannot forge; where the browser does not
send it, Origin), in addition to SameSite=Strict. In open mode, where no token protects anything, requests of other
sites change nothing, and the Host has to be an address or a name of this machine: otherwise a site could point its own
name at 127.0.0.1 and read the answers (DNS rebinding).

Programs send none of these headers, and are not affected.

Before: app.py, for every request that needs a caller. After: services/application/authentication.py.
"""

import ipaddress
import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote, unquote, urlsplit

from starlette.requests import Request

from loomlog.services.api.service import Service
from loomlog.services.application.errors import bad_request
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused

COOKIE = "loomlog_session"
ORIGINAL_COOKIE = "loomcycle_session"
"""Name that clients of the reference send; it is read like ours and never set."""
PENDING_COOKIE, PENDING_PATH, PENDING_S = "loomlog_sign_in", "/ui/sign-in", 600
"""The cookie of a sign-in that waits for the provider, and the seconds that it may take."""
COOKIE_BYTES_MAX = 3_800
"""Bytes of the cookie's value; browsers drop cookies of more than 4,096 bytes with name and attributes."""
SAFE_CHARACTERS = "!#$&'()*+-./:<=>?@[]^_`{|}~"
"""Characters of a cookie's value (RFC 6265) that are sent as they are; a token that has others is percent-encoded."""
SAME_ORIGIN, TYPED = "same-origin", "none"
READS = ("GET", "HEAD")
BY_COOKIE = "loomlog.by_cookie"
"""Key in the scope of a request whose caller is that of the cookie."""
COOKIE_ANSWER_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""Headers of answers to the cookie: opened in a tab they are data and nothing else, and no cache keeps them."""
HOST = re.compile(r"[A-Za-z0-9._:\[\]-]{1,255}", re.ASCII)
"""What a Host header may have to be repeated."""
PORT = re.compile(r":(\d{1,5})\Z")
PRIVATE_ENDINGS = (".localhost", ".internal")
"""Names that never belong to a site: RFC 6761, and ICANN's reservation of 2024 (host.docker.internal)."""


async def identify(service: Service, request: Request) -> Caller:
    """Return the caller of a request. Raises Refused."""
    authenticator = service.authenticator
    headers = request.headers
    if authenticator.open_mode:
        _refuse_other_sites(request.method, headers, service.own_hosts)
        return authenticator.identify(headers.get("authorization"))
    authorization = headers.get("authorization")
    if authorization is None and _may_use_cookie(request.method, headers, service.own_hosts):
        token = cookie_token(request)
        if token:
            authorization = f"Bearer {token}"
            request.scope[BY_COOKIE] = True
    return await authenticator.authenticate(authorization)


def has_token(request: Request) -> bool:
    """Return whether a request brings a token, whatever it is worth."""
    return "authorization" in request.headers or bool(cookie_token(request))


def cookie_token(request: Request) -> str:
    """Return the token of the cookie; empty when there is none."""
    return _find_cookie(request)[1]


def _find_cookie(request: Request) -> tuple[str, str]:
    """Return the name of the cookie that has a token, ours before that of the reference, and the token."""
    parts = (part.strip().partition("=") for one in request.headers.getlist("cookie") for part in one.split(";"))
    cookies: dict[str, str] = {}
    for key, _, value in parts:
        cookies.setdefault(key, unquote(value.strip().strip('"')))
    names = (cookie_name(request.headers), ORIGINAL_COOKIE)
    return next(((name, cookies[name]) for name in names if cookies.get(name)), ("", ""))


def cookie_name(headers: Mapping[str, str]) -> str:
    """Return the name of the cookie: with the port, because browsers share cookies between the ports of a host."""
    port = PORT.search(headers.get("host", ""))
    return f"{COOKIE}_{port[1]}" if port else COOKIE


def session_cookie(request: Request, token: str) -> str:
    """Return the Set-Cookie header of a token. Raises Refused(bad_request) for one that is too long."""
    value = quote(token, safe=SAFE_CHARACTERS)
    if len(value) > COOKIE_BYTES_MAX:
        raise bad_request(f"the token is too long for a cookie: {len(value)} of {COOKIE_BYTES_MAX} bytes")
    return f"{cookie_name(request.headers)}={value}{_attributes(request)}"


def cleared_cookie(request: Request) -> str:
    """Return the Set-Cookie header that signs out; empty when the request has no cookie.

    A browser sends no SameSite=Strict cookie along with what another site started: such a request clears nothing, also
    in a browser without Sec-Fetch-Site.
    """
    name, _ = _find_cookie(request)
    return f"{name}=; Max-Age=0{_attributes(request)}" if name else ""


def is_from_another_site(request: Request) -> bool:
    """Return whether a page of another origin started the request."""
    return request.headers.get("sec-fetch-site", SAME_ORIGIN) not in (SAME_ORIGIN, TYPED)


def may_be_linked(request: Request) -> bool:
    """Return whether a person typed the address, or our own page leads to it. False where the browser says nothing."""
    return request.headers.get("sec-fetch-site") in (SAME_ORIGIN, TYPED)


def is_from_own_page(method: str, headers: Mapping[str, str], own_hosts: frozenset[str]) -> bool:
    """Return whether a request comes from our own page or from no page; `none` counts only for reads."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == SAME_ORIGIN or (site == TYPED and method in READS)
    origin = headers.get("origin")
    if origin is None:
        return True
    place = _netloc(origin)
    return bool(place) and (place == headers.get("host", "").lower() or place in own_hosts)


def host_names(*urls: str) -> frozenset[str]:
    """Return host and port of the installation's addresses, and their hosts alone, in lower case."""
    parts = [urlsplit(url) for url in urls if url]
    return frozenset(name.lower() for part in parts for name in (part.netloc, part.hostname) if name)


@lru_cache(maxsize=256)
def is_own_host(host: str, own_hosts: frozenset[str]) -> bool:
    """Return whether a Host header cannot be the name of a site on the internet.

    Addresses, names of this machine and of the private network (one label, .localhost, .internal), and those that are
    configured.
    """
    name = PORT.sub("", host.strip().lower())
    if not name or name in own_hosts or host.lower() in own_hosts:
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        bare = name.rstrip(".")
        return "." not in bare or bare.endswith(PRIVATE_ENDINGS)
    return True


def _may_use_cookie(method: str, headers: Mapping[str, str], own_hosts: frozenset[str]) -> bool:
    return "cookie" in headers and is_from_own_page(method, headers, own_hosts)


def _refuse_other_sites(method: str, headers: Mapping[str, str], own_hosts: frozenset[str]) -> None:
    """Raise Refused for what a page of another site may have sent, in open mode."""
    host = headers.get("host", "")
    if not is_own_host(host, own_hosts):
        raise Refused(
            "forbidden_host",
            f"the Host {host[:100]!r} is none of this API, and without tokens every page could use it; set "
            "LOOMLOG_PUBLIC_URL to the address, or LOOMLOG_AUTH_TOKEN to require a token",
        )
    if method not in READS and not is_from_own_page(method, headers, own_hosts):
        raise Refused(
            "cross_site_refused",
            "a page of another site has sent this, and without tokens it may change nothing; use the page under /ui, "
            "or set LOOMLOG_AUTH_TOKEN and send the token",
        )


def _netloc(origin: str) -> str:
    """Return host and port of an Origin; empty for one that is no address (null)."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def pending_cookie(request: Request, sealed: str) -> str:
    """Return the Set-Cookie header of a pending sign-in, with which the browser comes back; empty: of none."""
    if len(sealed) > COOKIE_BYTES_MAX:
        raise bad_request(f"the sign-in is too long for a cookie: {len(sealed)} of {COOKIE_BYTES_MAX} bytes")
    lifetime_s = PENDING_S if sealed else 0
    attributes = _attributes(request, same_site="Lax", path=PENDING_PATH)
    return f"{_pending_name(request)}={sealed}; Max-Age={lifetime_s}{attributes}"


def pending_sign_in(request: Request) -> str:
    """Return the sealed sign-in of the browser; empty when there is none."""
    return request.cookies.get(_pending_name(request), "")


def public_origin(public_url: str, request: Request) -> str:
    """Return the address of this API as the browser sees it: the configured one, or the one of the request."""
    if public_url:
        return public_url.rstrip("/")
    host = request.headers.get("host", "")
    return f"{'https' if is_https(request) else 'http'}://{host if HOST.fullmatch(host) else 'localhost'}"


def is_https(request: Request) -> bool:
    """Return whether the browser came by https, to us or to the proxy in front."""
    proto = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    return "https" in (proto, request.scope.get("scheme"))


def _pending_name(request: Request) -> str:
    return cookie_name(request.headers).replace(COOKIE, PENDING_COOKIE)


def _attributes(request: Request, *, same_site: str = "Strict", path: str = "/") -> str:
    """Return the attributes of a cookie. It has no Domain, so that no other host gets it."""
    secure = "; Secure" if is_https(request) else ""
    return f"; HttpOnly; SameSite={same_site}; Path={path}{secure}"
