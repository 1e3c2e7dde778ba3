"""The one way a use case refuses: a stable code, a sentence that says what to do, and sometimes a delay for a retry.

How each layer refuses or fails, and what it becomes:

    services/core      CommandRefusal (a value)         the event CommandRefused or RunRefused
    services/families  Refused, Unavailable             a Refused with a code that clients know, or a failed tool call
    services/application  Refused (code)                a status (services/core/error_codes.py)
    connectors         ConnectorError                   Transient: retried; Permanent: 502, 503 or a failed call
      tools            ToolCallRefused                  the result of the tool call, an error for the model
    schemas            Undecodable                      a dead letter or a quarantined run
    services/cli       CliError                         a sentence and an exit code (services/cli/errors.py)

Transports translate the code and add nothing. The codes are a closed list, so that a transport which does not know one
fails in a test and not in front of a client.
"""

from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from loomlog.connectors.errors import ConnectorError, describe_unreachable
from loomlog.services.core.error_codes import STATUS_BY_CODE
from loomlog.services.core.refusals import Refused, Unavailable, request_refusal
from loomlog.services.core.shares import ShareExhausted

if TYPE_CHECKING:  # the command line translates these errors, and the generated records take long to import
    from loomlog.schemas.generated.values import LimitNotice

ValueT = TypeVar("ValueT")
RETRY_LATER_S = 5
"""Retry delay for callers that reached a limit: runs take seconds, so sooner is useless (parity: reference surfaces
0.5).
"""
RETRY_SOON_S = 1
"""Retry delay for something that passes quickly: a start, a projection slightly behind."""

CODE_ALIASES: Mapping[str, str] = {"invalid_argument": "bad_request", "invalid_request": "bad_request"}
"""Codes of a run's owner that clients know by another name."""

QUOTA_FIELDS: Mapping[str, str] = {"per_user_quota_exhausted": "user_id", "provider_concurrency_exhausted": "provider"}
"""Field of the response that names the exhausted user or provider (parity: reference surfaces 0.5)."""


def bad_request(message: str) -> Refused:
    """Return the refusal of an invalid request; the message names the field."""
    return Refused("bad_request", message)


def owner_refusal(
    code: str, message: str, limit: "LimitNotice | None" = None, *, subject: str = "", cap: int = 0
) -> Refused:
    """Return the refusal for a decision of the run's owner. A code unknown to this process is passed through.

    `limit`: the spending limit that was reached; `about`, `cap`: the user or provider at its limit, and the limit.
    """
    known = CODE_ALIASES.get(code, code)
    if known not in STATUS_BY_CODE:
        return Refused("bad_request", f"{code}: {message}")
    waits = known in (
        "backpressure",
        "per_user_quota_exhausted",
        "provider_concurrency_exhausted",
    )
    details = None if limit is None else {k: v for k, v in limit.to_avro().items() if k != "severity"}
    if known in QUOTA_FIELDS:
        details = {QUOTA_FIELDS[known]: subject, "cap": cap}
    return Refused(known, message, retry_after_s=RETRY_LATER_S if waits else None, details=details)


async def run_refusing(
    operation: Awaitable[ValueT], *, unavailable_code: str, pending_code: str = "command_pending"
) -> ValueT:
    """Return what an operation of a family gives. Raises Refused, with a code that clients know.

    `unavailable_code`, `pending_code`: what becomes of Unavailable; the latter when a write may still be carried out.
    """
    try:
        return await operation
    except Refused as refused:
        shown = request_refusal(refused)
        if shown is refused:
            raise
        raise shown from refused
    except Unavailable as error:
        if isinstance(error.__cause__, ShareExhausted):
            raise share_refusal(error.__cause__) from error
        code = error.code or (pending_code if error.is_unknown else unavailable_code)
        raise Refused(code, str(error), details=error.details, retry_after_s=RETRY_SOON_S) from error


def share_refusal(error: ShareExhausted) -> Refused:
    """Return the refusal for a bounded resource: the caller's own share is used up, or the total of the process is."""
    return Refused(
        "share_exhausted" if error.is_own else "capacity_exhausted",
        str(error),
        retry_after_s=error.retry_after_s,
        details={"resource": error.resource, "bound": error.bound, "held": error.held, "limit": error.limit},
    )


def key_reused() -> Refused:
    """Return the refusal of a request whose Idempotency-Key was used for one with another body."""
    return Refused(
        "idempotency_key_reused",
        "this Idempotency-Key was used for a request with another body, which was carried out; use a new key for a new "
        "request",
    )


def stopping_error() -> Refused:
    """Return the refusal of a process that is shutting down."""
    return Refused(
        "stopping",
        "this process is being stopped before it could answer; what was asked may still take effect: ask again, with "
        "the same Idempotency-Key",
        retry_after_s=RETRY_SOON_S,
    )


@contextmanager
def reaching(dependency: str) -> Iterator[None]:
    """Raise Refused, as `unavailable` makes it, for a dependency that does not answer."""
    try:
        yield
    except ConnectorError as error:
        raise unavailable(dependency, error) from error


def unavailable(dependency: str, error: ConnectorError) -> Refused:
    """Return the refusal for a dependency that does not answer: log, projection, blobs or credentials. Details are not
    exposed.
    """
    names = {
        "log": "the log",
        "projection": "the read models",
        "blobs": "the blob store",
        "credentials": "the store of credentials",
        "outside": "something that is needed for this",
    }
    return Refused(
        f"{dependency}_unavailable",
        describe_unreachable(names[dependency], error),
        retry_after_s=RETRY_SOON_S,
    )
