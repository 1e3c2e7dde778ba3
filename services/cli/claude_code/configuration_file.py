"""Entries put into a configuration file without touching the rest of its text: comments, order and style stay.

Entries are inserted at the end of their block, or replace an entry of the same name. Positions come from PyYAML's
marks. The new text is read again and compared with what it should say, so a form of YAML that is not foreseen ends in a
refusal and never in a changed file. Not chosen: a round-trip library (one more dependency).

Before: command.py. After: loomlog.connectors.configuration.tree.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

import yaml

from loomlog.connectors.configuration.layers import MAX_FILE_BYTES
from loomlog.connectors.configuration.tree import parse_scalar, read_tree, to_plain
from loomlog.services.cli.claude_code.entries import Entry

INDENT = 2
LINE_WIDTH = 120
_REFERENCE = re.compile(r"\$\{([A-Z_][A-Z0-9_]*)\}")
_PRINTABLE = re.compile(r"[\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]*")
"""Text that may be written as it is: no line breaks other than the line feed, nothing that needs an escape."""


def read_plain(text: str, file: str) -> dict[str, Any]:
    """Return the mapping of a YAML document: dicts, tuples and scalars, references to the environment as written.

    Raises ValueError with the first mistake.
    """
    parsed = read_tree(text, file=file, environ=references_as_written(text))
    if parsed.errors:
        raise ValueError(str(parsed.errors[0]))
    plain = to_plain(parsed.root)
    assert isinstance(plain, dict)
    return plain


def references_as_written(text: str) -> dict[str, str]:
    """Return an environment in which each reference of `text` stands for itself."""
    return {name: f"${{{name}}}" for name in _REFERENCE.findall(text)}


def put_entries(text: str, entries: Sequence[Entry], *, file: str) -> str:
    """Return the text of the file with the entries; those it has already are replaced.

    Raises ValueError when the file has a form that cannot be edited.
    """
    blocks: dict[str, list[Entry]] = {}
    for entry in entries:
        blocks.setdefault(entry.block, []).append(entry)
    expected = read_plain(text, file)
    for block, group in blocks.items():
        expected[block] = {**mapping_of(expected, block), **{entry.name: entry.value for entry in group}}
    newline = "\r\n" if "\r\n" in text else "\n"
    edits = enumerate(_Edits(text, file).of_blocks(blocks))
    for _, (start, end, replacement) in sorted(edits, key=lambda edit: (edit[1][0], edit[0]), reverse=True):
        text = text[:start] + replacement.replace("\n", newline) + text[end:]
    if (size_bytes := len(text.encode())) > MAX_FILE_BYTES:
        raise ValueError(f"{file} would have {size_bytes} bytes; at most {MAX_FILE_BYTES} are read")
    if not _says(text, expected):
        raise ValueError(f"{file} is written in a form that cannot be edited; import into another file (--diff FILE)")
    return text


def size_of(entry: Entry) -> int:
    """Return about how many bytes an entry takes in a file."""
    return len(_render([entry], INDENT).encode())


def mapping_of(configuration: Mapping[str, Any], block: str) -> Mapping[str, Any]:
    """Return a block of a configuration; empty when it is missing or no mapping."""
    value = configuration.get(block)
    return value if isinstance(value, dict) else {}


def _says(text: str, expected: Mapping[str, Any]) -> bool:
    try:
        return read_plain(text, "") == expected
    except ValueError:
        return False


class _Edits:
    """Replacements (start, end, text) of parts of a file."""

    def __init__(self, text: str, file: str) -> None:
        self._text = text
        self._file = file
        self._root = yaml.compose(text, yaml.SafeLoader)
        tokens = yaml.scan(text, yaml.SafeLoader)
        self._ends: list[int] = [one.end_mark.index for one in tokens if one.end_mark.index > one.start_mark.index]

    def of_blocks(self, blocks: Mapping[str, Sequence[Entry]]) -> list[tuple[int, int, str]]:
        if self._root is None or _is_null(self._root):
            return [self._insertion(len(self._text), self._new_blocks(blocks, 0))]
        if not _is_block(self._root):
            raise ValueError(f"{self._file}: expected blocks, each beginning with a line such as `agents:`")
        children = _Children(self._root)
        edits: list[tuple[int, int, str]] = []
        for block in blocks.keys() & children.positions.keys():
            edits += self._of_block(children, block, blocks[block])
        missing = {block: entries for block, entries in blocks.items() if block not in children.positions}
        if missing:
            end = self._root.end_mark.index
            edits.append(self._insertion(end, self._new_blocks(missing, self._root.start_mark.column)))
        return edits

    def _new_blocks(self, blocks: Mapping[str, Sequence[Entry]], column: int) -> str:
        texts = [f"{' ' * column}{block}:\n{_render(entries, column + INDENT)}" for block, entries in blocks.items()]
        return ("\n" if self._text.strip() else "") + "\n".join(texts)

    def _of_block(self, parents: "_Children", block: str, entries: Sequence[Entry]) -> list[tuple[int, int, str]]:
        key, value, limit = parents.positions[block]
        end = self._content_end(limit)
        if _is_null(value) or (isinstance(value, yaml.MappingNode) and not value.value):
            below = _render(entries, key.start_mark.column + INDENT)
            return [(key.end_mark.index, end, ":"), self._insertion(self._line_end(end), below)]
        if not _is_block(value) or value.start_mark.index < key.end_mark.index:
            line = key.start_mark.line + 1
            raise ValueError(f"{self._file}:{line}: {block} is not written as a block of indented lines; write it so")
        children = _Children(value)
        column = value.value[0][0].start_mark.column
        edits = []
        for entry in entries:
            if entry.name in children.positions:
                old_key, _, old_limit = children.positions[entry.name]
                start = old_key.start_mark.index - column
                edits.append((start, self._line_end(self._content_end(old_limit)), _render([entry], column)))
        new = [entry for entry in entries if entry.name not in children.positions]
        return [*edits, self._insertion(self._line_end(end), _render(new, column))] if new else edits

    def _content_end(self, limit: int) -> int:
        """Return where the last token before `limit` ends."""
        return self._ends[bisect_right(self._ends, limit) - 1]

    def _line_end(self, position: int) -> int:
        """Return the beginning of the line after the one that `position` is in or has just ended."""
        if position and self._text[position - 1] == "\n":
            return position
        end = self._text.find("\n", position)
        return len(self._text) if end < 0 else end + 1

    def _insertion(self, position: int, text: str) -> tuple[int, int, str]:
        is_line = not position or self._text[position - 1] == "\n"
        return position, position, text if is_line else "\n" + text


class _Children:
    """Keys of a mapping by name: key, value, and where the next key or the end of the mapping is."""

    def __init__(self, mapping: yaml.MappingNode) -> None:
        keys = [key for key, _ in mapping.value]
        limits = [*(key.start_mark.index for key in keys[1:]), mapping.end_mark.index]
        self.positions = {
            key.value: (key, value, limit) for (key, value), limit in zip(mapping.value, limits, strict=True)
        }


def _is_block(node: yaml.Node) -> TypeGuard[yaml.MappingNode]:
    return isinstance(node, yaml.MappingNode) and not node.flow_style and bool(node.value)


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None and parse_scalar(node.value) is None


def _render(entries: Iterable[Entry], column: int) -> str:
    """Return the lines of entries of a block, indented by `column`."""
    lines: list[str] = []
    for entry in entries:
        lines += dump_yaml({entry.name: None}).removesuffix(" null\n").split("\n")
        lines += [" " * INDENT + f"# {comment}" for comment in (f"from {entry.source}", *entry.comments)]
        for key, value in entry.value.items():
            lines += [" " * INDENT + line if line else "" for line in _render_field(key, value)]
    return "".join(" " * column + line + "\n" if line else "\n" for line in lines)


def _render_field(key: str, value: Any) -> list[str]:
    if isinstance(value, str) and "\n" in value.lstrip("\n") and _PRINTABLE.fullmatch(value):
        content = value.rstrip("\n")
        trailing = len(value) - len(content)
        sign = str(INDENT) if content[:1] in (" ", "\n", "\t") else ""
        chomping = "-" if not trailing else "" if trailing == 1 else "+"
        body = [" " * INDENT + line if line else "" for line in value.removesuffix("\n").split("\n")]
        return [f"{key}: |{sign}{chomping}", *body]
    return dump_yaml({key: value}).removesuffix("\n").split("\n")


def dump_yaml(value: Any) -> str:
    """Return the value as YAML whose texts read back as texts, with lists on one line."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=LINE_WIDTH)
    return text


class _Dumper(yaml.SafeDumper):
    """Writer whose plain scalars read back as text also by the rules of YAML 1.2, with lists on one line."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = None if isinstance(parse_scalar(text), str) and _PRINTABLE.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_list(dumper: yaml.SafeDumper, items: Sequence[Any]) -> yaml.Node:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(tuple, _represent_list)
