"""Records in answers: an annotation with which the OpenAPI document has a record's fields.

    definition: Annotated[JsonObject, RecordJson(AgentDefinition)]

`to_avro` of the record writes the object, so a class with the same fields by hand would only be one more copy.

Before: json_types.py. After: services/api/openapi.py, through pydantic.
"""

from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

from typing_extensions import TypedDict

from loomlog.schemas.records import Record


@dataclass(frozen=True, slots=True)
class RecordJson:
    """Annotates an object as the JSON of a record, as its `to_avro` returns it."""

    record: type[Record]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return handler.generate_schema(typed_dict_of(self.record))


@cache
def typed_dict_of(record: type[Record]) -> Any:
    """Return a TypedDict with the fields of a record, all required, and its name and description."""
    hints = {name: hint for name, hint in get_type_hints(record).items() if get_origin(hint) is not ClassVar}
    made: Any = TypedDict(record.__name__, {name: _json_type(hint) for name, hint in hints.items()})  # type: ignore[misc]  # not literal: made from the record
    made.__doc__ = record.__doc__
    return made


def _json_type(hint: Any) -> Any:
    arguments = tuple(_json_type(argument) for argument in get_args(hint) if argument is not ...)
    match get_origin(hint):
        case origin if origin is tuple:
            return list[arguments[0]]  # type: ignore[valid-type]  # a value, from the record
        case origin if origin in (Union, UnionType):
            return reduce(or_, arguments)
        case None:
            return typed_dict_of(hint) if issubclass(hint, Record) else hint
        case origin:
            return origin[arguments]
