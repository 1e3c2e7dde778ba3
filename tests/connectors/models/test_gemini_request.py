import json
from typing import Any

import orjson
import pytest

from loomlog.connectors.models import gemini_request, gemini_thinking
from loomlog.connectors.models.gemini_request import has_vision
from loomlog.connectors.protocols import ModelRequest, SystemBlock, ToolSpec
from loomlog.schemas.conversation import ImageBlock, Message, TextBlock, ToolResultBlock
from loomlog.schemas.generated.values import Sampling
from tests.connectors.models.samples import called, request, results, user

WISHES = Sampling(
    temperature=1.5,
    top_p=0.9,
    top_k=5,
    frequency_penalty=0.1,
    presence_penalty=0.2,
    seed=3,
    stop=("a", "b", "c", "d", "e", "f"),
)


def body(asked: ModelRequest) -> Any:
    return json.loads(orjson.dumps(gemini_request.body(asked)))


def test_a_whole_request_is_this_body() -> None:
    asked = request(
        user("Find x"),
        called("call_1", "call_2", text="I look."),
        results(("call_1", "found"), ("call_2", "")),
        model="gemini-2.5-flash",
        system=(
            SystemBlock(text="You are a puppet.", cacheable=True),
            SystemBlock(text=""),
            SystemBlock(text="rule 7"),
        ),
        sampling=WISHES,
        max_tokens=5000,
        effort="medium",
    )
    call = {"functionCall": {"name": "Search", "args": {"query": "x"}}}
    assert body(asked) == {
        "contents": [
            {"role": "user", "parts": [{"text": "Find x"}]},
            {"role": "model", "parts": [{"text": "I look."}, call, call]},
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "Search", "response": {"output": "found"}}},
                    {"functionResponse": {"name": "Search", "response": {"output": ""}}},
                ],
            },
        ],
        "systemInstruction": {"parts": [{"text": "You are a puppet."}, {"text": "rule 7"}]},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "Search",
                        "description": "Searches.",
                        "parameters": {
                            "type": "object",
                            "properties": {"query": {"type": "string"}},
                            "required": ["query"],
                        },
                    }
                ]
            }
        ],
        "generationConfig": {
            "maxOutputTokens": 5000,
            "thinkingConfig": {"thinkingBudget": 2048, "includeThoughts": True},
            "temperature": 1.5,
            "topP": 0.9,
            "topK": 5,
            "seed": 3,
            "stopSequences": ["a", "b", "c", "d", "e"],
        },
    }


def test_the_smallest_request_has_no_empty_parts() -> None:
    assert body(request(system=(), tools=(), sampling=Sampling())) == {
        "contents": [{"role": "user", "parts": [{"text": "Hello"}]}]
    }


def test_a_low_effort_switches_thinking_off_and_shows_none() -> None:
    sent = body(request(model="gemini-2.5-flash", effort="low"))
    assert sent["generationConfig"]["thinkingConfig"] == {"thinkingBudget": 0}


def test_penalties_go_only_to_models_that_take_them() -> None:
    old = body(request(model="gemini-1.5-pro", sampling=WISHES))["generationConfig"]
    assert (old["frequencyPenalty"], old["presencePenalty"]) == (0.1, 0.2)


def test_a_tool_without_arguments_is_declared_without_a_schema() -> None:
    tool = ToolSpec(name="Now", description="The time.", input_schema={"type": "object", "properties": {}})
    [declared] = body(request(tools=(tool,)))["tools"][0]["functionDeclarations"]
    assert declared == {"name": "Now", "description": "The time."}


def test_results_are_a_turn_of_their_own_before_the_users_text() -> None:
    message = Message(role="user", blocks=(TextBlock(text="and?"), *results(("call_1", "b")).blocks))
    sent = body(request(user("a"), called("call_1"), message))["contents"]
    assert [(turn["role"], list(turn["parts"][0])) for turn in sent[2:]] == [
        ("user", ["functionResponse"]),
        ("user", ["text"]),
    ]


