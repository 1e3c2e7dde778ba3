"""Where the fields of an operation are in the requests of a route: in the path, the query and the body.

Before: services/api/operation_routes.py reads requests, services/cli/operations.py makes them. After: the declaration.
"""

from collections.abc import Mapping
from functools import cache

from loomlog.services.core.operation_input import field_schemas
from loomlog.services.core.operations import AnyOperation, Http

BODY_METHODS = ("POST", "PUT", "PATCH")


@cache
def path_fields(http: Http) -> Mapping[str, str]:
    """Return the input fields of the parameters of the path, by their names in it."""
    names = (segment.strip("{}").removesuffix(":path") for segment in http.path.split("/") if segment.startswith("{"))
    fields = {other: field for field, other in http.names.items()}
    return {name: fields.get(name, name) for name in names}


def query_fields(operation: AnyOperation, http: Http) -> Mapping[str, str]:
    """Return the input fields of the parameters of the query, by their names in it."""
    fields = _open_fields(operation, http)
    chosen = fields if http.method not in BODY_METHODS else [field for field in fields if field in http.query]
    return {http.names.get(field, field): field for field in chosen}


def body_fields(operation: AnyOperation, http: Http) -> Mapping[str, str]:
    """Return the input fields of the body, by their names in it; those of a whole body, too."""
    if http.method not in BODY_METHODS:
        return {}
    return {http.names.get(field, field): field for field in _open_fields(operation, http) if field not in http.query}


@cache
def _open_fields(operation: AnyOperation, http: Http) -> tuple[str, ...]:
    """Return the fields that are neither in the path nor set or left out by the route."""
    taken = {*path_fields(http).values(), *http.fixed, *http.without}
    return tuple(field for field in field_schemas(operation.input) if field not in taken)
