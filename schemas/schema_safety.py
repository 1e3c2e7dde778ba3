"""What the schema of a stranger may be: one whose records cost as much to read as they have bytes.

A file brings the schemas its records were written with, so that an older or newer version can be read. A decoder does
what a schema says before anybody sees the record: an array of nothing has as many items as it claims, in no bytes; a
record within itself goes as deep as its bytes say, and takes the process with it. None of ours is like that.

Before: a file has a schema line. After: codec.py reads records by it.
"""

from collections.abc import Mapping
from typing import Any

DEPTH_MAX = 64
"""Of types within types; ours have seven."""
PRIMITIVES = frozenset({"boolean", "int", "long", "float", "double", "bytes", "string"})
"""Each has a byte at least."""


class UnsafeSchema(Exception):
    """Records of that schema are not read. The text says why."""


def check_schema(schema: Any) -> None:
    """Takes a schema as fastavro has parsed it. Raises Unfit."""
    _type_depth(schema, {}, 0)


def _type_depth(schema: Any, named: dict[str, int | None], outer_depth: int) -> int:
    """How many types lie in each other there. `named`: of what has a name; None while it is being looked at."""
    if outer_depth > DEPTH_MAX:
        raise UnsafeSchema(f"it has over {DEPTH_MAX} types in each other")
    if isinstance(schema, list):
        # The number of the branch is a byte, so nothing at all may be one.
        return 1 + max((_type_depth(one, named, outer_depth + 1) for one in schema if one != "null"), default=0)
    if isinstance(schema, str):
        return 1 if schema in PRIMITIVES else _named_depth(schema, named)
    if not isinstance(schema, Mapping):
        raise UnsafeSchema(f"{type(schema).__name__} is no type")
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
    found = 1 + max(_type_depth(field["type"], named, outer_depth + 1) for field in schema["fields"])
    if found > DEPTH_MAX:
        raise UnsafeSchema(f"{name} has over {DEPTH_MAX} types in each other")
    named[name] = found
    return found


def _named_depth(name: str, named: Mapping[str, int | None]) -> int:
    """Of a type that is named, not written out."""
    if name not in named:
        raise UnsafeSchema("null stands outside a union" if name == "null" else f"{name[:80]!r} is no type")
    found = named[name]
    if found is None:
        raise UnsafeSchema(f"{name} lies within itself")
    return found
