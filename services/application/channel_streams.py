"""Streams of the messages of queues for clients: opened here, ended when the process stops.

Before: services/api/channel_endpoints.py. After: channel_stream.py.
"""

from collections.abc import Sequence

from loomlog.services.application.channel_stream import KEEPALIVE_S, ChannelStream
from loomlog.services.application.dispatch import resolve_tenant
from loomlog.services.application.errors import run_refusing
from loomlog.services.application.streaming.subscription import STOPPING
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.operation_input import parse_input
from loomlog.services.families.channel.api import ChannelPeek
from loomlog.services.families.channel.caller import ChannelCaller
from loomlog.services.families.channel.handlers import request_origin
from loomlog.services.families.channel.limits import READ_MAX
from loomlog.services.families.channel.operations import BATCH_BYTES_MAX, ChannelOperations
from loomlog.services.families.channel.store import Message


class ChannelStreams:
    """The streams of this process."""

    def __init__(self, operations: ChannelOperations, *, keepalive_s: float = KEEPALIVE_S) -> None:
        self._operations = operations
        self._keepalive_s = keepalive_s
        self._streams: set[ChannelStream] = set()

    async def follow(
        self, caller: Caller, name: str, *, scope_id: str = "", from_cursor: str = "", tenant: str = ""
    ) -> ChannelStream:
        """Open a stream of the messages of a queue after a cursor, by default from the oldest; no cursor moves.

        Raises Refused.
        """
        fields = {"channel": name, "scope_id": scope_id, "from_cursor": from_cursor}
        asked = parse_input(ChannelPeek, fields, code="invalid_request")
        reader = ChannelCaller(
            tenant=resolve_tenant(caller, tenant),
            origin=request_origin(is_admin=caller.is_admin),
            subject=caller.subject,
            command_id="",
            issued_at_ms=0,
            is_isolated=caller.is_isolated,
        )
        store = self._operations.store
        queue = self._operations.readable_queue(asked.channel, asked.scope_id, reader)

        async def read(after: str) -> Sequence[Message]:
            messages = store.peek(queue, after=after, limit=READ_MAX, bytes_max=BATCH_BYTES_MAX, positions=())
            return await run_refusing(messages, unavailable_code="channel_unavailable")

        await read(asked.from_cursor)  # one of another queue is refused while there is a status to refuse it with
        stream = ChannelStream(
            queue,
            store.cache,
            read,
            cursor=asked.from_cursor,
            keepalive_s=self._keepalive_s,
            on_close=self._streams.discard,
        )
        self._streams.add(stream)
        return stream

    def stop(self) -> None:
        """End all streams: the process is shutting down and its clients reconnect to another."""
        for stream in list(self._streams):
            stream.close(STOPPING)
