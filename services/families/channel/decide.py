"""The rules of a queue.

A decision first makes visible what is due, so that messages are in the order (visible_at, id). Calls that wait get what
they wait for in the decision that brings it. A refusal is the only event of its decision.

Before: the loop has a command. After: state.py.
"""

import re
from collections.abc import Sequence
from typing import Any, assert_never

import orjson

from loomlog.schemas.generated.channel_commands import (
    AckCursor,
    PublishMessage,
    PurgeQueue,
    ReadQueue,
    SettleLease,
    WatchQueue,
)
from loomlog.schemas.generated.channel_events import (
    CursorMoved,
    LeaseReminded,
    LeaseSettled,
    MessagePublished,
    MessagesDropped,
    MessagesLeased,
    MessagesSurfaced,
    QueuePurged,
    QueueWatched,
    ReaderWaiting,
    WaitExpired,
    WatchReported,
)
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.run_commands import ReportWait
from loomlog.schemas.generated.values import CallRef, QueueRef, SurfacedMessage
from loomlog.schemas.ids import ID_PATTERN, hashed_token
from loomlog.schemas.records import copy_as
from loomlog.services.core.families import FROM_OUTBOX, At, Send, TimerFired
from loomlog.services.core.refusals import Refused
from loomlog.services.families.channel import entries as entry_map
from loomlog.services.families.channel import limits
from loomlog.services.families.channel.caller import AGENT, GLOBAL, SCOPES, SHARED_TENANT, USER
from loomlog.services.families.channel.cursor import NS_PER_MS, message_id, next_ns
from loomlog.services.families.channel.entries import Lease, Wait, Watch, call_of
from loomlog.services.families.channel.sorted_chunks import elements
from loomlog.services.families.channel.state import DELAYED_BYTES, READER_BYTES, ChannelEvent, QueueState, evolve

ChannelCommand = PublishMessage | ReadQueue | WatchQueue | AckCursor | SettleLease | PurgeQueue
Decision = Sequence[ChannelEvent | CommandRefused]
SHARED_READER = ""
READER = re.compile(r"[A-Za-z0-9_.:/-]*\Z")
PLAIN_ID = re.compile(r"[ !#-\[\]-~]{1,200}\Z")
"""What takes as many bytes in a state as it has characters."""
CIPHERTEXT = "lenc1"
SHOWN_CHARACTERS = 80


class _Draft:
    """The events of a decision so far, and the queue after them."""

    def __init__(self, state: QueueState, at_ms: int) -> None:
        self.events: list[Any] = []
        self.at_ms = at_ms
        self._state, self._folded = state, 0

    @property
    def state(self) -> QueueState:
        """The queue after the events."""
        while self._folded < len(self.events):
            self._state = evolve(self._state, self.events[self._folded], self.at_ms)
            self._folded += 1
        return self._state

    def add(self, event: ChannelEvent) -> None:
        """Add an event."""
        self.events.append(event)


def decide(state: QueueState, command: ChannelCommand | TimerFired, at: At) -> Decision:
    """Return the events that follow a command."""
    draft = _Draft(state, at.at_ms)
    try:
        if isinstance(command, TimerFired):
            _settle_due(draft)
            return draft.events
        _check_names(state, command)
        _surface(draft)
        match command:
            case PublishMessage():
                _publish(draft, command)
            case ReadQueue():
                _read(draft, command, at)
            case SettleLease():
                _settle(draft, command)
            case WatchQueue():
                _watch(draft, command, at)
            case AckCursor():
                _acknowledge(draft, command)
            case PurgeQueue():
                _purge(draft, command)
            case _:
                assert_never(command)
    except Refused as refused:
        return [CommandRefused(code=refused.code, message=refused.message)]
    return draft.events


def lease_id_of(command_id: str) -> str:
    """Return the id of the lease, wait or watch of a command: its own, or a hash of one that is long."""
    return command_id if PLAIN_ID.match(command_id) else hashed_token("lease", command_id)