def test_a_failed_call_is_an_error_and_never_without_words() -> None:
    sent = body(request(user("a"), called("c"), results(("c", ""), is_error=True)))["contents"]
    assert sent[2]["parts"][0]["functionResponse"]["response"] == {"error": "the tool failed without a message"}


def test_a_result_without_a_name_gets_that_of_its_call() -> None:
    nameless = Message(role="user", blocks=(ToolResultBlock(tool_use_id="c", name="", text="b"),))
    sent = body(request(user("a"), called("c", name="Find"), nameless))["contents"]
    assert sent[2]["parts"][0]["functionResponse"]["name"] == "Find"


def test_images_are_inline_data() -> None:
    message = Message(role="user", blocks=(TextBlock(text="see"), ImageBlock(media_type="image/png", data="AA")))
    assert body(request(message))["contents"][0]["parts"] == [
        {"text": "see"},
        {"inlineData": {"mimeType": "image/png", "data": "AA"}},
    ]


def test_an_answer_with_its_signature_goes_back_as_it_came() -> None:
    signature = gemini_thinking.pack([("thought", 2, ""), ("text", 3, ""), ("call", "c", "c2ln")])
    own = called("c", text="yes", reasoning="hm", reasoning_signature=signature)
    sent = body(request(user("a"), own, results(("c", "b")), model="gemini-3-pro-preview"))["contents"]
    assert sent[1]["parts"] == [
        {"text": "yes"},
        {"functionCall": {"id": "c", "name": "Search", "args": {"query": "x"}}, "thoughtSignature": "c2ln"},
    ]


@pytest.mark.parametrize("signature", ["", "Y2xhdWRlJ3M=", "layout:[]"])
def test_calls_of_another_provider_carry_the_documented_stand_in_where_one_is_demanded(signature: str) -> None:
    foreign = called("c", "d", text="yes", reasoning="hm", reasoning_signature=signature)
    conversation = (user("a"), foreign, results(("c", "b"), ("d", "b")))
    parts = body(request(*conversation, model="gemini-3-pro-preview"))["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [None, gemini_thinking.FOREIGN_SIGNATURE, None]
    parts = body(request(*conversation, model="gemini-2.5-pro"))["contents"][1]["parts"]
    assert not any("thoughtSignature" in part for part in parts)
    assert "hm" not in str(parts)


def test_ids_go_back_to_gemini_when_they_are_its_own() -> None:
    signature = gemini_thinking.pack([("call", "fc_1", "c2ln"), ("call", "lc-1", "")])
    own = called("fc_1", "lc-1", reasoning_signature=signature)
    conversation = (user("a"), own, results(("fc_1", "b"), ("lc-1", "c")))
    contents = body(request(*conversation, model="gemini-3-pro-preview"))["contents"]
    assert [part["functionCall"].get("id") for part in contents[1]["parts"]] == ["fc_1", None]
    assert [part["functionResponse"].get("id") for part in contents[2]["parts"]] == ["fc_1", None]
    foreign = (user("a"), called("fc_1"), results(("fc_1", "b")))
    assert "fc_1" not in str(body(request(*foreign, model="gemini-3-pro-preview")))


def test_an_empty_message_is_left_out() -> None:
    nothing = Message(role="assistant", blocks=())
    sent = body(request(user("a"), nothing, user("c")))["contents"]
    assert [turn["role"] for turn in sent] == ["user", "user"]


def test_arguments_that_are_no_object_are_kept_inside_one() -> None:
    sent = body(request(user("a"), called("c", arguments="oops"), results(("c", "b"))))["contents"]
    assert sent[1]["parts"][0]["functionCall"]["args"] == {"invalid_json": "oops"}


@pytest.mark.parametrize(
    ("model", "sees"),
    [
        ("gemini-2.5-pro", True),
        ("models/gemini-3-flash-preview", True),
        ("gemini-pro-vision", True),
        ("gemma-3-27b-it", True),
        ("gemini-pro", False),
        ("models/gemini-1.0-pro", False),
        ("gemma-3-1b-it", False),
    ],
)
def test_which_models_see(model: str, sees: bool) -> None:
    assert has_vision(model) is sees
