"""Cases over the table of operations, and requests made from declarations alone."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from loomlog.services.api.mcp import event_operations, tasks
from loomlog.services.api.mcp import operations as of_mcp
from loomlog.services.application.operations import product_operations
from loomlog.services.core.access.rules import Access
from loomlog.services.core.operation_input import OP, field_schemas, required_fields
from loomlog.services.core.operation_requests import body_fields, path_fields, query_fields
from loomlog.services.core.operations import AnyOperation, Http
from loomlog.services.grpc import operations as of_grpc

OPERATIONS = product_operations()
MCP_OPERATIONS = (*of_mcp.OPERATIONS, *tasks.OPERATIONS, *event_operations.OPERATIONS)
GRPC_OPERATIONS = of_grpc.OPERATIONS
"""Operations that one transport alone has."""


@dataclass(frozen=True)
class Case:
    """A route of an operation."""

    operation: AnyOperation
    http: Http

    @property
    def access(self) -> Access:
        return self.http.access or self.operation.access

    @property
    def body(self) -> Mapping[str, str]:
        return body_fields(self.operation, self.http)

    @property
    def fields(self) -> dict[str, Any]:
        """Fields that the route takes, each with a value that its schema takes: the required ones, and the body's."""
        required = set(required_fields(self.operation.input))
        needed = [*path_fields(self.http).values(), *query_fields(self.operation, self.http).values()]
        names = [name for name in needed if name in required or name in path_fields(self.http).values()]
        schemas = field_schemas(self.operation.input)
        return {name: example(schemas[name]) for name in (*names, *self.body.values())}

    @property
    def named_op(self) -> dict[str, Any]:
        """What a body says of the operation, on a route that several share."""
        return {OP: self.http.op} if self.http.op else {}

    async def send(self, client: httpx.AsyncClient, raw: bytes | None = None, **changes: Any) -> httpx.Response:
        """Send the example with other fields; UNDEFINED leaves one out. `raw` replaces the body."""
        fields = {name: value for name, value in (self.fields | changes).items() if value is not UNDEFINED}
        return await client.request(**self.request(fields, raw=raw))

    def request(self, fields: Mapping[str, Any], *, raw: bytes | None = None) -> dict[str, Any]:
        """Return the arguments of httpx for a request with these fields."""
        path = self.http.path
        for name, field in path_fields(self.http).items():
            text = quote(str(fields[field]), safe="")
            path = path.replace(f"{{{name}:path}}", text).replace(f"{{{name}}}", text)
        of_query = query_fields(self.operation, self.http)
        query = {name: str(fields[field]) for name, field in of_query.items() if field in fields}
        request: dict[str, Any] = {"method": self.http.method, "url": path, "params": query}
        if self.body or self.http.op:
            named = self.named_op | {name: fields[field] for name, field in self.body.items() if field in fields}
            body = fields.get(self.http.whole_body) if self.http.whole_body else named
            request |= {"content": raw or json.dumps(body).encode(), "headers": {"content-type": "application/json"}}
        return request


class Undefined:
    """The absence of a field."""


UNDEFINED = Undefined()
CASES = [Case(operation, http) for operation in OPERATIONS for http in operation.http]
OF_OBJECTS = [case for case in CASES if case.body and not case.http.whole_body]
"""Routes whose body is an object with fields."""


def route_of(case: Case) -> str:
    """Return the id of a case."""
    return f"{case.http.route} {case.http.op}".strip()


def example(schema: Mapping[str, Any]) -> Any:
    """Return a value that a schema takes."""
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return example(next(one for one in schema["anyOf"] if one.get("type") != "null"))
    match schema.get("type"):
        case "integer" | "number":
            return max(schema.get("minimum", 1), min(1, schema.get("maximum", math.inf)))
        case "string":
            return "AAAA" if "contentEncoding" in schema else "a" * max(1, schema.get("minLength", 1))
        case "boolean":
            return True
        case "array":
            return [example(schema.get("items", {}))] * max(1, schema.get("minItems", 1))
        case "object":
            return {name: example(schema["properties"][name]) for name in schema.get("required", ())}
    return 1