# --- publishing ------------------------------------------------------------------------------------------------------


def _publish(draft: _Draft, command: PublishMessage) -> None:
    state, at_ms = draft.state, draft.at_ms
    size = _check_value(command)
    expires_at_ms = at_ms + command.ttl_ms if command.ttl_ms else 0
    is_delayed = command.deliver_at_ms > at_ms
    if is_delayed:
        _check_delay(state, command, at_ms, expires_at_ms)
    number = state.last_number + 1
    position = 0 if is_delayed else state.last_position + 1
    published_ns = next_ns(at_ms, number, state.last_published_ns)
    visible_ns = command.deliver_at_ms * NS_PER_MS + number % NS_PER_MS
    if position:
        visible_ns = next_ns(at_ms, position, state.last_visible_ns)
    dropped = _overflow(state, command.max_messages, at_ms)
    draft.add(
        copy_as(
            MessagePublished,
            command,
            message_id=message_id(state.key, published_ns),
            number=number,
            position=position,
            visible_ns=visible_ns,
            published_ns=published_ns,
            expires_at_ms=expires_at_ms,
            value_bytes=size,
            dropped=dropped,
        )
    )
    if dropped:
        draft.add(
            copy_as(
                MessagesDropped,
                command,
                first_position=state.oldest_position(at_ms) + dropped,
                count=dropped,
                reason="max_messages",
            )
        )
    if position and (state.waits or state.watches):
        _wake(draft, command)


def _overflow(state: QueueState, max_messages: int, at_ms: int) -> int:
    """Return how many of the oldest messages a further one pushes out; delayed ones count, and stay."""
    if not max_messages:
        return 0
    kept = state.message_count(at_ms)
    return max(0, min(kept, kept + state.delayed_count + 1 - max_messages))


def _check_value(command: PublishMessage) -> int:
    """Return the bytes of the value."""
    if not 0 <= command.ttl_ms <= limits.TTL_MS_MAX:
        raise _invalid(f"ttl_ms: expected 0 to {limits.TTL_MS_MAX}, not {command.ttl_ms}")
    if command.max_messages < 0:
        raise _invalid(f"max_messages: expected 0 or more, not {command.max_messages}")
    if command.deliver_at_ms < 0:
        raise _invalid(f"deliver_at: expected a time since 1970, not {command.deliver_at_ms} ms")
    if len(command.publisher) > limits.NAME_CHARACTERS_MAX or not command.publisher.isprintable():
        raise _invalid(f"publisher: expected at most {limits.NAME_CHARACTERS_MAX} characters that can be printed")
    if not command.value:
        raise _invalid("value: expected JSON text")
    size = len(command.value.encode(errors="replace"))
    most = limits.VALUE_BYTES_MAX
    if command.value.startswith(CIPHERTEXT):  # it is a third larger than its plaintext
        size, most = command.value_bytes or size, most if command.value_bytes else most * 3 // 2
    elif not _is_json(command.value):
        raise _invalid("value: expected JSON text")
    if not 0 < size <= most or len(command.value) > limits.VALUE_BYTES_MAX * 3 // 2:
        raise Refused("payload_too_large", f"value: it has {size} bytes, at most {most} are kept")
    return size


def _check_delay(state: QueueState, command: PublishMessage, at_ms: int, expires_at_ms: int) -> None:
    if command.deliver_at_ms > at_ms + limits.DELAY_MS_MAX:
        days = limits.DELAY_MS_MAX // limits.DAY_MS
        raise _invalid(f"deliver_at: {command.deliver_at_ms} ms since 1970 is more than {days} days ahead")
    if 0 < expires_at_ms <= command.deliver_at_ms:
        raise _invalid(
            f"deliver_at: the message would be gone before it is visible; its ttl of {command.ttl_ms} ms counts from "
            "publishing, so give a longer ttl or an earlier time"
        )
    if state.delayed_count >= limits.DELAYED_MAX:
        raise _full(f"the queue has {state.delayed_count} delayed messages, and no queue has more")
    _check_room(state, DELAYED_BYTES)


