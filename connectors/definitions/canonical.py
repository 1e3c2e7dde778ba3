"""Unique JSON text of a content, and the refusal of what no content may hold.

Lone surrogates cannot be written as UTF-8, the tables cannot store U+0000, and numbers beyond 64 bits are read
differently by different programs, so a content with one of them is refused before it is stored anywhere.

Before: problems.py. After: kind.py checks overlays and measures contents with it.
"""

import json
import math
from typing import Any

from loomlog.connectors.definitions.problems import DefinitionProblem, quote

MAX_DEPTH = 32
"""Levels of objects and lists within each other; the deepest kind has seven, the rest is for free-form values."""
MAX_INTEGER = 2**63 - 1
MAX_SHOWN_PATH = 200
"""Characters of a place that a message shows."""


def canonical_json(content: Any) -> str:
    """Return the unique text of a JSON value: sorted keys, no spaces. Raises DefinitionProblem(invalid_definition)."""
    _require_json(content, "", 1)
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def join_path(path: str, step: str | int) -> str:
    """Return a path as `states[1].handler.agent`; keys that are no identifiers are quoted: `files["a b"]`."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    if not step.isidentifier():
        return f"{path}[{quote(step)}]"
    return f"{path}.{step}" if path else step


def _require_json(value: Any, path: str, depth: int) -> None:
    match value:
        case None | bool():
            return
        case str():
            _require_storable(value, path)
        case int():
            if not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
                raise _invalid(path, "expected a whole number of at most 64 bits")
        case float():
            if not math.isfinite(value):
                raise _invalid(path, "expected a finite number")
        case dict() | list() if depth > MAX_DEPTH:
            raise _invalid(path, f"expected at most {MAX_DEPTH} levels of objects and lists")
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise _invalid(path, "expected an object whose keys are text")
                _require_storable(key, path)
                _require_json(item, join_path(path, key), depth + 1)
        case list():
            for position, item in enumerate(value):
                _require_json(item, join_path(path, position), depth + 1)
        case _:
            raise _invalid(path, f"expected a JSON value, not a {type(value).__name__}")


def _require_storable(text: str, path: str) -> None:
    if "\0" in text or (not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)):
        raise _invalid(path, "expected text without U+0000 and without halves of surrogate pairs")


def _invalid(path: str, expected: str) -> DefinitionProblem:
    shown = path if len(path) <= MAX_SHOWN_PATH else path[:MAX_SHOWN_PATH] + "…"
    return DefinitionProblem("invalid_definition", f"{shown or 'the definition'}: {expected}")
