"""What values are: immutable, without identity, and as cheap as C makes them.

    Value     states, facts, commands, effects, results: whatever is passed on and kept
    Record    a value with a schema, which the log can hold; schemas/generated has them
    Secretive a value with fields that no text of it shows

A Value is frozen and no object of the cyclic garbage collector (gc=False): what only holds values that were there
before it cannot lie on a cycle. Whatever holds a function or an object that changes is a plain frozen msgspec.Struct.
The tag is the class name in the bytes of a state (services/core/canonical.py). Every class says frozen and kw_only
itself, because type checkers and msgspec read them there.

Not chosen: frozen dataclasses (decision 30).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from msgspec import Struct

if TYPE_CHECKING:  # mypy checks the fields given to dataclasses.replace, also for a Struct
    from dataclasses import replace
else:
    from msgspec.structs import replace

TAG_FIELD = "_"
"""Key under which an object of JSON names its class; no field may be called so."""


class Value(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag=True, tag_field=TAG_FIELD):
    """An immutable value whose fields are values. A copy with some fields changed is `replace(value, field=...)`."""


class Record(Value, frozen=True):
    """A record of the language. `SCHEMA` is the full name of its Avro schema."""

    SCHEMA: ClassVar[str]

    def to_avro(self) -> dict[str, Any]:
        """The fields as the schema has them."""
        raise NotImplementedError

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        """The record with those fields; other keys are ignored."""
        raise NotImplementedError


class Secretive(Value, frozen=True):
    """A value with secrets: neither repr nor a traceback of rich shows the fields named in `SECRETS`."""

    SECRETS: ClassVar[frozenset[str]]

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.__struct_fields__ if name not in self.SECRETS]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"


__all__ = ["TAG_FIELD", "Record", "Secretive", "Value", "replace"]
