import asyncio
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.connectors.errors import CODE_AGENT_KINDS, Permanent
from loomlog.connectors.models import code_sandbox
from loomlog.connectors.models.code_js import CODE_BODY_MAX_BYTES, REPORTED_MODEL, CodeModel
from loomlog.connectors.models.code_supervisor import STATUS, STATUS_MARK
from loomlog.connectors.protocols import ModelRequest
from loomlog.schemas.generated.values import Usage
from loomlog.schemas.records import replace
from tests.connectors.models.scripts import STARTED_MS, Answer, exchange, script_request, to_the_end, turn
from tests.waiting import until

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples" / "agent_code"
PATIENCE_S = 30.0


def body(text: str) -> str:
    return f"function run(input) {{ {text} }}"


async def returned(model: CodeModel, text: str, **changes: Any) -> Any:
    """What a script returns, as the JSON it is written as."""
    reply = await turn(model, script_request(body(text), **changes))
    assert reply.stop_reason == "end_turn"
    return json.loads(reply.text)


async def failure(model: CodeModel, request: ModelRequest) -> Permanent:
    with pytest.raises(Permanent) as caught:
        await turn(model, request)
    assert caught.value.kind in CODE_AGENT_KINDS
    assert str(caught.value).startswith(f"code-js {caught.value.kind}: ")
    return caught.value


# --- what a script is given and gives --------------------------------------------------------------------------------


async def test_a_script_reads_the_prompt_and_sorted_metadata_whose_reserved_keys_win(code_model: CodeModel) -> None:
    said = await returned(
        code_model,
        "return input",
        prompt="count them",
        metadata={"z": "1", "user_id": '"liar"', "agent": '"other"', "b": '{"x": [true]}', "plain": "as it is"},
        payload_metadata={"from": '"outside"'},
    )
    assert said == {
        "prompt": "count them",
        "metadata": {"agent": "helper", "b": {"x": [True]}, "plain": "as it is", "user_id": "u-1", "z": 1},
        "payload_metadata": {"from": "outside"},
    }
    assert list(said["metadata"]) == sorted(said["metadata"])


async def test_without_a_trigger_there_is_no_payload_metadata(code_model: CodeModel) -> None:
    assert await returned(code_model, "return Object.keys(input)") == ["prompt", "metadata"]


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ('"plain"', "plain"),
        ('({final_text: "said", more: 1})', "said"),
        ("({a: [1, null]})", '{"a":[1,null]}'),
        ("({final_text: 5})", '{"final_text":5}'),
        ("42", "42"),
        ("undefined", ""),
        ("null", ""),
        ('"half \\ud800 a pair"', "half \ufffd a pair"),
        ('"a\\u0000b"', "a\0b"),
        ("Promise.resolve('a\\0b')", "a\0b"),
        ("(Object.prototype.toJSON = () => 'changed', 'as \\0 it is')", "as \0 it is"),
        ("Promise.resolve('later')", "later"),
    ],
)
async def test_what_run_returns_is_the_final_text(code_model: CodeModel, expression: str, text: str) -> None:
    reply = await turn(code_model, script_request(body(f"return {expression}")))
    assert (reply.text, reply.tool_calls, reply.usage, reply.model) == (text, (), Usage(), REPORTED_MODEL)


