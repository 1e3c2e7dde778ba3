import json
from dataclasses import replace
from typing import Any

import orjson
import pytest

from loomlog.connectors.models import openai_request
from loomlog.connectors.models.deepseek import DEEPSEEK
from loomlog.connectors.models.openai_request import OPENAI, Dialect, has_vision
from loomlog.connectors.protocols import ModelRequest, SystemBlock
from loomlog.schemas.conversation import ImageBlock, Message, TextBlock
from loomlog.schemas.generated.values import Sampling
from tests.connectors.models.samples import called, request, results, user

WISHES = Sampling(
    temperature=0.5,
    top_p=0.9,
    top_k=5,
    frequency_penalty=0.1,
    presence_penalty=0.2,
    seed=3,
    stop=("a", "b", "c", "d", "e"),
)


def body(asked: ModelRequest, dialect: Dialect = OPENAI) -> Any:
    return json.loads(orjson.dumps(openai_request.body(asked, dialect)))


def test_a_whole_request_is_this_body() -> None:
    asked = request(
        user("Find x"),
        called("call_1", "call_2", text="I look.", reasoning="hm"),
        results(("call_1", "found"), ("call_2", "")),
        model="gpt-4o",
        system=(SystemBlock(text="You are a puppet."), SystemBlock(text=""), SystemBlock(text="rule 7")),
        sampling=WISHES,
        max_tokens=500,
        effort="high",
    )
    call = {"type": "function", "function": {"name": "Search", "arguments": '{"query":"x"}'}}
    assert body(asked) == {
        "model": "gpt-4o",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 500,
        "messages": [
            {"role": "system", "content": "You are a puppet.\n\nrule 7"},
            {"role": "user", "content": "Find x"},
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [{"id": "call_1", **call}, {"id": "call_2", **call}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "found"},
            {"role": "tool", "tool_call_id": "call_2", "content": ""},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "Search",
                    "description": "Searches.",
                    "parameters": {
                        "type": "object",
                        "properties": {"query": {"type": "string"}},
                        "required": ["query"],
                    },
                },
            }
        ],
        "temperature": 0.5,
        "top_p": 0.9,
        "frequency_penalty": 0.1,
        "presence_penalty": 0.2,
        "seed": 3,
        "stop": ["a", "b", "c", "d"],
    }


def test_the_smallest_request_has_no_empty_parts() -> None:
    sent = body(request(system=(), tools=(), sampling=Sampling()))
    assert set(sent) == {"model", "messages", "stream", "stream_options"}
    assert sent["messages"] == [{"role": "user", "content": "Hello"}]


def test_one_call_at_a_time_and_a_whole_answer_can_be_asked_for() -> None:
    sent = json.loads(orjson.dumps(openai_request.body(request(), OPENAI, parallel=False, streaming=False)))
    assert (sent["parallel_tool_calls"], sent["stream"]) == (False, False)
    assert "stream_options" not in sent
    assert "parallel_tool_calls" not in openai_request.body(request(tools=()), OPENAI, parallel=False)


def test_several_texts_of_a_user_are_one_string() -> None:
    message = Message(role="user", blocks=(TextBlock(text="one"), TextBlock(text="two")))
    assert body(request(message))["messages"][-1]["content"] == "one\ntwo"


def test_images_are_data_addresses_among_the_parts() -> None:
    message = Message(role="user", blocks=(TextBlock(text="see"), ImageBlock(media_type="image/png", data="AA")))
    assert body(request(message))["messages"][-1]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
    ]


def test_results_are_messages_of_their_own_before_the_users_text() -> None:
    message = Message(role="user", blocks=(TextBlock(text="and?"), *results(("call_1", "b")).blocks))
    assert [m["role"] for m in body(request(user("a"), called("call_1"), message))["messages"][1:]] == [
        "user",
        "assistant",
        "tool",
        "user",
    ]


def test_calls_without_text_have_no_content_and_text_without_calls_no_calls() -> None:
    nothing = Message(role="assistant", blocks=())
    sent = body(request(user("a"), called("call_1"), results(("call_1", "b")), nothing, user("c")))["messages"]
    assert sent[2]["content"] is None
    assert sent[4] == {"role": "assistant", "content": ""}


