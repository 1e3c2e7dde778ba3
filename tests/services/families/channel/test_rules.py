"""Rules of queues: publishing, leases, cursors, calls that wait, and what they refuse."""

from typing import Any

import msgspec
import orjson
import pytest

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
    MessagesDropped,
    MessagesLeased,
    MessagesSurfaced,
    QueuePurged,
    QueueWatched,
    ReaderWaiting,
    WaitExpired,
    WatchReported,
)
from loomlog.schemas.generated.run_commands import ReportWait
from loomlog.schemas.generated.values import CallRef
from loomlog.services.core.canonical import StateCodec
from loomlog.services.core.families import STATE_BYTES_MAX, TIMER_FIRED
from loomlog.services.families.channel import FAMILY, limits
from loomlog.services.families.channel.cursor import OLDEST, cursor_text
from loomlog.services.families.channel.decide import lease_id_of
from loomlog.services.families.channel.entries import Lease
from loomlog.services.families.channel.items import DELAYED_ITEM, MESSAGE_ITEM, row_id, row_prefix
from loomlog.services.families.channel.state import Reader
from tests.services.families.channel.queues import DAY_MS, NOW_MS, QueueWorld, call

# --- publish and read ------------------------------------------------------------------------------------------------


def test_messages_are_read_once_in_their_order_and_stay() -> None:
    world = QueueWorld()
    published = [world.publish() for _ in range(5)]
    assert [event.position for event in published] == [1, 2, 3, 4, 5]
    assert len({event.message_id for event in published}) == 5
    assert world.take(2) == (1, 2)
    assert world.take() == (3, 4, 5)
    assert world.read() is None
    assert world.state.message_count(world.now_ms) == 5


def test_a_read_without_messages_has_no_event() -> None:
    world = QueueWorld()
    assert world.decide(world.record(ReadQueue)) == []


def test_two_reads_at_once_get_different_messages() -> None:
    world = QueueWorld()
    for _ in range(4):
        world.publish()
    first, second = world.read(2), world.read(2)
    assert first is not None
    assert second is not None
    assert (first.positions, second.positions) == ((1, 2), (3, 4))


def test_what_a_reader_did_not_take_is_at_the_front_again() -> None:
    world = QueueWorld()
    for _ in range(5):
        world.publish()
    lease = world.read(3)
    assert lease is not None
    (settled,) = world.settle(lease.lease_id, 1)
    assert isinstance(settled, LeaseSettled)
    assert settled.returned == (2, 3)
    assert world.take(3) == (2, 3, 4)
    assert world.settle(lease.lease_id, 0) == [], "a lease that has ended"


def test_a_message_that_is_given_again_says_how_often() -> None:
    world = QueueWorld()
    for _ in range(3):
        world.publish()
    first = world.read(2)
    assert first is not None
    assert first.attempts == (), "all for the first time"
    world.settle(first.lease_id, 0)
    second = world.read()
    assert second is not None
    assert (second.positions, second.attempts) == ((1, 2, 3), (2, 2, 1))
    waiting = world.wait(1)
    assert isinstance(waiting, ReaderWaiting)
    world.settle(second.lease_id, 0)
    [third] = [event for event in world.events if isinstance(event, MessagesLeased) and event.is_wait_over]
    assert (third.positions, third.attempts) == ((1, 2, 3), (3, 3, 2))
    world.pass_ms(limits.REMIND_MS)
    told = [send.command.attempts for send in world.sent if isinstance(send.command, ReportWait)]
    assert told == [(3, 3, 2)] * 2, "the run that waited is told, and told again when it is asked once more"
    audit = world.read(reader="audit")
    assert audit is not None
    assert audit.attempts == (), "another reader has its own count"


def test_what_a_reader_had_no_room_for_was_not_given_to_it() -> None:
    world = QueueWorld()
    for _ in range(3):
        world.publish()
    first = world.read()
    assert first is not None
    world.settle(first.lease_id, 1)
    second = world.read()
    assert second is not None
    assert (second.positions, second.attempts) == ((2, 3), ())
    world.pass_ms(limits.REQUEST_LEASE_MS)
    third = world.read()
    assert third is not None
    assert third.attempts == (2, 2), "its request may have shown them before it ended"


