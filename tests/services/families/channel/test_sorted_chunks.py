"""Sorted chunks are a sorted list."""

from bisect import insort

from hypothesis import given
from hypothesis import strategies as st

from loomlog.services.families.channel.sorted_chunks import (
    CHUNK_MAX,
    Chunks,
    elements,
    insert,
    remove,
    without_first,
)

STEPS = st.one_of(
    st.tuples(st.just("insert"), st.integers(0, 500)),
    st.tuples(st.just("remove"), st.integers(0, 500)),
    st.tuples(st.just("without_first"), st.integers(0, 90)),
)


@given(st.integers(0, 400), st.lists(STEPS, max_size=60))
def test_they_have_the_elements_of_a_list_in_order(size: int, steps: list[tuple[str, int]]) -> None:
    chunks: Chunks[int] = ()
    plain: list[int] = []
    for number in range(size):
        chunks, plain = insert(chunks, number), [*plain, number]
    for step, number in steps:
        match step:
            case "insert":
                chunks = insert(chunks, number)
                insort(plain, number)
            case "remove":
                chunks = remove(chunks, number)
                if number in plain:
                    plain.remove(number)
            case _:
                chunks = without_first(chunks, number)
                plain = plain[number:]
        assert list(elements(chunks)) == plain
        assert all(0 < len(chunk) <= CHUNK_MAX for chunk in chunks)


def test_appended_elements_fill_their_chunks() -> None:
    chunks: Chunks[int] = ()
    for number in range(5_000):
        chunks = insert(chunks, number)
    assert len(chunks) == -(-5_000 // CHUNK_MAX)


def test_a_sequence_that_shrinks_has_fewer_chunks() -> None:
    chunks: Chunks[int] = ()
    for number in range(5_000):
        chunks = insert(chunks, number)
    for number in range(5_000):
        if number % 50:
            chunks = remove(chunks, number)
    assert len(chunks) <= 12
