"""Server-sent events from bytes that may be cut anywhere.

The parser works on bytes and hands out `data` as bytes: a UTF-8 character split over two chunks is whole again when
its line is, and the JSON reader takes bytes anyway. It follows the WHATWG rules: lines end with LF, CR or CRLF, a byte
order mark at the start is skipped, `:` begins a comment, several data lines are joined by LF, an event without data is
no event, and what is pending when the bytes end is dropped, because nobody knows whether it was whole. `id` and `retry`
are ignored: a model's turn cannot be resumed.

Not chosen: httpx-sse, which decodes to text first and has no bound on a line.

Before: wire. After: anthropic_reply, openai_reply, gemini_reply.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from loomlog.schemas.records import Value

MAX_FRAME_BYTES = 4 << 20
"""Some gateways send a whole tool call in one frame; the largest sensible one writes a 1 MiB file, escaped up to 2x.
More than this is a server that sends no line ends."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class FrameTooLarge(ValueError):
    """A line or an event grew over the bound."""


class ServerEvent(Value, frozen=True, kw_only=True):
    """One event: its name ("message" when it has none) and its data lines joined by LF."""

    name: str
    data: bytes


class SseParser:
    """Feed it chunks, it gives the events that became complete. One parser for one response."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._line: list[bytes] = []  # pieces of the line that is not complete yet
        self._data: list[bytes] = []
        self._name = ""
        self._size = 0
        self._at_start = True
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Events completed by this chunk. Raises FrameTooLarge."""
        if self._after_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]  # the second half of a CRLF that was cut between its bytes
            self._after_cr = False
        events: list[ServerEvent] = []
        for piece in chunk.splitlines(keepends=True):
            self._after_cr = False
            self._add_size(len(piece))
            if piece[-1:] == b"\n":
                self._line.append(piece[: -2 if piece[-2:-1] == b"\r" else -1])
            elif piece[-1:] == b"\r":
                self._line.append(piece[:-1])
                self._after_cr = True
            else:
                self._line.append(piece)
                break
            line = b"".join(self._line)
            self._line.clear()
            event = self._take_line(line)
            if event is not None:
                events.append(event)
        return events

    def _add_size(self, size: int) -> None:
        self._size += size
        if self._size > self._max_frame_bytes:
            raise FrameTooLarge(f"an event of more than {self._max_frame_bytes} bytes")

    def _take_line(self, line: bytes) -> ServerEvent | None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(BYTE_ORDER_MARK)
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode(errors="replace")
        if not self._data:
            self._size = 0  # comments before an event are keep-alives: any number of them is fine
        return None

    def _dispatch(self) -> ServerEvent | None:
        data, name = self._data, self._name
        self._data, self._name, self._size = [], "", 0
        if not data:
            return None
        return ServerEvent(name=name or "message", data=b"\n".join(data))


async def server_events(
    chunks: AsyncGenerator[bytes], max_frame_bytes: int = MAX_FRAME_BYTES
) -> AsyncGenerator[ServerEvent]:
    """The events of a response body. Closes the chunks when it is left. Raises FrameTooLarge."""
    parser = SseParser(max_frame_bytes)
    async with aclosing(chunks):
        async for chunk in chunks:
            for event in parser.feed(chunk):
                yield event
