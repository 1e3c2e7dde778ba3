"""Scripts that work together: three agents pass a piece of work on over channels and memory.

    mock-researcher   Memory.set, Channel.publish, text
    mock-editor       Channel.subscribe, Memory.get, Memory.set, Context.self, Channel.publish, text
    mock-evaluator    Channel.subscribe, Memory.get twice, Memory.set, Evaluation.submit, text
    mock-mcp-caller   the first two tools of MCP servers that it was offered, text
    mock-mem-search   Memory.set, Memory.search, text; for tests of the memory, so it is not listed

Each is a pure function of the conversation. Its position is the number of tool results in all of it (runtime parity
2.9), and it calls its tools whether they were offered or not: the runtime decides the outcome of a call to a missing
tool. The circuit's name is the first word like c1 or c42 in the prompt; keys and channels are derived from it, so a
thousand circuits run side by side. For circuit c42, all keys in the scope of the user:

    c42-research             {"text": ...}                            set by the researcher
    research-done/c42        {"circuit_id": "c42"}                    to the editor
    c42-research-edited      {"text": ...}                            set by the editor
    editing-done/c42         {"circuit_id", "editor_run_id"}          to the evaluator
    c42-research-scored      {"score": 0.5 to 0.99, "rationale": "ok"}  set by the evaluator, with a judgement of the
                             editor's run

Before: mock. After: mock_script.
"""

import re
from collections.abc import Sequence

import orjson

from loomlog.connectors.models.mock.script import ScriptedCall, ScriptTurn, results_in, strip_fence
from loomlog.connectors.protocols import ModelRequest
from loomlog.schemas.conversation import TextBlock

DEFAULT_CIRCUIT = "c0"
SUBSCRIBE_WAIT_MS = 120_000
"""Milliseconds to wait for a message; longer than the tool allows by default, as in the reference: its cap applies."""
LOWEST_SCORE = 0.50
SCORES = 50
"""Number of scores; they rise from the lowest in hundredths."""
SCORE_OF_NOTHING = 0.85
MCP_CALLS = 2
MAX_TEXT_CHARACTERS = 500
_CIRCUIT = re.compile(r"\bc\d+\b")
_USER_ID = re.compile(r"user_id=([^\s,;&\"'<>]+)")
_RUN_ID = re.compile(r'"run_id"\s*:\s*"([^"\\]+)"')
_EDITOR_RUN_ID = re.compile(r'"editor_run_id"\s*:\s*"([^"\\]+)"')
_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193


def researcher(request: ModelRequest) -> ScriptTurn:
    circuit = circuit_of(request)
    return _next_step(
        request,
        (
            _memory("set", f"{circuit}-research", value={"text": f"What is known about {circuit}."}),
            _publish("research-done", circuit, {"circuit_id": circuit}),
        ),
        f"Research of {circuit} is done.",
    )


def editor(request: ModelRequest) -> ScriptTurn:
    circuit = circuit_of(request)
    own_run = _find(_RUN_ID, _result_texts(request)[3:4]) or f"mock-editor-{circuit}"
    return _next_step(
        request,
        (
            _subscribe("research-done", circuit),
            _memory("get", f"{circuit}-research"),
            _memory("set", f"{circuit}-research-edited", value={"text": f"What is known about {circuit}, edited."}),
            _call("Context", op="self"),
            _publish("editing-done", circuit, {"circuit_id": circuit, "editor_run_id": own_run}),
        ),
        f"Editing of {circuit} is done.",
    )


def evaluator(request: ModelRequest) -> ScriptTurn:
    circuit = circuit_of(request)
    editor_run = _find(_EDITOR_RUN_ID, _result_texts(request)[:1])
    score = score_of(editor_run, circuit)
    return _next_step(
        request,
        (
            _subscribe("editing-done", circuit),
            _memory("get", f"{circuit}-research"),
            _memory("get", f"{circuit}-research-edited"),
            _memory("set", f"{circuit}-research-scored", value={"score": score, "rationale": "ok"}),
            _call("Evaluation", op="submit", run_id=editor_run, score=score, rationale="ok"),
        ),
        f"The score of {circuit} is {score:.2f}.",
    )


def mcp_caller(request: ModelRequest) -> ScriptTurn:
    match = _USER_ID.search(_prompt(request))
    user_id = match[1] if match else ""
    names = [tool.name for tool in request.tools if tool.name.startswith("mcp__")][:MCP_CALLS]
    calls = tuple(_call(name, user_id=user_id) for name in names)
    return _next_step(request, calls, f"{len(calls)} tools of MCP servers were called.")


def mem_search(request: ModelRequest) -> ScriptTurn:
    asked = _prompt(request)[:MAX_TEXT_CHARACTERS]
    search_result = "".join(_result_texts(request)[1:2])[:MAX_TEXT_CHARACTERS]
    return _next_step(
        request,
        (
            _memory("set", "mem-search/note", value=asked, embed=True),
            _call("Memory", op="search", scope="user", query=asked, top_k=5),
        ),
        f"The search returned: {search_result}",
    )


def circuit_of(request: ModelRequest) -> str:
    match = _CIRCUIT.search(_prompt(request))
    return match[0] if match else DEFAULT_CIRCUIT


def score_of(editor_run: str, circuit: str) -> float:
    """Return a score of 0.50 to 0.99 by the FNV-1a hash of both, one after the other (runtime parity 2.9)."""
    hashed = _FNV_OFFSET
    for byte in (editor_run + circuit).encode():
        hashed = (hashed ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return round(LOWEST_SCORE + hashed % SCORES / 100, 2) if editor_run or circuit else SCORE_OF_NOTHING


def _next_step(request: ModelRequest, calls: Sequence[ScriptedCall], text: str) -> ScriptTurn:
    """Return one call per turn with a short sentence, then the text."""
    position = len(results_in(request.messages))
    if position >= len(calls):
        return ScriptTurn(text=text)
    return ScriptTurn(text=f"Step {position + 1} of {len(calls)}.", calls=(calls[position],))


def _prompt(request: ModelRequest) -> str:
    """Return the texts of the user, first to last."""
    return "\n".join(
        block.text
        for message in request.messages
        if message.role == "user"
        for block in message.blocks
        if isinstance(block, TextBlock)
    )


def _result_texts(request: ModelRequest) -> list[str]:
    return [strip_fence(result.text) for result in results_in(request.messages)]


def _find(pattern: re.Pattern[str], texts: Sequence[str]) -> str:
    match = pattern.search("\n".join(texts).replace('\\"', '"'))
    return match[1] if match else ""


def _memory(op: str, key: str, **more: object) -> ScriptedCall:
    return _call("Memory", op=op, scope="user", key=key, **more)


def _publish(stage: str, circuit: str, value: object) -> ScriptedCall:
    return _call("Channel", op="publish", channel=f"{stage}/{circuit}", value=value)


def _subscribe(stage: str, circuit: str) -> ScriptedCall:
    channel = f"{stage}/{circuit}"
    return _call("Channel", op="subscribe", channel=channel, wait_ms=SUBSCRIBE_WAIT_MS, max_messages=1)


def _call(name: str, **arguments: object) -> ScriptedCall:
    return ScriptedCall(name=name, input=orjson.dumps(arguments).decode())
