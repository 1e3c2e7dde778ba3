"""The operations of schedules: which there are, how they are, when they fire, and what operators do. Pure.

A schedule is named by the id of a version of its definition. The answers about how it is are those of the version that
is armed; any other, retired or another tenant's, is not found.

Before: __init__.py. After: handlers.py carries them out.
"""

from functools import partial
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import TENANT
from loomlog.services.core.operations import (
    PRINTABLE,
    PRINTABLE_WITH_TABS,
    Effect,
    Http,
    Input,
    Operation,
    Output,
    Tag,
)

TAG = Tag(name="Schedules", description="Runs that start at given times: when, and what became of them.")
PATH = "/v1/_schedules/{def_id}"
FIRES_DEFAULT, FIRES_MAX = 50, 200
PREVIEW_DEFAULT, PREVIEW_MAX = 10, 100
CURSOR_CHARACTERS_MAX = 1_024
TEXT_CHARACTERS_MAX = 256

# --- fields ----------------------------------------------------------------------------------------------------------

DefId = Annotated[str, Meta(description="Id of a version of the schedule's definition.")]
Count = Annotated[int, Meta(ge=1, le=PREVIEW_MAX, description="Number of times.")]
Instant = Annotated[str, Meta(description="RFC 3339, with milliseconds.")]
Time = Annotated[str, Meta(description="RFC 3339, with nanoseconds.")]


class ScheduleListAll(Input, frozen=True, kw_only=True):
    with_state: Annotated[bool, Meta(description="true: with the state, agent and times of those in force.")] = False


class ScheduleVersion(Input, frozen=True, kw_only=True):
    def_id: DefId


class SchedulePreviewTimes(Input, frozen=True, kw_only=True):
    times: Annotated[
        str,
        Meta(
            max_length=TEXT_CHARACTERS_MAX,
            pattern=PRINTABLE_WITH_TABS,
            description="Five fields of cron, a name such as @hourly, or @every 90m.",
        ),
    ] = ""
    timezone: Annotated[
        str,
        Meta(
            max_length=TEXT_CHARACTERS_MAX,
            pattern=PRINTABLE,
            description="Name of the zone of the five fields; absent: UTC.",
        ),
    ] = ""
    count: Count = PREVIEW_DEFAULT


class SchedulePreviewVersion(Input, frozen=True, kw_only=True):
    def_id: DefId
    count: Count = PREVIEW_DEFAULT


class ScheduleListFires(Input, frozen=True, kw_only=True):
    def_id: DefId
    limit: Annotated[int, Meta(ge=1, le=FIRES_MAX, description="Most entries of one answer.")] = FIRES_DEFAULT
    cursor: Annotated[
        str, Meta(max_length=CURSOR_CHARACTERS_MAX, pattern=PRINTABLE, description="`next` of an earlier answer.")
    ] = ""


class SchedulePause(Input, frozen=True, kw_only=True):
    def_id: DefId
    until: Annotated[
        str,
        Meta(
            max_length=TEXT_CHARACTERS_MAX,
            pattern=PRINTABLE,
            description="RFC 3339; absent: until it is resumed.",
        ),
    ] = ""


# --- answers ---------------------------------------------------------------------------------------------------------


class ScheduleState(Output, frozen=True, kw_only=True):
    """How a schedule is; what does not apply is absent."""

    def_id: str
    name: str
    tenant_id: str
    last_run_at: Time | UnsetType = UNSET
    last_run_id: str | UnsetType = UNSET
    last_status: str | UnsetType = UNSET
    last_error: str | UnsetType = UNSET
    next_run_at: Time | UnsetType = UNSET
    paused_until: Time | UnsetType = UNSET
    fires: Annotated[int, Meta(description="Fires of this version that count towards max_fires.")]
    max_fires: int
    overlap: str
    running: Annotated[list[str], Meta(description="Ids of the runs that work.")]
    queued: Annotated[list[Time], Meta(description="Instants that fire when the run that works has ended.")]


class ScheduleInForce(ScheduleState, frozen=True, kw_only=True):
    """The state of a schedule in the list of all, with what it starts and why it cannot or does not."""

    agent: str
    times: str
    timezone: str
    is_enabled: bool
    problem: str


class ScheduleEntry(Output, frozen=True, kw_only=True):
    """A schedule with its versions; `static_definition` is that of a file."""

    name: str
    tenant_id: str
    source: Annotated[str, Meta(description="static-only, dynamic-only or both: of a file, made at run time.")]
    in_static: bool
    in_substrate: bool
    version_count: int
    active_def_id: str
    latest_version: int
    last_updated: str
    static_definition: dict[str, Any] | UnsetType = UNSET
    state: ScheduleInForce | UnsetType = UNSET


