"""Differences of two contents, field by field.

After: the diff of versions, over HTTP and on the command line.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from difflib import unified_diff
from typing import Any

from loomlog.connectors.definitions.canonical import join_path
from loomlog.connectors.definitions.kind import Kind

LONG_TEXT = 120
"""Characters from which a text is compared by lines."""
MAX_COMPARED_LINES = 1_000
"""Changed lines of a text that are aligned; the time of difflib grows with their square. Longer changes are shown as
all old lines, then all new ones."""
CONTEXT_LINES = 3
_HUNK = re.compile(r"^@@ -(\d+)(,\d+)? \+(\d+)")


def diff(kind: Kind, one: Mapping[str, Any], other: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the differing fields in the order of the kind, each as `{field, before, after}`, or `{field, diff}` with
    the lines of a unified diff for long texts. An absent field is None.
    """
    return [
        entry
        for field in fields(kind.block)
        for entry in _compare(field.name, one.get(field.name), other.get(field.name))
    ]


def _compare(path: str, before: Any, after: Any) -> Iterator[dict[str, Any]]:
    if before == after and type(before) is type(after):
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys((*before, *after)):
            yield from _compare(join_path(path, key), before.get(key), after.get(key))
    elif _are_objects(before) and _are_objects(after):
        for position in range(max(len(before), len(after))):
            yield from _compare(join_path(path, position), _item(before, position), _item(after, position))
    elif isinstance(before, str) and isinstance(after, str) and (_is_long(before) or _is_long(after)):
        yield {"field": path, "diff": _compare_lines(before.split("\n"), after.split("\n"))}
    else:
        yield {"field": path, "before": before, "after": after}


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _item(items: list[Any], position: int) -> Any:
    return items[position] if position < len(items) else None


def _is_long(text: str) -> bool:
    return len(text) > LONG_TEXT or "\n" in text


def _compare_lines(before: list[str], after: list[str]) -> list[str]:
    """Return the hunks of a unified diff. Equal beginnings and ends are set aside, so only changes are aligned."""
    shorter = min(len(before), len(after))
    start = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    end = next((at for at in range(shorter - start) if before[-1 - at] != after[-1 - at]), shorter - start)
    if max(len(before), len(after)) - start - end > MAX_COMPARED_LINES:
        removed, added = before[start : len(before) - end], after[start : len(after) - end]
        header = f"@@ -{start + 1},{len(removed)} +{start + 1},{len(added)} @@"
        return [header, *(f"-{line}" for line in removed), *(f"+{line}" for line in added)]
    first, last = max(0, start - CONTEXT_LINES), max(0, end - CONTEXT_LINES)
    hunks = unified_diff(before[first : len(before) - last], after[first : len(after) - last], lineterm="")
    return [
        _HUNK.sub(lambda header: f"@@ -{int(header[1]) + first}{header[2] or ''} +{int(header[3]) + first}", line)
        for line in [*hunks][2:]
    ]
