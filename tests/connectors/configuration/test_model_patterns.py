import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.configuration.model_patterns import select_newest


@pytest.mark.parametrize(
    ("pattern", "listed", "expected"),
    [
        ("gpt-*", ["gpt-4.9", "gpt-4.10", "other-9"], "gpt-4.10"),
        (
            "claude-sonnet-*",
            ["claude-sonnet-4-5-20250929", "claude-sonnet-4-5", "claude-sonnet-4-20250514"],
            "claude-sonnet-4-5",
        ),
        ("claude-sonnet-*", ["claude-sonnet-4-5-20250929", "claude-sonnet-4-20250514"], "claude-sonnet-4-5-20250929"),
        ("m-*", ["m-1-20250101", "m-1-20250601"], "m-1-20250601"),
        ("llama*", ["llama3.1:8b", "llama3.2:1b"], "llama3.2:1b"),
        ("llama3", ["llama3:70b"], "llama3:70b"),
        ("gpt-5*", ["gpt-5-mini", "gpt-5"], "gpt-5"),
        ("chat-*", ["chat-large", "chat-small"], None),
        ("chat-*", ["chat-large"], "chat-large"),
        ("none-*", ["chat-1"], None),
        ("x", [], None),
    ],
)
def test_the_newest_listed_model_is_picked(pattern: str, listed: list[str], expected: str | None):
    assert select_newest(pattern, listed) == expected


@given(
    st.lists(st.from_regex(r"m-[0-9]{1,3}(\.[0-9]{1,2})?(-mini)?(:[a-z]+)?", fullmatch=True), max_size=6), st.randoms()
)
def test_the_pick_does_not_depend_on_the_order_of_the_list(names: list[str], random: object):
    shuffled = list(names)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    assert select_newest("m-*", names) == select_newest("m-*", shuffled)
    assert (select_newest("m-*", names) is None) == (not names)