class ScheduleList(Output, frozen=True, kw_only=True):
    entries: list[ScheduleEntry]


class ScheduleInstant(Output, frozen=True, kw_only=True):
    """A time at which a schedule fires: by its times, and with its delay."""

    instant: Instant
    local: Annotated[str, Meta(description="The same in the zone of the schedule.")]
    fires_at: Instant
    jitter_ms: int


class ScheduleTimesPreview(Output, frozen=True, kw_only=True):
    times: str
    timezone: str
    instants: list[ScheduleInstant]


class SchedulePreview(Output, frozen=True, kw_only=True):
    def_id: str
    name: str
    times: str
    timezone: str
    instants: list[ScheduleInstant]


class ScheduleFire(Output, frozen=True, kw_only=True):
    """A fire, or instants that passed; what does not apply is absent."""

    instant: Instant
    last_instant: Instant | UnsetType = UNSET
    count: Annotated[int, Meta(description="Instants that passed.")] | UnsetType = UNSET
    is_at_least: Annotated[bool, Meta(description="There were more of them.")] | UnsetType = UNSET
    fired_at: Instant | UnsetType = UNSET
    late_ms: int | UnsetType = UNSET
    run_id: str | UnsetType = UNSET
    is_manual: bool | UnsetType = UNSET
    status: str
    error: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    position: Annotated[str, Meta(description="Position of the event that made it what it is.")]


class ScheduleFires(Output, frozen=True, kw_only=True):
    def_id: str
    name: str
    fires: list[ScheduleFire]
    next: str | None


class ScheduleFiredNow(Output, frozen=True, kw_only=True):
    """A fire; `run_id` is absent when no run can start."""

    def_id: str
    scheduled: str
    run_id: str | UnsetType = UNSET


class SchedulePauseState(Output, frozen=True, kw_only=True):
    def_id: str
    paused: bool


# --- operations ------------------------------------------------------------------------------------------------------

_read = partial(Operation, tag=TAG, access=requires(TENANT), effect=Effect.READ)
_write = partial(Operation, tag=TAG, access=requires(TENANT), effect=Effect.WRITE)
_http = partial(Http, takes_tenant=False)

LIST_ALL = _read(
    name="schedule.list_all",
    summary="List schedules, of files and made at run time.",
    input=ScheduleListAll,
    output=ScheduleList,
    spans_tenants=True,
    http=(Http(route="GET /v1/_schedules/list-all", id="list_schedules"),),
)
PREVIEW_TIMES = _read(
    name="schedule.preview_times",
    summary="List when times would fire next, before a schedule has them.",
    input=SchedulePreviewTimes,
    output=ScheduleTimesPreview,
    http=(_http(route="GET /v1/_schedules/preview", id="preview_times"),),
)
STATE = _read(
    name="schedule.state",
    summary="Read how the schedule of an active version is: its last run, its next time, its pause.",
    input=ScheduleVersion,
    output=ScheduleState,
    http=(_http(route=f"GET {PATH}/state", id="get_schedule_state"),),
)
PREVIEW = _read(
    name="schedule.preview",
    summary="List when a version fires next, in its zone and with its jitter.",
    input=SchedulePreviewVersion,
    output=SchedulePreview,
    http=(_http(route=f"GET {PATH}/preview", id="preview_schedule"),),
)
LIST_FIRES = _read(
    name="schedule.fires",
    summary="List what the schedule has fired, newest first.",
    input=ScheduleListFires,
    output=ScheduleFires,
    http=(_http(route=f"GET {PATH}/fires", id="list_schedule_fires"),),
)
RUN_NOW = _write(
    name="schedule.run_now",
    summary="Fire at once, also when paused; the next time stays as it is.",
    input=ScheduleVersion,
    output=ScheduleFiredNow,
    http=(_http(route=f"POST {PATH}/run-now", id="run_schedule_now"),),
)
PAUSE = _write(
    name="schedule.pause",
    summary="Let its times pass without a run.",
    input=SchedulePause,
    output=SchedulePauseState,
    http=(_http(route=f"POST {PATH}/pause", id="pause_schedule", query=("until",)),),
)
RESUME = _write(
    name="schedule.resume",
    summary="End a pause.",
    input=ScheduleVersion,
    output=SchedulePauseState,
    http=(_http(route=f"POST {PATH}/resume", id="resume_schedule"),),
)
OPERATIONS = (LIST_ALL, PREVIEW_TIMES, STATE, PREVIEW, LIST_FIRES, RUN_NOW, PAUSE, RESUME)
