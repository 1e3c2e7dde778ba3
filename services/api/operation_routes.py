"""The routes of operations, made from their declarations; none is written here by name.

Path parameters are input fields, those of the query too, and the fields of a body. A parameter is text and becomes what
its field is; an empty one of the query is absent. A number or word that its field does not take is refused by the
sentence that refuses it in a body. Operations that share a route are told apart by `op` in its body, as in a tool.

Before: routes.py. After: services/application/dispatch.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from loomlog.services.api.request_parsing import INTEGER_DIGITS_MAX, json_value, query_text
from loomlog.services.api.request_shares import Takes
from loomlog.services.api.responses import json_response, position_headers, record_response
from loomlog.services.api.route import TENANT_PARAMETER, Handler, NamedSchema, QueryParameter, Route
from loomlog.services.api.service import Service
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.operation_input import (
    OP,
    field_schemas,
    find_operation,
    required_fields,
    unknown_field,
    without_null,
)
from loomlog.services.core.operation_requests import body_fields, path_fields, query_fields
from loomlog.services.core.operations import PRINTABLE_WITH_TABS, AnyOperation, Effect, Fields, Http
from loomlog.services.core.refusals import Refused
from loomlog.services.core.tool_schemas import merged_fields

QUERY_CHARACTERS_MAX = 4_096
"""Longest text of the query; the field of the input has a bound of its own."""
TENANT = QueryParameter(name="tenant", description="Administrators: the tenant that is meant.")
POSITION = "position"
_Served = tuple[AnyOperation, Http]
FLAGS: Mapping[str, bool] = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def operation_routes(operations: Iterable[AnyOperation]) -> tuple[Route, ...]:
    """Return the routes of all operations, in the order of their declarations."""
    routes: dict[str, list[_Served]] = {}
    for operation in operations:
        for http in operation.http:
            routes.setdefault(http.route, []).append((operation, http))
    return tuple(
        _shared_route(served) if served[0][1].op else operation_route(*served[0]) for served in routes.values()
    )


def operation_route(operation: AnyOperation, http: Http) -> Route:
    """Return one route of an operation."""
    return replace(
        _bare_route(operation, http, operation_handler(operation, http)),
        body=_body_schema(operation, http) if body_fields(operation, http) else None,
        response=None if http.status == 204 else http.output or operation.output,
        query=_query_parameters(operation, http),
    )


def _shared_route(served: Sequence[_Served]) -> Route:
    """Return the route of operations that `op` of the body tells apart."""
    (first, http), by_op = served[0], {one.op: operation for operation, one in served}

    async def handle(service: Service, caller: Caller, request: Request) -> Response:
        body = await json_value(request, limit=http.body_bytes_max, optional=http.body_optional)
        try:
            operation = _named_operation(body, first, by_op)
        except Refused as refused:
            raise first.refused(refused) if first.refused is not None else refused from refused
        fields = {name: value for name, value in body.items() if name != OP}
        return await _respond(operation, http, service, caller, request, fields)

    fields = merged_fields({op: field_schemas(operation.input) for op, operation in by_op.items()})
    schema = {
        "type": "object",
        "properties": {OP: {"type": "string", "enum": list(by_op), "description": "What to do."}, **fields},
        "required": [OP],
        "additionalProperties": False,
    }
    return replace(
        _bare_route(first, http, handle),
        body=NamedSchema(
            name=http.body_name or getattr(first.input, "__name__", ""), schema=schema, example=http.example
        ),
        response=tuple(dict.fromkeys(operation.output for operation in by_op.values())),
        query=(TENANT,) if http.takes_tenant else (),
        act=first.family if any(operation.records_act for operation in by_op.values()) else "",
    )


def _named_operation(body: Any, first: AnyOperation, by_op: Mapping[str, AnyOperation]) -> AnyOperation:
    """Return the operation that a body names. Raises Refused: unknown_op, or the code for a missing field."""
    if not isinstance(body, dict):
        raise Refused(first.invalid_code, f"expected an object with {OP}")
    if body.get(OP) is None:
        text = f"{OP} is missing: expected one of {', '.join(by_op)}"
        raise Refused(first.missing_code or first.invalid_code, text)
    return find_operation(body[OP], by_op, code="unknown_op")


def _bare_route(operation: AnyOperation, http: Http, handler: Handler) -> Route:
    return Route(
        route=http.route,
        access=http.access or operation.access,
        handler=handler,
        summary=http.summary or operation.summary,
        operation=http.id or operation.name.replace(".", "_"),
        tag=operation.tag,
        body_optional=http.body_optional,
        status=http.status,
        alternative_status=http.alternative_status,
        refusal_statuses=tuple(http.refusal_statuses),
        takes_instead=Takes.WAIT if operation.effect is Effect.WAIT else None,
        recognises_key=http.recognises_key,
        act=operation.name if operation.records_act else "",
        opens_with_public_config=http.opens_with_public_config,
    )


def operation_handler(operation: AnyOperation, http: Http) -> Handler:
    """Return the handler of one route of an operation."""
    read = _FieldReader(operation, http)

    async def handle(service: Service, caller: Caller, request: Request) -> Response:
        fields = await read(request, bytes_max=http.body_bytes_max or service.max_request_bytes)
        return await _respond(operation, http, service, caller, request, fields)

    return handle


async def _respond(
    operation: AnyOperation, http: Http, service: Service, caller: Caller, request: Request, fields: Mapping[str, Any]
) -> Response:
    """Carry out an operation with these fields, and return its answer as the route shows it."""
    tenant = query_text(request, "tenant") if http.takes_tenant and _has_query(request) else ""
    done = await service.dispatch(operation).request(operation, caller, fields, tenant=tenant, access=http.access)
    headers = position_headers(*done.positions) if done.positions else None
    if http.headers is not None:
        headers = {**(headers or {}), **http.headers(done)}
    if http.status == 204:
        return Response(status_code=http.status, headers=headers)
    value = http.answer(done.value) if http.answer is not None else done.value
    is_other = http.takes_alternative is not None and http.takes_alternative(fields)
    status = http.alternative_status if is_other else http.status
    if not isinstance(value, msgspec.Struct):
        return json_response(value, status=status, headers=headers)
    return record_response(value, status=status, headers=headers)


class _FieldReader:
    """Reads the input of an operation from the requests of one route."""

    def __init__(self, operation: AnyOperation, http: Http) -> None:
        self._http = http
        self._schemas = field_schemas(operation.input)
        self._path = path_fields(http)
        self._query = query_fields(operation, http)
        self._body = body_fields(operation, http)
        self._operation = operation
        segments = http.path.replace(":path}", "}").split("/")
        self._splits = len(segments) - 1
        self._places = [(place, self._path[one.strip("{}")]) for place, one in enumerate(segments) if one[:1] == "{"]
        """Where the fields of a path are among its parts."""

    async def __call__(self, request: Request, *, bytes_max: int) -> dict[str, Any]:
        """Return the fields; `bytes_max` is the largest body. Raises Refused."""
        body, fields = {}, dict[str, Any]()
        try:
            if self._body:
                body = await self._read_body(request, bytes_max)
            if _has_query(request):
                for name in self._query.keys() & request.query_params.keys():
                    field = self._query[name]
                    schema = self._schemas[field]
                    tabs = schema.get("pattern") == PRINTABLE_WITH_TABS
                    if text := query_text(request, name, max_length=QUERY_CHARACTERS_MAX, tabs=tabs):
                        fields[field] = _typed(text, schema)
            self._add_parameters(request, fields)
        except Refused as refused:
            if (code := self._http.codes.get(refused.code)) is not None:
                raise Refused(code, refused.message, details=refused.details) from refused
            raise
        return {**self._named(body), **fields, **self._http.fixed}

    async def _read_body(self, request: Request, bytes_max: int) -> dict[str, Any]:
        http = self._http
        body = await json_value(request, limit=bytes_max, optional=http.body_optional)
        if http.whole_body:
            return {http.names.get(http.whole_body, http.whole_body): body}
        if not isinstance(body, dict):
            code = "bad_request" if self._operation.refused is None else self._operation.invalid_code
            raise self._refused(code, "the body must be an object")
        return body

    def _named(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a body by their names in the input. Raises Refused for an unknown one."""
        for name in body:
            if name not in self._body:  # here, because another route may have it
                code = self._operation.unknown_code or self._operation.invalid_code
                raise self._refused(code, unknown_field(name, tuple(self._body)))
        return {self._body[name]: value for name, value in body.items()}

    def _refused(self, code: str, message: str) -> Refused:
        """Return the refusal of a body, as the operation shows refusals."""
        refused = Refused(code, message)
        return self._operation.refused(refused) if self._operation.refused is not None else refused

    def _add_parameters(self, request: Request, fields: dict[str, Any]) -> None:
        """Add the fields that are in the path."""
        if not self._http.parts_escaped:
            for name, field in self._path.items():
                fields[field] = _typed(str(request.path_params[name]), self._schemas[field])
            return
        raw = (request.scope.get("raw_path") or b"").partition(b"?")[0].decode("ascii", "replace")
        parts = raw.split("/", self._splits)
        for place, field in self._places:
            if place < len(parts):
                fields[field] = _typed(unquote(parts[place]), self._schemas[field])


