"""`loomlog <family> ...`: the commands of a family, made from its declaration; none is written here by name.

    loomlog counter increment --name visits --by 2
    loomlog counter ls --prefix a/
    loomlog counter show visits
    loomlog counter <query> visits

Each field of a command's record is an option; a list is given by repeating it. Fields that are records or maps are
given with --json-body, an object with any of the fields. The API checks the fields; here only a missing one is named,
with its option.

Before: services/cli/main.py, when no other command has the name. After: services/cli/http/api.py.
"""

import inspect
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

import orjson
import typer
from rich.text import Text

from loomlog.services.cli.commands import CommandGroup, load_group, run
from loomlog.services.cli.errors import UsageError
from loomlog.services.cli.http.api import ApiResponse, explain_pending
from loomlog.services.cli.runs.runs import Json, open_api
from loomlog.services.cli.terminal.output import DIM, NAME, WARNING, console, fact_line, print_json, print_table
from loomlog.services.core.command_fields import fields_schema
from loomlog.services.core.families import Command, Family, Query

AnyFamily = Family[Any, Any, Any]

OWN_OPTIONS = frozenset({"json", "json-body", "tenant", "idempotency-key", "position", "help"})
"""Options of every command; a field with such a name gets the option --field-<name>."""
LIST_LIMIT = 50
LIST_LIMIT_MAX = 200

