"""What a run may use of what clients offer: its own principal's, granted, while somebody is there."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ProducerRecord, Reconciler, ToolResult, UnknownEffect
from loomlog.connectors.tools.remote_calls import ExpiryWatch, RemoteCallClient
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.stream_records import (
    ClientHostAlive,
    ClientLeft,
    ClientRegistered,
    ClientTool,
    ModelMarked,
    RemoteToolRequest,
    RemoteToolResult,
)
from loomlog.schemas.records import replace
from loomlog.services.core.clients.limits import LEASE_MS
from loomlog.services.core.run.state import AwaitingTools
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from loomlog.services.runtime.tools.client_tools import ClientTools, LazyRemoteCalls
from loomlog.services.runtime.tools.tool_calls import ToolCalls
from loomlog.services.runtime.tools.toolset import ProcessToolset
from loomlog.services.stream.global_tables.clients import clients
from loomlog.services.stream.global_tables.global_table import GlobalTable
from tests.connectors.tools.test_client_tool import context
from tests.services.core.run.given import Run
from tests.services.runtime.given import ToldTool
from tests.services.runtime.tools.test_tool_calls import Work, given
from tests.sleeps import noted_sleeps
from tests.waiting import until

CODEC = local_codec()
TOPIC = "loom.client.events"
NOW = 1_700_000_000_000
SCHEMA = '{"type":"object","properties":{"x":{"type":"string"}}}'
OFFER = ClientRegistered(
    connection_id="h.1",
    host="h",
    tenant="acme",
    subject="ann",
    tools=(
        ClientTool(name="click", description="Clicks.", input_schema=SCHEMA),
        ClientTool(name="add", description="", input_schema='{"type":"object"}'),
    ),
    registered_at_ms=NOW,
    at_ms=NOW,
)
GRANTED = ("Read", "client__click")


class Calls:
    """Whoever answers calls over the log."""

    def __init__(self) -> None:
        self.asked: list[RemoteToolRequest] = []
        self.outcome = ""

    async def call(self, topic: str, request: RemoteToolRequest, *, since_ms: int | None = None) -> RemoteToolResult:
        self.asked.append(request)
        return RemoteToolResult(
            idempotency_key=request.idempotency_key,
            request_id=request.request_id,
            run_id=request.run_id,
            tenant=request.tenant,
            text="clicked",
            is_error=bool(self.outcome),
            outcome=self.outcome,
        )

    async def wait_for_result(
        self, topic: str, idempotency_key: str, tenant: str, since_ms: int, *, expiry_watch: ExpiryWatch
    ) -> RemoteToolResult | str:
        return await expiry_watch(self.asked[-1]) if self.asked else "none was sent"


class Scene:
    def __init__(self, *records: Any) -> None:
        self.log = MemoryLog({TOPIC: 1})
        self.now = NOW
        self.calls = Calls()
        self.board = GlobalTable(CODEC, TOPIC, clients(lambda: self.now))
        tools = ClientTools(self.board, self.calls, timeout_s=30, clock_ms=lambda: self.now)
        self.shelf = ProcessToolset(
            {"Read": ToldTool()}, client_tools=tools.tools_for, missing_client_tool=tools.missing_tool
        )
        self.say(*records or (OFFER,))

    def say(self, *records: Any) -> None:
        at = self.log.put(TOPIC, 0, [ProducerRecord(key=None, value=CODEC.encode(record)) for record in records])
        self.board.feed(self.log.records[TOPIC, 0][at:])

    def seen(self, tenant: str = "acme", subject: str = "ann", names: tuple[str, ...] = GRANTED) -> list[str]:
        return [spec.name for spec in self.shelf.for_principal(tenant, subject).specs(names)]


def test_a_run_is_shown_what_its_own_principal_offers_and_its_agent_was_granted() -> None:
    here = Scene()
    assert here.seen() == ["Read", "client__click"]
    assert here.seen(names=("client__*", "Read")) == ["Read", "client__add", "client__click"]
    assert here.seen(names=("Read",)) == ["Read"]
    assert here.seen(subject="bob") == here.seen(tenant="other") == ["Read"]
    (spec,) = here.shelf.for_principal("acme", "ann").specs(("client__click",))
    assert (spec.description, spec.input_schema["properties"]) == ("Clicks.", {"x": {"type": "string"}})


def test_nothing_is_shown_when_the_client_or_its_host_is_gone() -> None:
    here = Scene()
    here.now += LEASE_MS + 1
    assert here.seen() == ["Read"]
    here.say(ClientHostAlive(host="h", at_ms=here.now))
    assert here.seen() == ["Read", "client__click"]
    here.say(ClientLeft(connection_id="h.1", host="h", at_ms=here.now))
    assert here.seen() == ["Read"]


def test_what_was_said_long_ago_does_not_count_at_a_start() -> None:
    assert Scene(replace(OFFER, at_ms=NOW - LEASE_MS - 1)).seen() == ["Read"]


async def test_clocks_are_not_compared_later() -> None:
    here = Scene(ClientLeft(connection_id="x", host="x", at_ms=NOW))
    following = asyncio.create_task(here.board.follow(here.log.tail(TOPIC, {0: 0})))
    await asyncio.sleep(0)
    here.log.put(TOPIC, 0, [ProducerRecord(key=None, value=CODEC.encode(replace(OFFER, at_ms=1)))])
    assert await here.board.wait(0, 1, timeout_s=30) == 0
    assert here.seen() == ["Read", "client__click"]
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


def test_a_record_of_another_kind_is_left_out() -> None:
    assert Scene(OFFER, ModelMarked(provider="p", model="m", mark="stalled")).seen()[1:] == ["client__click"]


def test_its_calls_are_unsafe_and_can_be_asked_about_whoever_is_there() -> None:
    for shelf in (Scene().shelf, Scene().shelf.for_principal("acme", "ann")):
        assert shelf.effect_class("client__anything", "{}") == "unsafe"
        assert shelf.is_reconcilable("client__anything")


def subject_of(run: Run) -> str:
    assert isinstance(run.state, AwaitingTools)
    return run.state.facts.subject


class Calling(Work):
    """Tool calls of a run of the tenant t."""

    def __init__(self, here: Scene) -> None:
        super().__init__()
        self.calls = ToolCalls(
            here.shelf,
            volumes={},
            operator_hosts=(),
            parallelism=8,
            blobs=self.blobs,
            tracing=NO_TRACING,
            clock_ms=lambda: NOW,
        )


async def test_a_call_goes_to_the_connection_of_its_principal() -> None:
    run = given(tools=GRANTED)
    strangers = replace(OFFER, subject=subject_of(run)), replace(OFFER, tenant="t", subject="eve", connection_id="h.2")
    here = Scene(*strangers)
    order = await Calling(here).run(run, name="client__click")
    assert "no client that offers client__click is connected now" in order.text
    here.say(replace(OFFER, tenant="t", subject=subject_of(run), connection_id="h.3"))
    order = await Calling(here).run(run, name="client__click")
    assert (order.text, order.outcome) == ("clicked", "ok")
    assert [request.connection_id for request in here.calls.asked] == ["h.3"]


async def test_a_tool_that_was_not_granted_is_not_called() -> None:
    here = Scene()
    order = await Calling(here).run(given(tools=("Read",)), name="client__click")
    assert order.text.startswith("tool not found: client__click;")


async def test_an_unknown_outcome_is_told_as_one() -> None:
    here = Scene()
    here.calls.outcome = "unknown"
    run = given(tools=GRANTED)
    here.say(replace(OFFER, tenant="t", subject=subject_of(run), connection_id="h.3"))
    order = await Calling(here).run(run, name="client__click")
    assert (order.outcome, order.is_error) == ("outcome_unknown", True)
    order = await Work(ToldTool(answer=ToolResult(text="?", is_error=True, is_unknown=True))).run()
    assert order.outcome == "outcome_unknown"


async def test_a_lost_call_is_given_up_with_the_connection_it_was_made_over(monkeypatch: pytest.MonkeyPatch) -> None:
    noted_sleeps(monkeypatch, "loomlog.connectors.tools.client_tool", lambda _: None)
    here = Scene()
    run = given(tools=GRANTED)
    first = replace(OFFER, tenant="t", subject=subject_of(run), connection_id="h.3")
    here.say(first)
    await Calling(here).run(run, name="client__click")
    here.say(replace(first, host="i", connection_id="i.1"), ClientLeft(connection_id="h.3", host="h", at_ms=here.now))
    for shelf in (here.shelf.for_principal("t", subject_of(run)), here.shelf.for_principal("t", "nobody")):
        tool = shelf.find("client__click")
        assert isinstance(tool, Reconciler)
        actual = await tool.reconcile({}, replace(context(), tenant="t"))
        assert actual == UnknownEffect(reason="the process that held the client's connection is gone")


# --- the reader of results -------------------------------------------------------------------------------------------


async def never(request: RemoteToolRequest) -> str:
    raise AssertionError(f"there is no {request}")


async def test_results_are_read_from_the_first_call_on_and_a_broker_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("loomlog.connectors.retries.RETRY_S", 0.0)
    log = MemoryLog({"loom.tool.requests": 1, "loom.tool.results": 1})
    tries: list[int] = []

    async def open_it(stack: AsyncExitStack) -> Any:
        tries.append(1)
        if len(tries) < 3:
            raise Transient("away", kind="unavailable")
        calls = RemoteCallClient(CODEC, log, log, clock_ms=lambda: NOW, source="t")
        return calls, log.tail("loom.tool.results", {0: 0})

    results = LazyRemoteCalls(open_it)
    parked: list[str] = []
    results.on_unreadable = lambda record, error: parked.append(error)
    running = asyncio.create_task(results.run())
    await asyncio.sleep(0)
    assert tries == []
    async with asyncio.timeout(30):
        actual = await results.wait_for_result("loom.tool.requests", "k", "acme", 0, expiry_watch=never)
        assert isinstance(actual, str)
        log.put("loom.tool.results", 0, [ProducerRecord(key=None, value=b"")])
        await until(lambda: parked)
    assert len(tries) == 3
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
