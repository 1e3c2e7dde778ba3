"""Messages and states of queues: from the cache and the owner's memory of this process, otherwise from rows.

    load    messages by position, of a lease: expired ones are left out
    peek    messages behind a cursor, without taking them
    stats   how many messages the channels of a tenant have
    ask     a command to the owner of a queue

Before: operations.py. After: message_cache.py; services/stream/entities/reading.py and client.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

import orjson
from msgspec import UNSET

from loomlog.connectors.errors import ConnectorError
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.position import Position
from loomlog.schemas.records import Value
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.core.times import format_ns
from loomlog.services.families.channel.api import ChannelMessage
from loomlog.services.families.channel.caller import (
    FAMILY_NAME,
    GLOBAL,
    SHARED_TENANT,
    Declaration,
    Queue,
    queue_of_aggregate,
)
from loomlog.services.families.channel.cursor import NS_PER_MS, cursor_text
from loomlog.services.families.channel.items import DELAYED_ITEM, MESSAGE_ITEM, row_id, row_prefix
from loomlog.services.families.channel.message_cache import CachedMessage, MessageCache, full_id
from loomlog.services.families.channel.state import QueueState, expiry_ms, initial
from loomlog.services.families.operation import Decrypt, ask_owner, parse_value
from loomlog.services.stream.entities.answers import Answer, EntityCommands
from loomlog.services.stream.entities.reads import EntityReads, EntityRow, PositionNotRead

WAIT_S = 50.0
"""Seconds to wait for the owner's answer; within the time of a tool call, so that the outcome is told as unknown."""
ROW_WAIT_S, POLL_S = 15.0, 0.02
"""How long a read waits for rows that are older than what is asked for."""
PAGE = 500
QUEUES_MAX = 100_000
"""Queues of a tenant that are counted or purged at once."""


class Message(Value, frozen=True, kw_only=True):
    """A message that can be read now."""

    id: str
    value: Any
    """In plaintext."""
    bytes: int
    """Size of the value as JSON."""
    published_ns: int
    cursor: str
    """Cursor behind it."""
    position: int
    log_position: str
    """Position of the event that published it."""
    attempt: int = 1
    """How often its reader was given it, this time included; 1 also where no reader takes it."""


class ChannelStats(Value, frozen=True, kw_only=True):
    """What the queues of a channel hold together, about: those of which a part has expired are counted whole."""

    scope: str
    message_count: int = 0
    oldest_visible_ns: int = 0
    """0: there is none."""
    newest_visible_ns: int = 0


