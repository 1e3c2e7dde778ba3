"""Partition snapshots: verified caches that make a takeover cost the live runs.

A partition snapshot gives the offset at which the fold of a partition may begin and names a snapshot (run, seq, state
hash) for every run that was live there. It is trusted only if all of it is there, made by this version of the fold, and
every state hash is right; the next event of each run must then continue its hash chain, or the run's fold fails.
Otherwise the log wins: the fold begins at the first record, and the reason is reported.

Order of writing: snapshots, then the partition snapshot that names them, then tombstones for runs that ended since. A
snapshot newer than its partition snapshot is fine: the fold skips what it contains already. Before: schedule.py cuts.
After: `load` at a takeover. The topic may be deleted at any time.
"""

import asyncio
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Protocol

from msgspec import Struct, field

from loomlog.connectors.kafka import MAX_BATCH_BYTES
from loomlog.connectors.protocols import LogAppender, LogRanges, ProducerRecord
from loomlog.schemas.codec import Codec, Undecodable
from loomlog.schemas.generated.stream_records import PartitionCheckpoint, RunSnapshot, SnapshotRef
from loomlog.services.core.canonical import UnreadableState
from loomlog.services.stream.family import Family
from loomlog.services.stream.partition.command_offsets import CommandProgress
from loomlog.services.stream.partition.fold import SnapshotBase
from loomlog.services.stream.partition.partition import Aggregate

CHECKPOINT_KEY = b"checkpoint"
SNAPSHOT_BYTES_MAX = 700_000
"""A larger state is not snapshotted, and then no partition snapshot is made: its run is folded from its events."""


class FoldStart(Struct, frozen=True):
    """Start of a fold. Without a partition snapshot: the first record, with everything known (known_since_ms = 0)."""

    next_offset: int
    term: int = -1
    bases: Mapping[str, SnapshotBase] = field(default_factory=dict)
    progress: CommandProgress = field(default_factory=CommandProgress)
    known_since_ms: int = 0
    ignored: str = ""
    """Why a partition snapshot was not used; empty if it was or if there is none."""


class ConsistentCut(Struct, frozen=True):
    """The live aggregates at one moment, taken while decisions are still on their way."""

    aggregates: tuple[tuple[Aggregate, Any, int, bytes], ...]
    """(aggregate, state, seq, digest): states are immutable, so this is consistent."""

    @staticmethod
    def of(aggregates: Mapping[str, Aggregate]) -> "ConsistentCut":
        return ConsistentCut(tuple((a, a.state, a.seq, a.digest) for a in aggregates.values()))


class RecoveryPoints(Protocol):
    """Where the folds of partitions begin: partition snapshots of runs, checkpoints of entities."""

    async def load(self, partition: int, first_offset: int) -> FoldStart:
        """Return the start of the fold; `first_offset` is that of the first record of the events partition.

        Raises Transient.
        """
        ...

    def forget(self, partition: int) -> None:
        """Others have written since this process read; the next `write` reads again."""
        ...

    def read_through(self, ranges: LogRanges) -> "RecoveryPoints":
        """Return the same, read through other connections."""
        ...

    async def write(
        self,
        partition: int,
        *,
        term: int,
        next_offset: int,
        progress: CommandProgress,
        cut: ConsistentCut,
        at_ms: int,
        issued_until_ms: int = 0,
    ) -> str:
        """Write the start of a later fold; returns why it cannot be made now, empty if it was. Raises Transient."""
        ...


