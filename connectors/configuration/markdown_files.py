"""Markdown files that begin with a YAML frontmatter, and the folders that hold them.

    ---
    description: Reviews code
    ---
    You review code.

A frontmatter is read as configuration files are: with positions, bounds and expansion of `${NAME}`. The body is taken
as it is, without blank lines around it. A file without a frontmatter is all body.

Before: tree.py. After: agent_files.py, skill_files.py.
"""

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from loomlog.connectors.configuration.findings import ConfigurationError, ConfigurationFinding, join_words
from loomlog.connectors.configuration.storable_text import describe_text_problem
from loomlog.connectors.configuration.tree import (
    NOT_YAML,
    MappingEntry,
    MappingNode,
    Mark,
    Node,
    ParsedFile,
    ScalarNode,
    SequenceNode,
    read_document,
    read_tree,
)

FENCE = "---"
FRONTMATTER = "the frontmatter"
_KEY_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*):(?=\s|\Z)\s*(.*)")
MAX_PATHS = 50_000
"""Paths in a folder of definitions; more means that the setting names the wrong folder."""
MAX_DEFINITIONS = 5_000
"""Agents or skills in a folder."""
MAX_PATHS_NAMED = 5
"""Paths that one warning repeats."""


@dataclass(slots=True, kw_only=True)
class DefinitionFiles:
    """Definitions of a folder, by name, as entries of a block of the configuration."""

    entries: dict[str, MappingEntry] = field(default_factory=dict)
    folders: dict[str, Path] = field(default_factory=dict)
    """Folder of each file that was read, by the name that marks and findings give it."""
    errors: list[ConfigurationFinding] = field(default_factory=list)
    warnings: list[ConfigurationFinding] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    """Environment names that the files expand."""

    def add(self, name: str, reading: ParsedFile, folder: Path) -> None:
        """Add one definition with the findings about it."""
        mark = Mark(file=reading.root.mark.file, line=1)
        self.entries[name] = MappingEntry(key_mark=mark, node=reading.root)
        self.folders[mark.file] = folder
        self.errors += reading.errors
        self.warnings += reading.warnings
        self.names |= reading.names


