import json
from typing import Any

import orjson
import pytest

from loomlog.connectors.models import ollama_request
from loomlog.connectors.models.ollama_request import estimate_tokens, has_vision, think_value
from loomlog.connectors.protocols import ModelRequest, SystemBlock
from loomlog.schemas.conversation import ImageBlock, Message, TextBlock
from loomlog.schemas.generated.values import Sampling
from tests.connectors.models.samples import called, request, results, user

WISHES = Sampling(
    temperature=0.5, top_p=0.9, top_k=5, frequency_penalty=0.1, presence_penalty=0.2, seed=3, stop=("a", "b")
)


def body(asked: ModelRequest, **how: Any) -> Any:
    return json.loads(orjson.dumps(ollama_request.body(asked, **how)))


def test_a_whole_request_is_this_body() -> None:
    asked = request(
        user("Find x"),
        called("call_1", text="I look.", reasoning="hm"),
        results(("call_1", "found")),
        model="qwen3:8b",
        system=(SystemBlock(text="You are a puppet."), SystemBlock(text=""), SystemBlock(text="rule 7")),
        sampling=WISHES,
        max_tokens=500,
        effort="high",
    )
    assert body(asked, num_ctx=8192, num_gpu=0) == {
        "model": "qwen3:8b",
        "stream": True,
        "think": True,
        "messages": [
            {"role": "system", "content": "You are a puppet.\n\nrule 7"},
            {"role": "user", "content": "Find x"},
            {
                "role": "assistant",
                "content": "I look.",
                "thinking": "hm",
                "tool_calls": [{"function": {"name": "Search", "arguments": {"query": "x"}}}],
            },
            {"role": "tool", "tool_name": "Search", "content": "found"},
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
        "options": {
            "num_ctx": 8192,
            "num_gpu": 0,
            "num_predict": 500,
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 5,
            "frequency_penalty": 0.1,
            "presence_penalty": 0.2,
            "seed": 3,
            "stop": ["a", "b"],
        },
    }


def test_the_smallest_request_has_no_empty_parts() -> None:
    assert body(request(system=(), tools=(), sampling=Sampling())) == {
        "model": "some-model",
        "stream": True,
        "messages": [{"role": "user", "content": "Hello"}],
    }


@pytest.mark.parametrize(
    ("model", "effort", "wish"),
    [
        ("qwen3:8b", "low", False),
        ("qwen3:8b", "medium", True),
        ("qwen3:8b", "high", True),
        ("qwen3:8b", "", None),
        ("gpt-oss:20b", "low", "low"),
        ("openai/gpt-oss:20b", "medium", "medium"),
        ("gpt-oss:120b-cloud", "high", "high"),
    ],
)
def test_effort_is_whether_or_how_much_to_think(model: str, effort: str, wish: object) -> None:
    assert think_value(model, effort) is wish or think_value(model, effort) == wish
    assert body(request(model=model, effort=effort)).get("think") == wish


def test_a_model_without_thinking_is_not_asked_for_it_but_may_be_told_not_to() -> None:
    assert "think" not in body(request(effort="high"), can_think=False)
    assert body(request(effort="low"), can_think=False)["think"] is False


def test_images_are_base64_beside_the_text() -> None:
    message = Message(role="user", blocks=(TextBlock(text="see"), ImageBlock(media_type="image/png", data="AA")))
    assert body(request(message))["messages"][-1] == {"role": "user", "content": "see", "images": ["AA"]}


def test_results_come_before_the_users_text() -> None:
    message = Message(role="user", blocks=(TextBlock(text="and?"), *results(("call_1", "b")).blocks))
    sent = body(request(user("a"), called("call_1"), message))["messages"]
    assert [m["role"] for m in sent[1:]] == ["user", "assistant", "tool", "user"]


def test_reasoning_of_another_provider_stays_away() -> None:
    signed = called("c", reasoning="hm", reasoning_signature="claude's")
    assert "thinking" not in body(request(user("a"), signed, results(("c", "b"))))["messages"][2]


def test_arguments_that_are_no_object_are_kept_inside_one() -> None:
    sent = body(request(user("a"), called("c", arguments="oops"), results(("c", "b"))))["messages"]
    assert sent[2]["tool_calls"][0]["function"]["arguments"] == {"invalid_json": "oops"}


@pytest.mark.parametrize(
    ("model", "sees"),
    [
        ("llava:13b", True),
        ("gemma3:4b", True),
        ("Qwen2.5VL:7b", True),
        ("qwen3-vl:235b-cloud", True),
        ("llama3.2-vision", True),
        ("someone/granite3.2-vision:2b", True),
        ("mymodel-vision", True),
        ("gemma3:1b", False),
        ("gemma3:270m", False),
        ("llama3.2:3b", False),
        ("qwen3:8b", False),
        ("gpt-oss:20b", False),
    ],
)
def test_which_models_see(model: str, sees: bool) -> None:
    assert has_vision(model) is sees


def test_further_models_that_see_can_be_named() -> None:
    assert has_vision("mine:7b", ("mine",))
    assert has_vision("gemma3:1b", ("gemma3:1b",))


def test_the_estimate_counts_everything_the_model_reads() -> None:
    asked = request(
        user("x" * 400), called("c", arguments='{"a":1}' + " " * 393), results(("c", "y" * 400)), system=(), tools=()
    )
    assert estimate_tokens(asked) == 300
    assert estimate_tokens(request(system=(SystemBlock(text="z" * 400),))) > 100