@pytest.mark.parametrize("model", ["gpt-5", "gpt-5-mini", "gpt-5.1", "o1", "o3-mini", "o4-mini", "openai/o3"])
def test_reasoning_families_take_an_effort_and_another_bound_but_no_sampling(model: str) -> None:
    sent = body(request(model=model, effort="low", max_tokens=500, sampling=WISHES))
    assert (sent["reasoning_effort"], sent["max_completion_tokens"], sent["seed"]) == ("low", 500, 3)
    assert {"max_tokens", "temperature", "top_p", "stop", "presence_penalty", "frequency_penalty"}.isdisjoint(sent)


def test_the_chat_model_of_a_reasoning_family_does_not_reason() -> None:
    sent = body(request(model="gpt-5-chat-latest", effort="low", max_tokens=500, sampling=WISHES))
    assert "reasoning_effort" not in sent
    assert (sent["temperature"], sent["max_completion_tokens"]) == (0.5, 500)


def test_other_models_get_no_effort() -> None:
    assert "reasoning_effort" not in body(request(model="gpt-4o", effort="high"))


def test_reasoning_goes_back_only_where_it_is_wanted_and_only_its_own() -> None:
    own = called("call_1", reasoning="hm")
    signed = called("call_1", reasoning="hm", reasoning_signature="claude's")
    rest = results(("call_1", "b"))
    echoing = replace(OPENAI, echoes_reasoning=True)
    assert body(request(user("a"), own, rest), echoing)["messages"][2]["reasoning_content"] == "hm"
    assert "reasoning_content" not in body(request(user("a"), own, rest))["messages"][2]
    assert "reasoning_content" not in body(request(user("a"), signed, rest), echoing)["messages"][2]


def test_deepseek_does_not_think_on_top_of_calls_made_without_reasoning() -> None:
    strangers = (user("a"), called("call_1"), results(("call_1", "b")))
    sent = body(request(*strangers, model="deepseek-v4-pro", effort="high"), DEEPSEEK)
    assert sent["thinking"] == {"type": "disabled"}
    assert "reasoning_effort" not in sent
    own = (user("a"), called("call_1", reasoning="hm"), results(("call_1", "b")))
    sent = body(request(*own, model="deepseek-v4-pro", effort="high"), DEEPSEEK)
    assert "thinking" not in sent
    assert sent["reasoning_effort"] == "high"
    assert sent["messages"][2]["reasoning_content"] == "hm"
    assert "thinking" not in body(request(*strangers))


@pytest.mark.parametrize(
    ("model", "sees"),
    [
        ("gpt-4o", True),
        ("gpt-4o-mini", True),
        ("gpt-4-turbo", True),
        ("gpt-4-1106-vision-preview", True),
        ("gpt-4.1", True),
        ("gpt-5", True),
        ("o3", True),
        ("scripted-1", True),
        ("gpt-3.5-turbo-0125", False),
        ("gpt-4", False),
        ("gpt-4-0613", False),
        ("gpt-4-32k-0314", False),
        ("gpt-4-1106-preview", False),
        ("gpt-4-0125-preview", False),
        ("gpt-4-turbo-preview", False),
        ("o1-mini", False),
        ("o3-mini", False),
        ("openai/gpt-3.5-turbo", False),
    ],
)
def test_which_models_see(model: str, sees: bool) -> None:
    assert has_vision(model, OPENAI) is sees


def test_arguments_that_are_no_object_are_kept_inside_one() -> None:
    sent = body(request(user("a"), called("call_1", arguments="oops"), results(("call_1", "b"))))
    assert sent["messages"][2]["tool_calls"][0]["function"]["arguments"] == '{"invalid_json":"oops"}'


def test_long_ids_are_shortened_on_both_sides() -> None:
    long = "call_" + "x" * 60
    sent = body(request(user("a"), called(long), results((long, "b"))))["messages"]
    assert sent[2]["tool_calls"][0]["id"] == sent[3]["tool_call_id"]
    assert len(sent[3]["tool_call_id"]) <= 40
