"""Synthetic provider: the whole runtime without a key, a network or a bill.

    mock-generic    answers "ok"
    mock-hello      says that it is synthetic, what it received, and how to use a real model
    mock-reviewer   a real job without a model: reviews the code it can reach and writes report.md (reviewer.py)
    mock-a3x2       the benchmark workload A3x2: call Bench, call Bench, final text; each text 1,000 random characters
    mock-a3x2-calls A3x2 with other calls: both turns make those of the prompt, a JSON array of [tool, arguments]; a #
                    in arguments becomes a hex digit, the same in all calls of a turn
    mock-tree       "tree AGENT 31 31" starts 31 sub-agents AGENT with the prompt "tree AGENT 31", and so on; the last
                    ones, with the prompt "tree AGENT", answer at once
    mock-ledger     effects that can be counted: call Ledger, call it twice at once, call it, final text; after
                    "ledger 3" these calls three times, then the text
    mock-memory     uses memory in a way that can be checked afterwards (memory.py)
    and five more   that use memory, channels, evaluations and MCP tools (circuit.py)

With an output schema the final answer is a record that meets it (record.py).

A script keeps no state: its position is the number of tool results after the last user text (of all, in mock_circuit),
so any process can continue any run. All randomness comes from the call id (ids of tool calls, payloads, failures,
jitter): the same attempt repeated returns the same turn, another attempt may differ.

With latency 0 a turn never sleeps, because it is on the benchmark's hot path; otherwise it sleeps `latency_ms` and a
jitter, and 10 ns per character of the prompt, and streams its text in pieces.

Before: the runtime requests a turn. After: nothing.
"""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.models.mock import circuit, memory, record, reviewer
from loomlog.connectors.models.mock.script import ScriptedCall, ScriptTurn, last_user_text, results_since_user
from loomlog.connectors.protocols import Capabilities, ModelItem, ModelRequest, Reply, TextDelta
from loomlog.schemas.conversation import Message, TextBlock, ToolResultBlock, ToolUseBlock
from loomlog.schemas.generated.values import ToolCall, Usage

