"""Streams of events of families for clients, which end when the process stops.

Before: services/api/endpoint_routes.py. After: services/families/ports/requests.py.
"""

from collections.abc import Sequence

from loomlog.services.application.errors import run_refusing
from loomlog.services.application.streaming.items import StreamChunk
from loomlog.services.application.streaming.subscription import CLIENT_LEFT, STOPPING
from loomlog.services.families.ports.requests import EventSource, SentEvent

KEEPALIVE_S = 20.0


class FamilyStreams:
    """The streams of this process."""

    def __init__(self, *, keepalive_s: float = KEEPALIVE_S) -> None:
        self.keepalive_s = keepalive_s
        self._streams: set[FamilyStream] = set()
        self._is_stopping = False

    def open(self, source: EventSource, *, unavailable_code: str) -> "FamilyStream":
        """Return the stream of a source. `unavailable_code`: see run_refusing."""
        stream = FamilyStream(source, self, unavailable_code=unavailable_code)
        self._streams.add(stream)
        if self._is_stopping:
            stream.close(STOPPING)
        return stream

    def forget(self, stream: "FamilyStream") -> None:
        """A stream has ended."""
        self._streams.discard(stream)

    def stop(self) -> None:
        """End all streams: the process is shutting down and its clients reconnect to another."""
        self._is_stopping = True
        for stream in list(self._streams):
            stream.close(STOPPING)


class FamilyStream:
    """`next` and `close` as in run_stream.RunStream."""

    def __init__(self, source: EventSource, streams: FamilyStreams, *, unavailable_code: str) -> None:
        self.end_reason = ""
        self._source = source
        self._streams = streams
        self._unavailable_code = unavailable_code

    async def next(self) -> list[StreamChunk] | None:
        """Return the next events, an empty list for a keepalive, None at the end. Raises Refused."""
        events = await self.events()
        return None if events is None else [StreamChunk(None, one.type, one.data, id=one.id) for one in events]

    async def events(self) -> Sequence[SentEvent] | None:
        """Return them as the family gives them."""
        reading = self._source.next(self._streams.keepalive_s)
        return await run_refusing(reading, unavailable_code=self._unavailable_code)

    def close(self, reason: str = CLIENT_LEFT) -> None:
        """End the stream; a waiting `next` returns."""
        self.end_reason = self.end_reason or reason
        self._source.close()
        self._streams.forget(self)
