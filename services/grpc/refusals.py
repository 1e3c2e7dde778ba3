"""Refusals as clients of gRPC tell them apart: a status, words in the message, all of it in trailing metadata.

Clients of loomcycle choose the class of an exception by the status and by words in the message, first match wins. So
what is not found is named by its kind alone, since an id may contain any word; and a message that has a word of another
class by chance is replaced by its code. Everything that HTTP says is in the trailing metadata:

    loomlog-code         the code (services/core/error_codes.py)
    loomlog-error-bin    the JSON of the refusal as over HTTP
    retry-after          seconds
    x-request-id         the id in our log lines

Before: front.py. After: the client.
"""

from collections.abc import Mapping

import grpc
import orjson

from loomlog.services.core.error_codes import ERRORS, ErrorRow
from loomlog.services.core.refusals import Refused

Metadata = tuple[tuple[str, str | bytes], ...]
MESSAGE_CHARACTERS_MAX = 1_000
"""A status is sent in the headers of HTTP/2, which have few KiB; all of it is in loomlog-error-bin, within limits."""
ERROR_BYTES_MAX = 4_000
WORDS: Mapping[str, str] = {
    "already_pausing": "already pausing",
    "not_paused": "not paused",
    "session_busy": "session busy",
    "snapshot_not_found": "snapshot not found",
    "snapshot_too_large": "snapshot too large",
    "snapshot_version_too_new": "snapshot section version too new",
    "snapshot_version_unknown": "snapshot section version unknown",
}
"""Codes with a class of their own, and the words by which clients know it."""
TELLING: Mapping[str, tuple[str, ...]] = {
    "NOT_FOUND": ("snapshot", "session", "hook"),
    "FAILED_PRECONDITION": (
        "already pausing",
        "already paused",
        "not paused",
        "snapshot section version",
        "version too new",
        "version unknown",
        "session busy",
        "another request",
    ),
    "RESOURCE_EXHAUSTED": ("snapshot",),
    "UNAVAILABLE": ("pause manager not configured", "pause_not_configured"),
}
"""Words that give an error of a status another class."""
UNKNOWN = ErrorRow(http=500, grpc="INTERNAL")


def status_of(refused: Refused) -> grpc.StatusCode:
    """Return the status of a refusal."""
    return grpc.StatusCode[ERRORS.get(refused.code, UNKNOWN).grpc]


def message_of(refused: Refused, *, missing: str) -> str:
    """Return the message of a refusal; `missing` is the kind of thing that the RPC looks for."""
    status = status_of(refused)
    if status is grpc.StatusCode.NOT_FOUND and refused.code not in WORDS:
        return f"{missing} not found"
    if (words := WORDS.get(refused.code)) is not None:
        shown = words if status is grpc.StatusCode.NOT_FOUND else f"{words}: {refused.message}"
    elif any(word in refused.message.lower() for word in TELLING.get(status.name, ())):
        shown = f"{refused.code}; the trailing metadata loomlog-error-bin says more"
    else:
        shown = refused.message
    return shown[:MESSAGE_CHARACTERS_MAX]


def metadata_of(refused: Refused, *, request_id: str) -> Metadata:
    """Return the trailing metadata of a refusal."""
    body = {**refused.details, "code": refused.code, "error": refused.message}
    error = orjson.dumps(body, default=str)
    if len(error) > ERROR_BYTES_MAX:
        error = orjson.dumps({"code": refused.code, "error": refused.message[:MESSAGE_CHARACTERS_MAX]})
    metadata: list[tuple[str, str | bytes]] = [("loomlog-code", refused.code), ("loomlog-error-bin", error)]
    if refused.retry_after_s is not None:
        metadata.append(("retry-after", str(refused.retry_after_s)))
    if request_id:
        metadata.append(("x-request-id", request_id))
    return tuple(metadata)


def is_tool_refusal(refused: Refused) -> bool:
    """Return whether an operation of a tool refuses what was asked, rather than the request: a model could read it."""
    row = ERRORS.get(refused.code, UNKNOWN)
    return row.is_tool_error and row.http in (400, 404, 409, 410, 413, 422)


def tool_refusal(refused: Refused) -> bytes:
    """Return the text of a refusal of a tool, as JSON."""
    return orjson.dumps({**refused.details, "code": refused.code, "error": refused.message}, default=str)
