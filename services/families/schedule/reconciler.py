"""Schedules in a runtime process: the owner of a schedule keeps it as its definition says.

A change of a definition is armed by the process that made it; this is for what it could not do, for definitions of
files, and for batches. The owner of a partition compares all schedules in it with their definitions when it gets the
partition and when its clock was set back, and afterwards those whose definitions change. One whose next instant lies
beyond its times, because a clock that was ahead has decided, begins again.

Before: services.py. After: arming.py.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping

from loomlog.connectors.definitions.problems import DefinitionProblem
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.retries import until_answered
from loomlog.services.core.families import aggregate_id, aggregate_key
from loomlog.services.families.definition.state import Line
from loomlog.services.families.definition.table import NAME, SHARED
from loomlog.services.families.schedule import limits
from loomlog.services.families.schedule.arming import (
    DEFAULT_TENANT,
    KIND,
    ScheduleArming,
)
from loomlog.services.families.schedule.state import FAMILY_NAME, Schedule
from loomlog.services.stream.entities.answers import CommandInvalid, CommandUnanswered
from loomlog.services.stream.entities.cold import ColdRows
from loomlog.services.stream.entities.reads import EntityReads, PositionNotRead
from loomlog.services.stream.entities.replicas import Replicas

log = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0
"""How often is looked for partitions that were taken over."""
RETRY_S = 5.0
PAGE = 500
AT_ONCE = 50
"""Commands that wait for their owners at the same time."""
COMMANDS_MAX = 2
"""Commands that put a schedule right: one arms it as its definition says, and after a clock was ahead one lets it begin
again from now.
"""
ARMED_MAX = 20_000
"""Schedules of one partition that are compared with definitions that are gone; the timers of more are read later."""
FAR_MS = 1 << 60

Place = tuple[str, str]
"""Tenant and name of a schedule."""
OwnedTerms = Callable[[], Mapping[int, int]]
"""Returns the entity partitions that this process owns, and its term in each."""


class ScheduleReconciler:
    """Keeps the schedules of the owned partitions as their definitions say."""

    def __init__(
        self,
        arming: ScheduleArming,
        replicas: Replicas,
        reads: EntityReads,
        rows: ColdRows,
        *,
        owned_terms: OwnedTerms,
        clock_ms: Callable[[], int],
    ) -> None:
        self._owned_terms = owned_terms
        self._clock_ms = clock_ms
        self._clock_lead_ms = self._read_clock_lead()
        self._arming = arming
        self._active = arming.active
        self._replicas = replicas
        self._reads = reads
        self._rows = rows
        self._changed: set[Place] = set()
        self._checked: dict[int, int] = {}
        """Partitions that were compared as a whole, and the term of that."""
        self._wakeup = asyncio.Event()
        replicas.on_fold(NAME, self._note)

    def _note(self, aggregate: str) -> None:
        line = self._replicas.state(aggregate)
        if isinstance(line, Line) and line.kind == KIND:
            self._changed.add((line.tenant if line.tenant != SHARED else DEFAULT_TENANT, line.name))
            self._wakeup.set()

    async def run(self) -> None:
        """Reconcile until cancelled."""
        while True:
            await until_answered(
                self.step,
                "comparing schedules with definitions",
                failures=(ConnectorError, PositionNotRead),
                retry_s=RETRY_S,
            )
            try:
                async with asyncio.timeout(CHECK_EVERY_S):
                    await self._wakeup.wait()
            except TimeoutError:
                continue

    def _read_clock_lead(self) -> float:
        """Return the time of the clock without what passes by itself: it changes when the clock is set."""
        return self._clock_ms() - time.monotonic() * 1000

    def _forget_if_set_back(self) -> None:
        """Compare all schedules again when the clock was set back: it was ahead, and may have decided."""
        lead_ms = self._read_clock_lead()
        if lead_ms < self._clock_lead_ms - limits.AHEAD_MS:
            self._checked.clear()
        self._clock_lead_ms = lead_ms

    async def step(self) -> None:
        """Do what there is to do now. Raises ConnectorError, PositionNotRead."""
        self._wakeup.clear()
        self._forget_if_set_back()
        owned = dict(self._owned_terms())
        self._checked = {number: term for number, term in self._checked.items() if owned.get(number) == term}
        fresh = owned.keys() - self._checked.keys()
        changed, self._changed = self._changed, set()
        try:
            if fresh:
                await self._check_whole(fresh)
                self._checked |= {number: owned[number] for number in fresh}
            places = [place for place in changed if self._partition(place) in owned.keys() - fresh]
            await self._settle([(place, None) for place in places])
        except BaseException:
            self._changed |= changed
            raise

    def _partition(self, place: Place) -> int:
        return partition_of(aggregate_key(aggregate_id(FAMILY_NAME, *place)), self._replicas.partitions)

    async def _check_whole(self, partitions: Collection[int]) -> None:
        """Compare all schedules of partitions with their definitions."""
        places = {place for place in self._active.places() if self._partition(place) in partitions}
        armed = await self._armed(partitions)
        tenants = {tenant for tenant, _ in places} | {tenant for tenant, _ in armed}
        known: dict[Place, Schedule] = {}
        for tenant in sorted(tenants):
            known |= {place: one for place, one in (await self._read(tenant)).items() if place in places | armed}
        await self._settle([(place, known.get(place)) for place in sorted(places | armed)])

    async def _armed(self, partitions: Collection[int]) -> set[Place]:
        """Return the schedules with a timer, also those whose definitions are gone."""
        places = set()
        for number in partitions:
            for name, _ in await self._rows.due_timers(number, FAR_MS, ARMED_MAX):
                family, _, place = name.partition(":")
                if family == FAMILY_NAME:
                    tenant, _, schedule = place.partition("/")
                    places.add((tenant, schedule))
        return places

    async def _read(self, tenant: str) -> dict[Place, Schedule]:
        schedules: dict[Place, Schedule] = {}
        after = ""
        while True:
            page = await self._reads.list(FAMILY_NAME, tenant, after=after, limit=PAGE)
            schedules |= {(tenant, row.name): row.entity.state for row in page}
            if len(page) < PAGE:
                return schedules
            after = page[-1].name

    async def _settle(self, places: Collection[tuple[Place, Schedule | None]]) -> None:
        room = asyncio.Semaphore(AT_ONCE)

        async def settle(place: Place, known: Schedule | None) -> None:
            async with room:
                try:
                    await self._settle_one(place, known)
                except (DefinitionProblem, CommandInvalid) as problem:
                    log.error("the schedule %s of %s cannot be armed: %s", place[1], place[0], problem)
                except (CommandUnanswered, ConnectorError, PositionNotRead) as error:
                    log.warning("the schedule %s of %s is armed later: %s", place[1], place[0], error)
                    self._changed.add(place)

        async with asyncio.TaskGroup() as group:
            for place, known in places:
                group.create_task(settle(place, known))

    async def _settle_one(self, place: Place, known: Schedule | None) -> None:
        for _ in range(COMMANDS_MAX):
            if known is None:
                row = await self._reads.local(FAMILY_NAME, *place)
                known = None if row is None else row.entity.state
            command = await self._arming.command_for(*place, known)
            if command is None:
                return
            await self._arming.ask(command)
            known = None