@pytest.mark.parametrize(
    ("expression", "name", "arguments", "result", "value"),
    [
        (
            "Memory.set({key: 'a', value: 1})",
            "Memory",
            {"op": "set", "key": "a", "value": 1},
            '{"ok":true}',
            {"ok": True},
        ),
        ("Memory.any_op_at_all()", "Memory", {"op": "any_op_at_all"}, "not json", "not json"),
        ("Channel.publish({channel: 'c'})", "Channel", {"op": "publish", "channel": "c"}, '["m"]', ["m"]),
        ("Agent.spawn({name: 'b', prompt: 'p'})", "Agent", {"op": "spawn", "name": "b", "prompt": "p"}, "[1]", "[1]"),
        ("Memory.get({key: 'k', op: 'delete'})", "Memory", {"op": "get", "key": "k"}, "1", 1),
        ("Read({path: 'p'})", "Read", {"path": "p"}, '{"raw":"stays text"}', '{"raw":"stays text"}'),
        ("Read()", "Read", {}, "", ""),
        ("mcp__crm__find({q: 'x'})", "mcp__crm__find", {"q": "x"}, '{"n":2}', {"n": 2}),
        ("mcp__crm__find({q: 'x'})", "mcp__crm__find", {"q": "x"}, "plain", "plain"),
    ],
)
async def test_each_tool_is_called_as_its_kind_is(
    code_model: CodeModel, expression: str, name: str, arguments: Mapping[str, Any], result: str, value: Any
) -> None:
    script = body(f"return [{expression}]")
    calls, text = await to_the_end(code_model, script, lambda *_: (result, False))
    assert calls == [("cj-1-0", name, arguments)]
    assert json.loads(text) == [value]


async def test_a_nul_crosses_unharmed(code_model: CodeModel) -> None:
    script = body("return input.prompt + input.metadata.m + Read({path: 'p\\0q'}) + Memory.get({key: '\\0'})")
    calls, text = await to_the_end(
        code_model, script, lambda *_: ("r\0s", False), prompt="a\0b", metadata={"m": '"c\\u0000d"'}
    )
    assert [arguments for _, _, arguments in calls] == [{"path": "p\0q"}, {"op": "get", "key": "\0"}]
    assert text == "a\0bc\0dr\0sr\0s"


async def test_the_first_call_without_a_result_is_the_turn(code_model: CodeModel) -> None:
    script = body("const a = Read({path: 'a'}); return a + Read({path: 'b'})")
    first = await turn(code_model, script_request(script))
    assert (first.stop_reason, first.text, first.tool_calls[0].id) == ("tool_use", "", "cj-1-0")
    second = await turn(code_model, script_request(script, *exchange(first, ("A", False))))
    assert (second.tool_calls[0].id, second.tool_calls[0].input) == ("cj-2-1", '{"path":"b"}')
    last = script_request(script, *exchange(first, ("A", False)), *exchange(second, ("B", False)))
    assert (await turn(code_model, last)).text == "AB"


async def test_an_error_of_a_tool_is_an_exception(code_model: CodeModel) -> None:
    script = body("try { Read({path: 'x'}) } catch (e) { return [e instanceof Error, e.name, e.tool, e.message] }")
    _, text = await to_the_end(code_model, script, lambda *_: ("no such file", True))
    assert json.loads(text) == [True, "ToolError", "Read", "no such file"]


async def test_an_error_of_a_tool_that_nobody_catches_ends_the_script(code_model: CodeModel) -> None:
    first = await turn(code_model, script_request(body("Read({})")))
    error = await failure(code_model, script_request(body("Read({})"), *exchange(first, ("gone", True))))
    assert (error.kind, "ToolError: gone" in str(error)) == ("code_agent_threw", True)


@pytest.mark.parametrize("argument", ["1", "'text'", "null", "[1]", "() => 1"])
async def test_a_tool_takes_one_object(code_model: CodeModel, argument: str) -> None:
    error = await failure(code_model, script_request(body(f"Read({argument})")))
    assert "TypeError: Read takes one object" in str(error)


@pytest.mark.parametrize("call", ["Bash({})", "Agent.open({})", "Agent.parallel_spawn({})", "client__x({})"])
async def test_what_is_not_granted_does_not_exist(code_model: CodeModel, call: str) -> None:
    error = await failure(code_model, script_request(body(call)))
    assert error.kind == "code_agent_threw"
    assert "is not defined" in str(error) or "not a function" in str(error)


