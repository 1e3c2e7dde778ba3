"""Connections of clients that execute tools, for every transport that can hold one (reference surfaces 1.10).

A connection belongs to the process that accepted it. The tools its client offers are a record of loom.client.events,
published again every `RENEWAL_INTERVAL_S` and valid while the process sends heartbeats; that is how every runtime knows
of it. A runtime calls a tool with a request in loom.tool.requests that names the connection; the process that holds it
passes the call to the client and writes the result to loom.tool.results. The protocol of the connection is implemented
by services/core/clients.

When the connection ends, for whatever reason, every call that the client had first gets its unknown outcome, and the
end of the connection is published after it. When the process dies, nothing is published: the runtimes notice that its
heartbeats stop.

Requests are read from the first connection on; most installations have none.

Before: a transport. After: connection.py, services/core/clients/session.py.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import LogAppender, LogRecord, LogTail, ProducerRecord
from loomlog.connectors.retries import until_answered
from loomlog.connectors.tools.remote_calls import CONNECTION_HEADER, RESULTS_TOPIC
from loomlog.schemas.codec import Codec, Undecodable
from loomlog.schemas.generated.stream_records import (
    ClientHostAlive,
    ClientLeft,
    ClientRegistered,
    RemoteToolRequest,
    RemoteToolResult,
)
from loomlog.schemas.records import Record, replace
from loomlog.services.application.clients.connection import (
    ClientConnection,
    ClientDisconnected,
    ClientSocket,
    FrameReceived,
    SocketClosed,
    close_socket,
    send_frame,
)
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.bounded_resources import CLIENT_CONNECTIONS
from loomlog.services.core.clients import limits, session
from loomlog.services.core.clients.session import (
    ClientSession,
    CloseConnection,
    CompleteCall,
    RegisterTools,
    SendFrame,
    SessionAction,
)
from loomlog.services.core.shares import ShareExhausted, ShareLimits
from loomlog.services.stream.global_tables.global_table import PARTITION
from loomlog.services.stream.shared_slots import SharedSlots

log = logging.getLogger(__name__)

POLL_S = 1.0
APPEND_RETRY_S = 0.2
APPEND_WAIT_S = 15.0
"""Seconds to retry the append of a record about a client; after that the runtimes answer the model without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Limits set by the operator: bytes of a frame, connections of one principal in one process."""

    frame_bytes: int = 1024 * 1024
    connections: int = 8


class ClientConnections:
    """The connections of this process."""

    def __init__(
        self,
        appender: LogAppender,
        codec: Codec,
        *,
        topic: str,
        clock_ms: Callable[[], int],
        fresh_token: Callable[[], str],
        client_limits: ClientLimits,
        results_topic: str = RESULTS_TOPIC,
        heartbeat_s: float = limits.HEARTBEAT_S,
    ) -> None:
        """`topic` is the topic of registrations."""
        self.client_limits = client_limits
        self.host = fresh_token()
        self._appender = appender
        self._codec = codec
        self._topic = topic
        self._results_topic = results_topic
        self._clock_ms = clock_ms
        self._heartbeat_s = heartbeat_s
        self._connections: dict[str, ClientConnection] = {}
        shares = CLIENT_CONNECTIONS.shares
        self._slots = SharedSlots(
            CLIENT_CONNECTIONS.name, ShareLimits.of(shares.total, per_principal=client_limits.connections)
        )
        self._count = 0
        self._first_connection = asyncio.Event()
        self._listening = asyncio.Event()

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    # --- one connection ----------------------------------------------------------------------------------------------

    async def serve(self, caller: Caller, socket: ClientSocket) -> None:
        """Serve a connection until it ends."""
        try:
            slot = self._slots.try_acquire(caller.holder)
        except ShareExhausted as error:
            await self._refuse(socket, str(error))
            return
        with slot:
            await self._serve(caller, socket)

    async def _serve(self, caller: Caller, socket: ClientSocket) -> None:
        self._count += 1
        connection_id = f"{self.host}.{self._count}"
        state = ClientSession(
            connection_id=connection_id,
            frame_bytes_max=self.client_limits.frame_bytes,
            hello_by_ms=self._clock_ms() + int(limits.HELLO_TIMEOUT_S * 1000),
        )
        connection = self._connections[connection_id] = ClientConnection(caller, state, socket)
        self._first_connection.set()
        try:
            if not await self._wait_until_listening():
                await self._refuse(socket, "the log cannot be read now; try again in a moment")
                return
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(connection.read())
                await self._run_session(connection)
                reading.cancel()
        except* ClientDisconnected:
            pass
        finally:
            del self._connections[connection_id]
            await asyncio.shield(self._finish(connection))

    async def _wait_until_listening(self) -> bool:
        """Wait until requests are read: a tool offered earlier could be called without effect."""
        try:
            async with asyncio.timeout(APPEND_WAIT_S):
                await self._listening.wait()
        except TimeoutError:
            return False
        return True

    async def _run_session(self, connection: ClientConnection) -> None:
        """Process events until either side ends the connection."""
        while True:
            item = await connection.next(self._clock_ms())
            now_ms = self._clock_ms()
            match item:
                case SocketClosed():
                    return
                case FrameReceived(text=None):
                    after, acts = session.receive_bytes(connection.session)
                case FrameReceived(text=str(text)):
                    after, acts = session.receive(connection.session, text, now_ms)
                case RemoteToolRequest():
                    after, acts = session.send_request(connection.session, item, now_ms)
                case None:
                    after, acts = session.on_timeout(connection.session, now_ms)
            connection.session = after
            if isinstance(item, FrameReceived):
                connection.resume_reading()
            if await self._execute(connection, acts):
                return

    async def _execute(self, connection: ClientConnection, acts: tuple[SessionAction, ...]) -> bool:
        """Execute the actions; returns whether the connection is to end now.

        Raises ClientDisconnected, also for a client that no longer accepts frames.
        """
        for act in acts:
            match act:
                case SendFrame(frame=frame):
                    await send_frame(connection.socket, session.encode_frame(frame))
                case CompleteCall():
                    await self._publish_result(act)
                case RegisterTools():
                    await self._register(connection, act)
                case CloseConnection(code=code, reason=reason):
                    await close_socket(connection.socket, code, reason)
                    return True
        return False

    async def _finish(self, connection: ClientConnection) -> None:
        """Publish the outcome of the calls, and then the end of the connection."""
        _, acts = session.disconnect(connection.session)
        for act in acts:
            if isinstance(act, CompleteCall):
                await self._publish_result(act)
        for request in connection.undelivered():
            await self._publish_result(
                session.unstarted_call(request, "the client disconnected before it received the call")
            )
        if connection.registration is not None:
            over = ClientLeft(connection_id=connection.connection_id, host=self.host, at_ms=self._clock_ms())
            await self._publish(over)

    async def _refuse(self, socket: ClientSocket, message: str) -> None:
        try:
            for act in session.reject_connection(message):
                if isinstance(act, SendFrame):
                    await send_frame(socket, session.encode_frame(act.frame))
                elif isinstance(act, CloseConnection):
                    await close_socket(socket, act.code, act.reason)
        except ClientDisconnected:
            return

    # --- the log -----------------------------------------------------------------------------------------------------

    async def run(self, open_requests: Callable[[], Awaitable[LogTail]]) -> None:
        """Read requests from the first connection on, and send heartbeats while this process holds any.

        `open_requests` returns a tail positioned at the end. Raises Transient when it cannot.
        """
        await self._first_connection.wait()
        requests = await until_answered(open_requests, "reading requests for clients", retry_s=POLL_S)
        try:
            self._listening.set()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read_requests(requests), name="requests for clients")
                group.create_task(self._send_heartbeats(), name="clients of this process")
        finally:
            await requests.close()

    async def _read_requests(self, requests: LogTail) -> None:
        poll = partial(requests.poll, timeout_s=POLL_S)
        while True:
            for records in (await until_answered(poll, "reading requests for clients", retry_s=POLL_S)).values():
                for record in records:
                    await self._on_request(record)

    async def _on_request(self, record: LogRecord) -> None:
        connection_id = dict(record.headers).get(CONNECTION_HEADER, b"").decode(errors="replace")
        if connection_id.partition(".")[0] != self.host:
            return
        try:
            request = self._codec.decode(record.value or b"").record
        except Undecodable as error:
            log.error("%s/%d/%d cannot be read: %s", record.topic, record.partition, record.offset, error)
            return
        if not isinstance(request, RemoteToolRequest):
            log.error("%s/%d/%d is a %s", record.topic, record.partition, record.offset, type(request).__name__)
            return
        await self._deliver(request)

    async def _deliver(self, request: RemoteToolRequest) -> None:
        connection = self._connections.get(request.connection_id)
        if connection is None or connection.principal != (request.tenant, request.subject):
            await self._publish_result(session.unstarted_call(request, "the client is not connected any more"))
        elif not connection.deliver(request):
            await self._publish_result(session.unstarted_call(request, "the client has too much to do already"))

    async def _send_heartbeats(self) -> None:
        beats = max(1, int(limits.RENEWAL_INTERVAL_S / self._heartbeat_s))
        count = 0
        while True:
            await asyncio.sleep(self._heartbeat_s)
            if not self._connections:
                continue
            count += 1
            await self._publish(ClientHostAlive(host=self.host, at_ms=self._clock_ms()))
            if count % beats == 0:
                for connection in list(self._connections.values()):
                    if connection.registration is not None and connection.connection_id in self._connections:
                        await self._publish(_renew(connection.registration, self._clock_ms()))

    async def _register(self, connection: ClientConnection, offer: RegisterTools) -> None:
        now_ms = self._clock_ms()
        connection.registration = ClientRegistered(
            connection_id=connection.connection_id,
            host=self.host,
            tenant=connection.caller.tenant,
            subject=connection.caller.subject,
            client=offer.client,
            tools=offer.tools,
            registered_at_ms=now_ms,
            at_ms=now_ms,
        )
        if not await self._publish(connection.registration):
            raise ClientDisconnected("the log did not take the registration")

    async def _publish(self, record: ClientRegistered | ClientLeft | ClientHostAlive) -> bool:
        return await self._append(self._topic, None, record)

    async def _publish_result(self, answer: CompleteCall) -> None:
        """Append the result of a call to the log, in the partition of its key, like every result."""
        request = answer.request
        key = request.idempotency_key.encode()
        result = RemoteToolResult(
            idempotency_key=request.idempotency_key,
            request_id=request.request_id,
            run_id=request.run_id,
            tenant=request.tenant,
            text=answer.text,
            is_error=answer.is_error,
            outcome=answer.outcome,
        )
        await self._append(self._results_topic, key, result)

    async def _append(self, topic: str, key: bytes | None, record: Record) -> bool:
        """Append a record; returns whether it is in the log. Duplicates of these records are harmless."""
        outgoing = ProducerRecord(key=key, value=self._codec.encode(record))

        async def append() -> None:
            count = 1 if key is None else await self._appender.partitions(topic)
            await self._appender.append(topic, PARTITION if key is None else partition_of(key, count), [outgoing])

        try:
            async with asyncio.timeout(APPEND_WAIT_S):
                await until_answered(append, f"{topic}: a {type(record).__name__}", retry_s=APPEND_RETRY_S)
                return True
        except TimeoutError:
            log.error("%s: a %s could not be appended within %g s", topic, type(record).__name__, APPEND_WAIT_S)
            return False


def _renew(registration: ClientRegistered, at_ms: int) -> ClientRegistered:
    return replace(registration, at_ms=at_ms)
