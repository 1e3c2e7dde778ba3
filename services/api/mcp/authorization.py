"""loomlog as a protected resource of OAuth (RFC 9728): where a client of MCP gets its token.

A client that is refused reads in WWW-Authenticate where this document is, and in the document which identity providers
it may ask. Whether the token that it then brings is meant for this API, its audience says.
Without `issuers` there is no document, and refusals are as they were.

Before: routes.py, app.py. After: nothing.
"""

from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from loomlog.services.api.responses import JsonResponse, json_response
from loomlog.services.api.service import Service
from loomlog.services.api.ui_session import public_origin
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused

WELL_KNOWN = "/.well-known/oauth-protected-resource"
MCP_PATH = "/v1/_mcp"
CHALLENGE = b"www-authenticate"


class ProtectedResource(TypedDict):
    """The API, or its endpoint of MCP, as RFC 9728 describes it."""

    resource: str
    authorization_servers: list[str]
    scopes_supported: list[str]
    bearer_methods_supported: list[str]
    resource_name: str


async def describe_api(service: Service, caller: Caller, request: Request) -> JsonResponse[ProtectedResource]:
    return _describe(service, request, "")


async def describe_mcp(service: Service, caller: Caller, request: Request) -> JsonResponse[ProtectedResource]:
    return _describe(service, request, MCP_PATH)


def _describe(service: Service, request: Request, path: str) -> JsonResponse[ProtectedResource]:
    """Describe the resource at a path. Raises Refused(route_not_found) without identity providers."""
    issuers = service.configuration.issuers.values()
    if not issuers:
        raise Refused("route_not_found", f"there is no route {WELL_KNOWN}{path}")
    document = ProtectedResource(
        resource=public_origin(service.public_url, request) + path,
        authorization_servers=[block.issuer for block in issuers],
        scopes_supported=sorted({scope for block in issuers for scope in block.login_scopes}),
        bearer_methods_supported=["header"],
        resource_name="loomlog",
    )
    # Clients of MCP in browsers read it too; it has nothing that is secret.
    return json_response(document, headers={"access-control-allow-origin": "*", "cache-control": "no-store"})


def name_metadata(service: Service, request: Request, response: Response) -> None:
    """Name the document in the challenge of a refusal, if there is one."""
    if not service.configuration.issuers:
        return
    path = MCP_PATH if request.scope["path"] == MCP_PATH else ""
    url = f"{public_origin(service.public_url, request)}{WELL_KNOWN}{path}"
    response.raw_headers = [
        (name, value + f', resource_metadata="{url}"'.encode("latin-1") if name == CHALLENGE else value)
        for name, value in response.raw_headers
    ]
