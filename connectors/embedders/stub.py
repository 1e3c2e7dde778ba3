"""Embedder without a network, for tests and demonstrations: signed feature hashing of words and their trigrams.

Texts that share words are similar, texts that share parts of words a little less; meaning is not known to it. The same
text has the same vector in every process and version: changing the features is changing the model.

Before: catalog.py. After: nothing.
"""

import asyncio
import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

STUB_DIMENSIONS = 256
_WORD = re.compile(r"\w+")
_CACHED_FEATURES = 16_384


class StubEmbedder:
    """Hashed words. `dimensions`: numbers in a vector."""

    def __init__(self, *, provider: str = "stub", model: str = "stub", dimensions: int = STUB_DIMENSIONS) -> None:
        self.provider = provider
        self.model = model
        self.dimension = dimensions

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        vectors = []
        for text in texts:
            vectors.append(_vector(text, self.dimension))
            await asyncio.sleep(0)  # a long text takes some 20 ms
        return vectors

    async def close(self) -> None:
        pass


def _vector(text: str, dimensions: int) -> list[float]:
    """Return the vector of a text, with length 1."""
    vector = [0.0] * dimensions
    words = Counter(_WORD.findall(text.lower())) or Counter([text])
    for word, occurrences in words.items():
        weight = 1.0 + math.log(occurrences)
        padded = f" {word} "
        trigrams = [padded[start : start + 3] for start in range(max(len(padded) - 2, 1))]
        _add(vector, f"word:{word}", weight)
        for trigram in trigrams:
            _add(vector, trigram, weight / math.sqrt(len(trigrams)))
    length = math.hypot(*vector)
    if not length:  # the features cancel one another, in very few dimensions
        return [1.0] + [0.0] * (dimensions - 1)
    return [number / length for number in vector]


def _add(vector: list[float], feature: str, weight: float) -> None:
    hashed = _hash(feature)
    vector[(hashed >> 1) % len(vector)] += weight if hashed & 1 else -weight


@lru_cache(maxsize=_CACHED_FEATURES)
def _hash(feature: str) -> int:
    return int.from_bytes(blake2b(feature.encode(errors="replace"), digest_size=8).digest())