async def test_surfaces_that_are_not_granted_do_not_exist(code_model: CodeModel) -> None:
    kinds = await returned(code_model, "return [typeof Memory, typeof Channel, typeof Agent]", tools=())
    assert kinds == ["undefined"] * 3


async def test_a_script_cannot_catch_its_stop(code_model: CodeModel) -> None:
    script = body("for (;;) { try { return Read({path: 'a'}) } catch { } finally { for (;;); } }")
    async with asyncio.timeout(PATIENCE_S):
        reply = await turn(code_model, script_request(script))
    assert reply.tool_calls[0].name == "Read"


async def test_a_script_may_use_the_names_of_its_tools_for_its_own(code_model: CodeModel) -> None:
    script = "const Read = 1; function ToolError() {} function run() { return Read + typeof ToolError }"
    assert (await turn(code_model, script_request(script))).text == "1function"


# --- the same every time ---------------------------------------------------------------------------------------------

CHANCE = "return [Math.random(), Math.random(), Date.now(), new Date().getTime(), Date.now(), Date()]"


async def test_chance_and_time_come_from_the_run(code_model: CodeModel) -> None:
    first = await returned(code_model, CHANCE)
    assert first == await returned(code_model, CHANCE)
    assert first[2:5] == [STARTED_MS, STARTED_MS + 1, STARTED_MS + 2]
    assert all(0 <= drawn < 1 for drawn in first[:2])
    assert first[0] != first[1]
    for change in ({"run_id": "r_2"}, {"agent": "other"}):
        assert (await returned(code_model, CHANCE, **change))[0] != first[0]
    assert (await returned(code_model, CHANCE, started_at_ms=5))[2] == 5


async def test_frozen_runs_are_all_alike() -> None:
    model = CodeModel(provider="code-js", is_deterministic=True)
    try:
        one = await returned(model, CHANCE)
        assert one == await returned(model, CHANCE, run_id="r_2", agent="other", started_at_ms=77)
        assert one[2] == 1_577_836_800_000
    finally:
        await model.close()


async def test_dates_otherwise_behave_as_dates_do(code_model: CodeModel) -> None:
    said = await returned(
        code_model,
        """class Mine extends Date {}
        return [new Date(0).toISOString(), new Date(2020, 1, 2).getTimezoneOffset(), new Date() instanceof Date,
                new Mine(5).getTime(), new Mine() instanceof Mine, Date.UTC(2000, 0), Date.name, Date.length,
                new Date("2020-01-01").getTime()]""",
    )
    assert said == ["1970-01-01T00:00:00.000Z", 0, True, 5, True, 946684800000, "Date", 7, 1577836800000]


@pytest.mark.parametrize(
    "then", ["Read({path: 'b'})", "Read({path: 'a', more: 1})", "Memory.get({path: 'a'})", "Channel.path({path: 'a'})"]
)
async def test_another_call_than_the_recorded_one_is_refused(code_model: CodeModel, then: str) -> None:
    first = await turn(code_model, script_request(body("Read({path: 'a'})")))
    error = await failure(code_model, script_request(body(then), *exchange(first, ("A", False))))
    assert error.kind == "code_agent_replay_divergence"


async def test_the_order_of_keys_is_no_divergence(code_model: CodeModel) -> None:
    first = await turn(code_model, script_request(body("return Read({a: 1, b: {c: 2, d: 3}})")))
    again = script_request(body("return Read({b: {d: 3, c: 2}, a: 1})"), *exchange(first, ("A", False)))
    assert (await turn(code_model, again)).text == "A"


