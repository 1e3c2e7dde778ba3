"""Keys allowed in each place, derived from the types of the model.

The model refuses unknown keys by itself, but cannot report which keys it would have accepted. This module walks the
same types in parallel with a tree: it finds every unknown key, suggests the nearest valid one, and returns the values
without the unknown keys and without keys that have no value (`tools:`), so that one misspelt key does not hide the
other mistakes of a file.

Before: model.py, tree.py. After: load.py; document.py lists the keys of each block.
"""

import types
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from loomlog.connectors.configuration.findings import ConfigurationFinding, did_you_mean
from loomlog.connectors.configuration.tree import KeyPath, MappingNode, Node, ScalarNode, SequenceNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Shape of a value: `keys` for a fixed block, `values` for a mapping, `items` for a list; none for a scalar."""

    keys: Mapping[str, Any] | None = None
    values: Any = None
    items: Any = None


@cache
def infer_shape(hint: Any) -> Shape:
    """Return the shape of a type; of a union, that of its first part that has one."""
    origin = get_origin(hint)
    if origin is Annotated:
        return infer_shape(get_args(hint)[0])
    if origin in (Union, types.UnionType):
        shapes = [infer_shape(part) for part in get_args(hint)]
        return next((shape for shape in shapes if shape != Shape()), Shape())
    if is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint, include_extras=True)
        return Shape(keys={key_of(entry): hints[entry.name] for entry in fields(hint)})
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return Shape(values=get_args(hint)[1])
    if origin is tuple:
        return Shape(items=get_args(hint)[0])
    return Shape()


def key_of(entry: Field[Any]) -> str:
    """Return the key of a field; a field that is named like a word of Python has an underscore behind it."""
    return entry.name.removesuffix("_")


def extract_values(root: MappingNode, hint: Any) -> tuple[dict[str, object], list[ConfigurationFinding]]:
    """Return the values of a tree for the type `hint`, and a finding for every key the type does not have."""
    unknown: list[ConfigurationFinding] = []
    values = _extract_block(root, infer_shape(hint), (), unknown)
    return values, unknown


def iter_paths(node: Node, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the path of every key in a tree, outer ones first."""
    if isinstance(node, MappingNode):
        for key, entry in node.entries.items():
            yield (*path, key)
            yield from iter_paths(entry.node, (*path, key))
    elif isinstance(node, SequenceNode):
        for position, item in enumerate(node.nodes):
            yield from iter_paths(item, (*path, position))


def _extract_block(
    branch: MappingNode, shape: Shape, path: KeyPath, unknown: list[ConfigurationFinding]
) -> dict[str, object]:
    assert shape.keys is not None
    values: dict[str, object] = {}
    for key, entry in branch.entries.items():
        if key not in shape.keys:
            name = format_path((*path, key))
            message = f"{name} is not a known key{did_you_mean(key, shape.keys)}"
            unknown.append(ConfigurationFinding(message=message, file=entry.key_mark.file, line=entry.key_mark.line))
        elif not _is_empty(entry.node) and not _stands_for_nothing(entry.node, shape.keys[key]):
            values[key] = _extract_value(entry.node, shape.keys[key], (*path, key), unknown)
    return values


def _extract_value(node: Node, hint: Any, path: KeyPath, unknown: list[ConfigurationFinding]) -> object:
    shape = infer_shape(hint)
    match node:
        case ScalarNode():
            return node.value
        case SequenceNode():
            return tuple(
                _extract_value(item, shape.items, (*path, position), unknown)
                for position, item in enumerate(node.nodes)
            )
        case MappingNode() if shape.keys is not None:
            return _extract_block(node, shape, path, unknown)
        case MappingNode():
            values: dict[str, object] = {}
            for key, entry in node.entries.items():
                is_empty_block = _is_empty(entry.node) and infer_shape(shape.values).keys is not None
                values[key] = {} if is_empty_block else _extract_value(entry.node, shape.values, (*path, key), unknown)
            return values


def _is_empty(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.value is None


def _stands_for_nothing(node: Node, hint: Any) -> bool:
    """Return whether an empty text clears a field, such as the `tier` of a lower layer: no text is a value of it."""
    return isinstance(node, ScalarNode) and node.value == "" and not _may_be_empty_text(hint)


@cache
def _may_be_empty_text(hint: Any) -> bool:
    """Return whether an empty text is a value of the type: not of words of a closed list, nor of what may be unset."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _may_be_empty_text(get_args(hint)[0])
    if origin is Literal:
        return "" in get_args(hint)
    if origin in (Union, types.UnionType) and types.NoneType in get_args(hint):
        return str in get_args(hint)
    return True


def format_path(path: KeyPath) -> str:
    """Return the path as `agents.reviewer.tools[2]`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text
