"""JSON Schemas that others wrote: compiled within bounds, then used to check values.

A schema of a stranger is a program. It may name addresses to read (`$ref`), hold patterns that run for ever, and apply
so many subschemas to one value that a check takes years. `compile_schema` refuses these before the first value is
checked, so that a check costs time in proportion to its value:

    size, depth       SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX
    references        `#` and `#/...` only; nothing is fetched
    recursion         must consume a level of the value, and must not multiply (WORK_MAX)
    patterns          bounded in size and in backtracking
    contradictions    a schema that no value meets is refused

Not chosen: the Python package jsonschema, which is 100 times slower and has no bound for patterns; a check in a process
of its own, which costs more than the check.

Before: the caller that was given the schema. After: jsonschema-rs.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import jsonschema_rs
import orjson

SCHEMA_BYTES_MAX = 65_536
"""Size of a schema as JSON: a model reads it on each turn."""
SCHEMA_DEPTH_MAX = 32
"""Levels of a schema. The largest ones that are published for tools have about 20."""
VALUE_DEPTH_MAX = 64
"""Levels of a value. The compiled check recurses once a level."""
VALUE_NODES_MAX = 50_000
"""Members and items of a value; a check costs about a microsecond for each."""
WORK_MAX = 2_000
"""How many subschemas may apply along one path into a value. Schemas that people write stay below 100."""
BRANCHES_MAX = 256
"""Combinations of alternatives up to which a schema is searched for contradictions: the search takes their product."""
PROBLEMS_MAX = 20
"""Problems that are reported of one value: more would not help a model to correct it."""
MESSAGE_CHARS_MAX = 300
"""Length of a problem's message; it quotes the value."""

_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000, size_limit=1 << 20, dfa_size_limit=1 << 20)
_LISTS_IN_PLACE = ("allOf", "anyOf", "oneOf")
_SCHEMAS_IN_PLACE = ("not", "if", "then", "else")
_MAPS_IN_PLACE = ("dependentSchemas", "dependencies")
_OF_ITEMS = ("items", "additionalItems", "unevaluatedItems", "contains")
_OF_MEMBERS = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_UNSUPPORTED = ("$dynamicRef", "$recursiveRef")

Schema = Mapping[str, Any]


class SchemaRefused(Exception):
    """A schema that is not used. The message says where in the schema, what is wrong and what to do."""


class Problem(NamedTuple):
    """A part of a value that does not meet the schema."""

    path: str
    """JSON pointer into the value; "" is the value itself."""
    keyword: str
    """Keyword of the schema that is not met, such as `required`; "" for a bound of ours."""
    message: str

    def __str__(self) -> str:
        return f"{self.path or 'the value'}: {self.message}"


@dataclass(frozen=True, slots=True)
class CompiledSchema:
    """A schema that is ready to check values."""

    validator: jsonschema_rs.Validator

    def find_problems(self, value: object) -> list[Problem]:
        """Return what does not meet the schema, at most PROBLEMS_MAX; empty for a valid value."""
        too_large = _find_excess(value)
        if too_large:
            return [Problem("", "", too_large)]
        if self.validator.is_valid(value):
            return []
        return [_problem_of(error) for error in islice(self.validator.iter_errors(value), PROBLEMS_MAX)]


def compile_schema(schema: object) -> CompiledSchema:
    """Return the compiled schema. Raises SchemaRefused."""
    if not isinstance(schema, dict):
        raise SchemaRefused(f"a schema must be a JSON object, not {type(schema).__name__}")
    _require_size(schema)
    _Work(schema).require_bounded()
    try:
        validator = jsonschema_rs.validator_for(schema, pattern_options=_PATTERNS, offline=True)
        if _branches(schema) <= BRANCHES_MAX and _contradicts_itself(schema):
            raise SchemaRefused("the schema contradicts itself: no value can meet it")
    except ValueError as error:
        raise SchemaRefused(_describe_refusal(error)) from error
    return CompiledSchema(validator)


