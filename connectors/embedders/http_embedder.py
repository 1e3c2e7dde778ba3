"""Embedder over HTTP: texts in batches, a few attempts for each, and nothing of an answer believed unchecked.

A batch has at most `batch_size` texts, and fewer where its texts or its vectors would be too large. Batches follow one
another: an index that is filled must not use up the rate limit of the searches beside it. Each request has `timeout_s`
from the first byte sent to the last received. 429, 5xx and lost connections are tried again; a request that timed out
is not, because its caller has waited long enough.

Vectors are returned with length 1: products and cosines of them are the same, and every finite vector then fits float32
and halfvec.

Before: catalog.py. After: embedding_apis.py, connectors/models/provider_client.py.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence

from loomlog.connectors.embedders.embedder import EMBEDDING_DIMENSIONS_MAX
from loomlog.connectors.embedders.embedding_apis import EmbeddingApi
from loomlog.connectors.embedders.errors import EmbedderFailed
from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.models.provider_client import ProviderClient
from loomlog.connectors.models.wire_format import encode_body

ATTEMPTS = 3
"""Attempts of a request."""
FIRST_DELAY_S = 0.5
"""Seconds before the second attempt, doubled before each further one."""
BATCH_BYTES = 200_000
"""UTF-8 bytes of the texts of a request. A token has at least one byte, so this stays below OpenAI's 300,000 tokens."""
BATCH_NUMBERS = 300_000
"""Numbers of an answer, which have up to 25 bytes each: below the 8 MiB of an answer."""
ADVICE_BY_KIND = {
    "invalid": "the request was refused; check model, dimensions and key, and that no text is too long for the model",
    "unauthorised": "the API key is not accepted",
    "quota_exhausted": "the account cannot pay for the request",
    "context_exceeded": "a text is too long for the model",
    "forbidden": "the API key may not use this model",
    "not_found": "there is no such model at this address; check model and base_url",
    "deprecated": "the model is retired; choose another",
    "rate_limited": "the rate limit is reached",
    "overloaded": "the provider is overloaded",
    "unavailable": "the provider is not available",
    "timeout": "the provider did not answer in time",
    "network": "the provider cannot be reached",
    "broken_off": "the answer broke off",
    "stale": "the connection was lost",
}
"""What a failure means, by the kind of ConnectorError."""
ADVICE_WITHOUT_STATUS = {
    "invalid": "the answer is too large or the address cannot be used",
    "unavailable": "the answer is not JSON, or the embedder is closed",
}
"""The same for failures without a status, where the meaning differs."""


class HttpEmbedder:
    """Embedder of one provider. `dimensions` 0: those of the model, learned from the first reply if it is unknown.

    `provider` is the name in errors and rows. Raises Permanent for a base URL or key that cannot be used.
    """

    def __init__(
        self,
        api: EmbeddingApi,
        *,
        provider: str,
        model: str,
        api_key: str = "",
        base_url: str = "",
        dimensions: int = 0,
        timeout_s: float = 30.0,
        batch_size: int = 100,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        native = api.dimensions.get(model, 0)
        self.provider = provider
        self.model = model
        self.dimension = dimensions or native
        self._api = api
        self._requested_dimensions = 0 if dimensions == native else dimensions
        self._timeout_s = timeout_s
        self._batch_size = min(batch_size, api.texts_max)
        self._sleep = sleep
        self._client = ProviderClient(
            provider=provider,
            base_url=base_url or api.base_url,
            headers=api.headers(api_key),
            secret=api_key,
            header_timeout_s=timeout_s,
            idle_timeout_s=timeout_s,
        )

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text. Raises EmbedderFailed; the batches before it are lost then."""
        vectors: list[list[float]] = []
        for batch in self._batches(texts):
            vectors += self._checked(await self._request(batch), len(batch))
        return vectors

    async def close(self) -> None:
        await self._client.close()

    def _batches(self, texts: Sequence[str]) -> Iterator[Sequence[str]]:
        start = 0
        while start < len(texts):
            size_max = min(self._batch_size, BATCH_NUMBERS // (self.dimension or EMBEDDING_DIMENSIONS_MAX))
            end, size = start, 0
            while end < min(len(texts), start + size_max):
                size += len(texts[end].encode(errors="replace"))
                if size > BATCH_BYTES and end > start:
                    break
                end += 1
            yield texts[start:end]
            start = end

    async def _request(self, texts: Sequence[str]) -> object:
        try:
            body = encode_body(self.provider, self._api.body(self.model, texts, self._requested_dimensions))
        except Permanent:
            raise self._failed("a text has half of a surrogate pair, which is no UTF-8; remove it") from None
        attempt = 0
        while True:
            attempt += 1
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await self._client.post_json(self._api.path(self.model), body)
            except TimeoutError:
                raise EmbedderFailed(
                    f"{self.provider}: no answer within {self._timeout_s:g} s", kind="timeout", retryable=True
                ) from None
            except ConnectorError as error:
                delay_s = self._delay_s(error, attempt)
                if delay_s is None:
                    raise _failure_of(self.provider, error) from None
            await self._sleep(delay_s)

    def _delay_s(self, error: ConnectorError, attempt: int) -> float | None:
        """Return the seconds until the next attempt; None if there is none."""
        is_own_timeout = error.kind == "timeout" and not error.status
        if not isinstance(error, Transient) or is_own_timeout or attempt == ATTEMPTS:
            return None
        requested_s = error.retry_after_s or 0.0
        return None if requested_s > self._timeout_s else max(requested_s, FIRST_DELAY_S * 2 ** (attempt - 1))

    def _checked(self, reply: object, texts: int) -> list[list[float]]:
        """Return the vectors of a reply with length 1. Raises EmbedderFailed unless each text has one, all of them
        have the expected dimension, and they are finite and not zero.
        """
        vectors = self._api.vectors(reply)
        if len(vectors) != texts:
            raise self._failed(f"answered with {len(vectors)} vectors for {texts} texts")
        if not all(isinstance(vector, list) and vector and {*map(type, vector)} <= {int, float} for vector in vectors):
            raise self._failed("answered with a vector that is no list of numbers")
        expected = self.dimension or len(vectors[0])
        if expected > EMBEDDING_DIMENSIONS_MAX:
            raise self._failed(
                f"the vectors have {expected} dimensions and at most {EMBEDDING_DIMENSIONS_MAX} can be stored;"
                " set memory.embedder.dimensions or choose another model"
            )
        for vector in vectors:
            if len(vector) != expected:
                raise self._failed(
                    f"answered with a vector of {len(vector)} dimensions instead of {expected};"
                    " check memory.embedder.model and dimensions"
                )
        lengths = [math.hypot(*vector) for vector in vectors]
        if not all(0 < length < math.inf for length in lengths):
            raise self._failed("answered with a vector of zeros, or with numbers that are not finite")
        self.dimension = expected
        return [[number / length for number in vector] for vector, length in zip(vectors, lengths, strict=True)]

    def _failed(self, detail: str) -> EmbedderFailed:
        return EmbedderFailed(f"{self.provider}: {detail}")


def _failure_of(provider: str, error: ConnectorError) -> EmbedderFailed:
    """Return the failure for the error of a request, without the words of the provider."""
    advice = "" if error.status else ADVICE_WITHOUT_STATUS.get(error.kind, "")
    return EmbedderFailed(
        f"{provider}{f' {error.status}' if error.status else ''}: {advice or ADVICE_BY_KIND[error.kind]}",
        kind="timeout" if error.kind == "timeout" else "other",
        retryable=isinstance(error, Transient),
        retry_after_s=error.retry_after_s if isinstance(error, Transient) else None,
    )
