"""The OpenAPI 3.1 document, derived from the code: routes, request models, and return types of the endpoints.

Schemas of requests are the pydantic models; schemas of answers are the classes that the endpoints' return types name,
so that they cannot differ from what mypy has checked, and their examples are made from them (schema_examples.py). A
refusal has one entry for each status a route may answer with, with the error codes of that status.

Before: routes.py. After: document_endpoints.py serves it, docs_page.py renders it; `python -m loomlog.services.api.main
--print-openapi` prints it.
"""

import types
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import orjson
from msgspec import Struct
from pydantic import TypeAdapter

from loomlog.services.api.examples import BODY_EXAMPLES
from loomlog.services.api.request_shares import Takes
from loomlog.services.api.responses import JsonResponse
from loomlog.services.api.route import NamedSchema, QueryParameter, Route
from loomlog.services.api.routes import ROUTES
from loomlog.services.api.schema_examples import example_of
from loomlog.services.application.answers.refusals import Error
from loomlog.services.core.access.rules import Access
from loomlog.services.core.error_codes import STATUS_BY_CODE
from loomlog.services.core.operation_input import record_schemas

TITLE = "loomlog"
DESCRIPTION = (
    "Agent runs over an append-only log. Starting a run answers with its events as a stream; every write answers with "
    "X-Loomlog-Position, which every request accepts to see at least that write. Everything refused has the shape "
    '{"code", "error"}.'
)
TAGS = {
    "run_endpoints": ("Runs", "Start, follow, read, steer and end runs."),
    "history_endpoints": ("History", "Runs as the log has them: state, replay, comparison, fork, export, import."),
    "client_endpoints": ("Clients", "Tools that clients execute."),
    "snapshot_endpoints": ("State files", "Everything of an installation as one file, and its restore."),
    "erasure_endpoints": ("Erasure", "Encrypted content of a subject, and its erasure."),
    "configuration_endpoints": ("Configuration", "Configuration layers and settings."),
    "audit_endpoints": ("Audit", "Verification of the log against its signed checkpoints."),
    "operator_endpoints": ("Operations", "Health, metrics, routing and availability of models."),
    "ui_endpoints": ("Web page", "Signing in to the page under /ui, and out."),
    "document_endpoints": ("API", "This document."),
}
"""Tag and description by the module of the handler."""
STATUS_TEXT = {
    400: "The request is malformed.",
    401: "The token is missing or unknown.",
    403: "The caller lacks a scope.",
    404: "There is no such thing, or the caller may not see it.",
    409: "The state does not allow it.",
    410: "It is gone.",
    408: "The body arrives too slowly.",
    413: "The body is too large.",
    415: "The body has another media type than application/json.",
    422: "The body is well formed and not acceptable.",
    426: "The path is a WebSocket.",
    429: "A limit is reached; Retry-After names the time.",
    500: "The server failed.",
    502: "A dependency failed.",
    503: "A dependency is unavailable; Retry-After names the time.",
    504: "Something has not ended in time.",
}
RESUME_DESCRIPTION = (
    "The id of the last frame that had one: the stream continues after it. Drop the text that came without an id since "
    "then: it was a preview of a turn that was not in the log yet, and comes again. After a retry or provider_fallback "
    "frame the text begins again as well."
)
POSITION_DESCRIPTION = (
    "Positions of earlier writes (`<topic>/<partition>:<offset>`), separated by commas: the answer includes them. "
    "A query parameter or a header."
)
SERVERS = ({"url": "/", "description": "The server that this document came from."},)
TEXT = {"type": "string"}
BYTES = {"type": "string", "format": "binary"}
OBJECT_MEDIA = ("application/json", "application/yaml")
"""Media types whose text parses to an object."""
ANY_OBJECT = {"type": "object", "examples": [{"openapi": "3.1.0", "info": {"title": TITLE}}]}
"""Schema of this document."""
MEDIA_SCHEMAS: dict[str, dict[str, Any]] = {
    "text/event-stream": {
        "type": "string",
        "description": "Server-sent events: event, id (where requested), data as JSON.",
        "examples": ['event: text\ndata: {"type":"text","text":"Done."}\n\n'],
    },
    "application/gzip": {
        "type": "string",
        "format": "binary",
        "description": "gzip; its first line says what is in it.",
    },
}
"""Schemas of answers that are not JSON; a string for others."""
NO_CONTENT = 204