# --- the sandbox -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "attempt",
    [
        "eval('1')",
        "(0, eval)('1')",
        "Function('return 1')()",
        "(() => {}).constructor('return 1')()",
        "(async () => {}).constructor('return 1')()",
        "(function* () {}).constructor('return 1')()",
        "(async function* () {}).constructor('return 1')()",
        "Reflect.construct((() => {}).constructor, ['return 1'])",
        "class A extends (() => {}).constructor {}; new A('return 1')",
        "require('fs')",
        "setTimeout(() => {}, 1)",
        "setInterval(() => {}, 1)",
        "std.open('/etc/passwd', 'r')",
        "os.open('/etc/passwd')",
        "process.exit(0)",
        "print('x')",
        "__ask('Bash', '{}')",
        "__host.begin()",
        "Atomics.wait(1)",
        "performance.now()",
        "new WeakRef({})",
        "fetch('http://example.org')",
    ],
)
async def test_there_is_no_way_out_of_the_sandbox(code_model: CodeModel, attempt: str) -> None:
    assert (await failure(code_model, script_request(body(f"return {attempt}")))).kind == "code_agent_threw"


async def test_no_file_can_be_imported(code_model: CodeModel, tmp_path: Path) -> None:
    module = tmp_path / "module.js"
    module.write_text("export const found = 1")
    script = f"async function run() {{ return (await import({json.dumps(str(module))})).found }}"
    assert "could not load module" in str(await failure(code_model, script_request(script)))


async def test_what_a_script_changes_is_gone_with_it(code_model: CodeModel) -> None:
    spoil = "Array.prototype.map = null; JSON.stringify = null; globalThis.left = 1; Object.prototype.x = 2; return ''"
    await turn(code_model, script_request(body(spoil)))
    said = await returned(code_model, "return [typeof [].map, typeof JSON.stringify, typeof left, typeof ({}).x]")
    assert said == ["function", "function", "undefined", "undefined"]


async def test_a_script_that_breaks_the_built_in_objects_hurts_nobody_else(code_model: CodeModel) -> None:
    script = body("JSON.stringify = () => '{}'; Object.keys = null; Promise.prototype.then = null; return Read({a: 1})")
    reply = await turn(code_model, script_request(script))
    assert json.loads(reply.tool_calls[0].input) == {"a": 1}


@pytest.mark.parametrize(
    "waste",
    [
        "const a = []; for (;;) a.push({x: [1, 2, 3]})",
        "const a = []; for (;;) a.push(new ArrayBuffer(1 << 20))",
        "let s = 'x'; for (;;) s = s + s",
        "const m = new Map(); for (let i = 0; ; i++) m.set(i, 'x'.repeat(1000))",
        "return run(input)",
        "return JSON.parse('['.repeat(1e6))",
    ],
)
async def test_a_script_that_wants_too_much_memory_throws(code_model: CodeModel, waste: str) -> None:
    assert (await failure(code_model, script_request(body(waste)))).kind == "code_agent_threw"
    assert await returned(code_model, "return [1]") == [1]


@pytest.mark.parametrize(
    "spin", ["for (;;);", "return /(a+)+$/.test('a'.repeat(64) + 'b')", "while (1) try { f() } catch {}"]
)
async def test_a_script_that_spins_is_stopped_at_its_time(code_model: CodeModel, spin: str) -> None:
    request = script_request(body(spin), time_left_ms=300)
    async with asyncio.timeout(PATIENCE_S):
        assert (await failure(code_model, request)).kind == "code_agent_timeout"
    assert scripts_under_way(code_model) == []


async def test_a_run_whose_time_is_over_executes_nothing(code_model: CodeModel) -> None:
    request = script_request(body("return 1"), time_left_ms=0)
    assert (await failure(code_model, request)).kind == "code_agent_timeout"


