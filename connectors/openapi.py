"""Operations of an OpenAPI document (3.0 and 3.1) as tools: names, descriptions, schemas of arguments, requests. Pure.

    name         prefix and operationId, or method and path; characters that providers refuse become `_`
    arguments    parameters of path, query and header by their names, and `body` (JSON, or fields of a form)

Schemas that an operation refers to are taken along as `$defs`. An operation that cannot be a tool (a parameter that is
a required cookie, a body of another type, a reference out of the document) is left out, with the reason.

Before: connectors/configuration/local_api_block.py. After: connectors/tools/api_operation.py.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import orjson
import yaml

from loomlog.connectors.json_schema import SchemaRefused, compile_schema
from loomlog.schemas.records import Value

DOCUMENT_BYTES_MAX = 4 * 1024 * 1024
NODES_MAX = 200_000
"""Members and items of a document, those behind aliases of YAML counted each time."""
OPERATIONS_MAX = 128
"""As many as of an MCP server: a model is shown all that its agent is granted."""
NAME_CHARACTERS_MAX = 64
DESCRIPTION_CHARACTERS_MAX = 2_000
REFERENCES_MAX = 20
"""References one after the other, and schemas that one operation takes along: SCHEMA_BYTES_MAX bounds them too."""
METHODS = ("get", "put", "post", "delete", "head", "patch")
BODY = "body"
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
PLACES = ("path", "query", "header")
_OWN_HEADERS = frozenset({"accept", "content-type", "authorization"})
"""Header parameters that documents may name and that are no arguments (OpenAPI 3.1, Parameter Object)."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_TEMPLATE = re.compile(r"\{([^{}]+)\}")
_VALUES = ("enum", "const", "default", "required", "examples", "dependentRequired")
_MAPS_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_DROPPED = ("example", "examples", "xml", "discriminator", "externalDocs", "nullable", "deprecated")


class ApiFileRefused(Exception):
    """A document that gives no tools; the message says what is wrong and what to do."""


class OperationUnusable(Exception):
    """An operation that cannot be a tool; the message says why."""


class ApiParameter(Value, frozen=True, kw_only=True):
    """A parameter: an argument of the tool under the same name."""

    name: str
    place: str
    """One of PLACES."""
    is_exploded: bool = True
    is_deep: bool = False
    """Members of an object are written `name[member]`."""


class ApiOperation(Value, frozen=True, kw_only=True):
    """An operation as a tool."""

    name: str
    description: str
    method: str
    path: str
    parameters: tuple[ApiParameter, ...]
    input_schema: dict[str, Any]
    body_type: str = ""
    """Media type of the argument `body`; empty: there is none."""


class Api(Value, frozen=True, kw_only=True):
    """The operations of a document, and what was left out and why."""

    base_url: str
    operations: tuple[ApiOperation, ...]
    problems: tuple[str, ...] = ()


@lru_cache(maxsize=8)
def load_api(spec: str, base_url: str, prefix: str, sent_headers: tuple[str, ...]) -> Api:
    """Return the operations of a file. Raises ApiFileRefused.

    `sent_headers` are sent with each request, so they are no arguments.
    """
    try:
        with Path(spec).open("rb") as file:
            data = file.read(DOCUMENT_BYTES_MAX + 1)
    except OSError as error:
        raise ApiFileRefused(f"{spec} cannot be read: {error.strerror}") from error
    return read_api(data, base_url, prefix, sent_headers)


def read_api(data: bytes, base_url: str = "", prefix: str = "", sent_headers: Sequence[str] = ()) -> Api:
    """Return the operations of a document. Raises ApiFileRefused."""
    document = _parse(data)
    version = str(document.get("openapi"))
    if not version.startswith(("3.0", "3.1")):
        raise ApiFileRefused(f"openapi is {version[:40]}: expected 3.0 or 3.1")
    reader = _Reader(document, prefix, frozenset(name.lower() for name in sent_headers))
    operations: dict[str, ApiOperation] = {}
    problems: list[str] = []
    for place, method, item, entry in reader.entries():
        if len(operations) + len(problems) >= OPERATIONS_MAX:
            raise ApiFileRefused(f"there are more than {OPERATIONS_MAX} operations; make a document with fewer")
        try:
            operation = reader.operation(place, method, item, entry)
            if operation.name in operations:
                raise OperationUnusable(f"{operation.name} is the name of another operation too")
            operations[operation.name] = operation
        except OperationUnusable as problem:
            problems.append(f"{method.upper()} {place}: {problem}")
    if not operations:
        raise ApiFileRefused("no operation can be a tool: " + ("; ".join(problems[:5]) or "there are no paths"))
    ordered = tuple(operations[name] for name in sorted(operations))
    return Api(base_url=base_url or _server_of(document), operations=ordered, problems=tuple(problems))


