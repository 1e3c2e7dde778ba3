from typing import Any

import pytest

from loomlog.connectors.models.gemini_thinking import FIRST_SIGNED, budget_tokens, model_version, pack, unpack

CALL = {"functionCall": {"name": "Search", "args": {}}}


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("gemini-2.5-pro", (2, 5)),
        ("gemini-3-flash-preview", (3, 0)),
        ("gemini-1.5-flash-8b", (1, 5)),
        ("gemini-pro", (1, 0)),
        ("gemini-flash-latest", FIRST_SIGNED),
        ("gemma-3-27b-it", (0, 0)),
    ],
)
def test_the_version_is_in_the_name(model: str, found: tuple[int, int]) -> None:
    assert model_version(model) == found


@pytest.mark.parametrize(
    ("model", "effort", "max_tokens", "budget"),
    [
        ("gemini-2.5-flash", "low", 0, 0),
        ("gemini-2.5-flash", "medium", 0, 2048),
        ("gemini-2.5-flash", "high", 0, 8192),
        ("gemini-2.5-flash", "high", 4096, 3072),
        ("gemini-2.5-flash", "high", 1100, 0),
        ("gemini-2.5-flash-lite", "medium", 1400, 0),
        ("gemini-2.5-flash-lite", "medium", 1600, 576),
        ("gemini-2.5-pro", "low", 0, 128),
        ("gemini-2.5-pro", "high", 500, 128),
        ("gemini-3-flash-preview", "low", 0, 128),
        ("Gemini-2.5-Flash", "medium", 0, 2048),
        ("gemini-2.0-flash", "high", 0, None),
        ("gemini-2.5-flash-image", "high", 0, None),
        ("gemini-2.5-flash", "", 0, None),
        ("gemma-3-27b-it", "high", 0, None),
    ],
)
def test_budgets_by_effort_are_clamped_to_what_the_model_and_max_tokens_allow(
    model: str, effort: str, max_tokens: int, budget: int | None
) -> None:
    assert budget_tokens(model, effort, max_tokens) == budget


def test_nothing_signed_leaves_no_signature() -> None:
    assert pack([("thought", 3, ""), ("text", 2, ""), ("call", "c1", "")]) == ""


def test_signed_parts_come_back_in_their_places() -> None:
    signature = pack(
        [("thought", 3, ""), ("thought", 2, "s1"), ("text", 2, ""), ("call", "c1", "s2"), ("text", 0, "s3")]
    )
    assert unpack(signature, "hmmah", "ok", {"c1": CALL}) == [
        {"text": "ah", "thought": True, "thoughtSignature": "s1"},
        {"text": "ok"},
        {**CALL, "thoughtSignature": "s2"},
        {"text": "", "thoughtSignature": "s3"},
    ]


SIGNATURE = pack([("text", 2, "s"), ("call", "c1", "")])


@pytest.mark.parametrize(
    ("signature", "reasoning", "text", "calls"),
    [
        ("", "", "ok", {"c1": CALL}),
        ("c2lnbmVkIGJ5IENsYXVkZQ==", "hm", "ok", {"c1": CALL}),
        ("layout:[]", "", "ok", {}),
        (SIGNATURE, "", "other", {"c1": CALL}),
        (SIGNATURE, "new", "ok", {"c1": CALL}),
        (SIGNATURE, "", "ok", {}),
        (SIGNATURE, "", "ok", {"c1": CALL, "c2": CALL}),
        ("gemini:[", "", "", {}),
        ("gemini:3", "", "ok", {}),
        ('gemini:[["text","2","s"]]', "", "ok", {}),
    ],
)
def test_another_providers_signature_and_a_changed_message_are_not_replayed(
    signature: str, reasoning: str, text: str, calls: dict[str, Any]
) -> None:
    assert unpack(signature, reasoning, text, calls) is None
