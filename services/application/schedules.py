"""Schedules for callers outside of runs: which there are, how they are, when they fire, and what operators do.

A schedule is named by the id of a version of its definition. The answers about how it is are those of the version that
is armed; any other, retired or another tenant's, is not found.

Before: services/api/schedule_endpoints.py. After: services/families/schedule, services/application/dispatch.py.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import orjson

from loomlog.connectors.configuration.schedule_block import ScheduleBlock
from loomlog.connectors.cron import parse_times
from loomlog.connectors.definitions.problems import DefinitionProblem
from loomlog.connectors.definitions.schedule import SCHEDULE
from loomlog.projections.entity_items import ItemRow
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.tables import InvalidPageToken
from loomlog.schemas.generated.schedule_commands import PauseSchedule, ResumeSchedule, RunScheduleNow
from loomlog.schemas.generated.values import ScheduleSpec
from loomlog.schemas.position import Position
from loomlog.services.application.authentication import require_member, require_scope
from loomlog.services.application.definitions import Definitions
from loomlog.services.application.dispatch import Dispatch, resolve_tenant
from loomlog.services.application.errors import bad_request
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import TENANT
from loomlog.services.core.entity_operations import command_operation
from loomlog.services.core.families import aggregate_id
from loomlog.services.core.refusals import Refused
from loomlog.services.families.definition.answers import format_time
from loomlog.services.families.definition.state import Line
from loomlog.services.families.definition.table import SHARED, FileDefinition
from loomlog.services.families.schedule import FAMILY
from loomlog.services.families.schedule.arming import KIND, ActiveSchedules, times_of
from loomlog.services.families.schedule.instants import Range, delay_ms, next_instant, spec_problem
from loomlog.services.families.schedule.items import FIRE_ITEM
from loomlog.services.families.schedule.state import FAMILY_NAME, Schedule, due_ms, is_beyond_rule
from loomlog.services.stream.entities.reads import EntityReads

FIRES_DEFAULT, FIRES_MAX = 50, 200
PREVIEW_DEFAULT, PREVIEW_MAX = 10, 100
OVERDUE_MS = 60_000
"""How late an instant is before the list says so: a takeover and a busy owner take seconds."""
PAGE = 500
"""Schedules of one read."""
NEXT_TICK = "next-tick"
"""What run-now answers (parity: reference surfaces 1.9). Here it has fired when it is said."""
_COMMANDS = {row.record: command_operation(FAMILY, row) for row in FAMILY.commands}
_TIMES = {"instant_ms": "instant", "last_ms": "last_instant", "fired_ms": "fired_at"}


class Schedules:
    """The use cases. All methods raise Refused; `tenant` empty is the caller's, of an administrator any."""

    def __init__(
        self,
        definitions: Definitions,
        active: ActiveSchedules,
        dispatch: Dispatch,
        reads: EntityReads,
        *,
        clock_ms: Callable[[], int],
    ) -> None:
        self._definitions = definitions
        self._active = active
        self._dispatch = dispatch
        self._reads = reads
        self._clock_ms = clock_ms

    # --- reading -----------------------------------------------------------------------------------------------------

    async def list_all(self, caller: Caller, *, tenant: str = "", with_state: bool = False) -> dict[str, Any]:
        """Return all schedules with their versions; those of files for administrators and the tenant they are of.

        `with_state`: those that are armed have a `state` too, with their agent and their times.
        """
        self._require(caller)
        owner = resolve_tenant(caller, tenant) if tenant or not caller.is_admin else ""
        table = self._active.table
        files = {
            (self._active.options.file_tenants.get(name, ""), name): file
            for (kind, name), file in table.files.items()
            if kind == KIND
        }
        lines = {(line.tenant, line.name): line for one in table.tenants(KIND) for line in table.lines(KIND, one)}
        places = sorted(place for place in lines.keys() | files.keys() if not owner or place[0] == owner)
        entries = [self._entry(place, lines.get(place), files.get(place)) for place in places]
        if with_state:
            armed = {owner: await self._armed_of(owner) for owner in {one for one, _ in places}}
            for entry in entries:
                schedule = armed[entry["tenant_id"]].get(entry["name"])
                if schedule is not None and schedule.def_id == entry["active_def_id"]:
                    entry["state"] = {**state_json(schedule), **_times_json(schedule, self._clock_ms())}
        return {"entries": entries}

    async def _armed_of(self, tenant: str) -> dict[str, Schedule]:
        """Return the armed schedules of a tenant by name."""
        armed, after = dict[str, Schedule](), ""
        while True:
            rows = await self._definitions.read(self._reads.list(FAMILY_NAME, tenant, after=after, limit=PAGE))
            states = {row.name: row.entity.state for row in rows}
            armed |= {name: state for name, state in states.items() if state.is_armed}
            if len(rows) < PAGE:
                return armed
            after = rows[-1].name

    def _entry(self, place: tuple[str, str], line: Line | None, file: FileDefinition | None) -> dict[str, Any]:
        resolved = self._active.resolve(*place) if place[0] != SHARED else None
        if place[0] == SHARED and line is not None:
            active = line.version(self._active.table.active_number(line))
            active_id = line.id_of(active.number) if active is not None and not active.is_retired else ""
        else:
            active_id = resolved.def_id if resolved is not None else ""
        updated_ms = max(line.promoted_at_ms, line.versions[-1].created_at_ms) if line is not None else 0
        entry: dict[str, Any] = {
            "name": place[1],
            "tenant_id": place[0],
            "source": "both" if line and file else "dynamic-only" if line else "static-only",
            "in_static": file is not None,
            "in_substrate": line is not None,
            "version_count": len(line.versions) if line is not None else 0,
            "active_def_id": active_id,
            "latest_version": len(line.versions) if line is not None else 0,
            "last_updated": format_time(updated_ms) if updated_ms else "",
        }
        return entry | ({"static_definition": dict(file.content)} if file is not None else {})

    async def state(self, caller: Caller, def_id: str) -> dict[str, Any]:
        """Return how a schedule is: its last run, its next instant, its pause."""
        schedule = await self._armed(caller, def_id)
        return state_json(schedule)

    async def preview(self, caller: Caller, def_id: str, *, count: int = PREVIEW_DEFAULT) -> dict[str, Any]:
        """Return the next instants of a version, armed or not, in its zone and with their delays."""
        tenant, name = self._place(caller, def_id)
        block = await self._block(def_id)
        state = await self._state(tenant, name)
        now_ms = self._clock_ms()
        anchor_ms, after_ms, passed = now_ms, now_ms, tuple[Range, ...]()
        if state is not None and state.is_armed and state.def_id == def_id:
            anchor_ms, after_ms, passed = state.armed_ms, max(now_ms, state.last_ms), state.passed
        spec = ScheduleSpec(times=times_of(block), timezone=block.timezone, jitter_ms=block.jitter_ms)
        shown = _preview_json(spec, aggregate_id(FAMILY_NAME, tenant, name), anchor_ms, after_ms, count, passed)
        return {"def_id": def_id, "name": name, **shown}

    def preview_times(
        self, caller: Caller, times: str, *, timezone: str = "", count: int = PREVIEW_DEFAULT
    ) -> dict[str, Any]:
        """Return the next instants of times that no schedule has yet."""
        self._require(caller)
        spec = ScheduleSpec(times=times.strip(), timezone=timezone)
        if (
            problem := spec_problem(spec)
            if spec.times
            else "times: expected five fields of cron, @hourly or @every 90m"
        ):
            raise bad_request(problem)
        now_ms = self._clock_ms()
        return _preview_json(spec, "", now_ms, now_ms, count)

    async def fires(
        self, caller: Caller, def_id: str, *, limit: int = FIRES_DEFAULT, cursor: str = ""
    ) -> dict[str, Any]:
        """Return what a schedule has fired, newest first, of all its versions; those of 90 days."""
        tenant, name = self._place(caller, def_id)
        try:
            page = await self._definitions.read(
                self._reads.list_items(
                    FAMILY_NAME,
                    tenant,
                    FIRE_ITEM,
                    aggregate=aggregate_id(FAMILY_NAME, tenant, name),
                    limit=limit,
                    after=cursor,
                )
            )
        except InvalidPageToken as error:
            raise bad_request("cursor: expected `next` of an earlier answer") from error
        fires = [fire_json(orjson.loads(row.document)) | {"position": self._position(row)} for row in page.rows]
        return {"def_id": def_id, "name": name, "fires": fires, "next": page.next or None}

    # --- changing ----------------------------------------------------------------------------------------------------

    async def run_now(self, caller: Caller, def_id: str) -> tuple[dict[str, Any], str]:
        """Fire at once; return the answer and the position of the event."""
        reply, position = await self._command(caller, def_id, RunScheduleNow)
        run = {"run_id": reply["run_id"]} if reply.get("run_id") else {}
        return {"def_id": def_id, "scheduled": NEXT_TICK, **run}, position

    async def pause(self, caller: Caller, def_id: str, *, until_ms: int = 0) -> tuple[dict[str, Any], str]:
        """Let instants pass, until resumed or a time."""
        _, position = await self._command(caller, def_id, PauseSchedule, until_ms=until_ms)
        return {"def_id": def_id, "paused": True}, position

    async def resume(self, caller: Caller, def_id: str) -> tuple[dict[str, Any], str]:
        """End a pause."""
        _, position = await self._command(caller, def_id, ResumeSchedule)
        return {"def_id": def_id, "paused": False}, position

    async def _command(
        self, caller: Caller, def_id: str, record: type[Any], **fields: Any
    ) -> tuple[dict[str, Any], str]:
        tenant, name = self._place(caller, def_id)
        fields |= {"name": name, "def_id": def_id}
        try:
            answer = await self._dispatch.request(_COMMANDS[record], caller, fields, tenant=tenant)
        except Refused as refused:
            if refused.details.get("refusal") == "not_found":
                raise _not_found(def_id) from refused
            if refused.details.get("refusal") == "invalid_request":
                raise bad_request(str(refused)) from refused
            raise
        return dict(answer.value.fields), answer.positions[0]

    def _position(self, row: ItemRow) -> str:
        """Return the position of the event that made a fire what it is: its start, or its end."""
        return str(Position(topic=self._reads.topic, partition=row.partition, offset=row.offset))

    # --- finding -----------------------------------------------------------------------------------------------------

    def _require(self, caller: Caller) -> None:
        require_scope(caller, TENANT)
        require_member(caller)

    def _place(self, caller: Caller, def_id: str) -> tuple[str, str]:
        self._require(caller)
        place = self._active.place_of(def_id)
        if place is None or (place[0] != caller.tenant and not caller.is_admin):
            raise _not_found(def_id)
        return place

    async def _state(self, tenant: str, name: str) -> Schedule | None:
        row = await self._definitions.read(self._reads.show(FAMILY_NAME, tenant, name))
        return None if row is None else row.entity.state

    async def _armed(self, caller: Caller, def_id: str) -> Schedule:
        tenant, name = self._place(caller, def_id)
        schedule = await self._state(tenant, name)
        if schedule is None or not schedule.is_armed or schedule.def_id != def_id:
            raise _not_found(def_id)
        return schedule

    async def _block(self, def_id: str) -> ScheduleBlock:
        table = self._active.table
        known, file = table.find(def_id), table.find_file(def_id)
        content = file.content if file is not None else None
        if content is None and known is not None:
            content = await self._definitions.read(table.content(*known))
        assert content is not None, "its place is known"
        try:
            block: ScheduleBlock = SCHEDULE.block_of(content)
        except DefinitionProblem as problem:
            raise Refused("not_found", f"the version {def_id[:80]} cannot be read: {problem}") from problem
        return block


