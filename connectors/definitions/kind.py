"""Kind of definition: what the one codec of a kind needs, and the codec.

A content is a JSON object with the fields that its author set: a field that has the default of the block is left out,
and so are objects without a field. Files, overlays, hashes, diffs and runs all use this form, so the same keys give the
same content whichever way they came.

    overlay (a request)  --compose-->  content  --block_of-->  block (what a run is resolved from)
    block (a file)       --content_of-->  content  --hash-->  "sha256:..."

Not chosen: to keep every key that was written. A block of the files does not know which of its defaults were written.

Before: canonical.py, go_json.py, the block of each kind. After: kinds.py lists the kinds; use cases call the methods.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache
from itertools import islice
from typing import Any

from pydantic import TypeAdapter, ValidationError

from loomlog.connectors.configuration.field_types import check_agent_name
from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.connectors.configuration.model import ValidationProblem, list_problems
from loomlog.connectors.configuration.shape import infer_shape, key_of
from loomlog.connectors.definitions import go_json
from loomlog.connectors.definitions.canonical import canonical_json, join_path
from loomlog.connectors.definitions.problems import DefinitionProblem, Reason, quote

MAX_DEFINITION_BYTES = 131_072
MAX_DESCRIPTION_BYTES = 8_192
"""Bytes of a definition as JSON and of its description, the limits of the reference."""
MAX_PROBLEMS = 5
"""Mistakes that one refusal lists; more are listed once these are corrected."""
BESIDE_OVERLAY = frozenset({"name", "def_id", "parent_def_id", "promote", "retired", "expires_at", "expect_active"})
"""Fields of the request that are often put into the overlay."""
Content = Mapping[str, Any]


def _hash_all_fields(name: str, content: Content) -> Any:
    """Return what is hashed of a kind whose hash the reference does not define: every field that is set."""
    return go_json.sort_keys(content)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of definition. Its functions get contents that were validated."""

    name: str
    """Name, as in its route: agent for /v1/_agentdef."""
    tool: str
    id_prefix: str = "def_"
    forks_promote: bool = True
    """Default of `promote` for a fork."""
    has_verify: bool = False
    block: type
    """Frozen dataclass that pydantic fills."""
    file_only: Mapping[str, str] = field(default_factory=dict)
    """Key that only files may have -> what a request gives instead. No part of a content."""
    server_set: frozenset[str] = frozenset()
    """Fields of the content that no request may set."""
    merged: frozenset[str] = frozenset()
    """Objects that an overlay changes field by field; others it replaces."""
    kept_when_empty: frozenset[str] = frozenset()
    """Objects that an empty one in an overlay leaves as they are."""
    alternatives: tuple[frozenset[str], ...] = ()
    """Groups of fields that exclude each other: an overlay that sets one group removes the others of the parent."""
    byte_limits: Mapping[str, int] = field(default_factory=dict)
    """Fields with a limit of their own, in bytes. They do not count towards the limit of the definition."""
    complete: Callable[[dict[str, Any], Content], None] = lambda merged, overlay: None
    """Function that adds derived fields to a merged content, in place."""
    check: Callable[[Any], None] = lambda block: None
    """Check of a whole block. Raises DefinitionProblem."""
    hashed: Callable[[str, Content], Any] = _hash_all_fields
    """Function of name and content; returns the JSON value that is hashed, its keys in order."""
    normalised: str = ""
    """Text field that is hashed with LF line ends and without white space at its end."""
    granted: Callable[[Content], tuple[str, ...]] | None = None
    reached: str = ""
    """Field with an address that processes of this installation call: its host has to be one that the operator allows.
    """

    @property
    def route(self) -> str:
        """Last part of the route, without its underscore: agentdef."""
        return f"{self.name}def"

    def check_name(self, name: str) -> None:
        """Raise DefinitionProblem(bad_name) for a name that cannot be used."""
        try:
            check_agent_name(name if isinstance(name, str) else "")
        except ValueError as error:
            raise DefinitionProblem("bad_name", f"name: {error}") from None

    def compose(self, name: str, overlay: Content, parent: Content | None = None) -> dict[str, Any]:
        """Return the content of an overlay over the content of its parent. Raises DefinitionProblem."""
        self.check_name(name)
        if not isinstance(overlay, Mapping):
            raise DefinitionProblem("invalid_definition", "overlay: expected an object")
        canonical_json(overlay)
        self._require_counted_size(overlay)
        self._refuse_unknown(overlay)
        block = self._validate(self._merge(_drop_nulls(overlay, self.block), parent or {}))
        content = self.content_of(block)
        self._check_sizes(content)
        self.check(block)
        return content

    def hash(self, name: str, content: Content) -> str:
        """Return `sha256:` and the hash of the content, equal to the reference's for the kinds it verifies."""
        if text := content.get(self.normalised):
            content = {**content, self.normalised: text.replace("\r\n", "\n").rstrip(" \t\r\n")}
        return "sha256:" + hashlib.sha256(go_json.encode(self.hashed(name, content)).encode()).hexdigest()

    def same(self, name: str, one: Content, other: Content) -> bool:
        """Return whether two contents are the same definition: the hash, and every field that it does not cover."""
        compared = {*one, *other} - {self.normalised}
        equal = all(one.get(key) == other.get(key) for key in compared)
        return equal and self.hash(name, one) == self.hash(name, other)

    def tools(self, content: Content) -> tuple[str, ...] | None:
        """Return the tools that a definition grants or needs; None for kinds without tools."""
        return self.granted(content) if self.granted else None

    def block_of(self, content: Content) -> Any:
        """Return the block of a content; it costs 5 to 25 us, so callers keep it. Raises DefinitionProblem."""
        return self._validate(content)

    def content_of(self, block: Any) -> dict[str, Any]:
        """Return the content of a block, also of one that was read from a file."""
        content = _to_content(block)
        for key in self.file_only:
            content.pop(key, None)
        self.complete(content, content)
        return {entry.name: content[entry.name] for entry in fields(self.block) if entry.name in content}

    def stamp(self, content: Content, values: Content) -> dict[str, Any]:
        """Return a content with what the server says about its author, in the fields that no request may set."""
        merged = {key: value for key, value in content.items() if key not in self.server_set}
        merged |= {key: value for key, value in values.items() if key in self.server_set and value}
        return {entry.name: merged[entry.name] for entry in fields(self.block) if entry.name in merged}

    def _refuse_unknown(self, overlay: Content) -> None:
        known = {entry.name for entry in fields(self.block)} - self.server_set - self.file_only.keys()
        for key in overlay:
            if key in BESIDE_OVERLAY - known:
                raise DefinitionProblem("unknown_field", f"overlay.{key} belongs beside overlay, not into it")
            if key in self.file_only:
                raise DefinitionProblem("unknown_field", f"overlay.{key} is a key of files; {self.file_only[key]}")
            if key in self.server_set:
                raise DefinitionProblem("unknown_field", f"overlay.{key} is set by the server; leave it out")
        if unknown := list(islice(_list_unknown(overlay, self.block, "overlay", known), MAX_PROBLEMS + 1)):
            raise DefinitionProblem("unknown_field", _join(unknown))

    def _merge(self, overlay: dict[str, Any], parent: Content) -> dict[str, Any]:
        overlay = {key: value for key, value in overlay.items() if value != {} or key not in self.kept_when_empty}
        chosen = [group for group in self.alternatives if group & overlay.keys()]
        replaced = frozenset().union(*self.alternatives).difference(*chosen) if chosen else frozenset()
        merged = {key: value for key, value in parent.items() if key not in replaced}
        for key, value in overlay.items():
            together = key in self.merged and isinstance(value, Mapping)
            merged[key] = {**merged.get(key, {}), **value} if together else value
        self.complete(merged, overlay)
        return merged

    def _validate(self, content: Content) -> Any:
        try:
            return _adapter(self.block).validate_python(content)
        except ValidationError as error:
            problems = list_problems(error)
            sentences = dict.fromkeys(_describe(problem, content) for problem in problems[: 2 * MAX_PROBLEMS])
            raise DefinitionProblem(_reason(problems[0]), _join(list(sentences))) from None

    def _check_sizes(self, content: Content) -> None:
        require_size("description", content.get("description", ""), MAX_DESCRIPTION_BYTES)
        self._require_counted_size(content)
        for key, limit in self.byte_limits.items():
            require_size(key, content.get(key, ""), limit)

    def _require_counted_size(self, content: Content) -> None:
        counted = {key: value for key, value in content.items() if key not in self.byte_limits}
        require_size("the definition", canonical_json(counted), MAX_DEFINITION_BYTES)