def _contradicts_itself(schema: dict[str, Any]) -> bool:
    canonical = jsonschema_rs.canonicalize(schema, pattern_options=_PATTERNS, offline=True)
    return canonical.satisfiability() == jsonschema_rs.canonical.Satisfiability.NO


def _describe_refusal(error: ValueError) -> str:
    if not isinstance(error, jsonschema_rs.ValidationError):
        return f"not a JSON Schema: {str(error)[:MESSAGE_CHARS_MAX]}"
    return f"not a JSON Schema: {_pointer(error.instance_path) or 'the schema'}: {error.message[:MESSAGE_CHARS_MAX]}"


def _require_size(schema: Schema) -> None:
    try:
        size = len(orjson.dumps(schema))
    except orjson.JSONEncodeError as error:
        raise SchemaRefused(f"the schema is not valid JSON: {error}") from error
    if size > SCHEMA_BYTES_MAX:
        raise SchemaRefused(f"the schema has {size} bytes; at most {SCHEMA_BYTES_MAX} are allowed")
    if _depth_exceeds(schema, SCHEMA_DEPTH_MAX):
        raise SchemaRefused(f"the schema is nested deeper than {SCHEMA_DEPTH_MAX} levels")


def _depth_exceeds(value: object, levels: int) -> bool:
    if not isinstance(value, (dict, list)):
        return False
    members = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_depth_exceeds(member, levels - 1) for member in members)


def _find_excess(value: object) -> str:
    """Return the bound that a value exceeds, or ""."""
    nodes = 0
    level: list[object] = [value]
    for _ in range(VALUE_DEPTH_MAX + 1):
        nodes += len(level)
        if nodes > VALUE_NODES_MAX:
            return f"has more than {VALUE_NODES_MAX} members and items"
        level = [member for node in level for member in _members(node)]
        if not level:
            return ""
    return f"is nested deeper than {VALUE_DEPTH_MAX} levels"


def _members(node: object) -> Sequence[object]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, list) else ()


def _problem_of(error: jsonschema_rs.ValidationError) -> Problem:
    message = error.message
    if len(message) > MESSAGE_CHARS_MAX:
        # The keyword's own part comes last, after the quoted value.
        message = f"{message[: MESSAGE_CHARS_MAX // 2]} ... {message[-MESSAGE_CHARS_MAX // 2 :]}"
    return Problem(_pointer(error.instance_path), error.kind.name, message)


def _pointer(path: Sequence[str | int]) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def _branches(node: object) -> int:
    """Return the product of the numbers of alternatives in a schema."""
    if isinstance(node, list):
        return math.prod(_branches(item) for item in node)
    if not isinstance(node, dict):
        return 1
    alternatives = [len(node[key]) for key in ("anyOf", "oneOf") if isinstance(node.get(key), list)]
    return math.prod(alternatives) * math.prod(_branches(item) for item in node.values())


@dataclass(slots=True)
class _Children:
    """Subschemas that one schema applies to the members and items of a value."""

    named: dict[str | int, Schema] = field(default_factory=dict)
    of_every_member: list[Schema] = field(default_factory=list)
    of_other_members: list[Schema] = field(default_factory=list)
    of_other_items: list[Schema] = field(default_factory=list)