def _not_found(def_id: str) -> Refused:
    return Refused("not_found", f"no active schedule has the version {def_id[:80]}")


def _preview_json(
    spec: ScheduleSpec, aggregate: str, anchor_ms: int, after_ms: int, count: int, passed: Sequence[Range] = ()
) -> dict[str, Any]:
    """Return the next instants after a time. `aggregate`: whose delays they have; `passed`: what is left out."""
    zone = parse_times(spec.times, spec.timezone, anchor_ms).zone
    instants: list[dict[str, Any]] = []
    while len(instants) < count and (after_ms := next_instant(spec, anchor_ms, after_ms, passed)):
        delay = delay_ms(spec, aggregate, after_ms)
        local = datetime.fromtimestamp(after_ms / 1000, ZoneInfo(zone))
        instants.append(
            {
                "instant": format_rfc3339(after_ms),
                "local": local.isoformat(timespec="seconds"),
                "fires_at": format_rfc3339(after_ms + delay),
                "jitter_ms": delay,
            }
        )
    return {"times": spec.times, "timezone": zone, "instants": instants}


def _times_json(schedule: Schedule, now_ms: int) -> dict[str, Any]:
    """Return when a schedule fires, what it starts, and why it cannot or does not."""
    spec, run = schedule.spec, schedule.run
    return {
        "agent": run.agent if run is not None else "",
        "times": spec.times if spec is not None else "",
        "timezone": (spec.timezone if spec is not None else "") or "UTC",
        "is_enabled": spec.is_enabled if spec is not None else False,
        "problem": (spec.problem if spec is not None else "") or _clock_problem(schedule, now_ms),
    }


