"""The handlers of the operations on schedules.

Before: services.py. After: arming.py says which schedules there are, shown.py how they look.
"""

from collections.abc import Callable
from typing import Any

import orjson

from loomlog.connectors.configuration.schedule_block import ScheduleBlock
from loomlog.connectors.definitions.problems import DefinitionProblem
from loomlog.connectors.definitions.schedule import SCHEDULE
from loomlog.projections.entity_items import ItemRow
from loomlog.projections.tables import InvalidPageToken
from loomlog.schemas.generated.schedule_commands import PauseSchedule, ResumeSchedule, RunScheduleNow
from loomlog.schemas.generated.schedule_events import ScheduleFired
from loomlog.schemas.generated.values import ScheduleSpec
from loomlog.schemas.position import Position
from loomlog.schemas.records import replace
from loomlog.services.core.families import aggregate_id
from loomlog.services.core.operations import Answer, Call, Handlers, OperationCaller
from loomlog.services.core.refusals import Refused
from loomlog.services.core.times import parse_time_ms
from loomlog.services.families.definition.state import Line
from loomlog.services.families.definition.table import SHARED, FileDefinition
from loomlog.services.families.operation import Decrypt, command_owner, read_rows
from loomlog.services.families.schedule import api, shown
from loomlog.services.families.schedule.arming import KIND, ActiveSchedules, times_of
from loomlog.services.families.schedule.instants import Range, spec_problem
from loomlog.services.families.schedule.items import FIRE_ITEM
from loomlog.services.families.schedule.state import FAMILY_NAME, Schedule
from loomlog.services.stream.entities.answers import Answer as OwnerAnswer
from loomlog.services.stream.entities.answers import EntityCommands
from loomlog.services.stream.entities.reads import EntityReads

PAGE = 500
"""Schedules of one read."""
NEXT_TICK = "next-tick"
"""What run-now answers (parity: reference surfaces 1.9). Here it has fired when it is said."""
WAIT_S = 10.0
"""Enough for another process to take over the partition of a dead owner."""
BEHIND = "definitions_unavailable"

ScheduleCommand = RunScheduleNow | PauseSchedule | ResumeSchedule
Place = tuple[str, str]
"""Tenant and name of a schedule."""


