import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.schemas.ids import (
    ALPHABET,
    ID_PATTERN,
    TOKEN_CHARACTERS,
    base32,
    event_id,
    fresh_token,
    hashed_token,
    partition_key,
)

TIMES = st.integers(min_value=0, max_value=2**48 - 1)
RANDOM = st.binary(min_size=10, max_size=16)
TOKENS = st.text(alphabet=ALPHABET, min_size=1, max_size=26)
SUFFIXES = st.text(alphabet=ALPHABET + "-_", max_size=20)


@given(st.integers(min_value=0, max_value=2**128 - 1))
def test_base32_keeps_all_128_bits_in_26_characters(value: int) -> None:
    text = base32(value)
    assert len(text) == TOKEN_CHARACTERS
    assert sum(ALPHABET.index(character) << 5 * (25 - at) for at, character in enumerate(text)) == value


@given(TIMES, TIMES, RANDOM, RANDOM)
def test_fresh_tokens_sort_by_time(one_ms: int, other_ms: int, one: bytes, other: bytes) -> None:
    first, second = fresh_token(one_ms, one), fresh_token(other_ms, other)
    assert len(first) == TOKEN_CHARACTERS
    if one_ms != other_ms:
        assert (first < second) == (one_ms < other_ms)


@given(TIMES, RANDOM, RANDOM)
def test_fresh_tokens_of_one_millisecond_differ_by_their_random_bits(at_ms: int, one: bytes, other: bytes) -> None:
    assert (fresh_token(at_ms, one) == fresh_token(at_ms, other)) == (one[:10] == other[:10])


@given(st.lists(st.text(max_size=6), max_size=4), st.lists(st.text(max_size=6), max_size=4))
def test_hashed_tokens_are_equal_only_for_equal_lists(one: list[str], other: list[str]) -> None:
    assert (hashed_token(*one) == hashed_token(*other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"), [(("ab", "c"), ("a", "bc")), (("ab",), ("a", "b")), (("a", ""), ("a",)), (("", "a"), ("a", ""))]
)
def test_parts_that_read_the_same_together_do_not_collide(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert hashed_token(*one) != hashed_token(*other)


@given(TOKENS, SUFFIXES)
def test_a_run_its_session_and_its_handle_share_the_token_as_key(token: str, suffix: str) -> None:
    for letter in "rsa":
        assert partition_key(f"{letter}_{token}") == token
        assert partition_key(f"{letter}_{token}-{suffix}") == token


@given(TOKENS)
def test_a_key_is_its_own_key(token: str) -> None:
    assert partition_key(token) == token


@pytest.mark.parametrize("chosen", ["my-session", "x_abc", "r", "r_", "_r_a", "R_abc", "ticket 7", ""])
def test_any_other_text_is_its_own_key(chosen: str) -> None:
    assert partition_key(chosen) == chosen


@given(TIMES, RANDOM)
def test_generated_ids_are_ids_a_caller_may_name(at_ms: int, random_bytes: bytes) -> None:
    token = fresh_token(at_ms, random_bytes)
    assert ID_PATTERN.match(f"r_{token}-{hashed_token('a')}")
    assert partition_key(f"r_{token}-{hashed_token('a')}") == token


@pytest.mark.parametrize("text", ["", "a" * 129, "a b", "a\n", "ä", "a/b", "a.b"])
def test_what_is_not_an_id_is_not_matched(text: str) -> None:
    assert not ID_PATTERN.match(text)


@given(st.text(max_size=40), st.integers(min_value=0, max_value=2**63))
def test_an_event_id_is_uuid5_over_aggregate_and_seq(aggregate: str, seq: int) -> None:
    assert event_id(aggregate, seq) == str(uuid.uuid5(uuid.NAMESPACE_URL, f"{aggregate}:{seq}"))