# --- what becomes visible, and who waits for it ----------------------------------------------------------------------


def _surface(draft: _Draft) -> None:
    """Make visible what is due."""
    state, at_ms = draft.state, draft.at_ms
    if not state.delayed or state.delayed[0][0].visible_ms > at_ms:
        return
    queue = state.queue.to_ref()
    position, last_ns, messages = state.last_position, state.last_visible_ns, list[SurfacedMessage]()
    for one in elements(state.delayed):
        if one.visible_ms > at_ms:
            break
        position += 1
        last_ns = next_ns(one.visible_ms, position, last_ns)
        messages.append(SurfacedMessage(number=one.number, position=position, visible_ns=last_ns))
    for start in range(0, len(messages), limits.SURFACED_MAX):
        some = tuple(messages[start : start + limits.SURFACED_MAX])
        draft.add(MessagesSurfaced(channel=queue.channel, scope=queue.scope, scope_id=queue.scope_id, messages=some))
    _wake(draft, queue)


def _wake(draft: _Draft, queue: QueueRef | ChannelCommand) -> None:
    """Give calls that wait what there is, and tell those that await messages how many there are."""
    if draft.state.waits:
        for name in list(elements(draft.state.waiting_readers)):
            _serve(draft, queue, name)
    if not draft.state.watches:
        return
    for wait_id, watch in entry_map.watches(draft.state.buckets):
        count = _count_after(draft.state, watch.after_position, draft.at_ms)
        if count:
            draft.add(_report(queue, wait_id, watch, count))


def _report(
    queue: QueueRef | ChannelCommand, wait_id: str, watch: Watch, count: int, *, is_expired: bool = False
) -> WatchReported:
    return copy_as(
        WatchReported, queue, wait_id=wait_id, call=copy_as(CallRef, watch), count=count, is_expired=is_expired
    )


def _count_after(state: QueueState, position: int, at_ms: int) -> int:
    return max(0, state.last_position - max(position, state.oldest_position(at_ms) - 1))


def _serve(draft: _Draft, queue: QueueRef | ChannelCommand, name: str) -> None:
    """Lease to the calls that wait with a reader, in order of arrival."""
    while True:
        state = draft.state
        reader = state.reader(name)
        if not reader.waiting:
            return
        number, place = reader.waiting[0][0]
        wait_id, wait = entry_map.find_wait(state.buckets, place, number)
        limit = min(wait.max_messages, _lease_room(state, wait_id, wait.run_id, name))
        positions = state.next_positions(reader, limit, draft.at_ms) if limit > 0 else ()
        if not positions:
            return
        draft.add(
            copy_as(
                MessagesLeased,
                queue,
                lease_id=wait_id,
                reader=name,
                positions=tuple(positions),
                attempts=state.attempts(name, positions),
                call=copy_as(CallRef, wait),
                is_wait_over=True,
                until_ms=draft.at_ms + limits.REMIND_MS,
            )
        )


def _lease_room(state: QueueState, lease_id: str, run_id: str, reader: str) -> int:
    """Return how many further messages may be leased."""
    size = entry_map.LEASE_BYTES + READER_BYTES + len(lease_id) + len(run_id) + 2 * len(reader)
    space = (limits.ENTRIES_BYTES_MAX - state.entries_bytes - size) // (3 * entry_map.POSITION_BYTES)
    return max(0, min(limits.LEASED_MAX - state.leased, space))


# --- reading ---------------------------------------------------------------------------------------------------------