def _has_query(request: Request) -> bool:
    """Return whether a request has any parameter of the query: most have none."""
    return bool(request.scope.get("query_string"))


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
            schema={word: value for word, value in without_null(schemas[field]).items() if word != "description"},
        )
        for name, field in query_fields(operation, http).items()
        if name != POSITION  # every route has it
    )
    tenant = TENANT_PARAMETER if operation.spans_tenants else TENANT
    return (*described, tenant) if http.takes_tenant else described


def _body_schema(operation: AnyOperation, http: Http) -> type[Any] | NamedSchema:
    fields = body_fields(operation, http)
    if isinstance(operation.input, Fields) and operation.input.model is not None:
        assert len(fields) == len(field_schemas(operation.input)), (
            f"{http.route}: all fields of a model are in its body"
        )
        return operation.input.model
    name = http.body_name or getattr(operation.input, "__name__", "")
    schemas, required = field_schemas(operation.input), required_fields(operation.input)
    if http.whole_body:
        return NamedSchema(name=name, schema=schemas[http.whole_body], example=http.example)
    needed = [name for name, field in fields.items() if field in required]
    schema = {
        "type": "object",
        "properties": {name: schemas[field] for name, field in fields.items()},
        **({"required": needed} if needed else {}),
        "additionalProperties": False,
    }
    return NamedSchema(name=name, schema=schema, example=http.example)
