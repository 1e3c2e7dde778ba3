"""Reading requests: bodies within their size limit, and query parameters with errors that name the expected value.

A body is counted while it is received. One that declares a size over the limit, or exceeds it, is answered at once; the
rest is read and discarded for a moment, because a client that is still writing would otherwise see a broken connection
and not the response.

Before: the ASGI request. After: endpoints.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import IO, Any, TypeVar

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request

from loomlog.projections.frames.frame import SESSION_STRIDE
from loomlog.services.application.bodies.models import Body
from loomlog.services.application.bodies.problems import describe_problems
from loomlog.services.application.errors import bad_request
from loomlog.services.application.request_context import current_request
from loomlog.services.core.json_text import QUOTED_CHARACTERS_MAX, JsonInvalid, parse_json
from loomlog.services.core.refusals import Refused

Model = TypeVar("Model", bound=Body)
Parsed = TypeVar("Parsed")

INTEGER_DIGITS_MAX = 18
"""Maximum digits of an integer; fits a signed 64-bit integer."""
CONTROL_BODY_MAX = 1024 * 1024
"""Maximum bytes of inputs and cancels (parity: reference runtime 1.12)."""
INLINE_BYTES_MAX = 64 * 1024
"""Bytes of a body that are parsed at once, in about 5 ms; more are parsed in a thread, so that other requests go on."""
DRAIN_BYTES_MAX = 64 * 1024 * 1024
"""Maximum bytes of an oversized body that are discarded before the connection to the client is closed."""
BODY_WAIT_S = 30.0
BODY_BYTES_PER_S = 1_024
"""A body has BODY_WAIT_S and a second for each BODY_BYTES_PER_S received: slow lines pass, stalled requests end."""


class BodyTooLarge(Refused):
    """A body over its size limit, of which more may be coming."""

    def __init__(self, limit: int) -> None:
        super().__init__("payload_too_large", f"the body is over {limit} bytes; {_limit_hint(limit)}")


class BodyTooSlow(Refused):
    """A body of which too little arrives."""

    def __init__(self, size: int) -> None:
        super().__init__(
            "request_timeout",
            f"{size} bytes of the body arrived in time; send the whole body within {BODY_WAIT_S:g} s, or at least "
            f"{BODY_BYTES_PER_S} bytes a second",
        )


async def json_body(request: Request, model: type[Model], *, limit: int, optional: bool = False) -> Model:
    """Return the body as a model. Raises Refused: unsupported_media_type, payload_too_large, bad_request.

    An `optional` body may be missing; every field then has its default.
    """
    raw, _ = await _read_json(request, limit, optional=optional)
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise bad_request(describe_problems(error, model)) from error


async def json_value(request: Request, *, limit: int, optional: bool = False) -> Any:
    """Return the body as JSON; an `optional` one that is missing as an empty object. Raises as `json_body`."""
    return (await _read_json(request, limit, optional=optional))[1]


def _parse_body(raw: bytes) -> Any:
    try:
        return parse_json(raw)
    except JsonInvalid as error:
        raise bad_request(f"the body {error}") from error


async def raw_body(request: Request, *, limit: int) -> bytes:
    """Return the bytes of a body of any type. Raises Refused: payload_too_large."""
    raw = await _read_body(request, limit)
    await current_request.get().take_body(raw)
    return raw


async def spool_body(request: Request, file: IO[bytes], *, limit: int) -> None:
    """Write the body to the file as it is received. Raises Refused: payload_too_large, bad_request."""
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


def query_text(request: Request, name: str, *, max_length: int = 256, tabs: bool = False) -> str:
    """Return a text parameter of the query; empty when missing. `tabs`: it may have them. Raises Refused."""
    value = request.query_params.get(name, "")
    if len(value) > max_length:
        raise bad_request(f"{name}: expected at most {max_length} printable characters, got {len(value)}")
    odd = next((one for one in value if not one.isprintable() and not (tabs and one == "\t")), None)
    if odd is not None:
        raise bad_request(f"{name}: expected printable characters, got U+{ord(odd):04X}")
    return value


def resume_after(request: Request) -> int:
    """Return the seq after which a stream resumes: Last-Event-ID (sent on reconnect), else from_seq, which may be that
    of a transcript; 0 if not a number.
    """
    for value in (request.headers.get("last-event-id"), request.query_params.get("from_seq")):
        if value is not None and value.isascii() and value.isdecimal():
            return int(value) % SESSION_STRIDE if len(value) <= INTEGER_DIGITS_MAX else SESSION_STRIDE
    return 0


async def _read_json(request: Request, limit: int, *, optional: bool) -> tuple[bytes, Any]:
    """Return a body that is declared as JSON, and its value; its bytes become part of the request's tokens."""
    raw = await _read_body(request, limit)
    await current_request.get().take_body(raw)
    if not raw and optional:
        return b"{}", {}
    if not _is_json(request.headers.get("content-type", "")):
        raise Refused("unsupported_media_type", _media_type_problem(request.headers.get("content-type", "")))
    return raw, await parse_off_loop(_parse_body, raw)


async def parse_off_loop(parse: Callable[[bytes], Parsed], raw: bytes) -> Parsed:
    """Return what a body says; one over INLINE_BYTES_MAX is parsed in a thread. Raises what `parse` raises."""
    return parse(raw) if len(raw) <= INLINE_BYTES_MAX else await asyncio.to_thread(parse, raw)


async def _read_body(request: Request, limit: int) -> bytes:
    return b"".join([piece async for piece in _read_chunks(request, limit)])


async def _read_chunks(request: Request, limit: int) -> AsyncGenerator[bytes, None]:
    """Yield the body as it is received; its bytes are counted."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise BodyTooLarge(limit)
    size = 0
    clock = asyncio.get_running_loop().time
    deadline = clock() + BODY_WAIT_S
    while True:
        try:
            async with asyncio.timeout_at(deadline + size / BODY_BYTES_PER_S):
                message = await request.receive()
        except TimeoutError:
            raise BodyTooSlow(size) from None
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


def _limit_hint(limit: int) -> str:
    return "send less" if limit == CONTROL_BODY_MAX else "send less, or raise LOOMLOG_MAX_REQUEST_BYTES"


def _media_type_problem(sent: str) -> str:
    shown = f"got {sent[:QUOTED_CHARACTERS_MAX]!r}" if sent else "got none"
    return f"expected Content-Type: application/json, {shown}; with curl add -H 'Content-Type: application/json'"
