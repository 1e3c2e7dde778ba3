"""The fields of operations: their JSON schema, and the strict parser with its sentences.

A sentence names the field, what was expected and what came: `max_messages: expected a whole number from 1 to 100, not
"many"`. 3.0 is a whole number, as in JSON Schema. No text may have NUL or half a surrogate pair, because no store takes
them; a field of any JSON is checked by what keeps it.

Before: dispatch. After: the record of the input.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct, UnsetType, ValidationError

from loomlog.services.core.operations import PRINTABLE, PRINTABLE_WITH_TABS, AnyOperation, Fields
from loomlog.services.core.refusals import Refused

InputT = TypeVar("InputT")
REFERENCE = "#/components/schemas/{name}"
NO_CODES: Mapping[str, str] = {}
SHOWN_CHARACTERS_MAX = 60
"""Characters of a sender's own text that a message repeats."""
OP = "op"
"""Field that names one of several operations, of a shared route or a tool."""
UNKNOWN, MISSING = "Object contains unknown field", "Object missing required field"
"""How msgspec's sentences begin."""
ANY_NAME = "[...]"
_STEPS = re.compile(r"\[[^]]*]|[^.[]+")
_IS_FLOAT = re.compile(r"Expected `int( \| null)?`, got `float`")
RETRIES_MAX = 8
"""Numbers such as 3.0 that one input may have where whole ones are expected."""


def parse_operation(operation: AnyOperation, fields: Any) -> Any:
    """Return the input of an operation with these fields, of JSON. Raises Refused with its codes."""
    return parse_input(
        operation.input,
        fields,
        code=operation.invalid_code,
        field_codes=operation.field_codes,
        missing_code=operation.missing_code,
        missing_codes=operation.missing_codes,
        unknown_code=operation.unknown_code,
    )


