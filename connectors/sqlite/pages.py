"""What a statement changed: the pages it wrote, packed for the log, and the chain of hashes that proves a file.

A change has the number of pages of the file after it and the content of each page it wrote. Applied in order to an
empty file they give the same bytes everywhere, whatever the statements were: `random()`, virtual tables, tables
without a key, another version of SQLite.

    chain value = SHA-256(previous value, nonce, page count, numbers of the pages, their contents)

The nonce is random and packed with the pages, so that a chain value in plaintext confirms no guess of a content that
is encrypted.

A part is `>B16sII` (version, nonce, page count, number of pages) and zlib of the numbers and the contents; a change of
more than PART_PAGES pages has several.

Not chosen: changesets of the session extension (they miss DDL, virtual tables and tables without a key).

Before: database.py reads the pages of a commit. After: services/families/database/page_store.py puts the parts into
events and blobs.
"""

import base64
import binascii
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from loomlog.connectors.sqlite.errors import FileFailed

PAGE_BYTES = 1024
"""The smallest pages that FTS5 is quick with: a statement changes few bytes, and a page is the unit of a change."""
GENESIS = "0" * 64
"""Chain value of an empty file."""
NONCE_BYTES = 16
PART_PAGES = 4_096
"""Pages of a part: 4 MiB in memory while one is packed or read."""
VERSION = 1
HEADER = struct.Struct(">B16sII")
WAL_HEADER_BYTES, FRAME_HEADER = 32, struct.Struct(">II16x")
FRAME_BYTES = FRAME_HEADER.size + PAGE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class PageChange:
    """Pages by number, each of PAGE_BYTES, and the number of pages of the file after the change."""

    nonce: bytes
    page_count: int
    pages: Mapping[int, bytes]

    def chain(self, previous: str) -> str:
        """Return the chain value after this change; `previous` and the value are 64 hex digits."""
        numbers = sorted(self.pages)
        head = HEADER.pack(VERSION, self.nonce, self.page_count, len(numbers)) + _pack_numbers(numbers)
        digest = sha256(bytes.fromhex(previous) + head)
        for number in numbers:
            digest.update(self.pages[number])
        return digest.hexdigest()


def page_change(page_count: int, pages: Mapping[int, bytes]) -> PageChange:
    """Return a change with a nonce of its own."""
    return PageChange(nonce=os.urandom(NONCE_BYTES), page_count=page_count, pages=pages)


def pack(change: PageChange) -> Iterator[bytes]:
    """Return the parts of a change, one at a time; at least one."""
    numbers = sorted(change.pages)
    for start in range(0, max(1, len(numbers)), PART_PAGES):
        some = numbers[start : start + PART_PAGES]
        body = _pack_numbers(some) + b"".join(change.pages[number] for number in some)
        yield HEADER.pack(VERSION, change.nonce, change.page_count, len(some)) + zlib.compress(body, 1)


def pack_texts(change: PageChange) -> tuple[str, ...]:
    """Return the parts of a change as base64."""
    return tuple(base64.b64encode(part).decode() for part in pack(change))


def unpack_texts(texts: Iterable[str]) -> PageChange:
    """Return the change of these parts. Raises FileFailed when they are not what `pack_texts` makes."""
    try:
        return unpack([base64.b64decode(text, validate=True) for text in texts])
    except (binascii.Error, ValueError) as error:
        raise FileFailed(f"the pages of a change are no base64: {error}") from error


def base64_bytes(text: str) -> int:
    """Return how many bytes a base64 text is of."""
    return 3 * len(text) // 4 - text.count("=", -2)


def unpack(parts: Iterable[bytes]) -> PageChange:
    """Return the change of these parts. Raises FileFailed when they are not what `pack` makes."""
    nonce, page_count, pages = b"", 0, dict[int, bytes]()
    for part in parts:
        try:
            version, nonce, page_count, length = HEADER.unpack_from(part)
            size = length * (4 + PAGE_BYTES)
            body = zlib.decompressobj().decompress(part[HEADER.size :], size + 1)
        except (struct.error, zlib.error) as error:
            raise FileFailed(f"pages of a change cannot be read: {error}") from error
        if version != VERSION or length > PART_PAGES or len(body) != size:
            raise FileFailed(f"pages of a change have {len(body)} bytes, expected {length} pages of version {VERSION}")
        for place, number in enumerate(struct.unpack_from(f">{length}I", body)):
            if not 0 < number <= page_count:
                raise FileFailed(f"a change has page {number} of {page_count}")
            start = 4 * length + place * PAGE_BYTES
            pages[number] = body[start : start + PAGE_BYTES]
    return PageChange(nonce=nonce, page_count=page_count, pages=pages)


def _pack_numbers(numbers: list[int]) -> bytes:
    return struct.pack(f">{len(numbers)}I", *numbers)


def read_frames(wal: Path, first: int, end: int) -> PageChange:
    """Return the change that frames of a write-ahead log are, from number `first` to before `end`. The last of them is
    that of a commit. Raises OSError, FileFailed.
    """
    size = (end - first) * FRAME_BYTES
    with wal.open("rb") as file:
        file.seek(wal_bytes(first))
        data = file.read(size)
    page_count, pages = 0, dict[int, bytes]()
    for start in range(0, len(data) - FRAME_BYTES + 1, FRAME_BYTES):
        number, page_count = FRAME_HEADER.unpack_from(data, start)
        pages[number] = data[start + FRAME_HEADER.size : start + FRAME_BYTES]
    if len(data) != size or not page_count:
        raise FileFailed(f"the write-ahead log has {len(data)} bytes of a commit, expected {size}")
    return page_change(page_count, pages)


def wal_bytes(frames: int) -> int:
    """Return the size of a write-ahead log with so many frames."""
    return WAL_HEADER_BYTES + frames * FRAME_BYTES


def cut_frames(wal: Path, frames: int) -> None:
    """Remove the frames of a write-ahead log after the first ones, which no connection has open.

    Raises OSError; FileFailed when there are fewer.
    """
    size = wal.stat().st_size if wal.exists() else 0
    if frames and size < wal_bytes(frames):
        raise FileFailed(f"the write-ahead log has {size} bytes, expected {wal_bytes(frames)} of {frames} frames")
    if size > wal_bytes(frames):
        os.truncate(wal, wal_bytes(frames))


def write_pages(path: Path, change: PageChange) -> None:
    """Write the pages into a file that no connection has open; it then has `page_count` pages. Raises OSError."""
    with path.open("r+b" if path.exists() else "x+b") as file:
        for number in sorted(change.pages):
            file.seek((number - 1) * PAGE_BYTES)
            file.write(change.pages[number])
        file.truncate(change.page_count * PAGE_BYTES)


def read_pages(path: Path) -> PageChange:
    """Return all pages of a file as a change. Raises OSError."""
    data = path.read_bytes()
    pages = {1 + start // PAGE_BYTES: data[start : start + PAGE_BYTES] for start in range(0, len(data), PAGE_BYTES)}
    return page_change(len(pages), pages)
