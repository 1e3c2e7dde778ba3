import json
from typing import Any

from loomlog.connectors.models.mock.circuit import score_of
from loomlog.connectors.models.mock.model import MockModel, MockOptions
from loomlog.connectors.protocols import ModelRequest, Reply, ToolSpec
from loomlog.schemas.conversation import Message, ToolUseBlock
from tests.connectors.models.samples import request, results, user


async def turn(asked: ModelRequest) -> Reply:
    *_, reply = [item async for item in MockModel(options=MockOptions(latency_ms=0, latency_jitter_ms=0)).stream(asked)]
    assert isinstance(reply, Reply)
    return reply


async def played(model: str, prompt: str, *answers: str, **changes: Any) -> tuple[list[tuple[str, Any]], str]:
    """The calls of a whole run and its last text; `answers` are those of the tools, "x" when there are no more."""
    conversation, calls = [user(prompt)], []
    for step in range(10):
        reply = await turn(request(*conversation, model=model, call_id=f"r_1:{step}.1", **{"tools": ()} | changes))
        if not reply.tool_calls:
            return calls, reply.text
        [call] = reply.tool_calls
        calls.append((call.name, json.loads(call.input)))
        said = Message(role="assistant", blocks=(ToolUseBlock(id=call.id, name=call.name, input=call.input),))
        answer = answers[step] if step < len(answers) else "x"
        conversation += [said, results((call.id, answer), name=call.name)]
    raise AssertionError("the script does not end")


async def test_the_researcher_remembers_and_tells() -> None:
    calls, text = await played("mock-researcher", "circuit c42, user_id=ann")
    assert [(name, call["op"]) for name, call in calls] == [("Memory", "set"), ("Channel", "publish")]
    assert (calls[0][1]["scope"], calls[0][1]["key"]) == ("user", "c42-research")
    assert calls[0][1]["value"]["text"]
    assert (calls[1][1]["channel"], calls[1][1]["value"]) == ("research-done/c42", {"circuit_id": "c42"})
    assert text == "Research of c42 is done."


async def test_the_editor_waits_reads_writes_looks_at_itself_and_tells() -> None:
    self_answer = json.dumps({"agent_name": "editor", "run_id": "r_abc"})
    calls, text = await played("mock-editor", "c7", "{}", "{}", "{}", self_answer)
    assert [(name, call["op"]) for name, call in calls] == [
        ("Channel", "subscribe"),
        ("Memory", "get"),
        ("Memory", "set"),
        ("Context", "self"),
        ("Channel", "publish"),
    ]
    subscribe = {"op": "subscribe", "channel": "research-done/c7", "wait_ms": 120_000, "max_messages": 1}
    assert calls[0][1] == subscribe
    assert [call["key"] for _, call in calls[1:3]] == ["c7-research", "c7-research-edited"]
    assert calls[4][1]["channel"] == "editing-done/c7"
    assert calls[4][1]["value"] == {"circuit_id": "c7", "editor_run_id": "r_abc"}
    assert text == "Editing of c7 is done."


async def test_an_editor_that_does_not_learn_its_run_names_its_circuit() -> None:
    calls, _ = await played("mock-editor", "c7")
    assert calls[4][1]["value"]["editor_run_id"] == "mock-editor-c7"


async def test_the_evaluator_scores_the_run_it_was_told_of() -> None:
    heard = json.dumps({"messages": [{"id": "m", "value": {"circuit_id": "c7", "editor_run_id": "r_abc"}}]})
    calls, text = await played("mock-evaluator", "c7", heard)
    assert [(name, call["op"]) for name, call in calls] == [
        ("Channel", "subscribe"),
        ("Memory", "get"),
        ("Memory", "get"),
        ("Memory", "set"),
        ("Evaluation", "submit"),
    ]
    assert calls[0][1]["channel"] == "editing-done/c7"
    score = score_of("r_abc", "c7")
    assert [call["key"] for _, call in calls[1:4]] == ["c7-research", "c7-research-edited", "c7-research-scored"]
    assert calls[3][1]["value"] == {"score": score, "rationale": "ok"}
    assert calls[4][1] == {"op": "submit", "run_id": "r_abc", "score": score, "rationale": "ok"}
    assert text == f"The score of c7 is {score:.2f}."


async def test_each_turn_with_a_call_says_a_sentence() -> None:
    assert (await turn(request(user("c7"), model="mock-editor"))).text == "Step 1 of 5."


async def test_a_fenced_answer_is_read_as_well() -> None:
    fenced = '<tool_result>\n{"messages": [{"value": {"editor_run_id": "r_abc"}}]}\n</tool_result>'
    calls, _ = await played("mock-evaluator", "c7", fenced)
    assert calls[4][1]["run_id"] == "r_abc"


def test_scores_are_hundredths_from_050_to_099() -> None:
    scores = {score_of("r", f"c{number}") for number in range(2_000)}
    assert scores == {round(hundredth / 100, 2) for hundredth in range(50, 100)}


def test_the_score_is_the_fnv_1a_hash_of_the_run_and_the_name() -> None:
    # FNV-1a of 32 bits: "a" is 0xe40c292c and "foobar" is 0xbf9cf968 in the published test vectors.
    assert score_of("", "a") == 0.50 + (0xE40C292C % 50) / 100
    assert score_of("foo", "bar") == round(0.50 + (0xBF9CF968 % 50) / 100, 2)
    assert score_of("", "") == 0.85


async def test_without_a_circuit_in_the_prompt_it_is_c0() -> None:
    calls, _ = await played("mock-researcher", "go")
    assert calls[0][1]["key"] == "c0-research"


async def test_the_position_is_the_number_of_all_results_even_after_a_new_text() -> None:
    conversation = [user("c3"), results(("a", "x"), ("b", "x")), user("again")]
    assert (await turn(request(*conversation, model="mock-researcher"))).tool_calls == ()


async def test_tools_of_mcp_servers_are_called_in_their_order_with_the_user() -> None:
    names = ["Read", "mcp__b__one", "mcp__a__two", "mcp__a__three"]
    tools = tuple(ToolSpec(name=name, description="d", input_schema={}) for name in names)
    calls, text = await played("mock-mcp-caller", "go user_id=ann-1, please", tools=tools)
    assert calls == [("mcp__b__one", {"user_id": "ann-1"}), ("mcp__a__two", {"user_id": "ann-1"})]
    assert text == "2 tools of MCP servers were called."
    assert (await played("mock-mcp-caller", "go"))[0] == []


async def test_the_memory_searcher_writes_searches_and_says_what_it_found() -> None:
    calls, text = await played("mock-mem-search", "what is red?", "ok", '{"entries": ["an apple"]}')
    assert [(name, call["op"]) for name, call in calls] == [("Memory", "set"), ("Memory", "search")]
    assert calls[0][1]["embed"] is True
    assert calls[1][1]["query"] == "what is red?"
    assert text == 'The search returned: {"entries": ["an apple"]}'
