"""Rebuild: projects from offset 0 into a new build, compares it with the live one, then switches to it.

    fill      project up to the live build's position, repeated until the new build is close
    compare   hash the live tables in one snapshot, bring the new build to exactly that position, hash its tables
    switch    lock the live cursors, project the last events, replace all views, in one transaction

Nothing has to stop: readers see the live build until the views change; its projector waits during the last step only
and then moves to the new build by itself (it polls which build is live). The new build is never ahead of the live one,
so a position a reader waits for never goes back at the switch. The previous build is kept, older ones are dropped.

A difference between two builds of one version means a bug or a damaged table: nothing is switched, and the new build
stays for inspection until the next rebuild. Builds of different versions may differ; the report names the tables.

A rebuild of some families of entities (decision 33) fills a build with their rows alone, and instead of the views it
changes the rows of these families in the live build, in that last transaction: readers see all old rows or all new
ones, and the rows of other families are not touched.

A topic whose first events are deleted is not rebuilt (carried_rows.py).

Before: the CLI, or a projector that finds a build of another version. After: builds.py.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import psycopg

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.protocols import LogRecord, LogTail
from loomlog.connectors.storage.postgres import translate_errors
from loomlog.projections.engine.builds import Build, Builds, TableHash
from loomlog.projections.engine.carried_rows import require_whole_log
from loomlog.projections.engine.projection import Projection
from loomlog.projections.engine.read_models import ReadModel, RunModel
from loomlog.projections.erasures import delete_erased
from loomlog.schemas.codec import Codec

POLL_RECORDS = 5_000
"""Records of one transaction: where COPY is at its best, and some tens of megabytes at most."""
POLL_TIMEOUT_S = 1.0
CLOSE_EVENTS = 2_000
"""Close enough to compare and to switch: a tenth of a second of work while the live projector waits."""
ROUNDS_MAX = 50
"""Attempts to come close; a live projector that is faster than the rebuild is held up at the switch."""
PROGRESS_EVERY_S = 0.5
STALLED_S = 60.0
"""Longest wait for a record that must exist; then the broker is considered away."""

Connect = Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]
Fill = Callable[[Build, Mapping[int, int]], Awaitable[int]]
"""Brings a new build to an offset per partition, possibly with several processes; returns the number of events."""
FILL_EVENTS = 50_000
"""Length of a log from which `fill` is used: fewer events are not worth the second its processes take to start."""


class ProjectionTail(LogTail, Protocol):
    """A LogTail whose partitions can be paused, because some reach their target before the others."""

    async def beginning_offsets(self) -> Mapping[int, int]:
        """Return the offset of the first remaining record of each partition. Raises Transient."""
        ...

    def pause(self, partitions: Sequence[int]) -> None: ...
    def resume(self, partitions: Sequence[int]) -> None: ...


OpenTail = Callable[[Mapping[int, int]], Awaitable[ProjectionTail]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildProgress:
    """Progress of a rebuild. `remaining` counts records up to the live build."""

    events: int
    remaining: int
    events_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildReport:
    """Result of a rebuild. `tables` has the hashes of both builds at one position, the live one's first."""

    build: int
    """The new build; of a rebuild of families, the one that held their rows meanwhile."""
    replaced: int
    switched: bool
    equal: bool
    tables: Mapping[str, tuple[TableHash, TableHash]]
    events: int
    seconds: float
    dropped: Sequence[int]
    families: frozenset[str] | None = None
    """Families whose rows were rebuilt in the live build; None: all tables were."""


async def rebuild(
    connect: Connect,
    open_tail: OpenTail,
    topic: str,
    partitions: int,
    *,
    owner: str,
    model: ReadModel | None = None,
    families: frozenset[str] | None = None,
    prefix: str = "",
    require_equal: bool | None = None,
    codec: Codec | None = None,
    on_progress: Callable[[RebuildProgress], None] | None = None,
    fill: Fill | None = None,
) -> RebuildReport:
    """Rebuilds a read model, by default that of runs, and switches to the new build; with `families`, their rows alone.

    `fill`, if given, projects most of a long log, unless families are given. `prefix` is that of the tables by default.
    `require_equal` decides whether a difference to the live build forbids the switch; by default it does when both
    builds are of one version, and no family is outdated. Raises Transient, also when another rebuild is under way or
    events are deleted, or Permanent.
    """
    model = model or RunModel()
    if not model.tables.is_log_kept:
        require_whole_log(topic, await first_offsets(open_tail, partitions))
    async with translate_errors("rebuild the projections"), await connect() as control, await connect() as writing:
        builds = Builds(control, prefix, model.tables)
        await builds.prepare()
        if not await builds.reserve_rebuild():
            raise Transient("another rebuild of the projections is under way: wait for it", kind="unavailable")
        live = await builds.live()
        if live.version != model.tables.version:
            if families is not None:
                raise Permanent(
                    f"the tables are of version {live.version}, this process makes version {model.tables.version}: "
                    "rebuild all of them, not a family",
                    kind="invalid",
                )
            require_equal = bool(require_equal)
        else:
            outdated = await model.outdated(control, builds.build(live.number))
            if require_equal is None:
                require_equal = not outdated & (families or outdated)
        build = await builds.make()
        began = time.monotonic()
        filled = 0
        if fill is not None and families is None:
            target = await builds.positions(live.number, topic)
            if sum(target.values()) >= FILL_EVENTS:
                filled = await _report_fill(fill(build, target), builds, build, topic, target, on_progress)
        projection = model.projection(writing, build, topic, owner=owner, codec=codec, families=families)
        tail = await open_tail(await projection.claim(range(partitions)))
        try:
            attempt = _Rebuild(
                control, builds, live.number, build, projection, tail, on_progress, began, filled, families
            )
            return await attempt.run(require_equal)
        finally:
            await tail.close()


