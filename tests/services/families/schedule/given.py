"""A schedule for tests of its rules: commands in, events out, with the time as it is set."""

from collections.abc import Sequence
from typing import Any

from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.schedule_commands import ArmSchedule, NoteRunEnded, RunScheduleNow
from loomlog.schemas.generated.schedule_events import ScheduleFired
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.families import TIMER_FIRED, At
from loomlog.services.families.schedule.decide import decide
from loomlog.services.families.schedule.state import Schedule, evolve, initial, next_timer_ms
from tests.services.families.schedule.examples import RUN, spec

AGGREGATE = "schedule:acme/nightly"
ENVELOPE = CommandEnvelope(command_id="c", tenant="acme")
START = 1_800_000_000_000
"""10:40:00 of a day, UTC."""
MINUTE = 60_000


class Given:
    """An aggregate. `events` has all of them; `at_ms` is the owner's clock."""

    def __init__(self, times: str = "", **fields: Any) -> None:
        self.state: Schedule = initial(AGGREGATE)
        self.at_ms = START
        self.events: list[Any] = []
        if times:
            self.arm(times, **fields)

    def give(self, command: Any) -> Sequence[Any]:
        """Decide and fold."""
        events = decide(self.state, command, At(self.at_ms))
        for event in events:
            if not isinstance(event, CommandRefused):
                self.state = evolve(self.state, event, self.at_ms)
        self.events += events
        return events

    def arm(self, times: str, def_id: str = "def_1", revision: int = 1, **fields: Any) -> Sequence[Any]:
        self.command = ArmSchedule(
            envelope=ENVELOPE, name="nightly", def_id=def_id, revision=revision, spec=spec(times, **fields), run=RUN
        )
        return self.give(self.command)

    def timer(self, at_ms: int = 0) -> Sequence[Any]:
        """Let the timer fire, by default when it is due; an owner decides nothing before it is."""
        self.at_ms = at_ms or max(self.at_ms, next_timer_ms(self.state))
        due_ms = next_timer_ms(self.state)
        return self.give(TIMER_FIRED) if 0 < due_ms <= self.at_ms else ()

    def run_now(self, def_id: str = "") -> Sequence[Any]:
        return self.give(RunScheduleNow(envelope=ENVELOPE, name="nightly", def_id=def_id))

    def end(self, run_id: str = "", status: str = "completed", code: str = "", message: str = "") -> Sequence[Any]:
        """Tell the end of a run, by default of the oldest that works."""
        run_id = run_id or self.state.running[0].run_id
        return self.give(
            NoteRunEnded(envelope=ENVELOPE, name="nightly", run_id=run_id, status=status, code=code, message=message)
        )

    @property
    def fired(self) -> list[int]:
        """Minutes from START of the instants that have fired, in order."""
        fires = [event for event in self.events if isinstance(event, ScheduleFired) and not event.is_manual]
        return [(event.instant_ms - START) // MINUTE for event in fires]


def names(events: Sequence[Any]) -> list[str]:
    return [type(event).__name__ for event in events]
