"""Tool schemas in the form every provider accepts: one object, no alternatives at its top.

Anthropic and OpenAI refuse `oneOf`, `anyOf` and `allOf` at the top level of a tool's schema. Tools with several
operations, and those of MCP servers, have them. The alternatives are merged into one object: every property of every
branch is allowed, a property that differs between branches may have any of its forms, and required are the names that
every branch requires (for allOf: that any branch requires). The result accepts more than the original; the tool checks
its arguments itself, so only a hint to the model is lost.

Before: the drivers. After: nothing; it is pure.
"""

from collections.abc import Mapping
from typing import Any

from loomlog.connectors.models import untrusted_json

COMBINERS = ("oneOf", "anyOf", "allOf")


def flatten_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema as one object with `type` and `properties`; a schema without alternatives keeps all its
    keywords.
    """
    flat = {word: value for word, value in schema.items() if word not in (*COMBINERS, "$ref")}
    flat["type"] = "object"
    forms, required = _merge(schema, schema, set())
    flat["properties"] = {name: _any_of(variants) for name, variants in forms.items()}
    if required:
        flat["required"] = required
    else:
        flat.pop("required", None)
    return flat


def _merge(
    schema: Mapping[str, Any], root: Mapping[str, Any], seen: set[int]
) -> tuple[dict[str, list[Any]], list[str]]:
    """Return the forms of each property and the required names. Each part of the schema is visited once, so that
    circular references end and the work stays linear.
    """
    if id(schema) in seen:
        return {}, []
    seen.add(id(schema))
    forms: dict[str, list[Any]] = {
        name: [form] for name, form in untrusted_json.fields(schema.get("properties")).items()
    }
    required = [name for name in untrusted_json.items(schema.get("required")) if isinstance(name, str)]
    merged = [("allOf", [_merge(_resolve_reference(schema, root), root, seen)])] if "$ref" in schema else []
    for combiner in COMBINERS:
        branches = [untrusted_json.fields(branch) for branch in untrusted_json.items(schema.get(combiner))]
        if branches:
            merged.append((combiner, [_merge(branch, root, seen) for branch in branches]))
    for combiner, parts in merged:
        for part_forms, _ in parts:
            for name, variants in part_forms.items():
                known = forms.setdefault(name, [])
                known.extend(variant for variant in variants if variant not in known)
        required_names = [names for _, names in parts]
        for name in required_names[0] if combiner != "allOf" else [name for names in required_names for name in names]:
            if name not in required and (combiner == "allOf" or all(name in names for names in required_names)):
                required.append(name)
    return forms, required


def _resolve_reference(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the target of a local reference (#/$defs/Name); an empty schema for any other."""
    path = untrusted_json.text(schema.get("$ref"))
    if not path.startswith("#/"):
        return untrusted_json.EMPTY
    target: Mapping[str, Any] = root
    for step in path[2:].split("/"):
        target = untrusted_json.fields(target.get(step))
    return target


def _any_of(variants: list[Any]) -> Any:
    return variants[0] if len(variants) == 1 else {"anyOf": variants}
