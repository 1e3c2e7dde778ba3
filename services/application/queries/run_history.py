"""Histories of runs from their events: replay, state at an event, comparison, export.

The read models have a run's offsets and access; the result is folded from the log, never from a row. So these reads
cost the run's history and are bounded: a few at a time, one run or two of at most EVENTS_FOLDED_MAX events.

Before: a transport. After: services/stream/archive/run_log.py reads the log, services/core/run folds.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.protocols import LogRanges
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.runs import RunRow
from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.records import copy_as
from loomlog.services.application import limits
from loomlog.services.application.errors import bad_request, reaching, unavailable
from loomlog.services.application.queries.consistency_check import find_differences
from loomlog.services.application.queries.runs import RunQueries
from loomlog.services.application.streaming.run_stream import StreamSources
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.bounded_resources import HISTORIES
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run.evolve import REDUCER_VERSION
from loomlog.services.core.run.history.comparison import (
    CommonPoint,
    Comparison,
    Figures,
    compare_runs,
    figures_of,
    fork_point_of,
)
from loomlog.services.core.run.history.replay import ReplayResult, RunFold
from loomlog.services.stream.archive.bundle import BundledRun, BundleHeader, BundleWriter, FoldedRun, blob_refs
from loomlog.services.stream.archive.run_log import LineageSegment, ReadStats, RunLog, fold_run
from loomlog.services.stream.partition.fold import BrokenHistory
from loomlog.services.stream.shared_slots import SharedSlots


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayProof:
    """A run replayed from the log. `not_compared`: why the read models were not compared; empty when they agree or
    their differences are in `drift`.
    """

    row: RunRow
    replayed: ReplayResult
    drift: tuple[str, ...]
    ancestor_count: int
    """Number of earlier runs it continues."""
    stale: int
    not_compared: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAt:
    """A run after one of its events."""

    row: RunRow
    replayed: ReplayResult


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPair:
    """Two runs compared, each at its newest event or at the requested one."""

    a: RunAt
    b: RunAt
    comparison: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunHistory:
    """The offsets of a run and of all runs it continues."""

    row: RunRow
    log: RunLog
    segments: list[LineageSegment]


class RunHistories:
    """The use cases that read a run's events from the log. `clock_ms` provides the time of an export."""

    def __init__(
        self,
        sources: StreamSources,
        reads: RunQueries,
        ranges: LogRanges,
        codec: Codec,
        *,
        events_topic: str,
        clock_ms: Callable[[], int],
    ) -> None:
        self._sources = sources
        self._reads = reads
        self._ranges = ranges
        self._codec = codec
        self._topic = events_topic
        self._clock_ms = clock_ms
        self._slots = SharedSlots(HISTORIES.name, HISTORIES.shares)

    async def replay(self, caller: Caller, run_id: str, *, to_seq: int = 0) -> ReplayProof:
        """Fold the run again and compare it with the read models. Raises Refused."""
        async with self._read_slot(caller):
            history = await self._load_history(caller, run_id, to_seq)
            tally = ReadStats()
            replayed = await self._fold(history, to_seq, tally)
            drift = list(replayed.drift)
            why_not = f"it ends at seq {to_seq}" if to_seq else ""
            if not why_not:
                place = await self._sources.projection.audit_row(history.row.tenant, run_id)
                row = await self._sources.projection.run(history.row.tenant, run_id)
                if place is None or place.last_seq != replayed.seq or row is None or row.last_seq != replayed.seq:
                    why_not = "the run has gone on meanwhile"
                else:
                    drift += find_differences(replayed, place, row)
        return ReplayProof(
            row=history.row,
            replayed=await self._sources.content.decrypt(replayed, history.row.tenant),
            drift=tuple(drift),
            ancestor_count=len(history.segments) - 1,
            stale=tally.stale,
            not_compared=why_not,
        )

    async def state_at(self, caller: Caller, run_id: str, seq: int) -> RunAt:
        """Return the run after its event `seq`; 0 is its newest. Raises Refused(not_found)
        when there is none.
        """
        async with self._read_slot(caller):
            return await self._run_at(caller, run_id, seq)

    async def compare(self, caller: Caller, a: str, b: str, *, a_seq: int = 0, b_seq: int = 0) -> RunPair:
        """Compare two runs. Raises Refused."""
        async with self._read_slot(caller):
            one = await self._run_at(caller, a, a_seq)
            other = await self._run_at(caller, b, b_seq)
            common = await self._common_point(caller, one.replayed, other.replayed)
            return RunPair(a=one, b=other, comparison=compare_runs(one.replayed, other.replayed, common=common))

    async def _common_point(self, caller: Caller, a: ReplayResult, b: ReplayResult) -> CommonPoint | None:
        """Return the last event that a fork and its origin, or two forks of one origin, share; None of other runs."""
        fork_a, fork_b = fork_point_of(a), fork_point_of(b)
        if fork_b is not None and fork_b.run_id == a.run_id:
            seq = min(fork_b.seq, a.seq)
            return CommonPoint(run_id=a.run_id, seq=seq, extra_a=Figures() - await self._used_by(caller, a.run_id, seq))
        if fork_a is not None and fork_a.run_id == b.run_id:
            seq = min(fork_a.seq, b.seq)
            return CommonPoint(run_id=b.run_id, seq=seq, extra_b=Figures() - await self._used_by(caller, b.run_id, seq))
        if fork_a is None or fork_b is None or fork_a.run_id != fork_b.run_id:
            return None
        origin, seq = fork_a.run_id, min(fork_a.seq, fork_b.seq)
        if fork_a.seq == fork_b.seq:
            return CommonPoint(run_id=origin, seq=seq)
        used = await self._used_by(caller, origin, seq)
        between = await self._used_by(caller, origin, max(fork_a.seq, fork_b.seq)) - used
        if fork_a.seq > seq:
            return CommonPoint(run_id=origin, seq=seq, extra_a=between)
        return CommonPoint(run_id=origin, seq=seq, extra_b=between)

    async def _used_by(self, caller: Caller, run_id: str, seq: int) -> Figures:
        """Return what a run had used after its event `seq`."""
        return figures_of(await self._fold(await self._load_history(caller, run_id, seq), seq, None))

    async def export(self, caller: Caller, run_id: str) -> AsyncGenerator[bytes, None]:
        """Iterate the run as a bundle, piece by piece. All refusals are raised before the first piece."""
        async with self._read_slot(caller):
            history = await self._load_history(caller, run_id, 0, bounded=False)
        return self._write_bundle(caller, history)

    async def _write_bundle(self, caller: Caller, history: _RunHistory) -> AsyncGenerator[bytes, None]:
        async with self._read_slot(caller):
            writer = BundleWriter(self._codec)
            yield writer.begin(self._bundle_header(history))
            refs: dict[str, BlobRef] = {}
            before: ReplayResult | None = None
            for link in history.segments:
                folding = RunFold(
                    link.run_id,
                    history=() if before is None else before.history,
                    codec=self._codec,
                    checks_roundtrip=False,
                )
                async with aclosing(history.log.accepted(link)) as records:
                    async for recorded in records:
                        entry = folding.apply(recorded.event)
                        if entry is not None:
                            refs |= {ref.sha256: ref for ref in blob_refs(entry.event)}
                        if piece := writer.event(link.run_id, recorded.record):
                            yield piece
                before = folding.result()
                yield writer.folded(
                    FoldedRun(
                        run_id=link.run_id,
                        seq=before.seq,
                        tail_digest=before.tail_digest.hex(),
                        state_sha256=before.state_sha256,
                    )
                )
            for ref in refs.values():
                with reaching("blobs"):
                    data = await self._sources.blobs.get(ref)
                for piece in writer.blob(ref, data):
                    if piece:
                        yield piece
            yield writer.end()

    def _bundle_header(self, history: _RunHistory) -> BundleHeader:
        row = history.row
        return BundleHeader(
            run_id=row.run_id,
            tenant=row.tenant,
            topic=self._topic,
            partition=row.partition,
            reducer_version=REDUCER_VERSION,
            exported_at=format_rfc3339(self._clock_ms()),
            runs=tuple(copy_as(BundledRun, link) for link in history.segments),
        )

    # --- shared ------------------------------------------------------------------------------------------------------

    async def _run_at(self, caller: Caller, run_id: str, seq: int) -> RunAt:
        history = await self._load_history(caller, run_id, seq)
        replayed = await self._fold(history, seq, None)
        # Decrypted before the comparison: two tokens of the same text are never equal.
        return RunAt(row=history.row, replayed=await self._sources.content.decrypt(replayed, history.row.tenant))

    async def _load_history(self, caller: Caller, run_id: str, seq: int, *, bounded: bool = True) -> _RunHistory:
        row = await self._reads.visible_run(caller, run_id)
        if seq < 0 or seq > row.last_seq:
            raise Refused("not_found", f"the run {run_id} has the events 1 to {row.last_seq}; there is no {seq} yet")
        last_seq = seq or row.last_seq
        if bounded and last_seq > limits.EVENTS_FOLDED_MAX:
            raise bad_request(
                f"the run has {last_seq} events up to there, at most {limits.EVENTS_FOLDED_MAX} are folded here; "
                "export it and replay the file"
            )
        log = RunLog(self._ranges, self._codec, self._topic, row.partition)
        link = LineageSegment(run_id=run_id, first_offset=row.first_offset, end_offset=row.last_offset + 1)
        first = await log.first(link)
        if first is None:
            raise BrokenHistory(f"{run_id} is not at offset {row.first_offset} of partition {row.partition}")
        return _RunHistory(row=row, log=log, segments=await log.lineage(link, first))

    async def _fold(self, history: _RunHistory, seq: int, stats: ReadStats | None) -> ReplayResult:
        replayed = await fold_run(
            history.log, history.segments, codec=self._codec, to_seq=seq, through_bytes=False, tally=stats
        )
        if seq and replayed.seq != seq and not replayed.drift:
            raise BrokenHistory(f"{history.row.run_id} ends at {replayed.seq} although it should have {seq}")
        return replayed

    @asynccontextmanager
    async def _read_slot(self, caller: Caller) -> AsyncIterator[None]:
        """Bound concurrency (raises ShareExhausted); errors of the log or of a run in it become refusals."""
        try:
            with self._slots.try_acquire(caller.holder):
                yield
        except BrokenHistory as error:
            raise Refused("run_quarantined", f"the history is not whole: {error}") from error
        except ConnectorError as error:
            raise unavailable("log", error) from error
