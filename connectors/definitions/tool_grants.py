"""Comparison of grants of tools: names, and beginnings with a star at the end.

After: who may define agents and skills with which tools.
"""

from collections.abc import Iterable

from loomlog.schemas.client_names import visible_name


def covers(granted: Iterable[str], wanted: Iterable[str]) -> tuple[str, ...]:
    """Return the wanted tools that no grant covers. A pattern is covered by the same or a wider one, `*` covers all."""
    patterns = tuple(map(visible_name, granted))
    return tuple(
        tool
        for tool in wanted
        if not any(
            visible_name(tool) == pattern or (pattern.endswith("*") and visible_name(tool).startswith(pattern[:-1]))
            for pattern in patterns
        )
    )
