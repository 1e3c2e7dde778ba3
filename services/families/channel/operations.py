"""Operations on channels, for tools, requests and the publishers of the system: one table of names, one handler.

    publish         one command; its id is that of the call, so a repeated call publishes once
    subscribe       ReadQueue leases the next messages, they are loaded, and the lease is settled: by the run once it
                    has recorded them, here for a request. Without messages a call of a run waits in its run
                    (`waiting`), a request on the cache of this process
    ack             moves a cursor forward
    peek, await     read without moving anything; await looks at several channels
    broadcast       publishes to several channels, of which all must be allowed
    list_channels   the patterns of the agent
    purge           of operators: removes the messages of all queues of a channel

Before: services/application/channels.py, services/runtime/tools/channel_tool.py. After: access.py, fields.py; store.py.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

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
from loomlog.schemas.records import Value, replace
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.channel import limits as bounds
from loomlog.services.families.channel.access import require_channel, resolve_queue
from loomlog.services.families.channel.caller import ChannelCaller, Declaration, Declarations, Queue
from loomlog.services.families.channel.decide import lease_id_of
from loomlog.services.families.channel.fields import (
    CURSOR_CHARACTERS_MAX,
    WAIT_MS_MAX,
    channel_name,
    channel_names,
    deliver_at_field,
    format_ns,
    integer_field,
    mode_field,
    refuse,
    text_field,
    ttl_field,
    value_text,
)
from loomlog.services.families.channel.store import ChannelStore, Message, message_json
from loomlog.services.families.operation import Reply
from loomlog.services.stream.entities.answers import Answer

log = logging.getLogger(__name__)

BATCH_BYTES_MAX = 512 * 1024
"""Bytes of the values of one batch; what is beyond is read next."""
LONGPOLL_CAP_MS = 30_000
SETTLE_TRIES, SETTLE_RETRY_S = 5, 5.0
"""A lease of a request returns by itself after 60 s; until then its settlement is tried."""
CLOSE_S = 2.0
"""How long the end of the process waits for settlements: messages of a lease that is not settled are seen again."""
PURGES_AT_ONCE = 16

OPERATIONS: dict[str, frozenset[str]] = {
    "publish": frozenset({"channel", "value", "ttl", "deliver_at"}),
    "subscribe": frozenset({"channel", "from_cursor", "max_messages", "wait_ms", "reader"}),
    "ack": frozenset({"channel", "cursor", "reader"}),
    "peek": frozenset({"channel", "from_cursor", "max_messages"}),
    "list_channels": frozenset(),
    "await": frozenset({"channels", "mode", "n", "from_cursor", "max_messages", "wait_ms"}),
    "broadcast": frozenset({"channels", "value", "ttl", "deliver_at"}),
}
"""Operations of the tool and their fields."""
READS = frozenset({"peek", "list_channels"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelLimits:
    """What the installation allows."""

    value_bytes_max: int = bounds.VALUE_BYTES_DEFAULT
    longpoll_cap_ms: int = LONGPOLL_CAP_MS


class Outcome(Reply, frozen=True, kw_only=True):
    """Answer of an operation, with what a run records of it."""

    channels: tuple[ChannelUse, ...] = ()
    """Messages that were published or delivered."""
    leases: tuple[LeaseRef, ...] = ()
    """What a call of a run took; the run settles it."""
    waiting: CallWait | None = None
    """There is no answer yet: the call waits in its run. The other fields say nothing."""


class Batch(Value, frozen=True, kw_only=True):
    """Messages of a queue that are returned together."""

    messages: tuple[Message, ...]
    taken: int
    """How many positions of the lease they cover, expired ones included."""


class ChannelOperations:
    """The handler. All operations raise Refused and Unavailable.

    `fields` are the input of the operation, of JSON; null is an absent field. `scope_id` is taken of operators only.
    """

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

    async def run(self, arguments: Mapping[str, Any], caller: ChannelCaller) -> Outcome:
        """Carry out a call; `arguments` are its input."""
        op, fields = parse_operation(arguments)
        operation: Callable[[Mapping[str, Any], ChannelCaller], Coroutine[Any, Any, Outcome]] = {
            "publish": self.publish,
            "subscribe": self.subscribe,
            "ack": self.ack,
            "peek": self.peek,
            "list_channels": self.list_channels,
            "await": self.await_,
            "broadcast": self.broadcast,
        }[op]
        return await operation(fields, caller)

    async def close(self) -> None:
        """Let settlements under way end, and give up those that do not: their queues ask again."""
        if self._settling:
            await asyncio.wait(self._settling, timeout=CLOSE_S)
        for task in tuple(self._settling):
            task.cancel()
        await asyncio.gather(*tuple(self._settling), return_exceptions=True)

    # --- publishing --------------------------------------------------------------------------------------------------

    async def publish(self, fields: Mapping[str, Any], caller: ChannelCaller) -> Outcome:
        """Publish a message: message_id, channel, dropped_oldest, and visible_at of a delayed one."""
        declared = require_channel(self.declarations, caller, channel_name(fields.get("channel")), publishes=True)
        return await self._publish(declared, resolve_queue(declared, caller, fields.get("scope_id")), fields, caller)

    async def _publish(
        self, declared: Declaration, queue: Queue, fields: Mapping[str, Any], caller: ChannelCaller
    ) -> Outcome:
        text = value_text(fields.get("value"), self.limits.value_bytes_max)
        size = len(text.encode())
        command = PublishMessage(
            envelope=caller.envelope(queue),
            channel=queue.channel,
            scope=queue.scope,
            scope_id=queue.scope_id,
            value=text,
            value_bytes=size,
            ttl_ms=ttl_field(fields, declared.default_ttl_s),
            deliver_at_ms=deliver_at_field(fields, self._clock_ms()),
            max_messages=declared.max_messages,
            publisher=caller.publisher or caller.user_id or caller.subject,
        )
        answer = await self.store.ask(command, queue)
        (event,) = (event for event in answer.events if isinstance(event, MessagePublished))
        dropped = event.dropped or sum(one.count for one in answer.events if isinstance(one, MessagesDropped))
        shown: dict[str, Any] = {"message_id": event.message_id, "channel": queue.channel, "dropped_oldest": dropped}
        if not event.position:
            shown["visible_at"] = format_ns(event.visible_ns)
        use = ChannelUse(
            kind="publish",
            channel=queue.channel,
            scope=queue.scope,
            scope_id=queue.scope_id,
            message_id=event.message_id,
            payload_bytes=event.value_bytes or size,
            dropped_oldest=dropped,
        )
        return Outcome(fields=shown, positions=(answer.position,), channels=(use,))

    async def broadcast(self, fields: Mapping[str, Any], caller: ChannelCaller) -> Outcome:
        """Publish a value to several channels, of which all must be allowed: published, failed, and a row for each."""
        names = channel_names(fields)
        value_text(fields.get("value"), self.limits.value_bytes_max)
        places: list[tuple[Declaration, Queue]] = []
        for name in names:
            declared = require_channel(self.declarations, caller, name, publishes=True)
            places.append((declared, resolve_queue(declared, caller, fields.get("scope_id"))))
            ttl_field(fields, declared.default_ttl_s)
        deliver_at_field(fields, self._clock_ms())
        rows, positions, uses = list[Mapping[str, Any]](), list[str](), list[ChannelUse]()
        for declared, queue in places:
            try:
                done = await self._publish(declared, queue, fields, caller)
            except Refused as refused:
                rows.append({"channel": queue.channel, "error": str(refused), "code": refused.code})
                continue
            rows.append({"channel": queue.channel, **done.fields})
            positions += done.positions
            uses += done.channels
        counts = {"published": len(uses), "failed": len(rows) - len(uses)}
        return Outcome(fields={**counts, "results": rows}, positions=tuple(positions), channels=tuple(uses))

    # --- reading with a cursor ---------------------------------------------------------------------------------------

    async def subscribe(self, fields: Mapping[str, Any], caller: ChannelCaller) -> Outcome:
        """Take the next messages: channel, messages, next_cursor; `waiting` for a call of a run that waits for them."""
        queue = self.readable_queue(fields, caller)
        wait_ms, capped = self._wait_ms(fields)
        command = ReadQueue(
            envelope=caller.envelope(queue),
            channel=queue.channel,
            scope=queue.scope,
            scope_id=queue.scope_id,
            reader=_reader(fields),
            after=_cursor(fields, "from_cursor"),
            max_messages=_max_messages(fields),
            call=caller.call,
            wait_until_ms=self._clock_ms() + wait_ms if wait_ms and caller.call is not None else 0,
        )
        if caller.call is not None:
            return await self._read_in_run(queue, command, capped)
        return await self._read_by_request(queue, command, wait_ms, capped, caller)

    async def _read_in_run(self, queue: Queue, command: ReadQueue, capped: Mapping[str, Any]) -> Outcome:
        answer = await self.store.ask(command, queue)
        lease_id = lease_id_of(command.envelope.command_id)
        for event in answer.events:
            if isinstance(event, ReaderWaiting) and event.wait_id == lease_id:
                wait = CallWait(wait_id=event.wait_id, until_ms=event.until_ms, queues=(queue.to_ref(),))
                return Outcome(fields={}, waiting=wait)
        deliveries = _leased(answer, command)
        return await self.leased(queue, lease_id, deliveries, after=command.after, more=capped)

    async def leased(
        self,
        queue: Queue,
        lease_id: str,
        deliveries: Mapping[int, int],
        *,
        after: str = "",
        more: Mapping[str, Any] | None = None,
    ) -> Outcome:
        """Return the answer of a subscribe that took these positions; its lease says how many it returns.

        `deliveries`: of `deliveries_by_position`.
        """
        batch = await self._load(queue, deliveries)
        leases = (LeaseRef(queue=queue.to_ref(), lease_id=lease_id, taken=batch.taken),) if deliveries else ()
        uses = tuple(_delivery(queue, message) for message in batch.messages)
        return Outcome(
            fields={**_batch_json(queue, batch.messages, after), **(more or {})}, channels=uses, leases=leases
        )

    async def _read_by_request(
        self, queue: Queue, command: ReadQueue, wait_ms: int, capped: Mapping[str, Any], caller: ChannelCaller
    ) -> Outcome:
        """Ask the owner again at each message until there are some; each time under an id of its own.

        An answer that was in the log before the question is that of an earlier attempt, which went on: so does this
        one, at once, and ends with the same batch.
        """
        loop, cache = asyncio.get_running_loop(), self.store.cache
        deadline, step = loop.time() + wait_ms / 1000, 0
        with cache.watch([queue]) as watch:
            while True:
                watch.clear()
                heard = dict(cache.heard)
                asked = _with_envelope(command, caller.envelope(queue, str(step)))
                answer = await self.store.ask(asked, queue)
                outcome = await self._taken(queue, asked, answer, capped)
                if outcome.fields["messages"]:
                    return outcome
                is_repeated = answer.offset <= heard.get(answer.partition, -1)
                if not is_repeated and loop.time() >= deadline:
                    return outcome
                if not is_repeated:
                    await watch.wait(deadline - loop.time())
                step += 1

    async def _taken(self, queue: Queue, command: ReadQueue, answer: Answer, capped: Mapping[str, Any]) -> Outcome:
        """Return what a request has read, and settle the lease beside the answer."""
        deliveries = _leased(answer, command)
        batch = await self._load(queue, deliveries)
        if deliveries:
            self._settle(queue, command.envelope, batch.taken)
        shown = {**_batch_json(queue, batch.messages, command.after), **capped}
        return Outcome(fields=shown, positions=(answer.position,))

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

    async def ack(self, fields: Mapping[str, Any], caller: ChannelCaller) -> Outcome:
        """Move a cursor forward."""
        queue = self.readable_queue(fields, caller)
        command = AckCursor(
            envelope=caller.envelope(queue),
            channel=queue.channel,
            scope=queue.scope,
            scope_id=queue.scope_id,
            reader=_reader(fields),
            cursor=text_field(fields, "cursor", most=CURSOR_CHARACTERS_MAX),
        )
        answer = await self.store.ask(command, queue)
        return Outcome(fields={"ok": True}, positions=(answer.position,))

    # --- reading without -------------------------------------------------------------------------------------------

    async def peek(self, fields: Mapping[str, Any], caller: ChannelCaller) -> Outcome:
        """Return messages after a cursor, by default from the oldest: channel, messages."""
        queue, messages = await self.peek_messages(fields, caller)
        return Outcome(fields={"channel": queue.channel, "messages": [message_json(one) for one in messages]})

    async def peek_messages(
        self, fields: Mapping[str, Any], caller: ChannelCaller, *, newest_first: bool = False
    ) -> tuple[Queue, Sequence[Message]]:
        """Return a queue and messages of it: those behind a cursor, or with `newest_first` those before it."""
        queue = self.readable_queue(fields, caller)
        messages = await self.store.peek(
            queue,
            after=_cursor(fields, "from_cursor"),
            newest_first=newest_first,
            limit=_max_messages(fields),
            bytes_max=BATCH_BYTES_MAX,
            positions=caller.positions,
        )
        return queue, messages

    async def list_channels(self, fields: Mapping[str, Any], caller: ChannelCaller) -> Outcome:
        """Return what the agent may publish to and read."""
        return Outcome(fields={"publish": list(caller.publish or ()), "subscribe": list(caller.subscribe or ())})

    async def await_(self, fields: Mapping[str, Any], caller: ChannelCaller) -> Outcome:
        """Wait until channels have messages, and return them; no cursor moves.

        Returns satisfied, timed_out, mode, fired, results, total_messages; `waiting` for a call of a run that waits.
        """
        asked = self.parse_await(fields, caller)
        wait_ms, capped = self._wait_ms(fields)
        if caller.call is None:
            return await self._await_by_request(asked, caller, wait_ms, capped)
        outcome, is_satisfied = await self.look(asked, caller.positions, capped)
        if is_satisfied or not wait_ms:
            return outcome
        return await self._await_in_run(asked, caller, self._clock_ms() + wait_ms, capped)

    def parse_await(self, fields: Mapping[str, Any], caller: ChannelCaller) -> "Awaited":
        """Return what an await is for."""
        names = channel_names(fields)
        queues = tuple(
            resolve_queue(
                require_channel(self.declarations, caller, name, publishes=False), caller, fields.get("scope_id")
            )
            for name in names
        )
        mode, needed = mode_field(fields, len(names))
        return Awaited(
            queues=queues,
            mode=mode,
            needed=needed,
            after=_cursor(fields, "from_cursor"),
            max_messages=_max_messages(fields),
        )

    async def _await_in_run(
        self, asked: "Awaited", caller: ChannelCaller, until_ms: int, capped: Mapping[str, Any]
    ) -> Outcome:
        assert caller.call is not None
        call, counts, tokens = caller.call, list[int](), list[str]()
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
            return (await self.look(asked, (*caller.positions, *tokens), capped, satisfied=True))[0]
        wait = CallWait(
            wait_id=lease_id_of(caller.command_id),
            until_ms=until_ms,
            queues=tuple(queue.to_ref() for queue in asked.queues),
            mode=asked.mode,
            needed=asked.needed,
        )
        return Outcome(fields={}, waiting=wait)

    def end_watches(self, asked: "Awaited", command_id: str) -> None:
        """Tell queues that a call does not await their messages any more, beside the answer."""
        wait_id = lease_id_of(command_id)
        for queue in asked.queues:
            command = settle_command(queue, wait_id, 0, subject=wait_id, at_ms=self._clock_ms())
            self.spawn(self.settle(queue, command))

    async def _await_by_request(
        self, asked: "Awaited", caller: ChannelCaller, wait_ms: int, capped: Mapping[str, Any]
    ) -> Outcome:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        with self.store.cache.watch(asked.queues) as watch:
            while True:
                watch.clear()
                outcome, is_satisfied = await self.look(asked, caller.positions, capped)
                if is_satisfied or loop.time() >= deadline:
                    return outcome
                await watch.wait(deadline - loop.time())

    async def look(
        self,
        asked: "Awaited",
        positions: Sequence[str],
        more: Mapping[str, Any] | None = None,
        *,
        satisfied: bool | None = None,
    ) -> tuple[Outcome, bool]:
        """Return the answer of an await with the messages that are there now, and whether it is satisfied.

        `satisfied`: the owners of the queues have counted.
        """
        most, room = max(asked.max_messages, min(asked.needed, bounds.READ_MAX)), BATCH_BYTES_MAX
        results, counts = dict[str, Mapping[str, Any]](), list[int]()
        for queue in asked.queues:
            messages = await self.store.peek(
                queue, after=asked.after, is_committed=True, limit=most, bytes_max=room, positions=positions
            )
            counts.append(len(messages))
            shown = messages[: asked.max_messages]
            room = max(1, room - sum(message.bytes for message in shown))
            batch = _batch_json(queue, shown, asked.after)
            results[queue.channel] = {"messages": batch["messages"], "next_cursor": batch["next_cursor"]}
        is_satisfied = asked.is_satisfied(counts) if satisfied is None else satisfied
        fields = {
            "satisfied": is_satisfied,
            "timed_out": not is_satisfied,
            "mode": asked.mode,
            "fired": [queue.channel for queue, count in zip(asked.queues, counts, strict=True) if count],
            "results": results,
            "total_messages": sum(len(one["messages"]) for one in results.values()),
            **(more or {}),
        }
        return Outcome(fields=fields), is_satisfied

    # --- operators ---------------------------------------------------------------------------------------------------

    async def purge(self, fields: Mapping[str, Any], caller: ChannelCaller) -> Outcome:
        """Remove the messages of all queues of a channel: name, purged. Cursors stay."""
        name = channel_name(fields.get("channel"))
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
        return Outcome(fields={"name": name, "purged": purged}, positions=tuple(positions))

    async def _purge(self, queue: Queue, caller: ChannelCaller) -> Answer:
        command = PurgeQueue(
            envelope=caller.envelope(queue), channel=queue.channel, scope=queue.scope, scope_id=queue.scope_id
        )
        return await self.store.ask(command, queue)

    # --- common ------------------------------------------------------------------------------------------------------

    def readable_queue(self, fields: Mapping[str, Any], caller: ChannelCaller) -> Queue:
        """Return the queue that the fields `channel` and `scope_id` name, which the caller may read."""
        declared = require_channel(self.declarations, caller, channel_name(fields.get("channel")), publishes=False)
        return resolve_queue(declared, caller, fields.get("scope_id"))

    def cap_told(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what the answer of a wait says of a cap that applied."""
        return self._wait_ms(fields)[1]

    def _wait_ms(self, fields: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        """Return how long to wait, and what the answer says of a cap that applied."""
        wait_ms = integer_field(fields, "wait_ms", default=0, least=0, most=WAIT_MS_MAX)
        cap = self.limits.longpoll_cap_ms
        return (wait_ms, {}) if wait_ms <= cap else (cap, {"wait_capped_ms": cap})


class Awaited(Value, frozen=True, kw_only=True):
    """What an await waits for."""

    queues: tuple[Queue, ...]
    mode: str
    needed: int
    after: str
    max_messages: int

    def is_satisfied(self, counts: Sequence[int]) -> bool:
        """Whether these numbers of messages are enough."""
        if self.mode == "at_least":
            return sum(counts) >= self.needed
        return all(counts) if self.mode == "all" else any(counts)


def parse_operation(arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the operation of a call and its fields; a null is an absent field. Raises Refused."""
    op = arguments.get("op")
    if not isinstance(op, str) or op not in OPERATIONS:
        raise refuse(f"op: expected one of {', '.join(OPERATIONS)}, not {str(op)[:60]!r}")
    fields = {name: value for name, value in arguments.items() if name != "op" and value is not None}
    known, every = OPERATIONS[op], frozenset[str]().union(*OPERATIONS.values())
    if foreign := sorted(set(fields) - every):
        raise refuse(f"{op}: {foreign[0][:60]!r} is unknown, expected are {', '.join(sorted(known)) or 'no fields'}")
    # Fields of other operations: several providers send every property of the schema.
    return op, {name: value for name, value in fields.items() if name in known}


def settle_command(queue: Queue, lease_id: str, taken: int, *, subject: str, at_ms: int) -> SettleLease:
    """Return the command that settles a lease; its id names the lease, so the first one counts."""
    return SettleLease(
        envelope=CommandEnvelope(
            command_id=f"{lease_id}.settle", tenant=queue.tenant, subject=subject, issued_at_ms=at_ms
        ),
        channel=queue.channel,
        scope=queue.scope,
        scope_id=queue.scope_id,
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
    return ChannelUse(
        kind="delivery",
        channel=queue.channel,
        scope=queue.scope,
        scope_id=queue.scope_id,
        message_id=message.id,
        payload_bytes=message.bytes,
        cursor=message.cursor,
        attempt=message.attempt,
    )


def _batch_json(queue: Queue, messages: Sequence[Message], after: str) -> dict[str, Any]:
    """Return messages as an answer; without any, the next read goes on from the same place."""
    return {
        "channel": queue.channel,
        "messages": [message_json(message) for message in messages],
        "next_cursor": messages[-1].cursor if messages else after,
    }


def _reader(fields: Mapping[str, Any]) -> str:
    return text_field(fields, "reader", default="", most=bounds.READER_CHARACTERS_MAX)


def _cursor(fields: Mapping[str, Any], name: str) -> str:
    return text_field(fields, name, default="", most=CURSOR_CHARACTERS_MAX)


def _max_messages(fields: Mapping[str, Any]) -> int:
    return integer_field(fields, "max_messages", default=bounds.READ, least=1, most=bounds.READ_MAX)
