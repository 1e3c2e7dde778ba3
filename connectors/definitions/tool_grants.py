"""Comparison of grants of tools: names, and beginnings with a star at the end.

After: who may define agents and skills with which tools.
"""

from collections.abc import Iterable

from loomlog.schemas.client_names import visible_name


def covers(granted: Iterable[str], requested: Iterable[str]) -> tuple[str, ...]:
    """Return the requested tools that no grant covers. The same or a wider pattern covers a pattern; `*` covers all."""
    patterns = tuple(map(visible_name, granted))
    return tuple(
        tool
        for tool in requested
        if not any(
            visible_name(tool) == pattern or (pattern.endswith("*") and visible_name(tool).startswith(pattern[:-1]))
            for pattern in patterns
        )
    )
