"""Errors of embedders. `code` is the error code of answers over HTTP and of tools.

    EmbedderError
      EmbedderFailed            a call: temporary or not, see `retryable`
      EmbedderNotConfigured     the configuration cannot be used (a ValueError, raised when it is built)
        EmbedderNotImplemented  no such provider

The text of EmbedderFailed reaches agents, so it has the provider's name, the status and advice, and never an address, a
key, the provider's own words, or a text that was embedded.

Before: connectors/embedders and its callers. After: nothing.
"""

from typing import ClassVar, Literal

FailureKind = Literal["timeout", "canceled", "other"]


class EmbedderError(Exception):
    """No vectors."""

    code: ClassVar[str] = "embed_failed"


class EmbedderFailed(EmbedderError):
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


class EmbedderNotConfigured(EmbedderError, ValueError):
    """The embedder's configuration cannot be used."""

    code = "embedder_not_configured"


class EmbedderNotImplemented(EmbedderNotConfigured):
    """The configuration names a provider without embeddings here."""

    code = "embedder_not_implemented"
