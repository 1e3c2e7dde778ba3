"""Base classes of values: immutable, without identity, and cheap, because they are implemented in C.

    Value     states, facts, commands, effects, results: everything that is passed on and kept
    Record    a value with a schema, which the log can store; defined in schemas/generated
    Secretive a value with fields that its repr never shows

A Value is frozen and not tracked by the cyclic garbage collector (gc=False): an object that only refers to values
created before it cannot be part of a cycle. A class that holds a function or a mutable object is a plain frozen
msgspec.Struct. The tag is the class name in the bytes of a state (services/core/canonical.py). Every class declares
frozen and kw_only itself, because type checkers and msgspec read them there.

Not chosen: frozen dataclasses (decision 30).
"""

from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import asdict

if TYPE_CHECKING:  # mypy checks the fields given to dataclasses.replace, also for a Struct
    from dataclasses import replace
else:
    from msgspec.structs import replace

TAG_FIELD = "_"
"""Key of the class name in a JSON object; no field may have this name."""


class Value(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag=True, tag_field=TAG_FIELD):
    """An immutable value whose fields are values. Copy it with changed fields by `replace(value, field=...)`."""


class Record(Value, frozen=True):
    """A record of the schemas. `SCHEMA` is the full name of its Avro schema."""

    SCHEMA: ClassVar[str]
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = ()
    """Fields in the order of the schema, where it is another one than that of the class."""
    CONTENT: ClassVar[Mapping[str, str]] = {}
    """Fields that are user content, and their form: text, untrusted, or what JSON text it is within (generate.py)."""

    def to_avro(self) -> dict[str, Any]:
        """Return the fields in the form and in the order of the schema."""
        fields = asdict(self)
        for name, write in _converters(type(self), _writer_of).items():
            fields[name] = write(fields[name])
        return {name: fields[name] for name in self.SCHEMA_ORDER} if self.SCHEMA_ORDER else fields

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        """Return the record with those fields; other keys are ignored."""
        fields = {name: value[name] for name in cls.__struct_fields__}
        for name, read in _converters(cls, _reader_of).items():
            fields[name] = read(fields[name])
        return cls(**fields)


Converter = Callable[[Any], Any]
"""Makes the value of a field of the one in the form of the schema, or the other way round."""


@cache
def _converters(record: type[Record], converter_of: Callable[[Any], Converter | None]) -> Mapping[str, Converter]:
    """Return the converters of the fields that have one; the others have one form."""
    hints = get_type_hints(record)
    converters = {name: converter_of(hints[name]) for name in record.__struct_fields__}
    return {name: convert for name, convert in converters.items() if convert is not None}


def _writer_of(hint: Any) -> Converter | None:
    inner = get_args(hint)
    if get_origin(hint) is tuple:
        write_item = _writer_of(inner[0])
        return None if write_item is None else lambda values: list(map(write_item, values))
    if NoneType in inner:  # fastavro takes no tuple in a union
        return _optional(list if get_origin(inner[0]) is tuple else _writer_of(inner[0]))
    return Record.to_avro if _is_record(hint) else None


def _reader_of(hint: Any) -> Converter | None:
    inner = get_args(hint)
    if get_origin(hint) is tuple:
        read_item = _reader_of(inner[0])
        return tuple if read_item is None else lambda values: tuple(map(read_item, values))
    if NoneType in inner:
        return _optional(_reader_of(inner[0]))
    return hint.from_avro if _is_record(hint) else None


def _optional(convert: Converter | None) -> Converter | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Record)


class Secretive(Value, frozen=True):
    """A value with secrets: neither its repr nor a rich traceback shows the fields listed in `SECRETS`."""

    SECRETS: ClassVar[frozenset[str]]

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.__struct_fields__ if name not in self.SECRETS]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"


__all__ = ["TAG_FIELD", "Record", "Secretive", "Value", "replace"]
