"""Schedules as answers show them.

Before: handlers.py. After: api.py has the records.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import UNSET, structs

from loomlog.connectors.cron import parse_times
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.generated.values import ScheduleSpec
from loomlog.services.families.definition.answers import format_time
from loomlog.services.families.definition.state import Line
from loomlog.services.families.definition.table import FileDefinition
from loomlog.services.families.schedule import api
from loomlog.services.families.schedule.instants import Range, delay_ms, next_instant
from loomlog.services.families.schedule.state import Schedule, due_ms, is_beyond_rule

OVERDUE_MS = 60_000
"""How late an instant is before the list says so: a takeover and a busy owner take seconds."""
_TIMES = {"instant_ms": "instant", "last_ms": "last_instant", "fired_ms": "fired_at"}


def entry(place: tuple[str, str], line: Line | None, file: FileDefinition | None, active_id: str) -> api.ScheduleEntry:
    """Return a schedule of the list of all. `place`: its tenant and name."""
    updated_ms = max(line.promoted_at_ms, line.versions[-1].created_at_ms) if line is not None else 0
    versions = len(line.versions) if line is not None else 0
    return api.ScheduleEntry(
        name=place[1],
        tenant_id=place[0],
        source="both" if line and file else "dynamic-only" if line else "static-only",
        in_static=file is not None,
        in_substrate=line is not None,
        version_count=versions,
        active_def_id=active_id,
        latest_version=versions,
        last_updated=format_time(updated_ms) if updated_ms else "",
        static_definition=dict(file.content) if file is not None else UNSET,
    )


def state(schedule: Schedule) -> api.ScheduleState:
    """Return how a schedule is."""
    spec = schedule.spec
    return api.ScheduleState(
        def_id=schedule.def_id,
        name=schedule.name,
        tenant_id=schedule.tenant,
        last_run_at=format_time(schedule.last_run_ms) if schedule.last_run_ms else UNSET,
        last_run_id=schedule.last_run_id or UNSET,
        last_status=schedule.last_status or UNSET,
        last_error=schedule.last_error or UNSET,
        next_run_at=format_time(next_ms) if (next_ms := due_ms(schedule)) else UNSET,
        paused_until=format_time(schedule.paused_until_ms) if schedule.paused_until_ms else UNSET,
        fires=schedule.fires,
        max_fires=spec.max_fires if spec is not None else 0,
        overlap=spec.overlap if spec is not None else "",
        running=[fire.run_id for fire in schedule.running],
        queued=[format_time(instant) for instant in schedule.queued],
    )


def in_force(schedule: Schedule, now_ms: int) -> api.ScheduleInForce:
    """Return how an armed schedule is, with what it starts."""
    spec, run = schedule.spec, schedule.run
    return api.ScheduleInForce(
        **structs.asdict(state(schedule)),
        agent=run.agent if run is not None else "",
        times=spec.times if spec is not None else "",
        timezone=(spec.timezone if spec is not None else "") or "UTC",
        is_enabled=spec.is_enabled if spec is not None else False,
        problem=(spec.problem if spec is not None else "") or _clock_problem(schedule, now_ms),
    )


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


def fire(row: Mapping[str, Any], position: str) -> api.ScheduleFire:
    """Return a fire, or instants that passed; `row` is the document of items.py."""
    fields: dict[str, Any] = {
        _TIMES.get(key, key): format_rfc3339(value) if key in _TIMES else value for key, value in row.items()
    }
    return api.ScheduleFire(
        position=position, **{name: value for name, value in fields.items() if value not in ("", None)}
    )


def next_instants(
    spec: ScheduleSpec, aggregate: str, anchor_ms: int, after_ms: int, count: int, passed: Sequence[Range] = ()
) -> tuple[str, list[api.ScheduleInstant]]:
    """Return the zone of times and their next instants.

    `aggregate`: whose delays they have; `passed`: those that are left out.
    """
    zone = parse_times(spec.times, spec.timezone, anchor_ms).zone
    instants: list[api.ScheduleInstant] = []
    while len(instants) < count and (after_ms := next_instant(spec, anchor_ms, after_ms, passed)):
        delay = delay_ms(spec, aggregate, after_ms)
        local = datetime.fromtimestamp(after_ms / 1000, ZoneInfo(zone))
        instants.append(
            api.ScheduleInstant(
                instant=format_rfc3339(after_ms),
                local=local.isoformat(timespec="seconds"),
                fires_at=format_rfc3339(after_ms + delay),
                jitter_ms=delay,
            )
        )
    return zone, instants
