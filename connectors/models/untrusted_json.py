"""Reading JSON whose shape is not ours.

A provider, a gateway or a captive portal may send anything. A driver that indexes such JSON directly fails with a
KeyError or TypeError somewhere deep; these readers give the value when it has the expected type and an empty one
otherwise, so a turn ends in a Reply, a Transient or a Permanent and in nothing else. They do not validate: a frame with
a wrong field counts as a frame without it, because providers add fields and frame types at any time.

Servers that cut text by UTF-16 units send the halves of an emoji in two frames. `decode` leaves a half as it is, and
only here is it made whole: TextPieces joins the pieces of one text before it repairs them, `text` repairs a text that
comes in one piece, `encode` a value.

Before: connectors/http/sse.py, json_lines.py. After: the folds of all drivers, failures.
"""

import json
import math
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

    orjson refuses half of a surrogate pair (`"\ud83d"`); such a document is read by the standard library, as strictly.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if b"\\u" not in data:
            raise
        try:
            return json.loads(data.decode(), parse_constant=_finite, parse_float=_finite)
        except RecursionError:
            raise error from None


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise json.JSONDecodeError("a number that is not finite", number, 0)
    return value


def repair_text(text: str) -> str:
    """Return the text as valid UTF-8: adjacent halves of a surrogate pair are joined, single ones replaced."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class TextPieces:
    """A text that arrives in pieces. Half an emoji at the end of a piece waits for the next one; at the end of the
    text it is left out.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._half = ""

    def add(self, value: object) -> str:
        """Add a piece, when the value is a string, and return what can be shown of the text since the last one."""
        if not isinstance(value, str) or not value:
            return ""
        piece = self._half + value
        self._half = piece[-1] if "\ud800" <= piece[-1] <= "\udbff" else ""
        piece = repair_text(piece[:-1] if self._half else piece)
        if piece:
            self._pieces.append(piece)
        return piece

    def __str__(self) -> str:
        return "".join(self._pieces)


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
    """Return the string, or an empty one. A text that may be a piece of one belongs into TextPieces."""
    return repair_text(value) if isinstance(value, str) else ""


def count(value: object) -> int:
    """Return the number of something, 0 to MAX_COUNT; 0 for anything that is not one."""
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return min(max(value, 0), MAX_COUNT)


def encode(value: object) -> str:
    """Return the JSON text of a value that `decode` returned."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # half an emoji, or a number of more than 64 bits
        return repair_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
