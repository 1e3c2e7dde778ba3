"""The routes of endpoints, made from the declarations of families; none is written here by name.

Before: routes.py. After: services/families/ports/requests.py.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property

from starlette.requests import Request

from loomlog.services.api.event_stream import EventStream
from loomlog.services.api.operation_routes import operation_handler, operation_route
from loomlog.services.api.request_parsing import query_flag, query_text, raw_body
from loomlog.services.api.request_shares import Takes
from loomlog.services.api.responses import record_response
from loomlog.services.api.route import AsgiResponse, Handler, NamedSchema, QueryParameter, Route
from loomlog.services.api.service import Service
from loomlog.services.api.ui_session import BY_COOKIE, identify
from loomlog.services.application.errors import run_refusing
from loomlog.services.core.access.decide import Caller, resolve_tenant
from loomlog.services.core.endpoints import Endpoint, EndpointBody
from loomlog.services.core.operation_input import record_schemas
from loomlog.services.families.ports.requests import AsOperation, EndpointAnswer


def endpoint_routes(endpoints: Iterable[Endpoint]) -> tuple[Route, ...]:
    """Return the routes of endpoints, in their order."""
    return tuple(map(_endpoint_route, endpoints))


def _endpoint_route(endpoint: Endpoint) -> Route:
    route = Route(
        route=endpoint.route,
        access=endpoint.access,
        handler=_endpoint_handler(endpoint),
        tag=endpoint.tag,
        summary=endpoint.summary,
        operation=endpoint.id,
        body=None if endpoint.body is None else _body_schema(endpoint.body),
        response=endpoint.response,
        refusal_form=endpoint.refusal_form,
        query=tuple(QueryParameter(name=name, description=text) for name, text in endpoint.query.items()),
        is_stream=endpoint.is_stream,
        status=endpoint.status,
        alternative_status=endpoint.alternative_status,
        refusal_statuses=endpoint.refusal_statuses,
        takes_instead=Takes.WAIT if endpoint.waits else None,
        act=endpoint.act,
    )
    if endpoint.operation is None:
        return route
    of_operation = operation_route(*endpoint.operation)
    return replace(route, body=of_operation.body, status=of_operation.status, act=of_operation.act)


def _body_schema(body: EndpointBody) -> NamedSchema:
    schema = {} if body.record is None else record_schemas((body.record,))[body.record.__name__]
    return NamedSchema(name=body.name, schema=schema, example=body.example)


def _endpoint_handler(endpoint: Endpoint) -> Handler:
    as_operation = None if endpoint.operation is None else operation_handler(*endpoint.operation)

    async def handle(service: Service, caller: Caller, request: Request) -> AsgiResponse:
        asked = _Request(service, caller, request)
        if endpoint.is_stream:
            return EventStream(await service.application.open_stream(endpoint, asked), with_ids=True)
        answering = service.application.endpoints[endpoint](asked)
        answer = await run_refusing(answering, unavailable_code=endpoint.unavailable_code)
        if isinstance(answer, EndpointAnswer):
            return record_response(answer.record, status=answer.status, headers=answer.headers)
        assert isinstance(answer, AsOperation), "the declaration says that it is no stream"
        assert as_operation is not None, "the declaration names an operation"
        response: AsgiResponse = await as_operation(service, answer.caller, request)
        return response

    return handle


class _Request:
    """Protocol EndpointRequest."""

    def __init__(self, service: Service, caller: Caller, request: Request) -> None:
        self.caller = caller
        self._service = service
        self._request = request

    @property
    def path(self) -> Mapping[str, str]:
        return self._request.path_params

    @cached_property
    def headers(self) -> Mapping[str, str]:
        return {name.lower(): value for name, value in self._request.headers.items()}

    def flag(self, name: str) -> bool:
        return query_flag(self._request, name)

    def text(self, name: str) -> str:
        return query_text(self._request, name)

    def tenant(self) -> str:
        return resolve_tenant(self.caller, self.text("tenant"))

    async def body(self, limit: int) -> bytes:
        return await raw_body(self._request, limit=limit)

    async def identify(self) -> Caller:
        return await identify(self._service, self._request)

    @property
    def brings_token(self) -> bool:
        return "authorization" in self.headers or BY_COOKIE in self._request.scope
