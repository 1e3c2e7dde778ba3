"""Errors of the client.

ClientError
├── Unreachable          no connection, or it was lost, for longer than the client retries
├── InvalidResponse      the address is not a loomlog API
└── ApiError             the API refused: `code`, `status`, `details`, `request_id`, `retry_after_s`
    ├── Unauthorized     401: no token, or an unknown one
    └── ApiUnavailable   503 that passes by itself: a dependency is down or not ready; retry
"""

from collections.abc import Mapping
from typing import Any

LASTING_CODES = frozenset(
    {"runtime_paused", "tier_unavailable", "pin_unavailable", "credentials_off", "encryption_off"}
)
"""Codes of a 503 that an immediate retry does not change: an operator has to resume or set up something."""


class ClientError(Exception):
    """Base of all errors of the client; str() is a sentence."""


class Unreachable(ClientError):
    """The API cannot be reached."""


class InvalidResponse(ClientError):
    """The response is not one of a loomlog API."""


class ApiError(ClientError):
    """The API refused the request. `code` is its stable reason code, `details` the whole body."""

    def __init__(
        self, message: str, *, code: str, status: int, details: Mapping[str, Any], retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.details = details
        self.retry_after_s = retry_after_s

    @property
    def request_id(self) -> str:
        """Id of the request in the logs of the API; empty when the response has none."""
        return str(self.details.get("request_id") or "")


class Unauthorized(ApiError):
    """The token is missing or unknown."""


class ApiUnavailable(ApiError):
    """A service that the API depends on is down or not ready yet; the request may be repeated."""


def api_error_class(status: int, code: str) -> type[ApiError]:
    """Return the class of a refusal."""
    if status == 401:
        return Unauthorized
    return ApiUnavailable if status == 503 and code not in LASTING_CODES else ApiError
