"""Tools that others serve: what is sent, what is waited for, and what a process that takes a call up does."""

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.json_schema import CompiledSchema, compile_schema
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import EffectClass, ProducerRecord, Reconciler, ToolContext, ToolResult, UnknownEffect
from loomlog.connectors.tools import remote_calls
from loomlog.connectors.tools.remote_calls import REQUESTS_TOPIC, RESULTS_TOPIC, RemoteCallClient
from loomlog.connectors.tools.remote_tool import INPUT_BYTES_MAX, RESULT_GRACE_S, RemoteTool
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.stream_records import RemoteToolRequest, RemoteToolResult
from loomlog.schemas.records import replace
from tests.connectors.tools import given
from tests.sleeps import noted_sleeps
from tests.waiting import until

CODEC = local_codec()
KEY = "r_one:1.0"
NOW = 1_700_000_000_000
TIMEOUT_S = 30.0
PARTITIONS = 3


class Scene:
    """A log, and processes on it one after the other."""

    def __init__(self, output: CompiledSchema | None = None) -> None:
        self.output = output
        self.log = MemoryLog({REQUESTS_TOPIC: PARTITIONS, RESULTS_TOPIC: PARTITIONS})
        self.now = self.log.clock_ms = NOW
        self.unreadable: list[str] = []

    def pass_ms(self, time_ms: int) -> None:
        self.now += time_ms
        self.log.clock_ms = self.now

    @asynccontextmanager
    async def process(self) -> Any:
        """A process with the tool; leaving is its death."""
        calls = RemoteCallClient(CODEC, self.log, self.log, clock_ms=lambda: self.now, source="test")
        calls.on_unreadable = lambda record, error: self.unreadable.append(error)
        tail = self.log.tail(RESULTS_TOPIC, await calls.catch_up())
        following = asyncio.create_task(calls.follow(tail))
        try:
            yield RemoteTool(
                calls,
                name="lookup",
                description="Looks it up.",
                input_schema={"type": "object"},
                effect=EffectClass.UNSAFE,
                timeout_s=TIMEOUT_S,
                clock_ms=lambda: self.now,
                output=self.output,
            )
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following

    def requests(self) -> list[RemoteToolRequest]:
        records = [record for number in range(PARTITIONS) for record in self.log.records[REQUESTS_TOPIC, number]]
        return [CODEC.decode(record.value or b"").record for record in records]  # type: ignore[misc]  # there are no others

    def answers(self, text: str = "found", *, raw: bytes | None = None, key: str = KEY, **changes: Any) -> None:
        result = RemoteToolResult(idempotency_key=KEY, request_id=f"{KEY}:1", run_id="r_one", tenant="acme", text=text)
        value = CODEC.encode(replace(result, **changes)) if raw is None else raw
        where = partition_of(key.encode(), PARTITIONS)
        self.log.put(RESULTS_TOPIC, where, [ProducerRecord(key=key.encode(), value=value)])

    async def until_sent(self, count: int = 1) -> None:
        await until(lambda: len(self.requests()) == count)


def context(attempt: int = 1) -> ToolContext:
    return replace(
        given.context(), run_id="r_one", tenant="acme", idempotency_key=KEY, attempt=attempt, started_at_ms=NOW - 1_000
    )


async def dies_after(tool: RemoteTool, sent: Awaitable[None]) -> None:
    """A first attempt whose process dies when the request is in the log."""
    task = asyncio.create_task(tool.call({"q": "x"}, context()))
    await sent
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_call_is_a_request_and_returns_with_its_result() -> None:
    scene = Scene()
    async with scene.process() as tool:
        task = asyncio.create_task(tool.call({"q": "ü"}, context()))
        await scene.until_sent()
        (request,) = scene.requests()
        assert (request.request_id, request.idempotency_key, request.tool) == (f"{KEY}:1", KEY, "lookup")
        assert (request.run_id, request.tenant, request.agent, request.attempt) == ("r_one", "acme", context().agent, 1)
        assert (request.input, request.issued_at_ms) == ('{"q": "ü"}', NOW)
        assert request.deadline_ms == NOW + int(TIMEOUT_S * 1000)
        scene.answers("it is there")
        assert await task == ToolResult(text="it is there")


async def test_consumers_find_their_requests_by_headers_and_those_of_one_call_in_one_partition() -> None:
    scene = Scene()
    async with scene.process() as tool:
        await dies_after(tool, scene.until_sent())
    (record,) = scene.log.records[REQUESTS_TOPIC, partition_of(KEY.encode(), PARTITIONS)]
    assert record.key == KEY.encode()
    headers = dict(record.headers)
    assert (headers["ce_subject"], headers["ce_id"]) == (b"lookup", f"{KEY}:1".encode())
    assert headers["ce_type"] == RemoteToolRequest.SCHEMA.encode()


