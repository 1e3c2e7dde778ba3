"""Server-sent events from bytes that may be cut anywhere. Pure.

The parser works on bytes and returns `data` as bytes: a UTF-8 character split over two chunks is whole again when its
line is, and the JSON reader takes bytes anyway. It follows the WHATWG rules: lines end with LF, CR or CRLF and with
nothing else (JSON may contain U+2028), a byte order mark at the start is skipped, `:` begins a comment, several data
lines are joined by LF, an event without data is no event, an event has the last id seen up to it, and what is pending
when the bytes end is dropped. `retry` is ignored.

Not chosen: httpx-sse, which decodes to text first and has no bound on a line; httpx's iter_lines (splits at U+2028).

Before: connectors/models/provider_client.py and connectors/client/run_stream.py feed it. After: anthropic_reply.py,
openai_reply.py, gemini_reply.py; services/cli/terminal/run_view.py.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from loomlog.schemas.records import Value

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class FrameTooLarge(ValueError):
    """A line or an event grew over the bound."""


class ServerSentEvent(Value, frozen=True, kw_only=True):
    """One event. `name` is "message" when it has none; `last_id` is the last id seen, its own or an earlier one."""

    name: str
    data: bytes
    last_id: str = ""
    has_own_id: bool = False


class EventParser:
    """Incremental parser of one response. `max_frame_bytes` bounds a line and an event."""

    def __init__(self, max_frame_bytes: int, *, last_id: str = "") -> None:
        self.last_id = last_id
        self._max_frame_bytes = max_frame_bytes
        self._line: list[bytes] = []  # pieces of the line that is not complete yet
        self._data: list[bytes] = []
        self._name = ""
        self._has_own_id = False
        self._size = 0
        self._at_start = True
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Return the events completed by this chunk. Raises FrameTooLarge."""
        if self._after_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]  # the second half of a CRLF that was cut between its bytes
            self._after_cr = False
        events: list[ServerSentEvent] = []
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

    def _take_line(self, line: bytes) -> ServerSentEvent | None:
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
        elif field == b"id" and b"\0" not in value:
            self.last_id = value.decode(errors="replace")
            self._has_own_id = True
        if not self._data:
            self._size = 0  # comments between events are keep-alives: any number of them is fine
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        data, name, has_own_id = self._data, self._name, self._has_own_id
        self._data, self._name, self._has_own_id, self._size = [], "", False, 0
        if not data:
            return None
        return ServerSentEvent(
            name=name or "message", data=b"\n".join(data), last_id=self.last_id, has_own_id=has_own_id
        )


async def server_events(chunks: AsyncGenerator[bytes], max_frame_bytes: int) -> AsyncGenerator[ServerSentEvent]:
    """Yield the events of a response body. Closes the chunks when it is left. Raises FrameTooLarge."""
    parser = EventParser(max_frame_bytes)
    async with aclosing(chunks):
        async for chunk in chunks:
            for event in parser.feed(chunk):
                yield event