def find_operation(op: Any, operations: Mapping[str, AnyOperation], *, code: str) -> AnyOperation:
    """Return the one of several operations that `op` of a body or a call names. Raises Refused(code)."""
    if isinstance(op, str) and (named := operations.get(op)) is not None:
        return named
    near = get_close_matches(str(op), operations, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise Refused(code, f"unknown {OP} {_shown(op)}: expected one of {', '.join(operations)}{hint}")


def parse_input(
    record: type[InputT] | Fields[InputT],
    fields: Any,
    *,
    code: str,
    field_codes: Mapping[str, str] = NO_CODES,
    missing_code: str = "",
    missing_codes: Mapping[str, str] = NO_CODES,
    unknown_code: str = "",
) -> InputT:
    """Return the input with these fields, of JSON. Raises Refused(code), or with the code of some fields, of one that
    is missing or null and must not be, or of one that is unknown.
    """
    if isinstance(record, Fields):
        try:
            return record.parse(fields)
        except ValueError as error:
            raise Refused(code, str(error)) from error
    if type(fields) is not dict and not isinstance(fields, Mapping):
        raise Refused(code, f"expected an object with fields, not {_kind(fields)}")
    values = fields
    for _ in range(RETRIES_MAX):
        try:
            parsed = msgspec.convert(values, record)
        except ValidationError as error:
            path, problem = _split(str(error))
            whole = _whole(values, path) if _IS_FLOAT.match(problem) else None
            if whole is None:
                special = unknown_code if problem.startswith(UNKNOWN) else missing_code if _is_missing(problem) else ""
                own = _code(fields, path, problem, field_codes, missing_codes)
                raise Refused(own or special or code, _sentence(record, fields, path, problem)) from error
            values = {**values, path: whole}
            continue
        _check_texts(parsed, code, field_codes)
        return parsed
    raise Refused(code, "more than one number is not a whole one")


def input_schema(record: type[Any] | Fields[Any]) -> Mapping[str, Any]:
    """Return the JSON schema (2020-12) of a record, its parts written out."""
    return record.schema if isinstance(record, Fields) else _record_schema(record)  # type: ignore[arg-type]  # a mypy bug


@cache
def _record_schema(record: type[Any]) -> Mapping[str, Any]:
    # It takes a millisecond, and is asked for several times of each operation and for the sentence of each refusal.
    schemas, parts = msgspec.json.schema_components([record], ref_template=REFERENCE)
    return dict(written_out(schemas[0], {REFERENCE.format(name=name): part for name, part in parts.items()}))


def record_schemas(records: Iterable[type[Any]]) -> dict[str, dict[str, Any]]:
    """Return the JSON schemas of records and of what they consist of, by name, with references between them."""
    ordered = sorted(records, key=lambda record: record.__name__)
    return dict(msgspec.json.schema_components(ordered, ref_template=REFERENCE)[1])


def field_schemas(record: type[Any] | Fields[Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return the schema of each field of a record, by name."""
    return dict(input_schema(record).get("properties", {}))


def without_null(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a field where a null counts as absent, so that no sender needs to know of it."""
    forms = [form for form in schema.get("anyOf", ()) if form.get("type") != "null"]
    if not forms:
        return schema
    words = {word: value for word, value in schema.items() if word not in ("anyOf", "default")}
    return {**forms[0], **words} if len(forms) == 1 else {"anyOf": forms, **words}


def required_fields(record: type[Any] | Fields[Any]) -> Sequence[str]:
    """Return the fields that an input must have."""
    return tuple(input_schema(record).get("required", ()))


def describe_schema(schema: Mapping[str, Any]) -> str:
    """Return what a schema asks for, for people."""
    if "enum" in schema:
        return f"one of {', '.join(str(one) or repr(one) for one in schema['enum'])}"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(describe_schema(one) for one in schema["anyOf"]))
    low, high = schema.get("minimum"), schema.get("maximum")
    least, most = schema.get("minLength"), schema.get("maxLength")
    match schema.get("type"):
        case "integer" | "number" as kind:
            text = "a whole number" if kind == "integer" else "a number"
            ends = (f"from {low}" if low is not None else "", f"to {high}" if high is not None else "")
            return " ".join(filter(None, (text, *ends)))
        case "string":
            pattern = schema.get("pattern")
            form = " that can be printed" if pattern in (PRINTABLE, PRINTABLE_WITH_TABS) else ""
            form = f" that matches {pattern}" if pattern and not form else form
            if most is not None:
                return f"text of {least or 0} to {most} characters{form}"
            return f"text of at least {least} characters{form}" if least else f"text{form}"
        case "boolean":
            return "true or false"
        case "array":
            fewest, longest = schema.get("minItems"), schema.get("maxItems")
            return f"a list of {fewest or 0} to {longest} entries" if longest is not None else "a list"
        case "object":
            return "an object"
        case "null":
            return "null"
    return "any JSON"


def unknown_field(name: str, known: Sequence[str], path: str = "") -> str:
    """Return the sentence about a field that an object does not have; `path` is that of the object."""
    near = get_close_matches(_cut(name), known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"expected are {', '.join(known) or 'none'}"
    return f"{_joined(path, _cut(name))!r} is unknown; {hint}"


def written_out(schema: Any, parts: Mapping[str, Any]) -> Any:
    """Return a schema without references: the parts that they name stand in their place."""
    if isinstance(schema, Mapping):
        if "$ref" in schema:
            rest = {word: value for word, value in schema.items() if word != "$ref"}
            return {**written_out(parts[schema["$ref"]], parts), **rest}
        written = {word: written_out(value, parts) for word, value in schema.items()}
        is_words = "type" not in written and all(isinstance(one, str) for one in written.get("enum", (None,)))
        return {"type": "string", **written} if is_words else written
    if isinstance(schema, list):
        return [written_out(one, parts) for one in schema]
    return schema


# --- sentences -------------------------------------------------------------------------------------------------------


def _split(message: str) -> tuple[str, str]:
    """Return the path of the value and what is wrong with it; the path is empty at the top."""
    problem, _, path = message.partition(" - at `$")
    return path.rstrip("`").removeprefix("."), problem


def _whole(values: Mapping[str, Any], path: str) -> int | None:
    value = values.get(path)
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53 else None


def _is_missing(problem: str) -> bool:
    return problem.startswith(MISSING) or problem.endswith("got `null`")


def _code(
    fields: Mapping[str, Any], path: str, problem: str, codes: Mapping[str, str], missing_codes: Mapping[str, str]
) -> str:
    """Return the code of the field with a problem; empty when it has none of its own."""
    name = path.replace("[", ".").partition(".")[0]
    if not path and problem.startswith(MISSING):
        name = problem.split("`")[1]
    own = codes.get(name, "")
    return missing_codes.get(name, own) if fields.get(name) is None else own


def _sentence(record: type[Any], fields: Mapping[str, Any], path: str, problem: str) -> str:
    if problem.startswith(UNKNOWN):
        return _unknown(record, problem.split("`")[1], path)
    if problem.startswith(MISSING):
        name = problem.split("`")[1]
        schema = field_schemas(record).get(name, {}) if not path else {}
        return f"{_joined(path, name)} is missing: expected {describe_schema(schema)}"
    schema, value = _find(input_schema(record), fields, path)
    # Of an object with free names msgspec does not say which of them it is.
    actual = "" if ANY_NAME in path else f", not {_shown(value)}"
    return f"{path or 'the fields'}: expected {describe_schema(schema)}{actual}"


def _unknown(record: type[Any], name: str, path: str) -> str:
    known = tuple(_with_parts(_find(input_schema(record), {}, path)[0]).get("properties", ()))
    return unknown_field(name, known, path)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _find(schema: Mapping[str, Any], value: Any, path: str) -> tuple[Mapping[str, Any], Any]:
    """Return the schema and the value at a path such as `items[0].name`."""
    for step in _STEPS.findall(path):
        schema = _with_parts(schema)
        if step.startswith("["):
            number = step[1:-1]
            schema = schema.get("items") or schema.get("additionalProperties") or {}
            is_item = isinstance(value, list | tuple) and number.isdecimal() and int(number) < len(value)
            value = value[int(number)] if is_item else None
        else:
            schema = schema.get("properties", {}).get(step, {})
            value = value.get(step) if isinstance(value, Mapping) else None
    return schema, value


def _with_parts(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the alternative of a schema that has parts; the schema where none has."""
    nested = ("properties", "items", "additionalProperties")
    return next((one for one in schema.get("anyOf", ()) if any(word in one for word in nested)), schema)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return repr(_cut(value)) if len(value) <= SHOWN_CHARACTERS_MAX else f"a text of {len(value)} characters"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _cut(str(value))
    return _kind(value)


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return "text"
        case int() | float():
            return "a number"
        case list() | tuple():
            return f"a list of {len(value)}"
    return "an object"


def _cut(text: str) -> str:
    return text.encode("utf-8", "replace").decode()[:SHOWN_CHARACTERS_MAX]


# --- texts -----------------------------------------------------------------------------------------------------------


def _check_texts(parsed: Any, code: str, codes: Mapping[str, str] = NO_CODES) -> None:
    """Refuse texts that no store takes; fields of any JSON are left to what keeps them."""
    for name in _checked_fields(parsed.__class__):
        value = getattr(parsed, name)
        if isinstance(value, str):
            _check_text(name, value, codes.get(name, code))
        elif isinstance(value, Struct):
            _check_texts(value, codes.get(name, code))
        elif isinstance(value, list | tuple):
            for number, item in enumerate(value):
                if isinstance(item, str):
                    _check_text(f"{name}[{number}]", item, codes.get(name, code))
                elif isinstance(item, Struct):
                    _check_texts(item, codes.get(name, code))


@cache
def _checked_fields(record: type[Struct]) -> tuple[str, ...]:
    """Return the fields of a record that may have texts of a sender's own, and are not of any JSON."""
    return tuple(
        field.name for field in msgspec.structs.fields(record) if not _has_any(field.type) and _has_text(field.type)
    )


def _has_any(kind: Any) -> bool:
    return kind is Any or any(_has_any(part) for part in get_args(kind))


def _has_text(kind: Any) -> bool:
    if get_origin(kind) is Literal or kind in (int, float, bool, NoneType, UnsetType):
        return False
    parts = get_args(kind)[:1] if get_origin(kind) is Annotated else get_args(kind)
    return any(_has_text(part) for part in parts) if parts else True


def _check_text(place: str, text: str, code: str) -> None:
    if text.isascii():
        if "\0" not in text:
            return
        raise Refused(code, f"{place}: it has the character NUL, which no store takes")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused(code, f"{place}: it has half a surrogate pair, which is no text") from None
    if "\0" in text:
        raise Refused(code, f"{place}: it has the character NUL, which no store takes")