def _read(draft: _Draft, command: ReadQueue, at: At) -> None:
    """Lease what there is. Without any, a call waits if it says so, behind the cursor that it names."""
    state, lease_id = draft.state, lease_id_of(at.command_id)
    _check_reader(state, command.reader)
    _check_call(command.call)
    if not 0 < command.max_messages <= limits.READ_MAX:
        raise _invalid(f"max_messages: expected 1 to {limits.READ_MAX}, not {command.max_messages}")
    _check_wait(command.wait_until_ms, at.at_ms)
    if command.wait_until_ms and command.call is None:
        raise _invalid("wait_until_ms: only a call of a run waits in the queue; a request asks again")
    reader = state.reader(command.reader)
    after = _position(state, command.after) if command.after else -1
    run_id = "" if command.call is None else command.call.run_id
    room = _lease_room(state, lease_id, run_id, command.reader)
    limit = min(command.max_messages, room) or 1
    if after >= 0:
        positions = state.positions_after(after, limit, at.at_ms)
    else:
        positions = state.next_positions(reader, limit, at.at_ms)
    is_waiting = command.call is not None and command.wait_until_ms > at.at_ms
    if positions and not room and not is_waiting:
        raise _full(f"the queue has {state.leased} messages that readers have not settled: ask again")
    if positions and room:
        expires_ms = limits.REQUEST_LEASE_MS if command.call is None else limits.REMIND_MS
        draft.add(
            copy_as(
                MessagesLeased,
                command,
                lease_id=lease_id,
                positions=tuple(positions),
                attempts=state.attempts(command.reader, positions),
                until_ms=at.at_ms + expires_ms,
            )
        )
    elif command.call is not None and is_waiting:
        _wait(draft, command, command.call, lease_id, after)


def _wait(draft: _Draft, command: ReadQueue, call: CallRef, wait_id: str, after: int) -> None:
    state = draft.state
    size = entry_map.WAIT_BYTES + READER_BYTES + len(wait_id) + len(call.run_id) + 3 * len(command.reader)
    _check_waiting(state, size)
    if after > state.reader(command.reader).committed:
        draft.add(_moved(command, command.reader, command.after, after))
    draft.add(copy_as(ReaderWaiting, command, wait_id=wait_id, call=call, until_ms=command.wait_until_ms))


def _watch(draft: _Draft, command: WatchQueue, at: At) -> None:
    """A watch whose time is over is only an answer."""
    state, wait_id = draft.state, lease_id_of(at.command_id)
    _check_call(command.call)
    _check_wait(command.until_ms, at.at_ms)
    position = _position(state, command.after) if command.after else state.reader(SHARED_READER).committed
    if command.until_ms > at.at_ms:
        _check_waiting(state, entry_map.WATCH_BYTES + len(wait_id) + len(command.call.run_id))
    draft.add(
        copy_as(
            QueueWatched,
            command,
            wait_id=wait_id,
            after_position=position,
            count=_count_after(state, position, at.at_ms),
        )
    )


def _acknowledge(draft: _Draft, command: AckCursor) -> None:
    """The same cursor again changes nothing."""
    state = draft.state
    _check_reader(state, command.reader)
    position, reader = _position(state, command.cursor), state.reader(command.reader)
    if position < reader.committed:
        raise Refused(
            "channel_cursor_regression",
            f"{command.cursor!r} is before the cursor, which only moves forward: read on, or from {command.cursor!r} "
            "without ack",
        )
    if position > reader.committed:
        draft.add(_moved(command, command.reader, command.cursor, position))


def _moved(command: ReadQueue | AckCursor, reader: str, cursor: str, position: int) -> CursorMoved:
    return copy_as(CursorMoved, command, reader=reader, cursor=cursor, position=position)


def _position(state: QueueState, cursor: str) -> int:
    try:
        return state.position_of_cursor(cursor)
    except ValueError as error:
        raise _invalid(f"cursor: {error}") from error


# --- the end of leases -----------------------------------------------------------------------------------------------


def _settle(draft: _Draft, command: SettleLease) -> None:
    """End a lease, or a wait or watch of a call that has ended. One that has ended already changes nothing."""
    if command.taken < 0:
        raise _invalid(f"taken: expected 0 or more, not {command.taken}")
    _end(draft, command, command.lease_id, command.taken)