async def first_offsets(open_tail: OpenTail, partitions: int) -> Mapping[int, int]:
    """Return the offset of the first remaining record of each partition. Raises Transient."""
    tail = await open_tail(dict.fromkeys(range(partitions), 0))
    try:
        return await tail.beginning_offsets()
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
        projection: Projection[Any],
        tail: ProjectionTail,
        on_progress: Callable[[RebuildProgress], None] | None,
        began: float,
        filled: int,
        families: frozenset[str] | None,
    ) -> None:
        self._control, self._builds, self._live, self._build = control, builds, live, build
        self._projection, self._tail, self._on_progress = projection, tail, on_progress
        self._events = filled
        self._families = families
        self._began = began

    async def run(self, require_equal: bool) -> RebuildReport:
        await self._fill()
        tables = await self._compare()
        equal = all(live == new for live, new in tables.values())
        switched = equal or not require_equal
        dropped: Sequence[int] = ()
        if switched:
            await self._switch()
            if self._families is not None:
                await self._builds.drop(self._build)
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
            families=self._families,
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
            now_ms = int(time.time() * 1000)
            live = await self._builds.table_hashes(self._live, self._families, expired_before_ms=now_ms)
        await self._follow_to(target)
        await self._delete_erased()
        new = await self._builds.table_hashes(self._build.number, self._families, expired_before_ms=now_ms)
        return {name: (live[name], new[name]) for name in live}

    async def _switch(self) -> None:
        async with self._control.transaction():
            target = await self._builds.positions(self._live, self._projection.topic, lock=True)
            await self._follow_to(target)
            await self._delete_erased()
            if self._families is None:
                await self._builds.switch(self._build)
            else:
                await self._builds.move_families(self._build, self._families, self._projection.topic)

    async def _delete_erased(self) -> None:
        """Delete again what was erased: the log has its events."""
        await delete_erased(self._control, self._build.schema, self._build.prefix)

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
    projection: Projection[Any],
    tail: ProjectionTail,
    target: Mapping[int, int],
    *,
    on_events: Callable[[int], None] = lambda events: None,
) -> int:
    """Projects exactly up to the target; returns the number of events. Raises Transient when no record comes."""
    tail.resume(list(projection.positions))
    clock = asyncio.get_running_loop().time
    progressed_at = clock()
    events = 0
    while (behind := records_behind(projection, target)) > 0:
        _pause_arrived(projection, tail, target)
        polled = await tail.poll(timeout_s=POLL_TIMEOUT_S, max_records=POLL_RECORDS)
        batch = {partition: _records_before(records, target.get(partition, 0)) for partition, records in polled.items()}
        applied = await projection.apply({p: records for p, records in batch.items() if records})
        events += applied.events
        if any(batch.values()):
            progressed_at = clock()
            on_events(applied.events)
        elif clock() - progressed_at > STALLED_S:
            raise Transient(
                f"rebuild: no record came for {STALLED_S:g} s, but {behind} are missing up to the live build; "
                "is the broker there?",
                kind="unavailable",
            )
    _pause_arrived(projection, tail, target)
    return events


def records_behind(projection: Projection[Any], target: Mapping[int, int]) -> int:
    """Number of records missing up to the target."""
    reached = projection.positions
    return sum(max(0, offset - reached.get(partition, 0)) for partition, offset in target.items())


def _pause_arrived(projection: Projection[Any], tail: ProjectionTail, target: Mapping[int, int]) -> None:
    """Pauses partitions that have reached their target and seeks them to where they resume."""
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
    """Awaits a fill and returns its result; meanwhile reports progress from the cursors of its build."""
    began, total = time.monotonic(), sum(target.values())
    fill = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({fill}, timeout=PROGRESS_EVERY_S))[0]:
            done = sum((await builds.positions(build.number, topic)).values())
            if on_progress is not None:
                rate = done / (time.monotonic() - began)
                on_progress(RebuildProgress(events=done, remaining=max(0, total - done), events_per_s=rate))
        return fill.result()
    finally:
        fill.cancel()


def _records_before(records: Sequence[LogRecord], offset: int) -> Sequence[LogRecord]:
    if not records or records[-1].offset < offset:
        return records
    return [record for record in records if record.offset < offset]
