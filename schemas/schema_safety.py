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
SIMPLE = frozenset({"boolean", "int", "long", "float", "double", "bytes", "string"})
"""Each has a byte at least."""


class Unfit(Exception):
    """Records of that schema are not read. The text says why."""


def check(schema: Any) -> None:
    """Takes a schema as fastavro has parsed it. Raises Unfit."""
    _depth(schema, {}, 0)


def _depth(schema: Any, named: dict[str, int | None], within: int) -> int:
    """How many types lie in each other there. `named`: of what has a name; None while it is being looked at."""
    if within > DEPTH_MAX:
        raise Unfit(f"it has over {DEPTH_MAX} types in each other")
    if isinstance(schema, list):
        # The number of the branch is a byte, so nothing at all may be one.
        return 1 + max((_depth(one, named, within + 1) for one in schema if one != "null"), default=0)
    if isinstance(schema, str):
        return 1 if schema in SIMPLE else _known(schema, named)
    if not isinstance(schema, Mapping):
        raise Unfit(f"{type(schema).__name__} is no type")
    if "logicalType" in schema:
        raise Unfit("it has a logical type, which none of ours has")
    match schema.get("type"):
        case "array":
            return 1 + _depth(schema["items"], named, within + 1)
        case "map":
            return 1 + _depth(schema["values"], named, within + 1)
        case "enum":
            named[schema["name"]] = 1
            return 1
        case "fixed":
            if not schema["size"] > 0:
                raise Unfit(f"{schema['name']} has no bytes")
            named[schema["name"]] = 1
            return 1
        case "record":
            return _record(schema, named, within)
        case str(name):
            return 1 if name in SIMPLE else _known(name, named)
        case other:
            return 1 + _depth(other, named, within + 1)


def _record(schema: Mapping[str, Any], named: dict[str, int | None], within: int) -> int:
    name = schema["name"]
    if not schema["fields"]:
        raise Unfit(f"{name} has no fields")
    named[name] = None
    found = 1 + max(_depth(field["type"], named, within + 1) for field in schema["fields"])
    if found > DEPTH_MAX:
        raise Unfit(f"{name} has over {DEPTH_MAX} types in each other")
    named[name] = found
    return found


def _known(name: str, named: Mapping[str, int | None]) -> int:
    """Of a type that is named, not written out."""
    if name not in named:
        raise Unfit("null stands outside a union" if name == "null" else f"{name[:80]!r} is no type")
    found = named[name]
    if found is None:
        raise Unfit(f"{name} lies within itself")
    return found