def test_a_state_of_the_version_before_counts_each_returned_message_once() -> None:
    reader = msgspec.json.decode(b"[1,[1],[]]", type=Reader)
    assert reader.deliveries() == {1: 1}
    lease = msgspec.json.decode(b'["l",5,[[1,2]],[],"","",0,0]', type=Lease)
    assert lease.deliveries() == {1: 1, 2: 1}


def test_the_lease_of_a_request_ends_by_itself() -> None:
    world = QueueWorld()
    world.publish()
    assert world.read() is not None
    world.pass_ms(limits.REQUEST_LEASE_MS - 1)
    assert world.read() is None
    world.pass_ms(1)
    assert world.take() == (1,)


def test_a_run_is_asked_until_it_settles_its_lease() -> None:
    world = QueueWorld()
    world.publish()
    lease = world.read(call=call(1))
    assert lease is not None
    world.pass_ms(3 * limits.REMIND_MS)
    reminders = [event for event in world.events if isinstance(event, LeaseReminded)]
    assert len(reminders) == 3
    assert [send.command.positions for send in world.sent] == [(1,)] * 3
    assert {send.command.lease_id for send in world.sent} == {lease.lease_id}
    assert world.read() is None, "it does not return by itself"
    world.settle(lease.lease_id, 1)
    world.pass_ms(DAY_MS)
    assert len(world.sent) == 3
    assert world.read() is None


def test_readers_with_names_have_cursors_of_their_own() -> None:
    world = QueueWorld()
    for _ in range(3):
        world.publish()
    assert world.take() == (1, 2, 3)
    assert world.take(reader="audit", max_messages=2) == (1, 2)
    assert world.take(reader="audit") == (3,)
    assert world.take(reader="other") == (1, 2, 3)


# --- cursors ---------------------------------------------------------------------------------------------------------


def cursor_of(event: Any) -> str:
    return cursor_text(event.visible_ns, event.message_id)


def test_a_cursor_is_moved_forward_only() -> None:
    world = QueueWorld()
    first, second, third = [world.publish() for _ in range(3)]
    (moved,) = world.ack(cursor_of(second))
    assert isinstance(moved, CursorMoved)
    assert moved.position == 2
    assert world.ack(cursor_of(second)) == [], "it is there already"
    code, message = world.refusal(world.record(AckCursor, cursor=cursor_of(first)))
    assert code == "channel_cursor_regression"
    assert cursor_of(first) in message
    assert world.take() == (3,)
    assert world.ack(cursor_of(third)) == []
    assert world.refusal(world.record(AckCursor, cursor=OLDEST))[0] == "channel_cursor_regression"


def test_an_acknowledged_message_that_has_returned_is_not_read_again() -> None:
    world = QueueWorld()
    _, second, _ = [world.publish() for _ in range(3)]
    lease = world.read()
    assert lease is not None
    world.settle(lease.lease_id, 0)
    world.ack(cursor_of(second))
    assert world.take() == (3,)


def test_a_replay_does_not_move_the_cursor_back() -> None:
    world = QueueWorld()
    for _ in range(4):
        world.publish()
    assert world.take(3) == (1, 2, 3)
    replay = world.read(2, after=OLDEST)
    assert replay is not None
    assert replay.positions == (1, 2)
    (settled,) = world.settle(replay.lease_id, 0)
    assert settled.returned == (), "they were taken before"
    assert world.take() == (4,)


def test_a_replay_past_the_cursor_commits_what_is_behind_it() -> None:
    world = QueueWorld()
    for _ in range(4):
        world.publish()
    assert world.take(1) == (1,)
    replay = world.read(3, after=OLDEST)
    assert replay is not None
    assert replay.positions == (1, 2, 3)
    (settled,) = world.settle(replay.lease_id, 0)
    assert settled.returned == (2, 3)
    assert world.take() == (2, 3, 4)


