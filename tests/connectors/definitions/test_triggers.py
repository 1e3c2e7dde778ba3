"""Hooks of ends of runs: what is a hook, what is refused and where, and their form in a run."""

import json
from typing import Any

import pytest

from loomlog.connectors.definitions import DefinitionProblem
from loomlog.connectors.definitions.triggers import (
    HOOKS_MAX,
    PAYLOAD_BYTES_MAX,
    CompletionHook,
    hook_texts,
    parse_hooks,
    read_hook,
)

PUBLISH: dict[str, Any] = {"kind": "channel.publish", "channel": "done", "payload": {"text": "{{run.final_text}}"}}
MEMORY: dict[str, Any] = {"kind": "memory.set", "scope": "user", "key": "last", "payload": None}
HTTP: dict[str, Any] = {"kind": "http", "on": "any", "url": "https://a.example/x", "secret_env": "A_SECRET"}


def problem(*hooks: Any) -> tuple[str, str]:
    with pytest.raises(DefinitionProblem) as raised:
        parse_hooks(hooks)
    return raised.value.reason, raised.value.message


def test_a_hook_is_the_same_after_it_was_in_a_run() -> None:
    hooks = parse_hooks([PUBLISH, MEMORY, HTTP])
    read = [read_hook(text) for text in hook_texts(hooks, {"schedule_name": "nightly"})]
    assert [hook for hook, _ in read] == list(hooks)
    assert [source for _, source in read] == [{"schedule_name": "nightly"}] * 3
    assert [read_hook(text)[1] for text in hook_texts(hooks)] == [{}] * 3


def test_a_hook_follows_completed_runs_unless_it_says_otherwise() -> None:
    publish, _, http = parse_hooks([PUBLISH, MEMORY, HTTP])
    (failed,) = parse_hooks([{**PUBLISH, "on": "failed"}])
    due = [[one.is_due(status) for one in (publish, failed, http)] for status in ("completed", "failed", "cancelled")]
    assert due == [[True, False, True], [False, True, True], [False, False, True]]


@pytest.mark.parametrize(
    ("hook", "reason", "text"),
    [
        (
            {"kind": "mcp.call", "server": "s", "tool": "t", "args": {"a": 1}, "payload": {}},
            "invalid_definition",
            "on_complete[1].payload: a call of a tool has args",
        ),
        (
            {"kind": "mcp.call", "server": "s", "tool": "t", "args": {"a": "x" * 70_000}},
            "too_large",
            "on_complete[1].args has",
        ),
        ({"kind": "http", "url": "ftp://a"}, "invalid_definition", "on_complete[1].url: expected an address"),
        ({"kind": "http", "url": "https://a:b@c/"}, "invalid_definition", "on_complete[1].url: expected an address"),
        ({**HTTP, "secret_env": "s3cret"}, "invalid_definition", "on_complete[1].secret_env: expected the NAME"),
        (
            {**HTTP, "url": f"https://a/{'x' * 2_000}"},
            "invalid_definition",
            "on_complete[1].url: expected at most 2000",
        ),
        ({**MEMORY, "scope": "run"}, "invalid_definition", "on_complete[1].scope: expected agent, user"),
        ({**PUBLISH, "channel": "_system/beats"}, "invalid_definition", "on_complete[1].channel: channels of _system/"),
        ({**PUBLISH, "on": "ever"}, "invalid_definition", "on_complete[1].on: expected"),
        ({"kind": "channel.publish"}, "missing_field", "on_complete[1].channel"),
        ({**PUBLISH, "source": {}}, "unknown_field", 'unknown field "source" in on_complete[1]'),
        ({**PUBLISH, "payload": "x" * PAYLOAD_BYTES_MAX}, "too_large", "on_complete[1].payload has 65538 bytes"),
        ("publish", "invalid_definition", "on_complete[1]: expected"),
    ],
)
def test_what_is_no_hook_is_refused_with_its_place(hook: Any, reason: str, text: str) -> None:
    found_reason, message = problem(PUBLISH, hook)
    assert (found_reason, text in message) == (reason, True), message
    assert "s3cret" not in message


def test_a_run_has_so_many_hooks() -> None:
    assert len(parse_hooks([PUBLISH] * HOOKS_MAX)) == HOOKS_MAX
    assert problem(*[PUBLISH] * (HOOKS_MAX + 1)) == ("too_many", "on_complete: 9 hooks, at most 8")


def test_an_encrypted_payload_may_be_longer_than_a_payload() -> None:
    text = json.dumps({**PUBLISH, "payload": "token" * PAYLOAD_BYTES_MAX})
    assert read_hook(text)[0].payload == "token" * PAYLOAD_BYTES_MAX


@pytest.mark.parametrize("text", ["", "[", "[]", "1", '{"kind":"publish"}', '{"kind":"http","source":[]}', "[" * 9_999])
def test_a_text_that_is_no_hook_says_so(text: str) -> None:
    with pytest.raises(DefinitionProblem):
        read_hook(text)


def test_hooks_of_definitions_have_their_defaults() -> None:
    (hook,) = parse_hooks([{"kind": "http", "url": "http://a.example"}])
    assert hook == CompletionHook(kind="http", url="http://a.example")
