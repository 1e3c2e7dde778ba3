"""Real answers held against the OpenAPI document: each JSON answer that a test gets has to fit the schema of its
operation and status, and may have no field that the schema lacks.

Before: the clients of serving.py and of tests/acceptance pass answers. After: a difference fails the test that asked.
"""

import copy
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import httpx
import jsonschema_rs
import orjson
from starlette.routing import compile_path

from loomlog.services.api.openapi import build_document
from loomlog.services.api.route import Route
from loomlog.services.api.routes import ROUTES

JSON = "application/json"


def check_answer(method: str, path: str, status: int, media_type: str, body: bytes) -> None:
    """Fail if an answer is not one that the document describes. Paths without a route are not checked."""
    route = _find_route(method, path)
    if route is None:
        return
    described = _document()["paths"][route.template][method.lower()]["responses"]
    assert str(status) in described, f"{method} {path}: status {status} is not described: {body.decode()[:500]}"
    if media_type != JSON:
        return
    validator = _validator(route, status)
    assert validator is not None, f"{method} {path}: the JSON of {status} is not described"
    for error in validator.iter_errors(orjson.loads(body)):
        raise AssertionError(f"{method} {path} ({status}): {list(error.instance_path)}: {error.message}")


async def check_response(response: httpx.Response) -> None:
    """Check a response; an event hook of httpx. The bodies of streams are not read."""
    if _is_json(response):
        await response.aread()
    _check(response)


def check_blocking_response(response: httpx.Response) -> None:
    """Do the same for clients that block."""
    if _is_json(response):
        response.read()
    _check(response)


def _is_json(response: httpx.Response) -> bool:
    return response.headers.get("content-type") == JSON


def _check(response: httpx.Response) -> None:
    body, media_type = response.content if _is_json(response) else b"", response.headers.get("content-type", "")
    check_answer(response.request.method, response.request.url.path, response.status_code, media_type, body)


def _find_route(method: str, path: str) -> Route | None:
    return next((route for pattern, route in _patterns().get(method, ()) if pattern.match(path)), None)


@cache
def _patterns() -> Mapping[str, list[tuple[re.Pattern[str], Route]]]:
    patterns: dict[str, list[tuple[re.Pattern[str], Route]]] = {}
    for route in ROUTES:
        patterns.setdefault(route.method, []).append((compile_path(route.path)[0], route))
    return patterns


@cache
def _document() -> dict[str, Any]:
    """The document with schemas that accept no further fields, those of refusals apart."""
    document = copy.deepcopy(build_document("1"))
    for name, schema in document["components"]["schemas"].items():
        if "properties" in schema and not name.startswith("Error"):
            schema.setdefault("additionalProperties", False)
    return document


@cache
def _validator(route: Route, status: int) -> jsonschema_rs.Draft202012Validator | None:
    """The validator of an operation's answers with that status; None if they are not JSON."""
    document = _document()
    response = document["paths"][route.template][route.method.lower()]["responses"][str(status)]
    if "$ref" in response:
        response = document["components"]["responses"][str(status)]
    if JSON not in response.get("content", {}):
        return None
    return jsonschema_rs.Draft202012Validator(
        {**response["content"][JSON]["schema"], "components": document["components"]}
    )
