"""Validates a call's arguments against the tool's own input schema, strictly.

A misspelled argument must be reported: an ignored `pathh` would read the wrong file, an ignored `replace_al` would
change one place instead of all. So unknown, missing and wrongly typed arguments are refused, all of them in one message
that states what was expected, because each round costs a model turn.

The schemas are ours and use few keywords, so this checks those few and is not a JSON Schema library: type, properties,
required, enum, minimum, maximum, minLength, maxLength, minItems, maxItems, objects as maps of strings or with
properties of their own. Items of a list are validated by the tool. `require_supported_schema` refuses any other keyword
when the tools are built. Two tolerances: null for an optional argument means absent (several providers send every
argument), and 3.0 is an integer, as in JSON Schema.

Before: a tool's `call`. After: the tool's own work.
"""

from collections.abc import Mapping
from typing import Any

from loomlog.connectors.tools.results import ToolCallRefused

KEYWORDS = frozenset(
    {"type", "description", "enum", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"}
)
"""Supported keywords of a property, and additionalProperties of an object; any other would be silently unchecked."""
STRING_MAP = {"type": "string"}
"""The only additionalProperties of an object: every value is text."""
TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


def check_arguments(tool: str, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments without nulls, integers as int. Raises Refusal that names every problem."""
    if not isinstance(arguments, Mapping):
        raise ToolCallRefused(f"{tool} expects its arguments as an object, not {type(arguments).__name__}.")
    properties: Mapping[str, Mapping[str, Any]] = schema["properties"]
    required: frozenset[str] = frozenset(schema.get("required", ()))
    good: dict[str, Any] = {}
    problems = [
        f"{_quote(name)} is unknown, expected are {_join_names(properties)}"
        for name in arguments
        if name not in properties
    ]
    for name, rule in properties.items():
        value = arguments.get(name)
        if value is None:
            if name in required:
                problems.append(f'"{name}" is missing, expected is {describe_expectation(rule)}')
            continue
        if isinstance(value, float) and value.is_integer() and rule["type"] == "integer":
            value = int(value)
        problem = _find_problem(value, rule)
        if problem:
            problems.append(f'"{name}" {problem}, expected is {describe_expectation(rule)}')
        else:
            good[name] = value
    if problems:
        raise ToolCallRefused(f"{tool} was not called: {'; '.join(problems)}.")
    return good


def require_supported_schema(tool: str, schema: Mapping[str, Any]) -> None:
    """Assert that `check_arguments` checks every keyword of this schema."""
    assert set(schema) <= {"type", "properties", "required", "additionalProperties"}, (tool, sorted(schema))
    assert schema["type"] == "object", (tool, schema["type"])
    assert schema["additionalProperties"] is False, tool
    assert set(schema.get("required", ())) <= set(schema["properties"]), tool
    for name, rule in schema["properties"].items():
        assert rule["type"] in TYPES, (tool, name, rule["type"])
        assert rule.get("description"), (tool, name, "a model needs a description")
        extra = {"object": {"additionalProperties", "properties"}, "array": {"items"}}.get(rule["type"], set())
        assert set(rule) <= KEYWORDS | extra, (tool, name, sorted(rule))
        assert rule.get("additionalProperties", STRING_MAP) == STRING_MAP, (tool, name)


def describe_expectation(rule: Mapping[str, Any]) -> str:
    """Describe the values a property accepts."""
    if "enum" in rule:
        return "one of " + ", ".join(rule["enum"])
    words = {
        "string": "text",
        "integer": "a whole number",
        "boolean": "true or false",
        "object": "an object of texts",
        "array": "a list",
    }
    if "properties" in rule:
        words["object"] = f"an object of {_join_names(rule['properties'])}"
    bounds = []
    if "minimum" in rule:
        bounds.append(f"at least {rule['minimum']}")
    if "maximum" in rule:
        bounds.append(f"at most {rule['maximum']}")
    if "maxItems" in rule:
        bounds.append(f"{rule.get('minItems', 0)} to {rule['maxItems']} entries")
    if rule.get("minLength"):
        bounds.append("not empty")
    if "maxLength" in rule:
        bounds.append(f"at most {rule['maxLength']} characters")
    return " ".join([words[rule["type"]], *([f"({', '.join(bounds)})"] if bounds else [])])


def _find_problem(value: object, rule: Mapping[str, Any]) -> str:
    kind = rule["type"]
    if not isinstance(value, TYPES[kind]) or (kind == "integer" and isinstance(value, bool)):
        return f"is {_type_name(value)}"
    if "enum" in rule and value not in rule["enum"]:
        return f"is {_quote(str(value))}"
    if isinstance(value, int) and not isinstance(value, bool):
        if value < rule.get("minimum", value) or value > rule.get("maximum", value):
            return f"is {value}"
    elif isinstance(value, str):
        if len(value) < rule.get("minLength", 0):
            return "is empty"
        if len(value) > rule.get("maxLength", len(value)):
            return f"has {len(value)} characters"
    elif isinstance(value, list):
        if not rule.get("minItems", 0) <= len(value) <= rule.get("maxItems", len(value)):
            return f"has {len(value)} entries"
    elif isinstance(value, dict) and "properties" in rule:
        for name, item in value.items():
            own = rule["properties"].get(name)
            if own is None:
                return f"holds {_quote(str(name))}, which is unknown"
            problem = _find_problem(item, own)
            if problem:
                return f"holds {_quote(str(name))}, which {problem}; expected is {describe_expectation(own)}"
    elif isinstance(value, dict):
        wrong = [str(key) for key, item in value.items() if not isinstance(item, str)]
        if wrong:
            return f"holds values that are no text ({_join_names(wrong)})"
    return ""


def _type_name(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    names = {str: "text", int: "a number", float: "a number", dict: "an object", list: "a list"}
    return names.get(type(value), type(value).__name__)


def _join_names(names: Mapping[str, Any] | list[str]) -> str:
    return ", ".join(names) or "none"


def _quote(text: str) -> str:
    """Quote a bounded part of the model's own text."""
    return f'"{text[:60]}"'
