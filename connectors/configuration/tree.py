"""Configuration file as a tree that keeps the position of every key and value.

    ScalarNode      a scalar                                       Mark   file and line
    SequenceNode    a list, or an edit of the list below it
    MappingNode     a mapping; each key keeps its own mark

The tree is built from PyYAML's events, not by its constructors: no tag can build an object, duplicate keys are
detected, every key and value keeps its line, and depth and size are bounded before anything is built twice (aliases
share nodes, but each use counts). Plain scalars follow the YAML 1.2 core schema, so `on`, `no` and `12:30` stay text;
fractions become Decimal, so that prices are exact. Not chosen: yaml.compose (loses the chance to bound) and a
round-trip library (one more dependency).

Before: expansion.py. After: merge.py merges trees, load.py turns the result into the model.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

import yaml

from loomlog.connectors.configuration.expansion import expand
from loomlog.connectors.configuration.findings import ConfigurationFinding
from loomlog.connectors.configuration.storable_text import describe_text_problem, join_surrogate_pairs

MAX_DEPTH = 32
"""Levels of nesting; the deepest legal path has about 8."""
MAX_NODES = 100_000
"""Nodes of a file; enough for thousands of agents, and stops alias bombs long before memory does."""
MAX_DIGITS = 18
"""Digits of a number; longer runs of digits are identifiers. Fits a signed 64-bit integer."""
MERGE_KEY = "<<"
NOT_YAML = "not YAML"
"""Beginning of the finding about a file that cannot be parsed."""
_CORE_TAG_PREFIX = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FRACTION = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,3})?")

Scalar = str | int | Decimal | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Position in a file. Lines count from 1."""

    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarNode:
    value: Scalar
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceNode:
    """List. With `base` None it is an edit: `before` and `after` go around the list of the lower layers."""

    mark: Mark
    before: tuple["Node", ...] = ()
    base: tuple["Node", ...] | None = None
    after: tuple["Node", ...] = ()

    @property
    def nodes(self) -> tuple["Node", ...]:
        """Items of the list, in order."""
        return (*self.before, *(self.base or ()), *self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingEntry:
    """A key of a mapping, with the mark of the key itself, and its value."""

    key_mark: Mark
    node: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingNode:
    entries: Mapping[str, MappingEntry]
    mark: Mark


Node = ScalarNode | SequenceNode | MappingNode
KeyPath = tuple[str | int, ...]
"""Path of keys and list positions from the root of a tree."""


@dataclass(slots=True, kw_only=True)
class ParsedFile:
    """Result of reading one file."""

    root: MappingNode
    errors: list[ConfigurationFinding] = field(default_factory=list)
    warnings: list[ConfigurationFinding] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    """Environment names that the file expands."""


def read_tree(
    text: str,
    *,
    file: str,
    environ: Mapping[str, str],
    expected: str = "a mapping with blocks such as `agents:` at the top",
) -> ParsedFile:
    """Read one YAML document. Mistakes are in `errors`; `root` has what could be read even then."""
    reading, node = read_document(text, file=file, environ=environ)
    if isinstance(node, MappingNode):
        reading.root = node
    elif not (isinstance(node, ScalarNode) and node.value is None):
        message = f"expected {expected}"
        reading.errors.append(ConfigurationFinding(message=message, file=file, line=node.mark.line))
    return reading


def read_document(text: str, *, file: str, environ: Mapping[str, str]) -> tuple[ParsedFile, Node]:
    """Read one YAML document of any form: the mistakes, and its node, which is null when it could not be read."""
    mark = Mark(file=file, line=1)
    reading = ParsedFile(root=MappingNode(entries={}, mark=mark))
    node: Node = ScalarNode(value=None, mark=mark)
    try:
        node = _TreeBuilder(
            reading=reading, file=file, environ=environ, events=yaml.parse(text, yaml.SafeLoader)
        ).read_document()
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        reading.errors.append(
            ConfigurationFinding(message=f"{NOT_YAML}: {reason}", file=file, line=at.line + 1 if at else 0)
        )
    except yaml.YAMLError as error:
        reading.errors.append(ConfigurationFinding(message=f"{NOT_YAML}: {error}", file=file))
    except _ParseAborted as stop:
        reading.errors.append(stop.finding)
    return reading, node


def to_plain(node: Node) -> object:
    """Return the tree without marks: dicts, tuples and scalars. An edit of nothing is the list it holds."""
    match node:
        case ScalarNode():
            return node.value
        case SequenceNode():
            return tuple(to_plain(item) for item in node.nodes)
        case MappingNode():
            return {key: to_plain(entry.node) for key, entry in node.entries.items()}


def find_mark(root: Node, path: KeyPath, *, of_key: bool = False) -> Mark:
    """Return the mark of the node at `path`, or of the nearest existing node above it. `of_key`: of its last key."""
    mark, node = root.mark, root
    for position, step in enumerate(path):
        if isinstance(node, MappingNode) and step in node.entries:
            entry = node.entries[str(step)]
            node = entry.node
            mark = (
                entry.key_mark if (of_key and position == len(path) - 1) or isinstance(node, MappingNode) else node.mark
            )
        elif isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.nodes):
            node = node.nodes[step]
            mark = node.mark
        else:
            break
    return mark


