"""A sorted, immutable sequence in chunks: a change copies one chunk and the list of chunks, not all elements.

Before: state.py. After: the schemas.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, TypeVar

ItemT = TypeVar("ItemT")
Chunks = tuple[tuple[ItemT, ...], ...]
CHUNK_MAX = 64
"""Elements of a chunk. 5,000 elements are in 80 to 160 chunks."""


def insert(chunks: Chunks[ItemT], item: ItemT) -> Chunks[ItemT]:
    """Return the sequence with a further element."""
    index = _index(chunks, item)
    if index == len(chunks):
        if chunks and len(chunks[-1]) < CHUNK_MAX:
            return (*chunks[:-1], (*chunks[-1], item))
        return (*chunks, (item,))
    chunk = chunks[index]
    place = _place(chunk, item)
    longer = (*chunk[:place], item, *chunk[place:])
    if len(longer) <= CHUNK_MAX:
        return (*chunks[:index], longer, *chunks[index + 1 :])
    half = CHUNK_MAX // 2
    return (*chunks[:index], longer[:half], longer[half:], *chunks[index + 1 :])


def remove(chunks: Chunks[ItemT], item: ItemT) -> Chunks[ItemT]:
    """Return the sequence without an element; the same when it is not in it."""
    index = _index(chunks, item)
    if index == len(chunks):
        return chunks
    chunk = chunks[index]
    place = _place(chunk, item)
    if chunk[place] != item:
        return chunks
    rest = (*chunk[:place], *chunk[place + 1 :])
    before, after = chunks[:index], chunks[index + 1 :]
    if not rest:
        return (*before, *after)
    if before and len(before[-1]) + len(rest) <= CHUNK_MAX // 2:
        return (*before[:-1], (*before[-1], *rest), *after)
    if after and len(rest) + len(after[0]) <= CHUNK_MAX // 2:
        return (*before, (*rest, *after[0]), *after[1:])
    return (*before, rest, *after)


def without_first(chunks: Chunks[ItemT], count: int) -> Chunks[ItemT]:
    """Return the sequence without its first elements."""
    index = 0
    while count and index < len(chunks) and len(chunks[index]) <= count:
        count -= len(chunks[index])
        index += 1
    if not count or index == len(chunks):
        return chunks[index:]
    return (chunks[index][count:], *chunks[index + 1 :])


def elements(chunks: Chunks[ItemT]) -> Iterator[ItemT]:
    """Yield the elements in order."""
    for chunk in chunks:
        yield from chunk


def _index(chunks: tuple[tuple[Any, ...], ...], item: Any) -> int:
    """Return the index of the first chunk with an element that is not before the item."""
    return bisect_left(chunks, item, key=_last)


def _last(chunk: tuple[Any, ...]) -> Any:
    return chunk[-1]


def _place(chunk: tuple[Any, ...], item: Any) -> int:
    return bisect_left(chunk, item)
