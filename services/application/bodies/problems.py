"""What is wrong with a body, in sentences of this API: location, expectation, nearest name.

Values are not repeated, because some are secrets.

Before: request_parsing.py. After: the error text of a 400.
"""

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from loomlog.connectors.configuration.findings import did_you_mean

PROBLEMS_MAX = 5
"""Maximum errors reported for one body; more are reported after these are corrected."""
AGENT_FIELDS = frozenset(
    {"model", "max_tokens", "provider", "tools", "system_prompt", "tier", "effort", "max_iterations"}
)
"""Fields of an agent's definition that requests often try to set."""
EXPECTATIONS: Mapping[str, str] = {
    "missing": "is required",
    "string_type": "must be a string",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "none_required": "must be null",
}
"""Sentences by kind of error of pydantic; kinds with limits are below."""
LIMITS: Mapping[str, str] = {
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must have at least {min_length} characters",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must have at least {min_length} entries",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "string_pattern_mismatch": "must match {pattern}",
}


def describe_problems(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the first problems of a body, separated by semicolons."""
    problems = error.errors(include_url=False, include_input=False)
    if problems[0]["type"] == "json_invalid":
        return f"the body is not JSON: {problems[0]['msg'].removeprefix('Invalid JSON: ')}"
    shown = list(dict.fromkeys(_sentence(problem, model) for problem in problems))
    more = len(shown) - PROBLEMS_MAX
    return "; ".join(shown[:PROBLEMS_MAX]) + (f"; and {more} more" if more > 0 else "")


def _sentence(problem: Any, model: type[BaseModel]) -> str:
    kind, location, context = problem["type"], problem["loc"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_field(location, model)
    if kind in LIMITS:
        return f"{_field_path(location)} {LIMITS[kind].format(**context)}"
    text = EXPECTATIONS.get(kind)
    return f"{_field_path(location)} {text}" if text is not None else f"{_field_path(location)}: {problem['msg']}"


def _unknown_field(location: tuple[int | str, ...], model: type[BaseModel]) -> str:
    name = str(location[-1])
    fields = _fields_at(model, location[:-1])
    place = f" in {_field_path(location[:-1])}" if len(location) > 1 else ""
    hint = did_you_mean(name, fields)
    if not hint:
        is_of_agent = name in AGENT_FIELDS
        hint = (
            "; it belongs to the definition of the agent" if is_of_agent else f"; known are {', '.join(sorted(fields))}"
        )
    return f'unknown field "{name[:60]}"{place}{hint}'


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> frozenset[str]:
    """Return the field names of the model at a location; those of the outer one where it cannot be followed."""
    current = model
    for step in location:
        if isinstance(step, str) and step in current.model_fields:
            current = _model_in(current.model_fields[step].annotation) or current
    return frozenset(current.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((inner for part in get_args(annotation) if (inner := _model_in(part)) is not None), None)


def _field_path(steps: tuple[int | str, ...]) -> str:
    place = ""
    for step in steps:
        place += f"[{step}]" if isinstance(step, int) else f".{step}" if place else step
    return place or "the body"
