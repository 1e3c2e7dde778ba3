"""The JSON Schema of a final answer: what may be one, its hash, and answers against it.

A schema is checked when it is written: in a file, in a definition, in the request for a run, and by the owner of a run
that another producer starts. Its top is an object, because that is all that the providers take, and what a caller can
add to later.

Before: connectors/configuration, connectors/definitions, services/application/runs/requests.py. After:
connectors/json_schema.py.
"""

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from loomlog.connectors.json_schema import SCHEMA_BYTES_MAX, CompiledSchema, Problem, SchemaRefused, compile_schema
from loomlog.schemas.generated.values import OutputCheck

RESULT_BYTES_MAX = 65_536
"""Size of a record as JSON: it is in an event, a row and a frame. What is larger belongs in a volume."""
REJECTED = "The answer does not meet the output schema:"
"""Beginning of what a model is told about an answer that is not taken."""
PROBLEMS_TOLD = 5
"""Problems of an answer that the model is told at once."""
INTERACTIVE_WITH_SCHEMA = "an interactive run has a conversation and no final answer; leave out one of the two"
CACHE_MAX = 256
"""Schemas that a process keeps compiled, with at most a few megabytes each; compiling one takes under a millisecond."""
_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)


def check_output_schema(schema: Mapping[str, Any]) -> CompiledSchema:
    """Return the schema, compiled. Raises SchemaRefused, saying what is wrong and where."""
    if schema.get("type") != "object":
        raise SchemaRefused(
            'the type at the top must be "object": a final answer is a record, so put another value into a property of '
            "one"
        )
    return compile_schema(dict(schema))


def schema_text(schema: Mapping[str, Any]) -> str:
    """Return the schema as runs keep it: with its properties in the order of the author, in which models write them."""
    return orjson.dumps(schema).decode()


def schema_sha256(schema: Mapping[str, Any]) -> str:
    """Return the hex SHA-256 of the schema, whatever the order of its keys."""
    canonical = json.dumps(schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


@lru_cache(maxsize=CACHE_MAX)
def parse_output_schema(text: str) -> Mapping[str, Any]:
    """Return the schema of a text that another producer has sent. Raises SchemaRefused."""
    if len(text.encode(errors="replace")) > SCHEMA_BYTES_MAX:
        raise SchemaRefused(f"the schema has more than {SCHEMA_BYTES_MAX} bytes")
    try:
        schema = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise SchemaRefused(f"the schema is not valid JSON: {error}") from error
    if not isinstance(schema, dict):
        raise SchemaRefused(f"a schema must be a JSON object, not {type(schema).__name__}")
    check_output_schema(schema)
    return schema


class OutputSchemas:
    """The schemas of the runs of this process, compiled once each."""

    def __init__(self) -> None:
        self._compiled: OrderedDict[str, CompiledSchema] = OrderedDict()

    def check(self, sha256: str, schema: Mapping[str, Any], answer: str) -> OutputCheck:
        """Return what the answer is to the schema with that hash. Raises SchemaRefused for one that cannot be used,
        which a run of an older version may have.
        """
        compiled = self._compiled.get(sha256)
        if compiled is None:
            compiled = self._compiled[sha256] = check_output_schema(schema)
            if len(self._compiled) > CACHE_MAX:
                self._compiled.popitem(last=False)
        return check_answer(compiled, answer)


def check_answer(schema: CompiledSchema, answer: str) -> OutputCheck:
    """Return the record in an answer, or what is wrong with it. An answer in one code fence counts as what is in it."""
    fenced = _FENCED.match(answer)
    try:
        value = orjson.loads(fenced[1] if fenced else answer)
    except orjson.JSONDecodeError as error:
        return _rejected([("$", f"the answer is not JSON: {error}" if answer.strip() else "the answer is empty")])
    if problems := schema.find_problems(value):
        return _rejected([(json_path(problem, value), problem.message) for problem in problems])
    result = orjson.dumps(value)
    if len(result) > RESULT_BYTES_MAX:
        return _rejected([("$", f"the record has {len(result)} bytes; at most {RESULT_BYTES_MAX} are taken")])
    return OutputCheck(result=result.decode())


def _rejected(problems: list[tuple[str, str]]) -> OutputCheck:
    lines = [f"- {path}: {message}" for path, message in problems[:PROBLEMS_TOLD]]
    path, message = problems[0]
    problem = "\n".join([REJECTED, *lines, "Answer again, with the whole record."])
    return OutputCheck(path=path, problem=problem, error=f"{path}: {message}")


def json_path(problem: Problem, value: Any) -> str:
    """Return the place of a problem as a JSON path, such as $.items[2].price."""
    path = "$"
    for step in problem.path.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list):
            path, value = f"{path}[{name}]", value[int(name)]
        else:
            path += f".{name}" if name.isidentifier() else f"[{json.dumps(name, ensure_ascii=False)}]"
            value = value.get(name) if isinstance(value, dict) else None
    return path