def build_document(version: str, routes: Sequence[Route] = ROUTES) -> dict[str, Any]:
    """Build the OpenAPI document."""
    described = [
        schema for route in routes for schema in (route.body, route.response) if isinstance(schema, NamedSchema)
    ]
    bodies = {route.body for route in routes if isinstance(route.body, type)}
    shown = [answer for route in routes for answer in (*response_types(route), route.refusal_form)]
    answers = {answer for answer in shown if isinstance(answer, type)} | {Error}
    records = {answer for answer in answers if issubclass(answer, Struct)}
    inputs: list[tuple[Any, Literal["validation", "serialization"], TypeAdapter[Any]]] = [
        *((body, "validation", TypeAdapter(body)) for body in sorted(bodies, key=lambda body: body.__name__)),
        *(
            (answer, "serialization", TypeAdapter(answer))
            for answer in sorted(answers - records, key=lambda type_: type_.__name__)
        ),
    ]
    _, definitions = TypeAdapter.json_schemas(inputs, ref_template="#/components/schemas/{model}")
    of_records = record_schemas(records)
    twice = of_records.keys() & (definitions["$defs"].keys() | {one.name for one in described})
    assert not twice, f"more than one schema is called {', '.join(sorted(twice))}"
    definitions["$defs"] |= of_records
    for body in bodies:
        definitions["$defs"][body.__name__]["examples"] = [BODY_EXAMPLES[body]]
    for one in described:
        examples = {} if one.example is None else {"examples": [one.example]}
        definitions["$defs"][one.name] = {"title": one.name, **one.schema, **examples}
    schemas = definitions["$defs"]
    for answer in {schema_name(one) for one in answers} | {one.name for one in described}:
        schemas[answer].setdefault("examples", [example_of(schemas[answer], schemas)])
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.template, {})[route.method.lower()] = _operation(route)
    statuses = sorted({status for route in routes for status in refusal_statuses(route)})
    tags = {name: text for name, text in TAGS.values() if text}
    tags |= {route.tag.name: route.tag.description for route in routes if route.tag is not None}
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": version, "description": DESCRIPTION},
        "servers": list(SERVERS),
        "tags": [{"name": name, "description": text} for name, text in tags.items()],
        "paths": paths,
        "components": {
            "schemas": {**schemas, **dict(map(_refusal_schema, statuses))},
            "responses": {str(status): _refusal(status) for status in statuses},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def encode_document(version: str, routes: Sequence[Route] = ROUTES) -> bytes:
    """Encode the document as it is served."""
    return orjson.dumps(build_document(version, routes), option=orjson.OPT_INDENT_2)


def schema_name(schema: type | NamedSchema) -> str:
    """The name of a body or an answer among the schemas of the document."""
    return schema.name if isinstance(schema, NamedSchema) else schema.__name__


def response_types(route: Route) -> tuple[type | NamedSchema, ...]:
    """The JSON that a route answers with; none if it answers with something else."""
    if route.response is not None:
        return route.response if isinstance(route.response, tuple) else (route.response,)
    returned = get_type_hints(route.handler)["return"]
    options = get_args(returned) if get_origin(returned) in (Union, types.UnionType) else (returned,)
    return tuple(get_args(option)[0] for option in options if get_origin(option) is JsonResponse)


def operation_tag(route: Route) -> str:
    """The tag of a route."""
    if route.tag is not None:
        return route.tag.name
    return TAGS[route.handler.__module__.rpartition(".")[2]][0]


def refusal_statuses(route: Route) -> tuple[int, ...]:
    """Statuses of the refusals of a route, by what it accepts."""

    def statuses() -> Iterator[int]:
        yield from (400, 500, 503)
        if not route.access.is_public:
            yield 401
        if route.takes is not Takes.NOTHING:
            yield 429
        if route.access.scopes:
            yield 403
        if "{" in route.path:
            yield 404
        if route.method != "GET":
            yield from (403, 404, 409, 410, 422, 429)
        if route.body is not None or route.method == "POST":
            yield from (408, 413, 415)
        yield from route.refusal_statuses

    return tuple(sorted(set(statuses())))


IDEMPOTENCY_DESCRIPTION = (
    "A repetition with the same key and body has the effect and the answer of the first request, also after a crash."
)


def parameters(route: Route) -> list[dict[str, Any]]:
    """Path, query and header parameters of a route."""
    entries: list[dict[str, Any]] = [
        {"name": part.strip("{}"), "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for part in route.template.split("/")
        if part.startswith("{")
    ]
    entries += [_query_parameter(query) for query in route.query]
    if route.accepts_position:
        entries.append(_query_parameter(QueryParameter(name="position", description=POSITION_DESCRIPTION)))
        entries.append(_header("X-Loomlog-Position", POSITION_DESCRIPTION))
    if route.is_mutating:
        entries.append(_header("Idempotency-Key", IDEMPOTENCY_DESCRIPTION))
    if route.path.endswith("}/stream"):  # of one run; those over all runs are not resumed
        entries.append(_header("Last-Event-ID", RESUME_DESCRIPTION))
    elif route.path.endswith("/changes"):
        entries.append(_header("Last-Event-ID", "The id of the last frame seen; wins over since."))
    return entries


def _name(model: type) -> str:
    return model.__name__


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "tags": [operation_tag(route)],
        "summary": route.summary,
        "operationId": route.operation_id,
        "parameters": parameters(route),
        "responses": {
            **{str(status): _success(route) for status in (route.status, route.alternative_status) if status},
            **{str(status): _refusal_of(route, status) for status in refusal_statuses(route)},
        },
    }
    if route.path == "/readyz":
        operation["responses"]["503"] = _success(route)
    if not route.access.is_public:
        operation["security"] = _security(route.access)
        operation["description"] = f"Access: {route.access}."
    if route.takes_file:
        operation["requestBody"] = {"required": True, "content": {"application/octet-stream": {"schema": BYTES}}}
    if route.body is not None:
        operation["requestBody"] = {
            "required": not route.body_optional,
            "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema_name(route.body)}"}}},
        }
    return operation


