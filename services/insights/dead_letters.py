"""Dead letters of unusable records: the original bytes, headers and position, and the error.

A letter has the unchanged record unless it would not fit the dead-letter topic; then the value is truncated and the
error says so, with the size and SHA-256 of the whole, which the insights topic still holds for its retention.

Pure. Before: app.py met a record it cannot use. After: app.py sends the letter and waits for the broker.
"""

import hashlib
from collections.abc import Sequence

from loomlog.schemas.codec import Undecodable, UnknownSchema
from loomlog.schemas.generated.stream_records import DeadLetter, Header
from loomlog.services.insights.minute_windows import InvalidTally

SERVICE = "insights"
MAX_VALUE_BYTES = 512 * 1024
"""Most bytes of a value in a letter. Value, key and headers together stay below the 1 MiB of a record."""
MAX_KEY_BYTES = 64 * 1024
MAX_HEADERS_BYTES = 64 * 1024
MAX_ERROR_CHARACTERS = 2_000


def build_dead_letter(
    *,
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
    error: Exception,
    at_ms: int,
) -> DeadLetter:
    """The dead letter of one record; at most about 640 KiB."""
    notes: list[str] = []
    kept_headers = tuple(Header(key=name, value=content or b"") for name, content in headers)
    if (size := sum(len(h.key.encode()) + len(h.value) for h in kept_headers)) > MAX_HEADERS_BYTES:
        notes.append(f"its {len(kept_headers)} headers of {size} bytes were left out")
        kept_headers = ()
    return DeadLetter(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms,
        service=SERVICE,
        kind=kind_of(error),
        error=f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARACTERS]
        + "".join(
            f"; {note}"
            for note in [*notes, *_truncation_notes("key", key, MAX_KEY_BYTES), *_truncation_notes("value", value)]
        ),
        at_ms=at_ms,
        key=None if key is None else key[:MAX_KEY_BYTES],
        value=None if value is None else value[:MAX_VALUE_BYTES],
        headers=kept_headers,
    )


def kind_of(error: Exception) -> str:
    """DeadLetter.kind of an error; an unexpected one is a bug of the fold."""
    match error:
        case UnknownSchema():
            return "unknown_schema"
        case Undecodable():
            return "undecodable"
        case InvalidTally():
            return "refused"
        case _:
            return "fold_bug"


def position_key(topic: str, partition: int, offset: int) -> bytes:
    """Key of the letter's record: the original's position, which identifies two letters about one record."""
    return f"{topic}/{partition}/{offset}".encode()


def _truncation_notes(part: str, content: bytes | None, limit: int = MAX_VALUE_BYTES) -> list[str]:
    if content is None or len(content) <= limit:
        return []
    digest = hashlib.sha256(content).hexdigest()
    return [f"the {part} of {len(content)} bytes was cut to {limit}, sha256 of the whole {digest}"]
