"""Tool schemas in the keywords that Gemini knows.

Gemini accepts a subset of OpenAPI's schema and answers 400 for every other keyword, so a tool that works everywhere
else breaks there. What can be expressed is translated: a constant is an enum of one, a type that may be null is
`nullable`, alternatives are `anyOf`, references are expanded. The rest is dropped. As with `flatten_schema`, the output
accepts more than the input; the tool checks its arguments itself, so nothing is lost.

What Gemini refuses besides unknown keywords, each seen as a 400: a schema without a type; an array without items; an
object with empty `properties`; enum values that are not strings; formats other than its own; a required name without a
property; keywords next to `anyOf`.

Before: gemini_request. After: nothing; it is pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from loomlog.connectors.models import untrusted_json

KEYWORDS = frozenset(
    {"title", "description", "nullable", "minItems", "maxItems", "minLength", "maxLength", "pattern", "minimum"}
    | {"maximum", "minProperties", "maxProperties", "propertyOrdering"}
)
"""Keywords passed on unchanged; the others that Gemini knows are treated below."""
FORMATS: Mapping[str, frozenset[str]] = {
    "string": frozenset({"enum", "date-time"}),
    "integer": frozenset({"int32", "int64"}),
    "number": frozenset({"float", "double"}),
}
TYPES = frozenset({"string", "integer", "number", "boolean", "array", "object"})
MAX_DEPTH = 24
"""Deepest nesting; below it, and in a circle of references, an object without constraints replaces the rest."""
MAX_REFERENCES = 2_000
"""References expanded per schema, as expansion can enlarge a small schema without limit; beyond it objects without
constraints replace them.
"""
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


def sanitise_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's schema as Gemini accepts it; empty for a tool without arguments, whose schema must be omitted."""
    clean = _SchemaSanitiser(schema).sanitise(schema, (), 0)
    return clean if clean.get("properties") else {}


