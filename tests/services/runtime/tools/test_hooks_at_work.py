"""Hooks over the real pieces of a runtime and a real server: what is in the log, and what a crash leaves.

The hook is a server on loopback that the operator opened; registrations are those of the stage.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson
import pytest

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.http.signed_callbacks import CallbackClient, callback_secrets, signature_headers
from loomlog.connectors.protocols import EffectClass, Reply, ToolContext, ToolResult
from loomlog.projections.frames.frame import FrameMemory
from loomlog.projections.frames.frames import build_frames
from loomlog.schemas.codec import local_codec
from loomlog.schemas.conversation import ToolResultBlock
from loomlog.schemas.generated.run_events import HookActed, RunCompleted, ToolCallRequested, ToolReturned
from loomlog.schemas.generated.values import Envelope, ToolCall, Usage
from loomlog.schemas.reader import TermReader
from loomlog.services.core.run.conversation.conversation import build_conversation
from loomlog.services.core.run.evolve import evolve
from loomlog.services.core.run.state import Absent
from loomlog.services.families.hook.runner import HookRunner
from loomlog.services.families.hook.state import Hook, HookTable, with_hook
from loomlog.services.runtime.clock import clock_ms
from tests.connectors.tools.web_server import Server, page, running
from tests.services.runtime.small_runtime import RUN, TOPICS, Stage

CODEC = local_codec()
KEY = SecretKey(keys=(bytes(range(32)),))
ASKING = Reply(
    text="",
    tool_calls=(ToolCall(id="call-1", name="Echo", input='{"text":"original"}'),),
    stop_reason="tool_use",
    usage=Usage(),
)
ANSWERED = Reply(text="the answer", stop_reason="end_turn", usage=Usage())


class Echo:
    """Says it again, and remembers for how many calls, and which hosts they might reach."""

    name = "Echo"
    description = "Says it again."
    input_schema: Mapping[str, Any] = {"type": "object"}
    timeout_s = 5.0

    def __init__(self) -> None:
        self.contexts: list[ToolContext] = []

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.PURE

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        self.contexts.append(context)
        return ToolResult(text=str(arguments.get("text", "")))


class Hooked(Stage):
    """A stage whose runtimes ask hooks that one server answers, by path."""

    def __init__(self, server: Server) -> None:
        self.echo = Echo()
        super().__init__(tools={"Echo": self.echo})
        self.model.turns = (ASKING, ANSWERED)
        self.server = server
        self.hooks = HookTable()
        self.callbacks = CallbackClient(private_hosts=("localhost",))

    def register(self, path: str, phase: str = "pre", **more: Any) -> None:
        hook = Hook(
            hook_id=f"h_{path}",
            tenant="acme",
            owner="ops",
            name=path,
            phase=phase,
            callback_url=f"http://localhost:{self.server.port}/{path}",
            **more,
        )
        self.hooks = with_hook(self.hooks, hook)

    @contextlib.asynccontextmanager
    async def at_work(self, name: str) -> AsyncIterator[None]:
        """A runtime that knows the hooks; leaving is a crash."""
        hooks = HookRunner(
            lambda: self.hooks, self.callbacks, clock_ms=clock_ms, permitted_owners=("acme:ops",), secret=KEY
        )
        async with self.owner(name, hooks=hooks):
            yield

    def asked(self) -> list[tuple[str, dict[str, Any]]]:
        """Path and body of what the server was asked."""
        actual = [request.partition("\r\n\r\n") for request in self.server.requests]
        return [(head.split(" ")[1][1:], orjson.loads(body)) for head, _, body in actual]

    def decoded(self) -> list[tuple[Envelope, Any]]:
        """The legal events of the log with their envelopes."""
        reader = TermReader()
        raws = [reader.read(record.offset, record.value) for record in self.log.records[TOPICS.events, 0]]
        records = [raw.decode() for raw in raws if raw is not None]
        return [(one.envelope, one.record) for one in records if one.envelope is not None]

    def shown(self) -> list[dict[str, Any]]:
        """The frames of the run, as a client sees them."""
        memory, actual = FrameMemory(), []
        for envelope, event in self.decoded():
            more, memory = build_frames(memory, envelope, event)
            actual += [frame.event for frame in more]
        return actual


@contextlib.asynccontextmanager
async def hooked() -> AsyncIterator[Hooked]:
    async with running() as server:
        made = Hooked(server)
        try:
            yield made
        finally:
            await made.callbacks.close()


def saying(value: Any) -> bytes:
    return page(orjson.dumps(value))


async def test_a_run_with_hooks_shows_what_they_did_and_the_model_sees_what_they_left() -> None:
    async with hooked() as stage:
        stage.register("tidy")
        stage.register("open")
        stage.register("hide", "post")
        stage.server.answers |= {
            "/tidy": saying({"input": {"text": "rewritten"}}),
            "/open": saying({"allow_hosts": ["api.example"]}),
            "/hide": saying({"result": {"text": "hidden"}}),
        }
        async with stage.at_work("one"):
            stage.start()
            await stage.until(lambda: stage.has(RunCompleted))
        events = stage.events()
        options = [type(event).__name__ for event in events]
        after = options.index("ToolCallRequested") + 1
        assert options[after : after + 5] == [
            "HookActed",
            "HookActed",
            "HookActed",
            "ToolReturned",
            "ModelCallRequested",
        ]
        assert [event.act.act for event in events if isinstance(event, HookActed)] == [
            "rewrote_input",
            "widened_hosts",
            "rewrote_result",
        ]
        assert stage.echo.contexts[0].allowed_hosts == ("=api.example",)
        kinds = [frame["type"] for frame in stage.shown()]
        assert kinds[kinds.index("tool_call") :] == [
            "tool_call",
            "usage",
            "hook_acted",
            "host_widened",
            "hook_acted",
            "tool_result",
            "text",
            "usage",
            "done",
        ]
        assert [path for path, _ in stage.asked()] == ["tidy", "open", "hide"]
        assert stage.asked()[2][1]["tool_result"] == {"text": "rewritten", "is_error": False}
        # A replay of the log asks nobody and gives the conversation that the model saw.
        state: Any = Absent(run_id=RUN)
        for envelope, event in stage.decoded():
            state = evolve(state, event, envelope.at_ms)
        results = [block for message in build_conversation(state) for block in message.blocks]
        assert [block.text for block in results if isinstance(block, ToolResultBlock)] == ["hidden"]
        assert len(stage.server.requests) == 3


async def test_a_request_can_be_verified_by_whoever_has_the_secret() -> None:
    async with hooked() as stage:
        stage.register("look")
        stage.server.answers["/look"] = b"HTTP/1.1 204 No Content\r\n\r\n"
        async with stage.at_work("one"):
            stage.start()
            await stage.until(lambda: stage.has(RunCompleted))
        body = stage.server.requests[0].partition("\r\n\r\n")[2].encode()
        stamp = stage.server.header("x-loomlog-signature") or ""
        at_s = int(stamp.split(",")[0].removeprefix("t="))
        assert abs(at_s - clock_ms() // 1000) < 60
        expected = signature_headers(body, callback_secrets(KEY, "acme", "ops", "look"), at_s)
        assert stamp == expected["X-Loomlog-Signature"]
        assert stage.server.header("x-loomcycle-signature") == expected["X-Loomcycle-Signature"]


async def test_a_denied_call_is_never_made() -> None:
    async with hooked() as stage:
        stage.register("guard")
        stage.server.answers["/guard"] = saying({"deny": {"text": "not today", "is_error": True}})
        async with stage.at_work("one"):
            stage.start()
            await stage.until(lambda: stage.has(RunCompleted))
        (returned,) = [event for event in stage.events() if isinstance(event, ToolReturned)]
        assert (returned.text, returned.is_error, returned.outcome) == ("not today", True, "denied")
        assert stage.echo.contexts == []


async def test_a_hook_is_asked_again_when_the_owner_is_lost_between_it_and_the_result() -> None:
    """The first owner dies while the post hook is being asked: after the tool, before the result is in the log."""
    async with hooked() as stage:
        reached, let_go = asyncio.Event(), asyncio.Event()

        async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if not reached.is_set():
                reached.set()
                await let_go.wait()
            writer.write(saying({"result": {"text": "seen"}}))
            await writer.drain()

        stage.register("look")
        stage.register("hold", "post")
        stage.server.answers |= {"/look": saying({"input": {"text": "rewritten"}}), "/hold": hold}
        async with stage.at_work("one"):
            stage.start()
            async with asyncio.timeout(30):
                await reached.wait()
            assert not stage.has(HookActed, ToolReturned)
        let_go.set()
        async with stage.at_work("two"):
            await stage.until(lambda: stage.has(RunCompleted))
        assert [(path, body["attempt"]) for path, body in stage.asked()] == [
            ("look", 1),
            ("hold", 1),
            ("look", 2),
            ("hold", 2),
        ]
        deliveries = [stage.server.header("x-loomlog-delivery", n) for n in range(4)]
        assert deliveries == [f"{RUN}:1.0:{n}:h_{name}" for n in (1, 2) for name in ("look", "hold")]
        events = stage.events()
        assert [event.attempt for event in events if isinstance(event, ToolCallRequested)] == [1, 2]
        acted = [(event.attempt, event.act.name, event.act.act) for event in events if isinstance(event, HookActed)]
        assert acted == [(2, "look", "rewrote_input"), (2, "hold", "rewrote_result")]
        assert [event.text for event in events if isinstance(event, ToolReturned)] == ["seen"]


async def test_a_hook_inside_the_network_that_nobody_opened_is_not_reached() -> None:
    async with hooked() as stage:
        stage.callbacks = CallbackClient()
        stage.register("guard", fail_mode="closed")
        stage.server.answers["/guard"] = saying({})
        async with stage.at_work("one"):
            stage.start()
            await stage.until(lambda: stage.has(RunCompleted))
        (returned,) = [event for event in stage.events() if isinstance(event, ToolReturned)]
        assert returned.text == "tool_call denied: hook ops/guard unavailable"
        assert stage.server.requests == []


UNDECIDED = {
    "unknown words": saying({"decision": "deny"}),
    "wrong case": saying({"Deny": {"text": "no"}}),
    "empty object": saying({}),
    "null": saying(None),
    "empty body": b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
}
DECIDED = {"no content": b"HTTP/1.1 204 No Content\r\n\r\n", "no denial": saying({"deny": False})}


@pytest.mark.parametrize("answer", UNDECIDED.values(), ids=UNDECIDED.keys())
@pytest.mark.parametrize("fail_mode", ["open", "closed"])
async def test_an_answer_that_decides_nothing_blocks_the_call_of_a_closed_hook_only(
    answer: bytes, fail_mode: str
) -> None:
    async with hooked() as stage:
        stage.register("guard", fail_mode=fail_mode)
        stage.server.answers["/guard"] = answer
        async with stage.at_work("one"):
            stage.start()
            await stage.until(lambda: stage.has(RunCompleted))
        assert len(stage.echo.contexts) == (1 if fail_mode == "open" else 0)


@pytest.mark.parametrize("answer", DECIDED.values(), ids=DECIDED.keys())
async def test_a_closed_hook_lets_the_call_run_with_a_known_answer(answer: bytes) -> None:
    async with hooked() as stage:
        stage.register("guard", fail_mode="closed")
        stage.server.answers["/guard"] = answer
        async with stage.at_work("one"):
            stage.start()
            await stage.until(lambda: stage.has(RunCompleted))
        assert len(stage.echo.contexts) == 1
