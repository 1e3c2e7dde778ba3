"""Generator of services/web/api_types.d.ts: the shapes of the HTTP API, for the type check of the web page.

    python -m tests.lint.web_types            writes the file
    python -m tests.lint.web_types --check    exits with 1 when it is stale

Everything comes from the OpenAPI document. `Api.Run` is the schema Run; `Api.Route` has a row for each route: method,
path, answer and body. In the path a parameter is `${string}`, which is how TypeScript sees a template of a path in
services/web/api.js; types.d.ts beside it finds the answer of a call by that.

After: `make check-web` reads the file; browsers do not.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loomlog.services.api.openapi import build_document
from loomlog.services.web.static_files import FOLDER

TARGET = FOLDER / "api_types.d.ts"
HEAD = "// Made by `python -m tests.lint.web_types` from the OpenAPI document; do not edit by hand.\n"
REFUSAL = re.compile(r"Error\d+")
"""Schemas of refusals by status: api.js makes one ApiError of all."""
NAME = re.compile(r"[A-Za-z_$][\w$]*")
PARAMETER = re.compile(r"\{[^}]+\}")
SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


class UnknownSchema(Exception):
    """A schema has a form that has no type here; the text shows it."""


def types_text(document: Mapping[str, Any]) -> str:
    """Return the text of the file. Raises UnknownSchema."""
    schemas = {name: one for name, one in document["components"]["schemas"].items() if not REFUSAL.fullmatch(name)}
    lines = [HEAD, "declare namespace Api {"]
    for name, schema in sorted(schemas.items()):
        lines += _declaration(name, schema)
    lines.append("  /** Method, path, answer and body of each route. */")
    lines.append("  type Route =")
    lines += [f"    | {row}" for row in _routes(document["paths"])]
    lines[-1] += ";"
    return "\n".join([*lines, "}", ""])


def main(arguments: Sequence[str]) -> int:
    """Write the file, or compare it; return the exit code."""
    text = types_text(build_document("0"))
    if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text:
        return 0
    if "--check" in arguments:
        sys.stderr.write("stale: services/web/api_types.d.ts; run python -m tests.lint.web_types\n")
        return 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


def _declaration(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    if "properties" not in schema or schema.get("additionalProperties"):
        yield f"  type {name} = {_type(schema)};"
        return
    yield f"  interface {name} {{"
    yield from (f"    {field};" for field in _fields(schema))
    yield "  }"


def _fields(schema: Mapping[str, Any]) -> Iterator[str]:
    required = schema.get("required", ())
    for name, value in schema["properties"].items():
        quoted = name if NAME.fullmatch(name) else json.dumps(name)
        yield f"{quoted}{'' if name in required else '?'}: {_type(value)}"


def _type(schema: Mapping[str, Any]) -> str:
    """Return the TypeScript type of a schema."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    for key, sign in (("anyOf", " | "), ("oneOf", " | "), ("allOf", " & ")):
        if key in schema:
            return sign.join(dict.fromkeys(_grouped(_type(one)) for one in schema[key]))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(dict.fromkeys(_grouped(_type({**schema, "type": one})) for one in kind))
    if kind == "array":
        return f"{_grouped(_type(schema.get('items', {})))}[]"
    if kind == "object":
        return _object(schema)
    if kind in SCALARS:
        return SCALARS[kind]
    if kind is None:
        return "any"
    raise UnknownSchema(f"the web page's types have none for the schema {json.dumps(schema)}; add it to {__name__}")


def _object(schema: Mapping[str, Any]) -> str:
    more = schema.get("additionalProperties", "properties" not in schema)
    known = f"{{ {'; '.join(_fields(schema))} }}" if "properties" in schema else ""
    others = f"Record<string, {_type(more) if isinstance(more, Mapping) else 'any'}>" if more else ""
    return " & ".join(part for part in (known, others) if part)


def _grouped(text: str) -> str:
    return f"({text})" if " | " in text or " & " in text else text


def _routes(paths: Mapping[str, Any]) -> Iterator[str]:
    for path, operations in sorted(paths.items()):
        pattern = PARAMETER.sub("${string}", path)
        for method, operation in operations.items():
            if method != "parameters":
                body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
                yield f'["{method.upper()}", `{pattern}`, {_answer(operation["responses"])}, {_type(body)}]'


def _answer(responses: Mapping[str, Any]) -> str:
    """Return the type of what a call gives when it succeeds: null without a body, text for what is no JSON."""
    types = []
    for status, response in responses.items():
        if status.startswith("2"):
            content = response.get("content", {})
            if not content:
                types.append("null")
            for media_type, one in content.items():
                types.append(_type(one.get("schema", {})) if media_type == "application/json" else "string")
    return " | ".join(dict.fromkeys(types)) or "null"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
