"""The schema of a tool that is made of several operations, each named by `op`.

Providers of models refuse alternatives at the top of a schema, so the fields of all operations are properties of one
object, each with the names of its operations; the call itself is checked strictly.

Before: services/runtime/tools/operation_tools.py, services/api/mcp/tools.py, services/api/operation_routes.py. After:
nothing. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any


def merged_fields(fields: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the fields of all operations by name; one that differs between operations may have any of its forms."""
    forms: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for op, of_operation in fields.items():
        for name, schema in of_operation.items():
            forms.setdefault(name, []).append((op, schema))
    return {name: _merge(variants, len(fields)) for name, variants in forms.items()}


def _merge(variants: Sequence[tuple[str, Mapping[str, Any]]], operations: int) -> dict[str, Any]:
    """Return the schema of a field of these operations, described with the operations that take it."""
    bare = [_bare(schema) for _, schema in variants]
    texts = [schema.get("description", "") for _, schema in variants]
    distinct = [schema for number, schema in enumerate(bare) if schema not in bare[:number]]
    form = dict(distinct[0]) if len(distinct) == 1 else {"anyOf": distinct}
    ops = [op for op, _ in variants]
    if len(set(texts)) > 1:
        return {**form, "description": " ".join(f"{op}: {text}" for op, text in zip(ops, texts, strict=True))}
    suffix = f" For op {', '.join(ops)}." if len(ops) < operations else ""
    return {**form, "description": f"{texts[0]}{suffix}".strip()}


def _bare(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {word: value for word, value in schema.items() if word not in ("description", "default")}
