"""Reads JSON that is sent to us, for every transport.

Before: HTTP bodies, JSON-RPC messages, fields of gRPC messages. After: records of operations, models of bodies.
"""

import json
from collections.abc import Sequence
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


def repeated_key(pairs: Sequence[tuple[str, Any]]) -> str:
    """Return the first key that an object has a second time, shortened for a message; empty when there is none."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name[:QUOTED_CHARACTERS_MAX]
        seen.add(name)
    return ""


def _refuse_twice(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        raise JsonInvalid(f"has the key {repeated_key(pairs)!r} twice in one object")