def _end(draft: _Draft, queue: QueueRef | ChannelCommand, lease_id: str, taken: int) -> None:
    state = draft.state
    entry = state.entry(lease_id)
    if entry is None:
        return
    reader, returned = SHARED_READER, tuple[int, ...]()
    if isinstance(entry, Lease):
        positions, replayed = list(entry_map.positions_of(entry.positions)), set(entry_map.positions_of(entry.replayed))
        taken, oldest = min(taken, len(positions)), state.oldest_position(draft.at_ms)
        reader = entry.reader
        returned = tuple(one for one in positions[taken:] if one >= oldest and one not in replayed)
    elif isinstance(entry, Wait):
        reader, taken = entry.reader, 0
    else:
        taken = 0
    was_full = _lease_room(state, lease_id, "", reader) < limits.READ_MAX
    draft.add(copy_as(LeaseSettled, queue, lease_id=lease_id, reader=reader, taken=taken, returned=returned))
    if not state.waits:
        return
    for name in list(elements(draft.state.waiting_readers)) if was_full else [reader]:
        _serve(draft, queue, name)


def _settle_due(draft: _Draft) -> None:
    """Make visible what is due, then end or repeat what has come to its time: leases first, for those that wait."""
    _surface(draft)
    at_ms, queue = draft.at_ms, draft.state.queue.to_ref()
    due = entry_map.due_ids(draft.state.buckets, at_ms)
    for lease_id in due:
        lease = draft.state.entry(lease_id)
        if isinstance(lease, Lease) and lease.until_ms <= at_ms:
            _remind(draft, queue, lease_id, lease)
    for wait_id in due:
        entry = draft.state.entry(wait_id)
        if isinstance(entry, Wait):
            names = {"channel": queue.channel, "scope": queue.scope, "scope_id": queue.scope_id}
            draft.add(WaitExpired(**names, wait_id=wait_id, call=copy_as(CallRef, entry)))
        elif isinstance(entry, Watch):
            count = _count_after(draft.state, entry.after_position, at_ms)
            draft.add(_report(queue, wait_id, entry, count, is_expired=True))


def _remind(draft: _Draft, queue: QueueRef, lease_id: str, lease: Lease) -> None:
    """Ask the run of a lease again; the lease of a request ends, with nothing taken."""
    call = call_of(lease)
    if call is None:
        _end(draft, queue, lease_id, 0)
        return
    draft.add(
        copy_as(
            LeaseReminded,
            queue,
            lease_id=lease_id,
            call=call,
            positions=tuple(entry_map.positions_of(lease.positions)),
            attempts=lease.attempts,
            until_ms=draft.at_ms + limits.REMIND_MS,
        )
    )


def _purge(draft: _Draft, command: PurgeQueue) -> None:
    """A queue without messages stays as it is."""
    state = draft.state
    count = state.message_count(draft.at_ms) + state.delayed_count
    if count:
        draft.add(copy_as(QueuePurged, command, count=count, first_position=state.last_position + 1))


# --- checks ----------------------------------------------------------------------------------------------------------


def _check_names(state: QueueState, command: ChannelCommand) -> None:
    channel, scope, scope_id = command.channel, command.scope, command.scope_id
    if not 0 < len(channel) <= limits.NAME_CHARACTERS_MAX or not channel.isprintable():
        raise _invalid(f"channel: expected a name of 1 to {limits.NAME_CHARACTERS_MAX} characters that can be printed")
    if scope not in SCOPES:
        raise _scope_invalid(f"scope: expected one of {', '.join(SCOPES)}, not {scope[:SHOWN_CHARACTERS]!r}")
    if bool(scope_id) != (scope in (USER, AGENT)):
        what = "needs the id of a user or the name of an agent" if not scope_id else "has no scope_id"
        raise _scope_invalid(f"scope_id: scope {scope} {what}")
    if len(scope_id) > limits.NAME_CHARACTERS_MAX or not scope_id.isprintable():
        most = limits.NAME_CHARACTERS_MAX
        raise _scope_invalid(f"scope_id: expected at most {most} characters that can be printed")
    if (scope == GLOBAL) != state.key.startswith("/"):
        raise _scope_invalid(
            f"scope {scope}: the queues of scope {GLOBAL}, and only they, are of tenant {SHARED_TENANT!r}"
        )


