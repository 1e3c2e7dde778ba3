"""Strict reading of a body: JSON within bounds, without duplicate keys and without NaN. Pure.

A body that two readers understand differently is refused, because the one that verified it may be another than the one
that acts on it.

Before: services/application/webhooks.py, services/runtime/ingress/records.py. After: mapping.py.
"""

import json
from typing import Any

from loomlog.services.families.webhook.limits import BODY_DEPTH_MAX

NUMBER_DIGITS_MAX = 400
"""Digits of a number; Python refuses to read numbers that are much longer."""


class BodyInvalid(Exception):
    """The body is not JSON as it must be; the text says why."""


def parse_body(raw: bytes | str) -> Any:
    """Return the value of a body. Raises BodyInvalid."""
    try:
        text = raw.decode() if isinstance(raw, bytes) else raw
    except UnicodeDecodeError as error:
        raise BodyInvalid(f"it is not UTF-8: {error.reason} at byte {error.start}") from error
    if _depth(text) > BODY_DEPTH_MAX:
        raise BodyInvalid(f"it is nested deeper than {BODY_DEPTH_MAX}")
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_no_constant, parse_int=_integer, parse_float=_number
        )
    except BodyInvalid:
        raise
    except (ValueError, RecursionError) as error:
        raise BodyInvalid(f"it is not JSON: {error}") from error
    if "\\u" in text or not isinstance(raw, bytes):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise BodyInvalid("a text has half of a surrogate pair") from error
    return value


def _depth(text: str) -> int:
    """Return how deep brackets outside of texts are nested; a bound for any value of the text."""
    depth = deepest = 0
    is_text = is_escaped = False
    if text.count("[") + text.count("{") <= BODY_DEPTH_MAX:
        return 0  # the usual case
    for character in text:
        if is_text:
            if is_escaped:
                is_escaped = False
            elif character == "\\":
                is_escaped = True
            elif character == '"':
                is_text = False
        elif character == '"':
            is_text = True
        elif character in "[{":
            depth += 1
            deepest = max(deepest, depth)
            if deepest > BODY_DEPTH_MAX:
                return deepest
        elif character in "]}":
            depth -= 1
    return deepest


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise BodyInvalid(f"the key {twice[:60]!r} is there twice")
    return value


def _no_constant(name: str) -> Any:
    raise BodyInvalid(f"{name} is no JSON value")


def _integer(digits: str) -> int:
    if len(digits) > NUMBER_DIGITS_MAX:
        raise BodyInvalid(f"a number has {len(digits)} digits: at most {NUMBER_DIGITS_MAX} are read")
    return int(digits)


def _number(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise BodyInvalid(f"the number {digits[:40]} is too large")
    return number