def read_markdown(
    text: str, *, file: str, environ: Mapping[str, str], keys: Collection[str] = ()
) -> tuple[ParsedFile, ScalarNode]:
    """Return the frontmatter and the body. Mistakes are in the errors of the frontmatter.

    `keys`: a frontmatter that is not YAML is read line by line, with a warning: a line that begins with one of these
    keys is that key, all others belong to the key before them. Other programs accept such files.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != FENCE:
        empty = ParsedFile(root=MappingNode(entries={}, mark=Mark(file=file, line=1)))
        return empty, _build_body(lines, 0, file)
    closing = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == FENCE), None)
    if closing is None:
        reading = ParsedFile(root=MappingNode(entries={}, mark=Mark(file=file, line=1)))
        message = f"the frontmatter has no closing line {FENCE}"
        reading.errors.append(ConfigurationFinding(message=message, file=file, line=1))
        return reading, _build_body([], 0, file)
    # The fence becomes an empty line, so that positions are those of the file.
    head = "\n".join(["", *lines[1:closing]])
    reading = read_tree(head, file=file, environ=environ, expected="a mapping of keys in the frontmatter")
    is_yaml = not any(error.message.startswith(NOT_YAML) for error in reading.errors)
    if not is_yaml and (by_line := _read_lines(lines[1:closing], keys, file, environ)) is not None:
        first = reading.errors[0]
        message = f"is not YAML, so read line by line (line {first.line}: {first.message})"
        by_line.warnings.insert(0, ConfigurationFinding(message=f"{FRONTMATTER} {message}", file=file, line=first.line))
        reading = by_line
    return reading, _build_body(lines[closing + 1 :], closing + 1, file)


def _read_lines(
    lines: Sequence[str], keys: Collection[str], file: str, environ: Mapping[str, str]
) -> ParsedFile | None:
    """Return a frontmatter whose keys begin lines; None when it does not begin with one of them."""
    reading = ParsedFile(root=MappingNode(entries={}, mark=Mark(file=file, line=1)))
    values: dict[str, tuple[int, list[str]]] = {}
    for number, line in enumerate(lines, 2):
        match = _KEY_LINE.match(line)
        if match is not None and match[1] in keys and match[1] not in values:
            values[match[1]] = (number, [match[2]])
        elif values:
            values[list(values)[-1]][1].append(line)
        elif line.strip():
            return None
    entries: dict[str, MappingEntry] = {}
    for key, (number, texts) in values.items():
        mark = Mark(file=file, line=number)
        text = "\n".join(texts).strip()
        parsed, node = read_document(text, file=file, environ=environ)
        if parsed.errors or isinstance(node, MappingNode) or "\n" in text:
            # As it is written, with what a file may expand.
            parsed, node = read_document(json.dumps(text), file=file, environ=environ)
        reading.errors += [replace(error, line=number) for error in parsed.errors]
        reading.names |= parsed.names
        entries[key] = MappingEntry(key_mark=mark, node=replace(node, mark=mark))
    reading.root = MappingNode(entries=entries, mark=reading.root.mark)
    return reading if entries else None


def _build_body(lines: list[str], first: int, file: str) -> ScalarNode:
    blank = next((count for count, line in enumerate(lines) if line.strip()), 0)
    return ScalarNode(value="\n".join(lines[blank:]).rstrip(), mark=Mark(file=file, line=first + blank + 1))


def split_words(node: Node) -> Node:
    """Return a list that is written as text with commas or blanks between as a list; other nodes as they are.

    Blanks in parentheses do not separate.
    """
    if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
        return node
    words: list[str] = [""]
    depth = 0
    for char in node.value:
        depth += (char == "(") - (char == ")" and depth > 0)
        if depth == 0 and (char == "," or char.isspace()):
            words.append("")
        else:
            words[-1] += char
    return SequenceNode(base=tuple(ScalarNode(value=word, mark=node.mark) for word in words if word), mark=node.mark)


def take_name(reading: ParsedFile, name: str) -> None:
    """Remove `name` from a frontmatter; it must be the name that the file has by its path."""
    entries = dict(reading.root.entries)
    entry = entries.pop("name", None)
    if entry is not None:
        value = entry.node.value if isinstance(entry.node, ScalarNode) else None
        if value is not None and value != name:
            message = f"name: {value!r} is not the name by the path of the file, which is {name!r}; leave name out"
            reading.errors.append(
                ConfigurationFinding(message=message, file=entry.key_mark.file, line=entry.key_mark.line)
            )
    reading.root = MappingNode(entries=entries, mark=reading.root.mark)


def read_text(path: Path, max_bytes: int) -> str:
    """Return the text of a file. Raises ValueError, naming the problem."""
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}") from error
    if len(data) > max_bytes:
        raise ValueError(f"it has more than {max_bytes} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8: {error.reason} at byte {error.start}") from error
    if problem := describe_text_problem(text):
        raise ValueError(f"it is no text: {problem}")
    return text


def iter_files(root: Path, setting: str, warnings: list[ConfigurationFinding]) -> Iterator[tuple[Path, list[str]]]:
    """Yield each folder below `root`, itself first, with the names of its files, in order.

    Hidden files and folders are left out, and with a warning links that lead out of `root`. Raises ConfigurationError
    when there is no such folder, or too much in it.
    """
    if not root.is_dir():
        raise ConfigurationError([ConfigurationFinding(message=f"{setting}: there is no folder {root}")])
    unreadable: list[OSError] = []
    count = 0
    # Links to folders are followed: that is how an orchestrator mounts files.
    for folder, folders, files in os.walk(root, onerror=unreadable.append, followlinks=True):
        count += len(folders) + len(files)
        if count > MAX_PATHS:
            message = f"{setting}: the folder {root} has more than {MAX_PATHS} files; is it the right one?"
            raise ConfigurationError([ConfigurationFinding(message=message)])
        here = Path(folder)
        visible = [name for name in (*folders, *files) if not name.startswith(".")]
        outside = {name for name in visible if (here / name).is_symlink() and _leads_out(here / name, root)}
        if outside:
            warnings.append(_report_links(here, outside))
        folders[:] = sorted(name for name in folders if name in visible and name not in outside)
        yield here, sorted(name for name in files if name in visible and name not in outside)
    if unreadable:
        raise ConfigurationError(
            ConfigurationFinding(message=f"{setting}: {error.filename} cannot be read: {error.strerror}")
            for error in unreadable
        )


def join_paths(paths: Collection[str]) -> str:
    """Return a bounded list of paths for a message."""
    names = sorted(map(to_printable, paths))
    more = len(names) - MAX_PATHS_NAMED
    return join_words(names) if more <= 0 else f"{', '.join(names[:MAX_PATHS_NAMED])} and {more} more"


def to_printable(path: str) -> str:
    """Return a path of the operating system as text that can be shown."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _report_links(folder: Path, names: Collection[str]) -> ConfigurationFinding:
    message = (
        f"left out, since these links lead out of the folder, to a folder around them or nowhere: {join_paths(names)}"
    )
    return ConfigurationFinding(message=message, file=to_printable(str(folder)))


def _leads_out(link: Path, root: Path) -> bool:
    """Return whether a link leaves `root`, leads nowhere, or to a folder that it lies in."""
    try:
        target = link.resolve(strict=True)
        return not target.is_relative_to(root.resolve(strict=True)) or link.parent.resolve().is_relative_to(target)
    except (OSError, RuntimeError):
        return True
