"""Verification of what the auditor signed: all topics of events or one, from everywhere or from a time on, or one run.

The command line and the API call the same; they differ in where readers and keys come from (LogSources).

Before: audits.py, services/cli/log/audit.py. After: verification.py.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from loomlog.connectors.crypto.signatures import PublicKey
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import Blobs, LogRanges
from loomlog.projections.audit import ENDED, AuditRow
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.codec import Codec
from loomlog.schemas.ids import partition_key
from loomlog.schemas.position import Position
from loomlog.services.application.errors import bad_request
from loomlog.services.application.log.json_types import SignatureVerdict, SignedCheckpointJson
from loomlog.services.application.log.records import (
    CHANNEL_TOPIC,
    ENTITY_TOPIC,
    EVENTS_TOPIC,
    EVENTS_TOPICS,
    is_aggregate_id,
    topic_of_aggregate,
)
from loomlog.services.application.log.verification import (
    LogReaders,
    OnProgress,
    RunRange,
    VerificationTask,
    ignore_progress,
    newest_signed,
    unsigned_since_ms,
    verify_partition,
)
from loomlog.services.core.audit.checkpoints import SignedCheckpoint
from loomlog.services.core.audit.verify import VerificationReport
from loomlog.services.core.families import aggregate_key
from loomlog.services.core.plain_text import pluralize
from loomlog.services.core.refusals import Refused

CHECKPOINTS_TOPIC = "loom.audit.checkpoints"
CHECKPOINT_RECORDS_MAX = 200
"""Newest records of a partition among which checkpoints are listed; each may have 80 KB."""

OpenRanges = Callable[[], AbstractAsyncContextManager[LogRanges]]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationRequest:
    """What to verify."""

    run_id: str = ""
    """Id of a run, or full id of an aggregate; empty for all."""
    partition: int | None = None
    since_ms: int | None = None
    newest_checkpoints: int | None = None
    topic: str = ""
    """Copy to read instead of the original topic; empty for the original."""
    entities_only: bool = False
    channels_only: bool = False
    max_unsigned_s: float | None = None
    follow_blobs: bool = True

    @property
    def events_topics(self) -> tuple[str, ...]:
        """Return which topics of events are verified: of a single run or aggregate, and of a copy, only its own."""
        if is_aggregate_id(self.run_id):
            return (topic_of_aggregate(self.run_id),)
        if self.entities_only or self.channels_only:
            return (ENTITY_TOPIC if self.entities_only else CHANNEL_TOPIC,)
        return (EVENTS_TOPIC,) if self.run_id or self.topic else EVENTS_TOPICS

    @property
    def conflict(self) -> str:
        """Return why the request contradicts itself; empty when it does not."""
        if self.run_id and (self.partition is not None or self.since_ms is not None):
            return "A run says which partition and which time: leave the partition and the time out."
        if self.entities_only and self.channels_only:
            return "Entities and channels are two topics: verify one after the other, or ask for neither alone."
        if self.run_id and not is_aggregate_id(self.run_id) and (self.entities_only or self.channels_only):
            kind = "Entities" if self.entities_only else "Channels"
            return f"{kind} have no runs, and {self.run_id} is no aggregate (FAMILY:TENANT/NAME)."
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSources:
    """What a verification reads."""

    open_ranges: OpenRanges
    count_partitions: Callable[[str], Awaitable[int]]
    find_run: Callable[[str], Awaitable[AuditRow | None]]
    """Returns the place of a run from the read models; None when it is not known, so the whole partition is read."""
    codec: Codec
    keys: Mapping[str, PublicKey]
    blobs: Blobs
    place: str
    """Address of the broker, for messages."""


class LogVerifier:
    """Verifies a log. Everything raises Refused, or Transient when broker or blob store do not answer."""

    def __init__(self, sources: LogSources) -> None:
        self._sources = sources

    async def verify(
        self, request: VerificationRequest, on_progress: OnProgress = ignore_progress
    ) -> list[VerificationReport]:
        """Verify what the request names, partition by partition. Raises Refused: not_found, bad_request,
        command_refused.
        """
        if request.conflict:
            raise bad_request(request.conflict)
        reports: list[VerificationReport] = []
        for topic in request.events_topics:
            reports += await self._verify_topic(request, topic, on_progress)
        return reports

    async def oldest_unsigned_age_s(self) -> float:
        """Age in seconds of the oldest event that no checkpoint covers; 0 without one.

        Trusts the newest checkpoints without verifying them; `verify` does that.
        """
        oldest: list[int] = []
        request = VerificationRequest()
        for task in (events_task(request, {}, topic) for topic in request.events_topics):
            count = await self._require_topics(task)
            async with self._sources.open_ranges() as ranges:
                log = LogReaders(ranges, ranges, self._sources.codec)
                times = [await unsigned_since_ms(log, task, partition) for partition in range(count)]
            oldest += [at_ms for at_ms in times if at_ms is not None]
        return max(0.0, time.time() - min(oldest) / 1000) if oldest else 0.0

    async def is_signed(self) -> bool:
        """Return whether the auditor has ever signed anything."""
        async with self._sources.open_ranges() as ranges:
            for partition in range(await self._sources.count_partitions(CHECKPOINTS_TOPIC)):
                if await ranges.end_offset(CHECKPOINTS_TOPIC, partition):
                    return True
        return False

    async def newest_checkpoints(self, limit: int) -> list[SignedCheckpointJson]:
        """Return the newest checkpoints of each partition of each topic of events, the newest first; those among the
        newest CHECKPOINT_RECORDS_MAX records.
        """
        sources, listed = self._sources, []
        async with sources.open_ranges() as ranges:
            log = LogReaders(ranges, ranges, sources.codec)
            for partition in range(await sources.count_partitions(CHECKPOINTS_TOPIC)):
                signed = await newest_signed(log, CHECKPOINTS_TOPIC, partition, CHECKPOINT_RECORDS_MAX)
                for topic in EVENTS_TOPICS:
                    of_topic = [one for one in signed if one.checkpoint.topic == topic][-limit:]
                    end = await ranges.end_offset(topic, partition) if of_topic else 0
                    listed += [checkpoint_json(one, sources.keys, end) for one in of_topic]
        return sorted(listed, key=lambda one: one["at"], reverse=True)

    async def _verify_topic(
        self, request: VerificationRequest, topic: str, on_progress: OnProgress
    ) -> list[VerificationReport]:
        sources = self._sources
        task = events_task(request, sources.keys, topic, sources.blobs if request.follow_blobs else None)
        count = await self._require_topics(task, is_single_partition=request.partition is not None)
        if request.partition is not None and request.partition >= count:
            raise bad_request(f"The partition is {request.partition}; {task.records_topic} has {count}.")
        partitions: Sequence[int] = range(count) if request.partition is None else [request.partition]
        run_range: RunRange | None = None
        if is_aggregate_id(request.run_id):
            partitions = [partition_of(aggregate_key(request.run_id), count)]
        elif request.run_id:
            partitions = [partition_of(partition_key(request.run_id).encode(), count)]
            run_range = _run_range(await sources.find_run(request.run_id), partitions[0])
        return await verify_partitions(sources.open_ranges, sources.codec, task, partitions, run_range, on_progress)

    async def _require_topics(self, task: VerificationTask, *, is_single_partition: bool = False) -> int:
        """Return the number of partitions to verify. Raises Refused when the records or the checkpoints topic is
        missing.

        `is_single_partition`: only one partition is verified, so a mismatch of the others is ignored.
        """
        topics = (task.records_topic, task.checkpoints_topic)
        counts = [await self._sources.count_partitions(topic) for topic in topics]
        for topic, count in zip(topics, counts, strict=True):
            if not count:
                missing = f"There is no topic {topic} at {self._sources.place}. `loomlog topics apply` makes it."
                raise Refused("not_found", missing)
        if not is_single_partition and (mismatch := partition_mismatch(task, *counts)):
            raise Refused("command_refused", mismatch)
        return counts[0]


def events_task(
    request: VerificationRequest, keys: Mapping[str, PublicKey], topic: str, blobs: Blobs | None = None
) -> VerificationTask:
    """Return the task for a topic of events; all of them share their checkpoints topic."""
    return VerificationTask(
        topic=topic,
        records_topic=request.topic or topic,
        checkpoints_topic=CHECKPOINTS_TOPIC,
        keys=keys,
        blobs=blobs,
        since_ms=request.since_ms,
        newest_checkpoints=request.newest_checkpoints,
        run_id=request.run_id,
        max_unsigned_s=request.max_unsigned_s,
        siblings=frozenset(EVENTS_TOPICS) - {topic},
        is_log_kept=topic != CHANNEL_TOPIC,
    )


def partition_mismatch(task: VerificationTask, count: int, signed_count: int) -> str:
    """Describe a mismatch between `count` partitions and the `signed_count` that the auditor signs; empty for none."""
    if count == signed_count:
        return ""
    rest = (
        f"{signed_count - count} that were signed are missing"
        if count < signed_count
        else f"{count - signed_count} are not signed"
    )
    return (
        f"{task.records_topic} has {pluralize(count, 'partition')}, {task.checkpoints_topic} has "
        f"{signed_count}: {rest}. "
        "It is not the log that was signed, nor a whole copy of it; one partition alone can be verified."
    )


async def verify_partitions(
    open_ranges: OpenRanges,
    codec: Codec,
    task: VerificationTask,
    partitions: Sequence[int],
    run_range: RunRange | None = None,
    on_progress: OnProgress = ignore_progress,
) -> list[VerificationReport]:
    """Verify the partitions one after the other, and return a report for each. Raises Refused(not_found) when
    the run of the task is not there.
    """
    async with open_ranges() as records, open_ranges() as checkpoints:
        log = LogReaders(records, checkpoints, codec)
        reports = []
        for partition in partitions:
            now_ms = time.time_ns() // 1_000_000
            reports.append(
                await verify_partition(
                    log, task, partition, now_ms=now_ms, run_range=run_range, on_progress=on_progress
                )
            )
    if task.run_id and (reports[0].watched is None or not reports[0].watched.seq):
        kind = "aggregate" if is_aggregate_id(task.run_id) else "run"
        raise Refused(
            "not_found",
            f"There is no {kind} {task.run_id} in {task.records_topic}/{reports[0].partition}, where it would lie.",
        )
    return reports


def _run_range(row: AuditRow | None, partition: int) -> RunRange | None:
    if row is None or row.partition != partition:
        return None
    return RunRange(row.first_offset, row.last_offset if row.status in ENDED else -1)


def checkpoint_json(signed: SignedCheckpoint, keys: Mapping[str, PublicKey], end_offset: int) -> SignedCheckpointJson:
    """Return a checkpoint with whether its signature is one of these keys; `end_offset` is that of its partition."""
    checkpoint = signed.checkpoint
    key = keys.get(checkpoint.key_id)
    verdict: SignatureVerdict = (
        "unknown_key" if key is None else "valid" if signed.verified_by(key.verify) else "invalid"
    )
    return {
        "topic": checkpoint.topic,
        "partition": int(checkpoint.partition),
        "position": str(Position(topic=CHECKPOINTS_TOPIC, partition=checkpoint.partition, offset=signed.at_offset)),
        "first_offset": checkpoint.first_offset,
        "next_offset": checkpoint.next_offset,
        "records": checkpoint.records,
        "term": None if checkpoint.term < 0 else checkpoint.term,
        "at": format_rfc3339(checkpoint.at_ms),
        "key_id": checkpoint.key_id,
        "chain": checkpoint.chain.hex(),
        "signature": verdict,
        "unsigned": max(0, end_offset - checkpoint.next_offset),
    }
