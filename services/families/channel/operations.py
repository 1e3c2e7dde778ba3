"""What operations on messages do, for tools, requests and the publishers of the system.

    publish         one command; its id is that of the call, so a repeated call publishes once
    subscribe       ReadQueue leases the next messages, they are loaded, and the lease is settled: by the run once it
                    has recorded them, here for a request. Without messages a call of a run waits in its run
                    (`waiting`), a request on the cache of this process
    ack             moves a cursor forward
    peek, await     read without moving anything; await looks at several channels
    broadcast       publishes to several channels, of which all must be allowed
    purge           of operators: removes the messages of all queues of a channel

Before: handlers.py. After: access.py, fields.py; store.py.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from msgspec import UNSET, UnsetType, structs

from loomlog.connectors.protocols import CallWait
from loomlog.schemas.generated.channel_commands import (
    AckCursor,
    PublishMessage,
    PurgeQueue,
    ReadQueue,
    SettleLease,
    WatchQueue,
)
from loomlog.schemas.generated.channel_events import (
    MessagePublished,
    MessagesDropped,
    MessagesLeased,
    QueuePurged,
    QueueWatched,
    ReaderWaiting,
)
from loomlog.schemas.generated.run_commands import ReportWait
from loomlog.schemas.generated.values import ChannelUse, CommandEnvelope, LeaseRef
from loomlog.schemas.records import Value, copy_as, replace
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.core.times import format_ns
from loomlog.services.families.channel import limits as bounds
from loomlog.services.families.channel.access import require_channel, resolve_queue
from loomlog.services.families.channel.api import (
    BroadcastRow,
    ChannelAck,
    ChannelAcknowledged,
    ChannelAwait,
    ChannelAwaited,
    ChannelBatch,
    ChannelBroadcast,
    ChannelBroadcasted,
    ChannelMessages,
    ChannelPeek,
    ChannelPublish,
    ChannelPurged,
    ChannelResult,
    ChannelSubscribe,
    Published,
)
from loomlog.services.families.channel.caller import ChannelCaller, Declaration, Declarations, Queue
from loomlog.services.families.channel.decide import lease_id_of
from loomlog.services.families.channel.fields import (
    channel_name,
    channel_names,
    deliver_at_ms,
    refuse,
    ttl_ms,
    value_text,
)
from loomlog.services.families.channel.store import ChannelStore, Message, shown_message
from loomlog.services.families.operation import RunAnswer
from loomlog.services.stream.entities.answers import Answer

log = logging.getLogger(__name__)

BATCH_BYTES_MAX = 512 * 1024
"""Bytes of the values of one batch; what is beyond is read next."""
LONGPOLL_CAP_MS = 30_000
AT_LEAST = "at_least"
SETTLE_TRIES, SETTLE_RETRY_S = 5, 5.0
"""A lease of a request returns by itself after 60 s; until then its settlement is tried."""
CLOSE_S = 2.0
"""How long the end of the process waits for settlements: messages of a lease that is not settled are seen again."""
PURGES_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelLimits:
    """What the installation allows."""

    value_bytes_max: int = bounds.VALUE_BYTES_DEFAULT
    longpoll_cap_ms: int = LONGPOLL_CAP_MS


class Batch(Value, frozen=True, kw_only=True):
    """Messages of a queue that are returned together."""

    messages: tuple[Message, ...]
    taken: int
    """How many positions of the lease they cover, expired ones included."""


class ChannelOperations:
    """All operations raise Refused and Unavailable. `scope_id` is taken of operators only."""

    def __init__(
        self,
        declarations: Declarations,
        store: ChannelStore,
        *,
        limits: ChannelLimits = ChannelLimits(),
        clock_ms: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.declarations = declarations
        self.store = store
        self.limits = limits
        self._clock_ms = clock_ms
        self._sleep = sleep
        self._settling: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Let settlements under way end, and give up those that do not: their queues ask again."""
        if self._settling:
            await asyncio.wait(self._settling, timeout=CLOSE_S)
        for task in tuple(self._settling):
            task.cancel()
        await asyncio.gather(*tuple(self._settling), return_exceptions=True)

    # --- publishing --------------------------------------------------------------------------------------------------

    async def publish(self, asked: ChannelPublish, caller: ChannelCaller) -> RunAnswer[Published]:
        """Publish a message."""
        declared = require_channel(self.declarations, caller, channel_name(asked.channel), publishes=True)
        return await self._publish(declared, resolve_queue(declared, caller, asked.scope_id), asked, caller)

    async def _publish(
        self, declared: Declaration, queue: Queue, asked: ChannelPublish | ChannelBroadcast, caller: ChannelCaller
    ) -> RunAnswer[Published]:
        text = value_text(asked.value, self.limits.value_bytes_max)
        size = len(text.encode())
        command = copy_as(
            PublishMessage,
            queue,
            envelope=caller.envelope(queue),
            value=text,
            value_bytes=size,
            ttl_ms=ttl_ms(asked.ttl, declared.default_ttl_s),
            deliver_at_ms=deliver_at_ms(asked.deliver_at, self._clock_ms()),
            max_messages=declared.max_messages,
            publisher=caller.publisher or caller.user_id or caller.subject,
        )
        answer = await self.store.ask(command, queue)
        (event,) = (event for event in answer.events if isinstance(event, MessagePublished))
        dropped = event.dropped or sum(one.count for one in answer.events if isinstance(one, MessagesDropped))
        use = copy_as(
            ChannelUse,
            queue,
            kind="publish",
            message_id=event.message_id,
            payload_bytes=event.value_bytes or size,
            dropped_oldest=dropped,
        )
        published = Published(
            message_id=event.message_id,
            channel=queue.channel,
            dropped_oldest=dropped,
            visible_at=UNSET if event.position else format_ns(event.visible_ns),
        )
        return RunAnswer(value=published, positions=(answer.position,), channels=(use,))

    async def broadcast(self, asked: ChannelBroadcast, caller: ChannelCaller) -> RunAnswer[ChannelBroadcasted]:
        """Publish a value to several channels, of which all must be allowed."""
        value_text(asked.value, self.limits.value_bytes_max)
        places: list[tuple[Declaration, Queue]] = []
        for name in channel_names(asked.channels):
            declared = require_channel(self.declarations, caller, name, publishes=True)
            places.append((declared, resolve_queue(declared, caller, asked.scope_id)))
            ttl_ms(asked.ttl, declared.default_ttl_s)
        deliver_at_ms(asked.deliver_at, self._clock_ms())
        rows, positions, uses = list[BroadcastRow](), list[str](), list[ChannelUse]()
        for declared, queue in places:
            try:
                done = await self._publish(declared, queue, asked, caller)
            except Refused as refused:
                rows.append(BroadcastRow(channel=queue.channel, error=str(refused), code=refused.code))
                continue
            rows.append(BroadcastRow(**structs.asdict(done.value)))
            positions += done.positions
            uses += done.channels
        answer = ChannelBroadcasted(published=len(uses), failed=len(rows) - len(uses), results=rows)
        return RunAnswer(value=answer, positions=tuple(positions), channels=tuple(uses))

    # --- reading with a cursor ---------------------------------------------------------------------------------------

    async def subscribe(self, asked: ChannelSubscribe, caller: ChannelCaller) -> RunAnswer[ChannelBatch]:
        """Take the next messages; `waiting` for a call of a run that waits for them."""
        queue = self.readable_queue(asked.channel, asked.scope_id, caller)
        wait_ms = min(asked.wait_ms, self.limits.longpoll_cap_ms)
        command = ReadQueue(
            envelope=caller.envelope(queue),
            channel=queue.channel,
            scope=queue.scope,
            scope_id=queue.scope_id,
            reader=asked.reader,
            after=asked.from_cursor,
            max_messages=asked.max_messages,
            call=caller.call,
            wait_until_ms=self._clock_ms() + wait_ms if wait_ms and caller.call is not None else 0,
        )
        if caller.call is not None:
            return await self._read_in_run(queue, command, asked.wait_ms)
        return await self._read_by_request(queue, command, asked.wait_ms, caller)

    async def _read_in_run(self, queue: Queue, command: ReadQueue, wait_ms: int) -> RunAnswer[ChannelBatch]:
        answer = await self.store.ask(command, queue)
        lease_id = lease_id_of(command.envelope.command_id)
        for event in answer.events:
            if isinstance(event, ReaderWaiting) and event.wait_id == lease_id:
                wait = CallWait(wait_id=event.wait_id, until_ms=event.until_ms, queues=(queue.to_ref(),))
                return RunAnswer(value=_batch(queue, (), ""), waiting=wait)
        deliveries = _leased(answer, command)
        return await self.leased(queue, lease_id, deliveries, after=command.after, wait_ms=wait_ms)

    async def leased(
        self,
        queue: Queue,
        lease_id: str,
        deliveries: Mapping[int, int],
        *,
        after: str,
        wait_ms: int,
    ) -> RunAnswer[ChannelBatch]:
        """Return the answer of a subscribe that took these positions; its lease says how many it returns.

        `deliveries`: of `deliveries_by_position`. `wait_ms`: how long it wanted to wait.
        """
        batch = await self._load(queue, deliveries)
        leases = (LeaseRef(queue=queue.to_ref(), lease_id=lease_id, taken=batch.taken),) if deliveries else ()
        uses = tuple(_delivery(queue, message) for message in batch.messages)
        answer = _batch(queue, batch.messages, after, wait_capped_ms=self._told_cap(wait_ms))
        return RunAnswer(value=answer, channels=uses, leases=leases)

    async def _read_by_request(
        self, queue: Queue, command: ReadQueue, wait_ms: int, caller: ChannelCaller
    ) -> RunAnswer[ChannelBatch]:
        """Ask the owner again at each message until there are some; each time under an id of its own.

        An answer that was in the log before the question is that of an earlier attempt, which went on: so does this
        one, at once, and ends with the same batch.
        """
        loop, cache = asyncio.get_running_loop(), self.store.cache
        deadline, step = loop.time() + min(wait_ms, self.limits.longpoll_cap_ms) / 1000, 0
        with cache.watch([queue]) as watch:
            while True:
                watch.clear()
                heard = dict(cache.heard)
                asked = _with_envelope(command, caller.envelope(queue, str(step)))
                answer = await self.store.ask(asked, queue)
                taken = await self._taken(queue, asked, answer, wait_ms)
                if taken.value.messages:
                    return taken
                is_repeated = answer.offset <= heard.get(answer.partition, -1)
                if not is_repeated and loop.time() >= deadline:
                    return taken
                if not is_repeated:
                    await watch.wait(deadline - loop.time())
                step += 1

    async def _taken(self, queue: Queue, command: ReadQueue, answer: Answer, wait_ms: int) -> RunAnswer[ChannelBatch]:
        """Return what a request has read, and settle the lease beside the answer."""
        deliveries = _leased(answer, command)
        batch = await self._load(queue, deliveries)
        if deliveries:
            self._settle(queue, command.envelope, batch.taken)
        shown = _batch(queue, batch.messages, command.after, wait_capped_ms=self._told_cap(wait_ms))
        return RunAnswer(value=shown, positions=(answer.position,))

    async def _load(self, queue: Queue, deliveries: Mapping[int, int]) -> Batch:
        """Load messages as far as they fit one batch; the first one always does."""
        messages, size, taken = list[Message](), 0, 0
        loaded = {message.position: message for message in await self.store.load(queue, tuple(deliveries))}
        for position, attempt in deliveries.items():
            message = loaded.get(position)
            if message is not None:
                if messages and size + message.bytes > BATCH_BYTES_MAX:
                    break
                messages.append(replace(message, attempt=attempt))
                size += message.bytes
            taken += 1
        return Batch(messages=tuple(messages), taken=taken)

    def _settle(self, queue: Queue, envelope: CommandEnvelope, taken: int) -> None:
        lease_id = lease_id_of(envelope.command_id)
        command = settle_command(queue, lease_id, taken, subject=envelope.subject, at_ms=self._clock_ms())
        self.spawn(self.settle(queue, command))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work beside the answer; `close` ends it."""
        task = asyncio.get_running_loop().create_task(work)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def settle(self, queue: Queue, command: SettleLease) -> None:
        """Settle a lease, with some tries: later its queue asks again, or shows the messages again."""
        for attempt in range(SETTLE_TRIES):
            if attempt:
                await self._sleep(SETTLE_RETRY_S)
            try:
                await self.store.ask(command, queue)
                return
            except Unavailable as error:
                log.warning("the lease %s of %s is not settled yet: %s", command.lease_id, queue.aggregate, error)
            except Refused as refused:
                log.error("the lease %s of %s cannot be settled: %s", command.lease_id, queue.aggregate, refused)
                return

    async def ack(self, asked: ChannelAck, caller: ChannelCaller) -> RunAnswer[ChannelAcknowledged]:
        """Move a cursor forward."""
        queue = self.readable_queue(asked.channel, asked.scope_id, caller)
        command = AckCursor(
            envelope=caller.envelope(queue),
            channel=queue.channel,
            scope=queue.scope,
            scope_id=queue.scope_id,
            reader=asked.reader,
            cursor=asked.cursor,
        )
        answer = await self.store.ask(command, queue)
        return RunAnswer(value=ChannelAcknowledged(ok=True), positions=(answer.position,))

    # --- reading without -------------------------------------------------------------------------------------------

    async def peek(self, asked: ChannelPeek, caller: ChannelCaller) -> RunAnswer[ChannelMessages]:
        """Return messages with their cursors: those behind a cursor, or the newest before it."""
        queue = self.readable_queue(asked.channel, asked.scope_id, caller)
        messages = await self.store.peek(
            queue,
            after=asked.from_cursor,
            newest_first=asked.order == "newest",
            limit=asked.max_messages,
            bytes_max=BATCH_BYTES_MAX,
            positions=caller.positions,
        )
        shown = [shown_message(message, with_place=True) for message in messages]
        next_cursor = messages[-1].cursor if messages else UNSET
        return RunAnswer(value=ChannelMessages(channel=queue.channel, messages=shown, next_cursor=next_cursor))

    async def await_(self, asked: ChannelAwait, caller: ChannelCaller) -> RunAnswer[ChannelAwaited]:
        """Wait until channels have messages, and return them; no cursor moves. `waiting` for a call of a run."""
        awaited = self.awaited(asked, caller)
        if caller.call is None:
            return await self._await_by_request(awaited, caller)
        answer = await self.look(awaited, caller.positions)
        if answer.value.satisfied or not asked.wait_ms:
            return answer
        return await self._await_in_run(awaited, caller)

    def awaited(self, asked: ChannelAwait, caller: ChannelCaller) -> "Awaited":
        """Return what an await is for."""
        names = channel_names(asked.channels)
        if asked.mode == AT_LEAST and not 1 <= asked.n <= bounds.READ_MAX * len(names):
            raise refuse(f"n: expected a whole number from 1 to {bounds.READ_MAX * len(names)}, not {asked.n}")
        queues = tuple(self.readable_queue(name, asked.scope_id, caller) for name in names)
        return Awaited(
            queues=queues,
            mode=asked.mode,
            needed=asked.n if asked.mode == AT_LEAST else 0,
            after=asked.from_cursor,
            max_messages=asked.max_messages,
            wait_ms=asked.wait_ms,
        )

    async def _await_in_run(self, asked: "Awaited", caller: ChannelCaller) -> RunAnswer[ChannelAwaited]:
        assert caller.call is not None
        call, counts, tokens = caller.call, list[int](), list[str]()
        until_ms = self._clock_ms() + min(asked.wait_ms, self.limits.longpoll_cap_ms)
        for queue in asked.queues:
            command = WatchQueue(
                envelope=caller.envelope(queue),
                channel=queue.channel,
                scope=queue.scope,
                scope_id=queue.scope_id,
                call=call,
                until_ms=until_ms,
                after=asked.after,
            )
            answer = await self.store.ask(command, queue)
            watched = [event for event in answer.events if isinstance(event, QueueWatched)]
            counts.append(watched[-1].count if watched else 0)
            # An earlier attempt may have begun the wait.
            until_ms = watched[-1].until_ms if watched else until_ms
            tokens.append(answer.position)
        if asked.is_satisfied(counts):
            self.end_watches(asked, caller.command_id)
            return await self.look(asked, (*caller.positions, *tokens), satisfied=True)
        wait = CallWait(
            wait_id=lease_id_of(caller.command_id),
            until_ms=until_ms,
            queues=tuple(queue.to_ref() for queue in asked.queues),
            mode=asked.mode,
            needed=asked.needed,
        )
        return RunAnswer(value=_nothing_awaited(asked), waiting=wait)

    def end_watches(self, asked: "Awaited", command_id: str) -> None:
        """Tell queues that a call does not await their messages any more, beside the answer."""
        wait_id = lease_id_of(command_id)
        for queue in asked.queues:
            command = settle_command(queue, wait_id, 0, subject=wait_id, at_ms=self._clock_ms())
            self.spawn(self.settle(queue, command))

    async def _await_by_request(self, asked: "Awaited", caller: ChannelCaller) -> RunAnswer[ChannelAwaited]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(asked.wait_ms, self.limits.longpoll_cap_ms) / 1000
        with self.store.cache.watch(asked.queues) as watch:
            while True:
                watch.clear()
                answer = await self.look(asked, caller.positions)
                if answer.value.satisfied or loop.time() >= deadline:
                    return answer
                await watch.wait(deadline - loop.time())

    async def look(
        self, asked: "Awaited", positions: Sequence[str], *, satisfied: bool | None = None
    ) -> RunAnswer[ChannelAwaited]:
        """Return the answer of an await with the messages that are there now.

        `satisfied`: the owners of the queues have counted; None: it is whatever there is now.
        """
        most, room = max(asked.max_messages, min(asked.needed, bounds.READ_MAX)), BATCH_BYTES_MAX
        results, counts = dict[str, ChannelResult](), list[int]()
        for queue in asked.queues:
            messages = await self.store.peek(
                queue, after=asked.after, is_committed=True, limit=most, bytes_max=room, positions=positions
            )
            counts.append(len(messages))
            shown = messages[: asked.max_messages]
            room = max(1, room - sum(message.bytes for message in shown))
            batch = _batch(queue, shown, asked.after)
            results[queue.channel] = ChannelResult(messages=batch.messages, next_cursor=batch.next_cursor)
        is_satisfied = asked.is_satisfied(counts) if satisfied is None else satisfied
        answer = ChannelAwaited(
            satisfied=is_satisfied,
            timed_out=not is_satisfied,
            mode=asked.mode,
            fired=[queue.channel for queue, count in zip(asked.queues, counts, strict=True) if count],
            results=results,
            total_messages=sum(len(one.messages) for one in results.values()),
            wait_capped_ms=self._told_cap(asked.wait_ms),
        )
        return RunAnswer(value=answer)

    # --- operators ---------------------------------------------------------------------------------------------------

    async def purge(self, name: str, caller: ChannelCaller) -> RunAnswer[ChannelPurged]:
        """Remove the messages of all queues of a channel. Cursors stay."""
        declared = self.declarations.find(caller.tenant, name)
        if declared is None:
            raise Refused("channel_not_found", f"there is no channel {name[:80]!r}")
        queues = await self.store.queues(declared, caller.tenant)
        purged, positions = 0, list[str]()
        for start in range(0, len(queues), PURGES_AT_ONCE):
            some = queues[start : start + PURGES_AT_ONCE]
            for answer in await asyncio.gather(*(self._purge(queue, caller) for queue in some)):
                purged += sum(event.count for event in answer.events if isinstance(event, QueuePurged))
                positions.append(answer.position)
        return RunAnswer(value=ChannelPurged(name=name, purged=purged), positions=tuple(positions))

    async def _purge(self, queue: Queue, caller: ChannelCaller) -> Answer:
        command = copy_as(PurgeQueue, queue, envelope=caller.envelope(queue))
        return await self.store.ask(command, queue)

    # --- common ------------------------------------------------------------------------------------------------------

    def readable_queue(self, name: str, scope_id: str, caller: ChannelCaller) -> Queue:
        """Return the queue of a channel that the caller may read."""
        declared = require_channel(self.declarations, caller, channel_name(name), publishes=False)
        return resolve_queue(declared, caller, scope_id)

    def _told_cap(self, wait_ms: int) -> int | UnsetType:
        """Return the cap that applied to a wait, for its answer."""
        cap = self.limits.longpoll_cap_ms
        return UNSET if wait_ms <= cap else cap


class Awaited(Value, frozen=True, kw_only=True):
    """What an await waits for."""

    queues: tuple[Queue, ...]
    mode: str
    needed: int
    after: str
    max_messages: int
    wait_ms: int
    """How long it wants to wait; the cap of the installation applies."""

    def is_satisfied(self, counts: Sequence[int]) -> bool:
        """Whether these numbers of messages are enough."""
        if self.mode == AT_LEAST:
            return sum(counts) >= self.needed
        return all(counts) if self.mode == "all" else any(counts)


def settle_command(queue: Queue, lease_id: str, taken: int, *, subject: str, at_ms: int) -> SettleLease:
    """Return the command that settles a lease; its id names the lease, so the first one counts."""
    return copy_as(
        SettleLease,
        queue,
        envelope=CommandEnvelope(
            command_id=f"{lease_id}.settle", tenant=queue.tenant, subject=subject, issued_at_ms=at_ms
        ),
        lease_id=lease_id,
        taken=taken,
    )


def _with_envelope(command: ReadQueue, envelope: CommandEnvelope) -> ReadQueue:
    return ReadQueue(
        envelope=envelope,
        channel=command.channel,
        scope=command.scope,
        scope_id=command.scope_id,
        reader=command.reader,
        after=command.after,
        max_messages=command.max_messages,
    )


def deliveries_by_position(leased: MessagesLeased | ReportWait) -> Mapping[int, int]:
    """Return how often the reader of a lease was given each message, this time included, by position."""
    return dict(zip(leased.positions, leased.attempts or repeat(1), strict=False))


def _leased(answer: Answer, command: ReadQueue) -> Mapping[int, int]:
    """Return what the command took, of `deliveries_by_position`; a decision may serve others who waited."""
    lease_id = lease_id_of(command.envelope.command_id)
    for event in answer.events:
        if isinstance(event, MessagesLeased) and event.lease_id == lease_id:
            return deliveries_by_position(event)
    return {}


def _delivery(queue: Queue, message: Message) -> ChannelUse:
    return copy_as(
        ChannelUse,
        queue,
        kind="delivery",
        message_id=message.id,
        payload_bytes=message.bytes,
        cursor=message.cursor,
        attempt=message.attempt,
    )


def _batch(
    queue: Queue, messages: Sequence[Message], after: str, *, wait_capped_ms: int | UnsetType = UNSET
) -> ChannelBatch:
    """Return messages as an answer; without any, the next read goes on from the same place."""
    return ChannelBatch(
        channel=queue.channel,
        messages=[shown_message(message) for message in messages],
        next_cursor=messages[-1].cursor if messages else after,
        wait_capped_ms=wait_capped_ms,
    )


def _nothing_awaited(asked: Awaited) -> ChannelAwaited:
    return ChannelAwaited(satisfied=False, timed_out=False, mode=asked.mode, fired=[], results={}, total_messages=0)