async def test_an_error_of_the_service_is_an_error_for_the_model() -> None:
    scene = Scene()
    async with scene.process() as tool:
        task = asyncio.create_task(tool.call({}, context()))
        await scene.until_sent()
        scene.answers("out of stock", is_error=True)
        assert await task == ToolResult(text="out of stock", is_error=True)


@pytest.mark.parametrize(
    ("text", "is_error", "expected"),
    [
        ('{"state": "paid"}', False, ToolResult(text='{"state":"paid"}')),
        ("out of stock", True, ToolResult(text="out of stock", is_error=True)),
    ],
)
async def test_a_result_that_meets_its_schema_is_a_record(text: str, is_error: bool, expected: ToolResult) -> None:
    assert await result_of(text, is_error=is_error) == expected


async def test_a_result_that_does_not_meet_its_schema_is_an_error_that_says_where() -> None:
    result = await result_of('{"state": 7}')
    assert result.is_error
    assert result.text.startswith("lookup was carried out, and its result does not meet")
    assert "$.state: " in result.text


async def result_of(text: str, *, is_error: bool = False) -> ToolResult:
    """What a tool with an output schema makes of its service's result."""
    scene = Scene(compile_schema({"type": "object", "properties": {"state": {"type": "string"}}}))
    async with scene.process() as tool:
        task = asyncio.create_task(tool.call({}, context()))
        await scene.until_sent()
        scene.answers(text, is_error=is_error)
        result: ToolResult = await task
    return result


async def test_the_next_owner_waits_for_the_result_of_the_same_call_and_sends_nothing() -> None:
    scene = Scene()
    async with scene.process() as tool:
        await dies_after(tool, scene.until_sent())
    async with scene.process() as tool:
        task = asyncio.create_task(tool.call({"q": "x"}, context(attempt=2)))
        scene.pass_ms(5_000)
        scene.answers("once")
        assert (await task).text == "once"
    assert len(scene.requests()) == 1


async def test_a_result_that_came_while_nobody_was_there_is_found() -> None:
    scene = Scene()
    async with scene.process() as tool:
        await dies_after(tool, scene.until_sent())
    scene.answers("once")
    scene.pass_ms(remote_calls.LOOKBACK_MS - 1)
    async with scene.process() as tool:
        assert (await tool.call({"q": "x"}, context(attempt=2))).text == "once"
    assert len(scene.requests()) == 1


async def test_a_request_that_was_never_sent_is_sent_by_the_next_owner() -> None:
    scene = Scene()
    async with scene.process() as tool:
        task = asyncio.create_task(tool.call({"q": "x"}, context(attempt=2)))
        await scene.until_sent()
        scene.answers()
        await task
    (request,) = scene.requests()
    assert (request.request_id, request.idempotency_key, request.attempt) == (f"{KEY}:2", KEY, 2)


async def test_a_request_whose_time_is_over_is_sent_again_under_the_same_key() -> None:
    scene = Scene()
    async with scene.process() as tool:
        await dies_after(tool, scene.until_sent())
    scene.pass_ms(int(TIMEOUT_S * 1000))
    async with scene.process() as tool:
        task = asyncio.create_task(tool.call({"q": "x"}, context(attempt=2)))
        await scene.until_sent(2)
        scene.answers()
        await task
    assert {request.idempotency_key for request in scene.requests()} == {KEY}


async def test_a_tool_with_an_effect_is_asked_and_tells_the_result_of_the_lost_call() -> None:
    scene = Scene()
    async with scene.process() as tool:
        assert isinstance(tool, Reconciler)
        await dies_after(tool, scene.until_sent())
    async with scene.process() as tool:
        task = asyncio.create_task(tool.reconcile({"q": "x"}, context()))
        await asyncio.sleep(0)
        scene.answers("it did")
        assert await task == ToolResult(text="it did")
    assert len(scene.requests()) == 1


async def test_nobody_can_tell_of_a_request_that_was_not_answered_in_its_time() -> None:
    scene = Scene()
    async with scene.process() as tool:
        await dies_after(tool, scene.until_sent())
    scene.pass_ms(int((TIMEOUT_S + RESULT_GRACE_S) * 1000))
    async with scene.process() as tool, asyncio.timeout(30):
        actual = await tool.reconcile({"q": "x"}, context())
        assert actual == UnknownEffect(reason="the call timed out without a result")
        scene.answers("late")
        await until(lambda: bool(tool._calls._unclaimed))
        assert await tool.reconcile({"q": "x"}, context()) == ToolResult(text="late")
    assert len(scene.requests()) == 1