def require_size(what: str, text: str | Mapping[str, str], limit: int) -> None:
    """Raise DefinitionProblem(too_large) for a text, or for texts together, of more bytes than the limit."""
    texts = text.values() if isinstance(text, Mapping) else (text,)
    if (size := sum(len(part.encode()) for part in texts)) > limit:
        raise DefinitionProblem("too_large", f"{what} has {size} bytes; at most {limit} are taken")


@cache
def _adapter(block: type) -> TypeAdapter[Any]:
    return TypeAdapter(block)


def _list_unknown(value: Any, hint: Any, path: str, known: Any = None) -> Iterator[str]:
    """Yield a sentence for every key that the blocks of a type do not have."""
    shape = infer_shape(hint)
    if isinstance(value, Mapping) and shape.keys is not None:
        names = sorted(shape.keys if known is None else known)
        for key, item in value.items():
            if key in names:
                yield from _list_unknown(item, shape.keys[key], join_path(path, key))
            else:
                hint_text = did_you_mean(key, names) or f"; known are {', '.join(names)}"
                yield f"unknown field {quote(key)} in {path}{hint_text}"
    elif isinstance(value, Mapping) and shape.values is not None:
        for key, item in value.items():
            yield from _list_unknown(item, shape.values, join_path(path, key))
    elif isinstance(value, list) and shape.items is not None:
        for position, item in enumerate(value):
            yield from _list_unknown(item, shape.items, join_path(path, position))


