"""The part of the checker that judges calls of an MCP server: a log as it should be, and every way to spoil it."""

import json
from dataclasses import replace

import pytest

from loomlog.schemas.generated.values import ToolCall
from tests.chaos.checker import told
from tests.chaos.history import accepted
from tests.chaos.payments import NOTE, noted_once
from tests.chaos.story_book import Log, begin, replied, returned, tool


def wrong_in(notes: list[str], outcome: str, *, is_made: bool = True) -> list[str]:
    """The kinds of what is wrong with a call that writes `a`, with these lines."""
    log = Log()
    log.claim()
    log.order()
    begin(log)
    log.event(replied(1, ToolCall(id="c1", name=NOTE, input=json.dumps({"text": "a"}))))
    if is_made:
        log.event(tool())
    log.event(returned(outcome=outcome, attempt=int(is_made)))
    histories = {0: accepted(0, log.events)}
    evidence = replace(log.evidence(), notes=notes)
    return [violation.kind for violation in noted_once(evidence, histories, told(histories))]


@pytest.mark.parametrize(
    ("notes", "outcome", "kinds"),
    [
        (["a"], "ok", []),
        ([], "ok", ["lost effect"]),
        (["a", "a"], "ok", ["doubled effect"]),
        ([], "outcome_unknown", []),
        (["a"], "outcome_unknown", []),
        (["a", "b"], "ok", ["effect without intent"]),
    ],
)
def test_lines_and_log_say_the_same(notes: list[str], outcome: str, kinds: list[str]) -> None:
    assert wrong_in(notes, outcome) == kinds


def test_a_call_that_was_denied_wrote_nothing() -> None:
    assert wrong_in([], "denied", is_made=False) == []
    assert wrong_in(["a"], "denied", is_made=False) == ["doubled effect"]
