import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.embedders.stub import StubEmbedder

PINNED = [0.353553, 0.0, 0.0, 0.0, 0.612372, -0.353553, 0.612372, 0.0]
"""Vector of "the cat" in 8 dimensions."""


async def vector_of(text: str, dimensions: int = 256) -> list[float]:
    [vector] = await StubEmbedder(dimensions=dimensions).embed([text])
    return vector


async def similarity(one: str, other: str) -> float:
    first, second = await StubEmbedder().embed([one, other])
    return sum(a * b for a, b in zip(first, second, strict=True))


async def test_a_vector_is_the_same_in_every_process() -> None:
    vector = await vector_of("the cat sat")
    assert len(vector) == 256
    assert [round(number, 6) for number in (await vector_of("the cat", 8))] == PINNED
    assert vector == await vector_of("the CAT\n sat!")


@given(text=st.text(max_size=200), dimensions=st.sampled_from([1, 2, 3, 64, 256]))
async def test_every_text_has_a_vector_of_length_one(text: str, dimensions: int) -> None:
    vector = await vector_of(text, dimensions)
    assert len(vector) == dimensions
    assert math.hypot(*vector) == pytest.approx(1.0)


@pytest.mark.parametrize("text", ["", " ", "!?", "\ud83d", "\x00", "日本語のテキスト"])
async def test_odd_texts_have_vectors(text: str) -> None:
    assert math.hypot(*await vector_of(text)) == pytest.approx(1.0)


async def test_similar_texts_are_similar() -> None:
    base = "Ann prefers green tea in the morning"
    same_words = await similarity(base, "In the morning Ann prefers green tea")
    one_changed = await similarity(base, "Ann prefers black tea in the morning")
    inflected = await similarity("deployment failed twice", "deployments fail")
    unrelated = await similarity(base, "kubernetes cluster rollback script")
    assert same_words == pytest.approx(1.0)
    assert 0.6 < one_changed < 0.99
    assert inflected > 0.3
    assert abs(unrelated) < 0.2


async def test_each_text_has_its_own_vector_in_order() -> None:
    embedder = StubEmbedder(model="stub-64", dimensions=64)
    assert (embedder.provider, embedder.model, embedder.dimension) == ("stub", "stub-64", 64)
    one, two, again = await embedder.embed(["alpha beta", "gamma", "alpha beta"])
    assert one == again != two
    assert await embedder.embed([]) == []
    await embedder.close()
