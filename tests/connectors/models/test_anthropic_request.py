import json
from typing import Any

import orjson
import pytest

from loomlog.connectors.models import anthropic_request
from loomlog.connectors.models.anthropic_thinking import pack
from loomlog.connectors.protocols import ModelRequest, SystemBlock, ToolSpec
from loomlog.schemas.conversation import ImageBlock, Message, TextBlock, ToolUseBlock
from loomlog.schemas.generated.values import BlobRef, Sampling
from tests.connectors.models.samples import called, request, results, user

SONNET = "claude-sonnet-4-5"
OPUS = "claude-opus-4-7"


def body(asked: ModelRequest) -> Any:
    return json.loads(orjson.dumps(anthropic_request.body(asked)))


def test_a_whole_request_is_this_body() -> None:
    asked = request(
        user("Find x"),
        called("toolu_1", "toolu_2", text="I look.", reasoning="hm", reasoning_signature="sig"),
        results(("toolu_1", "found"), ("toolu_2", "")),
        model=SONNET,
        system=(SystemBlock(text="Be short.", cacheable=True), SystemBlock(text=" "), SystemBlock(text="Be kind.")),
        sampling=Sampling(temperature=0.5, top_k=5, seed=3, presence_penalty=1.0, stop=("END", " ")),
    )
    assert body(asked) == {
        "model": SONNET,
        "max_tokens": 8192,
        "stream": True,
        "system": [
            {"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "Be kind."},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Find x"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "sig"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "toolu_1", "name": "Search", "input": {"query": "x"}},
                    {"type": "tool_use", "id": "toolu_2", "name": "Search", "input": {"query": "x"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "found"},
                    {"type": "tool_result", "tool_use_id": "toolu_2", "content": ""},
                ],
            },
        ],
        "tools": [
            {
                "name": "Search",
                "description": "Searches.",
                "input_schema": {
                    "type": "object",
                    "properties": {"query": {"type": "string"}},
                    "required": ["query"],
                },
            }
        ],
        "temperature": 0.5,
        "top_k": 5,
        "stop_sequences": ["END"],
    }


def test_the_smallest_request_has_no_empty_parts() -> None:
    assert set(body(request(system=(), tools=()))) == {"model", "max_tokens", "stream", "messages"}


def test_only_the_last_four_cacheable_system_blocks_are_marked() -> None:
    blocks = tuple(SystemBlock(text=f"part {n}", cacheable=n != 3) for n in range(7))
    marked = [entry["text"] for entry in body(request(system=blocks))["system"] if "cache_control" in entry]
    assert marked == ["part 2", "part 4", "part 5", "part 6"]


def test_cacheable_message_blocks_are_not_marked() -> None:
    message = Message(role="user", blocks=(TextBlock(text="long", cacheable=True),))
    assert "cache_control" not in json.dumps(body(request(message)))


@pytest.mark.parametrize(
    ("effort", "max_tokens", "budget"),
    [
        ("", 0, None),
        ("low", 0, None),
        ("medium", 0, 2048),
        ("high", 0, 7168),
        ("high", 20_000, 8192),
        ("high", 3000, 1976),
        ("medium", 2048, 1024),
        ("medium", 2047, None),
        ("high", 500, None),
    ],
)
def test_effort_becomes_a_budget_that_fits_under_max_tokens(effort: str, max_tokens: int, budget: int | None) -> None:
    thinking = body(request(model=SONNET, effort=effort, max_tokens=max_tokens)).get("thinking")
    assert thinking == (None if budget is None else {"type": "enabled", "budget_tokens": budget})


@pytest.mark.parametrize(
    "model", ["claude-haiku-4-5", "claude-3-haiku-20240307", "claude-3-5-sonnet-20241022", "claude-2.1"]
)
def test_some_models_are_never_asked_to_think(model: str) -> None:
    sent = body(request(model=model, effort="high", sampling=Sampling(temperature=0.1)))
    assert "thinking" not in sent
    assert sent["temperature"] == 0.1


