"""The one reader of a process: all events and previews pass here once, for all subscribers.

A group-less tail over all partitions of the events topic, by the shared reading rule (schemas.reader: terms), and one
over the topic of previews. A record costs a peek and two lookups; it is decoded only when a subscriber of its run needs
it. Everything also goes into the buffer of recent events, so that a subscriber which arrives a moment late, or before
the read models have caught up, misses nothing.

The hub starts at the positions of the projections (offset and term of their cursor), so it never reads the whole log;
earlier events are in the read models. `position` returns how far it has read; single reads wait until the projections
have passed it, and so a caller reads its own writes.

Not chosen: a consumer or a group for each client (brokers store groups), decoding for all (nine tenths of the records
of a busy system have no reader here). An undecodable record is counted and skipped: the run's owner and the projector
report it, and a stream that reaches it ends with the reason.

Before: the owners' appends. After: run_stream.py; services/application/queries/read_your_writes.py asks for positions.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from loomlog.connectors.protocols import LogRecord, LogTail
from loomlog.connectors.retries import until_answered
from loomlog.projections.run_queries import LiveRun
from loomlog.schemas.codec import FRAME_BYTES, Codec, Undecodable, read_envelope, read_text
from loomlog.schemas.generated.run_events import (
    CompactionRequested,
    InputReceived,
    InterruptionClosed,
    InterruptionOpened,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunParked,
    RunPaused,
    RunPauseRequested,
    RunQuarantined,
    RunReleased,
    RunResumed,
    RunStarted,
)
from loomlog.schemas.generated.stream_records import ModelDelta
from loomlog.schemas.reader import RawEvent, TermReader
from loomlog.services.application import limits
from loomlog.services.application.runs.run_target import RunTarget
from loomlog.services.application.streaming.items import DeltaItem, EventItem, Item, restore_item, stored_event
from loomlog.services.application.streaming.recent_events import RecentEvents
from loomlog.services.application.streaming.stray_handles import StrayHandles
from loomlog.services.application.streaming.subscription import STOPPING, Subscription

log = logging.getLogger(__name__)

EVERY_RUN = "*"
"""Subscription key for all runs; no run can have that id."""
EVERY_CHANGE = "*changes"
"""The same, for changes between start and end as well."""
RUN_END_EVENTS = frozenset({RunCompleted.SCHEMA, RunFailed.SCHEMA, RunCancelled.SCHEMA})
WAIT_EVENTS = frozenset(
    event.SCHEMA
    for event in (
        RunParked,
        InputReceived,
        CompactionRequested,
        RunPauseRequested,
        RunPaused,
        RunResumed,
        InterruptionOpened,
        InterruptionClosed,
        RunQuarantined,
        RunReleased,
    )
)
"""Events with which a run begins or ceases to wait for people or for the end of a pause: few of a run, in contrast to
its calls.
"""
URGENT_EVENTS = RUN_END_EVENTS | {RunParked.SCHEMA, RunQuarantined.SCHEMA, InterruptionOpened.SCHEMA}
"""Events on which a client acts; batching streams (run_stream.py) receive them at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubStart:
    """Start offset of the hub in a partition, and the term in force there."""

    next_offset: int = 0
    term: int = -1