async def test_a_run_without_a_limit_of_its_own_has_that_of_the_provider() -> None:
    model = CodeModel(provider="code-js", run_timeout_s=0.3)
    try:
        error = await failure(model, script_request(body("for (;;);"), time_left_ms=None))
    finally:
        await model.close()
    assert (error.kind, "after 0.3 s" in str(error)) == ("code_agent_timeout", True)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("", "no script"),
        ("function run( {", "SyntaxError"),
        ("const x = 1", "no function run"),
        ("throw new Error('at once')", "at once"),
        ("/*" + "x" * CODE_BODY_MAX_BYTES + "*/", "at most 262144"),
        ("const text = 'a\0b'", "write it as \\u0000"),
    ],
)
async def test_a_script_that_cannot_begin_is_not_loaded(code_model: CodeModel, script: str, words: str) -> None:
    error = await failure(code_model, script_request(script))
    assert (error.kind, words in str(error)) == ("code_agent_load", True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("throw new Error('no')", "Error: no"),
        ("throw 'text'", "text"),
        ("throw 'a\\0b'", "a\0b"),
        ("throw new TypeError('a\\0b')", "TypeError: a\0b\n    at run"),
        ("return Promise.reject(new Error('a\\0b'))", "Error: a\0b"),
        ("throw Symbol('s')", "Symbol(s)"),
        ("Promise.resolve().then(() => Read({})); throw new Error('at once')", "at once"),
        ("throw null", "threw null"),
        ("throw undefined", "undefined"),
        ("throw {toString() { throw 1 }}", ""),
        ("return new Promise(() => {})", "never comes"),
        ("const a = {}; a.a = a; return a", "circular"),
        ("return () => 1", "no text and no JSON"),
        ("return 'x'.repeat(600000)", "at most 524288"),
        ("Read({x: 'x'.repeat(600000)})", "at most 524288"),
    ],
)
async def test_a_script_that_goes_wrong_says_how(code_model: CodeModel, text: str, words: str) -> None:
    error = await failure(code_model, script_request(body(text)))
    assert (error.kind, words in str(error)) == ("code_agent_threw", True)


async def test_results_that_a_script_could_not_hold_are_refused(code_model: CodeModel) -> None:
    script = body("return Read({}).length")
    first = await turn(code_model, script_request(script))
    request = script_request(script, *exchange(first, ("x" * code_sandbox.JOB_BYTES, False)))
    assert "at most 16777216" in str(await failure(code_model, request))


async def test_a_large_result_is_read_whole(code_model: CodeModel) -> None:
    script = body("return '' + Read({}).length")
    first = await turn(code_model, script_request(script))
    reply = await turn(code_model, script_request(script, *exchange(first, ("ü" * 2_000_000, False))))
    assert reply.text == "2000000"


async def test_the_event_loop_goes_on_while_scripts_spin(code_model: CodeModel) -> None:
    spinning = [
        asyncio.create_task(failure(code_model, script_request(body("for (;;);"), time_left_ms=1_000)))
        for _ in range(4)
    ]
    turns = 0
    while not all(task.done() for task in spinning):
        await asyncio.sleep(0.005)
        turns += 1
    assert {task.result().kind for task in spinning} == {"code_agent_timeout"}
    assert turns > 10 * len(spinning), "the loop waited for scripts"


async def test_a_call_that_is_cancelled_leaves_no_script_behind(code_model: CodeModel) -> None:
    task = asyncio.create_task(turn(code_model, script_request(body("for (;;);"))))
    await until(lambda: len(scripts_under_way(code_model)) == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: scripts_under_way(code_model) == [])


async def test_a_script_that_is_killed_from_outside_says_so(code_model: CodeModel) -> None:
    task = asyncio.create_task(failure(code_model, script_request(body("for (;;);"))))
    await until(lambda: len(scripts_under_way(code_model)) == 1)
    os.kill(scripts_under_way(code_model)[0], 9)
    assert (await task).kind == "code_agent_cancelled"