Tenant = Annotated[str, typer.Option("--tenant", help="Administrators: another tenant than your own.")]
Position = Annotated[str, typer.Option("--position", help="Wait until this write is included.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="Id within the tenant.")]
JsonBody = Annotated[
    str, typer.Option("--json-body", help="Fields as a JSON object, beside those of options; - reads it from stdin.")
]
IdempotencyKey = Annotated[
    str, typer.Option("--idempotency-key", help="The same key again is the same command, done once.")
]


def family_group(family: AnyFamily) -> Any:
    """Return the group of commands of a family."""
    app = typer.Typer(name=family.name, cls=CommandGroup, no_args_is_help=True, help=family.summary)
    for row in family.commands:
        if row.in_transports:
            app.command(row.verb, help=_command_help(row))(_command(family, row))
    if family.scope:
        app.command("ls", help=f"List what there is of {family.name}, by id.")(_list_command(family))
        app.command("show", help=f"Show one {family.name}.")(_show_command(family))
    for query in family.queries:
        app.command(query.verb, help=query.summary)(_query_command(family, query))
    return load_group(app, family.name)


# --- commands --------------------------------------------------------------------------------------------------------


def _command(family: AnyFamily, row: Command[Any]) -> Callable[..., None]:
    schema = fields_schema(row.record)
    options = {name: option for name in schema["properties"] if (option := _field_option(name, schema)) is not None}

    def give(
        json_body: JsonBody = "",
        tenant: Tenant = "",
        idempotency_key: IdempotencyKey = "",
        as_json: Json = False,
        **values: Any,
    ) -> None:
        values_of_options = {name: values[_parameter(name)] for name in options}
        fields = _collect_fields(schema, values_of_options, json_body)
        answer = run(_post(_path(family, row.verb, tenant=tenant), fields, idempotency_key or str(uuid.uuid4())))
        if as_json:
            print_json({**answer.value, "position": answer.position or None})
            return
        out = console()
        for name, value in answer.value.items():
            out.print(fact_line(name, _compact(value)))
        if not answer.value:
            out.print(Text("nothing changed", style=DIM))
        out.print(fact_line("event", answer.position))

    return _with_options(give, {_parameter(name): option for name, option in options.items()})


def _command_help(row: Command[Any]) -> str:
    schema = fields_schema(row.record)
    nested = [name for name in schema["properties"] if _field_option(name, schema) is None]
    return row.summary + (f" With --json-body only: {', '.join(nested)}." if nested else "")


def _field_option(name: str, schema: Mapping[str, Any]) -> Any:
    """Return the annotation of a field's option; None for a field that no option can have."""
    field = schema["properties"][name]
    kind = _option_type(field)
    if kind is None:
        return None
    texts = [field.get("description", "")]
    if "contentEncoding" in _bare(field):
        texts.append("In base64.")
    if name in schema.get("required", ()):
        texts.append("Required.")
    elif field.get("default") not in (None, "", []):
        texts.append(f"{_compact(field['default'])} if absent.")
    bounds = {}
    if kind is int:
        bounds = {"min": _bare(field)["minimum"], "max": _bare(field)["maximum"]}
    option = _option_name(name)
    declared = f"--{option}/--no-{option}" if kind is bool else f"--{option}"
    return Annotated[kind | None, typer.Option(declared, help=" ".join(filter(None, texts)), **bounds)]


def _option_type(field: Mapping[str, Any]) -> Any:
    bare = _bare(field)
    simple: Mapping[str, Any] = {"string": str, "integer": int, "number": float}
    match bare.get("type"):
        case "boolean":
            return bool
        case "array":
            item = simple.get(_bare(bare["items"]).get("type", ""))
            return None if item is None else list[item]  # type: ignore[valid-type]  # known at run time only
        case kind:
            return simple.get(str(kind))


def _bare(field: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a field that may be null, without the null."""
    others: Sequence[Mapping[str, Any]] = [part for part in field.get("anyOf", ()) if part != {"type": "null"}]
    return others[0] if len(others) == 1 else field


def _collect_fields(schema: Mapping[str, Any], options: Mapping[str, Any], json_body: str) -> dict[str, Any]:
    """Return the fields of options and of the JSON body. Raises UsageError."""
    fields = _parse_body(json_body)
    for name, value in options.items():
        if value is None:
            continue
        if name in fields:
            raise UsageError(f"{name} is given twice: with --{_option_name(name)} and in --json-body.")
        fields[name] = value
    missing = [name for name in schema.get("required", ()) if name not in fields]
    if missing:
        ways = [f"--{_option_name(name)}" if name in options else f"{name} in --json-body" for name in missing]
        raise UsageError(f"missing: {', '.join(ways)}.")
    return fields


def _parse_body(text: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        body = orjson.loads(sys.stdin.buffer.read() if text == "-" else text)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"--json-body is not JSON: {error}.") from error
    if not isinstance(body, dict):
        raise UsageError("--json-body must be a JSON object with fields.")
    return body


def _option_name(name: str) -> str:
    option = name.replace("_", "-")
    return f"field-{option}" if option in OWN_OPTIONS else option


def _parameter(name: str) -> str:
    return f"field_{name}"


# --- reads -----------------------------------------------------------------------------------------------------------


def _list_command(family: AnyFamily) -> Callable[..., None]:
    def list_entities(
        prefix: Annotated[str, typer.Option("--prefix", help="Only ids that begin with this text.")] = "",
        limit: Annotated[
            int, typer.Option("--limit", min=1, max=LIST_LIMIT_MAX, help="Most entries to show.")
        ] = LIST_LIMIT,
        cursor: Annotated[str, typer.Option("--cursor", help="`next` of an earlier answer.")] = "",
        tenant: Tenant = "",
        position: Position = "",
        as_json: Json = False,
    ) -> None:
        params: dict[str, str | int] = {"prefix": prefix, "limit": limit, "cursor": cursor, "tenant": tenant}
        page = run(_get(f"/v1/_{family.name}", {**params, "position": position}))
        if as_json:
            print_json(page)
            return
        out = console()
        if not page["items"]:
            out.print(Text("none", style=DIM))
            return
        rows = [
            (
                Text(item["id"], style=WARNING if item["quarantine"] else NAME),
                item["updated_at"],
                _compact(item["state"]),
            )
            for item in page["items"]
        ]
        print_table(out, ("id", "updated", "state"), rows)
        if page["next"]:
            out.print(Text(f"more: --cursor {page['next']}", style=DIM))

    return list_entities


def _show_command(family: AnyFamily) -> Callable[..., None]:
    def show(name: Id, tenant: Tenant = "", position: Position = "", as_json: Json = False) -> None:
        row = run(_get(f"/v1/_{family.name}/show", {"id": name, "tenant": tenant, "position": position}))
        if as_json:
            print_json(row)
            return
        out = console()
        facts = {
            "id": row["id"],
            "tenant": row["tenant_id"],
            "quarantine": row["quarantine"],
            "created": row["created_at"],
            "updated": row["updated_at"],
        }
        for fact, value in facts.items():
            if value:
                out.print(fact_line(fact, value))
        _print_object(row["state"])

    return show


def _query_command(family: AnyFamily, query: Query[Any]) -> Callable[..., None]:
    def ask(name: Id, tenant: Tenant = "", position: Position = "", as_json: Json = False, **values: Any) -> None:
        own = {parameter: values[_parameter(parameter)] for parameter in query.parameters}
        params = {"id": name, "tenant": tenant, "position": position, **own}
        answer = run(_get(f"/v1/_{family.name}/{query.verb}", params))
        if as_json:
            print_json(answer)
            return
        _print_object(answer)

    options = {
        _parameter(parameter): Annotated[
            str, typer.Option(f"--{_option_name(parameter)}", help="A parameter of the question.")
        ]
        for parameter in query.parameters
    }
    return _with_options(ask, options, default="")


# --- what they share -------------------------------------------------------------------------------------------------


def _with_options(
    function: Callable[..., None], options: Mapping[str, Any], default: Any = None
) -> Callable[..., None]:
    """Return the function with these parameters in place of **values: typer reads them from the signature."""
    signature = inspect.signature(function)
    fixed = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    arguments = [one for one in fixed if one.default is inspect.Parameter.empty]
    made = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)
        for name, annotation in options.items()
    ]
    rest = [one for one in fixed if one not in arguments]
    function.__signature__ = signature.replace(parameters=[*arguments, *made, *rest])  # type: ignore[attr-defined]
    function.__annotations__ = {one.name: one.annotation for one in (*arguments, *made, *rest)} | {"return": None}
    return function


def _path(family: AnyFamily, verb: str, *, tenant: str) -> str:
    query = f"?{urlencode({'tenant': tenant})}" if tenant else ""
    return f"/v1/_{family.name}/{verb}{query}"


def _print_object(value: Mapping[str, Any]) -> None:
    out = console()
    for name, part in value.items():
        out.print(fact_line(name, _compact(part)))


def _compact(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


async def _get(path: str, params: Mapping[str, str | int]) -> Any:
    async with open_api() as api:
        return await api.get(path, params)


async def _post(path: str, fields: Mapping[str, Any], key: str) -> ApiResponse:
    with explain_pending(key):
        async with open_api() as api:
            return await api.post(path, fields, {"Idempotency-Key": key})
