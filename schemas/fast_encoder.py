"""Avro encoding straight from a record's attributes: one writer is compiled for each schema that is written.

The generic way makes a dict of the record and walks the schema for each value (8 us for a ModelReplied); a compiled
writer is one expression over the record (3 us). Its source is generated from the schema, so old versions are written
according to their schema. Only the types of our schemas are supported: longs, strings, booleans, doubles, bytes,
records, arrays, maps, and unions of null and one other. The property tests of the codec keep it equal to fastavro for
every record.

Before: codec.py passes a parsed schema. After: the bytes of an Avro body.

Not chosen: writing into a bytearray (each += costs twice what an element of a join does), or code generated into the
modules (they would know the newest version only).
"""

import struct
from collections.abc import Callable
from typing import Any

Schema = Any
Writer = Callable[[Any], bytes]

CACHED_NUMBERS = 4_096
"""Numbers below this have cached bytes: lengths, seqs, counts, durations. A text of 1,000 characters has a length below
it. Also cached are -1, which means none, and as many round numbers: limits and windows, which repeat in each run.
"""

CACHED_RECORDS = frozenset({"loom.values.AgentDefinition"})
"""Frozen records that are written repeatedly: every run of an agent contains the definition it is pinned to, one object
for all of them. A RunStarted takes 1.5 us with the cache, and 3 when the definition is encoded each time.
"""
RECORD_CACHE_SIZE = 64
"""Records cached per writer; few agents are active at a time."""


class Zigzag(dict[int, bytes]):
    """Avro longs by number; many are cached, see CACHED_NUMBERS. Raises OverflowError for numbers beyond 64 bits."""

    def __missing__(self, number: int) -> bytes:
        if not -(1 << 63) <= number < 1 << 63:
            raise OverflowError(f"{number} does not fit an Avro long")
        left = number << 1 if number >= 0 else ~(number << 1)
        buffer = bytearray()
        while left >= 0x80:
            buffer.append(left & 0x7F | 0x80)
            left >>= 7
        buffer.append(left)
        made = bytes(buffer)
        if -1 <= number < CACHED_NUMBERS or (number % 1000 == 0 and len(self) < 2 * CACHED_NUMBERS):
            self[number] = made
        return made


ZIGZAG = Zigzag()


def compile_writer(schema: Schema) -> Writer:
    """Return a function that encodes a record as an Avro body.

    `schema` is a record's, with every named type written out where it first occurs. The writer raises Python's own
    error when a value is not of its field's type, and UnicodeEncodeError for text that UTF-8 cannot encode.
    """
    return _WriterCompiler().compile_record(schema)


class _WriterCompiler:
    """Compiler of one function for each record type of a schema."""

    def __init__(self) -> None:
        self._symbols: dict[str, Any] = {
            "Z": ZIGZAG,
            "join": b"".join,
            "double": struct.Struct("<d").pack,
            "fixed": _check_fixed,
        }
        self._named_types: dict[str, Schema] = {}

    def compile_record(self, schema: Schema) -> Writer:
        name = _function_name(schema["name"])
        self._named_types[schema["name"]] = schema
        parts = [self._part_expressions(field["type"], f"v.{field['name']}") for field in schema["fields"]]
        exec(f"def {name}(v):\n return join(({''.join(f'{part}, ' for part in parts)}))", self._symbols)  # noqa: S102
        if schema["name"] in CACHED_RECORDS:
            self._symbols[name] = _cache_writer(self._symbols[name])
        writer: Writer = self._symbols[name]
        return writer

    def _part_expressions(self, schema: Schema, value: str) -> str:
        """Return comma-separated expressions of bytes."""
        kind = schema["type"] if isinstance(schema, dict) else schema
        match kind:
            case "long" | "int":
                return f"Z[{value}]"
            case "string":
                return f"Z[len(s := {value}.encode())], s"
            case "bytes":
                return f"Z[len({value})], {value}"
            case "boolean":
                return f'b"\\1" if {value} else b"\\0"'
            case "double":
                return f"double({value})"
            case "record":
                if schema["name"] not in self._named_types:
                    self.compile_record(schema)
                return f"{_function_name(schema['name'])}({value})"
            case "array":
                item = self._joined_expression(schema["items"], "i")
                return f'b"\\0" if not {value} else {self._block_expression(value, item)}'
            case "map":
                item = f"join((Z[len(k := i[0].encode())], k, {self._part_expressions(schema['values'], 'i[1]')}))"
                return f'b"\\0" if not {value} else {self._block_expression(value, item, ".items()")}'
            case "fixed":
                self._named_types[schema["name"]] = schema
                return f"fixed({value}, {schema['size']})"
            case ["null", other]:
                return f'b"\\0" if {value} is None else b"\\2" + {self._joined_expression(other, value)}'
            case str() if kind in self._named_types:
                known = self._named_types[kind]
                return (
                    self._part_expressions(known, value)
                    if known["type"] == "fixed"
                    else f"{_function_name(kind)}({value})"
                )
            case _:
                raise AssertionError(f"no writer for the Avro type {kind!r}")

    def _joined_expression(self, schema: Schema, value: str) -> str:
        return f"join(({self._part_expressions(schema, value)},))"

    def _block_expression(self, value: str, item: str, accessor: str = "") -> str:
        """Return the expression for an Avro array or map: one block with its count, then an empty one."""
        return f'Z[len({value})] + join([{item} for i in {value}{accessor}]) + b"\\0"'


def _cache_writer(write: Writer) -> Writer:
    """Return the writer with a cache of the last records' bytes, by object identity."""
    known: dict[int, tuple[Any, bytes]] = {}

    def written(v: Any) -> bytes:
        cached = known.get(id(v))
        if cached is not None and cached[0] is v:
            return cached[1]
        made = write(v)
        if len(known) >= RECORD_CACHE_SIZE:
            known.clear()
        known[id(v)] = (v, made)
        return made

    return written


def _check_fixed(value: bytes, size: int) -> bytes:
    if len(value) != size:
        raise ValueError(f"{len(value)} bytes where the schema has {size}")
    return value


def _function_name(name: str) -> str:
    return "write_" + name.replace(".", "_")
