"""The protocol of embedders.

Before: health, http_embedder, stub, and whatever calls an embedder. After: nothing.
"""

from collections.abc import Sequence
from typing import Protocol

EMBEDDING_DIMENSIONS_MAX = 4_000
"""Largest number of dimensions: the limit of an index on halfvec in pgvector."""


class Embedder(Protocol):
    """Model that turns texts into vectors. A vector is comparable only with those of the same provider, model and
    dimension.
    """

    @property
    def provider(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def dimension(self) -> int:
        """Numbers in a vector; 0 until the first reply, when only the provider knows it."""
        ...

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return a vector of length 1 for each text, in order. Raises EmbedderFailed."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...
