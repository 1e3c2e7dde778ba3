"""Commands of the schedule family for the contract suite."""

from collections.abc import Sequence
from typing import Any

from loomlog.schemas.generated.schedule_commands import (
    ArmSchedule,
    DisarmSchedule,
    NoteRunEnded,
    PauseSchedule,
    ResumeSchedule,
    RunScheduleNow,
)
from loomlog.schemas.generated.values import CommandEnvelope, ContentBlock, ScheduledRun, ScheduleSpec, Segment

RUN = ScheduledRun(
    agent="soaker",
    segments=(Segment(role="user", content=(ContentBlock(type="trusted-text", text="tick"),)),),
    user_id="ada",
    metadata={"team": '"red"'},
    credentials_env={"github": "LOOMLOG_GITHUB"},
)


def spec(times: str = "*/5 * * * *", **fields: Any) -> ScheduleSpec:
    """Return when a schedule fires."""
    return ScheduleSpec(times=times, **fields)


def examples(envelope: CommandEnvelope) -> Sequence[Any]:
    """A schedule that is armed, fired by hand, paused, resumed, armed again and disarmed; one that fails, one that is
    spent; times that are none.
    """

    def arm(name: str, def_id: str, *, revision: int = 1, **fields: Any) -> ArmSchedule:
        return ArmSchedule(envelope=envelope, name=name, def_id=def_id, revision=revision, spec=spec(**fields), run=RUN)

    return [
        arm("nightly", "def_1"),
        RunScheduleNow(envelope=envelope, name="nightly", def_id="def_1"),
        RunScheduleNow(envelope=envelope, name="nightly", def_id="def_0"),
        NoteRunEnded(envelope=envelope, name="nightly", run_id="r_1", status="completed"),
        PauseSchedule(envelope=envelope, name="nightly"),
        PauseSchedule(envelope=envelope, name="nightly", until_ms=1),
        ResumeSchedule(envelope=envelope, name="nightly"),
        arm("nightly", "def_2", revision=2, times="@every 1s", overlap="allow", jitter_ms=500),
        arm("nightly", "def_1", revision=1),
        arm("nightly", "def_3", revision=3, times="0 0 30 2 *"),
        DisarmSchedule(envelope=envelope, name="nightly", revision=1),
        DisarmSchedule(envelope=envelope, name="nightly", revision=4),
        RunScheduleNow(envelope=envelope, name="nightly"),
        arm("broken", "def_4", times="@hourly", problem="$cred:gh cannot be resolved"),
        RunScheduleNow(envelope=envelope, name="broken"),
        arm("once", "def_5", times="@daily", max_fires=1, problem="no"),
        RunScheduleNow(envelope=envelope, name="once"),
    ]
