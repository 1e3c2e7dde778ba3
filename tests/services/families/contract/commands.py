"""Commands of a family, generated from the types of the fields of their records."""

import json
import types
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from msgspec import NODEFAULT, Struct
from msgspec.structs import fields as struct_fields

from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.records import Record, replace
from loomlog.services.core.families import Command, Family
from loomlog.services.stream.encryption.content_fields import has_content

LONG = 2**63 - 1
TEXTS = st.one_of(
    st.sampled_from(("", "hits", "misses", "a/b", "ada")),
    st.text(st.characters(codec="utf-8"), max_size=12),
)
NUMBERS = st.one_of(st.integers(-2, 9), st.sampled_from((LONG, -LONG - 1)), st.integers(-LONG - 1, LONG))
SHORT = 3
"""Elements of a sequence or a mapping at most."""


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a type."""
    origin, parameters = get_origin(kind), get_args(kind)
    if kind is str:
        return TEXTS
    if kind is bool:
        return st.booleans()
    if kind is int:
        return NUMBERS
    if kind is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if kind is bytes:
        return st.binary(max_size=20)
    if kind is type(None):
        return st.none()
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values_of, parameters))
    if origin in (tuple, list, Sequence):
        made = st.lists(values_of(parameters[0]), max_size=SHORT)
        return made if origin is list else made.map(tuple)
    if origin in (dict, Mapping):
        return st.dictionaries(*map(values_of, parameters[:2]), max_size=SHORT)
    if isinstance(kind, type) and issubclass(kind, Struct):
        return st.builds(kind, **{name: values_of(hint) for name, hint in _hints(kind).items()})
    raise TypeError(f"no values of the type {kind} can be generated: register examples, or add it here")


def _hints(record: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(record)
    return {name: hints[name] for name in record.__struct_fields__ if get_origin(hints[name]) is not ClassVar}


def commands_of(family: Family[Any, Any, Any], envelope: CommandEnvelope) -> st.SearchStrategy[Any]:
    """Return a strategy for the commands of a family, all with that envelope."""

    def of(row: Command[Any]) -> st.SearchStrategy[Any]:
        hints = {name: hint for name, hint in _hints(row.record).items() if name != "envelope"}
        made = st.builds(row.record, envelope=st.just(envelope), **{name: values_of(h) for name, h in hints.items()})
        return made.filter(lambda command: 0 < len(row.aggregate(command)) <= 100)

    return st.one_of(*map(of, family.commands))


def plain_commands(family: Family[Any, Any, Any], envelope: CommandEnvelope) -> list[Any]:
    """Return one plain command of each kind: fields with defaults have them."""
    return [plain_value(row.record, envelope=envelope) for row in family.commands]


def plain_value(kind: Any, **fields: Any) -> Any:
    """Return the plainest value of a type that is something."""
    origin, parameters = get_origin(kind), get_args(kind)
    if kind in (str, int, bool, float, bytes):
        return {str: "hits", int: 1, bool: True, float: 1.0, bytes: b"x"}[kind]
    if origin in (Union, types.UnionType):
        return plain_value(next(one for one in parameters if one is not type(None)))
    if origin in (tuple, list, Sequence):
        return (plain_value(parameters[0]),)
    if origin in (dict, Mapping):
        return {plain_value(parameters[0]): plain_value(parameters[1])}
    hints = _hints(kind)
    needed = [field.name for field in struct_fields(kind) if field.default is NODEFAULT and field.name not in fields]
    return kind(**{name: plain_value(hints[name]) for name in needed if name in hints}, **fields)


def with_texts(family: Family[Any, Any, Any], command: Any, text: str) -> Any:
    """Return the command with that text in each of its texts that does not choose the aggregate."""
    row = next(row for row in family.commands if row.record is type(command))
    for name, hint in _hints(type(command)).items():
        if hint is str:
            changed = replace(command, **{name: text})
            if row.aggregate(changed) == row.aggregate(command):
                command = changed
    return command


def with_content(family: Family[Any, Any, Any], command: Any, text: str) -> Any:
    """Return the command with that text in each of its texts that the schemas class as user content, in the records
    that it holds too; unchanged when its content has no subject.
    """
    if not has_content(type(command)) or family.content_subject(command) is None:
        return command
    return planted(command, text)


def planted(record: Any, text: str) -> Any:
    """Return the record with that text in each of its texts of user content."""
    changes: dict[str, Any] = {}
    for name, hint in _hints(type(record)).items():
        form = type(record).CONTENT.get(name)
        if form is not None:
            hook = json.dumps({"kind": "http", "on": "any", "url": f"https://a.example/{text}", "payload": {"k": text}})
            changes[name] = _filled(hint, hook if form == "hook" else text)
        elif name != "envelope" and any(map(has_content, _records_in(hint))):
            value = getattr(record, name) or plain_value(hint)
            is_one = isinstance(value, Struct)
            changes[name] = planted(value, text) if is_one else tuple(planted(one, text) for one in value)
    return replace(record, **changes)


def _filled(hint: Any, text: str) -> Any:
    origin = get_origin(hint)
    return {"k": text} if origin in (dict, Mapping) else (text,) if origin is tuple else text


def _records_in(hint: Any) -> list[type[Record]]:
    if isinstance(hint, type) and issubclass(hint, Record):
        return [hint]
    return [one for part in get_args(hint) for one in _records_in(part)]
