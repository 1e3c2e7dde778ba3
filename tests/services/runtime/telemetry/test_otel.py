"""Spans of real runs through a small runtime, with an exporter in memory."""

import asyncio
import io
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import requests
import urllib3
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes

from loomlog.connectors.http.trace_context import outgoing_traceparent
from loomlog.connectors.protocols import ModelItem, ModelRequest
from loomlog.schemas.generated.run_commands import CancelRun
from loomlog.schemas.generated.run_events import ModelReplied, RunCompleted, RunStarted
from loomlog.schemas.generated.values import CommandEnvelope, ParentCall
from loomlog.schemas.records import replace
from loomlog.services.core.run.state import Ended
from loomlog.services.runtime.telemetry import otel
from loomlog.services.runtime.telemetry.otel import OtelTracing, build_span_processor
from loomlog.services.runtime.telemetry.span_ids import run_span_id, run_trace_context
from loomlog.services.runtime.telemetry.tracing import Tracing
from tests.services.core.run.given import NOW, Run, cancel, start
from tests.services.runtime.fakes import SECRET
from tests.services.runtime.small_runtime import RUN, TOPICS, WAIT_S, SmallRuntime, Stage

CALLER = "00-0123456789abcdef0123456789abcdef-00000000000000aa-00"


class Traced(Stage):
    """A stage with the spans of all who worked on it."""

    def __init__(self, ratio: float = 1.0) -> None:
        super().__init__()
        self.spans = InMemorySpanExporter()
        self.ratio = ratio

    def owner(self, name: str, tracing: Tracing | None = None) -> AbstractAsyncContextManager[SmallRuntime]:
        own = OtelTracing(SimpleSpanProcessor(self.spans), service="loomlog", instance=name, ratio=self.ratio)
        return super().owner(name, tracing or own)

    async def ended(self) -> None:
        await self.until(lambda: any(span.name.startswith("invoke_agent") for span in self.spans.get_finished_spans()))

    def tree(self) -> list[str]:
        """Each span as the path of names down to it."""
        spans = self.spans.get_finished_spans()
        by_id = {span.context.span_id: span for span in spans}
        assert len(by_id) == len(spans), "a span id was given twice"

        def path(span: ReadableSpan) -> str:
            parent = by_id.get(span.parent.span_id) if span.parent is not None else None
            return span.name if parent is None else f"{path(parent)} / {span.name}"

        return sorted(path(span) for span in spans)

    def named(self, name: str) -> ReadableSpan:
        return next(span for span in self.spans.get_finished_spans() if span.name == name)


WHOLE_TREE = [
    "invoke_agent helper",
    "invoke_agent helper / turn 1",
    "invoke_agent helper / turn 1 / chat m-1",
    "invoke_agent helper / turn 1 / execute_tool Echo",
    "invoke_agent helper / turn 2",
    "invoke_agent helper / turn 2 / chat m-1",
]


def inside(spans: Sequence[ReadableSpan]) -> bool:
    """Every span lies within its parent in time."""
    by_id = {span.context.span_id: span for span in spans}
    for span in spans:
        parent = by_id.get(span.parent.span_id) if span.parent is not None else None
        if parent is not None and not parent.start_time <= span.start_time <= span.end_time <= parent.end_time:
            return False
    return True


async def test_a_run_with_a_tool_becomes_one_tree() -> None:
    stage = Traced()
    async with stage.owner("a"):
        stage.start()
        await stage.ended()
    assert stage.tree() == WHOLE_TREE
    spans = stage.spans.get_finished_spans()
    assert {span.context.trace_id for span in spans} == {run_trace_context(RUN, "").trace_id}
    assert stage.named("invoke_agent helper").parent is None
    assert inside(spans)


