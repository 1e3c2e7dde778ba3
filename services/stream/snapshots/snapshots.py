"""Partition snapshots: verified caches that make a takeover cost the live runs.

A partition snapshot gives the offset at which the fold of a partition may begin. It does not list the runs that were
live there: it has their number and the sum of the tokens of their snapshots (a token is a hash of run, seq and state),
so it has the same size for any number of runs, and one that changes costs its own snapshot and no list. It is trusted
only if the snapshots in the topic add up to it, made by this version of the fold, and every state that is loaded has
its hash; the next event of each run must then continue its hash chain, or the run's fold fails. Otherwise the log wins:
the fold begins at the first record, and the reason is reported.

Order of writing: snapshots and the ends of runs that had one, then the partition snapshot they add up to, then
tombstones for those runs. Each record names the token of the one it replaces, and counts for that in a partition
snapshot of an earlier offset of the events: so the newest partition snapshot can be verified at any moment, also if its
owner has died while it wrote the next one and compaction has removed what that replaced. A snapshot newer than its
partition snapshot is fine for the fold: it skips what the snapshot contains already.

Newer is what contains more events, wherever it is in the topic. A former owner that does not know that it is one writes
older snapshots after those of its successor, which may name what they replace: in a partition snapshot of the same or a
later offset a snapshot counts for itself only, so they make that one useless and never wrong.

The states of runs that rest (partition/resting.py) are not loaded: their offset is kept, and `read_state` reads one. A
state over SNAPSHOT_BYTES_MAX has a snapshot without it, and its run is folded from its events (`omits_large_states`).

Not chosen: a list of the runs, in pages (100,000 runs are 10 MB for every partition snapshot, twice a minute, and pages
that are replaced one by one do not belong together after a crash). Before: schedule.py cuts. After: `load` at a
takeover. The topic may be deleted at any time.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from sys import intern
from typing import Any, Protocol

from msgspec import Struct, field

from loomlog.connectors.kafka import MAX_BATCH_BYTES
from loomlog.connectors.protocols import LogAppender, LogRanges, LogRecord, ProducerRecord
from loomlog.schemas.codec import Codec, Undecodable
from loomlog.schemas.generated.stream_records import PartitionCheckpoint, RunSnapshot
from loomlog.schemas.records import replace
from loomlog.services.core.canonical import UnreadableState
from loomlog.services.stream.family import Family
from loomlog.services.stream.partition.command_offsets import CommandProgress
from loomlog.services.stream.partition.ended_aggregates import read_value
from loomlog.services.stream.partition.fold import SnapshotBase
from loomlog.services.stream.partition.partition import Aggregate
from loomlog.services.stream.partition.resting import (
    TOKEN_BYTES,
    Resting,
    SnapshotUnusable,
    shared_resting,
    snapshot_token,
)

CHECKPOINT_KEY = b"checkpoint"
SNAPSHOT_BYTES_MAX = 700_000
"""A larger state does not fit a record."""
CHECKPOINTS_TRIED = 3
"""Partition snapshots compared with the topic, the furthest first: the next one counts if a former owner, which did not
know that it was one, has written the last.
"""
SUM_MODULUS = 1 << (8 * TOKEN_BYTES)


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

    aggregates: tuple[tuple[Aggregate, Any, int, bytes, Resting | None], ...]
    """Those that need a snapshot, and those that are quarantined: (aggregate, state, seq, digest, what it is if it
    rests). States are immutable, so this is consistent.
    """
    tokens: Mapping[str, bytes]
    """The others, which have their snapshot, with its token."""

    @staticmethod
    def of(
        aggregates: Mapping[str, Aggregate], resting: Callable[[Aggregate], Resting | None] = lambda aggregate: None
    ) -> "ConsistentCut":
        """Return the cut. `resting` is CommandHandler.resting."""
        changed = []
        tokens: dict[str, bytes] = {}
        for name, one in aggregates.items():
            if one.snapshot_seq == one.seq and not one.quarantined:
                tokens[name] = one.snapshot_token
            else:
                changed.append((one, one.state, one.seq, one.digest, resting(one)))
        return ConsistentCut(tuple(changed), tokens)


class RecoveryPoints(Protocol):
    """Where the folds of partitions begin: partition snapshots of runs, checkpoints of entities."""

    async def load(self, partition: int, first_offset: int) -> FoldStart:
        """Return the start of the fold; `first_offset` is that of the first record of the events partition.

        Raises Transient.
        """
        ...

    async def read_state(self, partition: int, aggregate: Aggregate) -> Any:
        """Return the state that the aggregate's snapshot has. Raises Transient or SnapshotUnusable."""
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


