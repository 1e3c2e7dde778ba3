"""The messages of a queue as a stream: each once, in order, without moving a cursor of a reader.

A stream holds a cursor and no messages: it reads the queue after its cursor when it is woken, so a slow client costs no
memory, and one that reconnects resumes after the last message it has (Last-Event-ID).

Before: api.py declares it. After: store.py, message_cache.py.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from loomlog.services.core.access.decide import Caller
from loomlog.services.core.operation_input import parse_input
from loomlog.services.families.channel.api import ChannelPeek
from loomlog.services.families.channel.caller import ChannelCaller, Queue
from loomlog.services.families.channel.handlers import request_origin
from loomlog.services.families.channel.limits import READ_MAX
from loomlog.services.families.channel.message_cache import MessageCache
from loomlog.services.families.channel.operations import BATCH_BYTES_MAX, ChannelOperations
from loomlog.services.families.channel.store import Message, shown_message
from loomlog.services.families.ports.requests import EndpointRequest, SentEvent

READ_AGAIN_S = 30.0
"""A queue is read so often at least, should its messages not be heard of here."""
MESSAGE = "message"

ReadAfter = Callable[[str], Awaitable[Sequence[Message]]]
"""Returns messages after a cursor, in order; raises Refused, Unavailable."""


class ChannelStream:
    """Protocol loomlog.services.families.ports.requests.EventSource."""

    def __init__(self, queue: Queue, cache: MessageCache, read: ReadAfter, *, cursor: str = "") -> None:
        """`cursor`: where the client is; empty: before the oldest message."""
        self._read = read
        self._cursor = cursor
        self._has_ended = False
        self._stack = contextlib.ExitStack()
        self._watch = self._stack.enter_context(cache.watch([queue]))
        self._watch.wake()
        self._read_at = 0.0

    async def next(self, wait_s: float) -> Sequence[SentEvent] | None:
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        while not self._has_ended:
            if not await self._watch.wait(until - loop.time()) and loop.time() - self._read_at < READ_AGAIN_S:
                return []
            self._watch.clear()
            if self._is_over():
                return None
            messages = await self._read(self._cursor)
            self._read_at = loop.time()
            if messages:
                self._cursor = messages[-1].cursor
                self._watch.wake()  # there may be more
                return [_event(message) for message in messages]
            if loop.time() >= until:
                return []
        return None

    def _is_over(self) -> bool:
        return self._has_ended

    def close(self) -> None:
        self._has_ended = True
        self._watch.wake()
        self._stack.close()


class ChannelStreams:
    """Opens streams."""

    def __init__(self, operations: ChannelOperations) -> None:
        self._operations = operations

    async def answer(self, request: EndpointRequest) -> ChannelStream:
        """Answer a request with a stream. Raises Refused, Unavailable."""
        cursor = request.headers.get("last-event-id") or request.text("from_cursor")
        scope_id, tenant = request.text("scope_id"), request.tenant()
        return await self.follow(request.caller, tenant, request.path["name"], scope_id=scope_id, from_cursor=cursor)

    async def follow(
        self, caller: Caller, tenant: str, name: str, *, scope_id: str = "", from_cursor: str = ""
    ) -> ChannelStream:
        """Open a stream of the messages of a queue after a cursor, by default from the oldest.

        Raises Refused, Unavailable.
        """
        fields = {"channel": name, "scope_id": scope_id, "from_cursor": from_cursor}
        asked = parse_input(ChannelPeek, fields, code="invalid_request")
        reader = ChannelCaller(
            tenant=tenant,
            origin=request_origin(is_admin=caller.is_admin),
            subject=caller.subject,
            command_id="",
            issued_at_ms=0,
            is_isolated=caller.is_isolated,
        )
        store = self._operations.store
        queue = self._operations.readable_queue(asked.channel, asked.scope_id, reader)

        async def read(after: str) -> Sequence[Message]:
            return await store.peek(queue, after=after, limit=READ_MAX, bytes_max=BATCH_BYTES_MAX, positions=())

        await read(asked.from_cursor)  # one of another queue is refused while there is a status to refuse it with
        return ChannelStream(queue, store.cache, read, cursor=asked.from_cursor)


def _event(message: Message) -> SentEvent:
    shown = shown_message(message, with_place=True)
    return SentEvent(MESSAGE, msgspec.json.encode(shown), message.cursor)
