"""What the answers of hooks mean, and which they may give."""

from typing import Any

import pytest

from loomlog.services.families.hook.answers import (
    DENIAL_CHARACTERS_MAX,
    HOSTS_ADDED_MAX,
    NO_CHANGE,
    Denial,
    HookedResult,
    InvalidHookAnswer,
    PreAnswer,
    apply_post_answer,
    escalation_text,
    is_stronger,
    parse_pre_answer,
    unavailable_text,
)
from loomlog.services.families.hook.state import Hook, may_add_hosts, timeout_s


def hook(name: str = "guard", *, tenant: str = "acme", owner: str = "ops", phase: str = "pre", **more: Any) -> Hook:
    more = {"hook_id": f"h_{name}", **more}
    return Hook(tenant=tenant, owner=owner, name=name, phase=phase, callback_url="https://hooks.example/x", **more)


def test_a_hook_has_five_seconds_unless_it_says_otherwise() -> None:
    assert (timeout_s(hook()), timeout_s(hook(timeout_ms=250))) == (5.0, 0.25)


@pytest.mark.parametrize(
    ("tenant", "permitted", "may"),
    [
        ("acme", ("acme:ops",), True),
        ("acme", ("ops",), False),
        ("acme", ("globex:ops",), False),
        ("", ("ops",), True),
        ("", ("acme:ops",), False),
        ("", (":ops",), False),
        ("acme", (), False),
    ],
)
def test_only_owners_the_operator_names_may_add_hosts(tenant: str, permitted: tuple[str, ...], may: bool) -> None:
    assert may_add_hosts(hook(tenant=tenant), permitted) is may


@pytest.mark.parametrize(
    ("answer", "means"),
    [
        (None, NO_CHANGE),
        ({}, NO_CHANGE),
        ({"later": 1}, NO_CHANGE),
        ({"input": {"a": 1}}, PreAnswer(input={"a": 1})),
        ({"input": {}}, PreAnswer(input={})),
        ({"deny": {"text": "no", "is_error": False}}, PreAnswer(denial=Denial(text="no", is_error=False))),
        ({"deny": {"text": "no"}}, PreAnswer(denial=Denial(text="no", is_error=True))),
        ({"deny": {}}, PreAnswer(denial=Denial(text="denied by a hook", is_error=True))),
        ({"deny": None, "input": None, "allow_hosts": None}, NO_CHANGE),
        ({"allow_hosts": ["a.com", ".b.com", "a.com"]}, PreAnswer(allow_hosts=("a.com", ".b.com"))),
    ],
)
def test_what_a_pre_hook_says(answer: Any, means: PreAnswer) -> None:
    assert parse_pre_answer(answer) == means


@pytest.mark.parametrize(
    "answer",
    [
        [],
        "no",
        {"input": "x"},
        {"deny": True},
        {"deny": "x"},
        {"deny": {"text": 1}},
        {"deny": {"is_error": "yes"}},
        {"allow_hosts": "a.com"},
        {"allow_hosts": [1]},
        {"allow_hosts": [f"h{n}.com" for n in range(HOSTS_ADDED_MAX + 1)]},
    ],
)
def test_what_a_pre_hook_may_not_say(answer: Any) -> None:
    with pytest.raises(InvalidHookAnswer):
        parse_pre_answer(answer)


def test_the_words_of_a_denial_are_bounded() -> None:
    denial = parse_pre_answer({"deny": {"text": "x" * 100_000}}).denial
    assert denial is not None
    assert len(denial.text) == DENIAL_CHARACTERS_MAX


RESULT = HookedResult(text="found", is_error=False)


@pytest.mark.parametrize(
    ("answer", "means"),
    [
        (None, RESULT),
        ({}, RESULT),
        ({"result": None}, RESULT),
        ({"result": {}}, RESULT),
        ({"result": {"text": "other"}}, HookedResult(text="other", is_error=False)),
        ({"result": {"is_error": True}}, HookedResult(text="found", is_error=True)),
        ({"result": {"text": "", "is_error": True}}, HookedResult(text="", is_error=True)),
    ],
)
def test_what_a_post_hook_says(answer: Any, means: HookedResult) -> None:
    assert apply_post_answer(answer, RESULT) == means


@pytest.mark.parametrize("answer", [1, {"result": "x"}, {"result": {"text": 1}}, {"result": {"is_error": 0}}])
def test_what_a_post_hook_may_not_say(answer: Any) -> None:
    with pytest.raises(InvalidHookAnswer):
        apply_post_answer(answer, RESULT)


def test_the_model_reads_which_hook_could_not_be_asked() -> None:
    assert unavailable_text(hook()) == "tool_call denied: hook ops/guard unavailable"
    assert unavailable_text(hook(phase="post")) == "tool_result withheld: hook ops/guard unavailable"


@pytest.mark.parametrize(
    ("became", "asked", "worse"),
    [("read", "pure", True), ("unsafe", "idempotent", True), ("read", "read", False), ("pure", "unsafe", False)],
)
def test_a_rewritten_call_may_not_be_stronger_than_its_intent(became: str, asked: str, worse: bool) -> None:
    assert is_stronger(became, asked) is worse


def test_a_call_that_became_stronger_is_denied_in_words() -> None:
    assert "effect class unsafe out of one with read" in escalation_text(hook(), "read", "unsafe")