class _Work:
    """The number of subschemas that apply along one path into a value.

    Subschemas in place (`allOf`, `$ref` and so on) apply to the same value and add up. Those of different members do
    not: their cost is in proportion to the value. So a level costs what its dearest member costs, and a recursion that
    reaches itself twice at one member doubles with each level.
    """

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._costs: dict[tuple[int, int], int] = {}
        self._steps: dict[int, tuple[int, list[_Children]]] = {}

    def require_bounded(self) -> None:
        """Raise SchemaRefused for work above WORK_MAX, recursion in place and references outward."""
        if self._cost(self._root, VALUE_DEPTH_MAX) > WORK_MAX:
            raise SchemaRefused(
                f"the schema applies more than {WORK_MAX} subschemas to one value; remove repeated references"
            )

    def _cost(self, schema: Schema, levels: int) -> int:
        key = (id(schema), levels)
        if key not in self._costs:
            size, children = self._step(schema)
            deeper = 0 if levels == 0 else max((self._sum(each, levels - 1) for each in _slots(children)), default=0)
            self._costs[key] = min(size + deeper, WORK_MAX + 1)
        return self._costs[key]

    def _sum(self, schemas: Sequence[Schema], levels: int) -> int:
        return sum(self._cost(schema, levels) for schema in schemas)

    def _step(self, schema: Schema) -> tuple[int, list[_Children]]:
        if id(schema) not in self._steps:
            in_place = list(self._in_place(schema, ()))
            self._steps[id(schema)] = (len(in_place), [_children(each) for each in in_place])
        return self._steps[id(schema)]

    def _in_place(self, schema: Schema, path: tuple[int, ...], count: int = 0) -> Iterator[Schema]:
        if id(schema) in path:
            raise SchemaRefused("the schema refers to itself without going into the value")
        if len(path) > SCHEMA_DEPTH_MAX:
            raise SchemaRefused(f"the schema has a chain of more than {SCHEMA_DEPTH_MAX} references")
        yield schema
        for target in [*_subschemas_in_place(schema), *self._targets(schema)]:
            for each in self._in_place(target, (*path, id(schema))):
                count += 1
                if count > WORK_MAX:
                    return
                yield each

    def _targets(self, schema: Schema) -> Iterator[Schema]:
        for keyword in _UNSUPPORTED:
            if keyword in schema:
                raise SchemaRefused(f"{keyword} is not supported; use $ref with #/$defs/...")
        if "$id" in schema and schema is not self._root:
            raise SchemaRefused("$id is supported at the top of a schema only")
        if "$ref" in schema:
            yield self._resolve(schema["$ref"])

    def _resolve(self, reference: object) -> Schema:
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise SchemaRefused(f"$ref {str(reference)[:80]!r} leaves the schema; only #/... is followed")
        target: Any = self._root
        for step in reference[2:].split("/") if len(reference) > 1 else ():
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and name.isdecimal() and int(name) < len(target):
                target = target[int(name)]
            else:
                target = target.get(name) if isinstance(target, dict) else None
        if not isinstance(target, dict):
            if isinstance(target, bool):
                return {}
            raise SchemaRefused(f"$ref {reference[:80]!r} names nothing in the schema")
        return target


def _subschemas_in_place(schema: Schema) -> Iterator[Schema]:
    for keyword in _LISTS_IN_PLACE:
        yield from _schemas(schema.get(keyword))
    for keyword in _SCHEMAS_IN_PLACE:
        yield from _schemas([schema.get(keyword)])
    for keyword in _MAPS_IN_PLACE:
        yield from _named_schemas(schema.get(keyword)).values()


def _schemas(value: object) -> list[Schema]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _named_schemas(value: object) -> dict[str, Schema]:
    return {name: item for name, item in value.items() if isinstance(item, dict)} if isinstance(value, dict) else {}


def _children(schema: Schema) -> _Children:
    items = schema.get("items")
    named: dict[str | int, Schema] = dict(enumerate([*_schemas(schema.get("prefixItems")), *_schemas(items)]))
    named.update(_named_schemas(schema.get("properties")).items())
    return _Children(
        named=named,
        of_every_member=list(_named_schemas(schema.get("patternProperties")).values()),
        of_other_members=_schemas([schema.get(keyword) for keyword in _OF_MEMBERS]),
        of_other_items=_schemas([schema.get(keyword) for keyword in _OF_ITEMS]),
    )


def _slots(applied: Sequence[_Children]) -> Iterator[list[Schema]]:
    """Yield the subschemas that meet at one member or item, for each that is named and for the others."""
    names = {name for children in applied for name in children.named}
    for name in names:
        yield [schema for children in applied for schema in _at(children, name)]
    yield [schema for children in applied for schema in (*children.of_every_member, *children.of_other_members)]
    yield [schema for children in applied for schema in children.of_other_items]


def _at(children: _Children, name: str | int) -> Sequence[Schema]:
    own = [children.named[name]] if name in children.named else []
    if isinstance(name, int):
        return own or children.of_other_items
    return [*(own or children.of_other_members), *children.of_every_member]
