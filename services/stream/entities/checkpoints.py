"""Checkpoints of entity partitions: where the fold of one begins, without a list of its aggregates.

A checkpoint at an offset is made when everything below it is safe elsewhere: the projector has passed the offset, so
that every aggregate that rests has a complete row; no delivery of an event below is on its way; and the replicated
aggregates, which are few, have their snapshots in the same compacted topic, written before it. It names their number
and a sum over them, so that one that is missing is noticed; then the fold begins at the first record.

Not chosen: a list of the live aggregates (7,000 of them fill a record, and a million do not fit anywhere).
Before: services/stream/snapshots/schedule.py cuts. After: `load` at a takeover, in a standby, and in replicas.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from msgspec import structs

from loomlog.connectors.protocols import LogAppender, LogRanges, ProducerRecord
from loomlog.schemas.codec import Codec, Undecodable
from loomlog.schemas.generated.stream_records import EntityCheckpoint, EntitySnapshot
from loomlog.services.core.canonical import UnreadableState
from loomlog.services.stream.entities.families import FamilySet, HostedFamily, UnknownFamily
from loomlog.services.stream.entities.log_beginnings import term_before
from loomlog.services.stream.partition.command_offsets import CommandProgress
from loomlog.services.stream.partition.fold import SnapshotBase
from loomlog.services.stream.partition.partition import Aggregate
from loomlog.services.stream.partition.resting import SnapshotUnusable
from loomlog.services.stream.snapshots.snapshots import CHECKPOINT_KEY, ConsistentCut, FoldStart, batch_records

PROJECTOR_WAIT_S = 3.0
"""How long a checkpoint waits for the projector to pass its offset; it is tens of milliseconds behind normally."""
PROJECTOR_POLL_S = 0.1
DELIVERY_WAIT_S = 5.0
"""How long a checkpoint waits for the commands that events below its offset send; each takes milliseconds normally."""
PAUSE_EVERY = 200
"""Aggregates that are read or compared in one turn of the event loop, which heartbeats share: some milliseconds."""

DeliveredBelow = Callable[[int, int, float], Awaitable[bool]]


class _Written(NamedTuple):
    """The newest snapshot of an aggregate: of the state after which event, and what it adds to the sum."""

    seq: int
    tail_digest: bytes
    part: int


class EntityCheckpoints:
    """Reads and writes the checkpoints of entities (protocol RecoveryPoints)."""

    def __init__(
        self,
        families: FamilySet,
        codec: Codec,
        *,
        appender: LogAppender,
        ranges: LogRanges,
        topic: str,
        events_topic: str,
        projected_below: Callable[[int], Any] | None = None,
        delivered_below: DeliveredBelow | None = None,
        on_written: Callable[[int, int], None] = lambda partition, offset: None,
    ) -> None:
        """`projected_below` is ColdRows.next_offset; None for a process that writes no checkpoints. `delivered_below`
        is Outbox.delivered_below; None: nothing is delivered. `on_written` is called with the partition and the offset
        of a checkpoint that is in the log.
        """
        self._families = families
        self._codec = codec
        self._appender = appender
        self._ranges = ranges
        self._topic, self._events_topic = topic, events_topic
        self._projected_below = projected_below
        self._delivered_below = delivered_below
        self._on_written = on_written
        self._written: dict[int, dict[str, _Written]] = {}
        """The newest snapshot of each replicated aggregate, by partition."""

    async def read_state(self, partition: int, aggregate: Aggregate) -> Any:
        raise SnapshotUnusable(f"{aggregate.id} is an entity: its state at rest is a row")

    def forget(self, partition: int) -> None:
        self._written.pop(partition, None)

    def read_through(self, ranges: LogRanges) -> "EntityCheckpoints":
        return EntityCheckpoints(
            self._families,
            self._codec,
            appender=self._appender,
            ranges=ranges,
            topic=self._topic,
            events_topic=self._events_topic,
        )

    # --- reading -----------------------------------------------------------------------------------------------------

    async def load(self, partition: int, first_offset: int) -> FoldStart:
        """Return the start of the fold: the first record that there is, without a usable checkpoint. Raises
        Transient.
        """
        start = await self._load(partition, first_offset)
        if start.known_since_ms or not first_offset:
            return start
        term = await term_before(self._ranges, self._codec, self._events_topic, partition, first_offset)
        return structs.replace(start, term=term)

    async def _load(self, partition: int, first_offset: int) -> FoldStart:
        snapshots: dict[str, EntitySnapshot] = {}
        newest: EntityCheckpoint | None = None
        problem = ""
        end = await self._ranges.end_offset(self._topic, partition)
        beginning = await self._ranges.beginning_offset(self._topic, partition)
        async with await self._ranges.read(self._topic, partition, beginning, end) as chunks:
            async for chunk in chunks:
                for record in chunk:
                    try:
                        decoded = self._codec.decode(record.value or b"").record
                    except Undecodable as error:
                        problem = f"{self._topic}/{partition} offset {record.offset}: {error}"
                        continue
                    if isinstance(decoded, EntitySnapshot):
                        snapshots[decoded.aggregate] = decoded
                    elif isinstance(decoded, EntityCheckpoint) and decoded.partition == partition:
                        newest = decoded
                    else:
                        problem = f"{self._topic}/{partition} offset {record.offset}: {type(decoded).__name__}"
                await asyncio.sleep(0)  # heartbeats share this event loop
        self._written.pop(partition, None)
        if newest is None:
            return FoldStart(first_offset, ignored=problem)
        # A snapshot after the checkpoint is newer than it: the fold skips what it contains already.
        start = await self._verify(newest, snapshots, first_offset)
        if self._projected_below is not None:
            # Without bases the fold begins at the first event, perhaps with other rules: all are written again.
            self._written[partition] = {
                name: _Written(base.seq, base.digest, _part(name, base.seq, base.sha256))
                for name, base in start.bases.items()
            }
        return start

    async def _verify(
        self, checkpoint: EntityCheckpoint, snapshots: Mapping[str, EntitySnapshot], first_offset: int
    ) -> FoldStart:
        name = f"the checkpoint at {checkpoint.next_offset}"
        if checkpoint.next_offset < first_offset:
            return FoldStart(first_offset, ignored=f"{name} is older than the log")
        bases: dict[str, SnapshotBase] = {}
        replicated = self._families.replicated
        for family in replicated:
            version = self._families.by_name[family].rules.version
            if checkpoint.versions.get(family, version) != version:
                return FoldStart(first_offset, ignored=f"{name} has another version of the fold of {family}")
        if len(snapshots) < checkpoint.replicated:
            return FoldStart(
                first_offset, ignored=f"{name} counts {checkpoint.replicated} snapshots, {len(snapshots)} are there"
            )
        total = 0
        for number, snapshot in enumerate(snapshots.values(), start=1):
            if number % PAUSE_EVERY == 0:
                await asyncio.sleep(0)
            if sha256(snapshot.state).hexdigest() != snapshot.state_sha256:
                return FoldStart(
                    first_offset, ignored=f"the snapshot of {snapshot.aggregate} has not the hash it names"
                )
            try:
                hosted = self._families.of(snapshot.aggregate)
                if not hosted.is_replicated:
                    continue
                state = hosted.states.decode(snapshot.state)
            except (UnknownFamily, UnreadableState) as error:
                return FoldStart(first_offset, ignored=f"the snapshot of {snapshot.aggregate}: {error}")
            bases[snapshot.aggregate] = SnapshotBase(
                state=state,
                seq=snapshot.seq,
                digest=snapshot.tail_digest,
                key=snapshot.key,
                tenant=snapshot.tenant,
                first_offset=snapshot.first_offset,
                last_offset=snapshot.last_offset,
                sha256=snapshot.state_sha256,
            )
            total += _part(snapshot.aggregate, snapshot.seq, snapshot.state_sha256)
        is_as_counted = all(base.last_offset < checkpoint.next_offset for base in bases.values())
        if is_as_counted and _sum_text(total) != checkpoint.replicated_sha256:
            return FoldStart(first_offset, ignored=f"{name} was made of other snapshots than are there")
        return FoldStart(
            checkpoint.next_offset,
            checkpoint.term,
            bases,
            CommandProgress(checkpoint.command_offset, checkpoint.handled_above),
            max(checkpoint.at_ms, checkpoint.issued_until_ms),
        )

    # --- writing -----------------------------------------------------------------------------------------------------

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
        """Write a checkpoint at `next_offset`; returns why it cannot be made now, empty if it was. Raises Transient."""
        delivered_below = self._delivered_below
        if delivered_below is not None and not await delivered_below(partition, next_offset, DELIVERY_WAIT_S):
            return f"commands that events below {next_offset} send to other aggregates are on their way"
        problem = await self._wait_for_projector(partition, next_offset)
        if problem:
            return problem
        written = self._written.setdefault(partition, {})
        outgoing: list[ProducerRecord] = []
        fresh: dict[str, _Written] = {}
        count = total = 0
        for number, (aggregate, state, seq, tail, _) in enumerate(cut.aggregates, start=1):
            if number % PAUSE_EVERY == 0:
                await asyncio.sleep(0)
            family = self._families.of(aggregate.id)
            if not family.is_replicated:
                continue
            if aggregate.pending_events:
                return f"{aggregate.id} cannot be folded: repair it"
            known = written.get(aggregate.id)
            if known is None or (known.seq, known.tail_digest) != (seq, tail):
                snapshot = _snapshot(aggregate, family, state, seq, tail, next_offset)
                known = _Written(seq, tail, _part(aggregate.id, seq, snapshot.state_sha256))
                fresh[aggregate.id] = known
                outgoing.append(ProducerRecord(key=aggregate.id.encode(), value=self._codec.encode(snapshot)))
                await asyncio.sleep(0)
            count += 1
            total += known.part
        checkpoint = EntityCheckpoint(
            partition=partition,
            term=term,
            next_offset=next_offset,
            command_offset=progress.low,
            handled_above=progress.above,
            at_ms=at_ms,
            issued_until_ms=issued_until_ms,
            versions=self._families.versions,
            replicated=count,
            replicated_sha256=_sum_text(total),
        )
        outgoing.append(ProducerRecord(key=CHECKPOINT_KEY, value=self._codec.encode(checkpoint)))
        for batch in batch_records(outgoing):
            await self._appender.append(self._topic, partition, batch)
        written.update(fresh)
        self._on_written(partition, next_offset)
        return ""

    async def _wait_for_projector(self, partition: int, next_offset: int) -> str:
        assert self._projected_below is not None, "this process writes no checkpoints"
        below = await self._projected_below(partition)
        deadline = asyncio.get_running_loop().time() + PROJECTOR_WAIT_S
        while below < next_offset:
            if asyncio.get_running_loop().time() >= deadline:
                return f"the projector has reached {below}, {next_offset} is needed"
            await asyncio.sleep(PROJECTOR_POLL_S)
            below = await self._projected_below(partition)
        return ""


def _snapshot(
    aggregate: Aggregate, family: HostedFamily, state: Any, seq: int, tail: bytes, next_offset: int
) -> EntitySnapshot:
    data = family.states.encode(state)
    return EntitySnapshot(
        aggregate=aggregate.id,
        key=aggregate.key,
        tenant=aggregate.tenant,
        first_offset=aggregate.first_offset,
        # The aggregate may have gone on since the cut; what counts is that it is not below its last event.
        last_offset=min(aggregate.last_offset, next_offset - 1),
        seq=seq,
        tail_digest=tail,
        version=family.rules.version,
        state_sha256=sha256(data).hexdigest(),
        state=data,
    )


def _part(name: str, seq: int, state_sha256: str) -> int:
    """Return what an aggregate adds to the sum over the replicated ones."""
    return int.from_bytes(sha256(f"{name} {seq} {state_sha256}".encode()).digest(), "big")


def _sum_text(total: int) -> str:
    return f"{total % 2**256:064x}"