def _drop_nulls(value: Any, hint: Any) -> Any:
    """Return the value without the keys of blocks that are null; in free-form values a null is a value."""
    shape = infer_shape(hint)
    if isinstance(value, Mapping) and shape.keys is not None:
        return {key: _drop_nulls(item, shape.keys[key]) for key, item in value.items() if item is not None}
    if isinstance(value, Mapping):
        return {key: _drop_nulls(item, shape.values) for key, item in value.items()}
    return [_drop_nulls(item, shape.items) for item in value] if isinstance(value, list) else value


def _to_content(value: Any) -> Any:
    if is_dataclass(value):
        items = ((entry, _to_content(getattr(value, entry.name))) for entry in fields(value))
        return {key_of(entry): item for entry, item in items if not _is_unset(entry, getattr(value, entry.name), item)}
    if isinstance(value, Mapping):
        return {key: _to_content(item) for key, item in value.items()}
    return [_to_content(item) for item in value] if isinstance(value, tuple | list) else value


def _is_unset(entry: Field[Any], value: Any, item: Any) -> bool:
    """Return whether a field has its default, or is a block without a field that is set (`item` is its content)."""
    if entry.default is MISSING and entry.default_factory is MISSING:
        return False
    default = entry.default_factory() if entry.default_factory is not MISSING else entry.default
    return (is_dataclass(value) and item == {}) or (value == default and type(value) is type(default))


def _describe(problem: ValidationProblem, content: Content) -> str:
    """Return a sentence with the place of a problem; the value is not repeated, because it may be a secret."""
    path: str = ""
    value: Any = content
    for step in problem.path:
        is_there = step in value if isinstance(value, Mapping) else isinstance(value, list) and isinstance(step, int)
        if not is_there:
            break
        path, value = join_path(path, step), value[step]
    if problem.is_missing:
        return f"missing required field: {join_path(path, problem.path[-1])}"
    return f"{path or 'overlay'}: {problem.expected}"


def _reason(problem: ValidationProblem) -> Reason:
    if problem.is_missing:
        return "missing_field"
    return "too_many" if problem.expected.endswith(" items") else "invalid_definition"


def _join(sentences: list[str]) -> str:
    return "; ".join(sentences[:MAX_PROBLEMS]) + ("; and more" if len(sentences) > MAX_PROBLEMS else "")
