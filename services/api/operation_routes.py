"""The routes of operations, made from their declarations; none is written here by name.

Path parameters are input fields, those of the query too, and the fields of a body. A parameter of the query is text and
becomes what its field is; an empty one is absent. A number or word that its field does not take is refused by the
sentence that refuses it in a body.

Before: routes.py. After: services/application/dispatch.py.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from loomlog.services.api.request_parsing import query_text, strict_json_value
from loomlog.services.api.request_shares import Takes
from loomlog.services.api.responses import JSON_MEDIA_TYPE, position_headers
from loomlog.services.api.route import Handler, NamedSchema, QueryParameter, Route, Tag
from loomlog.services.api.service import Service
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.operation_input import field_schemas, required_fields, unknown_field
from loomlog.services.core.operation_requests import body_fields, path_fields, query_fields
from loomlog.services.core.operations import PRINTABLE_WITH_TABS, AnyOperation, Effect, Http
from loomlog.services.core.refusals import Refused

QUERY_CHARACTERS_MAX = 4_096
"""Longest text of the query; the field of the input has a bound of its own."""
INTEGER_DIGITS_MAX = 18
TENANT = QueryParameter(name="tenant", description="Administrators: the tenant that is meant.")
ONLY_TENANT = QueryParameter(name="tenant", description="Administrators: only this tenant.")
FLAGS: Mapping[str, bool] = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def operation_routes(operations: Iterable[AnyOperation]) -> tuple[Route, ...]:
    """Return the routes of all operations, in the order of their declarations."""
    return tuple(operation_route(operation, http) for operation in operations for http in operation.http)


def operation_route(operation: AnyOperation, http: Http) -> Route:
    """Return one route of an operation."""
    return Route(
        method=http.method,
        path=http.path,
        access=http.access or operation.access,
        handler=operation_handler(operation, http),
        summary=http.summary or operation.summary,
        operation=http.id or operation.name.replace(".", "_"),
        tag=None if operation.tag is None else Tag(name=operation.tag.name, description=operation.tag.description),
        body=_body_schema(operation, http) if body_fields(operation, http) else None,
        body_optional=http.body_optional,
        response=None if http.status == 204 else http.output or operation.output,
        status=http.status,
        query=_query_parameters(operation, http),
        refusal_statuses=tuple(http.refusal_statuses),
        takes_instead=Takes.WAIT if operation.effect is Effect.WAIT else None,
        recognises_key=http.recognises_key,
    )


def operation_handler(operation: AnyOperation, http: Http) -> Handler:
    """Return the handler of one route of an operation."""
    read = _FieldReader(operation, http)
    access, answer, make_headers, status = http.access, http.answer, http.headers, http.status

    async def handle(service: Service, caller: Caller, request: Request) -> Response:
        fields = await read(request)
        tenant = query_text(request, "tenant") if http.takes_tenant else ""
        done = await service.application.dispatch.request(operation, caller, fields, tenant=tenant, access=access)
        headers = {**(position_headers(*done.positions) or {}), **(make_headers(done) if make_headers else {})}
        if status == 204:
            return Response(status_code=status, headers=headers)
        value = answer(done.value) if answer is not None else done.value
        return Response(msgspec.json.encode(value), status_code=status, headers=headers, media_type=JSON_MEDIA_TYPE)

    return handle


class _FieldReader:
    """Reads the input of an operation from the requests of one route."""

    def __init__(self, operation: AnyOperation, http: Http) -> None:
        self._http = http
        self._schemas = field_schemas(operation.input)
        self._path = path_fields(http)
        self._query = query_fields(operation, http)
        self._body = body_fields(operation, http)
        self._code = operation.invalid_code
        self._segments = http.path.replace(":path}", "}").split("/")

    async def __call__(self, request: Request) -> dict[str, Any]:
        """Return the fields. Raises Refused."""
        try:
            fields = await self._read_body(request) if self._body else {}
            for name, field in self._query.items():
                schema = self._schemas[field]
                tabs = schema.get("pattern") == PRINTABLE_WITH_TABS
                if text := query_text(request, name, max_length=QUERY_CHARACTERS_MAX, tabs=tabs):
                    fields[field] = _typed(text, schema)
            for name, text in self._parameters(request).items():
                fields[self._path[name]] = text
        except Refused as refused:
            if (code := self._http.codes.get(refused.code)) is not None:
                raise Refused(code, refused.message, details=refused.details) from refused
            raise
        fields.update(self._http.fixed)
        return fields

    async def _read_body(self, request: Request) -> dict[str, Any]:
        http = self._http
        body = await strict_json_value(request, limit=http.body_bytes_max, optional=http.body_optional)
        if http.whole_body:
            return {http.whole_body: body}
        if not isinstance(body, dict):
            raise Refused("bad_request", "the body must be an object")
        for name in body:
            if name not in self._body:  # here, because another route may have it
                raise Refused(self._code, unknown_field(name, tuple(self._body)))
        return {self._body[name]: value for name, value in body.items()}

    def _parameters(self, request: Request) -> Mapping[str, str]:
        if not self._http.parts_escaped:
            return {name: str(request.path_params[name]) for name in self._path}
        raw = (request.scope.get("raw_path") or b"").partition(b"?")[0].decode("ascii", "replace")
        parts = raw.split("/", len(self._segments) - 1)
        return {
            segment.strip("{}"): unquote(part)
            for segment, part in zip(self._segments, parts, strict=False)
            if segment.startswith("{")
        }


def _typed(text: str, schema: Mapping[str, Any]) -> Any:
    """Return a parameter as its field takes it; as text where it is no such thing, which the record refuses."""
    kinds = {schema.get("type")} | {one.get("type") for one in schema.get("anyOf", ())}
    if "boolean" in kinds and text.lower() in FLAGS:
        return FLAGS[text.lower()]
    if "integer" in kinds and text.isascii() and text.isdecimal() and len(text) <= INTEGER_DIGITS_MAX:
        return int(text)
    if "number" in kinds:
        try:
            return float(text)
        except ValueError:
            return text
    if "array" in kinds:
        return [part for part in text.split(",") if part]
    return text


def _query_parameters(operation: AnyOperation, http: Http) -> tuple[QueryParameter, ...]:
    schemas, required = field_schemas(operation.input), required_fields(operation.input)
    described = tuple(
        QueryParameter(
            name=name,
            description=schemas[field].get("description", ""),
            required=field in required,
            schema={word: value for word, value in schemas[field].items() if word != "description"},
        )
        for name, field in query_fields(operation, http).items()
    )
    tenant = ONLY_TENANT if operation.spans_tenants else TENANT
    return (*described, tenant) if http.takes_tenant else described


def _body_schema(operation: AnyOperation, http: Http) -> NamedSchema:
    name = http.body_name or getattr(operation.input, "__name__", "")
    schemas, required = field_schemas(operation.input), required_fields(operation.input)
    if http.whole_body:
        return NamedSchema(name=name, schema=schemas[http.whole_body], example=http.example)
    fields = body_fields(operation, http)
    needed = [name for name, field in fields.items() if field in required]
    schema = {
        "type": "object",
        "properties": {name: schemas[field] for name, field in fields.items()},
        **({"required": needed} if needed else {}),
        "additionalProperties": False,
    }
    return NamedSchema(name=name, schema=schema, example=http.example)
