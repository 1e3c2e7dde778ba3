"""Verification over the broker: feeds a partition and its checkpoints side by side to the pure verifier.

Verification may start in the middle, at a checkpoint with a valid signature, because it contains the running hash and
the term before its first record. For a run, the offsets in the audit index are only a hint: when the records there are
not the run from its first event on, the whole partition is read.

Hashing is CPU work in the process's event loop, so it is interrupted every YIELD_EVERY records for others to run.

Before: verifier.py. After: services/core/audit/verify.py.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from loomlog.connectors.crypto.signatures import PublicKey
from loomlog.connectors.errors import Permanent
from loomlog.connectors.protocols import Blobs, LogRanges, LogRecord
from loomlog.schemas.codec import Codec, Undecodable
from loomlog.schemas.generated.stream_records import AuditCheckpoint
from loomlog.schemas.records import replace
from loomlog.services.core.audit.checkpoints import SignedCheckpoint, read_signed
from loomlog.services.core.audit.findings import AuditFinding, FindingKind
from loomlog.services.core.audit.references import Reference
from loomlog.services.core.audit.verify import PartitionAudit, VerificationReport, VerificationStart

MAX_CONCURRENT_BLOBS = 8
"""Blobs fetched concurrently: enough for a disk, few enough for memory (each is at most some megabytes)."""
LOOKBACK_RECORDS = 10
"""Records of the checkpoints topic among which the newest checkpoints are looked for first; some are not readable, or
of another topic. Then four times as many are read, and so on: a topic may have been quiet for long.
"""
LOOKAHEAD_RECORDS = 10
"""Offsets read to find the first record after a checkpoint, because offsets may have gaps."""
BLOB_CACHE_SIZE = 50_000
"""Verified blobs remembered; conversations name the same ones repeatedly."""
YIELD_EVERY = 200
"""Records verified before the event loop goes on with something else: some milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationTask:
    """One topic to verify. Records are read from `records_topic`: `topic`, or a copy of it."""

    topic: str
    records_topic: str
    checkpoints_topic: str
    keys: Mapping[str, PublicKey]
    blobs: Blobs | None
    """Blob store; None if references are not followed."""
    since_ms: int | None = None
    newest_checkpoints: int | None = None
    """Verify from so many checkpoints before the newest one on; None for all."""
    run_id: str = ""
    """Id of a run or of an aggregate; empty for all."""
    siblings: frozenset[str] = frozenset()
    """The other events topics whose checkpoints are in the same topic."""
    max_unsigned_s: float | None = None
    is_log_kept: bool = True
    """Whether the topic keeps every record; False: its retention deletes old ones, which are left out then."""


class RunRange(NamedTuple):
    """Offsets of a run in the audit index; `last_offset` is -1 while it may continue."""

    first_offset: int
    last_offset: int


class VerificationRange(NamedTuple):
    """Part of a partition to read: records from `start` to before `end`, and a range of checkpoint offsets."""

    start: VerificationStart
    end: int
    first_checkpoint: int
    checkpoints_end: int


class VerificationProgress(NamedTuple):
    """How far the verification of a partition is: it has read up to `next_offset`, of `end_offset`."""

    topic: str
    partition: int
    next_offset: int
    end_offset: int
    records: int
    """Records verified in this partition."""


OnProgress = Callable[[VerificationProgress], None]


def ignore_progress(progress: VerificationProgress) -> None:
    """Do nothing with a progress."""


@dataclass(slots=True)
class LogReaders:
    """Broker access with one reader per side: a reader reads one range at a time."""

    records: LogRanges
    checkpoints: LogRanges
    codec: Codec


async def verify_partition(
    readers: LogReaders,
    task: VerificationTask,
    partition: int,
    *,
    now_ms: int,
    run_range: RunRange | None = None,
    on_progress: OnProgress = ignore_progress,
) -> VerificationReport:
    """Verify one partition and return its report. Raises Transient when broker or blob store do not answer."""
    section = await _select_range(readers, task, partition, run_range)
    deleted = 0 if task.is_log_kept else await readers.records.beginning_offset(task.records_topic, partition)
    report = await _verify(readers, task, partition, section, now_ms, on_progress)
    if run_range is not None and not _covers_run(report, run_range):
        section = await _select_range(readers, task, partition, None)
        report = await _verify(readers, task, partition, section, now_ms, on_progress)
    report = replace(report, deleted_before=deleted)
    return restrict_to_run(report) if task.run_id else report


def restrict_to_run(report: VerificationReport) -> VerificationReport:
    """Return the report with only the findings about the run it watched."""
    watched = report.watched
    assert watched is not None, "no run was watched"
    last = watched.last_offset if watched.ended else report.next_offset

    def concerns(finding: AuditFinding) -> bool:
        if finding.run_id:
            return finding.run_id == watched.run_id
        if finding.topic != report.topic:
            return True
        return finding.offset <= last and finding.offset + finding.count > watched.first_offset

    return replace(report, findings=tuple(filter(concerns, report.findings)))


