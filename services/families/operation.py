"""What the operations of families have in common: refusals, answers, how they ask an owner, checks of what they take.

Before: services/families/memory, services/families/channel and their neighbours. After:
services/stream/entities/client.py.
"""

import json
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import orjson

from loomlog.connectors.crypto.content_encryption import TOKEN
from loomlog.connectors.errors import ConnectorError, Transient, describe_unreachable
from loomlog.connectors.protocols import CallWait
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import ChannelUse, LeaseRef
from loomlog.schemas.records import Value
from loomlog.services.core.operations import Answer as Answered
from loomlog.services.core.operations import Call, Origin
from loomlog.services.core.refusals import Refused, Unavailable, decided_refusal
from loomlog.services.stream.entities.answers import Answer, CommandInvalid, CommandUnanswered, EntityCommands
from loomlog.services.stream.entities.reads import PositionNotRead

OutputT = TypeVar("OutputT")
ReadT = TypeVar("ReadT")
Decrypt = Callable[[Any, str], Awaitable[Any]]
"""Returns JSON of a tenant in plaintext. Raises ConnectorError."""
Encrypt = Callable[[str, str, str], Awaitable[str]]
"""Returns a text as it is stored, for a tenant and a subject. Raises ConnectorError."""
DEPTH_MAX = 100
INTEGER_MAX = 2**63 - 1
REASON_CHARACTERS_MAX = 4_000
"""Characters of the reason of a command."""


class Reply(Value, frozen=True, kw_only=True):
    """Answer of an operation."""

    fields: Mapping[str, Any]
    positions: tuple[str, ...] = ()
    """Position tokens of what was written."""


class RunAnswer(Answered[OutputT], frozen=True, kw_only=True):
    """Answer of an operation to a tool call, with what its run records of it."""

    channels: tuple[ChannelUse, ...] = ()
    """Messages that were published or delivered."""
    leases: tuple[LeaseRef, ...] = ()
    """What a call of a run took; the run settles it."""
    waiting: CallWait | None = None
    """There is no answer yet: the call waits in its run. The other fields say nothing."""


async def ask_owner(
    commands: EntityCommands, command: Any, *, wait_s: float, invalid_code: str = "bad_request"
) -> Answer:
    """Return the answer of the owner, which may be a refusal.

    Raises Refused(invalid_code) for a command that cannot be; Unavailable, with an unknown outcome.
    """
    try:
        return await commands.ask(command, wait_s=wait_s)
    except CommandInvalid as error:
        raise Refused(invalid_code, str(error)) from error
    except (CommandUnanswered, Transient) as error:
        raise Unavailable(str(error), is_unknown=True) from error


async def command_owner(
    commands: EntityCommands, command: Any, call: Call[Any], *, wait_s: float, decrypt: Decrypt
) -> Answer:
    """Return the answer of an owner that has carried a command out. Raises Refused, Unavailable."""
    try:
        answer = await commands.ask(command, wait_s=wait_s)
    except CommandInvalid as error:
        raise Refused("bad_request", str(error)) from error
    except CommandUnanswered as error:
        raise Unavailable(describe_unanswered(call, wait_s), is_unknown=True) from error
    except Transient as error:
        # Clients of HTTP know this by a code of its own, which says that nothing may have been done.
        is_unknown = call.caller.origin is Origin.AGENT
        raise Unavailable(
            describe_unreachable("the log", error), is_unknown=is_unknown, code="log_unavailable"
        ) from error
    last = answer.events[-1]
    if isinstance(last, CommandRefused):
        raise decided_refusal(last.code, await decrypt(last.message, command.envelope.tenant))
    return answer


def describe_unanswered(call: Call[Any], wait_s: float) -> str:
    """Return that no owner has answered, and whether a repetition does harm."""
    text = f"no owner has answered within {wait_s:g} s, and the command may still be carried out"
    if call.caller.origin is Origin.AGENT:
        return text
    if call.issued_at_ms:
        return f"{text}; the request had no Idempotency-Key, so repeating it may do it twice: look first"
    return f"{text}; repeating the request with the same Idempotency-Key does no harm"


async def read_rows(reading: Awaitable[ReadT], *, behind_code: str = "") -> ReadT:
    """Return what a read of the rows gives. Raises Unavailable; when they lack what was written, with `behind_code`, or
    with not_yet and how many records are missing.
    """
    try:
        return await reading
    except PositionNotRead as error:
        if behind_code:
            raise Unavailable(str(error), code=behind_code) from error
        text = f"{error}: {error.lag} records are missing; try again"
        raise Unavailable(text, code="not_yet", details={"lag": error.lag}) from error
    except ConnectorError as error:
        text = describe_unreachable("the read models", error)
        raise Unavailable(text, code="projection_unavailable") from error


def sanitize_reason(reason: str) -> str:
    """Clean the reason of a command.

    Control characters are removed, because read models store it as plain text, and so are tokens of encrypted content,
    which would be decrypted for every reader of the reason; the rest is kept.
    """
    kept = TOKEN.sub("", "".join(character if character.isprintable() else " " for character in reason)).strip()
    return kept[:REASON_CHARACTERS_MAX]


def whole_number(name: str, value: Any, *, least: int, most: int, code: str) -> int:
    """Return the value of a field as a whole number within the bounds; 3.0 is one, as in JSON Schema.

    Raises Refused(code).
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value != int(value) or not least <= value <= most:
        message = f"{name}: expected a whole number from {least} to {most}, not {str(value)[:60]}"
        raise Refused(code, message)
    return int(value)


def parse_value(text: str) -> Any:
    """Return the value of a JSON text; a text that is none, such as that of erased content, as it is."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def json_text(value: Any, *, code: str) -> str:
    """Return the JSON text of a value that stores keep. Raises Refused(code)."""
    _check_shape(value, code)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except (ValueError, TypeError) as error:
        what = "half a surrogate pair" if isinstance(error, UnicodeEncodeError) else str(error)
        raise Refused(code, f"value: it is no JSON that can be kept: {what}") from error
    if "\\u0000" in text:
        raise Refused(code, "value: a text has the character NUL, which no store takes")
    return text


def _check_shape(value: Any, code: str) -> None:
    level, depth = [value], 0
    while level:
        if depth >= DEPTH_MAX:
            raise Refused(code, f"value: it is nested deeper than {DEPTH_MAX} levels")
        following: list[Any] = []
        for one in level:
            if isinstance(one, Mapping):
                following += one.values()
            elif isinstance(one, list | tuple):
                following += one
            elif isinstance(one, int) and abs(one) > INTEGER_MAX:
                raise Refused(code, "value: a whole number is beyond 2^63 - 1; send it as text")
        level, depth = following, depth + 1


async def plaintext(value: Any, tenant: str) -> Any:
    """Return the value as it is: content is not encrypted."""
    return value


async def plain_text(text: str, tenant: str, subject: str) -> str:
    """Return the text as it is: content is not encrypted."""
    return text
