"""Records of the synthetic provider: the smallest one that meets an output schema.

A prompt with "2 bad answers" makes the first two answers prose, so that the correction of answers can be seen.

Before: model.py. After: nothing; it is pure.
"""

import re
from collections.abc import Mapping
from typing import Any

import orjson

from loomlog.connectors.models.mock.script import ScriptTurn, last_user_text
from loomlog.connectors.models.untrusted_json import fields, items
from loomlog.connectors.output_schema import REJECTED
from loomlog.connectors.protocols import ModelRequest
from loomlog.schemas.conversation import TextBlock

DEPTH_MAX = 24
"""Levels of a record; in a circle of references nothing is required below it."""
_BAD_ANSWERS = re.compile(r"\b(\d{1,3}) bad answers?\b")


def answers_again(request: ModelRequest) -> bool:
    """Return whether the last answer was not taken: no call is made again then."""
    return request.output_schema is not None and last_user_text(request.messages).startswith(REJECTED)


def with_record(request: ModelRequest, turn: ScriptTurn) -> ScriptTurn:
    """Return the turn with a record as its text, if it is a final answer to a request for one."""
    schema = request.output_schema
    if schema is None or turn.calls:
        return turn
    texts = [block.text for one in request.messages for block in one.blocks if isinstance(block, TextBlock)]
    bad = max((int(match[1]) for text in texts if (match := _BAD_ANSWERS.search(text))), default=0)
    if sum(text.startswith(REJECTED) for text in texts) < bad:
        return ScriptTurn(text="This is no record.")
    return ScriptTurn(text=orjson.dumps(_sample(schema, schema, 0)).decode())


def _sample(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    """Return a value that meets the schema, as far as simple keywords say what does."""
    for word in ("const", "default"):
        if word in schema:
            return schema[word]
    for word in ("enum", "examples"):
        if choices := items(schema.get(word)):
            return choices[0]
    for branch in (_target(schema, root), *map(fields, items(schema.get("anyOf")) or items(schema.get("oneOf")))):
        if branch:
            return _sample({**schema, "anyOf": None, "oneOf": None, "$ref": None, **branch}, root, depth + 1)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    match kind:
        case "object":
            forms = fields(schema.get("properties"))
            names = items(schema.get("required")) if depth < DEPTH_MAX else ()
            return {name: _sample(fields(forms.get(name)), root, depth + 1) for name in names}
        case "array":
            return [_sample(fields(schema.get("items")), root, depth + 1)] * int(schema.get("minItems", 0))
        case "integer" | "number":
            least = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
            return min(least, schema["maximum"]) if "maximum" in schema else least
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return "text".ljust(int(schema.get("minLength", 0)), ".")[: schema.get("maxLength")]


def _target(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    target: Any = root if isinstance(reference, str) else {}
    for step in reference[2:].split("/") if isinstance(reference, str) and len(reference) > 2 else ():
        target = fields(target).get(step)
    return fields(target)
