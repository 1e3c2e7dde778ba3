"""Ids of messages and cursors, in the form of the reference; both have fixed lengths and sort by time.

    msg_<16 hex: published_ns><8 hex: hash of queue and published_ns>
    cur_<16 hex: visible_ns>_<id of the message>        cur_0: before the oldest message

Times are nanoseconds since 1970: those of a millisecond, and below it a number, so that they tell messages of one
millisecond apart: the number of the message in `published_ns`, its position in `visible_ns`, each modulo 1,000,000.
With the hash a cursor of another queue is recognised without a look-up.

Before: decide.py, store.py. After: state.py finds the position of a cursor.
"""

import re
from hashlib import blake2b
from typing import NamedTuple

NS_PER_MS = 1_000_000
OLDEST = "cur_0"
"""Cursor before the oldest message."""
CURSOR = re.compile(r"cur_([0-9a-f]{16})_msg_([0-9a-f]{16})([0-9a-f]{8})\Z")
SHOWN_CHARACTERS = 80


class Cursor(NamedTuple):
    """The place behind a message, as the text of a cursor has it."""

    visible_ns: int
    """0: before the oldest message."""
    published_ns: int


def next_ns(at_ms: int, number: int, last_ns: int) -> int:
    """Return the time of the message with that number or position: after `last_ns`, also when a clock has gone back."""
    below = number % NS_PER_MS
    time_ns = max(at_ms, last_ns // NS_PER_MS) * NS_PER_MS + below
    return time_ns if time_ns > last_ns else time_ns + NS_PER_MS


def message_id(queue_key: str, published_ns: int) -> str:
    """Return the id of a message. `queue_key` is `<tenant>/<name of the aggregate>`."""
    return f"msg_{published_ns:016x}{_hash(queue_key, published_ns)}"


def cursor_text(visible_ns: int, message: str) -> str:
    """Return the cursor behind the message with that id."""
    return f"cur_{visible_ns:016x}_{message}"


def published_ns(message: str) -> int:
    """Return when the message with that id was published."""
    return int(message[4:20], 16)


def parse_cursor(text: str, queue_key: str) -> Cursor:
    """Return the parts of a cursor of that queue. Raises ValueError."""
    if text == OLDEST:
        return Cursor(0, 0)
    match = CURSOR.match(text)
    shown = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
    if match is None:
        raise ValueError(f"{shown!r} is no cursor: expected {OLDEST}, or one that subscribe or peek has returned")
    published_ns = int(match[2], 16)
    if _hash(queue_key, published_ns) != match[3]:
        raise ValueError(f"{shown!r} is a cursor of another queue: a cursor is of one channel in one scope")
    return Cursor(int(match[1], 16), published_ns)


def _hash(queue_key: str, published_ns: int) -> str:
    return blake2b(f"{queue_key}\0{published_ns}".encode(errors="surrogatepass"), digest_size=4).hexdigest()