def test_reading_after_a_cursor_passes_what_is_before_it() -> None:
    world = QueueWorld()
    published = [world.publish() for _ in range(4)]
    assert world.take(after=cursor_of(published[1])) == (3, 4)
    assert world.read() is None


def test_a_wait_after_a_cursor_is_for_what_is_behind_it() -> None:
    world = QueueWorld()
    last = [world.publish() for _ in range(2)][-1]
    assert isinstance(world.wait(1, after=cursor_of(last)), ReaderWaiting)
    assert world.sent == []
    world.publish()
    assert world.sent[0].command.positions == (3,)


@pytest.mark.parametrize(
    "cursor",
    ["garbage", "cur_1", "msg_0", "cur_0 ", "cur_" + "f" * 16 + "_msg_" + "0" * 24, "CUR_0", "cur_0\n", "x" * 9_000],
)
def test_a_malformed_cursor_is_named(cursor: str) -> None:
    world = QueueWorld()
    world.publish()
    for command in (AckCursor, ReadQueue):
        fields = {"cursor": cursor} if command is AckCursor else {"after": cursor}
        code, message = world.refusal(world.record(command, **fields))
        assert code == "invalid_request"
        assert repr(cursor[:60])[:-1] in message
        assert len(message) < 400


def test_a_cursor_of_another_queue_is_refused() -> None:
    world = QueueWorld()
    world.publish()
    others = [
        QueueWorld("other"),
        QueueWorld("work", "user", "ada"),
        QueueWorld(tenant="zeta"),
        QueueWorld("work", "global", tenant=""),
    ]
    for other in others:
        code, message = world.refusal(world.record(AckCursor, cursor=cursor_of(other.publish())))
        assert code == "invalid_request"
        assert "another queue" in message


def test_a_cursor_behind_the_newest_message_is_refused() -> None:
    world = QueueWorld()
    event = world.publish()
    later = cursor_text(event.visible_ns + 1_000_001, event.message_id)
    assert world.refusal(world.record(AckCursor, cursor=later))[0] == "invalid_request"


# --- delayed messages ------------------------------------------------------------------------------------------------


def test_a_delayed_message_becomes_visible_at_its_time() -> None:
    world = QueueWorld()
    event = world.publish(deliver_at_ms=NOW_MS + 5_000)
    assert event.position == 0
    assert world.read() is None
    world.pass_ms(4_999)
    assert world.read() is None
    world.pass_ms(1)
    surfaced = world.events[-1]
    assert isinstance(surfaced, MessagesSurfaced)
    assert surfaced.messages[0].number == event.number
    assert surfaced.messages[0].visible_ns // 1_000_000 == NOW_MS + 5_000
    assert world.take() == (1,)


def test_what_is_due_is_before_what_is_published_later_also_without_the_timer() -> None:
    world = QueueWorld()
    late = world.publish(deliver_at_ms=NOW_MS + 2_000)
    early = world.publish(deliver_at_ms=NOW_MS + 1_000)
    world.now_ms += 60_000  # the timer has not fired yet
    last = world.publish()
    surfaced = next(event for event in world.events if isinstance(event, MessagesSurfaced))
    assert [one.number for one in surfaced.messages] == [early.number, late.number]
    assert last.position == 3
    assert world.take() == (1, 2, 3)


def test_a_time_in_the_past_is_at_once() -> None:
    assert QueueWorld().publish(deliver_at_ms=1).position == 1


def test_delayed_messages_are_bounded() -> None:
    world = QueueWorld()
    for number in range(limits.DELAYED_MAX):
        world.publish(deliver_at_ms=NOW_MS + 1_000 + number % 7)
    code, _ = world.refusal(world.record(PublishMessage, value="1", deliver_at_ms=NOW_MS + 1))
    assert code == "rate_limited"
    world.pass_ms(2_000)
    assert world.state.delayed_count == 0
    assert world.state.last_position == limits.DELAYED_MAX
    assert world.state.entries_bytes == 0
    assert max(len(event.messages) for event in world.events if isinstance(event, MessagesSurfaced)) <= 100


