"""Checks of the fields of operations: each returns the value or raises Refused(bad_request).

Before: the handlers of operations. After: nothing.
"""

from collections.abc import Mapping
from typing import Any

from loomlog.services.core.refusals import Refused
from loomlog.services.families.operation import whole_number


def refuse(message: str) -> Refused:
    """Return the refusal of a field."""
    return Refused("bad_request", message)


def text_field(fields: Mapping[str, Any], name: str, *, default: str | None = None) -> str:
    """Return a text; without a default it is required and not empty."""
    value = fields.get(name, default)
    if not isinstance(value, str) or (default is None and not value):
        problem = "it is missing" if value is None else f"not {type(value).__name__}" if value != "" else "it is empty"
        raise refuse(f"{name}: expected text; {problem}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise refuse(f"{name}: it has half a surrogate pair, which is no character") from None
    if "\0" in value:
        raise refuse(f"{name}: it has the character NUL, which no store takes")
    return value


def integer_field(fields: Mapping[str, Any], name: str, *, default: int | None, least: int, most: int) -> int:
    """Return a whole number within the bounds; 3.0 is one, as in JSON Schema."""
    return whole_number(name, fields.get(name, default), least=least, most=most, code="bad_request")


def flag_field(fields: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """Return true or false."""
    value = fields.get(name, default)
    if not isinstance(value, bool):
        raise refuse(f"{name}: expected true or false, not {str(value)[:60]}")
    return value
