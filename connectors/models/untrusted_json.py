"""Reading JSON whose shape is not ours.

A provider, a gateway or a captive portal may send anything. A driver that indexes such JSON directly fails with a
KeyError or TypeError somewhere deep; these readers give the value when it has the expected type and an empty one
otherwise, so a turn ends in a Reply, a Transient or a Permanent and in nothing else. They do not validate: a frame with
a wrong field counts as a frame without it, because providers add fields and frame types at any time.

Before: connectors/http/sse.py, json_lines.py. After: the folds of all drivers, failures.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import orjson

from loomlog.connectors.errors import Transient
from loomlog.connectors.http.sse import ServerSentEvent

EMPTY: Mapping[str, Any] = MappingProxyType({})
MAX_COUNT = 1 << 53
"""Largest count; anything above is not a count. It also fits every JSON reader and Avro's long."""


def decode(data: bytes) -> Any:
    r"""Return the JSON value. Raises ValueError when it is not JSON.

    orjson refuses half of a surrogate pair (`"\ud83d"`), which servers send that cut text in the middle of an emoji;
    such text is read with the replacement `?` instead of failing the turn.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if b"\\u" not in data:
            raise
        try:
            tolerant = json.dumps(json.loads(data), ensure_ascii=False)
        except RecursionError:
            raise error from None
        return orjson.loads(tolerant.encode(errors="replace"))


def frame(provider: str, event: ServerSentEvent) -> Mapping[str, Any]:
    """Return the object in the data of an event. Raises Transient(interrupted) for bytes that are not JSON."""
    try:
        return fields(decode(event.data))
    except ValueError as error:
        raise Transient(
            f"{provider}: the stream contained an event of {len(event.data)} bytes that is not JSON", kind="broken_off"
        ) from error


def fields(value: object) -> Mapping[str, Any]:
    """Return the object, or an empty one."""
    return value if isinstance(value, dict) else EMPTY


def items(value: object) -> list[Any]:
    """Return the array, or an empty one."""
    return value if isinstance(value, list) else []


def text(value: object) -> str:
    """Return the string, or an empty one."""
    return value if isinstance(value, str) else ""


def count(value: object) -> int:
    """Return the number of something, 0 to MAX_COUNT; 0 for anything that is not one."""
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return min(max(value, 0), MAX_COUNT)


def encode(value: object) -> str:
    """Return the JSON text of a value that `decode` returned."""
    return orjson.dumps(value).decode()