# --- ids -------------------------------------------------------------------------------------------------------------


def test_ids_and_cursors_rise_whatever_the_clock_does() -> None:
    world = QueueWorld()
    events = []
    for step in (0, 0, 3_600_000, -7_200_000, 0, 86_400_000, -1):
        world.now_ms += step
        events.append(world.publish())
    ids = [event.message_id for event in events]
    cursors = [cursor_of(event) for event in events]
    assert ids == sorted(set(ids))
    assert cursors == sorted(set(cursors))
    assert [world.state.position_of_cursor(cursor) for cursor in cursors] == [1, 2, 3, 4, 5, 6, 7]


# --- what is gone ----------------------------------------------------------------------------------------------------


def test_a_message_is_gone_after_its_ttl() -> None:
    world = QueueWorld()
    world.publish(ttl_ms=1_000)
    world.publish(ttl_ms=2_000)
    world.publish()
    world.now_ms += 1_000
    assert world.state.message_count(world.now_ms) == 2
    assert world.state.oldest_position(world.now_ms) == 2
    assert world.take() == (2, 3)
    world.now_ms += limits.AGE_MS
    assert world.state.message_count(world.now_ms) == 0
    assert world.state.oldest_visible_ns(world.now_ms) == 0
    assert world.take(reader="late") == ()


def test_a_returned_message_that_has_expired_is_dropped() -> None:
    world = QueueWorld()
    world.publish(ttl_ms=1_000)
    world.publish()
    lease = world.read()
    assert lease is not None
    world.now_ms += 1_000
    (settled,) = world.settle(lease.lease_id, 0)
    assert settled.returned == (2,)


def test_the_oldest_messages_are_pushed_out_and_counted() -> None:
    world = QueueWorld()
    assert [world.publish(max_messages=2).dropped for _ in range(4)] == [0, 0, 1, 1]
    dropped = [event for event in world.events if isinstance(event, MessagesDropped)]
    assert [event.first_position for event in dropped] == [2, 3]
    assert {event.reason for event in dropped} == {"max_messages"}
    assert world.state.message_count(world.now_ms) == 2
    assert world.take() == (3, 4)
    assert world.publish(max_messages=1).dropped == 2, "the new one stays"
    assert world.take() == (5,)


def test_delayed_messages_count_and_are_not_pushed_out() -> None:
    world = QueueWorld()
    world.publish(max_messages=2)
    world.publish(max_messages=2, deliver_at_ms=NOW_MS + 1_000)
    assert world.publish(max_messages=2, deliver_at_ms=NOW_MS + 2_000).dropped == 1
    assert world.publish(max_messages=2, deliver_at_ms=NOW_MS + 3_000).dropped == 0
    assert world.state.delayed_count == 3


def test_a_lease_keeps_the_rows_of_messages_that_are_pushed_out() -> None:
    world = QueueWorld()
    prefix = row_prefix(**world.names)
    world.publish(max_messages=1)
    lease = world.read()
    assert lease is not None
    world.publish(max_messages=1)
    assert (MESSAGE_ITEM, row_id(prefix, 1)) in world.rows
    world.publish(max_messages=1)
    assert (MESSAGE_ITEM, row_id(prefix, 2)) not in world.rows
    (settled,) = world.settle(lease.lease_id, 0)
    assert settled.returned == ()


def test_a_purge_removes_what_is_visible_delayed_and_returned_and_keeps_cursors() -> None:
    world = QueueWorld()
    for _ in range(6):
        world.publish()
    assert world.take(1) == (1,)
    returned, held = world.read(2), world.read(2)
    assert returned is not None
    assert held is not None
    world.settle(returned.lease_id, 0)
    world.publish(deliver_at_ms=NOW_MS + 1_000)
    purged = world.purge()
    assert isinstance(purged, QueuePurged)
    assert (purged.count, purged.first_position) == (7, 7)
    world.settle(held.lease_id, 0)
    world.pass_ms(2_000)
    assert world.read() is None
    assert world.purge() is None, "there is nothing left"
    assert world.publish().position == 7
    assert world.take() == (7,)