async def test_a_script_that_is_killed_before_it_has_read_its_job_is_not_executed_again() -> None:
    """Its socket is closed with unread bytes, which resets the connection after the status."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    status = STATUS.pack(STATUS_MARK, -9)
    with ours:
        answered = asyncio.create_task(code_sandbox._exchange(ours, b"a job"))
        with theirs:
            await asyncio.to_thread(theirs.recv, 1, socket.MSG_PEEK)
            theirs.sendall(status)
        assert await answered == status


async def test_a_keeper_that_dies_is_replaced_and_the_script_executed_again(code_model: CodeModel) -> None:
    await turn(code_model, script_request(body("return 1")))
    task = asyncio.create_task(
        turn(code_model, script_request(body("let n = 0; for (let i = 0; i < 1e7; i++) n += i; return '' + n")))
    )
    await until(lambda: len(scripts_under_way(code_model)) == 1)
    scripts = scripts_under_way(code_model)
    os.kill(keeper_of(code_model), 9)
    assert (await task).text == "49999995000000"
    await until(lambda: not any(map(is_running, scripts)))


@pytest.mark.parametrize("lost", [1, STATUS.size - 1, STATUS.size, STATUS.size + 3])
async def test_an_answer_whose_end_the_keeper_did_not_tell_is_given_again(
    code_model: CodeModel, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """The script had written what it came to when its keeper died."""
    exchanged, times = code_sandbox._exchange, 0

    async def cut(ours: socket.socket, told: bytes) -> bytes:
        nonlocal times
        times += 1
        data = await exchanged(ours, told)
        return data[:-lost] if times == 1 else data

    monkeypatch.setattr(code_sandbox, "_exchange", cut)
    assert (await turn(code_model, script_request(body("return 'a\\nb'")))).text == "a\nb"
    assert times == 2


async def test_a_closed_provider_leaves_no_process(code_model: CodeModel) -> None:
    model = CodeModel(provider="code-js")
    await turn(model, script_request(body("return 1")))
    keeper = keeper_of(model)
    await model.close()
    assert not is_running(keeper)


def keeper_of(model: CodeModel) -> int:
    keeper = model._sandbox._supervisor
    assert keeper is not None
    return keeper.pid


def scripts_under_way(model: CodeModel) -> list[int]:
    return [child.pid for child in psutil.Process(keeper_of(model)).children()]


def is_running(process: int) -> bool:
    """A zombie is not: its parent is the system now, which takes it away when it likes."""
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# --- whole runs ------------------------------------------------------------------------------------------------------


async def test_the_example_agent_writes_its_report(code_model: CodeModel) -> None:
    script = (EXAMPLES / "todo-report" / "index.js").read_text()
    written: dict[str, Any] = {}

    def tool(name: str, arguments: Mapping[str, Any]) -> Answer:
        if name == "Grep":
            assert arguments["pattern"] == "FIXME"
            return "b.py:3: # FIXME second\na.py:1:# FIXME first\na.py:9:# FIXME: more", False
        written.update(arguments)
        return "written", False

    calls, text = await to_the_end(code_model, script, tool, prompt="FIXME", tools=("Grep", "Write"))
    assert [name for _, name, _ in calls] == ["Grep", "Write"]
    assert text == "3 places with FIXME in 2 files, see todo.md"
    assert written["content"].startswith("# 3 places with FIXME\n\n## a.py\n\n- line 1: # FIXME first\n- line 9:")


Statement = tuple[Any, ...]
NAMES = st.sampled_from(["Read", "mcp__crm__find"])
PLAIN = st.one_of(
    st.tuples(st.just("call"), NAMES, st.integers(0, 9)),
    st.tuples(st.just("draw")),
    st.tuples(st.just("clock")),
)
PROGRAMS = st.lists(
    st.recursive(
        PLAIN,
        lambda inner: st.one_of(
            st.tuples(st.just("repeat"), st.integers(0, 3), st.lists(inner, max_size=3)),
            st.tuples(st.just("try"), st.lists(inner, max_size=3)),
            st.tuples(st.just("if long"), st.lists(inner, max_size=3)),
        ),
        max_leaves=6,
    ),
    max_size=4,
)


def tool_of(name: str, arguments: Mapping[str, Any]) -> Answer:
    """A tool with errors: every input that three divides."""
    return f"{name}#{arguments['n']}", arguments["n"] % 3 == 0


def written(program: list[Statement]) -> str:
    """The program as JavaScript. `log` is what it has seen, and its final text."""
    lines: list[str] = []
    for kind, *rest in program:
        match kind:
            case "call":
                lines.append(f"log += {rest[0]}({{n: {rest[1]}}}) + ';';")
            case "draw":
                lines.append("log += Math.random() < 2 ? 'd;' : '';")
            case "clock":
                lines.append("log += (Date.now() - start) + ';';")
            case "repeat":
                lines.append(f"for (let i = 0; i < {rest[0]}; i++) {{ {written(rest[1])} }}")
            case "try":
                lines.append(f"try {{ {written(rest[0])} }} catch (e) {{ log += 'caught ' + e.message + ';'; }}")
            case "if long":
                lines.append(f"if (log.length > 12) {{ {written(rest[0])} }}")
    return " ".join(lines)


class Thrown(Exception):
    """As a tool's error is one in a script."""


