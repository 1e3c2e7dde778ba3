"""Faust app: one agent reads the tallies, one windowed table holds the minutes, unreadable records are dead-lettered.

The agent takes batches: a table write for each record would cost more than the record (docs/decisions/0005). A batch
is checked, folded and written to the table without an await in between, so it counts as a whole or not at all. Then its
unreadable records are dead-lettered, each acknowledged by the broker, and only then its positions are marked as done.

Faust considers a record done even when the agent raises. So the agent must not raise past a record: an error of one
record dead-letters that record, and any other error (the dead-letter topic is away, a bug here) stops the agent before
its batch is done and ends the process, which reads the record again after its restart.

Faust can also stop reading, and continues without an error when a seek takes too long. `watch` requests the end offsets
from the broker and raises Stalled when there is no progress.

Before: main.py builds it. After: minute_windows.py filters and adds, faust_adapters.py adapts Faust, report.py renders.
"""

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from aiokafka.errors import KafkaError
from faust.contrib.asgi import bind_to_running_loop
from faust.exceptions import FaustError
from faust.tables.wrappers import WindowWrapper
from faust.types.auth import CredentialsT

from loomlog.connectors.errors import Permanent, Transient
from loomlog.schemas.codec import Codec, Undecodable, local_codec
from loomlog.schemas.generated.stream_records import RunTally
from loomlog.services.insights.dead_letters import build_dead_letter, position_key
from loomlog.services.insights.faust_adapters import ReplayApp, ReplayConsumer, WindowTable, faust_settings
from loomlog.services.insights.minute_windows import (
    EMPTY,
    MINUTE_MS,
    InvalidTally,
    MinuteTotals,
    TallyFilter,
    TallyOutcome,
    minute_of,
    minute_start_ms,
)
from loomlog.services.insights.report import ReportData
from loomlog.services.insights.settings import InsightsSettings

log = logging.getLogger("loomlog.insights")

PARTITIONS = 4
"""Partitions of the insights topic (redpanda/topics.yaml); the table's changelog topic must have as many."""
BATCH_RECORDS = 200
"""Records of a batch, at most 1,000 runs each: a batch blocks the event loop for 0.1 s at worst."""
BATCH_WAIT_S = 0.25
"""Longest delay of a tally by batching."""
REQUEST_S = 15.0
DEAD_LETTER_TIMEOUT_S = 10.0
"""Longest wait for the broker to acknowledge a dead letter."""
START_S = 60.0
STOP_S = 4.0
"""A stop that takes longer is abandoned: a restart loses nothing."""
HEALTH_CHECK_EVERY_S = 5.0
STALLED_S = 30.0
"""Time without a partition, or without reading, while the broker answers; after it Faust counts as stalled."""
UNANSWERED_S = 300.0
"""Time the broker may be away; after it the process restarts."""
UNREADABLE = "unreadable"
"""Outcome of records that are dead-lettered, now or before the restart."""


class Stalled(Exception):
    """Faust no longer reads; only a new process helps."""


