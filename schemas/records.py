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

from collections.abc import Mapping, Sequence
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Struct

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
        _write_conversions(type(self))
        return self.to_avro()

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        """Return the record with those fields; other keys are ignored."""
        _write_conversions(cls)
        return cls.from_avro(value)


def _write_conversions(record: type[Record]) -> None:
    """Give a class conversions written for its fields, when the first of its records is converted.

    They take a third of the time of a loop over the types of the fields (2 to 20 us a record, on which all work on the
    log depends).
    """
    hints = get_type_hints(record)
    packed = [
        f"{name!r}: {_pack(f'self.{name}', hints[name])}" for name in record.SCHEMA_ORDER or record.__struct_fields__
    ]
    names: dict[str, Any] = {}
    read = [f"{name}={_unpack(f'value[{name!r}]', hints[name], names)}" for name in record.__struct_fields__]
    source = (
        f"def to_avro(self): return {{{', '.join(packed)}}}\ndef from_avro(cls, value): return cls({', '.join(read)})"
    )
    exec(source, names)  # noqa: S102 - the names of fields and classes, nothing from outside
    record.to_avro = names["to_avro"]  # type: ignore[method-assign]
    record.from_avro = classmethod(names["from_avro"])  # type: ignore[assignment]


def _pack(value: str, hint: Any) -> str:
    """Return the expression that packs a value; fastavro takes no tuple in a union."""
    inner = get_args(hint)
    if get_origin(hint) is tuple:
        return f"[{_pack('item', inner[0])} for item in {value}]" if _is_record(inner[0]) else value
    if NoneType in inner:
        packed = f"list({value})" if get_origin(inner[0]) is tuple else _pack(value, inner[0])
        return value if packed == value else f"None if {value} is None else {packed}"
    return f"{value}.to_avro()" if _is_record(hint) else value


def _unpack(value: str, hint: Any, names: dict[str, Any]) -> str:
    """Return the expression that unpacks a value, and add the classes that it names."""
    inner = get_args(hint)
    if get_origin(hint) is tuple:
        item = _unpack("item", inner[0], names)
        return f"tuple({value})" if item == "item" else f"tuple([{item} for item in {value}])"
    if NoneType in inner:
        unpacked = _unpack(value, inner[0], names)
        return value if unpacked == value else f"None if {value} is None else {unpacked}"
    if not _is_record(hint):
        return value
    names[hint.__name__] = hint
    return f"{hint.__name__}.from_avro({value})"


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


def copy_as(target: type[StructT], source: Struct, /, **fields: Any) -> StructT:
    """Return a struct of another class with the fields that both have; `fields` are given besides, or instead.

    For what follows from a struct and tells the same: the event of a command, the row of a state. What decides about
    rights, such as the author of a change or the options of a run, has its fields named instead.
    """
    copied = {name: getattr(source, name) for name in _common_fields(target, type(source))}
    return target(**(copied | fields))


@cache
def _common_fields(target: type[Struct], source: type[Struct]) -> Sequence[str]:
    return tuple(name for name in target.__struct_fields__ if name in source.__struct_fields__)


__all__ = ["TAG_FIELD", "Record", "Secretive", "Value", "copy_as", "replace"]
