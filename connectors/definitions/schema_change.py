"""The kind of a change of an output schema: whether programs that read the records go on working.

    compatible   each record of the new schema can be read as one of the old: nothing that was certain may be absent,
                 and nothing has a value that it could not have
    breaking     anything else, and what cannot be compared

A reader is one that ignores members it does not know, so a further member is compatible. Alternatives and conditions
(`anyOf`, `if` and so on) are compared as they are written.

Before: the contents of two versions. After: the diff of versions, over HTTP and on the command line.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Literal, NamedTuple

COMPATIBLE: Literal["compatible"] = "compatible"
BREAKING: Literal["breaking"] = "breaking"
REASONS_MAX = 20
"""Reasons that are listed of one change."""
ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"}) | {
    "$comment",
    "$schema",
    "$id",
    "$defs",
    "definitions",
}
LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
COMPARED = frozenset({"type", "enum", "const", "properties", "required", "additionalProperties", "items", "anyOf"})
ALL_TYPES = ("object", "array", "string", "number", "boolean", "null")

Schema = Mapping[str, Any]


class SchemaChange(NamedTuple):
    """A change with its kind, and why it is breaking: sentences that begin with the place, such as $.total."""

    kind: Literal["compatible", "breaking"]
    reasons: list[str]


def compare_output(before: Mapping[str, Any], after: Mapping[str, Any]) -> SchemaChange | None:
    """Return the change of the output schema between two contents of an agent; None when it is the same."""
    old, new = before.get("output_schema"), after.get("output_schema")
    if old == new:
        return None
    if not old:
        return SchemaChange(COMPATIBLE, [])
    if not new:
        return SchemaChange(BREAKING, ["$: the answer is any text now"])
    reasons = list(islice(_Comparison(old, new).reasons("$", old, new), REASONS_MAX))
    return SchemaChange(BREAKING if reasons else COMPATIBLE, reasons)


class _Comparison:
    """Two schemas, whose references are followed."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._old = old
        self._new = new
        self._seen: set[tuple[int, int]] = set()

    def reasons(self, path: str, old: Any, new: Any) -> Iterator[str]:
        """Yield why a reader of `old` cannot read a value of `new`."""
        pair = (id(old), id(new))  # before references are followed: these are parts of the two schemas
        if pair in self._seen:
            return
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            self._seen.add(pair)
        old, new = _resolve(old, self._old), _resolve(new, self._new)
        if not isinstance(old, Mapping) or not isinstance(new, Mapping):
            if old is not True and old != new:
                yield f"{path}: may be anything now" if new is True else f"{path}: has another form"
            return
        yield from _compare_values(path, old, new)
        yield from self._compare_members(path, old, new)
        if "items" in old:
            yield from self.reasons(f"{path}[*]", old["items"], new.get("items", True))

    def _compare_members(self, path: str, old: Schema, new: Schema) -> Iterator[str]:
        certain = new.get("required", ())
        yield from (f"{path}.{name}: may be absent now" for name in old.get("required", ()) if name not in certain)
        others = new.get("additionalProperties", True)
        for name, form in old.get("properties", {}).items():
            now = new.get("properties", {}).get(name, others)
            if now is not False:  # one that is gone is no longer required, which is said above
                yield from self.reasons(f"{path}.{name}", form, now)


def _compare_values(path: str, old: Schema, new: Schema) -> Iterator[str]:
    """Yield what a single value of `new` may be that one of `old` is not."""
    known = _types(old)
    added = [kind for kind in _types(new) if kind not in known and not (kind == "integer" and "number" in known)]
    if added:
        yield f"{path}: may be {' or '.join(added)} now"
    if (allowed := _choices(old)) is not None:
        choices = _choices(new)
        if choices is None:
            yield f"{path}: may be another value than {allowed} now"
        else:
            yield from (f"{path}: may be {value!r} now" for value in choices if value not in allowed)
    for words, sign in ((LOWER, 1), (UPPER, -1)):
        for word in words:
            if word in old and (word not in new or sign * new[word] < sign * old[word]):
                yield f"{path}: {word} is {new.get(word, 'gone')} and was {old[word]}"
    if "anyOf" in old and any(branch not in old["anyOf"] for branch in new.get("anyOf", [None])):
        yield f"{path}: anyOf has other alternatives"
    others = {*old, *new} - ANNOTATIONS - COMPARED - {*LOWER, *UPPER}
    for word in sorted(others):
        if word in old and old[word] != new.get(word):
            yield f"{path}: {word} has changed"


def _types(schema: Schema) -> tuple[str, ...]:
    kinds = schema.get("type", ALL_TYPES)
    return (kinds,) if isinstance(kinds, str) else tuple(kinds)


def _choices(schema: Schema) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    return list(schema["enum"]) if "enum" in schema else None


def _resolve(schema: Any, root: Schema) -> Any:
    """Return what a local reference names; a schema that was accepted has no other, and no circle of them."""
    while isinstance(schema, Mapping) and "$ref" in schema:
        target: Any = root
        for step in schema["$ref"].split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            target = target[int(name)] if isinstance(target, list) else target[name]
        beside = {word: value for word, value in schema.items() if word != "$ref"}
        schema = {**target, **beside} if beside and isinstance(target, Mapping) else target
    return schema