def test_rows_have_bodies_and_end_with_their_messages() -> None:
    world = QueueWorld("a/b", "user", "ada#1")
    prefix = row_prefix(**world.names)
    world.publish('{"n":1}', ttl_ms=1_000, publisher="ada")
    event = world.publish('"later"', deliver_at_ms=NOW_MS + 5_000)
    world.pass_ms(5_000)
    now, body = world.rows[MESSAGE_ITEM, row_id(prefix, 1)], world.rows[DELAYED_ITEM, row_id(prefix, event.number)]
    assert orjson.loads(now.document)["value"] == '{"n":1}'
    assert now.kept_ms == 1_000
    assert orjson.loads(body.document)["value"] == '"later"'
    assert body.kept_ms == 5_000 + limits.AGE_MS
    surfaced = orjson.loads(world.rows[MESSAGE_ITEM, row_id(prefix, 2)].document)
    assert surfaced["number"] == event.number
    assert "value" not in surfaced


# --- calls that wait -------------------------------------------------------------------------------------------------


def test_a_call_that_waits_gets_the_message_in_the_decision_that_publishes_it() -> None:
    world = QueueWorld()
    assert isinstance(world.wait(1), ReaderWaiting)
    before = len(world.events)
    world.publish()
    _, lease = world.events[before:]
    assert isinstance(lease, MessagesLeased)
    assert lease.is_wait_over
    assert lease.call == call(1)
    (send,) = world.sent
    report = send.command
    assert send.to == "run"
    assert isinstance(report, ReportWait)
    assert (report.run_id, report.turn, report.index) == ("r_1", 1, 0)
    assert report.wait_id == report.lease_id == "wait1"
    assert report.positions == (1,)
    assert report.queue.channel == "work"
    assert report.queue.tenant == "acme"
    assert world.state.waits == 0
    world.settle("wait1", 1)
    assert world.state.buckets == {}


def test_calls_are_served_in_the_order_of_their_arrival_for_each_reader() -> None:
    world = QueueWorld()
    for number, reader in enumerate(("", "", "audit", "")):
        world.wait(number, reader=reader, max_messages=1)
    world.publish()
    assert [send.command.run_id for send in world.sent] == ["r_0", "r_2"]
    world.publish()
    assert [send.command.run_id for send in world.sent] == ["r_0", "r_2", "r_1"]
    world.publish()
    assert [send.command.run_id for send in world.sent] == ["r_0", "r_2", "r_1", "r_3"]
    assert world.take(reader="audit") == (2, 3)


def test_a_call_that_waits_gets_what_surfaces_and_what_returns() -> None:
    world = QueueWorld()
    world.publish()
    lease = world.read()
    assert lease is not None
    world.wait(1)
    world.settle(lease.lease_id, 0)
    assert world.sent[-1].command.positions == (1,)
    world.publish(deliver_at_ms=NOW_MS + 3_000)
    world.publish(deliver_at_ms=NOW_MS + 3_000)
    world.wait(2)
    world.pass_ms(3_000)
    assert world.sent[-1].command.run_id == "r_2"
    assert world.sent[-1].command.positions == (2, 3)


def test_a_wait_expires_and_its_run_is_told() -> None:
    world = QueueWorld()
    world.wait(1, wait_ms=20_000)
    world.wait(2, wait_ms=10_000)
    world.pass_ms(10_000)
    assert isinstance(world.events[-1], WaitExpired)
    assert [(send.command.run_id, send.command.is_expired) for send in world.sent] == [("r_2", True)]
    world.publish()
    assert world.sent[-1].command.run_id == "r_1"
    assert (world.state.waits, world.state.waiting_readers) == (0, ())


