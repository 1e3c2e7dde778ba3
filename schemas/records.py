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

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import asdict

if TYPE_CHECKING:  # mypy checks the fields given to dataclasses.replace, also for a Struct
    from dataclasses import replace
else:
    from msgspec.structs import replace

TAG_FIELD = "_"
"""Key of the class name in a JSON object; no field may have this name."""
StructT = TypeVar("StructT", bound=Struct)


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
        for name in _nested_readers(type(self)):
            fields[name] = _to_avro(fields[name])
        return {name: fields[name] for name in self.SCHEMA_ORDER} if self.SCHEMA_ORDER else fields

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        """Return the record with those fields; other keys are ignored."""
        fields = {name: value[name] for name in cls.__struct_fields__}
        for name, read in _nested_readers(cls).items():
            fields[name] = read(fields[name])
        return cls(**fields)


def _to_avro(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_to_avro(item) for item in value]
    return value.to_avro() if isinstance(value, Record) else value


Reader = Callable[[Any], Any]
"""Makes the value of a field of the one in the form of the schema."""


@cache
def _nested_readers(record: type[Record]) -> Mapping[str, Reader]:
    """Return the readers of the fields that hold records or tuples; others have one form."""
    hints = get_type_hints(record)
    readers = {name: _reader_of(hints[name]) for name in record.__struct_fields__}
    return {name: read for name, read in readers.items() if read is not None}


def _reader_of(hint: Any) -> Reader | None:
    inner = get_args(hint)
    if get_origin(hint) is tuple:
        read_item = _reader_of(inner[0])
        return tuple if read_item is None else lambda values: tuple(map(read_item, values))
    if NoneType in inner:
        read = _reader_of(inner[0])
        return None if read is None else lambda value: None if value is None else read(value)
    return hint.from_avro if isinstance(hint, type) and issubclass(hint, Record) else None


class Secretive(Value, frozen=True):
    """A value with secrets: neither its repr nor a rich traceback shows the fields listed in `SECRETS`."""

    SECRETS: ClassVar[frozenset[str]]

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.__struct_fields__ if name not in self.SECRETS]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"


def copy_as(target: type[StructT], source: Struct, /, **fields: Any) -> StructT:
    """Return a struct of another class with the fields that both have; `fields` are given besides, or instead.

    For what follows from a struct and tells the same: the event of a command, the row of a state.
    """
    copied = {name: getattr(source, name) for name in _common_fields(target, type(source))}
    return target(**(copied | fields))


@cache
def _common_fields(target: type[Struct], source: type[Struct]) -> Sequence[str]:
    return tuple(name for name in target.__struct_fields__ if name in source.__struct_fields__)


__all__ = ["TAG_FIELD", "Record", "Secretive", "Value", "copy_as", "replace"]
