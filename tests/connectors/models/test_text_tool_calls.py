from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.connectors.models.text_tool_calls import MAX_HELD_CHARACTERS, HeldText, TextToolCall, parse_calls

TOOLS = ("Search", "Now")
SEARCH = TextToolCall(name="Search", arguments='{"query":"x"}')
NOW = TextToolCall(name="Now", arguments="{}")
FLAT = '{"name": "Search", "arguments": {"query": "x"}}'


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (FLAT, [SEARCH]),
        (f"\n <tool_call>\n{FLAT}\n</tool_call>\n", [SEARCH]),
        (f"<tool_call>{FLAT}", [SEARCH]),
        (f"<function_call>{FLAT}</function_call>", [SEARCH]),
        (f"```json\n{FLAT}\n```", [SEARCH]),
        (f"```\n{FLAT}\n```", [SEARCH]),
        ('{"type": "function", "function": {"name": "Search", "arguments": {"query": "x"}}}', [SEARCH]),
        ('{"function": {"name": "Search", "arguments": "{\\"query\\": \\"x\\"}"}}', [SEARCH]),
        ('{"function": "Search", "parameters": {"query": "x"}}', [SEARCH]),
        ('{"tool": "Search", "input": {"query": "x"}}', [SEARCH]),
        ('{"name": "Now"}', [NOW]),
        ('{"function": {"name": "Now"}}', [NOW]),
        (f'<tool_call>{FLAT}</tool_call>\n<tool_call>{{"name": "Now"}}</tool_call>', [SEARCH, NOW]),
        (f"<tool_calls>[{FLAT}, {FLAT}]</tool_calls>", [SEARCH, SEARCH]),
    ],
)
def test_these_texts_are_calls(text: str, calls: list[TextToolCall]) -> None:
    assert parse_calls(text, TOOLS) == calls


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I would call Search.",
        f"Like so: {FLAT}",
        f"{FLAT} and so on",
        f"<tool_call>{FLAT}</tool_call> Done.",
        '{"name": "Unknown", "arguments": {}}',
        '{"name": "Search", "arguments": "no json"}',
        '{"name": "Search", "arguments": [1]}',
        '{"name": "Search", "age": 3}',
        '{"name": ["Search"], "arguments": {}}',
        '{"query": "x"}',
        FLAT[:-3],
        "<tool_call>",
        "[]",
        "3",
        "[" * 100_000,
    ],
)
def test_these_texts_are_texts(text: str) -> None:
    assert parse_calls(text, TOOLS) == []


def fed(*pieces: str, tools: tuple[str, ...] = TOOLS, called: bool = False) -> tuple[list[str], list[TextToolCall]]:
    held = HeldText(tools)
    shown = [held.feed(piece) for piece in pieces]
    rest, calls = held.finish(has_calls=called)
    return [piece for piece in (*shown, rest) if piece], calls


def test_ordinary_text_flows() -> None:
    assert fed("I ", "look < there ", "<b>now</b>.") == (["I ", "look < there ", "<b>now</b>."], [])


def test_a_call_is_not_shown() -> None:
    assert fed('{"name":', ' "Search", "arguments": {"query": "x"}}') == ([], [SEARCH])
    assert fed("<tool", "_call>", FLAT, "</tool_call>") == ([], [SEARCH])
    assert fed("``", "`json\n", FLAT, "\n```") == ([], [SEARCH])


def test_a_sentence_before_the_call_is_shown_and_stays() -> None:
    assert fed("I look. <too", f"l_call>{FLAT}") == (["I look. "], [SEARCH])


def test_what_was_no_call_is_shown_in_the_end() -> None:
    assert fed('{"a": ', "1}") == (['{"a": 1}'], [])
    assert fed("<tool", "box>") == (["<toolbox>"], [])
    assert fed("a <") == (["a ", "<"], [])


def test_json_in_the_middle_is_text() -> None:
    assert fed("So: ", FLAT) == (["So: ", FLAT], [])


def test_without_tools_nothing_is_held() -> None:
    assert fed("{", '"a": 1}', tools=()) == (["{", '"a": 1}'], [])


def test_a_model_that_called_in_earnest_wrote_a_text_beside_it() -> None:
    assert fed(FLAT, called=True) == ([FLAT], [])


def test_a_very_long_text_is_let_go() -> None:
    long = "{" + "x" * MAX_HELD_CHARACTERS
    assert fed(long, "y") == ([long, "y"], [])


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", " ", "<", "tool_call", ">", "{", "}", "`", "``", "\n", FLAT, "</tool_call>"])))
def test_nothing_is_lost_and_nothing_is_said_twice(pieces: list[str]) -> None:
    shown, calls = fed(*pieces)
    if not calls:
        assert "".join(shown) == "".join(pieces)
    else:
        assert "".join(pieces).startswith("".join(shown))


@settings(deadline=None)
@given(st.lists(st.integers(0, 80), max_size=8))
def test_any_chunking_gives_the_same_calls(cuts: list[int]) -> None:
    text = f"I look.\n<tool_call>\n{FLAT}\n</tool_call>"
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    shown, calls = fed(*(text[start:end] for start, end in pairwise(edges)))
    assert ("".join(shown), calls) == ("I look.\n", [SEARCH])