def test_the_wait_of_a_call_that_has_ended_is_given_up() -> None:
    world = QueueWorld()
    world.wait(1)
    world.watch(2)
    world.settle("wait1", 0)
    world.settle("watch2", 0)
    world.publish()
    assert world.sent == []
    assert world.take() == (1,)
    assert FAMILY.rules.next_timer_ms(world.state) == 0


def test_a_wait_whose_time_is_over_does_not_begin() -> None:
    world = QueueWorld()
    assert world.wait(1, wait_ms=0) is None
    assert world.state.waits == 0


def test_calls_wait_while_there_is_no_room_for_leases() -> None:
    world = QueueWorld()
    leases = []
    for _ in range(limits.LEASED_MAX + 1):
        world.publish()
    while (lease := world.read(100)) is not None and world.state.leased < limits.LEASED_MAX:
        leases.append(lease)
    assert lease is not None
    assert world.state.leased == limits.LEASED_MAX
    assert world.refusal(world.record(ReadQueue))[0] == "rate_limited"
    assert isinstance(world.wait(1), ReaderWaiting)
    world.publish()
    assert world.sent == []
    world.settle(lease.lease_id, 100)
    assert world.sent[-1].command.positions == (1001, 1002)


# --- calls that await ------------------------------------------------------------------------------------------------


def test_a_call_that_awaits_hears_of_each_message_and_takes_none() -> None:
    world = QueueWorld()
    watched = world.watch(1)
    assert isinstance(watched, QueueWatched)
    assert (watched.after_position, watched.count) == (0, 0)
    world.publish()
    world.publish()
    assert [send.command.count for send in world.sent] == [1, 2]
    assert {send.command.lease_id for send in world.sent} == {""}
    assert world.take() == (1, 2)
    world.pass_ms(20_000)
    last = world.events[-1]
    assert isinstance(last, WatchReported)
    assert (last.count, last.is_expired) == (2, True)
    world.publish()
    assert len(world.sent) == 3


def test_what_is_there_already_is_reported_to_a_call_that_awaits() -> None:
    world = QueueWorld()
    first = world.publish()
    world.publish()
    world.watch(1)
    world.watch(2, after=cursor_of(first))
    assert [send.command.count for send in world.sent] == [2, 1]
    assert world.take() == (1, 2)
    world.watch(3)
    assert len(world.sent) == 2


def test_a_watch_whose_time_is_over_is_an_answer_only() -> None:
    world = QueueWorld()
    world.publish()
    assert world.watch(1, wait_ms=0).count == 1
    assert world.state.watches == 0


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_a_full_queue_fits_a_record_and_refuses_more() -> None:
    """Ids have the length of those of real calls and requests."""
    world = QueueWorld("pipeline/reviews/incoming", "user", "a-user-with-a-name@example.org")
    now_ms, token = world.now_ms, "0123456789abcdefghjkmnpqrs"
    for number in range(limits.DELAYED_MAX):
        ttl_ms = 20 * DAY_MS + number
        world.publish(deliver_at_ms=now_ms + DAY_MS + number * 997 % 100_000, ttl_ms=ttl_ms)
    for _ in range(limits.LEASED_MAX):
        world.publish()
    for number in range(limits.LEASED_MAX):
        run = CallRef(run_id=f"r_{token[:-4]}{number:04d}", turn=12, index=3)
        lease_id = f"{run.run_id}:{run.turn}.{run.index}"
        assert world.read(1, call=run, command_id=lease_id) is not None
    for number in range(limits.WAITING_MAX):
        run = CallRef(run_id=f"r_{token[:-4]}{number:04d}", turn=13, index=3)
        fields: dict[str, Any] = {"call": run, "wait_until_ms": now_ms + 30_000}
        world.decide(world.record(ReadQueue, **fields), f"{run.run_id}:{run.turn}.{run.index}")
    state = world.state
    assert (state.delayed_count, state.leased, state.waits) == (5_000, 1_000, 1_000)
    size = len(encoded(state))
    assert size < STATE_BYTES_MAX
    assert size < state.entries_bytes + 20_000, "the bytes of entries are more than what is counted"
    assert world.refusal(world.record(ReadQueue, call=call(1), wait_until_ms=now_ms + 1))[0] == "rate_limited"
    assert world.refusal(world.record(WatchQueue, call=call(1), until_ms=now_ms + 1))[0] == "rate_limited"
    world.pass_ms(60_000)
    assert world.state.waits == 0