async def _verify(
    readers: LogReaders,
    task: VerificationTask,
    partition: int,
    verified_range: VerificationRange,
    now_ms: int,
    on_progress: OnProgress,
) -> VerificationReport:
    audit = PartitionAudit(
        topic=task.topic,
        partition=partition,
        keys={key_id: key.verify for key_id, key in task.keys.items()},
        codec=readers.codec,
        checkpoints_topic=task.checkpoints_topic,
        start=verified_range.start,
        watch=task.run_id,
        siblings=task.siblings,
    )
    blobs = _BlobVerifier(task.blobs, audit)
    checkpoints = _read_records(
        readers.checkpoints,
        task.checkpoints_topic,
        partition,
        verified_range.first_checkpoint,
        verified_range.checkpoints_end,
    )

    async def feed() -> None:
        while audit.wants_checkpoint:
            record = await anext(checkpoints, None)
            if record is None:
                audit.checkpoints_end()
            else:
                audit.checkpoint(record)

    def tell(next_offset: int) -> None:
        on_progress(VerificationProgress(task.topic, partition, next_offset, verified_range.end, records))

    records = 0
    async for chunk in _read_chunks(
        readers.records, task.records_topic, partition, verified_range.start.offset, verified_range.end
    ):
        for record in chunk:
            if audit.wants_checkpoint:
                await feed()
            audit.record(record)
            records += 1
            if records % YIELD_EVERY == 0:
                tell(record.offset + 1)
                await asyncio.sleep(0)
        await blobs.verify_pending()
    await feed()
    while not audit.end():
        await feed()
    await feed()
    await blobs.verify_pending()
    tell(verified_range.end)
    return audit.report(now_ms=now_ms, max_unsigned_s=task.max_unsigned_s)


async def _read_records(
    ranges: LogRanges, topic: str, partition: int, start: int, end: int
) -> AsyncIterator[LogRecord]:
    async for chunk in _read_chunks(ranges, topic, partition, start, end):
        for record in chunk:
            yield record


async def _read_chunks(
    ranges: LogRanges, topic: str, partition: int, start: int, end: int
) -> AsyncIterator[Sequence[LogRecord]]:
    """Yield the existing records from `start` to before `end`."""
    if start >= end:
        return
    start = max(start, await ranges.beginning_offset(topic, partition))
    if start >= end:
        return
    async with await ranges.read(topic, partition, start, end) as chunks:
        async for chunk in chunks:
            yield chunk


async def _select_range(
    readers: LogReaders, task: VerificationTask, partition: int, run_range: RunRange | None
) -> VerificationRange:
    """Select what has to be read. The ends are read in this order, because every signed record was
    in the log before.
    """
    checkpoints_end = await readers.checkpoints.end_offset(task.checkpoints_topic, partition)
    end = await readers.records.end_offset(task.records_topic, partition)
    begins = await readers.records.beginning_offset(task.records_topic, partition)
    first = await readers.checkpoints.beginning_offset(task.checkpoints_topic, partition)
    whole = VerificationRange(VerificationStart(), end, first, checkpoints_end)
    deleted_below = 0 if task.is_log_kept else begins
    if run_range is None and task.since_ms is None and task.newest_checkpoints is None and not deleted_below:
        return whole
    if task.newest_checkpoints is not None:
        newest = await _newest_checkpoints(readers, task, partition, checkpoints_end, task.newest_checkpoints)
        first = newest[0][0] if newest else first

    def begins_late_enough(checkpoint: AuditCheckpoint) -> bool:
        if checkpoint.first_offset < deleted_below:
            return False
        if run_range is not None:
            return checkpoint.next_offset > run_range.first_offset
        return checkpoint.at_ms >= (task.since_ms or 0)

    start: tuple[int, AuditCheckpoint] | None = None
    is_start_known = False
    async for at, checkpoint in _read_trusted_checkpoints(readers, task, partition, first, checkpoints_end):
        if not is_start_known:
            start, is_start_known = (at, checkpoint), begins_late_enough(checkpoint)
        if is_start_known and (run_range is None or run_range.last_offset < 0):
            break
        if is_start_known and run_range is not None and checkpoint.next_offset > run_range.last_offset:
            end, checkpoints_end = min(end, checkpoint.next_offset), at + 1
            break
    if deleted_below and (start is None or start[1].first_offset < deleted_below):
        return _after_deleted(whole, deleted_below, start)
    if start is None or (start[1].first_offset <= begins and not deleted_below):
        return whole._replace(end=end, checkpoints_end=checkpoints_end)
    return VerificationRange(VerificationStart.at(start[1]), end, start[0], checkpoints_end)


def _after_deleted(
    whole: VerificationRange, begins: int, newest: tuple[int, AuditCheckpoint] | None
) -> VerificationRange:
    """Return what is left to verify when no checkpoint is of records that are all there: the unsigned ones."""
    if newest is None:
        return whole._replace(start=VerificationStart(offset=begins))
    at, checkpoint = newest
    start = VerificationStart(offset=max(begins, checkpoint.next_offset), chain=checkpoint.chain, term=checkpoint.term)
    return whole._replace(start=start, first_checkpoint=at + 1)


