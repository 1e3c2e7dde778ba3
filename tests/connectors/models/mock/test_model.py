import asyncio
import json
import zlib
from typing import Any

import pytest

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.models.mock.model import MockModel, MockOptions
from loomlog.connectors.protocols import ModelItem, ModelRequest, Reply, TextDelta, ToolSpec
from loomlog.schemas.conversation import Message, ToolUseBlock
from tests.connectors.models.samples import request, results, user
from tests.sleeps import noted_sleeps

INSTANT = MockOptions(latency_ms=0, latency_jitter_ms=0)
BENCH = ToolSpec(name="Bench", description="Returns bytes.", input_schema={"type": "object"})


async def items_of(model: MockModel, asked: ModelRequest) -> list[ModelItem]:
    return [item async for item in model.stream(asked)]


async def turn(asked: ModelRequest, model: MockModel | None = None) -> Reply:
    *_, reply = await items_of(model or MockModel(options=INSTANT), asked)
    assert isinstance(reply, Reply)
    return reply


def bench(*messages: Message, **changes: Any) -> ModelRequest:
    return request(*messages, model="mock-a3x2", tools=(BENCH,), **changes)


def ledger(*messages: Message, **changes: Any) -> ModelRequest:
    tool = ToolSpec(name="Ledger", description="Counts effects.", input_schema={"type": "object"})
    return request(*messages, model="mock-ledger", tools=(tool,), **changes)


def after(reply: Reply) -> Message:
    blocks = tuple(ToolUseBlock(id=call.id, name=call.name, input=call.input) for call in reply.tool_calls)
    return Message(role="assistant", blocks=blocks)


async def test_the_generic_model_says_ok_whatever_it_is_asked() -> None:
    items = await items_of(MockModel(options=INSTANT), request(model="mock-generic"))
    assert items[0] == TextDelta(text="ok")
    reply = items[1]
    assert isinstance(reply, Reply)
    assert (reply.text, reply.stop_reason, reply.tool_calls, reply.model) == ("ok", "end_turn", (), "mock-generic")
    assert len(items) == 2


async def test_the_benchmark_workload_is_two_calls_and_a_text() -> None:
    conversation = [user("go")]
    for step in (1, 2):
        reply = await turn(bench(*conversation, call_id=f"r_1/{step}/0"))
        [call] = reply.tool_calls
        assert (reply.stop_reason, call.name, call.input, len(reply.text)) == (
            "tool_use",
            "Bench",
            "{}",
            1000,
        )
        conversation += [after(reply), results((call.id, "x"), name="Bench")]
    last = await turn(bench(*conversation, call_id="r_1/3/0"))
    assert (last.stop_reason, last.tool_calls, len(last.text)) == ("end_turn", (), 1000)


async def test_both_turns_make_the_calls_of_the_prompt_with_one_digit_for_every_mark() -> None:
    memory = ToolSpec(name="Memory", description="Keeps values.", input_schema={"type": "object"})
    prompt = json.dumps([["Bench", {}], ["Memory", {"op": "set", "key": "notes/#"}], ["Memory", {"key": "notes/#"}]])
    conversation, keys = [user(prompt)], set()
    for step in range(12):
        asked = request(*conversation, model="mock-a3x2-calls", tools=(BENCH, memory), call_id=f"r_{step}/1/0")
        bench_call, set_call, get_call = (await turn(asked)).tool_calls
        assert (bench_call.name, bench_call.input, set_call.name) == ("Bench", "{}", "Memory")
        assert json.loads(set_call.input) == {"op": "set", **json.loads(get_call.input)}
        keys.add(json.loads(get_call.input)["key"])
    assert len(keys) > 1
    assert all(key.removeprefix("notes/") in set("0123456789abcdef") for key in keys)
    for _ in range(2):
        reply = await turn(request(*conversation, model="mock-a3x2-calls", tools=(BENCH, memory)))
        assert len(reply.tool_calls) == 3
        conversation += [after(reply), results(*((call.id, "x") for call in reply.tool_calls))]
    last = await turn(request(*conversation, model="mock-a3x2-calls", tools=(BENCH, memory)))
    assert (last.tool_calls, len(last.text)) == ((), 1000)


