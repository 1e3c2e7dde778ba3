"""Errors of embedders.

    EmbedderFailed            a call: temporary or not, see `retryable`
    EmbedderNotConfigured     the configuration cannot be used (a ValueError, raised when it is built)

The text of EmbedderFailed reaches agents, so it has the provider's name, the status and advice, and never an address, a
key, the provider's own words, or a text that was embedded.

Before: connectors/embedders and its callers. After: nothing.
"""

from typing import Literal

FailureKind = Literal["timeout", "canceled", "other"]


class EmbedderFailed(Exception):
    """A call failed. `retryable`: the same call may succeed later, not before `retry_after_s` seconds if the provider
    named a time.
    """

    def __init__(
        self, message: str, *, kind: FailureKind = "other", retryable: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class EmbedderNotConfigured(ValueError):
    """The embedder's configuration cannot be used."""
