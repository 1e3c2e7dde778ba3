"""Secrets by value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.services.runtime.content.redaction import Redaction


def test_a_known_secret_is_masked_by_its_name() -> None:
    mask = Redaction({"OPENAI_API_KEY": "sk-abcdefgh"})
    assert mask.mask_text("key=sk-abcdefgh;") == "key=[redacted:OPENAI_API_KEY];"


def test_a_secret_that_contains_another_is_masked_whole() -> None:
    mask = Redaction({"SHORT": "abcdefgh", "LONG": "abcdefgh-and-more"})
    assert mask.mask_text("abcdefgh-and-more abcdefgh") == "[redacted:LONG] [redacted:SHORT]"


def test_characters_of_patterns_are_nothing_special_in_a_secret() -> None:
    assert Redaction({"ODD": "a.c+(d)[e]"}).mask_text("abc a.c+(d)[e]") == "abc [redacted:ODD]"


def test_without_secrets_nothing_changes() -> None:
    assert Redaction({}).mask_text("anything") == "anything"


def test_a_result_is_masked_of_what_is_known_and_of_what_looks_like_a_secret() -> None:
    mask = Redaction({"MAIL": "correct-horse"})
    text = "mail correct-horse, api_key=abcdefgh1"
    assert mask.mask_result(text) == "mail [redacted:MAIL], api_key=[redacted:value]"
    assert mask.mask_text(text) == "mail [redacted:MAIL], api_key=abcdefgh1"


SECRETS = {"A": "abab", "B": "ababcc", "C": "bcb", "D": "caa"}


@given(st.lists(st.text("abc", max_size=7), max_size=8), st.dictionaries(st.sampled_from(sorted(SECRETS)), st.none()))
def test_a_text_that_comes_in_pieces_is_masked_as_the_whole_is(pieces: list[str], names: dict[str, None]) -> None:
    mask = Redaction({name: SECRETS[name] for name in names})
    sent, rest = "", ""
    for piece in pieces:
        certain, rest = mask.mask_prefix(rest + piece)
        sent += certain
        assert not any(SECRETS[name] in sent for name in names)
    assert sent + mask.mask_text(rest) == mask.mask_text("".join(pieces))


@pytest.mark.parametrize(
    ("text", "certain", "rest"),
    [
        ("the key is ", "the key is ", ""),
        ("the key is sk-12", "the key is ", "sk-12"),
        ("the key is sk-12345", "the key is [redacted:KEY]", ""),
        ("s", "", "s"),
        ("sk-12345s", "[redacted:KEY]", "s"),
    ],
)
def test_what_may_begin_a_secret_waits_for_what_follows(text: str, certain: str, rest: str) -> None:
    assert Redaction({"KEY": "sk-12345"}).mask_prefix(text) == (certain, rest)
