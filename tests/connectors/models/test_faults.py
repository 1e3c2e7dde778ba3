"""What can go wrong on the wire, once for each driver: the same fault must be the same failure."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from connectors.errors import OutsideError, Permanent, Transient
from connectors.models.anthropic import AnthropicModel
from connectors.models.openai import OpenAiModel
from connectors.protocols import Model, ModelItem, Reply, TextDelta
from tests.connectors.models import fault_server, samples
from tests.connectors.models.fault_server import Answer, FaultServer, Peer
from tests.connectors.models.samples import request

KEY = "sk-very-secret"


@dataclass(frozen=True)
class Driver:
    name: str
    make: Callable[..., Model]
    frames: list[bytes]
    overloaded: bytes
    """An error event inside a stream."""
    cut: int
    """After so many frames the turn is not complete."""


DRIVERS = [
    Driver(
        "anthropic",
        AnthropicModel,
        samples.ANTHROPIC_FRAMES,
        samples.anthropic_frame("error", error={"type": "overloaded_error", "message": "Overloaded"}),
        len(samples.ANTHROPIC_FRAMES) - 1,
    ),
    Driver(
        "openai",
        OpenAiModel,
        samples.OPENAI_FRAMES,
        b'data: {"error": {"type": "overloaded_error", "message": "Overloaded"}}\n\n',
        len(samples.OPENAI_FRAMES) - 3,
    ),
]


@pytest.fixture(params=DRIVERS, ids=lambda driver: driver.name)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


@asynccontextmanager
async def talking(driver: Driver, answer: Answer, **changes: Any) -> AsyncIterator[tuple[Model, FaultServer]]:
    async with FaultServer(answer) as server:
        values = {"header_timeout_s": 5.0, "idle_timeout_s": 5.0, "api_key": KEY} | changes
        model = driver.make(provider="some", base_url=server.url, **values)
        try:
            async with asyncio.timeout(10):
                yield model, server
        finally:
            await model.close()


async def items_of(model: Model) -> list[ModelItem]:
    return [item async for item in model.stream(request())]


async def failure_of(driver: Driver, answer: Answer, **changes: Any) -> OutsideError:
    async with talking(driver, answer, **changes) as (model, _):
        with pytest.raises(OutsideError) as caught:
            await items_of(model)
    assert KEY not in str(caught.value)
    assert str(caught.value).startswith("some")
    return caught.value


async def test_a_turn_is_deltas_and_then_one_reply(driver: Driver) -> None:
    async with talking(driver, fault_server.stream(driver.frames)) as (model, _):
        *deltas, reply = await items_of(model)
    assert isinstance(reply, Reply)
    texts = [delta for delta in deltas if isinstance(delta, TextDelta)]
    assert len(texts) == len(deltas)
    assert "".join(delta.text for delta in texts if not delta.thinking) == reply.text == "I look für Sie."
    assert "".join(delta.text for delta in texts if delta.thinking) == reply.reasoning
    assert len(reply.tool_calls) == 2


async def test_turns_one_after_the_other_share_a_connection(driver: Driver) -> None:
    async with talking(driver, fault_server.stream(driver.frames)) as (model, server):
        for _ in range(3):
            await items_of(model)
        assert server.connections == 1


async def test_many_turns_at_once_do_not_mix(driver: Driver) -> None:
    async with talking(driver, fault_server.stream(driver.frames)) as (model, _):
        replies = {repr(turn[-1]) for turn in await asyncio.gather(*(items_of(model) for _ in range(20)))}
    assert len(replies) == 1


async def test_a_frame_cut_in_the_middle_and_finished_later_is_whole(driver: Driver) -> None:
    whole = b"".join(driver.frames)

    async def dribble(peer: Peer) -> None:
        await peer.head(200, content_type="text/event-stream")
        for at in range(0, len(whole), 7):
            await peer.send(whole[at : at + 7])
        peer.writer.close()

    async with talking(driver, dribble) as (model, _):
        reply = (await items_of(model))[-1]
    assert isinstance(reply, Reply)
    assert reply.text == "I look für Sie."


@pytest.mark.parametrize("finally_", ["end", "close", "reset"])
async def test_a_stream_that_ends_early_is_interrupted(driver: Driver, finally_: str) -> None:
    failure = await failure_of(driver, fault_server.stream(driver.frames[: driver.cut], finally_=finally_))
    assert (type(failure), failure.kind) == (Transient, "interrupted")


async def test_a_stream_that_ends_inside_a_frame_is_interrupted(driver: Driver) -> None:
    whole = b"".join(driver.frames[: driver.cut])
    failure = await failure_of(driver, fault_server.stream([whole[:-5]]))
    assert (type(failure), failure.kind) == (Transient, "interrupted")


async def test_an_empty_stream_is_interrupted(driver: Driver) -> None:
    assert (await failure_of(driver, fault_server.stream([]))).kind == "interrupted"


async def test_an_error_inside_a_stream_keeps_what_came_before(driver: Driver) -> None:
    answer = fault_server.stream([*driver.frames[: driver.cut], driver.overloaded])
    got: list[ModelItem] = []

    async def collect(model: Model) -> None:
        async for item in model.stream(request()):
            got.append(item)

    async with talking(driver, answer) as (model, _):
        with pytest.raises(Transient, match="some 529: Overloaded") as caught:
            await collect(model)
    assert caught.value.kind == "overloaded"
    assert got
    assert not any(isinstance(item, Reply) for item in got)


async def test_a_rate_limit_says_how_long_to_wait(driver: Driver) -> None:
    failure = await failure_of(driver, fault_server.error(429, "slow down", retry_after="3"))
    assert isinstance(failure, Transient)
    assert (failure.kind, failure.retry_after_s, str(failure)) == ("rate_limited", 3.0, "some 429: slow down")


async def test_an_overload_is_transient(driver: Driver) -> None:
    failure = await failure_of(driver, fault_server.error(529, "Overloaded"))
    assert (type(failure), failure.kind, failure.status) == (Transient, "overloaded", 529)


async def test_a_500_with_an_html_page_is_unavailable(driver: Driver) -> None:
    page = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
    failure = await failure_of(driver, fault_server.status(502, page, content_type="text/html"))
    assert (type(failure), failure.kind) == (Transient, "unavailable")
    assert str(failure) == "some 502: an HTML page titled '502 Bad Gateway'"


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "invalid"), (401, "unauthorised"), (403, "forbidden"), (422, "invalid")]
)
async def test_a_refused_request_is_permanent(driver: Driver, status: int, kind: str) -> None:
    failure = await failure_of(driver, fault_server.error(status, f"bad key {KEY}"))
    assert (type(failure), failure.kind, str(failure)) == (Permanent, kind, f"some {status}: bad key [key]")


async def test_a_retired_model_is_deprecated(driver: Driver) -> None:
    failure = await failure_of(driver, fault_server.error(404, "model some-model is no longer available"))
    assert (type(failure), failure.kind) == (Permanent, "deprecated")


async def test_silence_before_headers_and_in_the_middle_are_told_apart(driver: Driver) -> None:
    before = await failure_of(driver, fault_server.silent, header_timeout_s=0.03)
    middle = await failure_of(driver, fault_server.stream(driver.frames[:2], finally_="stall"), idle_timeout_s=0.03)
    assert (before.kind, middle.kind) == ("timeout", "timeout")
    assert "no response headers" in str(before)
    assert "idle timeout" in str(middle)


async def test_a_reset_is_a_network_failure_before_and_interrupted_after_the_headers(driver: Driver) -> None:
    assert (await failure_of(driver, fault_server.resetting)).kind == "network"
    late = fault_server.stream(driver.frames[:2], finally_="reset")
    assert (await failure_of(driver, late)).kind == "interrupted"


@pytest.mark.parametrize("garbage", [b"data: {nope\n\n", b"data: \xff\xfe\n\n", b"data: <html>\n\n", b"data: 1 2\n\n"])
async def test_garbage_is_interrupted(driver: Driver, garbage: bytes) -> None:
    failure = await failure_of(driver, fault_server.stream([*driver.frames[:2], garbage]))
    assert (type(failure), failure.kind) == (Transient, "interrupted")


async def test_a_huge_line_is_interrupted(driver: Driver) -> None:
    failure = await failure_of(driver, fault_server.stream([b"data: " + b"x" * 65_536] + [b"x" * 65_536] * 70))
    assert (type(failure), failure.kind) == (Transient, "interrupted")
    assert str(4 << 20) in str(failure)


async def test_leaving_a_stream_closes_its_connection(driver: Driver) -> None:
    async with talking(driver, fault_server.stream(driver.frames[: driver.cut], finally_="stall")) as (model, server):
        stream = model.stream(request())
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]  # the drivers' streams are generators
        await server.closed_by_client.wait()


async def test_a_provider_that_keeps_the_connection_after_the_end_does_not_hold_the_reply(driver: Driver) -> None:
    async with talking(driver, fault_server.stream(driver.frames, finally_="stall")) as (model, _):
        began = time.monotonic()
        assert isinstance((await items_of(model))[-1], Reply)
        assert time.monotonic() - began < 2


async def test_models_are_listed(driver: Driver) -> None:
    body = b'{"data": [{"id": "one"}, {"id": 2}, 3, {"id": "two"}], "has_more": false}'
    async with talking(driver, fault_server.status(200, body, content_type="application/json")) as (model, _):
        assert await model.list_models() == ["one", "two"]
    async with talking(driver, fault_server.status(200, b"[]", content_type="application/json")) as (model, _):
        assert await model.list_models() == []


async def test_a_failed_listing_is_translated(driver: Driver) -> None:
    async with talking(driver, fault_server.error(401, "who are you")) as (model, _):
        with pytest.raises(Permanent, match="some 401: who are you"):
            await model.list_models()