class ChannelStore:
    """The queues that this installation has. Everything raises Unavailable."""

    def __init__(
        self,
        commands: EntityCommands,
        reads: EntityReads,
        cache: MessageCache,
        *,
        clock_ms: Callable[[], int],
        decrypt: Decrypt,
        wait_s: float = WAIT_S,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.cache = cache
        self._commands = commands
        self.reads = reads
        self._clock_ms = clock_ms
        self._decrypt = decrypt
        self._wait_s = wait_s
        self._sleep = sleep

    # --- commands ----------------------------------------------------------------------------------------------------

    async def ask(self, command: Any, queue: Queue) -> Answer:
        """Return the answer of the owner. Raises Refused with the reason of the rules."""
        answer = await ask_owner(self._commands, command, wait_s=self._wait_s, invalid_code="invalid_request")
        last = answer.events[-1]
        if isinstance(last, CommandRefused):
            raise Refused(last.code, await self._plain(last.message, queue))
        for event in answer.events:
            self.cache.add(full_id(queue), event, answer.partition, answer.offset)
        return answer

    # --- messages ----------------------------------------------------------------------------------------------------

    async def load(self, queue: Queue, positions: Sequence[int]) -> list[Message]:
        """Return the messages at these positions in their order, without those that have expired."""
        cached = self._cached(queue, positions)
        missing = [position for position in positions if position not in cached]
        if missing:
            cached |= await self._load_missing(queue, missing)
        now_ms = self._clock_ms()
        return [
            await self._message(queue, position, message)
            for position in positions
            if (message := cached.get(position)) is not None
            and expiry_ms(message.expires_at_ms, message.visible_ns // NS_PER_MS) > now_ms
        ]

    def _cached(self, queue: Queue, positions: Sequence[int]) -> dict[int, CachedMessage]:
        pairs = ((position, self.cache.find(queue, position)) for position in positions)
        return {position: message for position, message in pairs if message is not None}

    async def _load_missing(self, queue: Queue, positions: Sequence[int]) -> dict[int, CachedMessage]:
        """Return messages from rows, or from the cache if it hears of all of them first."""
        with self.cache.watch([queue]) as watch:
            rows = asyncio.ensure_future(self._wait_for_rows(lambda: self._load_rows(queue, positions)))
            try:
                while True:
                    watch.clear()
                    cached = self._cached(queue, positions)
                    if len(cached) == len(positions):
                        return cached
                    heard = asyncio.ensure_future(watch.wait(ROW_WAIT_S))
                    await asyncio.wait({rows, heard}, return_when=asyncio.FIRST_COMPLETED)
                    heard.cancel()
                    if rows.done():
                        loaded: dict[int, CachedMessage] = rows.result()
                        return loaded
            finally:
                rows.cancel()

    async def _load_rows(self, queue: Queue, positions: Sequence[int]) -> dict[int, CachedMessage]:
        row = await self.reads.show(FAMILY_NAME, queue.tenant, queue.aggregate)
        if row is None or _state(row).last_position < max(positions):
            raise PositionNotRead(f"the rows of {queue.aggregate} have not reached position {max(positions)}")
        documents = await self._documents(queue, MESSAGE_ITEM, positions)
        delayed = [one["number"] for one in documents.values() if "value" not in one]
        bodies = await self._documents(queue, DELAYED_ITEM, delayed) if delayed else {}
        # One that was delayed names its number; its body is the row of that number, its time is when it surfaced.
        whole = {
            position: one if "value" in one else {**bodies[one["number"]], "visible_ns": one["visible_ns"]}
            for position, one in documents.items()
            if "value" in one or one["number"] in bodies
        }
        return {position: _message_of(one) for position, one in whole.items()}

    async def _documents(self, queue: Queue, kind: str, numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Return the documents of rows by position, or by number."""
        prefix = row_prefix(queue.channel, queue.scope, queue.scope_id)
        ids = {row_id(prefix, number): number for number in numbers}
        rows = await self.reads.load_items(FAMILY_NAME, queue.tenant, kind, list(ids))
        return {
            ids[row.id]: {"partition": row.partition, "offset": row.offset, **orjson.loads(row.document)}
            for row in rows
        }

    async def _wait_for_rows(self, read: Callable[[], Awaitable[Any]]) -> Any:
        """Read rows, again and again while they are older than what is asked for."""
        deadline = asyncio.get_running_loop().time() + ROW_WAIT_S
        while True:
            try:
                return await read()
            except PositionNotRead as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise Unavailable(f"the messages cannot be read yet: {error}") from error
                await self._sleep(POLL_S)
            except ConnectorError as error:
                raise Unavailable(f"the messages cannot be read: {error}") from error

    async def _message(self, queue: Queue, position: int, message: CachedMessage) -> Message:
        return Message(
            id=message.id,
            value=parse_value(await self._plain(message.value, queue)),
            bytes=message.value_bytes,
            published_ns=message.published_ns,
            cursor=cursor_text(message.visible_ns, message.id),
            position=position,
            log_position=str(Position(topic=self.cache.topic, partition=message.partition, offset=message.offset)),
        )

    async def _plain(self, text: str, queue: Queue) -> str:
        try:
            plain: str = await self._decrypt(text, queue.tenant)
        except ConnectorError as error:
            raise Unavailable(f"the content cannot be decrypted: {error}") from error
        return plain

    async def peek(
        self,
        queue: Queue,
        *,
        after: str = "",
        is_committed: bool = False,
        newest_first: bool = False,
        limit: int,
        bytes_max: int,
        positions: Sequence[str] = (),
    ) -> list[Message]:
        """Return messages behind a cursor as far as they fit, at least one; none is taken.

        Without a cursor they begin at the oldest message; with `is_committed`, behind what all readers together took.
        With `newest_first` they are those before the message of the cursor, without one the last ones.
        Raises Refused(invalid_request).
        """
        state = await self.state(queue, positions)
        next_positions = state.positions_before if newest_first else state.positions_after
        first = state.last_position + 1 if newest_first else state.reader("").committed if is_committed else 0
        try:
            place = state.position_of_cursor(after) if after else first
        except ValueError as error:
            raise Refused("invalid_request", str(error)) from error
        messages, size = list[Message](), 0
        while numbers := next_positions(place, limit - len(messages), self._clock_ms()):
            for message in await self.load(queue, numbers):
                if messages and size + message.bytes > bytes_max:
                    return messages
                messages.append(message)
                size += message.bytes
            place = numbers[-1]
            if len(messages) >= limit:
                break
        return messages

    # --- states ------------------------------------------------------------------------------------------------------

    async def state(self, queue: Queue, positions: Sequence[str] = ()) -> QueueState:
        """Return the state of a queue, with everything that this process has heard of it."""
        local = await self._wait_for_rows(lambda: self._local(queue, positions))
        if local is not None:
            return _state(local)
        tokens = (*positions, *self.cache.position(queue))
        row = await self._wait_for_rows(
            lambda: self.reads.show(FAMILY_NAME, queue.tenant, queue.aggregate, positions=tokens)
        )
        return initial(full_id(queue)) if row is None else _state(row)

    async def _local(self, queue: Queue, positions: Sequence[str]) -> EntityRow | None:
        row = await self.reads.local(FAMILY_NAME, queue.tenant, queue.aggregate, positions=positions)
        return None if row is None or row.entity.quarantine else row

    async def queues(self, declared: Declaration, tenant: str) -> list[Queue]:
        """Return the queues of a channel that a tenant has; of the scope global, its only one."""
        owner = SHARED_TENANT if declared.scope == GLOBAL else tenant
        return [queue_of_aggregate(owner, row.name) for row in await self._list(owner, declared.name)]

    async def page_of_queues(
        self, declared: Declaration, tenant: str, *, after: str = "", limit: int
    ) -> list[tuple[Queue, QueueState]]:
        """Return the queues of a channel in its scope that a tenant has, by scope id, from the one after `after`."""
        owner = SHARED_TENANT if declared.scope == GLOBAL else tenant
        last = Queue(owner, declared.name, declared.scope, after).aggregate if after else ""
        prefix = Queue(owner, declared.name, declared.scope).aggregate
        rows = await self._wait_for_rows(partial(self._page, owner, prefix, last, limit))
        return [(queue_of_aggregate(owner, row.name), _state(row)) for row in rows]

    async def stats(self, tenant: str, channel: str = "") -> Mapping[str, ChannelStats]:
        """Return what the channels of a tenant hold, by name; `channel` is the only one that is counted."""
        now_ms, counted = self._clock_ms(), dict[str, ChannelStats]()
        for row in await self._list(tenant, channel):
            queue, state = queue_of_aggregate(tenant, row.name), _state(row)
            before = counted.get(queue.channel, ChannelStats(scope=queue.scope))
            oldest_ns = state.oldest_visible_ns(now_ms)
            counted[queue.channel] = ChannelStats(
                scope=queue.scope,
                message_count=before.message_count + state.message_count(now_ms),
                oldest_visible_ns=min(filter(None, (before.oldest_visible_ns, oldest_ns)), default=0),
                newest_visible_ns=max(before.newest_visible_ns, state.newest_visible_ns(now_ms)),
            )
        return counted

    async def _list(self, tenant: str, channel: str) -> list[EntityRow]:
        prefix, rows = f"{quote(channel, safe='')}/" if channel else "", list[EntityRow]()
        while len(rows) < QUEUES_MAX:
            page = await self._wait_for_rows(partial(self._page, tenant, prefix, rows[-1].name if rows else ""))
            rows += page
            if len(page) < PAGE:
                break
        return rows

    async def _page(self, tenant: str, prefix: str, after: str, limit: int = PAGE) -> Sequence[EntityRow]:
        return await self.reads.list(FAMILY_NAME, tenant, prefix=prefix, after=after, limit=limit)


def shown_message(message: Message, *, with_place: bool = False) -> ChannelMessage:
    """Return a message as answers show it; one that is given again says so."""
    is_repeated = message.attempt > 1
    return ChannelMessage(
        id=message.id,
        value=message.value,
        published_at=format_ns(message.published_ns),
        redelivered=True if is_repeated else UNSET,
        attempt=message.attempt if is_repeated else UNSET,
        cursor=message.cursor if with_place else UNSET,
        position=message.log_position if with_place else UNSET,
    )


def _state(row: EntityRow) -> QueueState:
    state: QueueState = row.entity.state
    return state


def _message_of(document: Mapping[str, Any]) -> CachedMessage:
    return CachedMessage(
        id=document["message_id"],
        value=document["value"],
        value_bytes=document["bytes"],
        published_ns=document["published_ns"],
        visible_ns=document["visible_ns"],
        expires_at_ms=document["expires_at_ms"],
        partition=document["partition"],
        offset=document["offset"],
    )
