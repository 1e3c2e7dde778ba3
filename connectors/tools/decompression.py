"""Unpacks a response body piece by piece and never beyond a bound.

A few kilobytes of gzip can stand for gigabytes. zlib is told how many bytes it may give each time, so memory and time
are bounded by the cap and not by what the server packed.

Before: web_client.py. After: zlib.
"""

import zlib

from loomlog.connectors.tools.results import ToolCallRefused

GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
RAW_DEFLATE = -zlib.MAX_WBITS
GZIP_MAGIC = b"\x1f"
"""Its first byte, because a piece may end after one."""
HEAD_BYTES = 2


class IdentityDecoder:
    """A body that is not packed. `data` is what came so far, at most the limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.data = bytearray()

    def feed(self, chunk: bytes) -> bool:
        """Takes the next bytes; True when there was more than the limit."""
        room = self._limit - len(self.data)
        self.data += chunk[:room]
        return len(chunk) > room

    def finish(self) -> None:
        """Called when the body ended; a plain body may end anywhere."""


class DeflateDecoder:
    """A gzip or deflate body, also of several gzip members.

    What it is, is read from its first two bytes: some servers send gzip for deflate, or deflate without the zlib header
    it should have.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._output = IdentityDecoder(limit)
        self._head = b""
        self._inflater = zlib.decompressobj(GZIP_OR_ZLIB)

    @property
    def data(self) -> bytearray:
        return self._output.data

    def feed(self, chunk: bytes) -> bool:
        if len(self._head) < HEAD_BYTES:
            self._head += chunk
            if len(self._head) < HEAD_BYTES:
                return False
            chunk = self._head
            self._inflater = zlib.decompressobj(_detect_window_bits(chunk))
        while chunk:
            if self._inflater.eof:
                if not chunk.startswith(GZIP_MAGIC):
                    # Padding behind the end is common and means nothing.
                    return False
                self._inflater = zlib.decompressobj(GZIP_OR_ZLIB)
            # One byte more than there is room for tells whether there is more.
            if self._output.feed(self._inflate(chunk, self._limit - len(self.data) + 1)):
                return True
            chunk = self._inflater.unconsumed_tail or self._inflater.unused_data
        return False

    def finish(self) -> None:
        if self._head and not self._inflater.eof:
            raise ToolCallRefused("The body of the response ended in the middle of its packed data.")

    def _inflate(self, chunk: bytes, max_length: int) -> bytes:
        try:
            return self._inflater.decompress(chunk, max_length)
        except zlib.error as error:
            raise ToolCallRefused("The body of the response is damaged: it could not be unpacked.") from error


def _detect_window_bits(head: bytes) -> int:
    """What zlib has to expect of a body that begins like this (RFC 1950 2.2: a zlib header is a multiple of 31)."""
    is_gzip = head.startswith(GZIP_MAGIC)
    is_zlib = head[0] & 0x0F == 8 and int.from_bytes(head[:2], "big") % 31 == 0
    return GZIP_OR_ZLIB if is_gzip or is_zlib else RAW_DEFLATE


def create_decoder(encodings: list[str], limit: int) -> IdentityDecoder | DeflateDecoder:
    """For the content encodings of a response. Refuses those that were not asked for."""
    if not encodings:
        return IdentityDecoder(limit)
    if len(encodings) == 1 and encodings[0] in ("gzip", "x-gzip", "deflate"):
        return DeflateDecoder(limit)
    packed = ", ".join(encodings)[:80]
    raise ToolCallRefused(f'The response is packed as "{packed}", which was not asked for; only gzip and deflate were.')
