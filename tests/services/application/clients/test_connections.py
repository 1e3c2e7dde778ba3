"""Connections of clients over a log in memory: what they offer, what they are asked, what is told when they leave."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.connectors.tools.remote_calls import REQUESTS_TOPIC, RESULTS_TOPIC, RemoteCallClient
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.stream_records import (
    ClientHostAlive,
    ClientLeft,
    ClientRegistered,
    RemoteToolRequest,
    RemoteToolResult,
)
from loomlog.schemas.records import replace
from loomlog.services.application.clients import connections as module
from loomlog.services.application.clients.connection import ClientDisconnected
from loomlog.services.application.clients.connections import ClientConnections, ClientLimits
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import RUNS_CREATE
from loomlog.services.core.bounded_resources import CLIENT_CONNECTIONS
from loomlog.services.core.clients import limits
from loomlog.services.core.shares import ShareLimits
from tests.waiting import until

CODEC = local_codec()
TOPIC = "loom.client.events"
NOW = 1_700_000_000_000
WAIT_S = 30.0
ANN = Caller(name="ann", tenant="acme", subject="ann", scopes=frozenset({RUNS_CREATE}))
BOB = replace(ANN, name="bob", subject="bob")
HELLO = {"type": "hello", "tools": [{"name": "click"}]}


class Pipe:
    """A wire whose other end is the test. `stuck`: the client takes nothing."""

    def __init__(self) -> None:
        self.frames: list[Any] = []
        self.closed: tuple[int, str] | None = None
        self.stuck = False
        self._coming: asyncio.Queue[str | Exception | None] = asyncio.Queue()

    def say(self, frame: Any) -> None:
        self._coming.put_nowait(frame if isinstance(frame, str | None) else json.dumps(frame))

    def leave(self) -> None:
        self._coming.put_nowait(ClientDisconnected("left"))

    def explode(self) -> None:
        self._coming.put_nowait(ValueError("a bug"))

    async def receive(self) -> str | None:
        actual = await self._coming.get()
        if isinstance(actual, Exception):
            raise actual
        return actual

    async def send(self, text: str) -> None:
        if self.stuck:
            await asyncio.Event().wait()
        self.frames.append(json.loads(text))

    async def close(self, code: int, reason: str) -> None:
        self.closed = (code, reason)

    def kinds(self) -> list[str]:
        return [frame["type"] for frame in self.frames]


class Scene:
    def __init__(self, **bounds: int) -> None:
        self.log = MemoryLog({REQUESTS_TOPIC: 2, RESULTS_TOPIC: 2, TOPIC: 1})
        self.now = NOW
        self.clients = ClientConnections(
            self.log,
            CODEC,
            topic=TOPIC,
            clock_ms=lambda: self.now,
            fresh_token=lambda: "h",
            client_limits=ClientLimits(**bounds),
            heartbeat_s=0.01,
        )
        self.serving: list[asyncio.Task[None]] = []

    async def open_requests(self) -> Any:
        ends = {number: len(self.log.records[REQUESTS_TOPIC, number]) for number in range(2)}
        return self.log.tail(REQUESTS_TOPIC, ends)

    def connect(self, caller: Caller = ANN) -> Pipe:
        pipe = Pipe()
        self.serving.append(asyncio.create_task(self.clients.serve(caller, pipe)))
        return pipe

    async def greeted(self, caller: Caller = ANN) -> Pipe:
        pipe = self.connect(caller)
        pipe.say(HELLO)
        await until(lambda: pipe.kinds() == ["hello_ok"])
        return pipe

    async def ended(self) -> None:
        """Every connection is over."""
        async with asyncio.timeout(WAIT_S):
            await asyncio.wait(self.serving)

    async def ask(self, connection_id: str = "h.1", number: int = 1, **changes: Any) -> RemoteToolRequest:
        """As a runtime does."""
        key = f"r_one:1.{number}:1"
        request = RemoteToolRequest(
            request_id=key,
            idempotency_key=key,
            run_id="r_one",
            tenant="acme",
            subject="ann",
            agent="helper",
            agent_id="a_one",
            tool="client__click",
            input="{}",
            attempt=1,
            issued_at_ms=NOW,
            deadline_ms=NOW + 60_000,
            connection_id=connection_id,
        )
        request = replace(request, **changes)
        await RemoteCallClient(CODEC, self.log, self.log, clock_ms=lambda: NOW, source="t")._send(
            REQUESTS_TOPIC, request
        )
        return request

    def told(self) -> list[Any]:
        return [CODEC.decode(record.value or b"").record for record in self.log.records[TOPIC, 0]]

    def registered(self) -> list[Any]:
        return [record for record in self.told() if not isinstance(record, ClientHostAlive)]

    def results(self) -> list[RemoteToolResult]:
        actual = []
        for number in range(2):
            for record in self.log.records[RESULTS_TOPIC, number]:
                assert partition_of(record.key or b"", 2) == number
                result = CODEC.decode(record.value or b"").record
                assert isinstance(result, RemoteToolResult)
                assert record.key == result.idempotency_key.encode()
                actual.append(result)
        return actual

    def outcomes(self) -> list[tuple[str, str]]:
        return [(result.request_id, result.outcome) for result in self.results()]


@asynccontextmanager
async def scene(**bounds: int) -> AsyncIterator[Scene]:
    made = Scene(**bounds)
    running = asyncio.create_task(made.clients.run(made.open_requests))
    try:
        yield made
    finally:
        for task in (running, *made.serving):
            task.cancel()
        await asyncio.gather(running, *made.serving, return_exceptions=True)


async def test_a_hello_is_in_the_log_before_it_is_answered() -> None:
    async with scene() as here:
        pipe = await here.greeted()
        (offer,) = here.registered()
        assert isinstance(offer, ClientRegistered)
        assert (offer.connection_id, offer.host, offer.tenant, offer.subject) == ("h.1", "h", "acme", "ann")
        assert [tool.name for tool in offer.tools] == ["click"]
        assert pipe.frames[0]["connection_id"] == "h.1"


async def test_a_call_goes_to_its_client_and_the_result_to_the_log() -> None:
    async with scene() as here:
        pipe, other = await here.greeted(), await here.greeted()
        request = await here.ask("h.1")
        await until(lambda: pipe.kinds()[-1] == "invoke")
        pipe.say({"type": "result", "call_id": pipe.frames[-1]["call_id"], "ok": True, "output": {"done": 1}})
        await until(lambda: bool(here.results()))
        (result,) = here.results()
        assert (result.text, result.is_error, result.outcome) == ('{"done":1}', False, "")
        assert (result.run_id, result.tenant, result.request_id) == ("r_one", "acme", request.request_id)
        assert other.kinds() == ["hello_ok"]


async def test_a_request_that_is_in_the_log_twice_is_handed_out_once() -> None:
    async with scene() as here:
        pipe = await here.greeted()
        await here.ask()
        await here.ask()
        await here.ask(number=2)
        await until(lambda: len(pipe.frames) >= 3)
        assert [frame.get("call_id") for frame in pipe.frames] == [None, "r_one:1.1:1", "r_one:1.2:1"]


async def test_a_connection_that_drops_leaves_unknown_outcomes_and_then_its_end() -> None:
    async with scene() as here:
        pipe = await here.greeted()
        await here.ask()
        await until(lambda: pipe.kinds()[-1] == "invoke")
        pipe.leave()
        await here.ended()
        assert here.outcomes() == [("r_one:1.1:1", "unknown")]
        assert [type(record) for record in here.registered()] == [ClientRegistered, ClientLeft]
        await here.ask(number=2)
        await until(lambda: len(here.outcomes()) == 2)
        assert ("r_one:1.2:1", "not_begun") in here.outcomes()


async def test_a_result_whose_acknowledgement_is_lost_is_told_again() -> None:
    async with scene() as here:
        pipe = await here.greeted()
        await here.ask()
        await until(lambda: pipe.kinds()[-1] == "invoke")
        here.log.lose_acks = 1
        pipe.say({"type": "result", "call_id": "r_one:1.1:1", "ok": False, "error": "no"})
        await until(lambda: len(here.results()) >= 1)
        assert {(result.text, result.is_error) for result in here.results()} == {("no", True)}


async def test_nobody_is_handed_the_call_of_another() -> None:
    async with scene() as here:
        pipe = await here.greeted(BOB)
        for number, changes in enumerate([{}, {"subject": "bob", "tenant": "other"}]):
            await here.ask("h.1", number, **changes)
        await until(lambda: len(here.outcomes()) == 2)
        assert {outcome for _, outcome in here.outcomes()} == {"not_begun"}
        assert pipe.kinds() == ["hello_ok"]


async def test_what_is_for_another_process_or_for_no_client_is_left_alone() -> None:
    async with scene() as here:
        pipe = await here.greeted()
        await here.ask("elsewhere.1", 1)
        await here.ask("", 2)
        await here.ask("h.1", 3)
        await until(lambda: pipe.kinds()[-1] == "invoke")
        assert here.results() == []


async def test_a_request_that_cannot_be_read_stops_nobody() -> None:
    async with scene() as here:
        pipe = await here.greeted()
        here.log.put(
            REQUESTS_TOPIC, 0, [ProducerRecord(key=b"k", value=b"garbage", headers=[("ce_connection", b"h.1")])]
        )
        await here.ask()
        await until(lambda: pipe.kinds()[-1] == "invoke")


async def test_time_that_is_over_is_an_unknown_outcome() -> None:
    async with scene() as here:
        pipe = await here.greeted()
        await here.ask()
        await until(lambda: pipe.kinds()[-1] == "invoke")
        here.now += 60_000
        pipe.say({"type": "ping"})  # wakes it; otherwise it sleeps until then
        await until(lambda: bool(here.results()))
        assert here.outcomes() == [("r_one:1.1:1", "unknown")]


async def test_a_principal_has_so_many_connections_and_no_more() -> None:
    async with scene(connections=2) as here:
        first = await here.greeted()
        await here.greeted()
        refused = here.connect()
        await until(lambda: refused.closed is not None)
        assert (refused.kinds(), refused.frames[0]["code"]) == (["error"], "too_many_connections")
        assert refused.closed is not None
        assert refused.closed[0] == 1013
        await here.greeted(BOB)
        first.leave()
        await until(lambda: here.clients.open_connections == 2)
        await here.greeted()


async def test_a_process_has_so_many_connections_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLIENT_CONNECTIONS", replace(CLIENT_CONNECTIONS, limits=ShareLimits.of(1)))
    async with scene() as here:
        await here.greeted()
        refused = here.connect(BOB)
        await until(lambda: refused.closed is not None)


async def test_a_slow_client_is_dropped_and_its_call_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SEND_TIMEOUT_S", 0.02)
    async with scene() as here:
        pipe = await here.greeted()
        pipe.stuck = True
        await here.ask()
        await here.ended()
        assert here.outcomes() == [("r_one:1.1:1", "unknown")]


async def test_garbage_is_answered_and_too_much_of_it_is_the_end() -> None:
    async with scene() as here:
        pipe = await here.greeted()
        for garbage in ("{", None, "[]"):
            pipe.say(garbage)
        await until(lambda: len(pipe.frames) == 4)
        assert {frame["code"] for frame in pipe.frames[1:]} == {"bad_frame"}
        for _ in range(limits.PROTOCOL_ERRORS_MAX):
            pipe.say("{")
        await here.ended()
        assert pipe.closed is not None
        assert pipe.closed[0] == 1008
        await here.greeted(BOB)


async def test_a_bug_ends_one_connection_and_tells_what_it_leaves() -> None:
    async with scene() as here:
        pipe = await here.greeted()
        await here.ask()
        await until(lambda: pipe.kinds()[-1] == "invoke")
        pipe.explode()
        await here.ended()
        assert here.outcomes() == [("r_one:1.1:1", "unknown")]
        await here.greeted(BOB)


async def test_a_process_says_that_it_is_alive_while_it_holds_a_connection() -> None:
    async with scene() as here:
        await asyncio.sleep(0)
        assert here.told() == []
        pipe = await here.greeted()
        await until(lambda: ClientHostAlive(host="h", at_ms=NOW) in here.told())
        pipe.leave()
        await here.ended()


async def test_a_registration_is_said_again_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RENEWAL_INTERVAL_S", 0.02)
    async with scene() as here:
        await here.greeted()
        here.now += 1
        await until(lambda: len(here.registered()) > 1)
        first, again, *_ = here.registered()
        assert again == replace(first, at_ms=NOW + 1)


async def test_a_log_that_cannot_be_read_refuses_clients_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "APPEND_WAIT_S", 0.02)
    here = Scene()
    pipe = here.connect()
    await here.ended()
    assert pipe.closed is not None
    assert pipe.closed[0] == 1013
