"""A record as the final answer: how each provider is asked for it, and how its reply is read."""

from typing import Any

import pytest

from loomlog.connectors.models import anthropic_request, gemini_request, ollama_request, openai_request
from loomlog.connectors.models.deepseek import DEEPSEEK
from loomlog.connectors.models.openai_request import OPENAI, is_strict, takes_output_schema
from loomlog.connectors.models.output_tool import OUTPUT_TOOL, read_output, with_output_tool
from loomlog.connectors.protocols import ModelRequest, Reply
from loomlog.schemas.generated.values import ToolCall, Usage
from tests.connectors.models.samples import request

CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {"total": {"type": "number"}},
    "required": ["total"],
    "additionalProperties": False,
}
OPEN: dict[str, Any] = {"type": "object", "properties": {"total": {"type": "number", "minimum": 0}}}


def typed(model: str, schema: dict[str, Any] = CLOSED, **more: Any) -> ModelRequest:
    return request(model=model, output_schema=schema, **more)


def call(name: str, text: str = '{"total":3}') -> ToolCall:
    return ToolCall(id=f"c_{name}", name=name, input=text)


def reply(*calls: ToolCall, text: str = "") -> Reply:
    return Reply(text=text, tool_calls=calls, stop_reason="tool_use", usage=Usage(), reasoning_signature="sig")


# --- native modes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4o-2024-08-06", "gpt-5-mini", "o3", "openai/gpt-4.1"])
def test_openai_takes_the_schema_as_the_format_of_its_response(model: str) -> None:
    asked = typed(model)
    assert takes_output_schema(asked, OPENAI)
    body: Any = openai_request.body(asked, OPENAI)
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "record", "schema": CLOSED, "strict": True},
    }
    assert [tool["function"]["name"] for tool in body["tools"]] == ["Search"]
    assert "tool_choice" not in body


@pytest.mark.parametrize("model", ["gpt-4o-2024-05-13", "gpt-4-turbo", "gpt-3.5-turbo", "o1-mini", "llama-3"])
def test_other_models_of_the_wire_do_not(model: str) -> None:
    assert not takes_output_schema(typed(model), OPENAI)


def test_openai_refuses_alternatives_at_the_top() -> None:
    assert not takes_output_schema(typed("gpt-4o", {**CLOSED, "anyOf": [{}]}), OPENAI)


def test_a_schema_outside_the_strict_subset_is_a_wish() -> None:
    body: Any = openai_request.body(typed("gpt-4o", OPEN), OPENAI)
    assert body["response_format"]["json_schema"]["strict"] is False


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (CLOSED, True),
        ({**CLOSED, "required": []}, False),
        ({**CLOSED, "additionalProperties": True}, False),
        ({**CLOSED, "properties": {"total": {"type": "number", "minimum": 0}}}, False),
        ({**CLOSED, "properties": {"total": {"anyOf": [{"type": "null"}, CLOSED]}}}, True),
        ({**CLOSED, "properties": {"total": {"type": "array", "items": OPEN}}}, False),
        ({**CLOSED, "$defs": {"x": OPEN}}, False),
        ({**CLOSED, "properties": {"total": True}}, False),
    ],
)
def test_what_openai_enforces(schema: Any, expected: bool) -> None:
    assert is_strict(schema) is expected


def test_gemini_takes_the_schema_without_tools() -> None:
    asked = typed("gemini-2.5-flash", tools=())
    assert gemini_request.takes_output_schema(asked)
    body: Any = gemini_request.body(asked)
    assert body["generationConfig"]["responseMimeType"] == "application/json"
    assert body["generationConfig"]["responseSchema"]["properties"] == {"total": {"type": "number"}}


def test_gemini_takes_none_beside_tools_and_none_that_says_nothing() -> None:
    assert not gemini_request.takes_output_schema(typed("gemini-2.5-flash"))
    assert not gemini_request.takes_output_schema(typed("gemini-2.5-flash", {"type": "object"}, tools=()))


def test_ollama_is_given_the_schema_and_shown_it() -> None:
    body: Any = ollama_request.body(typed("llama3.2", tools=()))
    assert body["format"] == CLOSED
    assert '"total"' in body["messages"][0]["content"]


# --- the tool --------------------------------------------------------------------------------------------------------


def test_the_tool_takes_the_place_of_the_schema() -> None:
    asked = with_output_tool(typed("claude-sonnet-4-5"))
    assert [tool.name for tool in asked.tools] == ["Search", OUTPUT_TOOL]
    assert asked.tools[-1].input_schema == CLOSED
    assert asked.output_schema is None


def test_without_a_schema_nothing_changes() -> None:
    asked = request(model="claude-sonnet-4-5")
    assert with_output_tool(asked) is asked


def test_claude_must_call_a_tool_unless_it_thinks() -> None:
    body: Any = anthropic_request.body(with_output_tool(typed("claude-sonnet-4-5")))
    assert body["tool_choice"] == {"type": "any"}
    thinking: Any = anthropic_request.body(with_output_tool(typed("claude-sonnet-4-5", effort="high")))
    assert "thinking" in thinking
    assert "tool_choice" not in thinking


def test_claude_keeps_to_one_call_at_a_time() -> None:
    body: Any = anthropic_request.body(with_output_tool(typed("claude-sonnet-4-5")), parallel=False)
    assert body["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}


def test_models_of_the_openai_wire_must_call_a_tool_where_that_is_taken() -> None:
    body: Any = openai_request.body(with_output_tool(typed("gpt-4-turbo")), OPENAI)
    assert body["tool_choice"] == "required"
    assert "response_format" not in body
    assert "tool_choice" not in openai_request.body(with_output_tool(typed("deepseek-reasoner")), DEEPSEEK)


def test_gemini_must_call_a_function() -> None:
    body: Any = gemini_request.body(with_output_tool(typed("gemini-2.5-flash")))
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": "ANY"}}


# --- the reply -------------------------------------------------------------------------------------------------------


def test_a_call_of_the_tool_is_the_text_of_the_answer() -> None:
    read = read_output(reply(call(OUTPUT_TOOL), text="Here it is."))
    assert (read.text, read.tool_calls, read.stop_reason) == ('{"total":3}', (), "end_turn")
    assert read.reasoning_signature == ""


def test_beside_other_calls_the_answer_was_too_early() -> None:
    read = read_output(reply(call("Search"), call(OUTPUT_TOOL)))
    assert [one.name for one in read.tool_calls] == ["Search"]
    assert read.stop_reason == "tool_use"


def test_other_replies_are_as_they_are() -> None:
    plain = reply(call("Search"))
    assert read_output(plain) is plain
