"""JSON text as the reference writes it, because its hashes are hashes of that text.

Differences from other writers of JSON: < > & and U+2028, U+2029 are escaped, a number without a fraction has no point,
and numbers below 1e-6 or from 1e21 on have an exponent of as few digits as possible. Keys keep the order they are given
in; the caller orders them.

After: kind.py hashes the text.
"""

import json
import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

_ESCAPES = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})


def encode(value: Any) -> str:
    """Return the text of a JSON value."""
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False).translate(_ESCAPES)
        case float():
            return _format_float(value)
        case Mapping():
            return "{" + ",".join(f"{encode(key)}:{encode(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(map(encode, value)) + "]"
        case _:
            return json.dumps(value)


def select_set(content: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """Return the fields that are neither absent nor empty, in the order of `fields`."""
    return {name: content[name] for name in fields if content.get(name)}


def select_given(content: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """Return the fields that are there, also those that are false or 0, in the order of `fields`; no empty lists."""
    return {name: content[name] for name in fields if name in content and content[name] != []}


def sort_keys(value: Any) -> Any:
    """Return the value with the keys of all its objects in alphabetical order."""
    if isinstance(value, Mapping):
        return {key: sort_keys(value[key]) for key in sorted(value)}
    return [sort_keys(item) for item in value] if isinstance(value, list) else value


def _format_float(value: float) -> str:
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    number = Decimal(repr(value)).normalize()
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int), "a definition has finite numbers only"
    magnitude = len(digits) + exponent - 1
    if -6 <= magnitude < 21:
        return format(number, "f")
    first, rest = str(digits[0]), "".join(map(str, digits[1:]))
    return f"{'-' * sign}{first}{'.' * bool(rest)}{rest}e{magnitude:+d}"
