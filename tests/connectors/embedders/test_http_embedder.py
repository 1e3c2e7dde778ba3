"""Each embedder over HTTP against a server that misbehaves: what is sent, and what a fault becomes."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from loomlog.connectors.embedders.catalog import APIS
from loomlog.connectors.embedders.embedder import EMBEDDING_DIMENSIONS_MAX
from loomlog.connectors.embedders.errors import EmbedderFailed
from loomlog.connectors.embedders.http_embedder import ATTEMPTS, BATCH_BYTES, HttpEmbedder
from tests.connectors.models import fault_server
from tests.connectors.models.fault_server import Answer, FaultServer, Peer, Received

KEY = "sk-very-secret"
TEXT = "the launch code of the vault is kept in a tin box under the stairs, says Ann"
UNIT = [0.6, 0.8, 0.0]


@dataclass(frozen=True)
class Driver:
    provider: str
    model: str
    path: str
    key_header: tuple[str, str]
    reply: Callable[[Sequence[Any]], Any]
    texts: Callable[[Received], list[str]]
    dimensions_field: Callable[[Any], Any]


def _openai_reply(vectors: Sequence[Any]) -> Any:
    return {"data": [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]}


def _gemini_texts(request: Received) -> list[str]:
    return [entry["content"]["parts"][0]["text"] for entry in request.json["requests"]]


BEARER = ("authorization", f"Bearer {KEY}")
DRIVERS = [
    Driver(
        provider="openai",
        model="custom-embed",
        path="/embeddings",
        key_header=BEARER,
        reply=_openai_reply,
        texts=lambda request: request.json["input"],
        dimensions_field=lambda body: body.get("dimensions"),
    ),
    Driver(
        provider="voyage",
        model="custom-embed",
        path="/embeddings",
        key_header=BEARER,
        reply=_openai_reply,
        texts=lambda request: request.json["input"],
        dimensions_field=lambda body: body.get("output_dimension"),
    ),
    Driver(
        provider="gemini",
        model="models/custom-embed",
        path="/models/custom-embed:batchEmbedContents",
        key_header=("x-goog-api-key", KEY),
        reply=lambda vectors: {"embeddings": [{"values": vector} for vector in vectors]},
        texts=_gemini_texts,
        dimensions_field=lambda body: body["requests"][0].get("outputDimensionality"),
    ),
    Driver(
        provider="ollama",
        model="custom-embed",
        path="/api/embed",
        key_header=BEARER,
        reply=lambda vectors: {"model": "custom-embed", "embeddings": list(vectors)},
        texts=lambda request: request.json["input"],
        dimensions_field=lambda body: body.get("dimensions"),
    ),
]
each_driver = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.provider)
OPENAI = DRIVERS[0]


class Sleeps:
    """Delays that were requested, without waiting for them."""

    def __init__(self) -> None:
        self.delays_s: list[float] = []

    async def __call__(self, delay_s: float) -> None:
        self.delays_s.append(delay_s)


@asynccontextmanager
async def talking(driver: Driver, answer: Answer, **options: Any) -> AsyncIterator[tuple[HttpEmbedder, FaultServer]]:
    async with FaultServer(answer) as server:
        values: dict[str, Any] = {"model": driver.model, "timeout_s": 5.0, "sleep": Sleeps()} | options
        embedder = HttpEmbedder(
            APIS[driver.provider], provider=driver.provider, api_key=KEY, base_url=server.url, **values
        )
        try:
            async with asyncio.timeout(30):
                yield embedder, server
        finally:
            await embedder.close()


def embedding(driver: Driver, vector: Callable[[str], Any] = lambda text: UNIT) -> Answer:
    """Answer every request with the vectors of its texts."""

    async def answer(peer: Peer) -> None:
        vectors = [vector(text) for text in driver.texts(peer.request)]
        await fault_server.document(driver.reply(vectors))(peer)

    return answer


def failing_first(times: int, fault: Answer, then: Answer) -> Answer:
    left = [times]

    async def answer(peer: Peer) -> None:
        left[0] -= 1
        await (fault if left[0] >= 0 else then)(peer)

    return answer


async def failure_of(driver: Driver, answer: Answer, **options: Any) -> EmbedderFailed:
    """Return the failure of one call, whose text must reveal nothing."""
    async with talking(driver, answer, **options) as (embedder, server):
        with pytest.raises(EmbedderFailed) as caught:
            await embedder.embed([TEXT])
        text = str(caught.value)
        assert caught.value.__suppress_context__ or caught.value.__context__ is None  # nor in its traceback
        for secret in (KEY, server.url, "127.0.0.1", "http", TEXT[:12], "tin box"):
            assert secret not in text
        assert text.startswith(driver.provider)
        assert "\n" not in text
        return caught.value


@each_driver
async def test_a_text_is_sent_with_model_and_key_and_its_vector_has_length_one(driver: Driver) -> None:
    async with talking(driver, embedding(driver, lambda text: [3, 4.0, 0])) as (embedder, server):
        assert embedder.dimension == 0
        assert await embedder.embed([TEXT]) == [UNIT]
        assert embedder.dimension == 3
        [request] = server.requests
        assert (request.method, request.path) == ("POST", driver.path)
        name, value = driver.key_header
        assert request.headers[name] == value
        assert driver.texts(request) == [TEXT]
        assert b"custom-embed" in request.body
        assert driver.dimensions_field(request.json) is None
        assert KEY.encode() not in request.body
        assert KEY not in request.path


@each_driver
async def test_dimensions_are_sent_and_expected(driver: Driver) -> None:
    async with talking(driver, embedding(driver), dimensions=3) as (embedder, server):
        assert embedder.dimension == 3
        assert len(await embedder.embed(["a"])) == 1
        assert driver.dimensions_field(server.requests[0].json) == 3
    failure = await failure_of(driver, embedding(driver), dimensions=4)
    assert "vector of 3 dimensions instead of 4" in str(failure)
    assert not failure.retryable


async def test_dimensions_that_a_known_model_has_anyway_are_not_sent() -> None:
    options = {"model": "text-embedding-ada-002", "dimensions": 1_536}  # the API refuses them for this model
    async with talking(OPENAI, embedding(OPENAI, lambda text: [1.0] * 1_536), **options) as (embedder, server):
        assert embedder.dimension == 1_536
        await embedder.embed(["a"])
        assert "dimensions" not in server.requests[0].json


@each_driver
async def test_texts_are_sent_in_batches_one_after_another_and_keep_their_order(driver: Driver) -> None:
    active: list[int] = []

    async def answer(peer: Peer) -> None:
        active.append(len(active))
        await asyncio.sleep(0.01)
        await embedding(driver, lambda text: [1.0, float(text), 0.0])(peer)
        active.pop()
        assert not active, "two requests at a time"

    async with talking(driver, answer, batch_size=3) as (embedder, server):
        vectors = await embedder.embed([str(number) for number in range(8)])
        assert [round(vector[1] / vector[0]) for vector in vectors] == list(range(8))
        assert [len(driver.texts(request)) for request in server.requests] == [3, 3, 2]
        assert server.connections == 1


async def test_no_texts_are_no_request() -> None:
    async with talking(OPENAI, embedding(OPENAI)) as (embedder, server):
        assert await embedder.embed([]) == []
        assert not server.requests


async def test_a_batch_is_smaller_when_its_texts_or_vectors_are_large() -> None:
    texts = ["é" * (BATCH_BYTES // 4), "b" * (BATCH_BYTES // 2), "c", "d" * (BATCH_BYTES * 2), "e"]
    async with talking(OPENAI, embedding(OPENAI)) as (embedder, server):
        await embedder.embed(texts)
        assert [len(OPENAI.texts(request)) for request in server.requests] == [2, 1, 1, 1]
    answer = embedding(OPENAI, lambda text: [-0.012345678901234567] * EMBEDDING_DIMENSIONS_MAX)
    async with talking(OPENAI, answer, dimensions=EMBEDDING_DIMENSIONS_MAX) as (embedder, server):
        assert len(await embedder.embed(["a"] * 100)) == 100
        assert [len(OPENAI.texts(request)) for request in server.requests] == [75, 25]


async def test_gemini_takes_at_most_a_hundred_texts_in_a_request() -> None:
    gemini = DRIVERS[2]
    async with talking(gemini, embedding(gemini), batch_size=500, dimensions=3) as (embedder, server):
        await embedder.embed(["a"] * 150)
        assert [len(gemini.texts(request)) for request in server.requests] == [100, 50]


@pytest.mark.parametrize("indexes", [[2, 0, 1], [0, 0, 0], [None, None, None], ["x", 7, []]])
async def test_vectors_are_sorted_by_index_where_there_are_indexes(indexes: list[Any]) -> None:
    data = [{"index": index, "embedding": [float(place + 1), 1.0]} for place, index in enumerate(indexes)]
    async with talking(OPENAI, fault_server.document({"data": data})) as (embedder, _):
        vectors = await embedder.embed(["a", "b", "c"])
        order = [round(vector[0] / vector[1]) for vector in vectors]
        assert order == ([2, 3, 1] if indexes == [2, 0, 1] else [1, 2, 3])


@each_driver
@pytest.mark.parametrize("code", [429, 500, 503, 529, 504])
async def test_a_temporary_failure_is_tried_again(driver: Driver, code: int) -> None:
    sleeps = Sleeps()
    fault = fault_server.error(code, f"no capacity for {TEXT} with {KEY}")
    async with talking(driver, failing_first(2, fault, embedding(driver)), sleep=sleeps) as (embedder, server):
        assert await embedder.embed([TEXT]) == [UNIT]
        assert len(server.requests) == ATTEMPTS
        assert sleeps.delays_s == [0.5, 1.0]


@each_driver
async def test_a_lost_connection_is_tried_again(driver: Driver) -> None:
    async with talking(driver, failing_first(1, fault_server.resetting, embedding(driver))) as (embedder, _):
        assert await embedder.embed([TEXT]) == [UNIT]


@each_driver
@pytest.mark.parametrize(
    ("code", "retryable", "advice"),
    [
        (400, False, "check model"),
        (401, False, "key"),
        (403, False, "key"),
        (404, False, "no such model"),
        (302, False, "check model"),
        (429, True, "rate limit"),
        (503, True, "not available"),
    ],
)
async def test_a_failure_says_the_status_and_what_to_do(
    driver: Driver, code: int, retryable: bool, advice: str
) -> None:
    failure = await failure_of(driver, fault_server.error(code, f"{KEY} at http://10.0.0.7/ sent {TEXT}"))
    assert (failure.kind, failure.retryable) == ("other", retryable)
    assert str(failure).startswith(f"{driver.provider} {code}: ")
    assert advice in str(failure)


async def test_a_failure_that_stays_is_given_up_after_three_attempts() -> None:
    async with talking(OPENAI, fault_server.error(500, "no")) as (embedder, server):
        with pytest.raises(EmbedderFailed):
            await embedder.embed([TEXT])
        assert len(server.requests) == ATTEMPTS
    async with talking(OPENAI, fault_server.error(400, "no")) as (embedder, server):
        with pytest.raises(EmbedderFailed):
            await embedder.embed([TEXT])
        assert len(server.requests) == 1


async def test_a_requested_delay_is_kept_unless_it_is_longer_than_the_timeout() -> None:
    sleeps = Sleeps()
    fault = fault_server.error(429, "slow down", retry_after="3")
    async with talking(OPENAI, failing_first(1, fault, embedding(OPENAI)), sleep=sleeps) as (embedder, _):
        assert await embedder.embed([TEXT]) == [UNIT]
        assert sleeps.delays_s == [3.0]
    failure = await failure_of(OPENAI, fault_server.error(429, "slow down", retry_after="600"), sleep=sleeps)
    assert sleeps.delays_s == [3.0]
    assert failure.retryable
    assert failure.retry_after_s == 600.0


async def trickling(peer: Peer) -> None:
    """An answer that never ends and is never silent."""
    await peer.head(200, content_type="application/json", transfer_encoding="chunked")
    while True:
        await peer.chunk(b" ")
        await asyncio.sleep(0.05)


@each_driver
@pytest.mark.parametrize("answer", [fault_server.silent, trickling], ids=["silent", "trickling"])
async def test_an_embedder_that_hangs_times_out_once(driver: Driver, answer: Answer) -> None:
    sleeps = Sleeps()
    failure = await failure_of(driver, answer, timeout_s=0.3, sleep=sleeps)
    assert (failure.kind, failure.retryable) == ("timeout", True)
    assert not sleeps.delays_s


async def test_a_provider_that_is_not_there() -> None:
    async with FaultServer(fault_server.silent) as server:
        url = server.url
    embedder = HttpEmbedder(APIS["openai"], provider="openai", model="m", base_url=url, sleep=Sleeps())
    with pytest.raises(EmbedderFailed, match="openai: the provider cannot be reached") as caught:
        await embedder.embed([TEXT])
    assert caught.value.retryable
    assert url not in str(caught.value)
    await embedder.close()
    with pytest.raises(EmbedderFailed, match="closed"):
        await embedder.embed([TEXT])


@each_driver
async def test_a_cancelled_call_is_cancelled_and_its_connection_closed(driver: Driver) -> None:
    async with talking(driver, fault_server.silent, timeout_s=10.0) as (embedder, server):
        call = asyncio.create_task(embedder.embed([TEXT]))
        while not server.requests:
            await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await server.closed_by_client.wait()


BAD_VECTORS: dict[str, tuple[Any, str]] = {
    "empty": ([], "no list of numbers"),
    "text": (["0.6", "0.8"], "no list of numbers"),
    "null": ([None, 0.8], "no list of numbers"),
    "booleans": ([True, False], "no list of numbers"),
    "nested": ([[0.6], [0.8]], "no list of numbers"),
    "an object": ({"0": 0.6}, "no list of numbers"),
    "missing": (None, "no list of numbers"),
    "zeros": ([0, 0.0, 0], "zeros"),
    "too large together": ([1.7e308, 1.7e308], "not finite"),
    "too many dimensions": ([0.1] * (EMBEDDING_DIMENSIONS_MAX + 1), "at most 4000"),
}


@each_driver
@pytest.mark.parametrize(("vector", "message"), BAD_VECTORS.values(), ids=BAD_VECTORS)
async def test_a_bad_vector_is_refused(driver: Driver, vector: Any, message: str) -> None:
    failure = await failure_of(driver, embedding(driver, lambda text: vector))
    assert message in str(failure)
    assert (failure.kind, failure.retryable) == ("other", False)


@each_driver
@pytest.mark.parametrize("vectors", [[], [UNIT, UNIT]], ids=["none", "two"])
async def test_another_number_of_vectors_than_texts_is_refused(driver: Driver, vectors: list[Any]) -> None:
    failure = await failure_of(driver, fault_server.document(driver.reply(vectors)))
    assert f"{len(vectors)} vectors for 1 texts" in str(failure)


@each_driver
@pytest.mark.parametrize("document", [None, [], {}, 7, "text", {"data": 3, "embeddings": "x"}], ids=repr)
async def test_another_document_is_refused(driver: Driver, document: Any) -> None:
    assert "0 vectors for 1 texts" in str(await failure_of(driver, fault_server.document(document)))


@each_driver
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400"])
async def test_a_number_that_is_none_is_refused(driver: Driver, number: str) -> None:
    body = json.dumps(driver.reply([["?", 0.5]])).replace('"?"', number).encode()
    assert "not JSON" in str(await failure_of(driver, fault_server.status(200, body)))
    escaped = body[:-1] + b', "note": "\\ud83d"}'  # read by another parser, which takes NaN
    assert "not JSON" in str(await failure_of(driver, fault_server.status(200, escaped)))


@each_driver
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not JSON"),
        (b"<html>" + b"g" * 3_000_000, "not JSON"),
        (b"[" * 3_000_000, "not JSON"),
        (b" " * 9_000_000, "too large"),
    ],
    ids=["nothing", "3 MB of garbage", "deep", "9 MB"],
)
async def test_a_body_that_is_no_answer(driver: Driver, body: bytes, message: str) -> None:
    assert message in str(await failure_of(driver, fault_server.status(200, body)))


@each_driver
async def test_vectors_of_different_lengths_are_refused_and_teach_nothing(driver: Driver) -> None:
    answer = embedding(driver, lambda text: UNIT if text == "a" else [1.0, 0.0])
    async with talking(driver, answer) as (embedder, _):
        with pytest.raises(EmbedderFailed, match="vector of 2 dimensions instead of 3"):
            await embedder.embed(["a", "b"])
        assert embedder.dimension == 0
        await embedder.embed(["b"])
        with pytest.raises(EmbedderFailed, match="vector of 3 dimensions instead of 2"):
            await embedder.embed(["a"])


@each_driver
async def test_very_small_and_very_large_numbers_become_a_vector_of_length_one(driver: Driver) -> None:
    sizes = {"a": [3e-200, 4e-200], "b": [3e200, 4e200], "c": [3, 4]}
    async with talking(driver, embedding(driver, sizes.__getitem__)) as (embedder, _):
        for vector in await embedder.embed(["a", "b", "c"]):
            assert vector == pytest.approx([0.6, 0.8])
            assert math.hypot(*vector) == pytest.approx(1.0)


@each_driver
async def test_half_a_surrogate_pair_is_refused_before_it_is_sent(driver: Driver) -> None:
    async with talking(driver, embedding(driver)) as (embedder, server):
        with pytest.raises(EmbedderFailed, match="surrogate"):
            await embedder.embed(["a", "\ud83d"])
        assert not server.requests