def _clock_problem(schedule: Schedule, now_ms: int) -> str:
    """Return what is wrong with when a schedule fires next; empty when nothing is."""
    if schedule.paused_until_ms:
        return ""
    if is_beyond_rule(schedule, now_ms):
        return (
            "its next instant lies beyond its times: a clock was ahead when it was decided, or that of this process is "
            "behind; the owner of the schedule arms it again"
        )
    due = due_ms(schedule)
    if due and due + OVERDUE_MS < now_ms:
        return (
            f"it was due at {format_rfc3339(due)} and is not decided: no runtime owns it, the clock of its owner is "
            "not believed, or it has much to do; `loomlog status` says which"
        )
    return ""


def state_json(schedule: Schedule) -> dict[str, Any]:
    """Return the state of a schedule as clients read it; what does not apply is left out."""
    spec = schedule.spec
    shown: dict[str, Any] = {
        "def_id": schedule.def_id,
        "name": schedule.name,
        "tenant_id": schedule.tenant,
        "last_run_at": format_time(schedule.last_run_ms) if schedule.last_run_ms else "",
        "last_run_id": schedule.last_run_id,
        "last_status": schedule.last_status,
        "last_error": schedule.last_error,
        "next_run_at": format_time(next_ms) if (next_ms := due_ms(schedule)) else "",
        "paused_until": format_time(schedule.paused_until_ms) if schedule.paused_until_ms else "",
    }
    shown = {name: value for name, value in shown.items() if value != ""}
    queued = [format_time(instant) for instant in schedule.queued]
    return shown | {
        "fires": schedule.fires,
        "max_fires": spec.max_fires if spec is not None else 0,
        "overlap": spec.overlap if spec is not None else "",
        "running": [fire.run_id for fire in schedule.running],
        "queued": queued,
    }


def fire_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a fire, or instants that passed, as they are shown."""
    shown = {_TIMES.get(key, key): format_rfc3339(value) if key in _TIMES else value for key, value in row.items()}
    return {key: value for key, value in shown.items() if value not in ("", None)}
