"""The OpenAPI document and its HTML page. Before: app.py stores both in the service. After: the response body."""

import asyncio
from functools import cache

import orjson
import yaml
from starlette.requests import Request
from starlette.responses import Response

from loomlog.services.api.responses import STATIC_PAGE_POLICY
from loomlog.services.api.service import Service
from loomlog.services.core.access.decide import Caller


async def get_openapi(service: Service, caller: Caller, request: Request) -> Response:
    return Response(service.openapi_document, media_type="application/json")


async def get_openapi_yaml(service: Service, caller: Caller, request: Request) -> Response:
    return Response(await asyncio.to_thread(_to_yaml, service.openapi_document), media_type="application/yaml")


@cache
def _to_yaml(document: bytes) -> bytes:
    return yaml.safe_dump(orjson.loads(document), sort_keys=False, allow_unicode=True, width=120).encode()


async def get_docs(service: Service, caller: Caller, request: Request) -> Response:
    return Response(service.docs_page, media_type="text/html", headers={"content-security-policy": STATIC_PAGE_POLICY})
