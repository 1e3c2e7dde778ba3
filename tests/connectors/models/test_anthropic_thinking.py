import pytest

from loomlog.connectors.models.anthropic_thinking import (
    LAYOUT_PREFIX,
    ThinkingTraits,
    budget_tokens,
    pack,
    thinking_traits,
    unpack,
)

CALLS = {"t1": {"type": "tool_use", "id": "t1"}}


@pytest.mark.parametrize(
    ("model", "thinks", "adaptive", "sampling"),
    [
        ("claude-2.1", False, False, True),
        ("claude-instant-1.2", False, False, True),
        ("claude-3-5-sonnet-20241022", False, False, True),
        ("claude-3-7-sonnet-20250219", True, False, True),
        ("claude-sonnet-4-20250514", True, False, True),
        ("claude-opus-4-1-20250805", True, False, True),
        ("claude-sonnet-4-5", True, False, True),
        ("claude-haiku-4-5-20251001", False, False, True),
        ("claude-sonnet-4-6", True, True, True),
        ("claude-opus-4-7", True, True, False),
        ("claude-opus-4-10", True, True, False),
        ("claude-opus-5-20270101", True, True, False),
        ("anthropic.claude-opus-4-6-v1", True, True, True),
        ("claude-mythos-preview", True, True, False),
    ],
)
def test_traits_are_read_off_the_name(model: str, thinks: bool, adaptive: bool, sampling: bool) -> None:
    assert thinking_traits(model) == ThinkingTraits(can_think=thinks, is_adaptive=adaptive, takes_sampling=sampling)


def test_an_unknown_effort_has_no_budget() -> None:
    assert budget_tokens("extreme", 100_000) == 0


def test_without_thinking_there_is_no_signature() -> None:
    assert pack([("text", 3), ("tool", "t1")]) == ""


def test_thinking_once_at_the_beginning_keeps_the_providers_own_signature() -> None:
    assert pack([("thinking", 5, "c2ln"), ("text", 3)]) == "c2ln"


@pytest.mark.parametrize(
    "layout",
    [
        [("thinking", 1, "a"), ("thinking", 1, "b")],
        [("redacted", "x")],
        [("text", 1), ("thinking", 1, "a")],
    ],
)
def test_any_other_thinking_is_a_layout(layout: list[tuple[object, ...]]) -> None:
    assert pack(layout).startswith(LAYOUT_PREFIX)


def test_nothing_is_replayed_without_a_signature() -> None:
    assert unpack("", "hm", "text", CALLS) is None


def test_the_layout_of_another_provider_is_not_replayed() -> None:
    assert unpack('gemini:[["text",4,"c2ln"]]', "hm", "text", CALLS) is None


def test_a_plain_signature_replays_thinking_first() -> None:
    assert unpack("sig", "hm", "text", CALLS) == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "text"},
        CALLS["t1"],
    ]
    assert unpack("sig", "", "a", {}) == [
        {"type": "thinking", "thinking": "", "signature": "sig"},
        {"type": "text", "text": "a"},
    ]


def test_thinking_that_was_cut_before_its_signature_came_is_not_sent_back() -> None:
    layout = [("thinking", 2, "sig1"), ("text", 1), ("thinking", 3, ""), ("redacted", ""), ("text", 1)]
    assert unpack(pack(layout), "hmcut", "TU", {}) == [
        {"type": "thinking", "thinking": "hm", "signature": "sig1"},
        {"type": "text", "text": "T"},
        {"type": "text", "text": "U"},
    ]


@pytest.mark.parametrize("layout", [[("thinking", 2, "sig")], [("thinking", 2, "sig"), ("text", 2), ("redacted", "x")]])
def test_no_message_ends_with_thinking(layout: list[tuple[object, ...]]) -> None:
    text = "\n\n" if len(layout) > 1 else ""
    assert unpack(pack(layout), "hm", text, {}) == []


@pytest.mark.parametrize(
    ("reasoning", "text", "calls"),
    [
        ("hm", "tex", CALLS),
        ("h", "text", CALLS),
        ("hm", "text", {}),
        ("hm", "text", {**CALLS, "t2": {}}),
    ],
)
def test_a_message_that_was_changed_is_not_replayed(
    reasoning: str, text: str, calls: dict[str, dict[str, object]]
) -> None:
    signature = pack([("redacted", "x"), ("thinking", 2, "s"), ("text", 4), ("tool", "t1")])
    assert unpack(signature, "hm", "text", CALLS) is not None
    assert unpack(signature, reasoning, text, calls) is None


@pytest.mark.parametrize("rest", ["", "{", "{}", '[["thinking"]]', '[["tool", 3]]', '[["text", -1]]'])
def test_a_layout_nobody_wrote_is_not_replayed(rest: str) -> None:
    assert not unpack(LAYOUT_PREFIX + rest, "hm", "text", {})
