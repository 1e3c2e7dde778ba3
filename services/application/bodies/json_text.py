"""Reads JSON that is sent to us, for every transport.

Before: HTTP bodies, JSON-RPC messages, fields of gRPC messages. After: records of operations, models of bodies.
"""

import json
from typing import Any

import orjson

QUOTED_CHARACTERS_MAX = 60


class JsonInvalid(ValueError):
    """A text that is not JSON, or JSON of which a part would be lost."""


def parse_json(raw: bytes) -> Any:
    """Return the value of a text. Raises JsonInvalid: it is not JSON (RFC 8259; NaN and numbers over the range of a
    double are not), over a thousand deep, or has an object with a key twice, of which only one value would be kept and
    another reader, as a proxy that checks what it passes on, might keep the other.
    """
    try:
        value = orjson.loads(raw)
        json.loads(raw, object_pairs_hook=_refuse_twice)
    except orjson.JSONDecodeError as error:
        raise JsonInvalid(f"is not JSON: {error}") from error
    except RecursionError as error:
        raise JsonInvalid("is nested too deeply") from error
    return value


def _refuse_twice(pairs: list[tuple[str, Any]]) -> None:
    names = {name for name, _ in pairs}
    if len(names) < len(pairs):
        twice = next(name for name in names if sum(name == other for other, _ in pairs) > 1)
        raise JsonInvalid(f"has the key {twice[:QUOTED_CHARACTERS_MAX]!r} twice in one object")
