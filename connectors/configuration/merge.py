"""Laying one layer of configuration over another.

    mapping over mapping       key by key, recursively
    scalar or list             the upper one replaces the lower one
    !prepend / !append list    upper items go before / after the lower list; one named again moves to its new place
    nothing (`key:`)           says nothing: the lower one stays

Laws (property-tested): an empty layer changes nothing on either side, and merging is associative, so it does not matter
whether a bundle was merged before it was shipped. To keep the second law, an edit over an edit stays an edit until a
list is found below it. It holds for layers that agree on what is a mapping; those that do not are never valid.

An upper layer that changes a value the lower one had is an override: reported with both places, because in a stack of
files that is usually an accident. Edits with !prepend and !append are intentions, not overrides.

Before: tree.py. After: load.py.
"""

from dataclasses import replace

from loomlog.connectors.configuration.findings import Finding
from loomlog.connectors.configuration.tree import Branch, Entry, Items, Leaf, Mark, Node, Path, plain


def merge(lower: Branch, upper: Branch) -> tuple[Branch, list[Finding]]:
    """The two layers as one, and a finding for each value of `lower` that `upper` changes."""
    overrides: list[Finding] = []
    merged = _over(lower, upper, (), overrides)
    assert isinstance(merged, Branch)
    return merged, overrides


def _over(lower: Node, upper: Node, path: Path, overrides: list[Finding]) -> Node:
    if isinstance(upper, Leaf) and upper.value is None:
        return lower
    if isinstance(lower, Leaf) and lower.value is None:
        return upper
    match lower, upper:
        case Branch(), Branch():
            entries = dict(lower.entries)
            for key, entry in upper.entries.items():
                if key in entries:
                    node = _over(entries[key].node, entry.node, (*path, key), overrides)
                    said_here = not (isinstance(entry.node, Leaf) and entry.node.value is None)
                    entries[key] = Entry(key_mark=entry.key_mark if said_here else entries[key].key_mark, node=node)
                else:
                    entries[key] = entry
            return Branch(entries=entries, mark=lower.mark)
        case Items(), Items() if upper.base is None:
            return _edited(lower, upper)
    if plain(lower) != plain(upper):
        overrides.append(_override(path, lower.mark, upper.mark))
    if isinstance(upper, Items) and upper.base is None:
        return replace(upper, base=())
    return upper


def _edited(lower: Items, edit: Items) -> Items:
    """`edit` applied to a list, or put on top of another edit; an item takes the place that was said last."""
    moved = [plain(node) for node in (*edit.before, *edit.after)]

    def without_moved(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(node for node in nodes if plain(node) not in moved)

    return Items(
        mark=edit.mark,
        before=(*edit.before, *without_moved(lower.before)),
        base=None if lower.base is None else without_moved(lower.base),
        after=(*without_moved(lower.after), *edit.after),
    )


def _override(path: Path, lower: Mark, upper: Mark) -> Finding:
    name = ".".join(str(step) for step in path)
    return Finding(message=f"{name} overrides the value in {lower.file}:{lower.line}", file=upper.file, line=upper.line)