@pytest.mark.parametrize("prompt", ["measure", "7", '["Bench"]', '[["Bench"]]', "{}x"])
async def test_a_prompt_that_lists_no_calls_is_refused(prompt: str) -> None:
    with pytest.raises(Permanent, match="mock 400: the prompt must be a JSON array of \\[tool, arguments\\]"):
        await turn(request(user(prompt), model="mock-a3x2-calls", tools=(BENCH,)))


async def test_a_new_user_text_begins_the_script_again() -> None:
    conversation = [user("go"), results(("a", "x")), results(("b", "x")), user("again")]
    assert (await turn(bench(*conversation))).tool_calls


async def test_texts_differ_for_each_call_and_do_not_compress() -> None:
    one, other = [(await turn(bench(call_id=call_id))).text for call_id in ("r_1/1/0", "r_1/1/1")]
    assert one != other
    assert len(zlib.compress((one + other).encode(), 9)) > 1500


async def test_the_same_attempt_gives_the_same_turn_and_another_gives_other_ids() -> None:
    asked = bench(call_id="r_1/1/0")
    assert await turn(asked) == await turn(asked)
    other = await turn(bench(call_id="r_1/1/1"))
    assert other.tool_calls[0].id != (await turn(asked)).tool_calls[0].id
    assert other.tool_calls[0].id.startswith("mock_tu_")


async def test_the_benchmark_needs_its_tool() -> None:
    with pytest.raises(Permanent, match="mock 400: mock-a3x2 calls the tool Bench; offered: Search"):
        await turn(request(model="mock-a3x2"))


async def test_the_ledger_script_calls_once_then_twice_at_once_then_once() -> None:
    conversation, asked = [user("go")], []
    for number in range(4):
        reply = await turn(ledger(*conversation, call_id=f"r_1:{number}.1"))
        asked.append([(call.name, call.input) for call in reply.tool_calls])
        answers = tuple((call.id, "Recorded.") for call in reply.tool_calls)
        conversation += [after(reply), results(*answers, name="Ledger")]
    once = ("Ledger", '{"wait_ms":150}')
    assert asked == [[once], [once, once], [once], []]
    assert (reply.text, reply.stop_reason) == ("4 calls have an answer", "end_turn")


async def test_the_ledger_script_repeats_its_calls_as_often_as_the_prompt_says() -> None:
    conversation, calls = [user("ledger 3")], 0
    while (reply := await turn(ledger(*conversation, call_id=f"r_1:{calls}.1"))).tool_calls:
        calls += len(reply.tool_calls)
        answers = tuple((call.id, "Recorded.") for call in reply.tool_calls)
        conversation += [after(reply), results(*answers, name="Ledger")]
    assert (calls, reply.text) == (12, "12 calls have an answer")


async def test_the_ledger_script_needs_its_tool() -> None:
    with pytest.raises(Permanent, match="mock 400: mock-ledger calls the tool Ledger; offered: Search"):
        await turn(request(model="mock-ledger"))


LISTED = [
    "mock-generic",
    "mock-hello",
    "mock-reviewer",
    "mock-a3x2",
    "mock-tree",
    "mock-ledger",
    "mock-researcher",
    "mock-editor",
    "mock-evaluator",
    "mock-mcp-caller",
]


async def test_an_unknown_model_names_those_that_exist() -> None:
    with pytest.raises(Permanent, match=r"there are mock-generic, .*, mock-mcp-caller$") as caught:
        await turn(request(model="mock-unknown"))
    assert (caught.value.kind, caught.value.status) == ("not_found", 404)


async def test_one_model_is_in_no_list_and_answers_all_the_same() -> None:
    assert await MockModel().list_models() == LISTED
    assert (await turn(request(model="mock-mem-search"))).tool_calls


async def test_a_probe_never_fails_however_unreliable_the_calls_are() -> None:
    await MockModel(options=MockOptions(rate_429=1.0, rate_500=1.0)).probe()


async def test_tokens_are_a_quarter_of_the_characters() -> None:
    small = await turn(request(model="mock-generic", text="", system=()))
    assert (small.usage.input_tokens, small.usage.output_tokens) == (1, 0)
    large = await turn(bench(user("x" * 400), results(("a", "y" * 400)), system=()))
    assert (large.usage.input_tokens, large.usage.output_tokens) == (200, 250)


