"""Dead letters of the insights service."""

import hashlib

import pytest

from loomlog.schemas.codec import Undecodable, UnknownSchema, local_codec
from loomlog.schemas.generated.stream_records import DeadLetter, Header
from loomlog.services.insights.dead_letters import (
    MAX_HEADERS_BYTES,
    MAX_KEY_BYTES,
    MAX_VALUE_BYTES,
    build_dead_letter,
    kind_of,
    position_key,
)
from loomlog.services.insights.faust_adapters import MAX_REQUEST_BYTES
from loomlog.services.insights.minute_windows import InvalidTally


def letter(
    value: bytes | None = b"raw",
    *,
    key: bytes | None = b"k",
    headers: tuple[tuple[str, bytes | None], ...] = (),
    error: Exception | None = None,
) -> DeadLetter:
    return build_dead_letter(
        topic="loom.insights.runs",
        partition=3,
        offset=77,
        timestamp_ms=1_000,
        key=key,
        value=value,
        headers=headers,
        error=error or Undecodable("not framed"),
        at_ms=2_000,
    )


def test_a_letter_has_the_bytes_the_headers_the_position_and_the_error() -> None:
    assert letter(headers=(("h", b"1"), ("h", b"2"))) == DeadLetter(
        topic="loom.insights.runs",
        partition=3,
        offset=77,
        timestamp_ms=1_000,
        service="insights",
        kind="undecodable",
        error="Undecodable: not framed",
        at_ms=2_000,
        key=b"k",
        value=b"raw",
        headers=(Header(key="h", value=b"1"), Header(key="h", value=b"2")),
    )


def test_a_record_without_key_value_and_header_values_can_be_dead_lettered() -> None:
    dead_letter = letter(None, key=None, headers=(("h", None),))
    assert (dead_letter.key, dead_letter.value, dead_letter.headers) == (None, None, (Header(key="h", value=b""),))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UnknownSchema(9), "unknown_schema"),
        (Undecodable("x"), "undecodable"),
        (InvalidTally("x"), "refused"),
        (KeyError("x"), "fold_bug"),
    ],
)
def test_the_kind_depends_on_the_error(error: Exception, kind: str) -> None:
    assert kind_of(error) == kind


def test_a_huge_record_is_truncated_and_the_letter_says_so() -> None:
    value = b"v" * (MAX_VALUE_BYTES + 1)
    dead_letter = letter(value)
    assert dead_letter.value == value[:-1]
    assert f"value of {len(value)} bytes was cut" in dead_letter.error
    assert hashlib.sha256(value).hexdigest() in dead_letter.error


def test_even_the_largest_letter_fits_a_record() -> None:
    dead_letter = letter(
        b"v" * 5_000_000,
        key=b"k" * (MAX_KEY_BYTES + 1),
        headers=tuple((f"h{n}", b"x" * 1_000) for n in range(MAX_HEADERS_BYTES // 1_000 + 1)),
        error=Undecodable("e" * 100_000),
    )
    assert dead_letter.headers == ()
    assert "66 headers" in dead_letter.error
    assert len(local_codec().encode(dead_letter)) < MAX_REQUEST_BYTES - 100_000


def test_two_letters_about_one_record_have_the_same_key() -> None:
    assert position_key("loom.insights.runs", 3, 77) == b"loom.insights.runs/3/77"
