"""Definitions over a log in memory, and schedules as their rules decide them: a process with both."""

from collections.abc import Sequence
from typing import Any

from loomlog.projections.entity_items import ItemPage
from loomlog.schemas.generated.schedule_commands import NoteRunEnded
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.families.schedule import FAMILY
from loomlog.services.families.schedule.state import Schedule
from loomlog.services.stream.entities.answers import Answer
from loomlog.services.stream.entities.reads import EntityRow
from tests.services.entities import MemoryEntities
from tests.services.log_entities import LogEntities

RECORDS = frozenset(row.record for row in FAMILY.commands)


class ScheduleEntities(LogEntities):
    """EntityCommands and EntityReads of definitions and schedules. `schedules` has the latter."""

    def __init__(self) -> None:
        super().__init__()
        self.schedules = MemoryEntities(FAMILY)

    async def ask(self, command: Any, *, wait_s: float) -> Answer:
        if type(command) in RECORDS:
            return await self.schedules.ask(command, wait_s=wait_s)
        return await super().ask(command, wait_s=wait_s)

    async def show(self, family: str, tenant: str, name: str, *, positions: Sequence[str] = ()) -> EntityRow | None:
        return await self.schedules.show(family, tenant, name)

    async def local(self, family: str, tenant: str, name: str, *, positions: Sequence[str] = ()) -> EntityRow | None:
        return await self.schedules.local(family, tenant, name)

    async def list(
        self, family: str, tenant: str, *, prefix: str = "", after: str = "", limit: int, positions: Sequence[str] = ()
    ) -> Sequence[EntityRow]:
        return await self.schedules.list(family, tenant, prefix=prefix, after=after, limit=limit)

    async def list_items(
        self, family: str, tenant: str, kind: str, *, positions: Sequence[str] = (), **more: Any
    ) -> ItemPage:
        if family == FAMILY.name:
            return await self.schedules.list_items(family, tenant, kind, **more)
        return await super().list_items(family, tenant, kind, positions=positions, **more)

    def state(self, tenant: str, name: str) -> Schedule:
        """Return a schedule as it is."""
        state: Schedule = self.schedules.entities[tenant, name].state
        return state

    async def end(self, tenant: str, name: str, status: str = "completed", code: str = "", message: str = "") -> None:
        """Tell a schedule the end of the run that works."""
        run_id = self.state(tenant, name).running[0].run_id
        envelope = CommandEnvelope(command_id=f"{run_id}:ended", tenant=tenant)
        ended = NoteRunEnded(envelope=envelope, name=name, run_id=run_id, status=status, code=code, message=message)
        await self.ask(ended, wait_s=1.0)