class Snapshots:
    """Reads and writes partition snapshots of one family (protocol RecoveryPoints)."""

    def __init__(self, family: Family, codec: Codec, *, appender: LogAppender, ranges: LogRanges, topic: str) -> None:
        self._family = family
        self._codec = codec
        self._appender = appender
        self._ranges = ranges
        self._topic = topic
        self._written: dict[int, set[str]] = {}

    async def load(self, partition: int, first_offset: int) -> FoldStart:
        """Return the start of the fold; `first_offset` is the first record of the events partition."""
        snapshots: dict[str, RunSnapshot] = {}
        checkpoints: list[PartitionCheckpoint] = []
        end = await self._ranges.end_offset(self._topic, partition)
        beginning = await self._ranges.beginning_offset(self._topic, partition)
        problem = ""
        async with await self._ranges.read(self._topic, partition, beginning, end) as chunks:
            async for chunk in chunks:
                for record in chunk:
                    if record.value is None:
                        snapshots.pop((record.key or b"").decode(errors="replace"), None)
                        continue
                    try:
                        decoded = self._codec.decode(record.value).record
                    except Undecodable as error:
                        problem = f"{self._topic}/{partition} offset {record.offset}: {error}"
                        continue
                    if isinstance(decoded, PartitionCheckpoint):
                        if decoded.partition == partition:
                            checkpoints.append(decoded)
                        else:
                            problem = f"{self._topic}/{partition} holds a checkpoint of partition {decoded.partition}"
                    elif isinstance(decoded, RunSnapshot):
                        snapshots[decoded.run_id] = decoded
        self._written[partition] = set(snapshots)
        if not checkpoints:
            return FoldStart(first_offset, ignored=problem)
        # Any owner's partition snapshot is a legal prefix; the furthest one saves the most.
        best = max(checkpoints, key=lambda c: c.next_offset)
        return self._verify(best, snapshots, first_offset)

    def _verify(
        self, checkpoint: PartitionCheckpoint, snapshots: Mapping[str, RunSnapshot], first_offset: int
    ) -> FoldStart:
        if checkpoint.reducer_version != self._family.reducer_version:
            return FoldStart(
                first_offset,
                ignored=f"the checkpoint at {checkpoint.next_offset} was made by fold version "
                f"{checkpoint.reducer_version}, this is {self._family.reducer_version}",
            )
        if checkpoint.next_offset < first_offset:
            return FoldStart(first_offset, ignored=f"the checkpoint at {checkpoint.next_offset} is older than the log")
        bases: dict[str, SnapshotBase] = {}
        for ref in checkpoint.runs:
            snapshot = snapshots.get(ref.run_id)
            reason = snapshot_error(ref, snapshot, self._family.reducer_version)
            if snapshot is not None and not reason:
                try:
                    bases[ref.run_id] = self._base(snapshot)
                except UnreadableState as error:
                    reason = f"its state cannot be read: {error}"
            if reason:
                return FoldStart(first_offset, ignored=f"the snapshot of {ref.run_id} is not usable: {reason}")
        return FoldStart(
            checkpoint.next_offset,
            checkpoint.term,
            bases,
            CommandProgress(checkpoint.command_offset, checkpoint.handled_above),
            max(checkpoint.at_ms, checkpoint.issued_until_ms),
        )

    def _base(self, snapshot: RunSnapshot) -> SnapshotBase:
        return SnapshotBase(
            state=self._family.states.decode(snapshot.state),
            seq=snapshot.seq,
            digest=snapshot.tail_digest,
            key=snapshot.key,
            tenant=snapshot.tenant,
            first_offset=snapshot.first_offset,
            last_offset=snapshot.last_offset,
            sha256=snapshot.state_sha256,
        )

    def forget(self, partition: int) -> None:
        self._written.pop(partition, None)

    def read_through(self, ranges: LogRanges) -> "Snapshots":
        return Snapshots(self._family, self._codec, appender=self._appender, ranges=ranges, topic=self._topic)

    async def _snapshot_keys(self, partition: int) -> set[str]:
        """Return the runs that have a snapshot in the topic. Raises Transient."""
        names: set[str] = set()
        end = await self._ranges.end_offset(self._topic, partition)
        beginning = await self._ranges.beginning_offset(self._topic, partition)
        async with await self._ranges.read(self._topic, partition, beginning, end) as chunks:
            async for chunk in chunks:
                for record in chunk:
                    name = (record.key or b"").decode(errors="replace")
                    (names.discard if record.value is None else names.add)(name)
        names.discard(CHECKPOINT_KEY.decode())
        return names

    async def write(
        self,
        partition: int,
        *,
        term: int,
        next_offset: int,
        progress: CommandProgress,
        cut: ConsistentCut,
        at_ms: int,
        issued_until_ms: int = 0,
    ) -> str:
        """Write a partition snapshot of the cut, all of which is in the log below `next_offset`.

        Returns why it cannot be made, empty if it was. Raises Transient.

        `issued_until_ms` is that of the command handler: this owner's clock may have gone back since.

        `progress` is the commands handled when the log was at `next_offset`, not earlier: a command handled in between
        would be read again and its run, perhaps ended already, started twice.
        """
        outgoing: list[ProducerRecord] = []
        refs: list[SnapshotRef] = []
        for aggregate, state, seq, tail in cut.aggregates:
            if aggregate.pending_events or (aggregate.quarantined and not self._family.quarantined(state)):
                # Its events cannot be folded, so they must stay in the tail.
                return f"{aggregate.id} cannot be folded: release or cancel it"
            if aggregate.snapshot_seq == seq:
                refs.append(SnapshotRef(run_id=aggregate.id, seq=seq, state_sha256=aggregate.snapshot_sha256))
                continue
            data = self._family.states.encode(state)
            if len(data) > SNAPSHOT_BYTES_MAX:
                return f"the state of {aggregate.id} has {len(data)} bytes, a snapshot at most {SNAPSHOT_BYTES_MAX}"
            mark = sha256(data).hexdigest()
            refs.append(SnapshotRef(run_id=aggregate.id, seq=seq, state_sha256=mark))
            await asyncio.sleep(0)  # a large state takes milliseconds, and heartbeats share this event loop
            snapshot = RunSnapshot(
                run_id=aggregate.id,
                key=aggregate.key,
                tenant=aggregate.tenant,
                first_offset=aggregate.first_offset,
                last_offset=aggregate.last_offset,
                seq=seq,
                tail_digest=tail,
                reducer_version=self._family.reducer_version,
                state_sha256=mark,
                state=data,
            )
            outgoing.append(ProducerRecord(key=aggregate.id.encode(), value=self._codec.encode(snapshot)))
        checkpoint = PartitionCheckpoint(
            partition=partition,
            term=term,
            next_offset=next_offset,
            command_offset=progress.low,
            handled_above=progress.above,
            runs=tuple(refs),
            at_ms=at_ms,
            reducer_version=self._family.reducer_version,
            issued_until_ms=issued_until_ms,
        )
        outgoing.append(ProducerRecord(key=CHECKPOINT_KEY, value=self._codec.encode(checkpoint)))
        if len(outgoing[-1].value or b"") > SNAPSHOT_BYTES_MAX:
            return f"{len(refs)} live aggregates do not fit one record"
        live = {aggregate.id for aggregate, *_ in cut.aggregates}
        if partition not in self._written:
            self._written[partition] = await self._snapshot_keys(partition)
        known = self._written[partition]
        outgoing += [ProducerRecord(key=name.encode(), value=None) for name in sorted(known - live)]
        known |= live  # also if an append fails: what may be there must be deleted one day
        for batch in batch_records(outgoing):
            await self._appender.append(self._topic, partition, batch)
        for (aggregate, _, seq, _), ref in zip(cut.aggregates, refs, strict=True):
            aggregate.snapshot_seq, aggregate.snapshot_sha256 = seq, ref.state_sha256
        self._written[partition] = live
        return ""


def snapshot_error(ref: SnapshotRef, snapshot: RunSnapshot | None, reducer_version: int) -> str:
    """Return why a snapshot must not be used; empty if it may be."""
    if snapshot is None:
        return "it is missing"
    if snapshot.reducer_version != reducer_version:
        return f"made by fold version {snapshot.reducer_version}, this is {reducer_version}"
    if snapshot.seq < ref.seq:
        return f"it is at seq {snapshot.seq}, the checkpoint names {ref.seq}"
    if sha256(snapshot.state).hexdigest() != snapshot.state_sha256:
        return "its state does not have the hash it names"
    if snapshot.seq == ref.seq and snapshot.state_sha256 != ref.state_sha256:
        return "its state is not the one the checkpoint names"
    return ""


def batch_records(records: Sequence[ProducerRecord]) -> list[list[ProducerRecord]]:
    """Split the records, in order, into batches that fit an append."""
    batches: list[list[ProducerRecord]] = [[]]
    size = 0
    for record in records:
        weight = len(record.value or b"") + len(record.key or b"") + 100
        if batches[-1] and size + weight > MAX_BATCH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(record)
        size += weight
    return batches
