"""Lines of JSON (NDJSON) from bytes that may be cut anywhere: one line is one frame of the stream.

The same care as for server-sent events (connectors/http/sse.py) and the same ServerSentEvent, so that everything behind
it is one code. Two things differ. Empty lines are nothing. What is left when the bytes end is a frame as well, because
servers leave out the last line end; if it was cut, it is no JSON, and the fold says so.

Before: wire. After: ollama_reply.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from loomlog.connectors.http.sse import BYTE_ORDER_MARK, FrameTooLarge, ServerSentEvent


class JsonLineParser:
    """Incremental parser of one response: `feed` takes chunks and returns the completed lines."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self._at_start = True

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Return the frames completed by this chunk. Raises FrameTooLarge."""
        frames: list[ServerSentEvent] = []
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            self._append(piece)
            frames += self._take_line()
        self._append(rest)
        return frames

    def finish(self) -> list[ServerSentEvent]:
        """Return the last line, when the bytes ended without a line end."""
        return self._take_line()

    def _append(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._max_frame_bytes:
            raise FrameTooLarge(f"a line of more than {self._max_frame_bytes} bytes")
        if piece:
            self._pieces.append(piece)

    def _take_line(self) -> list[ServerSentEvent]:
        line = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if self._at_start and line:
            self._at_start = False
            line = line.removeprefix(BYTE_ORDER_MARK)
        line = line.strip()
        return [ServerSentEvent(name="message", data=line)] if line else []


async def json_lines(chunks: AsyncGenerator[bytes], max_frame_bytes: int) -> AsyncGenerator[ServerSentEvent]:
    """Yield the lines of a response body. Closes the chunks on exit. Raises FrameTooLarge."""
    parser = JsonLineParser(max_frame_bytes)
    async with aclosing(chunks):
        async for chunk in chunks:
            for frame in parser.feed(chunk):
                yield frame
        for frame in parser.finish():
            yield frame
