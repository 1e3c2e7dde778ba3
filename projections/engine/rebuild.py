"""Rebuild: the projections once more from offset 0, beside the live ones, compared with them, then switched to.

    fill      the new build up to where the live one is, again and again until it is close
    compare   hashes of the live tables in one snapshot, the new build brought to exactly that position, its hashes
    switch    the live cursors held still for a moment, the last events, all views replaced in one transaction

Nobody has to stop: readers see the live build until the views change, its projector waits for the last step only and
then moves to the new build by itself (it looks which build is live). The new build is never ahead of the live one, so a
position a reader waits for never goes back at the switch. The build before is kept, older ones are dropped.

Two builds of one version that differ mean a bug or a damaged table: nothing is switched, and the new build stays for
inspection until the next rebuild. Builds of different versions may differ; what differs is reported.

Before: the CLI, or a projector that finds a build of another version. After: builds.py.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import psycopg

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import LogRecord, LogTail
from loomlog.connectors.storage.postgres import translate_errors
from loomlog.projections.engine.builds import PREFIX, VERSION, Build, Builds, TableHash
from loomlog.projections.engine.run_projection import RunProjection
from loomlog.schemas.codec import Codec

POLL_RECORDS = 5_000
"""Records of one transaction: where COPY is at its best, and some tens of megabytes at most."""
POLL_TIMEOUT_S = 1.0
CLOSE_EVENTS = 2_000
"""Near enough to compare and to switch: a tenth of a second of work while the live projector waits."""
ROUNDS_MAX = 50
"""Attempts to come close; a live projector that runs away faster than we follow will be waited for at the switch."""
PROGRESS_EVERY_S = 0.5
STALLED_S = 60.0
"""No record for this long although some must be there: the broker is away."""

Connect = Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]
Fill = Callable[[Build, Mapping[int, int]], Awaitable[int]]
"""Brings a new build to a position by partition, several processes at once perhaps; gives the number of events."""
FILL_EVENTS = 50_000
"""Fewer are not worth the second that more processes take to start."""


class ProjectionTail(LogTail, Protocol):
    """A LogTail whose partitions can rest, because they have arrived before the others."""

    def pause(self, partitions: Sequence[int]) -> None: ...
    def resume(self, partitions: Sequence[int]) -> None: ...


OpenTail = Callable[[Mapping[int, int]], Awaitable[ProjectionTail]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildProgress:
    """How a rebuild is getting on. `remaining` counts records up to the live build."""

    events: int
    remaining: int
    events_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildReport:
    """What a rebuild did. `tables` has the hashes of both builds at one position, the live one's first."""

    build: int
    replaced: int
    switched: bool
    equal: bool
    tables: Mapping[str, tuple[TableHash, TableHash]]
    events: int
    seconds: float
    dropped: Sequence[int]


async def rebuild(
    connect: Connect,
    open_tail: OpenTail,
    topic: str,
    partitions: int,
    *,
    owner: str,
    prefix: str = PREFIX,
    require_equal: bool | None = None,
    codec: Codec | None = None,
    on_progress: Callable[[RebuildProgress], None] | None = None,
    fill: Fill | None = None,
) -> RebuildReport:
    """Builds the projections anew and switches to them. With `fill` a long log is first projected by that.

    `require_equal` decides whether a difference to the live build forbids the switch; left out, it does when both
    builds are of one version. Raises Transient, also when another rebuild is under way, or Permanent.
    """
    async with translate_errors("rebuild the projections"), await connect() as control, await connect() as writing:
        builds = Builds(control, prefix)
        await builds.prepare()
        if not await builds.reserve_rebuild():
            raise Transient("another rebuild of the projections is under way: wait for it", kind="unavailable")
        live = await builds.live()
        build = await builds.make()
        began = time.monotonic()
        filled = 0
        if fill is not None:
            target = await builds.positions(live.number, topic)
            if sum(target.values()) >= FILL_EVENTS:
                filled = await _report_fill(fill(build, target), builds, build, topic, target, on_progress)
        projection = RunProjection(writing, build, topic, owner=owner, codec=codec)
        tail = await open_tail(await projection.claim(range(partitions)))
        try:
            work = _Rebuild(control, builds, live.number, build, projection, tail, on_progress, began, filled)
            return await work.run(live.version == VERSION if require_equal is None else require_equal)
        finally:
            await tail.close()


