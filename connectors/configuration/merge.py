"""Merge of two layers of configuration.

    mapping over mapping       key by key, recursively
    scalar or list             the upper one replaces the lower one
    !prepend / !append list    upper items go before / after the lower list; a repeated item moves to its new place
    nothing (`key:`)           no value: the lower one stays

Laws (property-tested): an empty layer changes nothing on either side, and merging is associative, so it does not matter
whether a bundle was merged before it was shipped. To keep the second law, an edit over an edit stays an edit until a
list is found below it. It holds for layers that agree on what is a mapping; those that do not are never valid.

An upper layer that changes a value of the lower one is an override: reported with both places, because in a stack of
files that is usually an accident. Edits with !prepend and !append are intentional and not overrides.

Before: tree.py. After: load.py.
"""

from dataclasses import replace

from loomlog.connectors.configuration.findings import ConfigurationFinding
from loomlog.connectors.configuration.tree import (
    KeyPath,
    MappingEntry,
    MappingNode,
    Mark,
    Node,
    ScalarNode,
    SequenceNode,
    to_plain,
)


def merge(lower: MappingNode, upper: MappingNode) -> tuple[MappingNode, list[ConfigurationFinding]]:
    """Merge the two layers; return the result and a finding for each value of `lower` that `upper` changes."""
    overrides: list[ConfigurationFinding] = []
    merged = _merge_nodes(lower, upper, (), overrides)
    assert isinstance(merged, MappingNode)
    return merged, overrides


def _merge_nodes(lower: Node, upper: Node, path: KeyPath, overrides: list[ConfigurationFinding]) -> Node:
    if isinstance(upper, ScalarNode) and upper.value is None:
        return lower
    if isinstance(lower, ScalarNode) and lower.value is None:
        return upper
    match lower, upper:
        case MappingNode(), MappingNode():
            entries = dict(lower.entries)
            for key, entry in upper.entries.items():
                if key in entries:
                    node = _merge_nodes(entries[key].node, entry.node, (*path, key), overrides)
                    said_here = not (isinstance(entry.node, ScalarNode) and entry.node.value is None)
                    entries[key] = MappingEntry(
                        key_mark=entry.key_mark if said_here else entries[key].key_mark, node=node
                    )
                else:
                    entries[key] = entry
            return MappingNode(entries=entries, mark=lower.mark)
        case SequenceNode(), SequenceNode() if upper.base is None:
            return _apply_edit(lower, upper)
    if to_plain(lower) != to_plain(upper):
        overrides.append(_build_override(path, lower.mark, upper.mark))
    if isinstance(upper, SequenceNode) and upper.base is None:
        return replace(upper, base=())
    return upper


def _apply_edit(lower: SequenceNode, edit: SequenceNode) -> SequenceNode:
    """Apply `edit` to a list or to another edit; the last place given for an item wins."""
    moved = [to_plain(node) for node in (*edit.before, *edit.after)]

    def without_moved(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(node for node in nodes if to_plain(node) not in moved)

    return SequenceNode(
        mark=edit.mark,
        before=(*edit.before, *without_moved(lower.before)),
        base=None if lower.base is None else without_moved(lower.base),
        after=(*without_moved(lower.after), *edit.after),
    )


def _build_override(path: KeyPath, lower: Mark, upper: Mark) -> ConfigurationFinding:
    name = ".".join(str(step) for step in path)
    return ConfigurationFinding(
        message=f"{name} overrides the value in {lower.file}:{lower.line}", file=upper.file, line=upper.line
    )
