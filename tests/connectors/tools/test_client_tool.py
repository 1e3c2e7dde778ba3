"""A tool of a client as a runtime calls it, with whoever holds the connection played by the test."""

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import (
    EffectClass,
    NoEffect,
    ProducerRecord,
    Reconciler,
    ToolContext,
    ToolResult,
    UnknownEffect,
)
from loomlog.connectors.tools.client_tool import ClientSideTool
from loomlog.connectors.tools.remote_calls import REQUESTS_TOPIC, RESULTS_TOPIC, RemoteCallClient
from loomlog.connectors.tools.remote_tool import INPUT_BYTES_MAX, RESULT_GRACE_S
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.stream_records import RemoteToolRequest, RemoteToolResult
from loomlog.schemas.records import replace
from tests.connectors.tools import given
from tests.waiting import until

CODEC = local_codec()
KEY = "r_one:1.0"
NOW = 1_700_000_000_000
WAIT_S = 30.0


class Scene:
    """A log, and processes on it one after the other."""

    def __init__(self) -> None:
        self.log = MemoryLog({REQUESTS_TOPIC: 2, RESULTS_TOPIC: 2})
        self.now = self.log.clock_ms = NOW
        self.is_there = True

    @asynccontextmanager
    async def process(self, *, connection_id: str = "h.1", timeout_s: float = 30.0) -> Any:
        """A process with the tool; leaving is its death."""
        calls = RemoteCallClient(CODEC, self.log, self.log, clock_ms=lambda: self.now, source="test")
        tail = self.log.tail(RESULTS_TOPIC, await calls.catch_up())
        following = asyncio.create_task(calls.follow(tail))
        try:
            yield ClientSideTool(
                calls,
                name="client__click",
                description="Clicks.",
                input_schema={"type": "object"},
                connection_id=connection_id,
                is_connected=lambda request: self.is_there and request.connection_id == "h.1",
                timeout_s=timeout_s,
                clock_ms=lambda: self.now,
                liveness_check_s=0.005,
            )
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following

    def records(self) -> list[Any]:
        return [record for number in range(2) for record in self.log.records[REQUESTS_TOPIC, number]]

    def requests(self) -> list[RemoteToolRequest]:
        return [CODEC.decode(record.value or b"").record for record in self.records()]  # type: ignore[misc]  # no others

    def answers(self, text: str = "clicked", *, attempt: int = 1, **changes: Any) -> None:
        key = f"{KEY}:{attempt}"
        result = RemoteToolResult(idempotency_key=key, request_id=key, run_id="r_one", tenant="acme", text=text)
        value = CODEC.encode(replace(result, **changes))
        where = partition_of(key.encode(), 2)
        self.log.put(RESULTS_TOPIC, where, [ProducerRecord(key=key.encode(), value=value)])

    async def until_sent(self, count: int = 1) -> None:
        await until(lambda: len(self.requests()) == count)


def context(attempt: int = 1) -> ToolContext:
    return replace(
        given.context(), run_id="r_one", tenant="acme", idempotency_key=KEY, attempt=attempt, started_at_ms=NOW - 1_000
    )


async def answered(here: Scene, tool: ClientSideTool, *, attempt: int = 1, **said: Any) -> ToolResult:
    calling = asyncio.create_task(tool.call({"x": 1}, context(attempt)))
    await here.until_sent()
    here.answers(attempt=attempt, **said)
    async with asyncio.timeout(WAIT_S):
        return await calling


async def test_a_call_names_the_connection_and_gives_what_the_client_says() -> None:
    here = Scene()
    async with here.process() as tool:
        assert await answered(here, tool) == ToolResult(text="clicked")
    (request,) = here.requests()
    assert (request.connection_id, request.tool, request.input) == ("h.1", "client__click", '{"x": 1}')
    assert (request.tenant, request.subject, request.deadline_ms) == ("acme", "ann", NOW + 30_000)
    assert dict(here.records()[0].headers)["ce_connection"] == b"h.1"


async def test_an_error_of_the_client_is_an_error_result() -> None:
    here = Scene()
    async with here.process() as tool:
        assert await answered(here, tool, text="no", is_error=True) == ToolResult(text="no", is_error=True)


async def test_who_went_away_leaves_an_unknown_outcome() -> None:
    here = Scene()
    async with here.process() as tool:
        result = await answered(here, tool, text="the client went away", is_error=True, outcome="unknown")
    assert (result.is_error, result.is_unknown) == (True, True)
    assert "outcome unknown: the client went away" in result.text


async def test_a_call_that_was_not_handed_out_is_an_error_and_not_unknown() -> None:
    here = Scene()
    async with here.process() as tool:
        result = await answered(here, tool, text="it left", is_error=True, outcome="not_begun")
    assert result == ToolResult(text="client__click was not called: it left", is_error=True)