class _Rebuild:
    """One rebuild under way."""

    def __init__(
        self,
        control: psycopg.AsyncConnection[Any],
        builds: Builds,
        live: int,
        build: Build,
        projection: RunProjection,
        tail: ProjectionTail,
        on_progress: Callable[[RebuildProgress], None] | None,
        began: float,
        filled: int,
    ) -> None:
        self._control, self._builds, self._live, self._build = control, builds, live, build
        self._projection, self._tail, self._on_progress = projection, tail, on_progress
        self._events = filled
        self._began = began

    async def run(self, require_equal: bool) -> RebuildReport:
        await self._fill()
        tables = await self._compare()
        equal = all(live == new for live, new in tables.values())
        switched = equal or not require_equal
        dropped: Sequence[int] = ()
        if switched:
            await self._switch()
            dropped = await self._builds.drop_unused()
        return RebuildReport(
            build=self._build.number,
            replaced=self._live,
            switched=switched,
            equal=equal,
            tables=tables,
            events=self._events,
            seconds=time.monotonic() - self._began,
            dropped=dropped,
        )

    async def _fill(self) -> None:
        for _ in range(ROUNDS_MAX):
            await self._follow_to(await self._live_positions())
            if self._records_behind(await self._live_positions()) <= CLOSE_EVENTS:
                return

    async def _compare(self) -> dict[str, tuple[TableHash, TableHash]]:
        async with self._control.transaction():
            await self._control.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            target = await self._live_positions()
            live = await self._builds.table_hashes(self._live)
        await self._follow_to(target)
        new = await self._builds.table_hashes(self._build.number)
        return {name: (live[name], new[name]) for name in live}

    async def _switch(self) -> None:
        async with self._control.transaction():
            target = await self._builds.positions(self._live, self._projection.topic, lock=True)
            await self._follow_to(target)
            await self._builds.switch(self._build)

    async def _live_positions(self) -> dict[int, int]:
        return await self._builds.positions(self._live, self._projection.topic)

    def _records_behind(self, target: Mapping[int, int]) -> int:
        return records_behind(self._projection, target)

    async def _follow_to(self, target: Mapping[int, int]) -> None:
        await project_to(self._projection, self._tail, target, on_events=lambda events: self._count(events, target))

    def _count(self, events: int, target: Mapping[int, int]) -> None:
        self._events += events
        self._report_progress(target)

    def _report_progress(self, target: Mapping[int, int]) -> None:
        if self._on_progress is not None:
            seconds = max(time.monotonic() - self._began, 0.001)
            self._on_progress(
                RebuildProgress(
                    events=self._events, remaining=self._records_behind(target), events_per_s=self._events / seconds
                )
            )


async def project_to(
    projection: RunProjection,
    tail: ProjectionTail,
    target: Mapping[int, int],
    *,
    on_events: Callable[[int], None] = lambda events: None,
) -> int:
    """Projects up to exactly the target and not one record more; the number of events. Raises Transient."""
    tail.resume(list(projection.positions))
    clock = asyncio.get_running_loop().time
    moved_at = clock()
    events = 0
    while (behind := records_behind(projection, target)) > 0:
        _pause_arrived(projection, tail, target)
        polled = await tail.poll(timeout_s=POLL_TIMEOUT_S, max_records=POLL_RECORDS)
        wanted = {
            partition: _records_before(records, target.get(partition, 0)) for partition, records in polled.items()
        }
        applied = await projection.apply({p: records for p, records in wanted.items() if records})
        events += applied.events
        if any(wanted.values()):
            moved_at = clock()
            on_events(applied.events)
        elif clock() - moved_at > STALLED_S:
            raise Transient(
                f"rebuild: no record came for {STALLED_S:g} s, but {behind} are missing up to the live build; "
                "is the broker there?",
                kind="unavailable",
            )
    _pause_arrived(projection, tail, target)
    return events


def records_behind(projection: RunProjection, target: Mapping[int, int]) -> int:
    """Records that are missing up to the target."""
    reached = projection.positions
    return sum(max(0, offset - reached.get(partition, 0)) for partition, offset in target.items())


def _pause_arrived(projection: RunProjection, tail: ProjectionTail, target: Mapping[int, int]) -> None:
    """Partitions that have arrived are read no further; where they go on later is set again."""
    for partition, reached in projection.positions.items():
        if reached >= target.get(partition, 0):
            tail.pause([partition])
            tail.seek(partition, reached)


async def _report_fill(
    work: Awaitable[int],
    builds: Builds,
    build: Build,
    topic: str,
    target: Mapping[int, int],
    on_progress: Callable[[RebuildProgress], None] | None,
) -> int:
    """The result of the filling; meanwhile its cursors tell how it is getting on."""
    began, total = time.monotonic(), sum(target.values())
    filling = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({filling}, timeout=PROGRESS_EVERY_S))[0]:
            done = sum((await builds.positions(build.number, topic)).values())
            if on_progress is not None:
                rate = done / (time.monotonic() - began)
                on_progress(RebuildProgress(events=done, remaining=max(0, total - done), events_per_s=rate))
        return filling.result()
    finally:
        filling.cancel()


def _records_before(records: Sequence[LogRecord], offset: int) -> Sequence[LogRecord]:
    if not records or records[-1].offset < offset:
        return records
    return [record for record in records if record.offset < offset]
