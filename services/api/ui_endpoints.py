"""Signing in to the web page, and out. Before: routes.py. After: ui_session.py has the cookie."""

from starlette.requests import Request
from starlette.responses import Response

from loomlog.services.api.responses import JsonResponse, json_response
from loomlog.services.api.service import Service
from loomlog.services.api.ui_session import cleared_cookie, is_from_another_site, session_cookie
from loomlog.services.application.answers.operators import LoginConfig, LoginIssuer
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused

NO_STORE = {"cache-control": "no-store"}


async def sign_in(service: Service, caller: Caller, request: Request) -> Response:
    """Keep the token of the Authorization header, which was checked, in a cookie; in open mode there is none."""
    if is_from_another_site(request):
        text = "a page of another site cannot sign a person in; open /ui and paste the token there"
        raise Refused("cross_site_login_refused", text)
    if service.authenticator.open_mode:
        return Response(status_code=204, headers=NO_STORE)
    authorization = request.headers.get("authorization")
    if authorization is None:  # the caller is that of a cookie
        raise Refused("unauthorized", "there is no token; send Authorization: Bearer <token>")
    token = authorization.strip().partition(" ")[2].strip()
    return Response(status_code=204, headers={**NO_STORE, "set-cookie": session_cookie(request, token)})


async def sign_out(service: Service, caller: Caller, request: Request) -> Response:
    """Clear the cookie, whether its token is still known or not."""
    if is_from_another_site(request):
        raise Refused("cross_site_refused", "a page of another site cannot sign a person out; open /ui/logout")
    cookie = cleared_cookie(request)
    return Response(status_code=204, headers={**NO_STORE, "set-cookie": cookie} if cookie else NO_STORE)


async def get_login_config(service: Service, caller: Caller, request: Request) -> JsonResponse[LoginConfig]:
    config: LoginConfig = {
        "login_origins": list(service.login_origins),
        "open_mode": service.authenticator.open_mode,
        "version": service.version,
    }
    issuers = [
        LoginIssuer(
            name=name,
            title=block.title or name,
            page=bool(block.client_id),
            issuer=block.issuer,
            device_client_id=block.device_client_id,
            scopes=list(block.login_scopes),
        )
        for name, block in service.configuration.issuers.items()
        if block.client_id or block.device_client_id
    ]
    return json_response({**config, "issuers": issuers} if issuers else config, headers=NO_STORE)
