"""Operations in the command line: all of them by name, and the groups of families that have none of their own.

    loomlog operations                     the table: name, access, effect, where it is served
    loomlog operations channel.publish     one, with its fields, its answer and its error codes
    loomlog call channel.publish --json-body '{"channel": "reviews", "value": 1}'
    loomlog counter increment --name visits --by 2
    loomlog counter show visits

A group is made from declarations; none is written here by name. What the path names, and what a read needs, are
arguments; every other field is an option, a list is given by repeating it. Fields that are records or maps are given
with --json-body, an object with any of the fields. The API checks the fields; here only a missing one is named, with
its option.

Before: services/cli/main.py. After: services/cli/http/api.py.
"""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any

import orjson
import typer
from rich.text import Text

from loomlog.services.cli.commands import CommandGroup, load_group
from loomlog.services.cli.errors import UsageError
from loomlog.services.cli.http.api import ApiResponse, quote_segment
from loomlog.services.cli.http.requests import send
from loomlog.services.cli.main import written_group
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.output import DIM, NAME, WARNING, console, fact_line, print_json, print_table
from loomlog.services.core.entity_operations import Aggregate, AggregatePage
from loomlog.services.core.families import Family
from loomlog.services.core.operation_input import (
    OP,
    describe_schema,
    field_schemas,
    input_schema,
    required_fields,
    unknown_field,
)
from loomlog.services.core.operation_requests import body_fields, path_fields, query_fields
from loomlog.services.core.operations import AnyOperation, Effect, Http

OWN_OPTIONS = frozenset({"json", "json-body", "tenant", "idempotency-key", "position", "help"})
"""Options of every command; a field with such a name gets the option --field-<name>."""

Tenant = Annotated[str, typer.Option("--tenant", help="Administrators: another tenant than your own.")]
Position = Annotated[str, typer.Option("--position", help="Wait until this write is included.")]
JsonBody = Annotated[
    str, typer.Option("--json-body", help="Fields as a JSON object, beside those of options; - reads it from stdin.")
]
IdempotencyKey = Annotated[
    str, typer.Option("--idempotency-key", help="The same key again is the same command, done once.")
]


# --- by name ---------------------------------------------------------------------------------------------------------


def list_operations(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Name of one: show all of it.")] = "",
    as_json: Json = False,
) -> None:
    """Show what can be done, by whom, and where: over HTTP, in the command line, by agents."""
    if name:
        _show_operation(find_operation(name), as_json=as_json)
        return
    operations = sorted(_all_operations(), key=lambda operation: operation.name)
    if as_json:
        print_json([_facts(operation) for operation in operations])
        return
    rows = [
        (Text(operation.name, style=NAME), str(operation.access), operation.effect.value, *_places(operation))
        for operation in operations
    ]
    print_table(console(), ("name", "access", "effect", "HTTP", "tool", "command line"), rows)


def call(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the operation, such as channel.publish.")],
    json_body: JsonBody = "",
    tenant: Tenant = "",
    idempotency_key: IdempotencyKey = "",
    position: Position = "",
) -> None:
    """Call any operation over HTTP by its name, and print its answer as JSON."""
    operation = find_operation(name)
    if not operation.http:
        raise UsageError(f"{name} is not served over HTTP: only agents call it.")
    answer = _send(operation, _parse_body(json_body), tenant=tenant, key=idempotency_key, position=position)
    _print_answer(operation, answer, as_json=True)


def _all_operations() -> Sequence[AnyOperation]:
    from loomlog.services.application.operations import product_operations  # takes longer to import than groups to run

    return product_operations()


