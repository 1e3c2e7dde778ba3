"""Strict reading of a body: JSON within bounds, without duplicate keys and without NaN. Pure.

    unpack_body    the JSON in a body as senders pack it: content-encoding gzip, a form with the field `payload`
                   (GitHub's other content type), a byte order mark. The proof is over the body as it came
    parse_body     its value

A body that two readers understand differently is refused, because the one that verified it may be another than the one
that acts on it.

Before: receiving.py, ingress_records.py. After: mapping.py.
"""

import json
import zlib
from codecs import BOM_UTF8
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from loomlog.services.core.json_text import repeated_key
from loomlog.services.families.webhook.limits import BODY_DEPTH_MAX

FORM = "application/x-www-form-urlencoded"
FORM_FIELD = "payload"
FORM_FIELDS_MAX = 100
GZIP = 31
"""`wbits` of zlib for the gzip format."""
NUMBER_DIGITS_MAX = 400
"""Digits of a number; Python refuses to read numbers that are much longer."""


class BodyInvalid(Exception):
    """The body is not JSON as it must be; the text says why."""


class BodyTooLong(BodyInvalid):
    """The body is longer than the limit once it is unpacked."""


def unpack_body(raw: bytes, headers: Mapping[str, str], *, bytes_max: int) -> bytes:
    """Return the JSON of a body; `headers` have names in lower case. Raises BodyInvalid."""
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding in ("gzip", "x-gzip"):
        raw = _gunzip(raw, bytes_max)
    elif encoding not in ("", "identity"):
        raise BodyInvalid(f"content-encoding is {encoding[:40]!r}: expected gzip or none")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == FORM and raw.lstrip()[:1] not in (b"{", b"["):  # curl says FORM for whatever it sends
        raw = _form_field(raw)
    return raw.removeprefix(BOM_UTF8)


def _gunzip(raw: bytes, bytes_max: int) -> bytes:
    unpacking = zlib.decompressobj(GZIP)
    try:
        unpacked = unpacking.decompress(raw, bytes_max + 1)
    except zlib.error as error:
        raise BodyInvalid(f"it is not gzip: {error}") from error
    if len(unpacked) > bytes_max:
        raise BodyTooLong(f"it has more than {bytes_max} bytes once it is unpacked")
    if not unpacking.eof or unpacking.unused_data:
        raise BodyInvalid("it is not one whole gzip member")
    return unpacked


def _form_field(raw: bytes) -> bytes:
    try:
        fields = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=FORM_FIELDS_MAX,
        )
    except ValueError as error:
        raise BodyInvalid(f"it is not a form: {error}") from error
    values = [value for name, value in fields if name == FORM_FIELD]
    if len(values) != 1:
        raise BodyInvalid(f"a form must have its JSON in one field {FORM_FIELD}; it has {len(values)} of these")
    return values[0].encode()


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
    if len(value) < len(pairs):
        raise BodyInvalid(f"the key {repeated_key(pairs)!r} is there twice")
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
