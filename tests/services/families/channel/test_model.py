"""Queues compared with a plain ledger: nothing is lost, nothing comes again that was taken, the order is kept.

The ledger has, for each reader and message, whether it is unread, leased or read. It follows the events, and checks
each of them; it knows nothing of cursors, ranges and chunks.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.schemas.generated.channel_events import (
    CursorMoved,
    LeaseSettled,
    MessagePublished,
    MessagesDropped,
    MessagesLeased,
    MessagesSurfaced,
    QueuePurged,
    ReaderWaiting,
    WaitExpired,
)
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.services.core.canonical import StateCodec
from loomlog.services.families.channel import FAMILY, limits
from loomlog.services.families.channel.cursor import cursor_text
from tests.services.families.channel.queues import QueueWorld

READERS = ("", "audit")
CODEC = StateCodec(FAMILY.rules.state)


class Ledger:
    """What has happened to each message."""

    def __init__(self, world: QueueWorld) -> None:
        self.world = world
        self.published: dict[int, MessagePublished] = {}
        self.delayed: dict[int, int] = {}
        """Time of visibility by number."""
        self.order: list[tuple[int, int]] = []
        """Time of visibility and number of each visible message; its position is its place."""
        self.gone_ms: dict[int, int] = {}
        self.cursors: dict[int, str] = {}
        self.dropped: set[int] = set()
        self.unread: dict[str, set[int]] = {name: set() for name in READERS}
        self.leases: dict[str, tuple[str, Sequence[int], set[int]]] = {}
        """Reader, positions, and those of them that were unread."""
        self.returns: dict[str, Counter[int]] = {name: Counter() for name in READERS}
        """How often a message came back from a lease of which the reader had taken nothing."""
        self.reads: dict[str, Counter[int]] = {name: Counter() for name in READERS}
        """How often a reader has taken a message that was unread."""
        self.waits: dict[str, str] = {}

    def live(self, position: int) -> bool:
        return position not in self.dropped and self.gone_ms[position] > self.world.now_ms

    def apply(self, events: Sequence[Any]) -> None:
        for event in events:
            match event:
                case MessagePublished():
                    self.published[event.number] = event
                    if event.position:
                        self._visible(event.number, event.position, event.visible_ns)
                    else:
                        self.delayed[event.number] = event.visible_ns // 1_000_000
                case MessagesSurfaced(messages=messages):
                    for one in messages:
                        assert self.delayed.pop(one.number) <= self.world.now_ms
                        self._visible(one.number, one.position, one.visible_ns)
                case MessagesDropped(first_position=first):
                    self.dropped |= set(range(1, first))
                case QueuePurged(first_position=first):
                    self.dropped |= set(range(1, first))
                    self.delayed.clear()
                case MessagesLeased():
                    self._leased(event)
                case LeaseSettled(lease_id=lease_id, taken=taken, returned=returned):
                    self._settled(lease_id, taken, returned)
                case CursorMoved(reader=reader, position=position):
                    self.unread[reader] = {one for one in self.unread[reader] if one > position}
                case ReaderWaiting(wait_id=wait_id, reader=reader):
                    assert not self.left(reader), "a call waits although there is something"
                    self.waits[wait_id] = reader
                case WaitExpired(wait_id=wait_id):
                    del self.waits[wait_id]
        for reader in self.waits.values():
            assert not self.left(reader), "a call waits although there is something"

    def left(self, reader: str) -> list[int]:
        """What a reader has to get, in order."""
        return sorted(one for one in self.unread[reader] if self.live(one))

    def _visible(self, number: int, position: int, visible_ns: int) -> None:
        assert position == len(self.order) + 1, "positions are dense"
        event = self.published[number]
        self.order.append((event.visible_ns // 1_000_000, number))
        assert self.order == sorted(self.order), "messages are not in the order (visible_at, id)"
        oldest_ms = visible_ns // 1_000_000 + limits.AGE_MS
        self.gone_ms[position] = event.expires_at_ms or oldest_ms
        self.cursors[position] = cursor_text(visible_ns, event.message_id)
        for reader in READERS:
            self.unread[reader].add(position)

    def _leased(self, event: MessagesLeased) -> None:
        assert list(event.positions) == sorted(set(event.positions))
        assert not self.dropped.intersection(event.positions), "a message that is gone was leased"
        unread = self.unread[event.reader]
        fresh = unread.intersection(event.positions)
        returns = self.returns[event.reader]
        times = [1 + (returns[one] if one in fresh else 0) for one in event.positions]
        assert list(event.attempts or [1] * len(times)) == times, "a message says wrongly how often it was given"
        if event.is_wait_over:
            assert self.waits.pop(event.lease_id) == event.reader
        self.leases[event.lease_id] = (event.reader, event.positions, fresh)
        unread -= fresh

    def check_lease(self, event: MessagesLeased, left: Sequence[int]) -> None:
        """A read that is no replay has what is unread, from the first on."""
        assert [one for one in event.positions if self.live(one)] == [one for one in left if one <= event.positions[-1]]

    def _settled(self, lease_id: str, taken: int, returned: Sequence[int]) -> None:
        reader, positions, fresh = self.leases.pop(lease_id)
        self.reads[reader].update(one for one in positions[:taken] if one in fresh)
        back = [one for one in positions[taken:] if one in fresh]
        assert set(returned) <= set(back), "a message returns that was taken"
        lost = [one for one in back if one not in returned and self.live(one)]
        assert not lost, "a message is lost"
        self.unread[reader] |= set(returned)
        if not taken:
            self.returns[reader].update(returned)


class Play:
    """A queue, its ledger, and the steps."""

    def __init__(self) -> None:
        self.world = QueueWorld()
        self.ledger = Ledger(self.world)
        self.seen = 0
        self.steps = 0

    def follow(self) -> Sequence[Any]:
        events, self.seen = self.world.events[self.seen :], len(self.world.events)
        self.ledger.apply(events)
        world, ledger = self.world, self.ledger
        state = world.state
        assert CODEC.decode(CODEC.encode(state)) == state
        assert state.last_position == len(ledger.order)
        assert state.delayed_count == len(ledger.delayed)
        assert state.leased == sum(len(positions) for _, positions, _ in ledger.leases.values())
        assert state.waits == len(ledger.waits)
        live = [one for one in range(1, len(ledger.order) + 1) if ledger.live(one)]
        assert state.oldest_position(world.now_ms) == (live[0] if live else len(ledger.order) + 1)
        assert {one: state.position_of_cursor(text) for one, text in ledger.cursors.items()} == {
            one: one for one in ledger.cursors
        }
        return events

    def publish(self, delay_ms: int, ttl_ms: int, max_messages: int) -> None:
        ttl_ms = ttl_ms if ttl_ms > delay_ms else 0
        deliver_at_ms = self.world.now_ms + delay_ms if delay_ms else 0
        kept = len([one for one in range(1, len(self.ledger.order) + 1) if one not in self.ledger.dropped])
        event = self.world.publish(deliver_at_ms=deliver_at_ms, ttl_ms=ttl_ms, max_messages=max_messages)
        assert event.dropped <= kept
        self.follow()
        if max_messages and event.position:
            assert self.world.state.message_count(self.world.now_ms) <= max_messages

    def read(self, reader: str, limit: int) -> None:
        self.steps += 1
        self._surface()
        left = self.ledger.left(reader)
        lease = self.world.read(limit, reader=reader, command_id=f"s{self.steps}")
        self.follow()
        if lease is None:
            assert not left, "there is something to read"
            return
        assert 0 < len(lease.positions) <= limit
        self.ledger.check_lease(lease, left)

    def replay(self, reader: str, limit: int) -> None:
        self.steps += 1
        self.world.read(limit, reader=reader, after="cur_0", command_id=f"s{self.steps}")
        self.follow()

    def wait(self, reader: str, limit: int, wait_ms: int) -> None:
        self.steps += 1
        self.world.wait(self.steps, reader=reader, max_messages=limit, wait_ms=wait_ms)
        self.follow()

    def settle(self, pick: int, taken: int) -> None:
        if self.ledger.leases:
            lease_id = sorted(self.ledger.leases)[pick % len(self.ledger.leases)]
            self.world.settle(lease_id, taken)
            self.follow()

    def ack(self, reader: str, pick: int) -> None:
        self._surface()
        if not self.ledger.cursors:
            return
        position = sorted(self.ledger.cursors)[pick % len(self.ledger.cursors)]
        behind = [one for one in self.ledger.unread[reader] if one <= position]
        events = self.world.ack(self.ledger.cursors[position], reader)
        self.follow()
        if any(isinstance(event, CommandRefused) for event in events):
            assert not behind, "an ack was refused that moves the cursor forward"
            return
        assert not [one for one in self.ledger.left(reader) if one <= position]

    def purge(self) -> None:
        self.world.purge()
        self.follow()
        assert self.world.state.message_count(self.world.now_ms) == 0

    def pass_ms(self, ms: int) -> None:
        """The ledger follows each timer at its time."""
        until_ms = self.world.now_ms + ms
        while 0 < (due_ms := FAMILY.rules.next_timer_ms(self.world.state)) <= until_ms:
            self.world.pass_ms(max(0, due_ms - self.world.now_ms))
            self.follow()
        self.world.now_ms = until_ms

    def jump(self, ms: int) -> None:
        """Time passes while the owner is away: nothing fires, or a clock goes back."""
        self.world.now_ms += ms

    def _surface(self) -> None:
        """Let what is due be visible, by a command that does nothing else."""
        self.world.settle("no such lease", 0)
        self.follow()

    def drain(self) -> None:
        """Nothing is left in the end: each message was read once, was passed by, or is gone."""
        self.pass_ms(120_000)
        for lease_id in sorted(self.ledger.leases):
            self.world.settle(lease_id, 0)
            self.follow()
        for reader in READERS:
            while self.ledger.left(reader):
                self.read(reader, 100)
                for lease_id in sorted(self.ledger.leases):
                    self.world.settle(lease_id, 100)
                    self.follow()
            reads = self.ledger.reads[reader]
            assert all(count == 1 for count in reads.values()), f"{reader!r} got a message twice"
        assert not self.world.state.leased
        assert not self.world.state.waits


READER, LIMIT = st.sampled_from(READERS), st.sampled_from((1, 2, 3, 100))
SHORT_MS = st.sampled_from((0, 0, 0, 1, 5_000, 45_000))
STEPS = st.one_of(
    st.tuples(st.just("publish"), SHORT_MS, st.sampled_from((0, 0, 1_000, 50_000)), st.sampled_from((0, 0, 0, 1, 4))),
    st.tuples(st.just("publish"), st.just(0), st.just(0), st.just(0)),
    st.tuples(st.just("read"), READER, LIMIT),
    st.tuples(st.just("read"), READER, LIMIT),
    st.tuples(st.just("replay"), READER, LIMIT),
    st.tuples(st.just("wait"), READER, LIMIT, st.sampled_from((1_000, 30_000))),
    st.tuples(st.just("settle"), st.integers(0, 9), st.integers(0, 4)),
    st.tuples(st.just("settle"), st.integers(0, 9), st.integers(0, 4)),
    st.tuples(st.just("ack"), READER, st.integers(0, 9)),
    st.tuples(st.just("pass_ms"), st.sampled_from((1, 1_000, 30_000, 61_000))),
    st.tuples(st.just("jump"), st.sampled_from((1, 2_000, 45_000))),
    st.tuples(st.just("purge")),
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.lists(STEPS, max_size=40))
def test_a_queue_keeps_what_its_ledger_says(steps: list[tuple[Any, ...]]) -> None:
    play = Play()
    for name, *arguments in steps:
        getattr(play, name)(*arguments)
    play.drain()