class ScheduleHandlers:
    """One method for each operation. All raise Refused and Unavailable."""

    def __init__(
        self,
        active: ActiveSchedules,
        commands: EntityCommands,
        reads: EntityReads,
        *,
        decrypt: Decrypt,
        clock_ms: Callable[[], int],
    ) -> None:
        self._active = active
        self._commands = commands
        self._reads = reads
        self._decrypt = decrypt
        self._clock_ms = clock_ms

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {
            api.LIST_ALL: self.list_all,
            api.PREVIEW_TIMES: self.preview_times,
            api.STATE: self.state,
            api.PREVIEW: self.preview,
            api.LIST_FIRES: self.fires,
            api.RUN_NOW: self.run_now,
            api.PAUSE: self.pause,
            api.RESUME: self.resume,
        }

    # --- reading -----------------------------------------------------------------------------------------------------

    async def list_all(self, call: Call[api.ScheduleListAll]) -> Answer[api.ScheduleList]:
        """Return all schedules with their versions; those of files for administrators and the tenant they are of."""
        owner, table = call.caller.tenant, self._active.table
        files = {
            (self._active.options.file_tenants.get(name, ""), name): file
            for (kind, name), file in table.files.items()
            if kind == KIND
        }
        lines = {(line.tenant, line.name): line for one in table.tenants(KIND) for line in table.lines(KIND, one)}
        places = sorted(place for place in lines.keys() | files.keys() if not owner or place[0] == owner)
        in_force = await self._in_force({tenant for tenant, _ in places}) if call.input.with_state else {}
        entries = []
        for place in places:
            entry = self._entry(place, lines.get(place), files.get(place))
            schedule = in_force.get(place)
            if schedule is not None and schedule.def_id == entry.active_def_id:
                entry = replace(entry, state=shown.in_force(schedule, self._clock_ms()))
            entries.append(entry)
        return Answer(value=api.ScheduleList(entries=entries))

    async def _in_force(self, tenants: set[str]) -> dict[Place, Schedule]:
        """Return the armed schedules of tenants."""
        armed: dict[Place, Schedule] = {}
        for tenant in tenants:
            after, page = "", None
            while page is None or len(page) == PAGE:
                page = await read_rows(
                    self._reads.list(FAMILY_NAME, tenant, after=after, limit=PAGE), behind_code=BEHIND
                )
                armed |= {(tenant, row.name): row.entity.state for row in page if row.entity.state.is_armed}
                after = page[-1].name if page else ""
        return armed

    def _entry(self, place: Place, line: Line | None, file: FileDefinition | None) -> api.ScheduleEntry:
        if place[0] == SHARED and line is not None:
            active = line.version(self._active.table.active_number(line))
            active_id = line.id_of(active.number) if active is not None and not active.is_retired else ""
        else:
            resolved = self._active.resolve(*place) if place[0] != SHARED else None
            active_id = resolved.def_id if resolved is not None else ""
        return shown.entry(place, line, file, active_id)

    async def preview_times(self, call: Call[api.SchedulePreviewTimes]) -> Answer[api.ScheduleTimesPreview]:
        """Return the next instants of times that no schedule has yet."""
        spec = ScheduleSpec(times=call.input.times.strip(), timezone=call.input.timezone)
        if not spec.times:
            raise Refused("bad_request", "times: expected five fields of cron, @hourly or @every 90m")
        if problem := spec_problem(spec):
            raise Refused("bad_request", problem)
        now_ms = self._clock_ms()
        zone, instants = shown.next_instants(spec, "", now_ms, now_ms, call.input.count)
        return Answer(value=api.ScheduleTimesPreview(times=spec.times, timezone=zone, instants=instants))

    async def state(self, call: Call[api.ScheduleVersion]) -> Answer[api.ScheduleState]:
        """Return how a schedule is: its last run, its next instant, its pause."""
        def_id = call.input.def_id
        schedule = await self._schedule(self._place(call.caller, def_id))
        if schedule is None or not schedule.is_armed or schedule.def_id != def_id:
            raise _not_found(def_id)
        return Answer(value=shown.state(schedule))

    async def preview(self, call: Call[api.SchedulePreviewVersion]) -> Answer[api.SchedulePreview]:
        """Return the next instants of a version, armed or not, in its zone and with their delays."""
        def_id = call.input.def_id
        tenant, name = self._place(call.caller, def_id)
        block = await self._block(def_id)
        schedule = await self._schedule((tenant, name))
        now_ms = self._clock_ms()
        anchor_ms, after_ms, passed = now_ms, now_ms, tuple[Range, ...]()
        if schedule is not None and schedule.is_armed and schedule.def_id == def_id:
            anchor_ms, after_ms, passed = schedule.armed_ms, max(now_ms, schedule.last_ms), schedule.passed
        spec = ScheduleSpec(times=times_of(block), timezone=block.timezone, jitter_ms=block.jitter_ms)
        aggregate = aggregate_id(FAMILY_NAME, tenant, name)
        zone, instants = shown.next_instants(spec, aggregate, anchor_ms, after_ms, call.input.count, passed)
        return Answer(
            value=api.SchedulePreview(def_id=def_id, name=name, times=spec.times, timezone=zone, instants=instants)
        )

    async def fires(self, call: Call[api.ScheduleListFires]) -> Answer[api.ScheduleFires]:
        """Return what a schedule has fired, newest first, of all its versions; those of 90 days."""
        tenant, name = self._place(call.caller, call.input.def_id)
        reading = self._reads.list_items(
            FAMILY_NAME,
            tenant,
            FIRE_ITEM,
            aggregate=aggregate_id(FAMILY_NAME, tenant, name),
            limit=call.input.limit,
            after=call.input.cursor,
        )
        try:
            page = await read_rows(reading, behind_code=BEHIND)
        except InvalidPageToken as error:
            raise Refused("bad_request", "cursor: expected `next` of an earlier answer") from error
        fires = [shown.fire(orjson.loads(row.document), self._position(row)) for row in page.rows]
        return Answer(value=api.ScheduleFires(def_id=call.input.def_id, name=name, fires=fires, next=page.next or None))

    def _position(self, row: ItemRow) -> str:
        """Return the position of the event that made a fire what it is: its start, or its end."""
        return str(Position(topic=self._reads.topic, partition=row.partition, offset=row.offset))

    # --- changing ----------------------------------------------------------------------------------------------------

    async def run_now(self, call: Call[api.ScheduleVersion]) -> Answer[api.ScheduleFiredNow]:
        """Fire at once."""
        answer = await self._command(call, RunScheduleNow)
        last = answer.events[-1]
        value = api.ScheduleFiredNow(def_id=call.input.def_id, scheduled=NEXT_TICK)
        if isinstance(last, ScheduleFired):
            value = replace(value, run_id=last.run_id)
        return Answer(value=value, positions=(answer.position,))

    async def pause(self, call: Call[api.SchedulePause]) -> Answer[api.SchedulePauseState]:
        """Let instants pass, until resumed or a time."""
        until = call.input.until
        answer = await self._command(call, PauseSchedule, until_ms=parse_time_ms("until", until) if until else 0)
        return Answer(value=api.SchedulePauseState(def_id=call.input.def_id, paused=True), positions=(answer.position,))

    async def resume(self, call: Call[api.ScheduleVersion]) -> Answer[api.SchedulePauseState]:
        """End a pause."""
        answer = await self._command(call, ResumeSchedule)
        return Answer(
            value=api.SchedulePauseState(def_id=call.input.def_id, paused=False), positions=(answer.position,)
        )

    async def _command(self, call: Call[Any], record: type[ScheduleCommand], **fields: Any) -> OwnerAnswer:
        tenant, name = self._place(call.caller, call.input.def_id)
        envelope = replace(call.envelope(), tenant=tenant)
        command = record(envelope=envelope, name=name, def_id=call.input.def_id, **fields)
        try:
            return await command_owner(self._commands, command, call, wait_s=WAIT_S, decrypt=self._decrypt)
        except Refused as refused:
            if refused.details.get("refusal") == "invalid_request":
                raise Refused("bad_request", refused.message) from refused
            raise

    # --- finding -----------------------------------------------------------------------------------------------------

    def _place(self, caller: OperationCaller, def_id: str) -> Place:
        place = self._active.place_of(def_id)
        if place is None or (place[0] != caller.tenant and not caller.is_admin):
            raise _not_found(def_id)
        return place

    async def _schedule(self, place: Place) -> Schedule | None:
        row = await read_rows(self._reads.show(FAMILY_NAME, *place), behind_code=BEHIND)
        return None if row is None else row.entity.state

    async def _block(self, def_id: str) -> ScheduleBlock:
        table = self._active.table
        known, file = table.find(def_id), table.find_file(def_id)
        content = file.content if file is not None else None
        if content is None and known is not None:
            content = await read_rows(table.content(*known), behind_code=BEHIND)
        assert content is not None, "its place is known"
        try:
            block: ScheduleBlock = SCHEDULE.block_of(content)
        except DefinitionProblem as problem:
            raise Refused("not_found", f"the version {def_id[:80]} cannot be read: {problem}") from problem
        return block


def _not_found(def_id: str) -> Refused:
    return Refused("not_found", f"no active schedule has the version {def_id[:80]}")
