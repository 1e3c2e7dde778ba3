"""Decompress a response body chunk by chunk, up to a size limit.

A few kilobytes of gzip can expand to gigabytes. Each zlib call has a maximum output size, so memory and time are
bounded by the limit and not by the server's data.

Before: web_client.py. After: zlib.
"""

import zlib

from loomlog.connectors.tools.results import ToolCallRefused

GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
RAW_DEFLATE = -zlib.MAX_WBITS
GZIP_MAGIC = b"\x1f"
"""First byte of the gzip magic number; one byte only, because a chunk may end after it."""
HEAD_BYTES = 2


class IdentityDecoder:
    """An uncompressed body. `data` is the input so far, at most the limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.data = bytearray()

    def feed(self, chunk: bytes) -> bool:
        """Append a chunk; return True when the body exceeds the limit."""
        room = self._limit - len(self.data)
        self.data += chunk[:room]
        return len(chunk) > room

    def finish(self) -> None:
        """Finish the body; an uncompressed body may end anywhere."""


class DeflateDecoder:
    """A gzip or deflate body, also of several gzip members.

    The format is detected from the first two bytes: some servers send gzip for deflate, or deflate without the zlib
    header that it should have.
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
                    # Padding after the end is common and has no meaning.
                    return False
                self._inflater = zlib.decompressobj(GZIP_OR_ZLIB)
            # One byte beyond the remaining room shows whether the body exceeds the limit.
            if self._output.feed(self._inflate(chunk, self._limit - len(self.data) + 1)):
                return True
            chunk = self._inflater.unconsumed_tail or self._inflater.unused_data
        return False

    def finish(self) -> None:
        if self._head and not self._inflater.eof:
            raise ToolCallRefused("The body of the response ended in the middle of its compressed data.")

    def _inflate(self, chunk: bytes, max_length: int) -> bytes:
        try:
            return self._inflater.decompress(chunk, max_length)
        except zlib.error as error:
            raise ToolCallRefused("The body of the response is damaged: it could not be decompressed.") from error


def _detect_window_bits(head: bytes) -> int:
    """Return zlib's window bits for a body with these first bytes (RFC 1950 2.2: a zlib header is a multiple of 31)."""
    is_gzip = head.startswith(GZIP_MAGIC)
    is_zlib = head[0] & 0x0F == 8 and int.from_bytes(head[:2], "big") % 31 == 0
    return GZIP_OR_ZLIB if is_gzip or is_zlib else RAW_DEFLATE


def create_decoder(encodings: list[str], limit: int) -> IdentityDecoder | DeflateDecoder:
    """Return the decoder for a response's content encodings. Raises ToolCallRefused for encodings not requested."""
    if not encodings:
        return IdentityDecoder(limit)
    if len(encodings) == 1 and encodings[0] in ("gzip", "x-gzip", "deflate"):
        return DeflateDecoder(limit)
    packed = ", ".join(encodings)[:80]
    raise ToolCallRefused(
        f'The response has the content encoding "{packed}", which was not requested; '
        "only gzip and deflate are accepted."
    )
