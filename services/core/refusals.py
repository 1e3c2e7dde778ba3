"""How an operation above the connectors refuses or fails: one class for "no", one for "no answer".

Decisions refuse otherwise: with a value that becomes an event.

Before: services/application, services/families/operation.py. After: error_codes.py has how each surface shows a code.
"""

from collections.abc import Mapping
from typing import Any


class Refused(Exception):
    """Nothing was done, or (codes that end in _pending) it will be done later. The text says what to do.

    `code` is a row of error_codes.py, or one of a newer owner. `details` join the answer. `retry_after_s`: seconds.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details: Mapping[str, Any] = details or {}
        self.retry_after_s = retry_after_s


class Unavailable(Exception):
    """A store, the log or an owner does not answer; the text says which. Asking again with the same command id does no
    harm.

    `is_unknown`: a write may have been carried out, or may still be.
    """

    def __init__(self, message: str, *, is_unknown: bool = False) -> None:
        super().__init__(message)
        self.is_unknown = is_unknown
