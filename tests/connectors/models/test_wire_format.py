import pytest

from loomlog.connectors.errors import Permanent
from loomlog.connectors.models import anthropic_request, gemini_request, ollama_request, openai_request
from loomlog.connectors.models.wire_format import (
    arguments_for_wire,
    call_id_for_wire,
    check_key,
    data_of,
    encode_body,
    normalise_calls,
    restrict_to_capabilities,
    text_of,
    tool_name_for_wire,
)
from loomlog.connectors.protocols import Capabilities, ModelRequest, SystemBlock
from loomlog.schemas.conversation import ImageBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock
from loomlog.schemas.generated.values import BlobRef, ToolCall
from loomlog.schemas.records import replace
from tests.connectors.models.samples import called, request, results, user

BLOB = BlobRef(sha256="0" * 64, size_bytes=3)


def call(call_id: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(id=call_id, name="Search", input=arguments)


def test_loaded_text_and_images_are_given_and_unloaded_ones_are_bugs() -> None:
    assert text_of(TextBlock(text="abc", blob=BLOB)) == "abc"
    assert text_of(ToolResultBlock(tool_use_id="t", name="n", text="")) == ""
    assert data_of(ImageBlock(media_type="image/png", data="AA", blob=BLOB)) == "AA"
    with pytest.raises(AssertionError):
        text_of(TextBlock(text="", blob=BLOB))
    with pytest.raises(AssertionError):
        data_of(ImageBlock(media_type="image/png", data="", blob=BLOB))


@pytest.mark.parametrize("call_id", ["toolu_01AbC-x", "mock_tu_0123456789abcdef", "x" * 40])
def test_an_id_every_provider_takes_stays(call_id: str) -> None:
    assert call_id_for_wire(call_id) == call_id


def test_other_ids_become_hashes_that_differ() -> None:
    made = {call_id_for_wire(call_id) for call_id in ("x" * 41, "a.b", "a:b", "", "ü", "a\n")}
    assert len(made) == 6
    assert all(len(call_id) == 35 for call_id in made)


def test_an_object_stays_as_it_was_written() -> None:
    assert arguments_for_wire('{"a" : 1.50}') == '{"a" : 1.50}'
    assert arguments_for_wire("[") == '{"invalid_json":"["}'


def test_a_body_that_is_no_json_is_permanent() -> None:
    assert encode_body("some", {"a": "ü"}) == '{"a":"ü"}'.encode()
    with pytest.raises(Permanent, match="some: the request cannot be written as JSON"):
        encode_body("some", {"a": "\ud83d"})


def test_calls_are_in_a_reply_exactly_when_it_stops_for_them() -> None:
    asked = request()
    assert normalise_calls("some", [call("a")], "end_turn", asked) == ((call("a"),), "tool_use")
    assert normalise_calls("some", [call("a")], "tool_use", asked) == ((call("a"),), "tool_use")
    assert normalise_calls("some", [call("a")], "max_tokens", asked) == ((), "max_tokens")
    assert normalise_calls("some", [call("a")], "stop_sequence", asked) == ((), "stop_sequence")


def test_ids_are_unique_in_the_answer_and_in_the_run() -> None:
    asked = request(user("x"), called("a"), results(("a", "r")))
    calls, _ = normalise_calls("some", [call("a"), call("b"), call("b"), call("")], "tool_use", asked)
    ids = [one.id for one in calls]
    assert len({*ids, "a"}) == 5
    assert ids[1] == "b"
    assert [
        one.id for one in normalise_calls("some", [call("a"), call("b"), call("b"), call("")], "tool_use", asked)[0]
    ] == ids


def test_empty_arguments_are_an_empty_object() -> None:
    assert normalise_calls("some", [call("a", " ")], "tool_use", request())[0][0].input == "{}"


def test_a_missing_key_names_what_to_set() -> None:
    check_key("some", "", is_required=False)
    check_key("some", "sk", is_required=True)
    with pytest.raises(Permanent, match="api_key_env"):
        check_key("some", "", is_required=True)


ALL = Capabilities(native_prompt_cache=True, supports_thinking=True, supports_effort=True)


@pytest.mark.parametrize(
    ("capabilities", "effort_is_thinking", "effort"),
    [
        (ALL, True, "high"),
        (replace(ALL, supports_effort=False), False, ""),
        (replace(ALL, supports_thinking=False), True, ""),
        (replace(ALL, supports_thinking=False), False, "high"),
    ],
)
def test_an_effort_goes_only_to_providers_that_take_one(
    capabilities: Capabilities, effort_is_thinking: bool, effort: str
) -> None:
    asked = request(effort="high")
    assert restrict_to_capabilities(asked, capabilities, effort_is_thinking=effort_is_thinking).effort == effort


def test_cache_marks_go_only_to_providers_with_a_cache() -> None:
    asked = request(system=(SystemBlock(text="a", cacheable=True), SystemBlock(text="b")))
    assert restrict_to_capabilities(asked, ALL) is asked
    kept = restrict_to_capabilities(asked, replace(ALL, native_prompt_cache=False)).system
    assert [(block.text, block.cacheable) for block in kept] == [("a", False), ("b", False)]


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("Read", "Read"),
        ("mcp__crm__find-all_2", "mcp__crm__find-all_2"),
        ("functions.Read", "functions_Read"),
        ("my tool!", "my_tool_"),
        ("é\n", "__"),
        ("", "_"),
        ("n" * 300, "n" * 64),
    ],
)
def test_the_name_of_a_call_is_one_that_providers_take(name: str, sent: str) -> None:
    assert tool_name_for_wire(name) == sent


def test_every_driver_sends_such_names() -> None:
    """A model made the name up, or another provider takes longer ones; refused, the conversation could not go on."""
    call = ToolUseBlock(id="c1", name="my tool!", input="{}")
    result = ToolResultBlock(tool_use_id="c1", name="my tool!", text="tool not found")
    messages = (
        Message(role="user", blocks=(TextBlock(text="go"),)),
        Message(role="assistant", blocks=(call,)),
        Message(role="user", blocks=(result,)),
    )
    asked = ModelRequest(call_id="r:1.1", model="m", messages=messages)
    for driver in (anthropic_request, gemini_request, ollama_request):
        assert "my_tool_" in str(driver.body(asked))
        assert "my tool" not in str(driver.body(asked))
    sent = str(openai_request.body(asked, openai_request.Dialect(base_url="", max_context_tokens=1)))
    assert "my_tool_" in sent
    assert "my tool" not in sent
