"""Reading requests: bodies within their size limit, and query parameters with errors that name the expected value.

A body is counted while it is received. One that declares a size over the limit, or exceeds it, is answered at once; the
rest is read and discarded for a moment, because a client that is still writing would otherwise see a broken connection
and not the response.

Before: the ASGI request. After: endpoints.
"""

import asyncio
import re
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import IO, TypeVar

import orjson
from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request

from loomlog.services.api.request_models import Body
from loomlog.services.application.errors import RequestRefused, bad_request

Model = TypeVar("Model", bound=Body)

PROBLEMS_MAX = 5
"""Maximum errors reported for one body; more are reported after these are corrected."""
INTEGER_DIGITS_MAX = 18
"""Maximum digits of an integer; fits a signed 64-bit integer."""
QUOTED_CHARACTERS_MAX = 60
DRAIN_BYTES_MAX = 64 * 1024 * 1024
"""Maximum bytes of an oversized body that are discarded before the connection to the client is closed."""
TIME_PATTERN = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:?\d{2})?)?\Z")


class BodyTooLarge(RequestRefused):
    """A body over its size limit, of which more may be coming."""

    def __init__(self, limit: int) -> None:
        super().__init__("payload_too_large", f"the body is over {limit} bytes; send less, or raise the bound")


async def json_body(request: Request, model: type[Model], *, limit: int, optional: bool = False) -> Model:
    """Return the body as a model. Raises RequestRefused: unsupported_media_type, payload_too_large, bad_request.

    An `optional` body may be missing; every field then has its default.
    """
    raw = await _read_body(request, limit)
    if not raw and optional:
        raw = b"{}"
    elif not _is_json(request.headers.get("content-type", "")):
        raise RequestRefused("unsupported_media_type", "expected Content-Type: application/json")
    try:
        # The other parser accepts NaN as a number, and reads a number that is too large as infinity.
        orjson.loads(raw)
        return model.model_validate_json(raw)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the body is not JSON: {error}") from error
    except ValidationError as error:
        raise bad_request(_describe_problems(error)) from error


async def spool_body(request: Request, file: IO[bytes], *, limit: int) -> None:
    """Write the body to the file as it is received. Raises RequestRefused: payload_too_large, bad_request."""
    size = 0
    async for piece in _read_chunks(request, limit):
        size += len(piece)
        await asyncio.to_thread(file.write, piece)
    if not size:
        raise bad_request("the body is empty: expected the bytes of a file")


async def drain(request: Request) -> None:
    """Read and discard the rest of a body, up to a limit."""
    left = DRAIN_BYTES_MAX
    while left > 0:
        message = await request.receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            return
        left -= len(message.get("body", b""))


def query_flag(request: Request, name: str) -> bool:
    """Return whether a query parameter is 1, true or yes."""
    return request.query_params.get(name, "").lower() in ("1", "true", "yes")


def query_text(request: Request, name: str, *, max_length: int = 256) -> str:
    """Return a text parameter of the query; empty when missing. Raises RequestRefused."""
    value = request.query_params.get(name, "")
    if len(value) > max_length or not value.isprintable():
        raise bad_request(f"{name}: expected at most {max_length} printable characters")
    return value


def query_integer(request: Request, name: str, default: int, *, minimum: int, maximum: int) -> int:
    """Return an integer parameter of the query. Raises RequestRefused."""
    value = request.query_params.get(name)
    if value is None or value == "":
        return default
    if not (value.isascii() and value.isdecimal() and len(value) <= INTEGER_DIGITS_MAX):
        raise bad_request(
            f"{name} is {value[:QUOTED_CHARACTERS_MAX]!r}: expected a whole number from {minimum} to {maximum}"
        )
    number = int(value)
    if not minimum <= number <= maximum:
        raise bad_request(f"{name} is {number}: expected {minimum} to {maximum}")
    return number


def resume_after(request: Request) -> int:
    """Return the seq after which a stream resumes: Last-Event-ID (sent on reconnect), else
    from_seq; 0 if not a number.
    """
    for value in (request.headers.get("last-event-id"), request.query_params.get("from_seq")):
        if value is not None and value.isascii() and value.isdecimal():
            return int(value) if len(value) <= INTEGER_DIGITS_MAX else 10**INTEGER_DIGITS_MAX
    return 0


def parse_time_ms(name: str, value: str) -> int:
    """Parse an RFC 3339 time (a date alone is its start, without a zone it is UTC) into milliseconds.

    Raises RequestRefused.
    """
    try:
        if not TIME_PATTERN.match(value):
            raise ValueError
        time = datetime.fromisoformat(value)
    except ValueError as error:
        raise bad_request(
            f"{name} is {value[:QUOTED_CHARACTERS_MAX]!r}: expected a time like 2026-01-31T12:00:00Z"
        ) from error
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


async def _read_body(request: Request, limit: int) -> bytes:
    return b"".join([piece async for piece in _read_chunks(request, limit)])


async def _read_chunks(request: Request, limit: int) -> AsyncGenerator[bytes, None]:
    """Yield the body as it is received; its bytes are counted."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise BodyTooLarge(limit)
    size = 0
    while True:
        message = await request.receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise BodyTooLarge(limit)
        if piece:
            yield piece
        if not message.get("more_body", False):
            return


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _describe_problems(error: ValidationError) -> str:
    """Describe the errors of a body by location; values are not repeated, because some are secrets."""
    detailses = error.errors(include_url=False, include_input=False, include_context=False)
    if detailses[0]["type"] == "json_invalid":
        return f"the body is not JSON: {detailses[0]['msg'].removeprefix('Invalid JSON: ')}"
    shown = [f"{_field_path(problem['loc'])}: {problem['msg']}" for problem in detailses[:PROBLEMS_MAX]]
    more = len(detailses) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _field_path(steps: tuple[int | str, ...]) -> str:
    place = ""
    for step in steps:
        place += f"[{step}]" if isinstance(step, int) else f".{step}" if place else step
    return place or "the body"