def request_parts(
    operation: ApiOperation, arguments: Mapping[str, Any]
) -> tuple[str, tuple[tuple[str, str], ...], bytes]:
    """Return path with query, headers and body of a request with arguments that meet the schema.

    Raises OperationUnusable for a value that would change the path.
    """
    declared = [(one, arguments[one.name]) for one in operation.parameters if arguments.get(one.name) is not None]
    by_name = {one.name: _path_text(one, value) for one, value in declared if one.place == "path"}
    path = _TEMPLATE.sub(lambda match: by_name[match[1]], operation.path)
    query = [pair for one, value in declared if one.place == "query" for pair in _query_pairs(one, value)]
    headers = [(one.name, _joined(value)) for one, value in declared if one.place == "header"]
    body = b""
    if operation.body_type and arguments.get(BODY) is not None:
        headers.append(("Content-Type", operation.body_type))
        body = _encode_body(operation.body_type, arguments[BODY])
    return path + (f"?{urlencode(query)}" if query else ""), tuple(headers), body


# --- values of a request ---------------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return orjson.dumps(value).decode()


def _joined(value: Any) -> str:
    return ",".join(map(_text, value)) if isinstance(value, list) else _text(value)


def _path_text(parameter: ApiParameter, value: Any) -> str:
    text = _joined(value)
    if text in ("", ".", ".."):
        raise OperationUnusable(f"{parameter.name} is {text!r}, which would be another path")
    return quote(text, safe=",")


def _query_pairs(parameter: ApiParameter, value: Any) -> Iterator[tuple[str, str]]:
    name = parameter.name
    if isinstance(value, dict):
        for member, one in value.items():
            yield (f"{name}[{member}]" if parameter.is_deep else member), _joined(one)
    elif isinstance(value, list) and parameter.is_exploded:
        yield from ((name, _text(one)) for one in value)
    else:
        yield name, _joined(value)


def _encode_body(media_type: str, body: Any) -> bytes:
    if media_type == FORM:
        fields = [(k, _text(one)) for k, v in body.items() for one in (v if isinstance(v, list) else [v])]
        return urlencode(fields).encode()
    return orjson.dumps(body)


# --- the document ----------------------------------------------------------------------------------------------------


def _parse(data: bytes) -> dict[str, Any]:
    if len(data) > DOCUMENT_BYTES_MAX:
        raise ApiFileRefused(f"the document has more than {DOCUMENT_BYTES_MAX} bytes")
    try:
        document = _parse_json_or_yaml(data)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ApiFileRefused(f"the document is neither JSON nor YAML: {' '.join(str(error).split())[:300]}") from error
    if not isinstance(document, dict):
        raise ApiFileRefused("the document is no mapping")
    _require_bounded(document)
    # YAML has dates and keys that are numbers; a schema that a model is shown has neither.
    plain: dict[str, Any] = orjson.loads(orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS))
    return plain


