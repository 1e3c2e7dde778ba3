"""Values as JSON: checks of what is written, and the reducers that make a new value of an old one. Pure.

Before: operations.py. After: store.py writes the text.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from loomlog.services.core.refusals import Refused
from loomlog.services.families.operation import INTEGER_MAX, json_text


def value_text(value: Any, bytes_max: int) -> str:
    """Return the JSON text of a value. Raises Refused(invalid_value, memory_value_too_large)."""
    text = json_text(value, code="invalid_value")
    size = len(text.encode())
    if size > bytes_max:
        raise Refused("memory_value_too_large", f"value: it has {size} bytes, at most {bytes_max} are kept")
    return text


def parse_value(text: str) -> Any:
    """Return the value of a JSON text; a text that is none, such as that of erased content, as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def incremented(old: Any, delta: Any) -> int | float:
    """Return the number after `incr`; without an old value it is the delta. Raises Refused(invalid_value)."""
    if not _is_number(delta):
        raise Refused("invalid_value", f"delta: expected a finite number, not {str(delta)[:60]}")
    if old is not None and not _is_number(old):
        kind = type(old).__name__
        raise Refused("invalid_value", f"incr: the value of the key is no number but {kind}; set it first")
    total: int | float = (old or 0) + delta
    if not _is_number(total):
        raise Refused("invalid_value", f"incr: {old} and {delta} add up to a number that cannot be kept")
    return total


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= INTEGER_MAX if isinstance(value, int) else math.isfinite(value)


def merged(old: Any, new: Any) -> dict[str, Any]:
    """Return an object with the fields of both; of nested objects too, everything else is replaced.

    Raises Refused(invalid_value).
    """
    if not isinstance(new, Mapping):
        raise Refused("invalid_value", f"value: merge takes an object, not {type(new).__name__}")
    if old is not None and not isinstance(old, Mapping):
        raise Refused("invalid_value", f"merge: the value of the key is no object but {type(old).__name__}")
    return _merge(old or {}, new)


def _merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(old)
    for name, value in new.items():
        before = result.get(name)
        result[name] = _merge(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return result


def appended(old: Any, item: Any) -> tuple[list[Any], bool]:
    """Return the list with the item at its end, and whether it was added: it is not when an equal one is in the list.

    Raises Refused(invalid_value).
    """
    items = _list_of(old, "append_dedupe")
    known = {_canonical(one) for one in items}
    return (items, False) if _canonical(item) in known else ([*items, item], True)


def bounded(old: Any, item: Any, limit: int) -> tuple[list[Any], int]:
    """Return the list with the item at its end and at most `limit` items, and how many of the first were dropped.

    Raises Refused(invalid_value).
    """
    items = [*_list_of(old, "bounded_list"), item]
    return items[-limit:], max(0, len(items) - limit)


def _list_of(old: Any, op: str) -> list[Any]:
    if old is None:
        return []
    if not isinstance(old, list):
        raise Refused("invalid_value", f"{op}: the value of the key is no list but {type(old).__name__}")
    return old


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