class _SchemaSanitiser:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._references = 0

    def sanitise(self, schema: Mapping[str, Any], path: tuple[str, ...], depth: int) -> dict[str, Any]:
        """Return one schema converted. `path` has the references being expanded around it."""
        if depth > MAX_DEPTH:
            return dict(ANY_OBJECT)
        schema, path = self._expand_references(schema, path, depth)
        branches, nullable = _branches(schema)
        if branches:
            return self._sanitise_branches(schema, branches, nullable, path, depth)
        return self._sanitise_single(schema, nullable, path, depth)

    def _sanitise_branches(
        self,
        schema: Mapping[str, Any],
        branches: list[Mapping[str, Any]],
        nullable: bool,
        path: tuple[str, ...],
        depth: int,
    ) -> dict[str, Any]:
        clean: list[dict[str, Any]] = []
        for branch in branches:
            form = self.sanitise(branch, path, depth + 1)
            if schema.get("description") and "description" not in form:
                form["description"] = schema["description"]
            if nullable:
                form["nullable"] = True
            if form not in clean:
                clean.append(form)
        return clean[0] if len(clean) == 1 else {"anyOf": clean}

    def _sanitise_single(
        self, schema: Mapping[str, Any], nullable: bool, path: tuple[str, ...], depth: int
    ) -> dict[str, Any]:
        kind = _type_of(schema)
        clean: dict[str, Any] = {"type": kind}
        clean.update({word: value for word, value in schema.items() if word in KEYWORDS})
        if nullable:
            clean["nullable"] = True
        choices = _choices(schema)
        if kind == "string" and choices:
            clean["enum"] = choices
        if untrusted_json.text(schema.get("format")) in FORMATS.get(kind, ()):
            clean["format"] = schema["format"]
        if kind == "array":
            items = untrusted_json.fields(schema.get("items"))
            clean["items"] = self.sanitise(items, path, depth + 1) if items else {"type": "string"}
        if kind == "object":
            properties = untrusted_json.fields(schema.get("properties"))
            forms = {
                name: self.sanitise(untrusted_json.fields(form), path, depth + 1) for name, form in properties.items()
            }
            required_names = map(untrusted_json.text, untrusted_json.items(schema.get("required")))
            required = [name for name in dict.fromkeys(required_names) if name in forms]
            clean.update({"properties": forms} if forms else {})
            clean.update({"required": required} if required else {})
        return clean

    def _expand_references(
        self, schema: Mapping[str, Any], path: tuple[str, ...], depth: int
    ) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Return the schema without `$ref` and `allOf`. Keywords next to a reference take precedence over the
        referenced ones.
        """
        while "$ref" in schema or "allOf" in schema:
            depth += 1
            self._references += 1
            if depth > MAX_DEPTH or self._references > MAX_REFERENCES:
                return ANY_OBJECT, path
            beside = {word: value for word, value in schema.items() if word not in ("$ref", "allOf")}
            reference = untrusted_json.text(schema.get("$ref"))
            if reference in path:
                return ANY_OBJECT, path
            parts = [untrusted_json.fields(part) for part in untrusted_json.items(schema.get("allOf"))]
            clean = [self._expand_references(part, path, depth)[0] for part in parts]
            if reference:
                path = (*path, reference)
                clean.append(self._resolve_reference(reference))
            schema = _merge([*clean, beside])
        return schema, path

    def _resolve_reference(self, reference: str) -> Mapping[str, Any]:
        target: Mapping[str, Any] = self._root
        for step in reference.removeprefix("#/").split("/") if reference.startswith("#/") else ():
            target = untrusted_json.fields(target.get(step))
        return target if target is not self._root else untrusted_json.EMPTY


def _merge(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the keywords of all parts, later ones taking precedence; properties and required names are combined."""
    merged: dict[str, Any] = {}
    for part in parts:
        merged.update(part)
    properties = {name: form for part in parts for name, form in untrusted_json.fields(part.get("properties")).items()}
    required = [name for part in parts for name in untrusted_json.items(part.get("required"))]
    merged.update({"properties": properties} if properties else {})
    merged.update({"required": required} if required else {})
    return merged


def _branches(schema: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], bool]:
    """Return the alternatives of a schema without null, and whether null is one of them."""
    alternatives = [
        untrusted_json.fields(branch)
        for word in ("anyOf", "oneOf")
        for branch in untrusted_json.items(schema.get(word))
    ]
    types = schema.get("type")
    if not alternatives and isinstance(types, list) and len([kind for kind in types if kind != "null"]) > 1:
        rest = {word: value for word, value in schema.items() if word != "type"}
        alternatives = [{**rest, "type": kind} for kind in types]
    branches = [branch for branch in alternatives if branch.get("type") != "null"]
    nullable = len(branches) < len(alternatives) or (isinstance(types, list) and "null" in types)
    return branches, nullable or schema.get("nullable") is True


def _type_of(schema: Mapping[str, Any]) -> str:
    """Return the declared type, or the one that other keywords imply; "string" for a schema without any, because a
    model can write anything in it.
    """
    declared = schema.get("type")
    for kind in declared if isinstance(declared, list) else [declared]:
        if isinstance(kind, str) and kind.lower() in TYPES:
            return kind.lower()
    if isinstance(schema.get("properties"), dict):
        return "object"
    if "items" in schema:
        return "array"
    values = untrusted_json.items(schema.get("enum")) or [schema.get("const", "")]
    for kind, python in (("boolean", bool), ("integer", int), ("number", float)):
        if all(isinstance(value, python) for value in values):
            return kind
    return "string"


def _choices(schema: Mapping[str, Any]) -> list[str]:
    """Return the strings to choose from; Gemini accepts no empty string as a choice."""
    values = untrusted_json.items(schema.get("enum")) or ([schema["const"]] if "const" in schema else [])
    return list(dict.fromkeys(filter(None, map(untrusted_json.text, values))))