async def test_failures_are_rolled_for_each_attempt_and_repeat_with_it() -> None:
    model = MockModel(options=MockOptions(latency_ms=0, latency_jitter_ms=0, rate_429=0.3, rate_500=0.3))

    async def fate(attempt: int) -> str:
        try:
            await turn(request(model="mock-generic", call_id=f"r_1/1/{attempt}"), model)
        except Transient as error:
            return error.kind
        return "fine"

    fates = [await fate(attempt) for attempt in range(400)]
    assert fates == [await fate(attempt) for attempt in range(400)]
    share = {kind: fates.count(kind) / 400 for kind in set(fates)}
    assert share["rate_limited"] == pytest.approx(0.3, abs=0.08)
    assert share["unavailable"] == pytest.approx(0.21, abs=0.08)
    assert share["fine"] == pytest.approx(0.49, abs=0.08)


async def test_429_is_rolled_first_and_before_any_waiting() -> None:
    model = MockModel(options=MockOptions(latency_ms=60_000, rate_429=1.0, rate_500=1.0))
    async with asyncio.timeout(30):
        with pytest.raises(Transient, match=r"^mock 429: ") as caught:
            await turn(request(model="mock-generic"), model)
    assert (caught.value.kind, caught.value.status, caught.value.retry_after_s) == ("rate_limited", 429, None)
    with pytest.raises(Transient, match=r"^mock 500: "):
        await turn(request(model="mock-generic"), MockModel(options=MockOptions(latency_ms=60_000, rate_500=1.0)))


async def test_a_stable_provider_never_fails() -> None:
    knobs = MockOptions(latency_ms=0, latency_jitter_ms=0, rate_429=1.0, rate_500=1.0)
    assert (await turn(request(model="mock-generic"), MockModel(options=knobs, stable=True))).text == "ok"


async def test_without_latency_a_turn_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    noted_sleeps(monkeypatch, "loomlog.connectors.models.mock.model", slept.append)
    assert (await turn(bench(user("x" * 100_000)))).tool_calls
    assert slept == []


async def test_with_latency_the_text_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    noted_sleeps(monkeypatch, "loomlog.connectors.models.mock.model", slept.append)
    model = MockModel(options=MockOptions(latency_ms=80, latency_jitter_ms=20))
    *deltas, reply = await items_of(model, bench(user("x" * 800_000), system=()))
    assert isinstance(reply, Reply)
    assert len(deltas) == 4
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == reply.text
    assert 0.080 + 0.008 <= sum(slept) <= 0.100 + 0.008 + 1e-9


async def test_a_word_comes_in_one_piece() -> None:
    model = MockModel(options=MockOptions(latency_ms=0.001, latency_jitter_ms=0))
    *deltas, reply = await items_of(model, request(model="mock-generic"))
    assert deltas == [TextDelta(text="ok")]
    assert isinstance(reply, Reply)


@pytest.mark.parametrize("wrong", [{"latency_ms": -1}, {"latency_jitter_ms": -1}, {"rate_429": 2}, {"rate_500": -0.1}])
def test_knobs_that_make_no_sense_are_a_bug(wrong: dict[str, float]) -> None:
    with pytest.raises(AssertionError):
        MockOptions(**wrong)


async def test_its_capabilities() -> None:
    model = MockModel()
    assert model.capabilities.supports_vision
    assert model.provider == "mock"
    await model.close()


async def test_a_tree_asks_for_its_children_and_its_leaves_answer() -> None:
    tool = ToolSpec(name="Agent", description="Starts runs.", input_schema={"type": "object"})
    asked = request(user("tree branch 2 3"), model="mock-tree", tools=(tool,))
    [call] = (await turn(asked)).tool_calls
    spawn = {"name": "branch", "prompt": "tree branch 3"}
    assert json.loads(call.input) == {"op": "parallel_spawn", "spawns": [spawn, spawn]}
    assert not (await turn(request(user("tree branch"), model="mock-tree"))).tool_calls


async def test_hello_says_that_it_is_synthetic_and_how_to_use_a_real_model() -> None:
    reply = await turn(request(model="mock-hello", text="What is a\n term?"))
    assert 'synthetic model of loomlog; no provider was called. It received "What is a term?".' in reply.text
    assert "ANTHROPIC_API_KEY or OPENAI_API_KEY" in reply.text


async def test_a_prompt_over_the_context_window_is_refused_as_a_provider_would() -> None:
    with pytest.raises(
        Permanent, match="the prompt is too long: 200001 tokens, the context window has 200000"
    ) as error:
        await turn(request(model="mock-generic", text="x" * 800_004, system=()))
    assert (error.value.kind, error.value.status) == ("context_exceeded", 400)
