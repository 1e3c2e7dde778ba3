"""Server-sent events with their ids, from bytes that may be cut anywhere. Pure.

The ids are what a lost connection is resumed with, so an event keeps the last id that was seen up to it, as the WHATWG
rules say; `own_id` tells whether it came with one. Lines end with LF, CR or CRLF and with nothing else: JSON may hold
U+2028 and its like, which text splitting would take for line ends. What is pending when the bytes end is dropped.

Not chosen: the parser of connectors.models (it leaves ids out on purpose), httpx's iter_lines (splits at U+2028).

Before: run_stream.py feeds it. After: services/cli/terminal/run_view.py shows the frames.
"""

from dataclasses import dataclass

MAX_FRAME_BYTES = 32 * 1024 * 1024
"""A tool result of some megabytes, escaped; more than this is not an event stream of ours."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class FrameTooLarge(ValueError):
    """An event grew over the bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSentEvent:
    """One event: its name, its data as bytes, the last id seen, and whether it brought that id itself."""

    name: str
    data: bytes
    last_id: str
    has_own_id: bool


class EventParser:
    """Feed it chunks, it gives the events that became complete. One parser for one response."""

    def __init__(self, *, last_id: str = "", max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.last_id = last_id
        self._max_frame_bytes = max_frame_bytes
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._name = ""
        self._has_own_id = False
        self._size = 0
        self._at_start = True
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Events completed by this chunk. Raises FrameTooLarge."""
        if self._after_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]  # the second half of a CRLF that was cut between its bytes
        self._after_cr = False
        events: list[ServerSentEvent] = []
        for piece in chunk.splitlines(keepends=True):
            self._count_bytes(len(piece))
            body = piece.rstrip(b"\r\n")
            self._line.append(body)
            if len(body) == len(piece):
                return events
            self._after_cr = piece.endswith(b"\r")
            line = b"".join(self._line)
            self._line.clear()
            event = self._process_line(line)
            if event is not None:
                events.append(event)
        return events

    def _count_bytes(self, count: int) -> None:
        self._size += count
        if self._size > self._max_frame_bytes:
            raise FrameTooLarge(f"an event of more than {self._max_frame_bytes} bytes")

    def _process_line(self, line: bytes) -> ServerSentEvent | None:
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
        data, name, own_id = self._data, self._name, self._has_own_id
        self._data, self._name, self._has_own_id, self._size = [], "", False, 0
        if not data:
            return None
        return ServerSentEvent(name=name or "message", data=b"\n".join(data), last_id=self.last_id, has_own_id=own_id)
