"""Check of foreign schemas: the cost of reading a record must be bounded by its size in bytes.

A file contains the schemas of its records, so that an older or newer version can be read. A decoder follows a schema
before any check of the record: an array of zero-byte items can claim any number of them, and a recursive record can
nest as deep as its bytes allow and crash the process. None of our schemas does that.

Before: a file has a schema line. After: codec.py reads records by it.
"""

from collections.abc import Mapping
from typing import Any

DEPTH_MAX = 64
"""Maximum nesting depth of types; ours have seven."""
PRIMITIVES = frozenset({"boolean", "int", "long", "float", "double", "bytes", "string"})
"""Primitive types, each of at least one byte."""


class UnsafeSchema(Exception):
    """A schema whose records are not read. The message contains the reason."""


def check_schema(schema: Any) -> None:
    """Check a schema that fastavro has parsed. Raises UnsafeSchema."""
    _type_depth(schema, {}, 0)


def _type_depth(schema: Any, named: dict[str, int | None], outer_depth: int) -> int:
    """Return the nesting depth of a schema. `named`: depths of named types; None while a type is being checked."""
    if outer_depth > DEPTH_MAX:
        raise UnsafeSchema(f"its types are nested more than {DEPTH_MAX} deep")
    if isinstance(schema, list):
        # The branch index takes a byte, so a branch may be null.
        return 1 + max((_type_depth(one, named, outer_depth + 1) for one in schema if one != "null"), default=0)
    if isinstance(schema, str):
        return 1 if schema in PRIMITIVES else _named_depth(schema, named)
    if not isinstance(schema, Mapping):
        raise UnsafeSchema(f"{type(schema).__name__} is not a type")
    if "logicalType" in schema:
        raise UnsafeSchema("it has a logical type, which none of ours has")
    match schema.get("type"):
        case "array":
            return 1 + _type_depth(schema["items"], named, outer_depth + 1)
        case "map":
            return 1 + _type_depth(schema["values"], named, outer_depth + 1)
        case "enum":
            named[schema["name"]] = 1
            return 1
        case "fixed":
            if not schema["size"] > 0:
                raise UnsafeSchema(f"{schema['name']} has no bytes")
            named[schema["name"]] = 1
            return 1
        case "record":
            return _record_depth(schema, named, outer_depth)
        case str(name):
            return 1 if name in PRIMITIVES else _named_depth(name, named)
        case other:
            return 1 + _type_depth(other, named, outer_depth + 1)


def _record_depth(schema: Mapping[str, Any], named: dict[str, int | None], outer_depth: int) -> int:
    name = schema["name"]
    if not schema["fields"]:
        raise UnsafeSchema(f"{name} has no fields")
    named[name] = None
    depth = 1 + max(_type_depth(field["type"], named, outer_depth + 1) for field in schema["fields"])
    if depth > DEPTH_MAX:
        raise UnsafeSchema(f"the types of {name} are nested more than {DEPTH_MAX} deep")
    named[name] = depth
    return depth


def _named_depth(name: str, named: Mapping[str, int | None]) -> int:
    """Return the depth of a type that is referenced by name."""
    if name not in named:
        raise UnsafeSchema("null is outside a union" if name == "null" else f"{name[:80]!r} is not a type")
    depth = named[name]
    if depth is None:
        raise UnsafeSchema(f"{name} contains itself")
    return depth
