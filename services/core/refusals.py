"""How an operation above the connectors refuses or fails: one class for "no", one for "no answer"; one for a process
that cannot start.

Decisions refuse otherwise: with a value that becomes an event, which `decided_refusal` translates.

Before: services/application, services/families/operation.py. After: error_codes.py has how each surface shows a code.
"""

from collections.abc import Mapping
from typing import Any

from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.error_codes import STATUS_BY_CODE

DECIDED_CODES: Mapping[str, str] = {
    "quarantined": "aggregate_quarantined",
    **{
        code: code
        for code in (
            "bad_request",
            "not_found",
            "empty_text",
            "invalid_answer",
            "invalid_registration",
            "already_completed",
            "already_pausing",
            "not_paused",
            "content_erased",
            "queue_full",
            "backpressure",
            "token_limit_exceeded",
            "token_not_found",
            "user_not_found",
            "user_exists",
            "user_disabled",
            "missing_subject",
            "invalid_access_mode",
            "invalid_status",
        )
    },
}
"""Codes of the commands of families that clients know by a name of this API; the others are in `refusal` of a
command_invalid or command_refused. Not among them: codes about the caller, the transport or a dependency, which a
decision cannot be about.
"""
INVALID_PREFIXES = ("invalid", "bad", "too_", "unknown", "empty", "missing")
INVALID_SUFFIXES = ("_invalid", "_too_large", "_too_long", "_too_many")
"""A code like that is about the command, whatever the state: sent again, it is refused again."""
FULL_RETRY_S = 5
"""Seconds after which something that is full may take more."""


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

    `is_unknown`: a write may have been carried out, or may still be. `code`: that of a request's refusal; empty: that
    of the operation. `details` join the answer.
    """

    def __init__(
        self, message: str, *, is_unknown: bool = False, code: str = "", details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.is_unknown = is_unknown
        self.code = code
        self.details: Mapping[str, Any] = details or {}


class StartProblem(Exception):
    """What a person has to change before a process can start; the text names the setting and says how."""


def request_refusal(refused: Refused) -> Refused:
    """Return a refusal of a family with a code that clients of requests know; its own is then in `refusal`."""
    code, details = refused.code, refused.details
    if code not in STATUS_BY_CODE:
        code, details = "command_refused", {**details, "refusal": code}
    elif code == "insufficient_scope":
        details = {"scope": ADMIN, **details}
    else:
        return refused
    return Refused(code, refused.message, details=details, retry_after_s=refused.retry_after_s)


def decided_refusal(code: str, message: str) -> Refused:
    """Return the refusal for a CommandRefused of a family, with its code. Unknown codes become command_invalid when
    they are about the command itself, and otherwise command_refused: the state does not allow it.
    """
    if code in DECIDED_CODES:
        is_full = code in ("backpressure", "queue_full")
        return Refused(DECIDED_CODES[code], message, retry_after_s=FULL_RETRY_S if is_full else None)
    return Refused(
        "command_invalid" if is_invalid_code(code) else "command_refused", message or code, details={"refusal": code}
    )


def is_invalid_code(code: str) -> bool:
    """Return whether a refusal with that code is about the command alone: sent again, it is refused again."""
    return code.startswith(INVALID_PREFIXES) or code.endswith(INVALID_SUFFIXES)
