"""Projector loop: polls, projects and reports status; it outlives failures of broker and Postgres.

    session      connect, wait until no other projector is active, claim, open the tail, follow it
    follow       poll -> one transaction -> poll ...; every two seconds write the status and check which build is live

A lost broker, a lost Postgres and a fence end the session, never the process: the next session starts after a backoff,
from the cursors. If its build was dropped meanwhile (the projector slept through two rebuilds), it moves to the live
build; that is not a failure. Any other error (a bug, a wrong password) ends the process; there is no second task that
could die unnoticed. A stop finishes the transaction under way.

Two projectors are safe: the second to claim fences the first (projections/engine/cursors.py). So that two replicas do
not fence each other in turn, one waits for a Postgres lock that is free as soon as the other's connection is closed.

A build of an older version is rebuilt before anything is written; readers keep the old rows until the switch. The rows
of a family of entities that another version of its fold has made are rebuilt in the same way, and no others. Where the
first events are deleted they are taken over instead (projections/engine/carried_rows.py).

Before: main.py builds it. After: pace.py, projections/engine/projection.py.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import psycopg

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.process.sessions import run_sessions, wait_for_stop
from loomlog.connectors.storage.postgres import translate_errors
from loomlog.projections.engine.builds import Build, Builds, StatusRow
from loomlog.projections.engine.cursors import BuildNotFound, Fenced
from loomlog.projections.engine.projection import ApplyResult, Projection
from loomlog.projections.engine.read_models import ReadModel, RunModel
from loomlog.projections.engine.rebuild import (
    Connect,
    Fill,
    OpenTail,
    ProjectionTail,
    RebuildReport,
    first_offsets,
    rebuild,
)
from loomlog.schemas.codec import Codec
from loomlog.services.projector.pace import Pace
from loomlog.services.projector.settings import ProjectorSettings

log = logging.getLogger("loomlog.projector")

STATUS_EVERY_S = 2.0
"""Interval of writing the status, checking which build is live, and requesting the end offsets."""
STANDBY_POLL_S = 0.5
"""How often a standby tries the lock: the longest delay of a takeover."""
PROBLEMS_LOGGED = 5
"""Problems of one poll that are logged one by one; all of them are in the table."""


class Projector:
    """Projects one topic. `connect`, `open_tail` and `count_partitions` raise Transient when broker or Postgres is
    away."""

    def __init__(
        self,
        settings: ProjectorSettings,
        *,
        connect: Connect,
        open_tail: OpenTail,
        count_partitions: Callable[[], Awaitable[int]],
        model: ReadModel | None = None,
        codec: Codec | None = None,
        fill: Fill | None = None,
    ) -> None:
        """`model`: what the topic is projected into, by default the read model of runs."""
        self._settings = settings
        self._model = model or RunModel()
        self._fill = fill
        self._connect = connect
        self._open_tail = open_tail
        self._count_partitions = count_partitions
        self._codec = codec
        self._state = "starting"
        self._build = 0
        self._events = self._stale = self._problems = self._sessions = self._fenced = 0
        self._behind = 0
        self._lag_ms = self._worst_lag_ms = 0

    @property
    def metrics(self) -> dict[str, int | str]:
        """State and counters of this process."""
        return {
            "state": self._state,
            "build": self._build,
            "events": self._events,
            "events_behind": self._behind,
            "lag_ms": self._lag_ms,
            "stale_records": self._stale,
            "problems": self._problems,
            "sessions": self._sessions,
            "fenced": self._fenced,
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop`. Raises Permanent, and any unexpected error."""
        await run_sessions(
            self._session,
            stop,
            log,
            progress=lambda: self._events,
            failures=(Transient, Fenced),
            on_failure=self._note_failure,
        )
        self._state = "stopped"

    def _note_failure(self, failure: Transient | Fenced) -> None:
        if isinstance(failure, Fenced):
            self._state = "fenced"
            self._fenced += 1
        else:
            self._state = "waiting for broker or Postgres"

    async def _session(self, stop: asyncio.Event) -> None:
        """Runs until a failure, a switch of builds, or the stop."""
        self._sessions += 1
        settings = self._settings
        async with await self._connect() as connection, _translate_errors(settings):
            builds = Builds(connection, settings.prefix, self._model.tables)
            await builds.prepare()
            if not await self._wait_for_turn(builds, stop):
                return
            partitions = await self._count_partitions()
            if partitions == 0:
                raise Transient(f"topic {settings.topic} does not exist yet", kind="unavailable")
            live = await builds.live()
            build = builds.build(live.number)
            if await self._upgrade(connection, live.version, build, partitions, stop):
                return
            projection = self._model.projection(
                connection, build, settings.topic, owner=settings.owner, codec=self._codec
            )
            tail = await self._open_tail(await projection.claim(range(partitions)))
            try:
                log.info("projecting %s, %d partitions, into %s", settings.topic, partitions, build.schema)
                await self._follow(projection, tail, builds, build, stop)
            finally:
                await tail.close()

    async def _wait_for_turn(self, builds: Builds, stop: asyncio.Event) -> bool:
        self._state = "standing by"
        while not stop.is_set():
            if await builds.reserve_projecting(self._settings.topic):
                return True
            await wait_for_stop(stop, STANDBY_POLL_S)
        return False

    async def _follow(
        self, projection: Projection[Any], tail: ProjectionTail, builds: Builds, build: Build, stop: asyncio.Event
    ) -> None:
        settings = self._settings
        self._state, self._build = "projecting", build.number
        next_status_at = 0.0
        pace = Pace(settings.rest_max_s)
        while not stop.is_set():
            polled = await tail.poll(timeout_s=settings.poll_timeout_s, max_records=settings.max_records)
            if polled:
                began = time.monotonic()
                try:
                    self._count(await projection.apply(polled))
                except BuildNotFound as error:
                    if (await builds.live()).number == build.number:
                        raise Permanent(f"{error}, and it is the live one: rebuild", kind="invalid") from error
                    log.info("%s is gone, moving to the live build", build.schema)
                    return
                records = sum(map(len, polled.values()))
                rest_s = pace.rest_s(records, began, time.monotonic())
                if records < settings.max_records:
                    await asyncio.sleep(rest_s)
            if time.monotonic() >= next_status_at:
                await self._write_status(projection, tail, builds)
                next_status_at = time.monotonic() + STATUS_EVERY_S
                if (await builds.live()).number != build.number:
                    log.info("another build is live now, moving to it")
                    return

    def _count(self, applied: ApplyResult) -> None:
        self._events += applied.events
        self._stale += applied.stale
        self._problems += len(applied.problems)
        if applied.oldest_ms:
            self._lag_ms = max(0, int(time.time() * 1000) - applied.oldest_ms)
            self._worst_lag_ms = max(self._worst_lag_ms, self._lag_ms)
        for problem in applied.problems[:PROBLEMS_LOGGED]:
            position = f"{problem.topic} partition {problem.partition} offset {problem.offset}"
            log.warning("%s could not be projected: %s: %s", position, problem.kind, problem.error)
        if applied.problems:
            log.warning(
                "%d records could not be projected; `loomlog projections problems` lists them; rebuild after a fix",
                len(applied.problems),
            )

    async def _write_status(self, projection: Projection[Any], tail: ProjectionTail, builds: Builds) -> None:
        try:
            ends = await tail.end_offsets()
        except Transient:
            self._state = "waiting for the broker"
            await builds.write_status(self._status())
            raise
        reached = projection.positions
        self._behind = sum(max(0, end - reached.get(partition, 0)) for partition, end in ends.items())
        self._state = "projecting"
        await builds.write_status(self._status())
        self._worst_lag_ms = 0

    def _status(self) -> StatusRow:
        return StatusRow(
            topic=self._settings.topic,
            owner=self._settings.owner,
            build=self._build,
            state=self._state,
            events_behind=self._behind,
            lag_ms=self._worst_lag_ms,
            applied_events=self._events,
            stale_records=self._stale,
            problems=self._problems,
            at=None,
        )

    async def _upgrade(
        self,
        connection: psycopg.AsyncConnection[Any],
        version: int,
        build: Build,
        partitions: int,
        stop: asyncio.Event,
    ) -> bool:
        """Rebuilds what another version has made; whether anything was."""
        current = self._model.tables.version
        if version > current:
            raise Transient(
                f"the live projections are of version {version}, this projector writes version {current}: it is older "
                "and writes nothing; upgrade it",
                kind="unavailable",
            )
        if version < current:
            log.info("the live projections are of version %d, rebuilding them as version %d", version, current)
            await self._rebuild_until(stop, partitions)
            return True
        families = await self._model.outdated(connection, build)
        if not families:
            return False
        names = ", ".join(sorted(families))
        if not self._model.tables.is_log_kept and any((await first_offsets(self._open_tail, partitions)).values()):
            carried = await self._model.carry_rows(connection, build, self._settings.topic, families)
            log.info("%d rows of %s were taken over: the first events of their log are deleted", carried, names)
            return True
        log.info("the rows of these families were made by another fold, rebuilding them: %s", names)
        await self._rebuild_until(stop, partitions, families=families)
        return True

    async def _rebuild_until(self, stop: asyncio.Event, partitions: int, **options: Any) -> None:
        self._state = "rebuilding"
        rebuilding = asyncio.create_task(self.rebuild(partitions, **options))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({rebuilding, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not rebuilding.done():
            rebuilding.cancel()
            await asyncio.wait({rebuilding})
            return
        report = rebuilding.result()
        log.info("rebuilt %d events in %.1f s, by build %d", report.events, report.seconds, report.build)

    async def rebuild(self, partitions: int, **options: Any) -> RebuildReport:
        """Rebuilds the projections and switches to the new build; see loomlog.projections.engine.rebuild."""
        settings = self._settings
        return await rebuild(
            self._connect,
            self._open_tail,
            settings.topic,
            partitions,
            owner=settings.owner,
            model=self._model,
            prefix=settings.prefix,
            codec=self._codec,
            fill=self._fill,
            **options,
        )


def _translate_errors(settings: ProjectorSettings) -> AbstractAsyncContextManager[None]:
    return translate_errors(f"project {settings.topic} into Postgres at {settings.postgres.address}")
