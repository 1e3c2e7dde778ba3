"""The family of schedules: when a definition of the kind schedule fires, and what became of its runs.

An aggregate is a schedule, by its name. It is armed with the active version of its definition, and its timer decides:
an instant is an event that names the run, which the outbox starts. The run's owner tells the end.

    instants.py           which instants are due
    state.py, decide.py   the rules
    items.py              the rows of fires
    arming.py             from definitions and files to armed schedules
    api.py                the operations, as transports offer them
    handlers.py           carries them out; shown.py has how schedules look
    services.py           opens all of it in a process

Before: reconciler.py and requests. After: runs, by the outbox.
"""

from typing import Any

from loomlog.schemas.generated.schedule_commands import (
    ArmSchedule,
    DisarmSchedule,
    NoteRunEnded,
    PauseSchedule,
    ResumeSchedule,
    RunScheduleNow,
)
from loomlog.services.core.families import WHOLE_HISTORY, Family, Rules, inner_commands
from loomlog.services.families.schedule.api import OPERATIONS
from loomlog.services.families.schedule.decide import decide as decide_schedule
from loomlog.services.families.schedule.decide import sends as schedule_sends
from loomlog.services.families.schedule.items import items as schedule_items
from loomlog.services.families.schedule.state import FAMILY_NAME, VERSION, Schedule, evolve, initial, next_timer_ms

_command = inner_commands(lambda command: command.name)


def _subject(command: Any) -> str | None:
    """Return the user of the runs, empty for none: their content keeps the form that the schedule has it in."""
    return command.run.user_id if isinstance(command, ArmSchedule) else None


FAMILY = Family(
    name=FAMILY_NAME,
    summary="A schedule: when it fires next, the runs of it that work, and how the last one ended.",
    rules=Rules(
        state=Schedule,
        initial=initial,
        decide=decide_schedule,
        evolve=evolve,
        next_timer_ms=next_timer_ms,
        version=VERSION,
    ),
    lifecycle=WHOLE_HISTORY,
    commands=(
        _command(ArmSchedule, "arm", "Let a schedule fire as a version of its definition says."),
        _command(DisarmSchedule, "disarm", "Let a schedule fire no more."),
        _command(RunScheduleNow, "run", "Fire at once."),
        _command(PauseSchedule, "pause", "Let instants pass without a fire."),
        _command(ResumeSchedule, "resume", "End a pause."),
        _command(NoteRunEnded, "ended", "Tell a schedule that a run of it has ended."),
    ),
    content_subject=_subject,
    sends=schedule_sends,
    items=schedule_items,
    operations=OPERATIONS,
    services="loomlog.services.families.schedule.services",
)
