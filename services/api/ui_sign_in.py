"""Sign-in to the page with an identity provider: to the provider, back from it, and the cookie.

    GET /ui/sign-in?issuer=company&to=/ui/runs     redirects to the provider; a cookie has the pending sign-in, sealed
    GET /ui/sign-in/callback?code=...&state=...    checks the answer, sets the cookie of the page, redirects to `to`

The first cookie is SameSite=Lax, because the provider's page leads to the second address. What goes wrong leads back to
the sign-in page with a word (PROBLEMS); the reason is in the log.

Before: ui_page.py. After: connectors/identity_providers/sign_in.py, ui_session.py.
"""

import logging
from collections.abc import Sequence
from urllib.parse import urlencode

from starlette.requests import Request

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.identity_providers.oauth import ProviderRefused
from loomlog.connectors.identity_providers.sign_in import SignIn
from loomlog.connectors.identity_providers.tokens import TokenRefused
from loomlog.services.api.service import Service
from loomlog.services.api.ui_session import pending_cookie, pending_sign_in, public_origin, session_cookie
from loomlog.services.core.refusals import Refused

log = logging.getLogger("loomlog.api")

SIGN_IN_PATH, CALLBACK_PATH, LOGIN_PATH, FIRST_PATH = "/ui/sign-in", "/ui/sign-in/callback", "/ui/login", "/ui"
AWAY, DENIED, REFUSED = "away", "denied", "refused"
"""Words of the sign-in page: the provider does not answer; the person or the provider said no; the answer is not valid,
or gives no access here.
"""
RETURN_CHARACTERS_MAX = 1_000
Redirect = tuple[str, Sequence[str]]
"""Where a browser goes, and the cookies that it gets."""


async def begin_sign_in(service: Service, request: Request) -> Redirect:
    """Send a person to the provider. Raises Refused(not_found) for one without sign-in."""
    name = request.query_params.get("issuer", "")
    block = service.configuration.issuers.get(name)
    if service.sign_in is None or block is None or not block.client_id:
        raise Refused("not_found", f"there is no sign-in with {name[:64]!r}")
    return_to = _own_path(request.query_params.get("to", ""))
    try:
        url, sealed = await service.sign_in.begin(
            name, redirect_uri=_redirect_uri(service, request), return_to=return_to
        )
    except ConnectorError as error:
        log.warning("a sign-in with %s cannot begin: %s", name, error)
        return _back(AWAY), ()
    return url, [pending_cookie(request, sealed)]


async def finish_sign_in(service: Service, request: Request) -> Redirect:
    """Sign the person in whom the provider sent back. Raises Refused(not_found) without sign-in."""
    if service.sign_in is None:
        raise Refused("not_found", "there is no sign-in with an identity provider here")
    cleared = pending_cookie(request, "")
    try:
        place, cookie = await _finish(service.sign_in, service, request)
    except ProviderRefused as refused:
        log.warning("a sign-in was refused: %s", refused)
        return _back(DENIED), [cleared]
    except TokenRefused as refused:
        log.warning("a sign-in was refused: %s", refused)
        return _back(REFUSED), [cleared]
    except (ConnectorError, Refused) as error:
        log.warning("a sign-in cannot be finished: %s", error)
        return _back(REFUSED if isinstance(error, Refused) else AWAY), [cleared]
    return place, [cleared, cookie]


async def _finish(sign_in: SignIn, service: Service, request: Request) -> tuple[str, str]:
    query = request.scope["query_string"].decode("latin-1")
    redirect_uri = _redirect_uri(service, request)
    token, place = await sign_in.finish(
        pending_sign_in(request), answer_url=f"{redirect_uri}?{query}", redirect_uri=redirect_uri
    )
    return place, session_cookie(request, token)


def _redirect_uri(service: Service, request: Request) -> str:
    return public_origin(service.public_url, request) + CALLBACK_PATH


def _own_path(path: str) -> str:
    """Return a path of the page; anything else becomes its first one, so that no link leads away through us."""
    is_ours = path.startswith(f"{FIRST_PATH}/") and path.isprintable() and path.isascii() and "\\" not in path
    return path if is_ours and len(path) <= RETURN_CHARACTERS_MAX else FIRST_PATH


def _back(problem: str) -> str:
    return f"{LOGIN_PATH}?{urlencode({'problem': problem})}"
