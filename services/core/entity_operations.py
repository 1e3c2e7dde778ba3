"""The operations that follow from the commands and queries of a family, which it need not declare one by one.

    POST /v1/_<family>/<verb>          a command; the fields are those of its record
    GET  /v1/_<family>                 its aggregates, by name
    GET  /v1/_<family>/show?id=        one of them
    GET  /v1/_<family>/<query>?id=     a question about one of them

The same are `op` of the family's tool, if it has one. The id is a query parameter, because it may contain slashes.

Before: a family's declaration. After: services/families/entity_handlers.py carries them out.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType, defstruct

from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.access.rules import of_family
from loomlog.services.core.access.scopes import TENANT
from loomlog.services.core.command_fields import example_fields, fields_schema, parse_fields
from loomlog.services.core.families import NAME_BYTES_MAX, Command, Family, Query
from loomlog.services.core.operations import (
    PRINTABLE,
    AnyOperation,
    Effect,
    Fields,
    Http,
    Input,
    Operation,
    Output,
    Tag,
    Tool,
    ToolOperation,
)

AnyFamily = Family[Any, Any, Any]

LIST, SHOW = "ls", "show"
PAGE_MAX = 200
"""Most aggregates of one page: each has its whole state, at most 600 KB."""
CURSOR_CHARACTERS_MAX = 1_024
"""Longest cursor: a name in base64."""
PARAMETER_CHARACTERS_MAX = 4_096
"""Longest parameter of a query."""
NO_ENVELOPE = CommandEnvelope(command_id="")
"""Envelope of the input of a command, until its handler knows who gives it."""

Id = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=NAME_BYTES_MAX,
        pattern=PRINTABLE,
        description="Id of the aggregate within the tenant.",
    ),
]
Parameter = Annotated[str, Meta(max_length=PARAMETER_CHARACTERS_MAX, description="A parameter of the question.")]


class AggregateList(Input, frozen=True, kw_only=True):
    prefix: Annotated[str, Meta(max_length=NAME_BYTES_MAX, description="Only ids that begin with this text.")] = ""
    cursor: Annotated[str, Meta(max_length=CURSOR_CHARACTERS_MAX, description="`next` of an earlier answer.")] = ""
    after: Annotated[
        str,
        Meta(max_length=NAME_BYTES_MAX, description="Only ids after this one: the last of an earlier answer."),
    ] = ""
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX, description="Most entries of one answer.")] | UnsetType = UNSET


class AggregateNamed(Input, frozen=True, kw_only=True):
    id: Id


class Aggregate(Output, frozen=True, kw_only=True):
    """An aggregate of a family."""

    id: Annotated[str, Meta(description="Id within the tenant.")]
    tenant_id: str
    state: Annotated[dict[str, Any], Meta(description="The state, as the family shows it.")]
    quarantine: Annotated[str | None, Meta(description="Why nothing is decided in it.")]
    created_at: Annotated[str, Meta(description="RFC 3339.")]
    updated_at: Annotated[str, Meta(description="RFC 3339.")]


class AggregatePage(Output, frozen=True, kw_only=True):
    """Aggregates of a family, by id."""

    items: list[Aggregate]
    next: Annotated[str | None, Meta(description="`cursor` of the following page; null at the end.")]


class Reply(Output, frozen=True, kw_only=True):
    """What the command did; empty when it changed nothing."""

    fields: Mapping[str, Any]
    is_changed: bool


class QueryAnswer(Output, frozen=True, kw_only=True):
    """The answer to a question about an aggregate."""

    fields: Mapping[str, Any]


def entity_operations(family: AnyFamily) -> tuple[AnyOperation, ...]:
    """Return the operations of a family that a transport or its tool offers."""
    commands = [command_operation(family, row) for row in family.commands]
    reads = [list_operation(family), show_operation(family)] if family.scope or family.tool else []
    queries = [query_operation(family, query) for query in family.queries]
    return tuple(
        operation for operation in (*commands, *reads, *queries) if operation.http or operation.tool is not None
    )


def entity_tool(family: AnyFamily) -> Tool:
    """Return the tool of a family that has one."""
    operations = [operation for operation in entity_operations(family) if operation.tool is not None]
    texts = [
        f"op {operation.tool.op} ({', '.join(_fields_of(operation)) or 'no fields'}): {operation.summary}"
        for operation in operations
        if operation.tool is not None
    ]
    return Tool(name=family.tool, description=" ".join((family.summary, *texts)), is_ordered=False)


def command_operation(family: AnyFamily, row: Command[Any]) -> AnyOperation:
    """Return the operation that gives a command."""
    schema = fields_schema(row.record)
    http = Http(
        route=f"POST /v1/_{family.name}/{row.verb}",
        id=f"{row.verb}_{family.name}",
        body_name=_schema_name(family, row.verb, "Body"),
        body_optional="required" not in schema,
        example=example_fields(row.record),
        output=_open_record(_schema_name(family, row.verb, "Reply"), Reply),
        answer=lambda reply: reply.fields,
    )
    return Operation(
        name=f"{family.name}.{row.verb}",
        summary=row.summary,
        input=Fields(schema=schema, parse=partial(parse_fields, row.record, envelope=NO_ENVELOPE)),
        output=Reply,
        access=of_family(row.scope),
        effect=Effect.WRITE,
        tag=_tag(family),
        http=(http,) if row.in_transports else (),
        tool=_tool(family, row.verb, row.in_tool, _reply_of_tool),
        unavailable_code="log_unavailable",
    )


def list_operation(family: AnyFamily) -> AnyOperation:
    """Return the operation that lists aggregates."""
    http = Http(route=f"GET /v1/_{family.name}", id=f"list_{family.name}_aggregates", without=("after",))
    return Operation(
        name=f"{family.name}.{LIST}",
        summary=f"List what there is of {family.name}, by id.",
        input=AggregateList,
        output=AggregatePage,
        access=_read_access(family),
        effect=Effect.READ,
        tag=_tag(family),
        http=(http,) if family.scope else (),
        tool=_tool(family, LIST, True, _page_of_tool, without=("cursor",)),
        unavailable_code="projection_unavailable",
    )


def show_operation(family: AnyFamily) -> AnyOperation:
    """Return the operation that shows an aggregate."""
    http = Http(route=f"GET /v1/_{family.name}/show", id=f"show_{family.name}_aggregate", refusal_statuses=(404,))
    return Operation(
        name=f"{family.name}.{SHOW}",
        summary=f"Show one {family.name}.",
        input=AggregateNamed,
        output=Aggregate,
        access=_read_access(family),
        effect=Effect.READ,
        tag=_tag(family),
        http=(http,) if family.scope else (),
        tool=_tool(family, SHOW, True, _row_of_tool),
        unavailable_code="projection_unavailable",
    )


def query_operation(family: AnyFamily, query: Query[Any]) -> AnyOperation:
    """Return the operation that answers a question about an aggregate."""
    http = Http(
        route=f"GET /v1/_{family.name}/{query.verb}",
        id=f"get_{family.name}_{query.verb}",
        output=_open_record(_schema_name(family, query.verb, "Answer"), QueryAnswer),
        answer=lambda answer: answer.fields,
        refusal_statuses=(404,),
    )
    fields: list[Any] = [("id", Id), *((name, Parameter | UnsetType, UNSET) for name in query.parameters)]
    return Operation(
        name=f"{family.name}.{query.verb}",
        summary=query.summary,
        input=defstruct(_schema_name(family, query.verb), fields, bases=(Input,), frozen=True, kw_only=True),
        output=QueryAnswer,
        access=of_family(query.scope),
        effect=Effect.READ,
        tag=_tag(family),
        http=(http,),
        tool=_tool(family, query.verb, query.in_tool, lambda answer: answer.fields),
        unavailable_code="projection_unavailable",
    )


def _fields_of(operation: AnyOperation) -> list[str]:
    schema = operation.input.schema if isinstance(operation.input, Fields) else {}
    return list(schema.get("properties", ())) or list(getattr(operation.input, "__struct_fields__", ()))


def _read_access(family: AnyFamily) -> Any:
    # Without a scope it is offered to agents alone, which need none.
    return of_family(family.scope or TENANT)


def _tag(family: AnyFamily) -> Tag:
    return Tag(name=family.name.capitalize(), description=family.summary)


def _tool(family: AnyFamily, op: str, is_offered: bool, answer: Any, **more: Any) -> ToolOperation | None:
    return ToolOperation(tool=family.tool, op=op, answer=answer, **more) if family.tool and is_offered else None


def _reply_of_tool(reply: Reply) -> Mapping[str, Any]:
    return reply.fields if reply.is_changed else {"changed": False}


def _row_of_tool(row: Aggregate) -> dict[str, Any]:
    return {"id": row.id, "state": row.state} | ({"quarantine": row.quarantine} if row.quarantine else {})


def _page_of_tool(page: AggregatePage) -> dict[str, Any]:
    return {"items": [_row_of_tool(row) for row in page.items], "more": page.next is not None}


def _open_record(name: str, of: type[Any]) -> type[Any]:
    """Return the record of an answer whose fields the family's function returns."""
    return defstruct(name, [], bases=(Output,), frozen=True, kw_only=True, namespace={"__doc__": of.__doc__})


def _schema_name(family: AnyFamily, *words: str) -> str:
    return "".join(part[:1].upper() + part[1:] for word in (family.name, *words) for part in word.split("_"))