def _check_reader(state: QueueState, name: str) -> None:
    if len(name) > limits.READER_CHARACTERS_MAX or not READER.match(name):
        most = limits.READER_CHARACTERS_MAX
        shown = name[:SHOWN_CHARACTERS]
        raise _invalid(
            f"reader: expected at most {most} letters, digits, dots, colons, slashes, _ and -, not {shown!r}"
        )
    if name and state.named_readers >= limits.READERS_MAX and not state.has_reader(name):
        raise _full(f"the queue has {state.named_readers} readers, and no queue has more: use one of them")


def _check_call(call: CallRef | None) -> None:
    if call is not None and (not ID_PATTERN.match(call.run_id) or call.turn < 0 or call.index < 0):
        raise _invalid(f"call: expected the call of a run, not {call.run_id[:SHOWN_CHARACTERS]!r}")


def _check_wait(until_ms: int, at_ms: int) -> None:
    if not 0 <= until_ms <= at_ms + limits.WAIT_MS_MAX:
        raise _invalid(f"wait: expected a time at most {limits.WAIT_MS_MAX} ms ahead, not {until_ms} ms since 1970")


def _check_waiting(state: QueueState, size: int) -> None:
    waiting = state.waits + state.watches
    event_bytes = limits.EVENT_BYTES + 2 * len(state.key)
    if waiting >= limits.WAITING_MAX or (waiting + 1) * event_bytes > limits.DECISION_BYTES:
        raise _full(f"{waiting} calls wait for messages of the queue, and no more may: ask without waiting")
    _check_room(state, size)


def _check_room(state: QueueState, size: int) -> None:
    if state.entries_bytes + size > limits.ENTRIES_BYTES_MAX:
        raise _full(
            f"what is delayed, leased or waits takes {state.entries_bytes} bytes of the queue, at most "
            f"{limits.ENTRIES_BYTES_MAX} are kept: try again later"
        )


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True


def _invalid(message: str) -> Refused:
    return Refused("invalid_request", message)


def _scope_invalid(message: str) -> Refused:
    return Refused("channel_scope_invalid", message)


def _full(message: str) -> Refused:
    return Refused("rate_limited", message)


# --- what runs are told ----------------------------------------------------------------------------------------------


def sends(state: QueueState, event: ChannelEvent) -> Sequence[Send]:
    """Return the report to the run of a call that waits, or that has a lease."""
    match event:
        case MessagesLeased(is_wait_over=True, call=CallRef() as call) | LeaseReminded(call=call):
            lease_id, attempts = event.lease_id, event.attempts
            return _sent(state, call, lease_id, lease_id=lease_id, positions=event.positions, attempts=attempts)
        case WatchReported(wait_id=wait_id, count=count, is_expired=is_expired, call=call):
            return _sent(state, call, wait_id, count=count, is_expired=is_expired)
        case QueueWatched(wait_id=wait_id, count=count, call=call) if count:
            return _sent(state, call, wait_id, count=count)
        case WaitExpired(wait_id=wait_id, call=call):
            return _sent(state, call, wait_id, is_expired=True)
    return ()


def _sent(state: QueueState, call: CallRef, wait_id: str, **fields: Any) -> Sequence[Send]:
    report = ReportWait(
        envelope=FROM_OUTBOX,
        run_id=call.run_id,
        turn=call.turn,
        index=call.index,
        wait_id=wait_id,
        queue=state.queue.to_ref(),
        **fields,
    )
    return [Send(to="run", command=report)]
