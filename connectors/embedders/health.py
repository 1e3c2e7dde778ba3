"""Health of the embedder, for administrators and the change feed.

Counters and kinds only: error texts name what this module must not reveal to the readers of a feed.

Before: catalog.py, which wraps every embedder in it; the api, the change feed. After: the wrapped embedder.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from loomlog.connectors.embedders.embedder import Embedder
from loomlog.connectors.embedders.errors import EmbedderFailed, FailureKind


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderHealth:
    """Outcomes since the process started.

    `state`: absent (none is configured), untried, ok or failing, by the last call that was not cancelled. A cancelled
    call counts as a failure of kind canceled and leaves the state: it says nothing about the embedder.
    """

    state: Literal["absent", "untried", "ok", "failing"] = "untried"
    successes: int = 0
    failures: int = 0
    last_failure_kind: FailureKind | None = None
    last_failure_at_ms: int | None = None


ABSENT = EmbedderHealth(state="absent")


class HealthTrackingEmbedder:
    """Embedder that counts the outcomes of its calls in `health`. `clock_ms`: UTC milliseconds."""

    def __init__(self, embedder: Embedder, *, clock_ms: Callable[[], int]) -> None:
        self._embedder = embedder
        self._clock_ms = clock_ms
        self.health = EmbedderHealth()

    @property
    def provider(self) -> str:
        return self._embedder.provider

    @property
    def model(self) -> str:
        return self._embedder.model

    @property
    def dimension(self) -> int:
        return self._embedder.dimension

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return the vectors and count the call, unless there is no text."""
        if not texts:
            return []
        try:
            vectors = await self._embedder.embed(texts)
        except asyncio.CancelledError:
            self._count_failure("canceled")
            raise
        except Exception as error:
            self._count_failure(error.kind if isinstance(error, EmbedderFailed) else "other")
            raise
        self.health = replace(self.health, state="ok", successes=self.health.successes + 1)
        return vectors

    async def close(self) -> None:
        await self._embedder.close()

    def _count_failure(self, kind: FailureKind) -> None:
        self.health = replace(
            self.health,
            state=self.health.state if kind == "canceled" else "failing",
            failures=self.health.failures + 1,
            last_failure_kind=kind,
            last_failure_at_ms=self._clock_ms(),
        )
