"""Values of a call's arguments by a JSON path such as `$.invoice.lines[*].amount`."""

from collections.abc import Iterator
from typing import Any

from loomlog.schemas.approval_policy import EVERY, Path

VALUES_MAX = 1_000
"""Most values that a path with `[*]` returns; a longer list is an error, and so fails closed."""


def find_values(arguments: Any, path: Path) -> list[Any]:
    """Return the values at a path; none when there is none. Raises ValueError when there are too many."""
    if EVERY not in path:
        return _find_value(arguments, path)
    values: list[Any] = []
    for value in _walk(arguments, path):
        if len(values) == VALUES_MAX:
            raise ValueError(f"there are more than {VALUES_MAX} values")
        values.append(value)
    return values


def _find_value(value: Any, path: Path) -> list[Any]:
    """Return the value at a path without EVERY, in a list; several times faster than a walk."""
    for step in path:
        if isinstance(step, str):
            if not isinstance(value, dict) or step not in value:
                return []
        elif not isinstance(value, list) or step >= len(value):
            return []
        value = value[step]
    return [value]


def _walk(value: Any, path: Path) -> Iterator[Any]:
    if not path:
        yield value
        return
    step, rest = path[0], path[1:]
    if step == EVERY:
        for entry in value if isinstance(value, list) else ():
            yield from _walk(entry, rest)
    elif isinstance(step, str):
        if isinstance(value, dict) and step in value:
            yield from _walk(value[step], rest)
    elif isinstance(value, list) and step < len(value):
        yield from _walk(value[step], rest)