async def test_the_tree_is_the_same_when_another_owner_goes_on() -> None:
    stage = Traced()
    stage.model.held = True
    async with stage.owner("a"):
        stage.start()
        await stage.until(stage.model.holding.is_set)
    cut = {span.name for span in stage.spans.get_finished_spans()}
    assert "turn 1" in cut
    assert "invoke_agent helper" not in cut
    stage.model.held = False
    async with stage.owner("b"):
        await stage.ended()
    # The attempt that was lost with its owner told of itself when it was cancelled.
    assert stage.tree() == sorted([*WHOLE_TREE, "invoke_agent helper / turn 2 / chat m-1"])
    assert inside(stage.spans.get_finished_spans())
    instances = {
        (span.name, span.attributes.get("loomlog.attempt")): span.resource.attributes["service.instance.id"]
        for span in stage.spans.get_finished_spans()
    }
    assert instances["chat m-1", 2] == "b"
    assert instances["turn 1", None] == "a"
    assert instances["turn 2", None] == "b"


async def test_a_callers_trace_is_joined_and_his_span_is_the_parent() -> None:
    stage = Traced()
    async with stage.owner("a"):
        stage.start(("traceparent", CALLER.encode()))
        await stage.ended()
    run = stage.named("invoke_agent helper")
    assert run.context.trace_id == 0x0123456789ABCDEF0123456789ABCDEF
    assert run.parent is not None
    assert run.parent.span_id == 0xAA
    assert run.parent.is_remote
    assert stage.events()[0].traceparent == CALLER