async def unsigned_since_ms(readers: LogReaders, task: VerificationTask, partition: int) -> int | None:
    """Return the time of the first record after the newest checkpoint; None when there is none.

    Verifies nothing. Raises Transient.
    """
    end = await readers.records.end_offset(task.records_topic, partition)
    if end == await readers.records.beginning_offset(task.records_topic, partition):
        return None
    last = await readers.checkpoints.end_offset(task.checkpoints_topic, partition)
    newest = await _newest_checkpoints(readers, task, partition, last, LOOKBACK_RECORDS // 2)
    signed = max((checkpoint.next_offset for _, checkpoint in newest), default=0)
    behind = _read_records(readers.records, task.records_topic, partition, signed, min(end, signed + LOOKAHEAD_RECORDS))
    return next(iter([record.timestamp async for record in behind]), None)


async def newest_signed(readers: LogReaders, topic: str, partition: int, records: int) -> list[SignedCheckpoint]:
    """Return the checkpoints among the newest records of a partition of the checkpoints topic, in order.

    Their signatures are not verified.
    """
    end = await readers.checkpoints.end_offset(topic, partition)
    signed = []
    async for record in _read_records(readers.checkpoints, topic, partition, max(0, end - records), end):
        try:
            signed.append(read_signed(record.value, record.offset, readers.codec))
        except Undecodable:
            continue  # the auditor skips it too
    return signed


async def _newest_checkpoints(
    readers: LogReaders, task: VerificationTask, partition: int, end: int, count: int
) -> list[tuple[int, AuditCheckpoint]]:
    """Return the newest checkpoints of the topic below an offset and their offsets, in order; fewer if there are no
    more.

    Their signatures are not verified.
    """
    beginning = await readers.checkpoints.beginning_offset(task.checkpoints_topic, partition)
    window = max(LOOKBACK_RECORDS, count)
    while True:
        start = max(beginning, end - window)
        checkpoints: list[tuple[int, AuditCheckpoint]] = []
        async for record in _read_records(readers.checkpoints, task.checkpoints_topic, partition, start, end):
            try:
                checkpoint = read_signed(record.value, record.offset, readers.codec).checkpoint
            except Undecodable:
                continue  # the auditor skips it too
            if checkpoint.topic == task.topic:
                checkpoints.append((record.offset, checkpoint))
        if len(checkpoints) >= count or start == beginning:
            return checkpoints[-count:]
        window *= 4


async def _read_trusted_checkpoints(
    readers: LogReaders, task: VerificationTask, partition: int, start: int, end: int
) -> AsyncIterator[tuple[int, AuditCheckpoint]]:
    """Yield checkpoints with a valid signature, and their offsets."""
    async for record in _read_records(readers.checkpoints, task.checkpoints_topic, partition, start, end):
        try:
            signed = read_signed(record.value, record.offset, readers.codec)
        except Undecodable:
            continue  # a verification that starts here reports it; one that starts later does not need it
        key = task.keys.get(signed.checkpoint.key_id)
        if signed.checkpoint.topic == task.topic and key is not None and signed.verified_by(key.verify):
            yield record.offset, signed.checkpoint


def _covers_run(report: VerificationReport, run_range: RunRange) -> bool:
    watched = report.watched
    return watched is not None and watched.first_seq == 1 and (watched.ended or run_range.last_offset < 0)


class _BlobVerifier:
    """Verifier of the blobs that events name; fetches each once."""

    def __init__(self, blobs: Blobs | None, audit: PartitionAudit) -> None:
        self._blobs = blobs
        self._audit = audit
        self._results: OrderedDict[tuple[str, int], tuple[FindingKind, str] | None] = OrderedDict()

    async def verify_pending(self) -> None:
        """Verify the blobs named since the last call. Raises Transient."""
        references = self._audit.take_references()
        if not references or self._blobs is None:
            return
        for start in range(0, len(references), MAX_CONCURRENT_BLOBS):
            some = references[start : start + MAX_CONCURRENT_BLOBS]
            problems = await asyncio.gather(*(self._find_problem(self._blobs, one) for one in some))
            for reference, problem in zip(some, problems, strict=True):
                if problem is not None:
                    self._audit.blob_finding(reference, *problem)

    async def _find_problem(self, blobs: Blobs, reference: Reference) -> tuple[FindingKind, str] | None:
        ref = reference.blob
        name = (ref.sha256, ref.size_bytes)
        if name not in self._results:
            problem: tuple[FindingKind, str] | None = None
            try:
                size = len(await blobs.get(ref))
                if size != ref.size_bytes:
                    problem = (
                        FindingKind.DAMAGED_BLOB,
                        f"blob {ref.sha256} has {size} bytes, {ref.size_bytes} are named",
                    )
            except Permanent as error:
                problem = (
                    (FindingKind.MISSING_BLOB if error.kind == "not_found" else FindingKind.DAMAGED_BLOB),
                    str(error),
                )
            self._results[name] = problem
            if len(self._results) > BLOB_CACHE_SIZE:
                self._results.popitem(last=False)
        return self._results[name]