def find_operation(name: str) -> AnyOperation:
    """Return the operation of a name. Raises UsageError."""
    operations = {operation.name: operation for operation in _all_operations()}
    if name not in operations:
        near = get_close_matches(name, operations, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "`loomlog operations` lists them."
        raise UsageError(f"there is no operation {name}; {hint}")
    return operations[name]


def _facts(operation: AnyOperation) -> dict[str, Any]:
    _, tool, command = _places(operation)
    return {
        "name": operation.name,
        "summary": operation.summary,
        "access": str(operation.access),
        "effect": operation.effect.value,
        "http": [http.route for http in operation.http],
        "tool": tool or None,
        "command": command or None,
    }


def _places(operation: AnyOperation) -> tuple[str, str, str]:
    """Return where an operation is served: over HTTP, as a tool, in the command line."""
    http = operation.http[0].route if operation.http else ""
    tool = f"{operation.tool.tool} {operation.tool.op}" if operation.tool is not None else ""
    group = written_group(operation.family)
    command = f"{group} ..." if group else operation.name.replace(".", " ") if operation.http else ""
    return http, tool, command


def _show_operation(operation: AnyOperation, *, as_json: bool) -> None:
    answers = field_schemas(operation.output)
    if as_json:
        schemas = {"input": input_schema(operation.input), "output": input_schema(operation.output)}
        print_json({**_facts(operation), **schemas, "codes": list(operation.codes)})
        return
    out, required = console(), required_fields(operation.input)
    _, tool, command = _places(operation)
    facts = {
        "what": operation.summary,
        "access": str(operation.access),
        "effect": operation.effect.value,
        "HTTP": ", ".join(http.route for http in operation.http),
        "tool": tool,
        "command": f"loomlog {command}" if command else "",
        "codes": ", ".join(operation.codes),
    }
    for fact, value in facts.items():
        if value:
            out.print(fact_line(fact, value))
    rows = [
        (
            Text(name, style=NAME),
            "required" if name in required else "",
            describe_schema(schema),
            schema.get("description", ""),
        )
        for name, schema in field_schemas(operation.input).items()
    ]
    if rows:
        print_table(out, ("field", "", "value", "what"), rows)
    if answers:
        shown = [
            (Text(name, style=NAME), describe_schema(schema), schema.get("description", ""))
            for name, schema in answers.items()
        ]
        print_table(out, ("answer", "value", "what"), shown)


# --- groups of families ----------------------------------------------------------------------------------------------


def family_group(family: Family[Any, Any, Any]) -> Any:
    """Return the group of commands of a family."""
    from loomlog.services.families.registry import operations_of

    app = typer.Typer(name=family.name, cls=CommandGroup, no_args_is_help=True, help=family.summary)
    for operation in operations_of([family]):
        if operation.http:
            verb = operation.name.partition(".")[2]
            app.command(verb, help=_command_help(operation))(operation_command(operation))
    return load_group(app, family.name)


def operation_command(operation: AnyOperation) -> Callable[..., None]:
    """Return the function of a command, with a parameter for each field: typer reads them from its signature."""
    arguments, options = _arguments(operation), _options(operation)

    def give(
        json_body: JsonBody = "",
        tenant: Tenant = "",
        idempotency_key: IdempotencyKey = "",
        position: Position = "",
        as_json: Json = False,
        **values: Any,
    ) -> None:
        named = {name: values[_parameter(name)] for name in (*arguments, *options)}
        fields = _collect_fields(operation, named, json_body)
        answer = _send(operation, fields, tenant=tenant, key=idempotency_key, position=position)
        _print_answer(operation, answer, as_json=as_json)

    left_out = {"idempotency_key"} if operation.effect is Effect.READ else {"position"}
    if operation.effect is Effect.READ and not body_fields(operation, operation.http[0]):
        left_out |= {"json_body"}
    if not operation.http[0].takes_tenant:
        left_out |= {"tenant"}
    own = [one for one in inspect.signature(give).parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    made = {name: typer.Argument(metavar=name.upper(), help=_help_of(operation, name)) for name in arguments}
    parameters = [
        *(_as_parameter(name, Annotated[str, argument]) for name, argument in made.items()),
        *(_as_parameter(name, option, None) for name, option in options.items()),
        *(one for one in own if one.name not in left_out),
    ]
    give.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    give.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
    return give


def _as_parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(_parameter(name), kind, default=default, annotation=annotation)


def _arguments(operation: AnyOperation) -> tuple[str, ...]:
    """Return the fields of the path, and those that the query must have."""
    http, required = operation.http[0], required_fields(operation.input)
    needed = [field for field in query_fields(operation, http).values() if field in required]
    return tuple(dict.fromkeys((*path_fields(http).values(), *needed)))


def _options(operation: AnyOperation) -> dict[str, Any]:
    """Return the annotations of the options, by field; without fields that no option can have."""
    options = {field: _field_option(operation, field) for field in _taken_fields(operation)}
    return {field: option for field, option in options.items() if option is not None}


def _taken_fields(operation: AnyOperation) -> list[str]:
    """Return the fields of query and body that are no arguments."""
    http = operation.http[0]
    taken = (*query_fields(operation, http).values(), *body_fields(operation, http).values())
    return [field for field in taken if field not in _arguments(operation)]


def _command_help(operation: AnyOperation) -> str:
    options = _options(operation)
    nested = [field for field in _taken_fields(operation) if field not in options]
    return operation.summary + (f" With --json-body only: {', '.join(nested)}." if nested else "")


def _help_of(operation: AnyOperation, field: str) -> str:
    return str(field_schemas(operation.input)[field].get("description", ""))


def _field_option(operation: AnyOperation, name: str) -> Any:
    """Return the annotation of a field's option; None for a field that no option can have."""
    schema = field_schemas(operation.input)[name]
    kind, bare = _option_type(schema), _bare(schema)
    if kind is None:
        return None
    texts = [schema.get("description", "")]
    if "contentEncoding" in bare:
        texts.append("In base64.")
    if "enum" in bare:
        texts.append(f"One of {', '.join(map(str, bare['enum']))}.")
    if name in required_fields(operation.input):
        texts.append("Required.")
    elif schema.get("default") not in (None, "", []):
        texts.append(f"{_compact(schema['default'])} if absent.")
    bounds: dict[str, Any] = {"min": bare.get("minimum"), "max": bare.get("maximum")} if kind is int else {}
    option = _option_name(name)
    declared = f"--{option}/--no-{option}" if kind is bool else f"--{option}"
    return Annotated[kind | None, typer.Option(declared, help=" ".join(filter(None, texts)), **bounds)]


def _option_type(field: Mapping[str, Any]) -> Any:
    bare = _bare(field)
    simple: Mapping[str, Any] = {"string": str, "integer": int, "number": float}
    if "anyOf" in bare:
        return str if any(one.get("type") == "string" for one in bare["anyOf"]) else None
    if "enum" in bare and "type" not in bare:
        return str
    match bare.get("type"):
        case "boolean":
            return bool
        case "array":
            item = simple.get(_bare(bare.get("items", {})).get("type", ""))
            return None if item is None else list[item]  # type: ignore[valid-type]  # known at run time only
        case kind:
            return simple.get(str(kind))


def _bare(field: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a field that may be null, without the null."""
    others: Sequence[Mapping[str, Any]] = [part for part in field.get("anyOf", ()) if part != {"type": "null"}]
    return others[0] if len(others) == 1 else field


def _collect_fields(operation: AnyOperation, options: Mapping[str, Any], json_body: str) -> dict[str, Any]:
    """Return the fields of options and of the JSON body. Raises UsageError."""
    fields = _parse_body(json_body)
    for name, value in options.items():
        if value is None:
            continue
        if name in fields:
            raise UsageError(f"{name} is given twice: with --{_option_name(name)} and in --json-body.")
        fields[name] = value
    missing = [name for name in required_fields(operation.input) if name not in fields]
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


# --- requests --------------------------------------------------------------------------------------------------------


def _send(operation: AnyOperation, fields: Mapping[str, Any], *, tenant: str, key: str, position: str) -> ApiResponse:
    """Send the request of an operation. Raises CliError."""
    http = _route(operation, fields)
    path = _path(http, fields)
    of_query = query_fields(operation, http)
    query = {name: _query_text(fields[field]) for name, field in of_query.items() if field in fields}
    params = {name: text for name, text in {**query, "tenant": tenant, "position": position}.items() if text}
    of_body = body_fields(operation, http)
    body: Any = {name: fields[field] for name, field in of_body.items() if field in fields}
    if http.op:
        body[OP] = http.op
    if http.whole_body:
        body = fields.get(http.whole_body)
    if operation.effect is Effect.READ and not body:
        return send(http.method, path, params=params)
    return send(http.method, path, body if of_body or http.op else None, params=params, key=key)


def _route(operation: AnyOperation, fields: Iterable[str]) -> Http:
    """Return the first route that takes these fields. Raises UsageError when none does."""
    names, known = set(fields), set[str]()
    for http in operation.http:
        path = set(path_fields(http).values())
        taken = {*path, *query_fields(operation, http).values(), *body_fields(operation, http).values()}
        if path <= names <= taken:
            return http
        known |= taken
    if unknown := sorted(names - known):
        raise UsageError(f"{unknown_field(unknown[0], sorted(known))}.")
    needed = " or ".join(", ".join(path_fields(http).values()) or "nothing" for http in operation.http)
    raise UsageError(f"the path needs {needed}, and no route takes all of {', '.join(sorted(names)) or 'no fields'}.")


def _path(http: Http, fields: Mapping[str, Any]) -> str:
    path = http.path
    for name, field in path_fields(http).items():
        segment = quote_segment(str(fields[field]))
        path = path.replace(f"{{{name}:path}}", segment).replace(f"{{{name}}}", segment)
    return path


def _query_text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return _compact(value)


# --- answers ---------------------------------------------------------------------------------------------------------


def _print_answer(operation: AnyOperation, answer: ApiResponse, *, as_json: bool) -> None:
    value, is_read = answer.value, operation.effect is Effect.READ
    if as_json:
        print_json(value if is_read else {**(value or {}), "position": answer.position or None})
    elif operation.output is AggregatePage:
        _print_page(value)
    elif operation.output is Aggregate:
        _print_row(value)
    else:
        out = console()
        for name, part in (value or {}).items():
            out.print(fact_line(name, _compact(part)))
        if not value:
            out.print(Text("none" if is_read else "nothing changed", style=DIM))
        if answer.position:
            out.print(fact_line("event", answer.position))


def _print_page(page: Mapping[str, Any]) -> None:
    out = console()
    if not page["items"]:
        out.print(Text("none", style=DIM))
        return
    rows = [
        (Text(item["id"], style=WARNING if item["quarantine"] else NAME), item["updated_at"], _compact(item["state"]))
        for item in page["items"]
    ]
    print_table(out, ("id", "updated", "state"), rows)
    if page["next"]:
        out.print(Text(f"more: --cursor {page['next']}", style=DIM))


def _print_row(row: Mapping[str, Any]) -> None:
    facts = {
        "id": row["id"],
        "tenant": row["tenant_id"],
        "quarantine": row["quarantine"],
        "created": row["created_at"],
        "updated": row["updated_at"],
        **row["state"],
    }
    out = console()
    for name, value in facts.items():
        if value or name in row["state"]:
            out.print(fact_line(name, _compact(value)))


def _compact(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
