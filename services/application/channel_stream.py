"""A client's view of a queue as a stream: each message once, in order, without moving a cursor.

A stream holds a cursor and no messages: it reads the queue after its cursor when it is woken, so a slow client costs no
memory, and one that comes back goes on after the last message it has (Last-Event-ID).

Before: channel_streams.py. After: services/families/channel/store.py, message_cache.py.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from loomlog.services.application.streaming.items import StreamChunk
from loomlog.services.application.streaming.subscription import CLIENT_LEFT
from loomlog.services.families.channel.caller import Queue
from loomlog.services.families.channel.message_cache import MessageCache
from loomlog.services.families.channel.store import Message, shown_message

KEEPALIVE_S = 20.0
READ_AGAIN_S = 30.0
"""A queue is read so often at least, should its messages not be heard of here."""
MESSAGE = "message"

ReadAfter = Callable[[str], Awaitable[Sequence[Message]]]
"""Returns messages after a cursor, in order; raises Refused."""


class ChannelStream:
    """`next` and `close` as in run_stream.RunStream."""

    def __init__(
        self,
        queue: Queue,
        cache: MessageCache,
        read: ReadAfter,
        *,
        cursor: str = "",
        keepalive_s: float = KEEPALIVE_S,
        on_close: Callable[["ChannelStream"], None] = lambda stream: None,
    ) -> None:
        """`cursor`: where the client is; empty: before the oldest message."""
        self.end_reason = ""
        self._read = read
        self._cursor = cursor
        self._keepalive_s = keepalive_s
        self._on_close = on_close
        self._stack = contextlib.ExitStack()
        self._watch = self._stack.enter_context(cache.watch([queue]))
        self._watch.wake()
        self._read_at = 0.0

    async def next(self) -> list[StreamChunk] | None:
        """Return the next messages, an empty list for a keepalive, None at the end. Raises Refused."""
        loop = asyncio.get_running_loop()
        keepalive_at = loop.time() + self._keepalive_s
        while not self._has_ended():
            if not await self._watch.wait(keepalive_at - loop.time()) and loop.time() - self._read_at < READ_AGAIN_S:
                return []
            self._watch.clear()
            if self._has_ended():
                return None
            messages = await self._read(self._cursor)
            self._read_at = loop.time()
            if messages:
                self._cursor = messages[-1].cursor
                self._watch.wake()  # there may be more
                return [_chunk(message) for message in messages]
            if loop.time() >= keepalive_at:
                return []
        return None

    def _has_ended(self) -> bool:
        return bool(self.end_reason)

    def close(self, reason: str = CLIENT_LEFT) -> None:
        """End the stream; a waiting `next` returns."""
        self.end_reason = self.end_reason or reason
        self._watch.wake()
        self._stack.close()
        self._on_close(self)


def _chunk(message: Message) -> StreamChunk:
    shown = shown_message(message, with_place=True)
    return StreamChunk(None, MESSAGE, msgspec.json.encode(shown), id=message.cursor)
