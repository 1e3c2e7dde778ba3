"""Secrets by value."""

from services.runtime.redaction import Redaction


def test_a_known_secret_is_masked_by_its_name() -> None:
    mask = Redaction({"OPENAI_API_KEY": "sk-abcdefgh"})
    assert mask.text("key=sk-abcdefgh;") == "key=[redacted:OPENAI_API_KEY];"


def test_a_secret_that_contains_another_is_masked_whole() -> None:
    mask = Redaction({"SHORT": "abcdefgh", "LONG": "abcdefgh-and-more"})
    assert mask.text("abcdefgh-and-more abcdefgh") == "[redacted:LONG] [redacted:SHORT]"


def test_characters_of_patterns_are_nothing_special_in_a_secret() -> None:
    assert Redaction({"ODD": "a.c+(d)[e]"}).text("abc a.c+(d)[e]") == "abc [redacted:ODD]"


def test_without_secrets_nothing_changes() -> None:
    assert Redaction({}).text("anything") == "anything"


def test_a_result_is_masked_of_what_is_known_and_of_what_looks_like_a_secret() -> None:
    mask = Redaction({"MAIL": "correct-horse"})
    text = "mail correct-horse, api_key=abcdefgh1"
    assert mask.result(text) == "mail [redacted:MAIL], api_key=[redacted:value]"
    assert mask.text(text) == "mail [redacted:MAIL], api_key=abcdefgh1"