async def test_nobody_is_asked_when_nobody_offers_it() -> None:
    here = Scene()
    async with here.process(connection_id="") as tool:
        actual = await tool.call({}, context())
    assert (actual.is_error, actual.is_unknown, here.requests()) == (True, False, [])


async def test_arguments_over_the_bound_are_not_sent() -> None:
    here = Scene()
    async with here.process() as tool:
        actual = await tool.call({"x": "y" * INPUT_BYTES_MAX}, context())
    assert (actual.is_error, here.requests()) == (True, [])


async def test_the_death_of_the_process_with_the_connection_is_noticed_before_the_time_is_over() -> None:
    here = Scene()
    async with here.process() as tool:
        calling = asyncio.create_task(tool.call({}, context()))
        await here.until_sent()
        here.is_there = False
        async with asyncio.timeout(WAIT_S):
            actual = await calling
    assert actual.is_unknown
    assert "the process that held the client's connection is gone" in actual.text


async def test_a_call_without_any_answer_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomlog.connectors.tools.remote_tool.RESULT_GRACE_S", 0.01)
    here = Scene()
    async with here.process(timeout_s=0.01) as tool:
        async with asyncio.timeout(WAIT_S):
            actual = await tool.call({}, context())
    assert actual.is_unknown
    assert "no answer came in time" in actual.text


async def test_each_attempt_is_a_call_of_its_own() -> None:
    """The first had no effect, as somebody said; its result does not answer the second."""
    here = Scene()
    here.answers("the client went away", outcome="unknown", is_error=True)
    async with here.process() as tool:
        assert await answered(here, tool, attempt=2) == ToolResult(text="clicked")
    assert [request.attempt for request in here.requests()] == [2]


async def test_a_call_that_is_stopped_leaves_nothing_behind() -> None:
    here = Scene()
    async with here.process() as tool:
        calling = asyncio.create_task(tool.call({}, context()))
        await here.until_sent()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert not tool._calls._waiters


# --- after the death of the runtime ----------------------------------------------------------------------------------


async def lost(here: Scene) -> None:
    """A first attempt whose process dies when the request is in the log."""
    async with here.process() as tool:
        calling = asyncio.create_task(tool.call({}, context()))
        await here.until_sent()
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)


@pytest.mark.parametrize("is_early", [True, False])
async def test_the_result_reaches_the_next_owner_before_or_after_it_asks(is_early: bool) -> None:
    here = Scene()
    await lost(here)
    if is_early:
        here.answers()
    async with here.process(connection_id="") as tool, asyncio.timeout(WAIT_S):
        asking = asyncio.create_task(tool.reconcile({}, context()))
        await asyncio.sleep(0)
        if not is_early:
            here.answers()
        assert await asking == ToolResult(text="clicked")
    assert len(here.requests()) == 1


async def test_the_next_owner_may_call_again_when_the_call_was_not_handed_out() -> None:
    here = Scene()
    await lost(here)
    here.answers("it left", outcome="not_begun", is_error=True)
    async with here.process() as tool:
        assert await tool.reconcile({}, context()) == NoEffect(reason="it left")


async def test_the_next_owner_may_not_when_nobody_knows() -> None:
    here = Scene()
    async with here.process() as tool:
        assert isinstance(await tool.reconcile({}, context()), UnknownEffect), "no request was sent, yet"
    await lost(here)
    here.answers("it left in the middle", outcome="unknown", is_error=True)
    async with here.process() as tool:
        assert await tool.reconcile({}, context()) == UnknownEffect(reason="it left in the middle")


@pytest.mark.parametrize("connection_id", ["", "h.2"])
async def test_the_next_owner_notices_too_that_the_connection_of_the_call_is_gone(connection_id: str) -> None:
    """Nobody offers the tool now, or another connection does: what counts is the one that was asked."""
    here = Scene()
    await lost(here)
    here.is_there = False
    async with here.process(connection_id=connection_id) as tool, asyncio.timeout(WAIT_S):
        actual = await tool.reconcile({}, context())
    assert actual == UnknownEffect(reason="the process that held the client's connection is gone")


async def test_the_next_owner_waits_for_the_rest_of_the_calls_time_only() -> None:
    here = Scene()
    await lost(here)
    here.now += 30_000 + int(RESULT_GRACE_S * 1000)
    async with here.process() as tool, asyncio.timeout(WAIT_S):
        assert await tool.reconcile({}, context()) == UnknownEffect(reason="no answer came in time")


async def test_it_is_unsafe_and_can_be_asked() -> None:
    async with Scene().process() as tool:
        assert tool.effect_class({}) is EffectClass.UNSAFE
        assert isinstance(tool, Reconciler)
