"""Ancestors and descendants of a version.

Parents have the same name, in the line itself or in the shared one, so a lineage lies in at most two lines.

Before: queries.py, views.py. After: table.py.
"""

from loomlog.services.families.definition.answers import lineage_row
from loomlog.services.families.definition.query_api import DEPTH_DEFAULT, DEPTH_MAX, DefinitionLineage
from loomlog.services.families.definition.state import Line, Version
from loomlog.services.families.definition.table import SHARED, DefinitionTable

DESCENDANTS_MAX = 500


def ancestors(table: DefinitionTable, line: Line, version: Version, depth: int) -> list[tuple[Line, Version]]:
    """Return the versions that it was made from, nearest first."""
    collected: list[tuple[Line, Version]] = []
    parent = version.parent
    while parent and len(collected) < depth:
        place = table.find(parent)
        if place is None:
            break
        collected.append(place)
        parent = place[1].parent
    return collected


def lineage(table: DefinitionTable, line: Line, version: Version, depth: int = DEPTH_DEFAULT) -> DefinitionLineage:
    """Return root, ancestors (nearest first) and descendants (breadth first) of a version."""
    depth = max(1, min(depth, DEPTH_MAX))
    above = ancestors(table, line, version, depth)
    top = above[-1] if above else (line, version)
    below, is_cut = _descendants(table, line, version, depth)
    return DefinitionLineage(
        root=lineage_row(*top),
        ancestors=[lineage_row(*one) for one in above],
        descendants=[lineage_row(*one) for one in below],
        depth=depth,
        truncated=is_cut or bool(top[1].parent and len(above) == depth),
    )


def _descendants(
    table: DefinitionTable, line: Line, version: Version, depth: int
) -> tuple[list[tuple[Line, Version]], bool]:
    own = [line]
    if line.tenant == SHARED:
        lines = (table.line(line.kind, tenant, line.name) for tenant in table.tenants(line.kind) if tenant != SHARED)
        own += [one for one in lines if one is not None]
    children: dict[str, list[tuple[Line, Version]]] = {}
    for one in own:
        for made in one.versions:
            children.setdefault(made.parent, []).append((one, made))
    collected: list[tuple[Line, Version]] = []
    level = [(line, version)]
    for _ in range(depth):
        level = [child for owner, made in level for child in children.get(owner.id_of(made.number), ())]
        if not level:
            return collected, False
        collected += level
        if len(collected) > DESCENDANTS_MAX:
            return collected[:DESCENDANTS_MAX], True
    return collected, any(children.get(owner.id_of(made.number)) for owner, made in level)
