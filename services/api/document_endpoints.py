"""The OpenAPI document and its HTML page. Before: app.py stores both in the service. After: the response body."""

from starlette.requests import Request
from starlette.responses import Response

from loomlog.services.api.service import Service
from loomlog.services.core.access.decide import Caller


async def get_openapi(service: Service, caller: Caller, request: Request) -> Response:
    return Response(service.openapi_document, media_type="application/json")


async def get_docs(service: Service, caller: Caller, request: Request) -> Response:
    # The page is self-contained; injected content may load nothing.
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Response(service.docs_page, media_type="text/html", headers={"content-security-policy": policy})