def _security(access: Access) -> list[dict[str, Any]]:
    """The scopes of an operation: one entry, or one for each that is enough."""
    if access.is_any:
        return [{"bearer": [scope]} for scope in access.scopes]
    return [{"bearer": list(access.scopes)}]


def _success(route: Route) -> dict[str, Any]:
    success: dict[str, Any] = {"description": route.summary}
    if route.status == NO_CONTENT or route.socket_handler is not None:
        return success
    references = [{"$ref": f"#/components/schemas/{schema_name(answer)}"} for answer in response_types(route)]
    if route.is_stream:
        media, schema = "text/event-stream", MEDIA_SCHEMAS["text/event-stream"]
    elif references:
        media, schema = route.media_type, references[0] if len(references) == 1 else {"anyOf": references}
    else:
        media = route.media_type
        schema = MEDIA_SCHEMAS.get(media, ANY_OBJECT if media in OBJECT_MEDIA else TEXT)
    return success | {"content": {media: {"schema": schema}}}


def _refusal_of(route: Route, status: int) -> dict[str, Any]:
    if route.refusal_form is None:
        return {"$ref": f"#/components/responses/{status}"}
    forms = [f"Error{status}", schema_name(route.refusal_form)]
    schema = {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in forms]}
    return {"description": STATUS_TEXT[status], "content": {"application/json": {"schema": schema}}}


def _refusal(status: int) -> dict[str, Any]:
    return {
        "description": STATUS_TEXT[status],
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/Error{status}"}}},
    }


def _refusal_schema(status: int) -> tuple[str, dict[str, Any]]:
    codes = sorted(code for code, of_code in STATUS_BY_CODE.items() if of_code == status)
    schema = {
        "allOf": [{"$ref": "#/components/schemas/Error"}],
        "properties": {"code": {"type": "string", "enum": codes}},
        "examples": [{"code": codes[0], "error": STATUS_TEXT[status]}],
    }
    return f"Error{status}", schema


def _header(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": TEXT, "description": description}


def _query_parameter(query: QueryParameter) -> dict[str, Any]:
    return {
        "name": query.name,
        "in": "query",
        "required": query.required,
        "schema": query.schema,
        "description": query.description,
    }
