from typing import Any

import pytest
from pydantic import ValidationError

from loomlog.services.application.bodies.models import MessageBody, RunBody, to_run_request
from loomlog.services.application.runs.requests import check_request


def request_of(body: dict[str, Any], model: type[MessageBody] = RunBody) -> Any:
    return to_run_request(model.model_validate(body), idempotency_key="", traceparent="")


def test_every_field_of_a_start_arrives() -> None:
    body = {
        "agent": "soaker",
        "prompt": "p",
        "segments": [
            {
                "role": "user",
                "content": [
                    {"type": "trusted-text", "text": "t", "cacheable": True},
                    {"type": "untrusted-block", "text": "u", "kind": "web_content"},
                    {"type": "image", "media_type": "image/png", "data": "AAAA"},
                ],
            }
        ],
        "tools": ["Read"],
        "allowed_hosts": [],
        "web_search_filter": "drop",
        "session_id": "s_1",
        "tenant_id": "ignored",
        "user_id": "zoe",
        "agent_id": "mine",
        "user_tier": "gold",
        "user_bearer": "b" * 16,
        "user_credentials": {"a": "b"},
        "parent_context": {"function_key": "f", "tier_at_run": None},
        "metadata": {"n": 1},
        "run_timeout_seconds": 5,
        "interactive": True,
        "sampling": {"temperature": 1, "stop": ["x"]},
        "compaction": {"enabled": True},
        "on_complete": [{"kind": "http", "url": "https://a.example", "payload": {"n": None}, "key": None}],
        "idempotency_key": "k",
    }
    request = check_request(request_of(body))
    assert (request.agent, request.session_id, request.agent_id, request.user_id) == ("soaker", "s_1", "mine", "zoe")
    assert (request.tools, request.allowed_hosts, request.user_tier) == (("Read",), (), "gold")
    assert request.parent_context == {"function_key": "f"}
    assert (request.interactive, request.idempotency_key, request.metadata) == (True, "k", {"n": 1})
    assert request.sampling is not None
    assert (request.sampling.temperature, request.sampling.stop) == (1.0, ("x",))
    (first,) = request.segments
    assert [block.type for block in first.content] == ["trusted-text", "untrusted-block", "image"]
    assert (first.content[0].cacheable, first.content[1].kind) == (True, "web_content")
    assert request.prompt == "", "segments win"
    assert request.on_complete == ({"kind": "http", "url": "https://a.example", "payload": {"n": None}},)


def test_a_list_that_was_not_said_and_an_empty_one_differ() -> None:
    assert request_of({"agent": "a"}).allowed_hosts is None
    assert request_of({"agent": "a", "allowed_hosts": None}).allowed_hosts is None
    assert request_of({"agent": "a", "allowed_hosts": []}).allowed_hosts == ()


def test_the_header_wins_over_the_body() -> None:
    body = RunBody.model_validate({"agent": "a", "idempotency_key": "body"})
    assert to_run_request(body, idempotency_key="header", traceparent="").idempotency_key == "header"


def test_a_message_has_neither_session_nor_user_of_its_own() -> None:
    actual = request_of({"prompt": "x", "session_id": "s_other", "user_id": "zoe"}, MessageBody)
    assert (actual.session_id, actual.user_id, actual.agent) == ("", "", "")


@pytest.mark.parametrize("model", [RunBody, MessageBody])
def test_an_empty_id_is_as_if_it_were_not_there(model: type[MessageBody]) -> None:
    ids = {"session_id": "", "agent_id": "", "user_id": ""}
    assert request_of({"agent": "a", **ids}, model) == request_of({"agent": "a"}, model)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"agent": ""},
        {"agent": "a", "interactive": "yes"},
        {"agent": "a", "interactive": 1},
        {"agent": "a", "tools": [1]},
        {"agent": "a", "sampling": {"top_k": 1.5}},
        {"agent": "a", "sampling": {"temperature": True}},
        {"agent": "a", "segments": {}},
        {"agent": "a", "metadata": []},
        {"agent": "a", "run_timeout_seconds": -1},
    ],
)
def test_wrong_types_are_refused_and_never_guessed(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RunBody.model_validate(body)