async def test_it_is_asked_until_a_little_after_the_time_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    noted_sleeps(monkeypatch, "loomlog.connectors.tools.remote_tool", slept.append)
    scene = Scene()
    async with scene.process() as tool:
        await dies_after(tool, scene.until_sent())
    scene.pass_ms(10_000)
    async with scene.process() as tool:
        assert isinstance(await tool.reconcile({"q": "x"}, context()), UnknownEffect)
    assert slept == [TIMEOUT_S - 10 + RESULT_GRACE_S]


async def test_nobody_can_tell_of_a_request_that_is_not_in_the_log() -> None:
    scene = Scene()
    async with scene.process() as tool:
        assert isinstance(await tool.reconcile({}, context()), UnknownEffect)
    assert scene.requests() == []


async def test_a_result_that_comes_twice_is_heard_once() -> None:
    scene = Scene()
    async with scene.process() as tool:
        task = asyncio.create_task(tool.call({}, context()))
        await scene.until_sent()
        scene.answers("first")
        scene.answers("second")
        assert (await task).text == "first"


async def test_results_of_others_are_left_alone() -> None:
    scene = Scene()
    async with scene.process() as tool:
        task = asyncio.create_task(tool.call({}, context()))
        await scene.until_sent()
        scene.answers("not this", key="r_two:1.0", idempotency_key="r_two:1.0")
        scene.log.put(RESULTS_TOPIC, partition_of(b"r_two:1.0", PARTITIONS), [ProducerRecord(key=b"", value=b"?")])
        await until(lambda: bool(scene.unreadable))  # so what lies before it has been read
        assert not task.done()
        scene.answers("this")
        assert (await task).text == "this"


@pytest.mark.parametrize(
    "wrong",
    [{"tenant": "evil"}, {"idempotency_key": "r_two:1.0"}, {"raw": b"\x00\x00\x00\x00\x05rubbish"}, {"raw": b""}],
)
async def test_a_result_that_makes_no_sense_is_an_error_and_kept_for_people(wrong: Mapping[str, Any]) -> None:
    scene = Scene()
    async with scene.process() as tool:
        task = asyncio.create_task(tool.call({}, context()))
        await scene.until_sent()
        scene.answers(**wrong)
        with pytest.raises(Permanent):
            await task
    assert len(scene.unreadable) == 1


async def test_a_result_without_a_key_is_kept_for_people() -> None:
    scene = Scene()
    async with scene.process():
        scene.log.put(RESULTS_TOPIC, 0, [ProducerRecord(key=None, value=b"x")])
        await until(lambda: len(scene.unreadable) == 1)


async def test_a_request_whose_append_is_uncertain_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_calls, "SEND_RETRY_S", 0.0)
    scene = Scene()
    scene.log.lose_acks = 1
    async with scene.process() as tool:
        task = asyncio.create_task(tool.call({}, context()))
        await scene.until_sent(2)
        scene.answers()
        await task
    assert {request.request_id for request in scene.requests()} == {f"{KEY}:1"}


async def test_arguments_that_no_record_could_hold_are_refused() -> None:
    scene = Scene()
    async with scene.process() as tool:
        result = await tool.call({"q": "x" * INPUT_BYTES_MAX}, context())
    assert (result.is_error, "at most" in result.text, scene.requests()) == (True, True, [])


async def test_a_topic_that_does_not_exist_is_said() -> None:
    scene = Scene()
    async with scene.process() as tool:
        tool._topic = "no.such.topic"
        with pytest.raises(Transient, match="no topic"):
            await tool.call({}, context())


def test_results_that_nobody_waits_for_are_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    calls = RemoteCallClient(CODEC, scene.log, scene.log, clock_ms=lambda: NOW, source="test")
    monkeypatch.setattr(remote_calls, "MAX_UNCLAIMED_RESULTS", 3)
    for number in range(5):
        scene.answers(key=f"k{number}")
    for number in range(PARTITIONS):
        calls.feed({number: scene.log.records[RESULTS_TOPIC, number]})
    assert len(calls._unclaimed) == 3
    monkeypatch.setattr(remote_calls, "MAX_UNCLAIMED_BYTES", 1)
    scene.answers(key="k9")
    calls.feed(
        {0: [record for number in range(PARTITIONS) for record in scene.log.records[RESULTS_TOPIC, number]][-1:]}
    )
    assert (len(calls._unclaimed), calls._unclaimed_bytes) == (0, 0)
