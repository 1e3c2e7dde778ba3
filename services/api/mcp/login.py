"""A person grants access to an MCP server whose tools agents use (OAuth): our page first, the server's, and back.

    GET /v1/_mcp_oauth/authorize?state=...         says who asks for what, with a link to the authorization server
    GET /v1/_mcp_oauth/authorize?state=...&go=...  what the link leads to: notes the consent in a cookie, and redirects
    GET /v1/_mcp_oauth/callback?state=...&code=... finishes it, in the browser that consented and in no other
    GET /v1/_mcp_oauth/client.json                 what this installation is to authorization servers

None of them needs a token: an authorization is begun by a caller (`loomlog mcp servers login NAME`), and its state,
which only we make and which counts once, says for whom. The first page is there because its address can be sent to
others: who opens it sees that another person would use the access. `go` is a hash of the cookie that the first page
sets, so that no link of a stranger passes it.

Before: routes.py. After: services/families/mcp/handlers.py.
"""

import hashlib
import hmac
import secrets
from html import escape
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from loomlog.connectors.mcp.oauth import client_document
from loomlog.services.api.responses import STATIC_PAGE_POLICY, json_response
from loomlog.services.api.service import Service
from loomlog.services.api.ui_session import has_token, identify, is_https
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.mcp_logins import CALLBACK_PATH, CLIENT_PATH, CONSENT_PATH, PATH, AskedConsent
from loomlog.services.core.refusals import Refused

COOKIE = "loomlog_mcp_oauth"
COOKIE_BYTES = 32
SECONDS = 600
STYLE = "body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:15vh auto;padding:0 1rem}"
HEADERS = {
    "content-security-policy": STATIC_PAGE_POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


async def ask_consent(service: Service, caller: Caller, request: Request) -> Response:
    """Show who asks for what, or lead on who has agreed. Raises Refused."""
    state, go = request.query_params.get("state", ""), request.query_params.get("go", "")
    asked = await service.application.mcp_logins.find_pending(state)
    await _require_same_person(service, request, asked)
    secret = request.cookies.get(COOKIE, "").partition(".")[0]
    if secret and go and hmac.compare_digest(_digest(secret, state), go.encode("utf-8", "replace").decode("latin-1")):
        response: Response = RedirectResponse(asked.url, status_code=302, headers=HEADERS)
        _set_cookie(response, request, f"{secret}.{_digest(secret, state)}")
        return response
    secret = secrets.token_urlsafe(COOKIE_BYTES)
    response = _page("Grant access", _describe(asked, state, _digest(secret, state)))
    _set_cookie(response, request, secret)
    return response


async def finish_consent(service: Service, caller: Caller, request: Request) -> Response:
    """Store what a person has granted. Raises Refused."""
    query = dict(request.query_params)
    secret, _, agreed = request.cookies.get(COOKIE, "").partition(".")
    if not secret or not hmac.compare_digest(agreed.encode(), _digest(secret, query.get("state", "")).encode()):
        raise Refused(
            "cross_site_refused", "access was not asked for in this browser: open the address of the login here"
        )
    server = await service.application.mcp_logins.finish_login(query)
    text = f"<p>Agents may use <b>{escape(server)}</b> now. You may close this page.</p>"
    response = _page("Access granted", text)
    response.delete_cookie(COOKIE, path=PATH)
    return response


async def describe_client(service: Service, caller: Caller, request: Request) -> Response:
    """Return the client document of this installation."""
    origin = service.application.mcp_logins.origin
    document = client_document(origin + CLIENT_PATH, origin + CALLBACK_PATH)
    return json_response(document, headers={"cache-control": "public, max-age=3600"})


async def _require_same_person(service: Service, request: Request, asked: AskedConsent) -> None:
    """Raise Refused where the browser is signed in to the page as a person of another tenant."""
    if service.authenticator.open_mode or not has_token(request):
        return
    try:
        caller = await identify(service, request)
    except Refused:
        return
    if caller.tenant != asked.tenant:
        raise Refused(
            "insufficient_scope", "this access is asked for by another tenant than the one you are signed in to"
        )


def _describe(asked: AskedConsent, state: str, go: str) -> str:
    whose = f"agents that work for {asked.user}" if asked.user else "all agents of the tenant"
    link = f"{CONSENT_PATH}?{urlencode({'state': state, 'go': go})}"
    scopes = f" with <b>{escape(asked.scopes)}</b>" if asked.scopes else ""
    subject, tenant = escape(asked.subject or "the operator"), escape(asked.tenant or "default")
    return (
        f"<p><b>{subject}</b> of the tenant <b>{tenant}</b> "
        f"asks for access to <b>{escape(asked.resource)}</b>{scopes}. With what you grant there, "
        f"<b>{escape(whose)}</b> act in your name.</p><p>Did you not begin this yourself? Close this page.</p>"
        f'<p><a href="{escape(link)}">Go on to {escape(urlsplit(asked.issuer).netloc)}</a></p>'
    )


def _page(title: str, body: str) -> Response:
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head><body><main><h1>{title}</h1>{body}</main></body></html>"
    )
    return Response(text, media_type="text/html", headers=HEADERS)


def _set_cookie(response: Response, request: Request, value: str) -> None:
    """Set the cookie, which comes back with the redirect of another site too (Lax)."""
    response.set_cookie(
        COOKIE, value, max_age=SECONDS, path=PATH, httponly=True, samesite="lax", secure=is_https(request)
    )


def _digest(secret: str, state: str) -> str:
    return hashlib.sha256(f"{secret}\0{state}".encode()).hexdigest()
