"""Auditor loop: follows the events and signs the contents of every partition at intervals.

    session   for each partition: verify the chain of checkpoints, take the newest, read its range again and compare
    follow    poll -> hash -> sign when due -> poll ...; every `every_s` check that the log did not become shorter

It is a plain reader that no other process waits for. A lost broker ends the session, never the process. The checkpoints
topic is authoritative: our own checkpoint is read back from there like one of another auditor. So two active auditors
only sign in turns, and an append with an unknown outcome needs no handling.

A partition that contradicts its checkpoints is refused: the loop logs an error every LOG_EVERY_S seconds and signs no
checkpoint of it until an operator restarts the auditor. The other partitions continue: an attacker who tampers with one
must not stop the signing of all.

Before: main.py builds it. After: services/core/audit/ledger.py.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from loomlog.connectors.errors import Transient
from loomlog.connectors.process.sessions import run_sessions, wait_for_stop
from loomlog.connectors.protocols import LogAppender, LogRanges, LogRecord, ProducerRecord
from loomlog.schemas.codec import Codec
from loomlog.services.auditor.settings import AuditorSettings
from loomlog.services.core.audit.checkpoints import SignedCheckpoint, sign
from loomlog.services.core.audit.ledger import SigningContradiction, SigningCursor
from loomlog.services.core.audit.tail import CheckpointTail

log = logging.getLogger("loomlog.auditor")

LOG_EVERY_S = 60.0
"""Interval of logging refused partitions again."""
PENDING_CHECKPOINTS_MAX = 1_000
"""Most checkpoints kept of another auditor that has read farther; the oldest are dropped, later ones cover them."""


class EventsTail(Protocol):
    """A tail of the events whose partitions can be paused."""

    async def poll(self, *, timeout_s: float, max_records: int = 5_000) -> Mapping[int, Sequence[LogRecord]]: ...
    def pause(self, partitions: Sequence[int]) -> None: ...
    async def end_offsets(self) -> Mapping[int, int]: ...
    async def close(self) -> None: ...


class LogConnection(Protocol):
    """Access to the log. Every method raises Transient when the broker is away."""

    @property
    def ranges(self) -> LogRanges: ...
    @property
    def appender(self) -> LogAppender: ...
    async def open_tail(self, topic: str, starts: Mapping[int, int]) -> EventsTail: ...
    async def close(self) -> None: ...


@dataclass(slots=True, kw_only=True)
class PartitionWatch:
    """Signing state of one partition."""

    ledger: SigningCursor
    checkpoints: CheckpointTail
    pending: deque[SignedCheckpoint] = field(default_factory=deque)
    waiting_since: float | None = None
    """When the first record after the last checkpoint was read."""


class Auditor:
    """Signs one events topic. `connect` raises Transient when the broker is away; `clock_ms` is the time of day."""

    def __init__(
        self,
        settings: AuditorSettings,
        *,
        connect: Callable[[], Awaitable[LogConnection]],
        codec: Codec,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.refused: dict[int, str] = {}
        """Partitions that are no longer signed, with the reason."""
        self.signed = 0
        """Checkpoints written by this process."""
        self._settings = settings
        self._connect = connect
        self._codec = codec
        self._clock_ms = clock_ms
        self._monotonic = monotonic
        self._refusals_logged_at = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop`. Raises Permanent, and any unexpected error."""
        await run_sessions(self._session, stop, log, progress=lambda: self.signed)

    async def _session(self, stop: asyncio.Event) -> None:
        settings = self._settings
        connection = await self._connect()
        try:
            partitions = await connection.appender.partitions(settings.events_topic)
            if not partitions and settings.is_optional:
                await wait_for_stop(stop, LOG_EVERY_S)
                return
            if not partitions or await connection.appender.partitions(settings.checkpoints_topic) < partitions:
                raise Transient(
                    f"the topics {settings.events_topic} and {settings.checkpoints_topic} must exist with the "
                    "same number "
                    "of partitions; `loomlog topics apply` creates them",
                    kind="unavailable",
                )
            watches: dict[int, PartitionWatch] = {}
            for partition in range(partitions):
                if partition not in self.refused and (watch := await self._open_watch(connection, partition)):
                    watches[partition] = watch
            log.info(
                "signing %s, %d partitions, with the key %s", settings.events_topic, len(watches), settings.key.key_id
            )
            tail = await connection.open_tail(
                settings.events_topic, {p: w.ledger.next_offset for p, w in watches.items()}
            )
            try:
                await self._follow(connection, tail, watches, stop)
            finally:
                await tail.close()
        finally:
            await connection.close()

    async def _open_watch(self, connection: LogConnection, partition: int) -> PartitionWatch | None:
        """State from which signing a partition resumes; None when it is refused."""
        settings, ranges = self._settings, connection.ranges
        topic, codec = settings.events_topic, self._codec
        keys = {key_id: key.verify for key_id, key in settings.trusted.items()}
        checkpoints = CheckpointTail(
            topic=topic, partition=partition, keys=keys, codec=codec, siblings=settings.siblings
        )
        ledger = SigningCursor(topic=topic, partition=partition, codec=codec)
        try:
            async for _ in self._read_checkpoints(connection, checkpoints, partition):
                pass  # reading verifies
            first_offset = await ranges.beginning_offset(topic, partition)
            if checkpoints.newest is None:
                ledger.begin(first_offset)
            else:
                end = await ranges.end_offset(topic, partition)
                ledger.resume(checkpoints.newest, first_offset, end, is_log_kept=settings.is_log_kept)
        except SigningContradiction as contradiction:
            self._refuse_partition(partition, contradiction)
            return None
        return PartitionWatch(ledger=ledger, checkpoints=checkpoints)

    async def _follow(
        self, connection: LogConnection, tail: EventsTail, watches: dict[int, PartitionWatch], stop: asyncio.Event
    ) -> None:
        settings = self._settings
        next_check_at = self._monotonic()
        while not stop.is_set():
            self._log_refusals()
            if not watches:
                await wait_for_stop(stop, LOG_EVERY_S)
                continue
            polled = await tail.poll(timeout_s=min(settings.poll_timeout_s, settings.every_s))
            ends: Mapping[int, int] = {}
            if self._monotonic() >= next_check_at:
                ends = await tail.end_offsets()
                next_check_at = self._monotonic() + settings.every_s
            for partition, watch in list(watches.items()):
                try:
                    await self._process_records(
                        connection, partition, watch, polled.get(partition, ()), ends.get(partition)
                    )
                except SigningContradiction as contradiction:
                    self._refuse_partition(partition, contradiction)
                    del watches[partition]
                    tail.pause([partition])

    async def _process_records(
        self,
        connection: LogConnection,
        partition: int,
        watch: PartitionWatch,
        records: Sequence[LogRecord],
        end: int | None,
    ) -> None:
        """Reads the records and signs when due. Raises SigningContradiction."""
        settings, ledger = self._settings, watch.ledger
        for record in records:
            ledger.read(record)
            if ledger.waiting >= settings.every_records or ledger.is_full:
                await self._sign(connection, partition, watch)
        if end is not None and end < ledger.next_offset:
            raise SigningContradiction(
                f"the log ended at offset {ledger.next_offset} and ends at {end} now: it was cut off"
            )
        if not ledger.waiting:
            watch.waiting_since = None
        elif watch.waiting_since is None:
            watch.waiting_since = self._monotonic()
        elif self._monotonic() - watch.waiting_since >= settings.every_s:
            await self._sign(connection, partition, watch)

    async def _sign(self, connection: LogConnection, partition: int, watch: PartitionWatch) -> None:
        """Signs everything read, unless another auditor was first. Raises SigningContradiction."""
        settings, ledger = self._settings, watch.ledger
        watch.waiting_since = None
        await self._adopt_checkpoints(connection, partition, watch)
        draft = None if watch.pending else ledger.draft(key_id=settings.key.key_id, at_ms=self._clock_ms())
        if draft is None:
            return
        value = sign(draft, settings.key.sign, self._codec)
        await connection.appender.append(
            settings.checkpoints_topic, partition, [ProducerRecord(key=str(partition).encode(), value=value)]
        )
        self.signed += 1
        if draft.previous_key_id not in ("", draft.key_id):
            log.warning(
                "%s/%d: the key %s signs from offset %d on, after the key %s",
                settings.events_topic,
                partition,
                draft.key_id,
                draft.first_offset,
                draft.previous_key_id,
            )
        # Also a record of the log's extent outside of the broker, for operators who keep our output.
        name = f"{settings.events_topic}/{partition}"
        log.info("%s signed up to offset %d, chain %s", name, draft.next_offset, draft.chain.hex())
        await self._adopt_checkpoints(connection, partition, watch)

    async def _adopt_checkpoints(self, connection: LogConnection, partition: int, watch: PartitionWatch) -> None:
        """Adopts what any auditor has signed since the last read. Raises SigningContradiction."""
        async for signed in self._read_checkpoints(connection, watch.checkpoints, partition):
            if len(watch.pending) >= PENDING_CHECKPOINTS_MAX:
                watch.pending.popleft()  # those after it cover more of the log
            watch.pending.append(signed)
        while watch.pending and watch.pending[0].checkpoint.next_offset <= watch.ledger.next_offset:
            watch.ledger.adopt(watch.pending.popleft())

    async def _read_checkpoints(
        self, connection: LogConnection, checkpoint_tail: CheckpointTail, partition: int
    ) -> AsyncIterator[SignedCheckpoint]:
        """Yields the new checkpoints, verified."""
        topic = self._settings.checkpoints_topic
        end = await connection.ranges.end_offset(topic, partition)
        start = max(checkpoint_tail.next_offset, await connection.ranges.beginning_offset(topic, partition))
        if start >= end:
            return
        async with await connection.ranges.read(topic, partition, start, end) as chunks:
            async for chunk in chunks:
                for record in chunk:
                    if (signed := checkpoint_tail.read(record)) is not None:
                        yield signed
                    elif checkpoint_tail.skipped:
                        log.warning("%s/%d: skipped: %s", topic, partition, checkpoint_tail.skipped)

    def _refuse_partition(self, partition: int, contradiction: SigningContradiction) -> None:
        self.refused[partition] = str(contradiction)
        self._refusals_logged_at = 0.0
        self._log_refusals()

    def _log_refusals(self) -> None:
        now = self._monotonic()
        if not self.refused or (self._refusals_logged_at and now - self._refusals_logged_at < LOG_EVERY_S):
            return
        self._refusals_logged_at = now
        for partition, reason in sorted(self.refused.items()):
            log.error(
                "NOT SIGNING %s/%d: %s. `loomlog audit verify %s` shows what was changed; restart the auditor when "
                "that is resolved",
                self._settings.events_topic,
                partition,
                reason,
                self._settings.verify_option.format(partition=partition),
            )
