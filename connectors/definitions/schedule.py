"""The kind schedule: runs that start at given times. One without a user is a template that is forked for each user.

Before: connectors/configuration/schedule_block.py, kind.py, cron.py, triggers.py. After: kinds.py.
"""

from loomlog.connectors.configuration.schedule_block import ScheduleBlock
from loomlog.connectors.cron import find_cron_problem, is_time_zone
from loomlog.connectors.definitions.kind import Kind
from loomlog.connectors.definitions.problems import DefinitionProblem
from loomlog.connectors.definitions.triggers import check_hooks


def check_schedule(schedule: ScheduleBlock) -> None:
    """Raise DefinitionProblem for a schedule that cannot be."""
    times = {"schedule": schedule.schedule} if schedule.schedule else {}
    times |= {f"user_tier_schedules.{tier}": text for tier, text in schedule.user_tier_schedules.items()}
    if not times:
        raise DefinitionProblem("missing_field", "missing required field: schedule (or user_tier_schedules)")
    if schedule.schedule and schedule.user_tier_schedules:
        raise DefinitionProblem("invalid_definition", "schedule and user_tier_schedules: expected one of them")
    for path, text in times.items():
        if problem := find_cron_problem(text):
            raise DefinitionProblem("invalid_definition", f"{path}: {problem}")
    if schedule.timezone and not is_time_zone(schedule.timezone):
        raise DefinitionProblem("invalid_definition", "timezone: expected a name such as Europe/Berlin")
    check_hooks(schedule.on_complete)


SCHEDULE = Kind(
    name="schedule",
    tool="ScheduleDef",
    block=ScheduleBlock,
    file_only={"tenant_id": "a definition belongs to the tenant of its author"},
    server_set=frozenset({"operator_key_restricted", "isolated"}),
    alternatives=(frozenset({"schedule"}), frozenset({"user_tier_schedules"})),
    check=check_schedule,
)