async def test_requests_of_a_call_carry_the_trace_context_of_its_span() -> None:
    stage = Traced()
    sent: list[str] = []
    stream = stage.model.stream

    def watched(request: ModelRequest) -> AsyncIterator[ModelItem]:
        sent.append(outgoing_traceparent.get())
        return stream(request)

    stage.model.stream = watched  # type: ignore[method-assign]
    async with stage.owner("a"):
        stage.start()
        await stage.ended()
    spans = [span for span in stage.spans.get_finished_spans() if span.name == "chat m-1"]
    assert sent == [f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-01" for span in spans]


def test_a_child_hangs_below_the_run_that_started_it_also_in_a_trace_of_its_callers() -> None:
    spans = InMemorySpanExporter()
    tracing = OtelTracing(SimpleSpanProcessor(spans), service="loomlog", instance="a", ratio=1.0)
    call = ParentCall(run_id="r_up", agent_id="a_up", root_run_id="r_up", turn=1, index=0, number=0, depth=1)
    for traceparent in (CALLER, ""):
        run = Run()
        run.give(replace(start(), traceparent=traceparent, parent=call))
        run.give(cancel())
        assert isinstance(run.state, Ended)
        tracing.record_run("t", run.state, error="", ended_ms=NOW)
    parents = [span.parent.span_id for span in spans.get_finished_spans() if span.parent is not None]
    assert parents == [run_span_id("r_up")] * 2


@pytest.mark.parametrize("malformed", [b"00-0-0-01", b"\xff", b"01" + CALLER.encode()[2:], b"00-" + b"0" * 32 + b"-1"])
async def test_a_malformed_trace_context_counts_as_none(malformed: bytes) -> None:
    stage = Traced()
    async with stage.owner("a"):
        stage.start(("traceparent", malformed))
        await stage.ended()
    assert stage.named("invoke_agent helper").context.trace_id == run_trace_context(RUN, "").trace_id
    assert stage.events()[0].traceparent == f"00-{run_trace_context(RUN, '').trace_id:032x}-{run_span_id(RUN):016x}-01"


async def test_the_log_holds_derived_ids_only() -> None:
    logs = []
    for _ in range(2):
        stage = Traced()
        async with stage.owner("a"):
            stage.start()
            await stage.ended()
        logs.append([event.traceparent for event in stage.events() if isinstance(event, RunStarted | ModelReplied)])
        headers = dict(stage.log.records[TOPICS.events, 0][-1].headers)
        assert headers["traceparent"].decode() == logs[-1][0]
    assert logs[0] == logs[1]
    assert logs[0][0] == f"00-{run_trace_context(RUN, '').trace_id:032x}-{run_span_id(RUN):016x}-01"
    chat = [span for span in stage.spans.get_finished_spans() if span.name == "chat m-1"]
    assert {f"{span.context.span_id:016x}" for span in chat} == {trace[36:52] for trace in logs[0][1:]}


async def test_attributes_are_those_of_the_conventions() -> None:
    stage = Traced()
    async with stage.owner("a"):
        stage.start()
        await stage.ended()
    chat = next(span for span in stage.spans.get_finished_spans() if span.attributes.get("loomlog.turn") == 1)
    assert dict(chat.attributes) == {
        "gen_ai.agent.name": "helper",
        "gen_ai.conversation.id": "s_one",
        "loomlog.run.id": RUN,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "mock",
        "gen_ai.request.model": "m-1",
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": 100,
        "loomlog.turn": 1,
        "loomlog.attempt": 1,
        "gen_ai.usage.input_tokens": 15,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_creation.input_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 3,
        "gen_ai.response.finish_reasons": ("tool_use",),
        "gen_ai.response.model": "m-1-exactly",
    }
    tool = stage.named("execute_tool Echo").attributes
    assert (tool["gen_ai.tool.name"], tool["gen_ai.tool.call.id"]) == ("Echo", "call-1")
    assert (tool["gen_ai.operation.name"], tool["loomlog.tool.outcome"]) == ("execute_tool", "ok")
    run = stage.named("invoke_agent helper").attributes
    assert (run["loomlog.run.status"], run["gen_ai.usage.input_tokens"], run["loomlog.tenant"]) == (
        "completed",
        35,
        "acme",
    )
    known = {value for value in vars(gen_ai_attributes).values() if isinstance(value, str)}
    used = {name for span in stage.spans.get_finished_spans() for name in span.attributes}
    assert {name for name in used if not name.startswith("loomlog.")} <= known | {error_attributes.ERROR_TYPE}


async def test_no_text_of_the_user_the_model_a_tool_or_an_error_is_in_a_span() -> None:
    stage = Traced()
    stage.model.failures = 1
    async with stage.owner("a"):
        stage.start()
        await stage.ended()
    everything = " ".join(span.to_json() for span in stage.spans.get_finished_spans())
    assert "helper" in everything
    assert SECRET not in everything
    assert "busy" not in everything


async def test_a_failed_call_and_a_failed_run_say_of_which_type_the_error_was() -> None:
    stage = Traced()
    stage.model.failures = 1
    async with stage.owner("a"):
        stage.start()
        await stage.ended()
    chat, run = stage.named("chat m-1"), stage.named("invoke_agent helper")
    assert (chat.attributes["error.type"], chat.status.status_code.name) == ("unavailable", "ERROR")
    assert (run.attributes["error.type"], run.attributes["loomlog.run.status"]) == ("model_error", "failed")
    assert run.status.description is None
    assert stage.tree() == [
        "invoke_agent helper",
        *(f"invoke_agent helper / turn 1{rest}" for rest in ("", " / chat m-1")),
    ]


async def test_a_cancelled_run_ends_its_turn() -> None:
    stage = Traced()
    stage.model.held = True
    async with stage.owner("a"):
        stage.start()
        await stage.until(stage.model.holding.is_set)
        envelope = CommandEnvelope(command_id="c-2", tenant="acme", issued_at_ms=1)
        stage.send(CancelRun(envelope=envelope, run_id=RUN, reason=SECRET))
        await stage.until(lambda: sum(span.name == "chat m-1" for span in stage.spans.get_finished_spans()) == 2)
        await stage.ended()
    assert stage.tree() == WHOLE_TREE
    assert stage.named("invoke_agent helper").attributes["loomlog.run.status"] == "cancelled"
    assert SECRET not in stage.named("invoke_agent helper").to_json()


async def test_a_refused_run_has_no_spans() -> None:
    stage = Traced()
    async with stage.owner("a") as runtime:
        stage.start(agent="nobody")
        await stage.until(lambda: len(stage.events()) == 1)
        await stage.until(lambda: all(owner.partition.is_idle for owner in runtime.host.owners.values()))
    assert stage.spans.get_finished_spans() == ()


async def test_the_ratio_decides_by_trace_id_and_every_owner_alike() -> None:
    stage = Traced(ratio=0.0)
    async with stage.owner("a"):
        stage.start()
        await stage.until(lambda: stage.has(RunCompleted))
    assert stage.spans.get_finished_spans() == ()
    assert stage.events()[0].traceparent.endswith("-00")
    tracings = [
        OtelTracing(SimpleSpanProcessor(InMemorySpanExporter()), service="s", instance=name, ratio=0.5) for name in "ab"
    ]
    flags = [[tracing.run_traceparent(f"r_{n}")[-2:] for n in range(400)] for tracing in tracings]
    assert flags[0] == flags[1]
    assert 140 < flags[0].count("01") < 260


@asynccontextmanager
async def collector(answer: bytes = b"200 OK") -> AsyncIterator[tuple[str, list[tuple[bytes, bytes]]]]:
    """A collector on a free port: its address, and head and body of each request. Without an answer it only listens."""
    taken: list[tuple[bytes, bytes]] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            taken.append((head, await reader.readexactly(size)))
            if answer:
                writer.write(b"HTTP/1.1 " + answer + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                await writer.drain()
            else:
                await reader.read()
        finally:
            writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", taken
    finally:
        server.close()


async def test_spans_reach_a_collector_with_its_headers() -> None:
    stage = Traced()
    async with collector() as (address, taken):
        processor = build_span_processor(endpoint=address, headers="x-key=a%20b,x-team=blue")
        tracing = OtelTracing(processor, service="loomlog", instance="a", ratio=1.0)
        async with stage.owner("a", tracing):
            stage.start()
            await stage.until(lambda: stage.has(RunCompleted))
        await tracing.close()
    assert taken
    head = taken[0][0].lower()
    assert head.startswith(b"post /v1/traces http/1.1\r\n")
    assert b"x-key: a b\r\n" in head
    assert b"x-team: blue\r\n" in head
    names = [
        span.name
        for _, body in taken
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert sorted(names) == sorted(path.rpartition(" / ")[2] for path in WHOLE_TREE)


async def test_a_collector_that_does_not_answer_holds_up_a_stop_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(otel, "SHUTDOWN_TIMEOUT_S", 0.05)
    monkeypatch.setattr(otel, "EXPORT_TIMEOUT_S", 0.5)
    stage = Traced()
    async with collector(answer=b"") as (address, _):
        tracing = OtelTracing(build_span_processor(endpoint=address, headers=""), service="s", instance="a", ratio=1.0)
        async with stage.owner("a", tracing):
            stage.start()
            await stage.until(lambda: stage.has(RunCompleted))
        async with asyncio.timeout(WAIT_S):
            await tracing.close()
        assert "the last spans are lost" in caplog.text


async def test_a_collector_that_redirects_is_told_of_because_its_spans_are_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Traced()
    async with collector(b"308 Permanent Redirect\r\nLocation: https://elsewhere.example/v1/traces") as (
        address,
        taken,
    ):
        tracing = OtelTracing(build_span_processor(endpoint=address, headers=""), service="s", instance="a", ratio=1.0)
        async with stage.owner("a", tracing):
            stage.start()
            await stage.until(lambda: stage.has(RunCompleted))
        await tracing.close()
    assert taken
    assert "the collector answered 308, and redirects are not followed" in caplog.text


def test_of_a_large_response_of_a_collector_only_the_start_is_read() -> None:
    sent = 0

    class Body(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # as RawIOBase passes it
            nonlocal sent
            sent += len(buffer)
            return len(buffer)

    response = requests.Response()
    response.status_code = 200
    response.raw = urllib3.HTTPResponse(io.BufferedReader(Body(), 4096), preload_content=False)
    otel._read_bounded(response)
    assert len(response.content) == otel.RESPONSE_BYTES
    assert sent < 4 * otel.RESPONSE_BYTES


def test_without_a_collector_nothing_of_the_sdk_is_imported() -> None:
    program = (
        "import sys, asyncio, loomlog.services.runtime.main\n"
        "from loomlog.services.runtime.telemetry.tracing import NO_TRACING, open_tracing\n"
        "async def go():\n"
        "    async with open_tracing(None, 'x') as tracing: assert tracing is NO_TRACING\n"
        "asyncio.run(go())\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