DONE_WAIT_S = 3.0
"""How long a snapshot waits for what ends of aggregates lead to; that takes milliseconds normally."""
DONE_POLL_S = 0.05


class Snapshots:
    """Reads and writes partition snapshots of one family (protocol RecoveryPoints)."""

    def __init__(
        self,
        family: Family,
        codec: Codec,
        *,
        appender: LogAppender,
        ranges: LogRanges,
        topic: str,
        omits_large_states: bool = False,
        is_done_below: Callable[[int, int], bool] = lambda partition, offset: True,
    ) -> None:
        """`omits_large_states`: the command handler of the family can fold an aggregate again (`refold`).
        `is_done_below`: whether what events of a partition below an offset lead to elsewhere is done; a takeover does
        again what follows from those that it reads.
        """
        self._family = family
        self._codec = codec
        self._appender = appender
        self._ranges = ranges
        self._topic = topic
        self._omits_large_states = omits_large_states
        self._is_done_below = is_done_below
        self._written: dict[int, Mapping[str, bytes]] = {}
        """Aggregates that may have a snapshot in the topic, by partition, with the token it had in the last partition
        snapshot; empty if it had none.
        """

    # --- reading -----------------------------------------------------------------------------------------------------

    async def load(self, partition: int, first_offset: int) -> FoldStart:
        """Return the start of the fold; `first_offset` is the first record of the events partition."""
        contents = await self._read_contents(partition)
        self._written[partition] = contents.last_tokens()
        best, ignored = contents.newest_checkpoint()
        if best is None:
            return FoldStart(first_offset, ignored=ignored)
        if best.next_offset < first_offset:
            return FoldStart(first_offset, ignored=f"the checkpoint at {best.next_offset} is older than the log")
        for name, base in contents.bases.items():
            if type(base.state) is bytes:
                try:
                    contents.bases[name] = replace(base, state=self._decode(base.state, base.sha256), sha256="")
                except SnapshotUnusable as error:
                    return FoldStart(first_offset, ignored=f"the snapshot of {name} is not usable: {error}")
        return FoldStart(
            best.next_offset,
            best.term,
            contents.bases,
            CommandProgress(best.command_offset, best.handled_above),
            max(best.at_ms, best.issued_until_ms),
        )

    async def _read_contents(self, partition: int) -> "_TopicContents":
        """Read the topic. Raises Transient."""
        contents = _TopicContents(partition, self._topic, self._family.reducer_version)
        end = await self._ranges.end_offset(self._topic, partition)
        beginning = await self._ranges.beginning_offset(self._topic, partition)
        async with await self._ranges.read(self._topic, partition, beginning, end) as chunks:
            async for chunk in chunks:
                for record in chunk:
                    contents.add(record, self._codec)
                await asyncio.sleep(0)  # heartbeats share this event loop
        return contents

    def _decode(self, state: bytes, state_sha256: str) -> Any:
        """Return the state, verified. Raises SnapshotUnusable."""
        if sha256(state).hexdigest() != state_sha256:
            raise SnapshotUnusable("its state does not have the hash it names")
        try:
            return self._family.states.decode(state)
        except UnreadableState as error:
            raise SnapshotUnusable(f"its state cannot be read: {error}") from error

    async def read_state(self, partition: int, aggregate: Aggregate) -> Any:
        """Return the state that the aggregate's snapshot has. Raises Transient or SnapshotUnusable."""
        offset = aggregate.snapshot_offset
        if offset < 0:
            raise SnapshotUnusable("its state is too large for a snapshot")
        # If the topic was deleted and made again the offset may be out of range, and a read would wait for it.
        is_there = offset < await self._ranges.end_offset(self._topic, partition)
        value = await read_value(self._ranges, self._topic, partition, offset) if is_there else None
        if value is None:
            raise SnapshotUnusable(f"its snapshot at offset {offset} of {self._topic}/{partition} is gone")
        try:
            snapshot = self._codec.decode(value).record
        except Undecodable as error:
            raise SnapshotUnusable(f"{self._topic}/{partition} offset {offset}: {error}") from error
        if (
            not isinstance(snapshot, RunSnapshot)
            or snapshot.run_id != aggregate.id
            or _token(snapshot) != aggregate.snapshot_token
        ):
            raise SnapshotUnusable(f"{self._topic}/{partition} has another record at offset {offset}")
        return self._decode(snapshot.state, snapshot.state_sha256)

    def forget(self, partition: int) -> None:
        self._written.pop(partition, None)

    def read_through(self, ranges: LogRanges) -> "Snapshots":
        return Snapshots(
            self._family,
            self._codec,
            appender=self._appender,
            ranges=ranges,
            topic=self._topic,
            omits_large_states=self._omits_large_states,
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
        """Write a partition snapshot of the cut, all of which is in the log below `next_offset`.

        Returns why it cannot be made, empty if it was. Raises Transient.

        `issued_until_ms` is that of the command handler: this owner's clock may have gone back since.

        `progress` is the commands handled when the log was at `next_offset`, not earlier: a command handled in between
        would be read again and its run, perhaps ended already, started twice.
        """
        if not await self._wait_until_done(partition, next_offset):
            return "what the ends of aggregates lead to is on its way"
        for aggregate, state, *_ in cut.aggregates:
            if aggregate.pending_events or (aggregate.quarantined and not self._family.quarantined(state)):
                # Its events cannot be folded, so they must stay in the tail.
                return f"{aggregate.id} cannot be folded: release or cancel it"
        if partition not in self._written:
            # A standby took over: a former owner has written since this process read.
            self._written[partition] = (await self._read_contents(partition)).last_tokens()
        known = self._written[partition]
        # Also if an append fails: what may be there must be deleted one day.
        self._written[partition] = {**{aggregate.id: b"" for aggregate, *_ in cut.aggregates}, **known}
        written = dict(cut.tokens)
        fresh: list[tuple[Aggregate, int, bool]] = []
        offsets: list[int] = []
        outgoing: list[ProducerRecord] = []
        size = 0
        for aggregate, state, seq, tail, resting in cut.aggregates:
            if aggregate.snapshot_seq == seq:
                written[aggregate.id] = aggregate.snapshot_token
                continue
            data = self._family.states.encode(state)
            if len(data) > SNAPSHOT_BYTES_MAX:
                if not self._omits_large_states:
                    return f"the state of {aggregate.id} has {len(data)} bytes, a snapshot at most {SNAPSHOT_BYTES_MAX}"
                data, resting = b"", None
            replaces = known.get(aggregate.id, b"")
            snapshot = self._snapshot(aggregate, data, seq, tail, replaces=replaces, next_offset=next_offset)
            if resting is not None:
                snapshot = replace(
                    snapshot,
                    rests=True,
                    session_id=resting.session_id,
                    agent_id=resting.agent_id,
                    agent=resting.agent,
                    wide_pauses=resting.wide_pauses,
                    timer_at_ms=self._family.next_timer_at(state),
                )
            written[aggregate.id] = _token(snapshot)
            fresh.append((aggregate, seq, bool(data)))
            outgoing.append(ProducerRecord(key=aggregate.id.encode(), value=self._codec.encode(snapshot)))
            size += len(data)
            if size > SNAPSHOT_BYTES_MAX:  # thousands of states need not be in memory twice
                offsets += await self._append(partition, outgoing)
                outgoing, size = [], 0
            await asyncio.sleep(0)  # a large state takes milliseconds, and heartbeats share this event loop
        ended = sorted(name for name in known if name not in written)
        outgoing += [self._end_record(name, replaces=known[name], next_offset=next_offset) for name in ended]
        total = sum(map(int.from_bytes, written.values())) % SUM_MODULUS
        checkpoint = PartitionCheckpoint(
            partition=partition,
            term=term,
            next_offset=next_offset,
            command_offset=progress.low,
            handled_above=progress.above,
            live_runs=len(written),
            tokens_sum=total.to_bytes(TOKEN_BYTES),
            at_ms=at_ms,
            reducer_version=self._family.reducer_version,
            issued_until_ms=issued_until_ms,
        )
        outgoing.append(ProducerRecord(key=CHECKPOINT_KEY, value=self._codec.encode(checkpoint)))
        outgoing += [ProducerRecord(key=name.encode(), value=None) for name in ended]
        offsets += await self._append(partition, outgoing)
        for (aggregate, seq, has_state), offset in zip(fresh, offsets, strict=False):
            aggregate.snapshot_seq, aggregate.snapshot_token = seq, written[aggregate.id]
            aggregate.snapshot_offset = offset if has_state else -1
        self._written[partition] = written
        return ""

    async def _wait_until_done(self, partition: int, next_offset: int) -> bool:
        """Wait a little until what events below the offset lead to is done; whether it is."""
        deadline = asyncio.get_running_loop().time() + DONE_WAIT_S
        while not self._is_done_below(partition, next_offset):
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(DONE_POLL_S)
        return True

    async def _append(self, partition: int, records: Sequence[ProducerRecord]) -> list[int]:
        """Append the records; returns their offsets. Raises Transient."""
        offsets: list[int] = []
        for batch in batch_records(records):
            base = await self._appender.append(self._topic, partition, batch)
            offsets += range(base, base + len(batch))
        return offsets

    def _snapshot(
        self, aggregate: Aggregate, data: bytes, seq: int, tail: bytes, *, replaces: bytes, next_offset: int
    ) -> RunSnapshot:
        return RunSnapshot(
            run_id=aggregate.id,
            key=aggregate.key,
            tenant=aggregate.tenant,
            first_offset=aggregate.first_offset,
            last_offset=aggregate.last_offset,
            seq=seq,
            tail_digest=tail,
            reducer_version=self._family.reducer_version,
            state_sha256=sha256(data).hexdigest() if data else "",
            state=data,
            replaces=replaces,
            next_offset=next_offset,
        )

    def _end_record(self, name: str, *, replaces: bytes, next_offset: int) -> ProducerRecord:
        ended = RunSnapshot(
            run_id=name,
            key=b"",
            tenant="",
            first_offset=-1,
            last_offset=-1,
            seq=0,
            tail_digest=b"",
            reducer_version=self._family.reducer_version,
            state_sha256="",
            state=b"",
            replaces=replaces,
            next_offset=next_offset,
            ended=True,
        )
        return ProducerRecord(key=name.encode(), value=self._codec.encode(ended))


class _TopicContents:
    """The snapshots topic of one partition as read so far, in the order of the offsets."""

    def __init__(self, partition: int, topic: str, reducer_version: int) -> None:
        self.bases: dict[str, SnapshotBase] = {}
        """Newest snapshot of each aggregate. `state` is its bytes if it has to be decoded."""
        self._partition = partition
        self._topic = topic
        self._reducer_version = reducer_version
        self._replaced: dict[str, tuple[int, bytes]] = {}
        """The newest record of each aggregate: at which offset of the events it was made, and the token that it
        replaces; empty: none.
        """
        self._other_versions: dict[str, int] = {}
        self._checkpoints: list[PartitionCheckpoint] = []
        self._problem = ""

    def add(self, record: LogRecord, codec: Codec) -> None:
        if record.value is None:
            self._remove((record.key or b"").decode(errors="replace"))
            return
        try:
            decoded = codec.decode(record.value).record
        except Undecodable as error:
            self._problem = f"{self._topic}/{self._partition} offset {record.offset}: {error}"
            return
        if isinstance(decoded, RunSnapshot):
            self._remove(decoded.run_id)
            self._replaced[decoded.run_id] = (decoded.next_offset, decoded.replaces)
            if not decoded.ended:
                self.bases[decoded.run_id] = _base(decoded, record.offset)
            if decoded.reducer_version != self._reducer_version:
                self._other_versions[decoded.run_id] = decoded.reducer_version
        elif isinstance(decoded, PartitionCheckpoint):
            if decoded.partition == self._partition:
                self._checkpoints.append(decoded)
            else:
                self._problem = f"{self._topic}/{self._partition} holds a checkpoint of partition {decoded.partition}"

    def _remove(self, name: str) -> None:
        self.bases.pop(name, None)
        self._replaced.pop(name, None)
        self._other_versions.pop(name, None)

    def last_tokens(self) -> dict[str, bytes]:
        """Return the aggregates that have a record, with the token each had in the checkpoint that would be used, or
        else in the last one; empty: none.
        """
        best, _ = self.newest_checkpoint()
        last = best or (self._checkpoints[-1] if self._checkpoints else None)
        return self._tokens_at(last.next_offset if last is not None else -1)

    def _tokens_at(self, next_offset: int) -> dict[str, bytes]:
        """Return the same at a checkpoint with that offset. What was made at a later one contains more events and may
        replace what the checkpoint was made of; anything else must be what it was made of.
        """
        return {
            name: replaced if made_at > next_offset else self.bases[name].token if name in self.bases else b""
            for name, (made_at, replaced) in self._replaced.items()
        }

    def newest_checkpoint(self) -> tuple[PartitionCheckpoint | None, str]:
        """Return the furthest checkpoint to which the snapshots add up; None and the reason if there is none."""
        ignored = ""
        furthest = sorted(self._checkpoints, key=lambda checkpoint: checkpoint.next_offset, reverse=True)
        for checkpoint in furthest[:CHECKPOINTS_TRIED]:
            problem = self._error(checkpoint)
            if not problem:
                return checkpoint, ""
            ignored = ignored or f"the checkpoint at {checkpoint.next_offset} is not usable: {problem}"
        return None, ignored or self._problem

    def _error(self, checkpoint: PartitionCheckpoint) -> str:
        """Return why the checkpoint cannot be used; empty if it can."""
        if checkpoint.reducer_version != self._reducer_version:
            return f"made by fold version {checkpoint.reducer_version}, this is {self._reducer_version}"
        for name, version in self._other_versions.items():
            return f"the snapshot of {name} was made by fold version {version}, this is {self._reducer_version}"
        tokens = [token for token in self._tokens_at(checkpoint.next_offset).values() if token]
        count, total = len(tokens), sum(map(int.from_bytes, tokens))
        if (count, total % SUM_MODULUS) == (checkpoint.live_runs, int.from_bytes(checkpoint.tokens_sum)):
            return ""
        return (
            f"the {count} snapshots that are there are not the {checkpoint.live_runs} it was made of"
            if count == checkpoint.live_runs
            else f"{checkpoint.live_runs} snapshots belong to it, {count} are there"
        )


def _token(snapshot: RunSnapshot) -> bytes:
    return snapshot_token(snapshot.run_id, snapshot.seq, snapshot.state_sha256)


def _base(snapshot: RunSnapshot, offset: int) -> SnapshotBase:
    """Return the start of the fold of a run. `state` is a Resting, the bytes of the state, or None if it has none."""
    state: Any = snapshot.state or None
    if snapshot.rests:
        state = shared_resting(snapshot.session_id, snapshot.agent_id, snapshot.agent, snapshot.wide_pauses)
    return SnapshotBase(
        state=state,
        seq=snapshot.seq,
        digest=snapshot.tail_digest,
        key=snapshot.key,
        tenant=intern(snapshot.tenant),
        first_offset=snapshot.first_offset,
        last_offset=snapshot.last_offset,
        sha256=snapshot.state_sha256 if type(state) is bytes else "",
        token=_token(snapshot),
        offset=offset,
        timer_at_ms=snapshot.timer_at_ms,
    )


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