def encoded(state: Any) -> bytes:
    return StateCodec(FAMILY.rules.state).encode(state)


def test_long_names_end_with_a_refusal_and_not_with_a_state_that_is_too_large() -> None:
    world = QueueWorld()
    for _ in range(limits.LEASED_MAX):
        world.publish()
    refused = 0
    for number in range(limits.READERS_MAX + 1):
        reader = f"{number}".rjust(limits.READER_CHARACTERS_MAX, "r")
        run = CallRef(run_id=f"{number}".rjust(128, "r"), turn=2**31 - 1, index=2**31 - 1)
        events = world.decide(
            world.record(ReadQueue, call=run, reader=reader, max_messages=2), f"{number}".rjust(200, "c")
        )
        refused += events[0].SCHEMA.endswith("CommandRefused")
    assert 0 < refused < limits.READERS_MAX
    size = len(encoded(world.state))
    assert size < STATE_BYTES_MAX
    world.pass_ms(limits.REMIND_MS)
    assert len(encoded(world.state)) < STATE_BYTES_MAX


def test_leases_that_return_piece_by_piece_do_not_outgrow_the_state() -> None:
    world = QueueWorld()
    for _ in range(2_000):
        world.publish()
    for number in range(limits.READERS_MAX):
        lease_ids = []
        for step in range(2):
            events = world.decide(world.record(ReadQueue, reader=f"r{number}", max_messages=100), f"l{number}.{step}")
            lease_ids += [event.lease_id for event in events if isinstance(event, MessagesLeased)]
        for lease_id in lease_ids:
            world.settle(lease_id, 0)
    assert len(encoded(world.state)) < STATE_BYTES_MAX
    assert world.state.leased == 0
    world.purge()
    assert world.state.entries_bytes < 100_000


def test_long_command_ids_make_short_leases() -> None:
    assert lease_id_of("r_1:2.3") == "r_1:2.3"
    for command_id in ("x" * 500, 'with "quotes"', "ünïcode"):
        assert len(lease_id_of(command_id)) == 26
        assert lease_id_of(command_id) == lease_id_of(command_id)


# --- refusals --------------------------------------------------------------------------------------------------------

YEAR_9999_MS = 253_402_300_799_000