class Insights:
    """The Faust app of one process and its state. Build and use it inside a running loop."""

    def __init__(
        self,
        settings: InsightsSettings,
        *,
        member: str,
        credentials: CredentialsT | None = None,
        codec: Codec | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`member` names this process in the group; the next process with the same name takes its place at once."""
        self._settings = settings
        self._codec = codec or local_codec()
        self._now_ms = now_ms
        self._admission = TallyFilter(history_minutes=settings.history_minutes)
        self._records: Counter[str] = Counter()
        self._parked: Counter[str] = Counter()
        self._ends: dict[int, int] = {}
        self._position = 0
        self._failed = asyncio.Event()
        self._failure: Exception | None = None
        self.app = ReplayApp(
            settings.group,
            source=settings.source_topic,
            since_ms=self._since_ms,
            on_rewind=self._reset_windows,
            **faust_settings(
                settings, credentials=credentials, member=member, partitions=PARTITIONS, request_s=REQUEST_S
            ),
        )
        source = self.app.topic(settings.source_topic, key_type=bytes, value_type=bytes, allow_empty=True)
        table = self.app.Table(
            "minutes", default=lambda: EMPTY, key_type=int, partitions=PARTITIONS, help="Minutes by events partition."
        )
        self._table = cast(WindowTable, table)
        windows = table.tumbling(MINUTE_MS / 1000, expires=(settings.history_minutes + 1) * MINUTE_MS / 1000)
        self._windows = cast(WindowWrapper, windows)
        self.app.agent(source, name="tallies")(self.read_tallies)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the app. Raises Transient when the broker does not answer, Permanent when a topic is not usable."""
        bind_to_running_loop(self.app)
        self.app.finalize()
        try:
            try:
                async with asyncio.timeout(START_S):
                    await self.app.start()
                    await self._check_topics()
            except (KafkaError, FaustError, TimeoutError) as error:
                raise Transient(
                    f"insights could not start on the broker at {self._settings.kafka.bootstrap} "
                    f"({type(error).__name__}: {error}); is it running, and do we have access?",
                    kind="unavailable",
                ) from error
            yield
        finally:
            try:
                async with asyncio.timeout(STOP_S):
                    await self.app.stop()
            except TimeoutError:
                log.warning("Faust did not stop within %.0f s; the process ends anyway", STOP_S)

    async def watch(self) -> None:
        """Runs until a failure and raises it: a failed batch, a crash of Faust, or Stalled."""
        loop = asyncio.get_running_loop()
        healthy_at = loop.time()
        while not (await self.app.wait_first(asyncio.sleep(HEALTH_CHECK_EVERY_S), self._failed.wait())).stopped:
            if self._failure is not None:
                raise self._failure
            problem, tolerance_s = await self._check_health()
            if not problem:
                healthy_at = loop.time()
            elif loop.time() - healthy_at > tolerance_s:
                raise Stalled(f"for {tolerance_s:.0f} s: {problem}")
        if self.app.crash_reason is not None:
            raise self.app.crash_reason
        raise Stalled("Faust has stopped by itself")

    async def _check_health(self) -> tuple[str, float]:
        """The current problem, empty if there is none, and for how many seconds it is tolerated."""
        before = self.app.progress.position
        try:
            async with asyncio.timeout(REQUEST_S):
                self._ends = await cast(ReplayConsumer, self.app.consumer).fetch_end_offsets(PARTITIONS)
        except (KafkaError, FaustError, TimeoutError) as error:
            return f"the broker does not answer ({type(error).__name__})", UNANSWERED_S
        if self.app.rebalancing or not self.app.progress.partitions:
            return f"no partition of {self._settings.source_topic} is assigned to this process", STALLED_S
        if self.lag_records and self.app.progress.position == self._position == before:
            return (
                f"{self.lag_records} records of {self._settings.source_topic} are pending and none was read",
                STALLED_S,
            )
        self._position = self.app.progress.position
        return "", 0.0

    @property
    def lag_records(self) -> int:
        """Unprocessed records, as of the last end offsets."""
        return self.app.progress.lag(self._ends)

    def view(self) -> ReportData:
        """Data of a report now."""
        return ReportData(
            now_ms=self._now_ms(),
            history_minutes=self._settings.history_minutes,
            cells={
                (partition, round(start_s * 1000)): minute for (partition, (start_s, _)), minute in self._table.items()
            },
            records={outcome.value: 0 for outcome in TallyOutcome} | {UNREADABLE: 0} | self._records,
            parked=dict(self._parked),
            lag_records=self.lag_records,
            is_whole=self.app.progress.is_whole and not self.app.rebalancing,
        )

    async def read_tallies(self, stream: Any) -> None:
        """The agent. Does not return after a failed batch, so that Faust marks nothing more as done."""
        async for events in stream.take_events(BATCH_RECORDS, within=BATCH_WAIT_S):
            try:
                await self.process_batch([event.message for event in events])
            except Exception as error:  # noqa: BLE001  # if raised, Faust would mark the batch as done and continue
                self._failure = error
                self._failed.set()
            if self._failure is not None:
                await asyncio.Event().wait()  # `watch` raises it and the process stops

    async def process_batch(self, messages: Sequence[Any]) -> None:
        """Counts or dead-letters a batch of Faust's messages. Raises Transient when a letter could not be written."""
        generation = self.app.consumer_generation_id
        # Records fetched before a rebalance are delivered again after it.
        current = [message for message in messages if message.generation_id == generation]
        if unknown := {message.partition for message in current} - self.app.progress.partitions:
            raise Stalled(f"Faust reads partitions {sorted(unknown)} from a position that we did not set")
        added: dict[tuple[int, int], MinuteTotals] = {}
        unreadable: list[tuple[Any, Exception]] = []
        for message in current:
            try:
                self._count(message.value, added)
            except Exception as error:  # noqa: BLE001  # an error of one record, or a bug it reveals: dead-letter it
                unreadable.append((message, error))
        for (partition, start_ms), minute in added.items():
            windows = self._windows.relative_to(start_ms / 1000)
            windows[partition] = windows[partition].value().plus(minute)
        for message, reason in unreadable:
            await self._send_dead_letter(message, reason)
        if self.app.consumer_generation_id == generation:
            for message in current:
                self.app.progress.mark_done(message.partition, message.offset)

    async def _check_topics(self) -> None:
        # Faust itself would wait for ever for a topic that does not exist.
        counts = await cast(ReplayConsumer, self.app.consumer).partition_counts()
        for topic, expected in ((self._settings.source_topic, PARTITIONS), (self._settings.dead_letter_topic, None)):
            partitions = counts.get(topic, 0)
            if partitions != expected if expected else not partitions:
                raise Permanent(
                    f"topic {topic} has {partitions} partitions, expected {expected or 'at least 1'}; "
                    "create the topics with `python -m loomlog.redpanda.apply`",
                    kind="not_found",
                )

    def _since_ms(self) -> int:
        return minute_start_ms(self._now_ms()) - self._settings.history_minutes * MINUTE_MS

    def _reset_windows(self) -> None:
        self._admission = TallyFilter(history_minutes=self._settings.history_minutes)
        self._table.reset_windows()

    def _count(self, value: bytes | None, added: dict[tuple[int, int], MinuteTotals]) -> None:
        if value is None:
            raise Undecodable("the record has no value; this topic holds no tombstones")
        tally = self._codec.decode(value).record
        if not isinstance(tally, RunTally):
            raise InvalidTally(f"the record is a {type(tally).__name__}, expected a RunTally")
        addition = minute_of(tally)
        outcome = self._admission.classify(tally, self._now_ms())
        self._records[outcome] += 1
        if outcome is TallyOutcome.COUNTED:
            cell = (tally.partition, minute_start_ms(tally.ended_at_ms))
            added[cell] = added.get(cell, EMPTY).plus(addition)

    async def _send_dead_letter(self, message: Any, error: Exception) -> None:
        self._records[UNREADABLE] += 1
        if not self.app.progress.is_new(message.partition, message.offset):
            return
        letter = build_dead_letter(
            topic=message.topic,
            partition=message.partition,
            offset=message.offset,
            timestamp_ms=round(message.timestamp * 1000),
            key=message.key,
            value=message.value,
            headers=tuple(message.headers),
            error=error,
            at_ms=self._now_ms(),
        )
        key = position_key(message.topic, message.partition, message.offset)
        try:
            async with asyncio.timeout(DEAD_LETTER_TIMEOUT_S):
                await self.app.producer.send_and_wait(
                    self._settings.dead_letter_topic, key, self._codec.encode(letter), None, None, None
                )
        except (KafkaError, FaustError, TimeoutError) as problem:
            raise Transient(
                f"{key.decode()} could not be parked in {self._settings.dead_letter_topic} within "
                f"{DEAD_LETTER_TIMEOUT_S:.0f} s ({type(problem).__name__}: {problem}); it is not lost, the "
                "next start tries again",
                kind="unavailable",
            ) from problem
        self._parked[letter.kind] += 1


def member_name(port: int) -> str:
    """A name that two live processes cannot share: only one of them has the port."""
    return f"insights-{socket.gethostname()}-{port}"