class Told:
    """The same program, told by hand."""

    def __init__(self) -> None:
        self.log = ""
        self.ticks = 0
        self.calls: list[tuple[str, int]] = []

    def does(self, program: list[Statement]) -> None:
        for kind, *rest in program:
            match kind:
                case "call":
                    self.calls.append((rest[0], rest[1]))
                    text, is_error = tool_of(rest[0], {"n": rest[1]})
                    if is_error:
                        raise Thrown(text)
                    self.log += f"{text};"
                case "draw":
                    self.log += "d;"
                case "clock":
                    self.ticks += 1
                    self.log += f"{self.ticks};"
                case "repeat":
                    for _ in range(rest[0]):
                        self.does(rest[1])
                case "try":
                    try:
                        self.does(rest[0])
                    except Thrown as error:
                        self.log += f"caught {error};"
                case "if long":
                    if len(self.log) > 12:
                        self.does(rest[0])


@given(PROGRAMS)
@settings(max_examples=25, deadline=None)
def test_any_script_makes_its_calls_once_and_in_order_and_each_turn_can_be_asked_again(
    program: list[Statement],
) -> None:
    told = Told()
    try:
        told.does(program)
    except Thrown:
        told.log += "ended"
    script = (
        "const start = Date.now(); let log = '';"
        f" function run() {{ try {{ {written(program)} }} catch (e) {{ log += 'ended'; }} return log }}"
    )

    async def played() -> tuple[list[tuple[str, str, Any]], str]:
        model = CodeModel(provider="code-js")
        try:
            messages: list[Any] = []
            calls: list[tuple[str, str, Any]] = []
            while True:
                request = script_request(script, *messages)
                reply, again = [await turn(model, request) for _ in range(2)]
                assert again == reply
                if not reply.tool_calls:
                    return calls, reply.text
                (call,) = reply.tool_calls
                calls.append((call.id, call.name, json.loads(call.input)))
                messages += exchange(reply, tool_of(call.name, calls[-1][2]))
        finally:
            await model.close()

    with asyncio.Runner() as runner:
        calls, text = runner.run(played())
    assert [(name, arguments["n"]) for _, name, arguments in calls] == told.calls
    assert [call_id for call_id, _, _ in calls] == [f"cj-{at + 1}-{at}" for at in range(len(calls))]
    assert text == told.log


async def test_an_interactive_script_begins_anew_with_each_text(code_model: CodeModel) -> None:
    script = body("return input.prompt + Read({})")
    first = await turn(code_model, script_request(script, prompt="one "))
    request = script_request(script, *exchange(first, ("A", False)), prompt="one ")
    assert (await turn(code_model, request)).text == "one A"
    said = script_request(script, prompt="two ").messages
    following = replace(request, messages=(*request.messages, *said))
    assert (await turn(code_model, following)).tool_calls[0].input == "{}"