@pytest.mark.parametrize(
    ("record", "fields", "code"),
    [
        (PublishMessage, {"value": ""}, "invalid_request"),
        (PublishMessage, {"value": "{"}, "invalid_request"),
        (PublishMessage, {"value": "NaN"}, "invalid_request"),
        (PublishMessage, {"value": "[" * 200_000}, "invalid_request"),
        (PublishMessage, {"value": "[" * 100_000 + "]" * 100_000}, "invalid_request"),
        (PublishMessage, {"value": '"' + "x" * limits.VALUE_BYTES_MAX + '"'}, "payload_too_large"),
        (PublishMessage, {"value": "lenc1" + "x" * 2 * limits.VALUE_BYTES_MAX}, "payload_too_large"),
        (PublishMessage, {"value": "lenc1x", "value_bytes": limits.VALUE_BYTES_MAX + 1}, "payload_too_large"),
        (PublishMessage, {"value": "lenc1x", "value_bytes": -1}, "payload_too_large"),
        (PublishMessage, {"value": "1", "ttl_ms": -1}, "invalid_request"),
        (PublishMessage, {"value": "1", "ttl_ms": 2**62}, "invalid_request"),
        (PublishMessage, {"value": "1", "deliver_at_ms": YEAR_9999_MS}, "invalid_request"),
        (PublishMessage, {"value": "1", "deliver_at_ms": -1}, "invalid_request"),
        (PublishMessage, {"value": "1", "deliver_at_ms": NOW_MS + 9, "ttl_ms": 5}, "invalid_request"),
        (PublishMessage, {"value": "1", "max_messages": -1}, "invalid_request"),
        (PublishMessage, {"value": "1", "publisher": "a\nb"}, "invalid_request"),
        (PublishMessage, {"value": "1", "channel": ""}, "invalid_request"),
        (PublishMessage, {"value": "1", "channel": "a\0"}, "invalid_request"),
        (PublishMessage, {"value": "1", "channel": "c" * 300}, "invalid_request"),
        (PublishMessage, {"value": "1", "scope": "galaxy"}, "channel_scope_invalid"),
        (PublishMessage, {"value": "1", "scope": "user"}, "channel_scope_invalid"),
        (PublishMessage, {"value": "1", "scope_id": "ada"}, "channel_scope_invalid"),
        (PublishMessage, {"value": "1", "scope": "user", "scope_id": "a\nb"}, "channel_scope_invalid"),
        (PublishMessage, {"value": "1", "scope": "global"}, "channel_scope_invalid"),
        (ReadQueue, {"max_messages": 0}, "invalid_request"),
        (ReadQueue, {"max_messages": 101}, "invalid_request"),
        (ReadQueue, {"reader": "a b"}, "invalid_request"),
        (ReadQueue, {"reader": "a" * 65}, "invalid_request"),
        (ReadQueue, {"wait_until_ms": NOW_MS + 1}, "invalid_request"),
        (ReadQueue, {"wait_until_ms": YEAR_9999_MS, "call": call(1)}, "invalid_request"),
        (ReadQueue, {"call": CallRef(run_id="", turn=1, index=0)}, "invalid_request"),
        (ReadQueue, {"call": CallRef(run_id="r_1", turn=-1, index=0)}, "invalid_request"),
        (WatchQueue, {"call": call(1), "until_ms": YEAR_9999_MS}, "invalid_request"),
        (WatchQueue, {"call": CallRef(run_id="a/b", turn=1, index=0), "until_ms": NOW_MS + 1}, "invalid_request"),
        (SettleLease, {"lease_id": "x", "taken": -1}, "invalid_request"),
    ],
)
def test_bad_input_is_refused(record: type[Any], fields: dict[str, Any], code: str) -> None:
    world = QueueWorld()
    before = world.state
    assert world.refusal(world.record(record, **fields))[0] == code
    assert world.state is before


def test_a_queue_of_the_scope_global_is_of_no_tenant() -> None:
    shared = QueueWorld("plaza", "global", tenant="")
    assert shared.publish().position == 1
    assert QueueWorld(tenant="").refusal(shared.record(PublishMessage, value="1", scope="tenant"))[0] == (
        "channel_scope_invalid"
    )


def test_a_refusal_surfaces_nothing() -> None:
    world = QueueWorld()
    world.publish(deliver_at_ms=NOW_MS + 1)
    world.now_ms += 10
    assert world.refusal(world.record(PublishMessage, value="{"))[0] == "invalid_request"
    assert world.state.delayed_count == 1
    assert len(world.decide(world.record(PurgeQueue))) == 2
    assert world.state.delayed_count == 0


def test_readers_are_bounded() -> None:
    world = QueueWorld()
    world.publish()
    for number in range(limits.READERS_MAX):
        world.take(reader=f"r{number}")
    assert world.refusal(world.record(ReadQueue, reader="one-more"))[0] == "rate_limited"
    assert world.take(reader="r7") == ()
    assert world.take() == (1,)


def test_a_timer_that_fires_early_changes_nothing() -> None:
    world = QueueWorld()
    world.wait(1)
    assert world.decide(TIMER_FIRED) == []
