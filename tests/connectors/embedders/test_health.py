import asyncio
from collections.abc import Sequence

import pytest

from loomlog.connectors.embedders.errors import EmbedderFailed
from loomlog.connectors.embedders.health import ABSENT, EmbedderHealth, HealthTrackingEmbedder


class Scripted:
    """Embedder whose calls end as the script says."""

    provider, model, dimension = "scripted", "one", 2

    def __init__(self, *outcomes: BaseException | None) -> None:
        self.outcomes = list(outcomes)
        self.is_closed = False

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        outcome = self.outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return [[1.0, 0.0]] * len(texts)

    async def close(self) -> None:
        self.is_closed = True


def tracking(*outcomes: BaseException | None) -> HealthTrackingEmbedder:
    times = iter(range(1_000, 9_000, 1_000))
    return HealthTrackingEmbedder(Scripted(*outcomes), clock_ms=lambda: next(times))


async def test_the_state_follows_the_calls() -> None:
    failure = EmbedderFailed("scripted: no answer within 30 s", kind="timeout", retryable=True)
    embedder = tracking(None, failure, EmbedderFailed("scripted 401: no"), None)
    assert (embedder.provider, embedder.model, embedder.dimension) == ("scripted", "one", 2)
    assert embedder.health == EmbedderHealth(state="untried")
    assert await embedder.embed(["a", "b"]) == [[1.0, 0.0], [1.0, 0.0]]
    assert embedder.health == EmbedderHealth(state="ok", successes=1)
    with pytest.raises(EmbedderFailed) as caught:
        await embedder.embed(["a"])
    assert caught.value is failure
    expected = EmbedderHealth(
        state="failing", successes=1, failures=1, last_failure_kind="timeout", last_failure_at_ms=1_000
    )
    assert embedder.health == expected
    with pytest.raises(EmbedderFailed):
        await embedder.embed(["a"])
    assert (embedder.health.failures, embedder.health.last_failure_kind) == (2, "other")
    await embedder.embed(["a"])
    assert (embedder.health.state, embedder.health.successes, embedder.health.failures) == ("ok", 2, 2)
    assert embedder.health.last_failure_at_ms == 2_000


async def test_a_cancelled_call_is_counted_and_leaves_the_state() -> None:
    embedder = tracking(asyncio.CancelledError(), None, asyncio.CancelledError())
    for state in ("untried", "ok"):
        with pytest.raises(asyncio.CancelledError):
            await embedder.embed(["a"])
        assert (embedder.health.state, embedder.health.last_failure_kind) == (state, "canceled")
        if state == "untried":
            await embedder.embed(["a"])
    assert (embedder.health.successes, embedder.health.failures) == (1, 2)


async def test_an_unexpected_error_is_counted_and_raised() -> None:
    embedder = tracking(RuntimeError("a text and http://10.0.0.7"))
    with pytest.raises(RuntimeError):
        await embedder.embed(["a"])
    assert (embedder.health.state, embedder.health.last_failure_kind) == ("failing", "other")
    assert "10.0.0.7" not in repr(embedder.health)


async def test_no_texts_are_no_call() -> None:
    embedder = tracking()
    assert await embedder.embed([]) == []
    assert embedder.health.state == "untried"
    assert ABSENT.state == "absent"


async def test_closing_closes_the_embedder() -> None:
    inner = Scripted()
    await HealthTrackingEmbedder(inner, clock_ms=lambda: 0).close()
    assert inner.is_closed