def iter_scalars(node: Node, path: KeyPath = ()) -> Iterator[tuple[KeyPath, ScalarNode]]:
    """Yield every scalar with its path."""
    match node:
        case ScalarNode():
            yield path, node
        case SequenceNode():
            for position, item in enumerate(node.nodes):
                yield from iter_scalars(item, (*path, position))
        case MappingNode():
            for key, entry in node.entries.items():
                yield from iter_scalars(entry.node, (*path, key))


def parse_scalar(text: str) -> Scalar:
    """Parse a plain scalar by the YAML 1.2 core schema; .inf and .nan are not accepted as values and stay text."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text[0] in "tT"
    if len(text) <= MAX_DIGITS and _INTEGER.fullmatch(text):
        return int(text, 10) if text.lstrip("+-").isdigit() else int(text, 0)
    if len(text) <= 2 * MAX_DIGITS and any(sign in text for sign in ".eE") and _FRACTION.fullmatch(text):
        return Decimal(text)
    return text


class _ParseAborted(Exception):
    def __init__(self, finding: ConfigurationFinding) -> None:
        super().__init__(finding)
        self.finding = finding


@dataclass(slots=True, kw_only=True)
class _TreeBuilder:
    """Builder of nodes from events. `anchors` keeps each named node with its size, because each use counts in full."""

    reading: ParsedFile
    file: str
    environ: Mapping[str, str]
    events: Iterator[yaml.Event]
    anchors: dict[str, tuple[Node, int]] = field(default_factory=dict)
    node_count: int = 0

    def read_document(self) -> Node:
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                node = self._read_node(next(self.events), depth=0)
                next(self.events)
                if not isinstance(following := next(self.events), yaml.StreamEndEvent):
                    raise _ParseAborted(
                        self._build_finding(following, "a second document begins here; one file holds one document")
                    )
                return node
        return ScalarNode(value=None, mark=Mark(file=self.file, line=1))

    def _read_node(self, event: yaml.Event, depth: int) -> Node:
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                raise _ParseAborted(self._build_finding(event, f"the alias *{event.anchor} has no anchor before it"))
            node, size = self.anchors[event.anchor]
            self._count_nodes(event, size)
            return node
        before = self.node_count
        self._count_nodes(event, 1)
        if depth > MAX_DEPTH:
            raise _ParseAborted(self._build_finding(event, f"nested deeper than {MAX_DEPTH} levels"))
        build: Callable[[yaml.Event, int], Node]
        if isinstance(event, yaml.ScalarEvent):
            build = self._read_scalar
        elif isinstance(event, yaml.SequenceStartEvent):
            build = self._read_sequence
        else:
            build = self._read_mapping
        node = build(event, depth)
        if anchor := getattr(event, "anchor", None):
            self.anchors[anchor] = (node, self.node_count - before)
        return node

    def _read_scalar(self, event: yaml.Event, depth: int) -> ScalarNode:
        assert isinstance(event, yaml.ScalarEvent)
        expanded = expand(event.value, self.environ)
        self.reading.names.update(expanded.names)
        self.reading.errors += [self._build_finding(event, message) for message in expanded.errors]
        self.reading.warnings += [self._build_finding(event, message) for message in expanded.warnings]
        is_plain = event.tag is None and event.style is None
        if event.tag not in (None, "!", _CORE_TAG_PREFIX + "str"):
            is_plain = True
            if event.tag not in {_CORE_TAG_PREFIX + kind for kind in ("null", "bool", "int", "float")}:
                self.reading.errors.append(self._build_finding(event, self._unknown_tag_message(event.tag, "a scalar")))
        text = self._check_text(event, expanded.text)
        return ScalarNode(value=parse_scalar(text) if is_plain else text, mark=self._build_mark(event))

    def _check_text(self, event: yaml.Event, text: str) -> str:
        """Return the text with its surrogate pairs joined. One that cannot be used is reported, and what is returned
        for it can: the checks that follow find the other mistakes.
        """
        text = join_surrogate_pairs(text)
        if problem := describe_text_problem(text):
            self.reading.errors.append(self._build_finding(event, f"this text cannot be used: {problem}"))
            return text.replace("\0", "").encode("utf-8", "replace").decode()
        return text

    def _read_sequence(self, event: yaml.Event, depth: int) -> SequenceNode:
        assert isinstance(event, yaml.SequenceStartEvent)
        nodes: list[Node] = []
        while not isinstance(following := next(self.events), yaml.SequenceEndEvent):
            nodes.append(self._read_node(following, depth + 1))
        match event.tag:
            case None | "!" | "tag:yaml.org,2002:seq":
                return SequenceNode(mark=self._build_mark(event), base=tuple(nodes))
            case "!prepend":
                return SequenceNode(mark=self._build_mark(event), before=_unique_nodes(nodes))
            case "!append":
                return SequenceNode(mark=self._build_mark(event), after=_unique_nodes(nodes))
        self.reading.errors.append(self._build_finding(event, self._unknown_tag_message(event.tag, "a list")))
        return SequenceNode(mark=self._build_mark(event), base=tuple(nodes))

    def _read_mapping(self, event: yaml.Event, depth: int) -> MappingNode:
        assert isinstance(event, yaml.MappingStartEvent), event
        if event.tag not in (None, "!", _CORE_TAG_PREFIX + "map"):
            self.reading.errors.append(self._build_finding(event, self._unknown_tag_message(event.tag, "a mapping")))
        entries: dict[str, MappingEntry] = {}
        merged: dict[str, MappingEntry] = {}
        while not isinstance(key := next(self.events), yaml.MappingEndEvent):
            if not isinstance(key, yaml.ScalarEvent):
                raise _ParseAborted(self._build_finding(key, "a key must be a single word or text"))
            name = self._check_text(key, key.value)
            node = self._read_node(next(self.events), depth + 1)
            self._count_nodes(key, 1)
            if name == MERGE_KEY and key.style is None:
                merged = {**self._expand_merge_key(key, node), **merged}
            elif name in entries:
                first = entries[name].key_mark.line
                self.reading.errors.append(
                    self._build_finding(
                        key, f"the key {name} is here for the second time; the first is in line {first}"
                    )
                )
            else:
                entries[name] = MappingEntry(key_mark=self._build_mark(key), node=node)
        return MappingNode(entries={**merged, **entries}, mark=self._build_mark(event))

    def _expand_merge_key(self, key: yaml.Event, node: Node) -> dict[str, MappingEntry]:
        """Return the entries that `<<` merges in: those of a mapping, or of several, the first of which wins."""
        sources = node.nodes if isinstance(node, SequenceNode) else (node,)
        entries: dict[str, MappingEntry] = {}
        for source in sources:
            if isinstance(source, MappingNode):
                entries = {**source.entries, **entries}
            else:
                self.reading.errors.append(self._build_finding(key, "<< expects a mapping, or a list of mappings"))
        return entries

    def _count_nodes(self, event: yaml.Event, size: int) -> None:
        self.node_count += size
        if self.node_count > MAX_NODES:
            raise _ParseAborted(
                self._build_finding(event, f"more than {MAX_NODES} values, counting each use of an alias")
            )

    def _unknown_tag_message(self, tag: str, what: str) -> str:
        return (
            f"the tag {tag.replace(_CORE_TAG_PREFIX, '!!')} is not known for {what}; lists may have !prepend or !append"
        )

    def _build_mark(self, event: yaml.Event) -> Mark:
        return Mark(file=self.file, line=_line_number(event))

    def _build_finding(self, event: yaml.Event, message: str) -> ConfigurationFinding:
        return ConfigurationFinding(message=message, file=self.file, line=_line_number(event))


def _unique_nodes(nodes: list[Node]) -> tuple[Node, ...]:
    """Remove repeated items from an edit: an item cannot be in two places."""
    seen: list[object] = []
    kept: list[Node] = []
    for node in nodes:
        if (value := to_plain(node)) not in seen:
            seen.append(value)
            kept.append(node)
    return tuple(kept)


def _line_number(event: yaml.Event) -> int:
    assert event.start_mark is not None, event
    return event.start_mark.line + 1
