"""A reader of Avro bodies, written for each schema and compiled: what wire.py reads most records with.

    read = compiled(parse_schema(schema))
    values, end = read(value, at)         # plain dicts, lists and values, as fastavro gives them

fastavro pays one call of Python for each byte of a number, which made the simulation's checker spend a tenth of all
time on it. This is a third reader beside fastavro and the one of the services (schemas/fast_decoder.py), and shares no
code with either; test_wire.py holds it to fastavro.

It raises Unusual, or what Python raises over bytes that end too soon, for what it does not understand. That says
nothing about the record: wire.py asks fastavro then.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any

Read = Callable[[bytes, int], tuple[Any, int]]
"""Takes the bytes and where the body begins; gives its values and where it ends."""
PLAIN = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
MOST_DEPTH = 20
"""Of types in one another; a schema that holds itself never ends and is left to fastavro."""
NUMBER_BYTES_MAX = 9
"""A number of ten bytes may be over 64 bits."""


class Unusual(Exception):
    """Not for this reader."""


NOT_THIS_WAY = (Unusual, IndexError, UnicodeDecodeError, struct.error)


def compiled(schema: Any) -> Read | None:
    """The reader of a schema that fastavro has parsed; None when the schema has what it lacks."""
    text = _Text(schema.get("__named_schemas", {}) if isinstance(schema, Mapping) else {})
    try:
        made = text.read(schema, 1)
    except Unusual:
        return None
    lines = ["def read(v, at):", *text.lines, f"    return {made}, at"]
    known: dict[str, Any] = {"Unusual": Unusual, "number": _number, "double": struct.Struct("<d").unpack_from}
    exec("\n".join(lines), known)
    read: Read = known["read"]
    return read


class _Text:
    """The lines of a reader. Every value gets a variable of its own."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self.lines: list[str] = []
        self._named = named
        self._variables = 0

    def read(self, schema: Any, depth: int) -> str:
        """Adds the lines that read a value; the expression that stands for it afterwards."""
        if depth > MOST_DEPTH:
            raise Unusual
        if isinstance(schema, list):
            return self._union(schema, depth)
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(kind, list | dict):
            return self.read(kind, depth)
        match kind:
            case "null":
                return "None"
            case "record" | "error":
                fields = [(field["name"], self.read(field["type"], depth)) for field in schema["fields"]]
                return "{" + ", ".join(f"{name!r}: {value}" for name, value in fields) + "}"
            case "array" | "map":
                return self._blocks(schema, depth, is_map=kind == "map")
            case "fixed":
                return self._cut(depth, str(schema["size"]))
            case "bytes":
                return self._cut(depth, self._number(depth))
            case "string":
                text = self._cut(depth, self._number(depth))
                self._add(depth, f"{text} = {text}.decode()")
                return text
            case "int" | "long":
                return self._number(depth)
            case "double":
                text = self._variable()
                self._add(depth, f"{text}, = double(v, at)", "at += 8")
                return text
            case "boolean":
                text = self._variable()
                self._add(depth, f"{text} = v[at] != 0", "at += 1")
                return text
        if kind in self._named:
            return self.read(self._named[kind], depth)
        raise Unusual

    def _number(self, depth: int) -> str:
        text = self._variable()
        self._add(
            depth,
            f"{text} = v[at]",
            "at += 1",
            f"if {text} < 128: {text} = ({text} >> 1) ^ -({text} & 1)",
            f"else: {text}, at = number(v, at, {text})",
        )
        return text

    def _cut(self, depth: int, size: str) -> str:
        """So many bytes."""
        text = self._variable()
        self._add(
            depth,
            f"if {size} < 0 or at + {size} > len(v): raise Unusual",
            f"{text} = v[at:at + {size}]",
            f"at += {size}",
        )
        return text

    def _union(self, branches: list[Any], depth: int) -> str:
        which, text = self._number(depth), self._variable()
        for place, branch in enumerate(branches):
            self._add(depth, f"{'if' if place == 0 else 'elif'} {which} == {place}:")
            self._add(depth + 1, f"{text} = {self.read(branch, depth + 1)}")
        self._add(depth, "else: raise Unusual")
        return text

    def _blocks(self, schema: Any, depth: int, *, is_map: bool) -> str:
        """Items in blocks, of which the last one is empty. A block with its size in bytes is unusual."""
        text = self._variable()
        self._add(depth, f"{text} = {'{}' if is_map else '[]'}", "while True:")
        count = self._number(depth + 1)
        self._add(depth + 1, f"if {count} == 0: break", f"if {count} < 0: raise Unusual", f"for _ in range({count}):")
        if is_map:
            key = self.read("string", depth + 2)
            self._add(depth + 2, f"{text}[{key}] = {self.read(schema['values'], depth + 2)}")
        else:
            self._add(depth + 2, f"{text}.append({self.read(schema['items'], depth + 2)})")
        return text

    def _variable(self) -> str:
        self._variables += 1
        return f"x{self._variables}"

    def _add(self, depth: int, *lines: str) -> None:
        self.lines.extend("    " * depth + line for line in lines)


def _number(value: bytes, at: int, byte: int) -> tuple[int, int]:
    """A number of several bytes, of which the first was read, and the position after it."""
    result, shift = byte & 0x7F, 7
    while byte & 0x80:
        if shift >= 7 * NUMBER_BYTES_MAX:
            raise Unusual
        byte = value[at]
        at += 1
        result |= (byte & 0x7F) << shift
        shift += 7
    return (result >> 1) ^ -(result & 1), at
