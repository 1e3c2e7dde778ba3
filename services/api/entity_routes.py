"""The routes of families, made from their declarations; none is written here by name.

    POST /v1/_<family>/<verb>          a command; the body has the fields of its record
    GET  /v1/_<family>                 its aggregates, by name
    GET  /v1/_<family>/show?id=        one of them
    GET  /v1/_<family>/<query>?id=     a question about one of them

The id is a query parameter, because it may contain slashes. Before: routes.py. After: entity_endpoints.py.
"""

from collections.abc import Iterable, Iterator
from typing import Any, get_type_hints

from pydantic import TypeAdapter
from typing_extensions import is_typeddict

from loomlog.services.api import entity_endpoints
from loomlog.services.api.route import (
    CURSOR_PARAMETER,
    LIMIT_PARAMETER,
    NamedSchema,
    QueryParameter,
    Route,
    Tag,
)
from loomlog.services.core.access.rules import of_family
from loomlog.services.core.command_fields import example_fields, fields_schema
from loomlog.services.core.families import NAME_BYTES_MAX, Command, Family, Query

AnyFamily = Family[Any, Any, Any]

TENANT = QueryParameter(name="tenant", description="Administrators: the tenant; the caller's if absent.")
ID = QueryParameter(
    name="id",
    description="Id of the aggregate within the tenant.",
    required=True,
    schema={"type": "string", "minLength": 1, "maxLength": NAME_BYTES_MAX},
)
PREFIX = QueryParameter(name="prefix", description="Only ids that begin with this text.")
TEXT = {"type": "string"}
OBJECT = {"type": "object"}
"""A state, a reply or an answer: its fields are those that the family's functions return."""


def entity_routes(families: Iterable[AnyFamily]) -> tuple[Route, ...]:
    """Return the routes of families, in the order of their declarations."""
    return tuple(route for family in families for route in _family_routes(family))


def _family_routes(family: AnyFamily) -> Iterator[Route]:
    tag = Tag(name=family.name.capitalize(), description=family.summary)
    for row in family.commands:
        if row.in_transports:
            yield _command_route(family, row, tag)
    if family.scope:
        yield _list_route(family, tag)
        yield _show_route(family, tag)
    for query in family.queries:
        yield _query_route(family, query, tag)


def _command_route(family: AnyFamily, row: Command[Any], tag: Tag) -> Route:
    fields = fields_schema(row.record)
    return Route(
        method="POST",
        path=f"/v1/_{family.name}/{row.verb}",
        access=of_family(row.scope),
        handler=entity_endpoints.command_handler(family, row),
        operation=f"{row.verb}_{family.name}",
        tag=tag,
        summary=row.summary,
        body=NamedSchema(
            name=_schema_name(family, row.verb, "Body"), schema=fields, example=example_fields(row.record)
        ),
        body_optional="required" not in fields,
        response=NamedSchema(
            name=_schema_name(family, row.verb, "Reply"),
            schema={**OBJECT, "description": "What the command did; empty when it changed nothing."},
        ),
        query=(TENANT,),
    )


def _list_route(family: AnyFamily, tag: Tag) -> Route:
    return Route(
        method="GET",
        path=f"/v1/_{family.name}",
        access=of_family(family.scope),
        handler=entity_endpoints.list_handler(family),
        operation=f"list_{family.name}_aggregates",
        tag=tag,
        summary=f"List the aggregates of {family.name} by id.",
        response=NamedSchema(
            name=_schema_name(family, "Page"),
            schema={
                "type": "object",
                "properties": {
                    "items": {"type": "array", "items": _row_schema(family)},
                    "next": {"anyOf": [TEXT, {"type": "null"}], "description": "`cursor` of the following page."},
                },
                "required": ["items", "next"],
            },
        ),
        query=(PREFIX, LIMIT_PARAMETER, CURSOR_PARAMETER, TENANT),
    )


def _show_route(family: AnyFamily, tag: Tag) -> Route:
    return Route(
        method="GET",
        path=f"/v1/_{family.name}/show",
        access=of_family(family.scope),
        handler=entity_endpoints.show_handler(family),
        operation=f"show_{family.name}_aggregate",
        tag=tag,
        summary=f"Get an aggregate of {family.name}.",
        response=NamedSchema(name=_schema_name(family, "Row"), schema=_row_schema(family)),
        query=(ID, TENANT),
        refusal_statuses=(404,),
    )


def _query_route(family: AnyFamily, query: Query[Any], tag: Tag) -> Route:
    parameters = [QueryParameter(name=name, description="A parameter of the question.") for name in query.parameters]
    return Route(
        method="GET",
        path=f"/v1/_{family.name}/{query.verb}",
        access=of_family(query.scope),
        handler=entity_endpoints.query_handler(family, query),
        operation=f"get_{family.name}_{query.verb}",
        tag=tag,
        summary=query.summary,
        response=NamedSchema(name=_schema_name(family, query.verb, "Answer"), schema=OBJECT),
        query=(ID, *parameters, TENANT),
        refusal_statuses=(404,),
    )


def _state_schema(family: AnyFamily) -> dict[str, Any]:
    """Return the schema of a state as it is shown: that of the TypedDict its view returns, if it does."""
    shown: Any = get_type_hints(family.view).get("return")
    return TypeAdapter(shown).json_schema(mode="serialization") if is_typeddict(shown) else OBJECT


def _row_schema(family: AnyFamily) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "id": {**TEXT, "description": "Id within the tenant."},
            "tenant_id": TEXT,
            "state": {**_state_schema(family), "description": "The state, as the family shows it."},
            "quarantine": {"anyOf": [TEXT, {"type": "null"}], "description": "Why nothing is decided in it."},
            "created_at": TEXT,
            "updated_at": TEXT,
        },
        "required": ["id", "tenant_id", "state", "quarantine", "created_at", "updated_at"],
    }


def _schema_name(family: AnyFamily, *words: str) -> str:
    return "".join(part[:1].upper() + part[1:] for word in (family.name, *words) for part in word.split("_"))
