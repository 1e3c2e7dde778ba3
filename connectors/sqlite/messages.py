"""Messages between a process and its workers for SQL: one request, one reply, each a frame with its length before it.

A call names the file and how many frames of its write-ahead log are kept, so a worker knows nothing that is lost
with it: any worker can go on with any file. Values only, in msgpack: what a worker sends is data of strangers.

Before: worker_pool.py sends requests. After: worker.py replies.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from loomlog.connectors.sqlite.database import QUOTA_BYTES, ROWS_MAX, STATEMENT_S, QueryResult
from loomlog.schemas.records import Value

LENGTH_BYTES = 4
MESSAGE_BYTES_MAX = 2**31
"""Longest message: the pages of the largest database (1 GiB) that are random, as base64."""

SqlValue = None | int | float | str | bytes
"""A value to bind. Fields have Any in its place: msgspec decodes no union of str and bytes, and needs none here."""


class Query(Value, frozen=True, kw_only=True):
    """Read the rows of a SELECT; the reply is QueryResult."""

    statement: str
    values: tuple[Any, ...] = ()
    timeout_s: float = STATEMENT_S
    rows_max: int = ROWS_MAX


class Change(Value, frozen=True, kw_only=True):
    """Carry out a statement tentatively on a file with the chain value `chain`; the reply is Written."""

    statement: str
    values: tuple[Any, ...] = ()
    timeout_s: float = STATEMENT_S
    quota_bytes: int = QUOTA_BYTES
    chain: str


class StoredChange(Value, frozen=True):
    """A change from the log: its packed parts as base64, and the chain value after it."""

    parts: tuple[str, ...]
    chain: str


class Apply(Value, frozen=True, kw_only=True):
    """Write changes into a file with the chain value `chain`, up to the first that does not continue it; the reply is
    Applied.
    """

    changes: tuple[StoredChange, ...]
    chain: str


class Copy(Value, frozen=True):
    """Read the whole file; the reply is Copied."""


class Clone(Value, frozen=True):
    """Make the file a copy of another one without a write-ahead log; the reply is Done."""

    source: str


class Checkpoint(Value, frozen=True):
    """Move the write-ahead log into the file; the reply is Done."""


class Forget(Value, frozen=True):
    """Close the connection to a file, which another worker uses from now on, or which is removed. Without a reply."""


Request = Query | Change | Apply | Copy | Clone | Checkpoint | Forget


class Call(Value, frozen=True, kw_only=True):
    """A request for a file."""

    path: str
    frames: int
    """Frames of the write-ahead log that are kept; the others are cut off."""
    generation: int
    """How often the file has gone from one worker to another: a connection of an earlier generation is out of date."""
    request: Request


class Written(Value, frozen=True, kw_only=True):
    """What a statement did to a file; without parts it wrote nothing, and the chain value is the one before."""

    rows_affected: int
    last_insert_id: int
    frames: int
    """Frames of the write-ahead log with the change."""
    parts: tuple[str, ...] = ()
    chain: str
    page_count: int = 0


class Applied(Value, frozen=True):
    """How many changes were written, and the number of pages after them."""

    count: int
    page_count: int


class Copied(Value, frozen=True):
    """A whole file as packed parts, and their chain value after GENESIS."""

    parts: tuple[str, ...]
    chain: str
    page_count: int


class Done(Value, frozen=True):
    """There is nothing to say; a worker that has started says so too."""


class Problem(Value, frozen=True):
    """The request failed. `code` is that of a StatementRefused, FILE_FAILED or FILE_DAMAGED."""

    code: str
    message: str


FILE_FAILED, FILE_DAMAGED = "file_failed", "file_damaged"
Reply = QueryResult | Written | Applied | Copied | Done | Problem

_encoder = msgspec.msgpack.Encoder()
decode_call: Callable[[bytes], Call] = msgspec.msgpack.Decoder(Call).decode
decode_reply: Callable[[bytearray], Reply] = msgspec.msgpack.Decoder(Reply).decode


def encode(message: Call | Reply) -> bytes:
    """Return the frame of a message."""
    data = _encoder.encode(message)
    return len(data).to_bytes(LENGTH_BYTES) + data