CAPABILITIES = Capabilities(max_context_tokens=200_000, supports_vision=True)
CHARACTERS_PER_TOKEN = 4
SHOWN_CHARACTERS = 120
"""Characters of the prompt that mock-hello repeats."""
LATENCY_S_PER_CHARACTER = 1e-8
"""Seconds per character of the prompt, i.e. characters / 100 microseconds (runtime parity 2.9)."""
STREAM_PIECES = 4
"""Pieces per streamed text: enough to see text arrive in parts, few enough to cost nothing."""
PIECE_CHARACTERS_MIN = 16
"""Characters below which a text is one piece, and one frame for a client; no provider sends a word letter by letter."""
PAYLOAD_CHARACTERS = 1_000
BENCH_TOOL = "Bench"
BENCH_CALLS = 2
AGENT_TOOL = "Agent"
COUNTER_TOOL = "Counter"
LEDGER_TOOL = "Ledger"
LEDGER_TURNS = (1, 2, 1)
"""Calls of each turn; two at once, so that a lost process can leave a turn partly answered."""
LEDGER_REPETITIONS_MAX = 100
"""Times that a prompt may have LEDGER_TURNS repeated; 400 calls, which is more than a demonstration needs."""
LEDGER_WAIT_MS = 150
"""Milliseconds of each call: as long as a model turn, so that a kill hits calls as often as turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MockOptions:
    """Latency and failure rates of the provider. Rates are 0 to 1; 429 is drawn before 500, both before latency."""

    latency_ms: float = 50.0
    latency_jitter_ms: float = 25.0
    rate_429: float = 0.0
    rate_500: float = 0.0

    def __post_init__(self) -> None:
        assert min(self.latency_ms, self.latency_jitter_ms) >= 0, f"negative latency: {self}"
        assert min(self.rate_429, self.rate_500) >= 0, f"rates are 0 to 1: {self}"
        assert max(self.rate_429, self.rate_500) <= 1, f"rates are 0 to 1: {self}"


class MockModel:
    """Provider of the scripts. `stable` makes it never fail, so that it can be the target of a fallback."""

    def __init__(self, *, provider: str = "mock", options: MockOptions | None = None, stable: bool = False) -> None:
        self.provider = provider
        self.capabilities = CAPABILITIES
        self._options = options or MockOptions()
        self._is_stable = stable

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        script = SCRIPTS.get(request.model)
        if script is None:
            raise Permanent(
                f"mock 404: no model {request.model!r}; there are {', '.join(_listed_models())}",
                kind="not_found",
                status=404,
            )
        if not self._is_stable:
            self._raise_random_failure(request.call_id)
        characters = _count_characters(request)
        tokens = characters // CHARACTERS_PER_TOKEN
        if tokens > CAPABILITIES.max_context_tokens:
            limit = CAPABILITIES.max_context_tokens
            raise Permanent(
                f"mock 400: the prompt is too long: {tokens} tokens, the context window has {limit}",
                kind="context_exceeded",
                status=400,
            )
        if record.answers_again(request):
            turn = ScriptTurn()
        elif script is reviewer.turn:
            turn = await asyncio.to_thread(script, request)  # reads up to a megabyte of tool results
        else:
            turn = script(request)
        turn = record.with_record(request, turn)
        latency_s = self._latency_s(request.call_id, characters)
        if latency_s:
            wait_s = 0.0
            for piece in _split_text(turn.text):
                wait_s += latency_s / STREAM_PIECES
                if piece:
                    await asyncio.sleep(wait_s)
                    wait_s = 0.0
                    yield TextDelta(text=piece)
            if wait_s:
                await asyncio.sleep(wait_s)
        elif turn.text:
            yield TextDelta(text=turn.text)
        yield _reply(request, turn, characters)

    async def list_models(self) -> list[str]:
        return _listed_models()

    async def probe(self) -> None:
        """Succeeds always; its failures are those of single calls."""

    async def close(self) -> None:
        """Does nothing; no resource is open."""

    def _raise_random_failure(self, call_id: str) -> None:
        knobs = self._options
        if knobs.rate_429 and _random_fraction(call_id, b"429") < knobs.rate_429:
            raise Transient("mock 429: synthetic rate limit", kind="rate_limited", status=429)
        if knobs.rate_500 and _random_fraction(call_id, b"500") < knobs.rate_500:
            raise Transient("mock 500: synthetic server error", kind="unavailable", status=500)

    def _latency_s(self, call_id: str, characters: int) -> float:
        knobs = self._options
        if not knobs.latency_ms and not knobs.latency_jitter_ms:
            return 0.0
        jitter_ms = knobs.latency_jitter_ms * _random_fraction(call_id, b"jitter") if knobs.latency_jitter_ms else 0.0
        return (knobs.latency_ms + jitter_ms) / 1000 + characters * LATENCY_S_PER_CHARACTER


def _generic(request: ModelRequest) -> ScriptTurn:
    return ScriptTurn(text="ok")


def _hello(request: ModelRequest) -> ScriptTurn:
    prompt = " ".join(last_user_text(request.messages).split())
    shown = prompt if len(prompt) <= SHOWN_CHARACTERS else prompt[:SHOWN_CHARACTERS] + "..."
    return ScriptTurn(
        text=f'This is the synthetic model of loomlog; no provider was called. It received "{shown}". For real '
        "answers set ANTHROPIC_API_KEY or OPENAI_API_KEY, then run `loomlog up` again."
    )


def _a3x2(request: ModelRequest) -> ScriptTurn:
    position = len(results_since_user(request.messages))
    text = payload(request.call_id)
    if position >= BENCH_CALLS:
        return ScriptTurn(text=text)
    _require_tool(request, BENCH_TOOL)
    return ScriptTurn(text=text, calls=(ScriptedCall(name=BENCH_TOOL, input="{}"),))


def _a3x2_counter(request: ModelRequest) -> ScriptTurn:
    position = len(results_since_user(request.messages))
    text = payload(request.call_id)
    if position >= 2 * BENCH_CALLS:
        return ScriptTurn(text=text)
    _require_tool(request, BENCH_TOOL)
    _require_tool(request, COUNTER_TOOL)
    name = hashlib.sha256(request.call_id.encode()).hexdigest()[:2]
    increment = json.dumps({"op": "increment", "name": name, "by": 1})
    calls = (ScriptedCall(name=BENCH_TOOL, input="{}"), ScriptedCall(name=COUNTER_TOOL, input=increment))
    return ScriptTurn(text=text, calls=calls)


def _a3x2_calls(request: ModelRequest) -> ScriptTurn:
    calls = _listed_calls(last_user_text(request.messages))
    text = payload(request.call_id)
    if len(results_since_user(request.messages)) >= BENCH_CALLS * len(calls):
        return ScriptTurn(text=text)
    digit = hashlib.sha256(request.call_id.encode()).hexdigest()[0]
    for tool, _ in calls:
        _require_tool(request, tool)
    return ScriptTurn(
        text=text,
        calls=tuple(ScriptedCall(name=tool, input=arguments.replace("#", digit)) for tool, arguments in calls),
    )


def _listed_calls(prompt: str) -> list[tuple[str, str]]:
    """Return the tools of a prompt with their arguments as JSON text."""
    try:
        return [(str(tool), json.dumps(arguments)) for tool, arguments in json.loads(prompt)]
    except (ValueError, TypeError) as error:
        raise Permanent(
            f"mock 400: the prompt must be a JSON array of [tool, arguments]: {error}", kind="invalid", status=400
        ) from error


def _ledger(request: ModelRequest) -> ScriptTurn:
    position = len(results_since_user(request.messages))
    turns = LEDGER_TURNS * _ledger_repetitions(last_user_text(request.messages))
    if position >= sum(turns):
        return ScriptTurn(text=f"{position} calls have an answer")
    _require_tool(request, LEDGER_TOOL)
    turn = next(turn for turn in range(len(turns)) if position < sum(turns[: turn + 1]))
    call = ScriptedCall(name=LEDGER_TOOL, input=f'{{"wait_ms":{LEDGER_WAIT_MS}}}')
    return ScriptTurn(text=f"turn {turn + 1}", calls=(call,) * turns[turn])


def _ledger_repetitions(prompt: str) -> int:
    match prompt.split():
        case ["ledger", times] if times.isascii() and times.isdigit():
            return min(int(times), LEDGER_REPETITIONS_MAX)
    return 1


def _tree(request: ModelRequest) -> ScriptTurn:
    done = results_since_user(request.messages)
    words = last_user_text(request.messages).split()
    if done or len(words) < 3 or words[0] != "tree":
        return ScriptTurn(text="done")
    _require_tool(request, AGENT_TOOL)
    agent, width, *below = words[1:]
    prompt = " ".join(["tree", agent, *below])
    spawns = [{"name": agent, "prompt": prompt}] * int(width)
    call = ScriptedCall(name=AGENT_TOOL, input=json.dumps({"op": "parallel_spawn", "spawns": spawns}))
    return ScriptTurn(text="", calls=(call,))


def _require_tool(request: ModelRequest, name: str) -> None:
    if name not in [tool.name for tool in request.tools]:
        offered = ", ".join(tool.name for tool in request.tools) or "none"
        raise Permanent(
            f"mock 400: {request.model} calls the tool {name}; offered: {offered}", kind="invalid", status=400
        )


def payload(seed: str) -> str:
    """Return 1,000 characters that no compressor shrinks much: base64 of a hash stream, 6 bits per character."""
    size_bytes = PAYLOAD_CHARACTERS * 6 // 8
    return base64.b64encode(hashlib.shake_128(seed.encode()).digest(size_bytes)).decode()


SCRIPTS: Mapping[str, Callable[[ModelRequest], ScriptTurn]] = {
    "mock-generic": _generic,
    "mock-hello": _hello,
    "mock-reviewer": reviewer.turn,
    "mock-a3x2": _a3x2,
    "mock-a3x2-counter": _a3x2_counter,
    "mock-a3x2-calls": _a3x2_calls,
    "mock-tree": _tree,
    "mock-ledger": _ledger,
    "mock-memory": memory.turn,
    "mock-researcher": circuit.researcher,
    "mock-editor": circuit.editor,
    "mock-evaluator": circuit.evaluator,
    "mock-mcp-caller": circuit.mcp_caller,
    "mock-mem-search": circuit.mem_search,
}
HIDDEN_MODELS = frozenset({"mock-mem-search", "mock-memory", "mock-a3x2-counter", "mock-a3x2-calls"})
"""Models for tests of the memory and for benchmarks; a pattern must not match them."""


def _listed_models() -> list[str]:
    return [name for name in SCRIPTS if name not in HIDDEN_MODELS]


def _reply(request: ModelRequest, turn: ScriptTurn, characters: int) -> Reply:
    calls = tuple(
        [
            ToolCall(id=_tool_id(request.call_id, index), name=call.name, input=call.input)
            for index, call in enumerate(turn.calls)
        ]
    )
    written = len(turn.text) + sum([len(call.input) for call in calls])
    return Reply(
        text=turn.text,
        tool_calls=calls,
        stop_reason="tool_use" if calls else "end_turn",
        usage=Usage(
            input_tokens=max(1, characters // CHARACTERS_PER_TOKEN), output_tokens=written // CHARACTERS_PER_TOKEN
        ),
        model=request.model,
    )


def _split_text(text: str) -> Sequence[str]:
    """Return STREAM_PIECES parts that form the text when joined; the last ones are empty when it is short."""
    size = max(PIECE_CHARACTERS_MIN, -(-len(text) // STREAM_PIECES))
    return [text[position * size : (position + 1) * size] for position in range(STREAM_PIECES)]


def _count_characters(request: ModelRequest) -> int:
    return sum([len(block.text) for block in request.system]) + sum(map(_count_message_characters, request.messages))


def _count_message_characters(message: Message) -> int:
    total = 0
    for block in message.blocks:
        if isinstance(block, (TextBlock, ToolResultBlock)):
            total += len(block.text)
        elif isinstance(block, ToolUseBlock):
            total += len(block.input)
    return total


def _tool_id(call_id: str, index: int) -> str:
    return "mock_tu_" + hashlib.blake2b(f"{call_id}/{index}".encode(), digest_size=8).hexdigest()


def _random_fraction(call_id: str, purpose: bytes) -> float:
    """Return a number in [0, 1) that depends on the attempt and on the purpose."""
    digest = hashlib.blake2b(call_id.encode(), digest_size=6, person=purpose).digest()
    return int.from_bytes(digest, "big") / (1 << 48)
