"""The routes of schedules.

Before: routes.py. After: schedule_endpoints.py.
"""

from collections.abc import Sequence

from loomlog.services.api import schedule_endpoints
from loomlog.services.api.route import (
    CURSOR_PARAMETER,
    LIMIT_PARAMETER,
    POSITIVE_INTEGER,
    Handler,
    NamedSchema,
    QueryParameter,
    Route,
    Tag,
)
from loomlog.services.application.schedules import PREVIEW_MAX
from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import TENANT as TENANT_SCOPE

TAG = Tag(name="Schedules", description="Runs that start at given times: when, and what became of them.")
PATH = "/v1/_schedules/{def_id}"
OBJECT = {"type": "object"}
COUNT = QueryParameter(
    name="count", description="Number of times.", schema={**POSITIVE_INTEGER, "maximum": PREVIEW_MAX}
)


def _route(
    method: str,
    path: str,
    handler: Handler,
    summary: str,
    response: str,
    *,
    query: Sequence[QueryParameter] = (),
    statuses: Sequence[int] = (404, 503),
) -> Route:
    return Route(
        method=method,
        path=path,
        access=requires(TENANT_SCOPE),
        handler=handler,
        tag=TAG,
        summary=summary,
        response=NamedSchema(name=response, schema=OBJECT),
        query=query,
        refusal_statuses=statuses,
    )


SCHEDULE_ROUTES: tuple[Route, ...] = (
    _route(
        "GET",
        "/v1/_schedules/list-all",
        schedule_endpoints.list_schedules,
        "List schedules, of files and made at run time.",
        "ScheduleList",
        query=(
            QueryParameter(name="tenant", description="Administrators: only this tenant."),
            QueryParameter(name="with_state", description="true: with the state, agent and times of those in force."),
        ),
        statuses=(400, 503),
    ),
    _route(
        "GET",
        "/v1/_schedules/preview",
        schedule_endpoints.preview_times,
        "List when times would fire next, before a schedule has them.",
        "TimesPreview",
        query=(
            QueryParameter(name="times", description="Five fields of cron, a name such as @hourly, or @every 90m."),
            QueryParameter(name="timezone", description="Name of the zone of the five fields; absent: UTC."),
            COUNT,
        ),
        statuses=(400,),
    ),
    _route(
        "GET",
        PATH + "/state",
        schedule_endpoints.get_schedule_state,
        "Read how the schedule of an active version is: its last run, its next time, its pause.",
        "ScheduleState",
    ),
    _route(
        "GET",
        PATH + "/preview",
        schedule_endpoints.preview_schedule,
        "List when a version fires next, in its zone and with its jitter.",
        "SchedulePreview",
        query=(COUNT,),
        statuses=(400, 404, 503),
    ),
    _route(
        "GET",
        PATH + "/fires",
        schedule_endpoints.list_schedule_fires,
        "List what the schedule has fired, newest first.",
        "ScheduleFires",
        query=(LIMIT_PARAMETER, CURSOR_PARAMETER),
        statuses=(400, 404, 503),
    ),
    _route(
        "POST",
        PATH + "/run-now",
        schedule_endpoints.run_schedule_now,
        "Fire at once, also when paused; the next time stays as it is.",
        "ScheduleFiredNow",
        statuses=(400, 404, 409, 429, 503),
    ),
    _route(
        "POST",
        PATH + "/pause",
        schedule_endpoints.pause_schedule,
        "Let its times pass without a run.",
        "SchedulePause",
        query=(QueryParameter(name="until", description="RFC 3339; absent: until it is resumed."),),
        statuses=(400, 404, 409, 503),
    ),
    _route(
        "POST",
        PATH + "/resume",
        schedule_endpoints.resume_schedule,
        "End a pause.",
        "ScheduleResume",
        statuses=(400, 404, 409, 503),
    ),
)