def _parse_json_or_yaml(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return yaml.load(data, Loader=yaml.CSafeLoader)


def _require_bounded(document: object) -> None:
    """Raise ApiFileRefused for more than NODES_MAX nodes: an alias may stand for a thousand others."""
    waiting, seen = [document], 0
    while waiting:
        node = waiting.pop()
        seen += 1
        if seen > NODES_MAX:
            raise ApiFileRefused(f"the document has more than {NODES_MAX} members and items")
        if isinstance(node, dict):
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _server_of(document: Mapping[str, Any]) -> str:
    servers = document.get("servers")
    first = servers[0] if isinstance(servers, list) and servers and isinstance(servers[0], dict) else {}
    url = str(first.get("url") or "")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or "{" in url:
        raise ApiFileRefused("servers names no absolute address; set base_url")
    return url


class _Reader:
    """Reads the operations of one document."""

    def __init__(self, document: Mapping[str, Any], prefix: str, sent_headers: frozenset[str]) -> None:
        self._document = document
        self._prefix = prefix
        self._left_out = sent_headers | _OWN_HEADERS

    def entries(self) -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
        """Yield path, method, path item and operation."""
        paths = self._document.get("paths")
        for place, item in paths.items() if isinstance(paths, dict) else ():
            resolved = item if isinstance(item, dict) else {}
            for method in METHODS:
                if isinstance(resolved.get(method), dict):
                    yield str(place), method, resolved, resolved[method]

    def operation(self, place: str, method: str, item: Mapping[str, Any], entry: Mapping[str, Any]) -> ApiOperation:
        """Return an operation. Raises OperationUnusable."""
        if not place.startswith("/"):
            raise OperationUnusable("the path does not begin with /")
        parameters: list[ApiParameter] = []
        schemas = _Schemas(self)
        properties: dict[str, Any] = {}
        required: list[str] = []
        for declared in self._parameters(item, entry):
            parameter = self._parameter(declared)
            if parameter is None:
                continue
            if parameter.name in properties or parameter.name == BODY:
                raise OperationUnusable(f"two of its arguments would be named {parameter.name}")
            parameters.append(parameter)
            schema = schemas.convert(_schema_of_parameter(declared))
            described = _clean(declared.get("description"))
            properties[parameter.name] = {**schema, "description": described} if described else schema
            if declared.get("required") is True:
                required.append(parameter.name)
        self._require_templates(place, parameters, required)
        body_type = self._add_body(entry, schemas, properties, required)
        return ApiOperation(
            name=self._name(place, method, entry),
            description=_description(place, method, entry),
            method=method.upper(),
            path=place,
            parameters=tuple(parameters),
            input_schema=_input_schema(properties, required, schemas.taken),
            body_type=body_type,
        )

    def resolve(self, node: Any) -> Mapping[str, Any]:
        """Return what a node refers to. Raises OperationUnusable."""
        for _ in range(REFERENCES_MAX):
            if not isinstance(node, dict):
                raise OperationUnusable("a part of it is no mapping")
            pointer = node.get("$ref")
            if not isinstance(pointer, str):
                return node
            node = self.at(pointer)
        raise OperationUnusable("its references go in a circle")

    def at(self, pointer: str) -> Any:
        """Return the node at `#/...`. Raises OperationUnusable."""
        if not pointer.startswith("#/"):
            raise OperationUnusable(f"{pointer[:200]} is out of the document; put it into components")
        node: Any = self._document
        for step in pointer[2:].split("/"):
            step = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, dict) or step not in node:
                raise OperationUnusable(f"{pointer[:200]} is not in the document")
            node = node[step]
        return node

    def _parameters(self, item: Mapping[str, Any], entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the parameters of the path and of the operation, of which those of the operation come first."""
        merged: dict[tuple[str, str], Mapping[str, Any]] = {}
        for owner in (item, entry):
            listed = owner.get("parameters")
            for one in map(self.resolve, listed if isinstance(listed, list) else ()):
                merged[(str(one.get("name")), str(one.get("in")))] = one
        return list(merged.values())

    def _parameter(self, declared: Mapping[str, Any]) -> ApiParameter | None:
        name, place = str(declared.get("name") or ""), declared.get("in")
        if place == "header" and name.lower() in self._left_out:
            return None
        if place not in PLACES:
            if declared.get("required") is True:
                raise OperationUnusable(f"{name} is a required parameter in {str(place)[:40]}")
            return None
        return ApiParameter(
            name=name,
            place=place,
            is_exploded=declared.get("explode", True) is True,
            is_deep=declared.get("style") == "deepObject",
        )

    def _require_templates(self, place: str, parameters: Sequence[ApiParameter], required: Sequence[str]) -> None:
        known = {one.name for one in parameters if one.place == "path" and one.name in required}
        for name in _TEMPLATE.findall(place):
            if name not in known:
                raise OperationUnusable(f"{{{name}}} of its path is no required path parameter")

    def _add_body(
        self, entry: Mapping[str, Any], schemas: "_Schemas", properties: dict[str, Any], required: list[str]
    ) -> str:
        if not isinstance(entry.get("requestBody"), dict):
            return ""
        body = self.resolve(entry["requestBody"])
        content = body.get("content")
        by_type = {str(key).partition(";")[0].strip().lower(): one for key, one in (content or {}).items()}
        other = FORM if FORM in by_type else ""
        media_type = next((one for one in by_type if one == JSON or one.endswith("+json")), other)
        if not media_type:
            if body.get("required") is True:
                raise OperationUnusable(f"its body is {', '.join(by_type)[:100] or 'nothing'}: expected JSON or a form")
            return ""
        schema = by_type[media_type].get("schema") if isinstance(by_type[media_type], dict) else None
        properties[BODY] = schemas.convert(schema if schema is not None else {})
        if media_type == FORM:
            properties[BODY] = {"type": "object", **properties[BODY]}
        if body.get("required") is True:
            required.append(BODY)
        return media_type

    def _name(self, place: str, method: str, entry: Mapping[str, Any]) -> str:
        named = str(entry.get("operationId") or f"{method}_{place.strip('/')}")
        name = self._prefix + _NOT_IN_NAMES.sub("_", named).strip("_")
        if len(name) > NAME_CHARACTERS_MAX:
            raise OperationUnusable(f"its name {name} has more than {NAME_CHARACTERS_MAX} characters; set operationId")
        return name


class _Schemas:
    """The schemas of one operation, as JSON Schema of today."""

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader
        self.taken: dict[str, Any] = {}
        """Schemas that were referred to, by their names among `$defs`."""

    def convert(self, schema: Any) -> dict[str, Any]:
        """Return a schema. Raises OperationUnusable."""
        converted = self._convert(schema, 0)
        return converted if isinstance(converted, dict) else {}

    def _convert(self, schema: Any, depth: int) -> Any:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict) or depth > 64:
            raise OperationUnusable("a schema of it is no mapping, or has too many levels")
        if isinstance(schema.get("$ref"), str):
            return {"$ref": self._take(schema["$ref"], depth)}
        kept = {key: self._member(key, value, depth) for key, value in schema.items() if key not in _DROPPED}
        return _of_today(kept, is_nullable=schema.get("nullable") is True)

    def _member(self, key: str, value: Any, depth: int) -> Any:
        if key in _VALUES:
            return value
        if key in _MAPS_OF_SCHEMAS and isinstance(value, dict):
            return {name: self._convert(one, depth + 1) for name, one in value.items()}
        if isinstance(value, dict):
            return self._convert(value, depth + 1)
        if isinstance(value, list):
            return [self._convert(one, depth + 1) if isinstance(one, dict) else one for one in value]
        return value

    def _take(self, pointer: str, depth: int) -> str:
        name = _NOT_IN_NAMES.sub(".", pointer.removeprefix("#/components/schemas/").removeprefix("#/"))
        if name not in self.taken:
            self.taken[name] = True  # first, because a schema may refer to itself
            self.taken[name] = self._convert(self._reader.at(pointer), depth + 1)
        return f"#/$defs/{name}"


def _of_today(schema: dict[str, Any], *, is_nullable: bool) -> dict[str, Any]:
    """Return a schema of OpenAPI 3.0 as one of 3.1: `nullable`, and exclusive bounds that are switches."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(schema.get(exclusive), bool):
            is_exclusive = schema.pop(exclusive)
            if is_exclusive and bound in schema:
                schema[exclusive] = schema.pop(bound)
    if is_nullable and isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
        if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
            schema["enum"] = [*schema["enum"], None]
    return schema


def _schema_of_parameter(declared: Mapping[str, Any]) -> Any:
    if isinstance(declared.get("schema"), dict):
        return declared["schema"]
    content = declared.get("content")
    first: Any = next(iter(content.values()), {}) if isinstance(content, dict) else {}
    return first.get("schema", {}) if isinstance(first, dict) else {}


def _input_schema(properties: dict[str, Any], required: list[str], taken: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    if taken:
        schema["$defs"] = taken
    try:
        compile_schema(schema)
    except SchemaRefused as refused:
        raise OperationUnusable(str(refused)) from refused
    return schema


def _description(place: str, method: str, entry: Mapping[str, Any]) -> str:
    texts = [_clean(entry.get(key)) for key in ("summary", "description")]
    description = "\n".join(dict.fromkeys(filter(None, texts)))
    return description[:DESCRIPTION_CHARACTERS_MAX] or f"{method.upper()} {place}"


def _clean(text: object) -> str:
    """Return a text without control characters: it is shown to models, in terminals and in the page."""
    shown = str(text or "")[:DESCRIPTION_CHARACTERS_MAX]
    return "".join(c if c in "\n\t" or c.isprintable() else " " for c in shown).strip()