@pytest.mark.parametrize("model", ["claude-opus-4-6", OPUS, "claude-opus-5", "claude-mythos-preview"])
def test_newer_models_choose_their_own_depth(model: str) -> None:
    high = body(request(model=model, effort="high"))
    assert high["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert high["output_config"] == {"effort": "high"}
    low = body(request(model=model, effort="low"))
    assert "thinking" not in low
    assert low["output_config"] == {"effort": "low"}
    assert "output_config" not in body(request(model=model))


def test_thinking_drops_temperature_top_p_and_top_k_but_not_stop() -> None:
    wishes = Sampling(temperature=0.5, top_p=0.9, top_k=5, stop=("END",))
    for model, effort in ((SONNET, "medium"), (OPUS, "medium"), (OPUS, "")):
        sent = body(request(model=model, effort=effort, sampling=wishes))
        assert {"temperature", "top_p", "top_k"}.isdisjoint(sent)
        assert sent["stop_sequences"] == ["END"]
    assert body(request(model=SONNET, effort="low", sampling=wishes))["temperature"] == 0.5


def test_temperature_goes_before_top_p_and_is_bounded() -> None:
    assert "top_p" not in body(request(model=SONNET, sampling=Sampling(temperature=1.7, top_p=0.9)))
    assert body(request(model=SONNET, sampling=Sampling(temperature=1.7)))["temperature"] == 1.0
    assert body(request(model=SONNET, sampling=Sampling(top_p=0.9)))["top_p"] == 0.9


def test_thinking_is_not_switched_on_inside_a_tool_loop_that_began_without_it() -> None:
    strangers = (user("a"), called("call_1"), results(("call_1", "b")))
    assert "thinking" not in body(request(*strangers, model=SONNET, effort="high"))
    assert body(request(*strangers, model=OPUS, effort="high"))["thinking"]["type"] == "adaptive"
    own = (user("a"), called("call_1", reasoning="hm", reasoning_signature="s"), results(("call_1", "b")))
    assert "thinking" in body(request(*own, model=SONNET, effort="high"))
    over = (*strangers, Message(role="assistant", blocks=(TextBlock(text="c"),)), user("d"))
    assert "thinking" in body(request(*over, model=SONNET, effort="high"))


def test_reasoning_without_a_signature_is_another_providers_and_stays_away() -> None:
    message = called("call_1", text="t", reasoning="hm")
    content = body(request(user("a"), message, results(("call_1", "b"))))["messages"][1]["content"]
    assert [entry["type"] for entry in content] == ["text", "tool_use"]


def test_an_answer_that_thought_in_between_is_replayed_in_its_order() -> None:
    layout = [
        ("thinking", 2, "s1"),
        ("text", 3),
        ("redacted", "xyz"),
        ("thinking", 0, "s2"),
        ("tool", "t1"),
        ("text", 4),
    ]
    message = Message(
        role="assistant",
        blocks=(TextBlock(text="onetwo!"), ToolUseBlock(id="t1", name="Search", input="{}")),
        reasoning="hm",
        reasoning_signature=pack(layout),
    )
    assert body(request(user("a"), message, results(("t1", "b"))))["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "s1"},
        {"type": "text", "text": "one"},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "thinking", "thinking": "", "signature": "s2"},
        {"type": "tool_use", "id": "t1", "name": "Search", "input": {}},
        {"type": "text", "text": "two!"},
    ]


def test_tool_results_go_before_other_content() -> None:
    result = results(("t1", "b")).blocks
    message = Message(
        role="user", blocks=(TextBlock(text="and?"), *result, ImageBlock(media_type="image/png", data="AA"))
    )
    content = body(request(user("a"), called("t1"), message))["messages"][2]["content"]
    assert [entry["type"] for entry in content] == ["tool_result", "text", "image"]
    assert content[2]["source"] == {"type": "base64", "media_type": "image/png", "data": "AA"}


def test_a_failed_result_is_marked_and_never_empty() -> None:
    content = body(request(user("a"), called("t1"), results(("t1", ""), is_error=True)))["messages"][2]["content"]
    assert content[0]["is_error"] is True
    assert content[0]["content"]


def test_messages_and_blocks_without_content_are_left_out() -> None:
    nothing = Message(role="assistant", blocks=(TextBlock(text=" \n"),))
    assert [m["content"][0]["text"] for m in body(request(user("a"), nothing, user("b")))["messages"]] == ["a", "b"]


def test_ids_of_other_providers_are_made_to_fit_on_both_sides() -> None:
    message = body(request(user("a"), called("functions.Search:0"), results(("functions.Search:0", "b"))))["messages"]
    call, result = message[1]["content"][0]["id"], message[2]["content"][0]["tool_use_id"]
    assert call == result
    assert call.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize("arguments", ["", "[1]", '{"a":', "nonsense", "null"])
def test_arguments_that_are_no_object_are_kept_inside_one(arguments: str) -> None:
    sent = body(request(user("a"), called("t1", arguments=arguments), results(("t1", "b"))))
    assert sent["messages"][1]["content"][0]["input"] == {"invalid_json": arguments}


def test_large_numbers_in_arguments_stay_as_they_were_written() -> None:
    arguments = '{"id": 123456789012345678901234567890, "x": 1.10}'
    asked = request(user("a"), called("t1", arguments=arguments), results(("t1", "b")))
    assert arguments.encode() in orjson.dumps(anthropic_request.body(asked))


def test_alternatives_at_the_top_of_a_schema_are_flattened() -> None:
    tool = ToolSpec(
        name="T", description="d", input_schema={"anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}
    )
    schema = body(request(tools=(tool,)))["tools"][0]["input_schema"]
    assert schema == {"type": "object", "properties": {"a": {}, "b": {}}}


def test_a_blob_that_was_not_loaded_is_a_bug() -> None:
    unloaded = TextBlock(text="", blob=BlobRef(sha256="0" * 64, size_bytes=9))
    with pytest.raises(AssertionError, match="not loaded"):
        anthropic_request.body(request(Message(role="user", blocks=(unloaded,))))