class EventHub:
    """Subscriptions by run, over the tails of one process."""

    def __init__(
        self,
        codec: Codec,
        starts: Mapping[int, HubStart],
        *,
        preview_ends: Mapping[int, int] | None = None,
        live_runs: Iterable[LiveRun] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.live_runs: dict[str, RunTarget | None] = {}
        """Runs that have started and not ended, of all processes; with their target where it was learned."""
        self.stray_handles = StrayHandles()
        for run in live_runs:
            self.live_runs[run.run_id] = None
            self.stray_handles.run_started(run.run_id, run.tenant, run.agent_id)
        self.events = 0
        self.previews = 0
        self.unreadable = 0
        self.newest_ms = 0
        """Time of the newest event seen."""
        self._codec = codec
        self._clock = clock
        self._recent_events = RecentEvents()
        self._readers = {
            partition: TermReader(codec=codec, term=start.term, next_offset=start.next_offset)
            for partition, start in starts.items()
        }
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._to_wake: set[Subscription] = set()
        self._start_ids = codec.schema_ids_of(frozenset({RunStarted.SCHEMA}))
        self._ending_ids = codec.schema_ids_of(RUN_END_EVENTS)
        self._state_ids = self._start_ids | self._ending_ids
        self._change_ids = self._state_ids | codec.schema_ids_of(WAIT_EVENTS)
        self._urgent_ids = codec.schema_ids_of(URGENT_EVENTS)
        self._preview_ids = codec.schema_ids_of(frozenset({ModelDelta.SCHEMA}))
        self._is_stopping = False
        self._follows_a_run = asyncio.Event()
        self._unread_previews = dict(preview_ends or {})
        """Ends at the start of this process, of partitions whose previews were not read up to there yet."""
        self._previews_are_read = asyncio.Event()
        if not self._unread_previews:
            self._previews_are_read.set()

    # --- subscribers -------------------------------------------------------------------------------------------------

    @property
    def subscribers(self) -> int:
        return sum(map(len, self._subscriptions.values()))

    @property
    def stale(self) -> int:
        """Number of records from fenced owners."""
        return sum(reader.stale for reader in self._readers.values())

    @property
    def kept_bytes(self) -> int:
        return self._recent_events.bytes

    @property
    def partitions(self) -> Sequence[int]:
        return sorted(self._readers)

    def subscribe(self, run_id: str, *, previews: bool = False) -> Subscription:
        """Subscribe to a run; the queue begins with its recent events. Close it after use."""
        recent: list[Item] = self.recent_items(run_id) if previews else list(self.recent(run_id))
        subscription = Subscription(run_id, wants_previews=previews, recent=recent, on_close=self._remove_subscription)
        if self._is_stopping:
            subscription.close(STOPPING)
        if not subscription.close_reason:
            self._subscriptions.setdefault(run_id, []).append(subscription)
            self._follows_a_run.set()
        return subscription

    def subscribe_to_states(self, *, with_waits: bool = False) -> Subscription:
        """Subscribe to the first and last event of every run, from now on; and to WAIT_EVENTS. Close it after use."""
        key = EVERY_CHANGE if with_waits else EVERY_RUN
        subscription = Subscription(key, wants_previews=False, on_close=self._remove_subscription)
        if self._is_stopping:
            subscription.close(STOPPING)
        else:
            self._subscriptions.setdefault(key, []).append(subscription)
        return subscription

    def recent(self, run_id: str) -> list[EventItem]:
        """Return the recent events of a run, oldest first."""
        return [item for item in self.recent_items(run_id) if isinstance(item, EventItem)]

    def recent_items(self, run_id: str) -> list[Item]:
        """Return the recent events and previews of a run, oldest first."""
        return [restore_item(run_id, kept, self._codec) for kept in self._recent_events.of_run(run_id)]

    def learn_run(self, run: RunTarget) -> None:
        """Remember the target of a run while it is live."""
        if run.run_id in self.live_runs:
            self.live_runs[run.run_id] = run

    def position(self, partition: int) -> int:
        """Return the offset after the last event that was read."""
        return self._readers[partition].next_offset

    def term(self, partition: int) -> int:
        """Return the term in force in a partition, as far as this process has read."""
        return self._readers[partition].term

    def stop(self) -> None:
        """Close every subscription: the process is shutting down and its clients reconnect to another."""
        self._is_stopping = True
        for subscriptions in list(self._subscriptions.values()):
            for subscription in list(subscriptions):
                subscription.close(STOPPING)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def run(self, events: LogTail, previews: LogTail) -> None:
        """Read both topics until cancelled. The tails begin at `starts`, and at the end."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read_tail(events, self.handle_events))
            group.create_task(self._read_tail(previews, self.handle_previews))

    async def _read_tail(self, tail: LogTail, handle: Callable[[int, Sequence[LogRecord]], None]) -> None:
        poll = partial(tail.poll, timeout_s=limits.POLL_S, max_records=limits.POLL_RECORDS_MAX)
        while True:
            polled = await until_answered(poll, f"the tail of {tail.topic}")
            for partition, records in polled.items():
                handle(partition, records)
            self._recent_events.drop_expired(self._clock())
            self.wake()
            # When behind, continue at once.
            if polled and sum(map(len, polled.values())) < limits.POLL_RECORDS_MAX:
                await self._pause_between_polls()

    async def _pause_between_polls(self) -> None:
        """Wait until a run is followed, at most IDLE_POLL_PAUSE_S; not at all when one is. Lists of runs can wait."""
        if any(key not in (EVERY_RUN, EVERY_CHANGE) for key in self._subscriptions):
            return
        self._follows_a_run.clear()
        try:
            async with asyncio.timeout(limits.IDLE_POLL_PAUSE_S):
                await self._follows_a_run.wait()
        except TimeoutError:
            pass

    def handle_events(self, partition: int, records: Sequence[LogRecord]) -> None:
        """Handle records of the events topic, in offset order. Call `wake` after the last partition of a poll."""
        reader = self._readers[partition]
        now = self._clock()
        for record in records:
            try:
                raw = reader.read(record.offset, record.value)
            except Undecodable:
                self.unreadable += 1
                continue
            if raw is None:
                continue
            self.events += 1
            if raw.schema_id in self._start_ids:
                self.live_runs.setdefault(raw.aggregate)
                self._learn_handle(raw)
            elif raw.schema_id in self._ending_ids:
                self.live_runs.pop(raw.aggregate, None)
                self.stray_handles.run_ended(raw.aggregate)
            self._recent_events.add(raw.aggregate, stored_event(raw, partition), now)
            of_run = self._subscriptions.get(raw.aggregate, ())
            of_every_run = self._state_subscriptions(raw.schema_id) if raw.schema_id in self._change_ids else ()
            if of_run or of_every_run:
                item = EventItem(raw, partition, self._codec)
                self._dispatch(item, of_run, urgent=raw.schema_id in self._urgent_ids)
                self._dispatch(item, of_every_run, urgent=True)
        if records:
            self.newest_ms = max(self.newest_ms, records[-1].timestamp)

    def handle_previews(self, partition: int, records: Sequence[LogRecord]) -> None:
        """Handle records of the topic of previews."""
        now = self._clock()
        for record in records:
            run_id = self._run_of_preview(record.value)
            if run_id is None:
                self.unreadable += 1
                continue
            self.previews += 1
            assert record.value is not None
            self._recent_events.add(run_id, (partition, record.value), now)
            wanting = [one for one in self._subscriptions.get(run_id, ()) if one.wants_previews]
            if wanting:
                self._dispatch(DeltaItem(record.value, partition, self._codec), wanting)
        if self._unread_previews and records:
            self._note_read_back(partition, records[-1].offset + 1)

    def _note_read_back(self, partition: int, position: int) -> None:
        if position >= self._unread_previews.get(partition, position + 1):
            del self._unread_previews[partition]
        if not self._unread_previews:
            self._previews_are_read.set()

    async def wait_for_previews(self) -> None:
        """Return when the previews from before this process are read, at the latest after READ_BACK_WAIT_S."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.READ_BACK_WAIT_S):
                await self._previews_are_read.wait()
        self._previews_are_read.set()

    def wake(self) -> None:
        """Wake every subscriber with new items, once."""
        touched, self._to_wake = self._to_wake, set()
        for subscription in touched:
            subscription.wake()

    def _state_subscriptions(self, schema_id: int) -> Sequence[Subscription]:
        of_changes = self._subscriptions.get(EVERY_CHANGE, ())
        if schema_id not in self._state_ids:
            return of_changes
        return [*self._subscriptions.get(EVERY_RUN, ()), *of_changes]

    def _learn_handle(self, raw: RawEvent) -> None:
        """Read the handle of a RunStarted: the second of its fields, in every version."""
        try:
            envelope, at = read_envelope(raw.value)
            _, at = read_text(raw.value, at)
            agent_id, _ = read_text(raw.value, at)
        except (IndexError, UnicodeDecodeError, Undecodable):
            self.unreadable += 1
        else:
            self.stray_handles.run_started(raw.aggregate, envelope.tenant, agent_id)

    def _dispatch(self, item: Item, subscriptions: Iterable[Subscription], *, urgent: bool = False) -> None:
        for subscription in subscriptions:
            subscription.put(item, urgent=urgent)
            self._to_wake.add(subscription)

    def _run_of_preview(self, value: bytes | None) -> str | None:
        """Return the run of a preview. Its first two fields are the term and the run id."""
        if value is None or len(value) <= FRAME_BYTES or value[0] != 0:
            return None
        if int.from_bytes(value[1:FRAME_BYTES], "big") not in self._preview_ids:
            return None
        at = FRAME_BYTES
        try:
            while value[at] >= 0x80:  # all bytes of a varint but the last have the high bit
                at += 1
            return read_text(value, at + 1)[0]
        except (IndexError, UnicodeDecodeError, Undecodable):
            return None

    def _remove_subscription(self, subscription: Subscription) -> None:
        subscriptions = self._subscriptions.get(subscription.run_id)
        if subscriptions is None or subscription not in subscriptions:
            return
        # A new list, because the hub may be iterating over the old one.
        kept = [other for other in subscriptions if other is not subscription]
        if kept:
            self._subscriptions[subscription.run_id] = kept
        else:
            del self._subscriptions[subscription.run_id]
