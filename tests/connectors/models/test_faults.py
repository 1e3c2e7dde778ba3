"""What can go wrong on the wire, once for each driver: the same fault must be the same failure."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from typing import Any

import pytest

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.models.anthropic import AnthropicModel
from loomlog.connectors.models.deepseek import DEEPSEEK
from loomlog.connectors.models.gemini import GeminiModel
from loomlog.connectors.models.ollama import OllamaModel
from loomlog.connectors.models.openai import OpenAiModel
from loomlog.connectors.protocols import Model, ModelItem, Reply, TextDelta
from loomlog.schemas.conversation import ImageBlock, Message
from loomlog.schemas.records import replace
from tests.connectors.models import fault_server, samples
from tests.connectors.models.fault_server import Answer, FaultServer, Peer
from tests.connectors.models.samples import request

KEY = "sk-very-secret"


NOTHING_LOADED = fault_server.document({"models": []})
LISTED = {
    "anthropic": {"data": [{"id": "one"}, {"id": 2}, 3, {"id": "two"}], "has_more": False},
    "openai": {"data": [{"id": "one"}, {"id": 2}, 3, {"id": "two"}]},
    "gemini": {"models": [{"name": "models/one"}, {"name": 2}, 3, {"name": "models/two"}]},
    "ollama": {"models": [{"name": "one"}, {"name": 2}, 3, {"model": "two"}]},
}


@dataclass(frozen=True)
class Driver:
    name: str
    make: Callable[..., Model]
    frames: list[bytes]
    overloaded: bytes
    """An error event inside a stream."""
    cut: int
    """After so many frames the turn is not complete."""
    listed: Any
    lines: bool = False
    """Frames are lines of JSON, not events."""

    def frame(self, data: bytes) -> bytes:
        return data + b"\n" if self.lines else b"data: " + data + b"\n\n"

    def stream(self, frames: Iterable[bytes], *, finally_: str = "end") -> Answer:
        media_type = "application/x-ndjson" if self.lines else "text/event-stream"
        return fault_server.stream(frames, finally_=finally_, content_type=media_type)


OPENAI_OVERLOADED = b'data: {"error": {"type": "overloaded_error", "message": "Overloaded"}}\n\n'
DRIVERS = [
    Driver(
        "anthropic",
        AnthropicModel,
        samples.ANTHROPIC_FRAMES,
        samples.anthropic_frame("error", error={"type": "overloaded_error", "message": "Overloaded"}),
        len(samples.ANTHROPIC_FRAMES) - 1,
        LISTED["anthropic"],
    ),
    Driver(
        "openai",
        OpenAiModel,
        samples.OPENAI_FRAMES,
        OPENAI_OVERLOADED,
        len(samples.OPENAI_FRAMES) - 3,
        LISTED["openai"],
    ),
    Driver(
        "deepseek",
        partial(OpenAiModel, dialect=DEEPSEEK),
        samples.OPENAI_FRAMES,
        OPENAI_OVERLOADED,
        len(samples.OPENAI_FRAMES) - 3,
        LISTED["openai"],
    ),
    Driver(
        "gemini",
        GeminiModel,
        samples.GEMINI_FRAMES,
        b'data: {"error": {"code": 529, "message": "Overloaded", "status": "UNAVAILABLE"}}\r\n\r\n',
        len(samples.GEMINI_FRAMES) - 1,
        LISTED["gemini"],
    ),
    Driver(
        "ollama",
        OllamaModel,
        samples.OLLAMA_LINES,
        b'{"error": {"code": 529, "message": "Overloaded"}}\n',
        len(samples.OLLAMA_LINES) - 1,
        LISTED["ollama"],
        lines=True,
    ),
]


@pytest.fixture(params=DRIVERS, ids=lambda driver: driver.name)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


@asynccontextmanager
async def talking(driver: Driver, answer: Answer, **changes: Any) -> AsyncIterator[tuple[Model, FaultServer]]:
    async with FaultServer(fault_server.routed(answer, ps=NOTHING_LOADED)) as server:
        values = {"header_timeout_s": 5.0, "idle_timeout_s": 5.0, "api_key": KEY} | changes
        model = driver.make(provider="some", base_url=server.url, **values)
        try:
            async with asyncio.timeout(30):
                yield model, server
        finally:
            await model.close()


async def items_of(model: Model) -> list[ModelItem]:
    return [item async for item in model.stream(request())]


async def failure_of(driver: Driver, answer: Answer, **changes: Any) -> ConnectorError:
    async with talking(driver, answer, **changes) as (model, _):
        with pytest.raises(ConnectorError) as caught:
            await items_of(model)
    assert KEY not in str(caught.value)
    assert str(caught.value).startswith("some")
    return caught.value


async def test_a_turn_is_deltas_and_then_one_reply(driver: Driver) -> None:
    async with talking(driver, driver.stream(driver.frames)) as (model, _):
        *deltas, reply = await items_of(model)
    assert isinstance(reply, Reply)
    texts = [delta for delta in deltas if isinstance(delta, TextDelta)]
    assert len(texts) == len(deltas)
    assert "".join(delta.text for delta in texts if not delta.thinking) == reply.text == "I look für Sie."
    assert "".join(delta.text for delta in texts if delta.thinking) == reply.reasoning
    assert len(reply.tool_calls) == 2


async def test_turns_one_after_the_other_share_a_connection(driver: Driver) -> None:
    async with talking(driver, driver.stream(driver.frames)) as (model, server):
        for _ in range(3):
            await items_of(model)
        assert server.connections == 1


async def test_many_turns_at_once_do_not_mix(driver: Driver) -> None:
    async with talking(driver, driver.stream(driver.frames)) as (model, _):
        replies = {repr(turn[-1]) for turn in await asyncio.gather(*(items_of(model) for _ in range(20)))}
    assert len(replies) == 1


async def test_a_frame_cut_in_the_middle_and_finished_later_is_whole(driver: Driver) -> None:
    whole = b"".join(driver.frames)

    async def dribble(peer: Peer) -> None:
        await peer.head(200, content_type="application/x-ndjson" if driver.lines else "text/event-stream")
        for at in range(0, len(whole), 7):
            await peer.send(whole[at : at + 7])
        peer.writer.close()

    async with talking(driver, dribble) as (model, _):
        reply = (await items_of(model))[-1]
    assert isinstance(reply, Reply)
    assert reply.text == "I look für Sie."


@pytest.mark.parametrize("finally_", ["end", "close", "reset"])
async def test_a_stream_that_ends_early_is_interrupted(driver: Driver, finally_: str) -> None:
    failure = await failure_of(driver, driver.stream(driver.frames[: driver.cut], finally_=finally_))
    assert (type(failure), failure.kind) == (Transient, "broken_off")


async def test_a_stream_that_ends_inside_a_frame_is_interrupted(driver: Driver) -> None:
    whole = b"".join(driver.frames[: driver.cut])
    failure = await failure_of(driver, driver.stream([whole[:-5]]))
    assert (type(failure), failure.kind) == (Transient, "broken_off")


async def test_an_empty_stream_is_interrupted(driver: Driver) -> None:
    assert (await failure_of(driver, driver.stream([]))).kind == "broken_off"


async def test_an_error_inside_a_stream_keeps_what_came_before(driver: Driver) -> None:
    answer = driver.stream([*driver.frames[: driver.cut], driver.overloaded])
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
    middle = await failure_of(driver, driver.stream(driver.frames[:2], finally_="stall"), idle_timeout_s=0.03)
    assert (before.kind, middle.kind) == ("timeout", "timeout")
    assert "no response headers" in str(before)
    assert "idle timeout" in str(middle)


async def test_a_reset_is_a_network_failure_before_and_interrupted_after_the_headers(driver: Driver) -> None:
    # Ollama has been asked about the model over the same connection.
    before = "stale" if driver.name == "ollama" else "network"
    assert (await failure_of(driver, fault_server.resetting)).kind == before
    late = driver.stream(driver.frames[:2], finally_="reset")
    assert (await failure_of(driver, late)).kind == "broken_off"


@pytest.mark.parametrize(
    "garbage", [b"{nope", b"\xff\xfe", b"<html>", b"1 2", b'{"message": {"content": "half', b"nul"]
)
async def test_garbage_and_json_cut_short_are_interrupted(driver: Driver, garbage: bytes) -> None:
    failure = await failure_of(driver, driver.stream([*driver.frames[:2], driver.frame(garbage)]))
    assert (type(failure), failure.kind) == (Transient, "broken_off")


async def test_a_huge_line_is_interrupted(driver: Driver) -> None:
    beginning = b"" if driver.lines else b"data: "
    failure = await failure_of(driver, driver.stream([beginning + b"x" * 65_536] + [b"x" * 65_536] * 70))
    assert (type(failure), failure.kind) == (Transient, "broken_off")
    assert str(4 << 20) in str(failure)


async def test_a_refused_connection_is_a_network_failure(driver: Driver) -> None:
    async with FaultServer(fault_server.silent) as server:
        url = server.url
    model = driver.make(provider="some", base_url=url, api_key=KEY)  # nobody listens there any more
    try:
        for call in (lambda: items_of(model), model.list_models, model.probe):
            with pytest.raises(Transient) as caught:
                await call()
            assert (caught.value.kind, caught.value.status) == ("network", 0)
            assert str(caught.value).startswith("some: ")
    finally:
        await model.close()


async def test_a_stream_that_is_slow_but_never_silent_arrives_whole(driver: Driver) -> None:
    whole = b"".join(driver.frames)
    size = -(-len(whole) // 6)

    async def slow(peer: Peer) -> None:
        await peer.head(200, transfer_encoding="chunked")
        for at in range(0, len(whole), size):
            await peer.chunk(whole[at : at + size])
            await asyncio.sleep(0.1)
        await peer.send(b"0\r\n\r\n")

    async with talking(driver, slow, header_timeout_s=30.0, idle_timeout_s=0.5) as (model, _):
        began = time.monotonic()
        reply = (await items_of(model))[-1]
        assert time.monotonic() - began > 0.5  # longer than any one silence may be
    assert isinstance(reply, Reply)
    assert reply.text == "I look für Sie."


def at(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


IN_AN_HOUR = "in an hour"
"""Replaced by a date when the test runs."""
RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}


@pytest.mark.parametrize(
    ("headers", "details", "low", "high"),
    [
        ({"retry_after": "3"}, [], 3, 3),
        ({"retry_after": "0.5"}, [], 0.5, 0.5),
        ({"retry_after": IN_AN_HOUR}, [], 3500, 3600),
        ({"retry_after": at(-60)}, [], 0, 0),
        ({"retry_after": "soon"}, [RETRY_INFO], 34.5, 34.5),
        ({}, [{"@type": "other"}, RETRY_INFO], 34.5, 34.5),
        ({"retry_after": "2"}, [RETRY_INFO], 2, 2),
        ({"retry_after": "99999999"}, [], 86_400, 86_400),
    ],
)
async def test_a_rate_limit_says_how_long_to_wait_in_every_form(
    driver: Driver, headers: dict[str, str], details: list[Any], low: float, high: float
) -> None:
    body = json.dumps({"error": {"code": 429, "message": "slow down", "details": details}}).encode()
    sent = {name: at(3600) if value == IN_AN_HOUR else value for name, value in headers.items()}
    failure = await failure_of(driver, fault_server.status(429, body, **sent))
    assert isinstance(failure, Transient)
    assert (failure.kind, str(failure)) == ("rate_limited", "some 429: slow down")
    assert failure.retry_after_s is not None
    assert low <= failure.retry_after_s <= high


async def test_a_rate_limit_without_a_word_about_waiting_leaves_it_open(driver: Driver) -> None:
    failure = await failure_of(driver, fault_server.error(429, "slow down"))
    assert isinstance(failure, Transient)
    assert failure.retry_after_s is None


@pytest.mark.parametrize("content_type", ["text/html", "text/html; charset=utf-8"])
async def test_a_page_instead_of_a_stream_is_unavailable(driver: Driver, content_type: str) -> None:
    failure = await failure_of(driver, fault_server.status(200, b"<html>Log in</html>", content_type=content_type))
    assert (type(failure), failure.kind) == (Transient, "unavailable")


@pytest.mark.parametrize("content_type", ["application/octet-stream", "text/plain", ""])
async def test_a_stream_under_a_wrong_name_is_a_stream(driver: Driver, content_type: str) -> None:
    answer = fault_server.stream(driver.frames, content_type=content_type)
    async with talking(driver, answer) as (model, _):
        reply = (await items_of(model))[-1]
    assert isinstance(reply, Reply)
    assert reply.text == "I look für Sie."


async def test_an_error_keeps_the_words_of_the_provider(driver: Driver) -> None:
    said = "messages.3: the tool_use ids were found without tool_result blocks"
    failure = await failure_of(driver, fault_server.error(400, said))
    assert str(failure) == f"some 400: {said}"


async def test_an_image_for_a_model_that_cannot_see_is_refused_before_anything_is_sent(driver: Driver) -> None:
    image = Message(role="user", blocks=(ImageBlock(media_type="image/png", data="AA"),))
    async with talking(driver, driver.stream(driver.frames)) as (model, server):
        model.capabilities = replace(model.capabilities, supports_vision=False)
        with pytest.raises(Permanent, match="cannot see images") as caught:
            [item async for item in model.stream(request(image, model="any"))]
        assert caught.value.kind == "unsupported"
        assert server.requests == []


async def test_leaving_a_stream_closes_its_connection(driver: Driver) -> None:
    async with talking(driver, driver.stream(driver.frames[: driver.cut], finally_="stall")) as (model, server):
        stream = model.stream(request())
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]  # the drivers' streams are generators
        await server.closed_by_client.wait()


async def test_a_provider_that_keeps_the_connection_after_the_end_does_not_hold_the_reply(driver: Driver) -> None:
    async with talking(driver, driver.stream(driver.frames, finally_="stall")) as (model, _):
        assert isinstance((await items_of(model))[-1], Reply)


async def test_models_are_listed(driver: Driver) -> None:
    async with talking(driver, fault_server.document(driver.listed)) as (model, _):
        assert await model.list_models() == ["one", "two"]
    async with talking(driver, fault_server.document([])) as (model, _):
        assert await model.list_models() == []


async def test_a_probe_is_one_small_question(driver: Driver) -> None:
    async with talking(driver, fault_server.document(driver.listed)) as (model, server):
        await model.probe()
        [asked] = server.requests
        assert (asked.method, asked.body) == ("GET", b"")


@pytest.mark.parametrize(
    ("answer", "failure", "kind"),
    [
        (fault_server.error(401, "who are you"), Permanent, "unauthorised"),
        (fault_server.error(503, "not now"), Transient, "unavailable"),
        (fault_server.error(429, "slow down"), Transient, "rate_limited"),
        (fault_server.status(200, b"<html>", content_type="text/html"), Transient, "unavailable"),
        (fault_server.resetting, Transient, "network"),
    ],
)
async def test_a_probe_that_fails_says_whether_to_come_back(
    driver: Driver, answer: Answer, failure: type[ConnectorError], kind: str
) -> None:
    async with talking(driver, answer) as (model, _):
        with pytest.raises(failure) as caught:
            await model.probe()
        assert caught.value.kind == kind


async def test_a_probe_does_not_wait_for_long(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomlog.connectors.models.provider_client.PROBE_TIMEOUT_S", 0.03)
    async with talking(driver, fault_server.silent) as (model, _):
        with pytest.raises(Transient, match=r"no answer to GET .* within 0\.03 s"):
            await model.probe()


async def test_a_failed_listing_is_translated(driver: Driver) -> None:
    async with talking(driver, fault_server.error(401, "who are you")) as (model, _):
        with pytest.raises(Permanent, match="some 401: who are you"):
            await model.list_models()
