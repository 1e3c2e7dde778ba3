"""Whatever happens in whatever order: an instant fires at most once, and instants only move forward, unless a schedule
begins again.
"""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.schemas.generated.schedule_commands import DisarmSchedule, PauseSchedule, ResumeSchedule
from loomlog.schemas.generated.schedule_events import ScheduleFired
from loomlog.schemas.records import replace
from loomlog.services.core.canonical import StateCodec
from loomlog.services.families.schedule import limits
from loomlog.services.families.schedule.state import Schedule, evolve, initial, is_beyond_rule
from tests.services.families.schedule.given import AGGREGATE, ENVELOPE, Given

MS = st.integers(0, 3 * 86_400_000)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("timer"), st.just(0)),
        st.tuples(st.just("late"), MS),
        st.tuples(st.just("back"), MS),
        st.tuples(st.just("end"), st.sampled_from(["completed", "failed", "cancelled", "refused"])),
        st.tuples(st.just("crash"), st.just(0)),
        st.tuples(st.sampled_from(["run_now", "pause", "resume", "disarm"]), st.just(0)),
        st.tuples(st.just("arm"), st.integers(0, 4)),
        st.tuples(st.just("again"), MS),
    ),
    max_size=40,
)
SPECS = st.fixed_dictionaries(
    {
        "overlap": st.sampled_from(["skip", "queue_one", "cancel", "allow"]),
        "catch_up_max": st.integers(0, 4),
        "jitter_ms": st.sampled_from([0, 500, 3_600_000]),
        "max_fires": st.sampled_from([0, 0, 1, 5]),
    }
)
TIMES = st.sampled_from(["*/5 * * * *", "@every 1s", "@every 7m", "30 2 * * *", "@hourly"])


@given(times=TIMES, fields=SPECS, steps=STEPS, zone=st.sampled_from(["", "Europe/Berlin"]))
@settings(max_examples=60, deadline=None)
def test_an_instant_fires_once(times: str, fields: dict[str, Any], steps: list[tuple[str, Any]], zone: str):
    codec, log = StateCodec(Schedule), list[tuple[Any, int]]()
    schedule = Given()
    arm_count = 0

    def take(events: Any) -> None:
        log.extend((event, schedule.at_ms) for event in events if type(event).__name__ != "CommandRefused")

    take(schedule.arm(times, timezone=zone, **fields))
    for step, value in steps:
        last_ms = schedule.state.last_ms
        match step:
            case "timer":
                take(schedule.timer())
            case "late":
                take(schedule.timer(schedule.at_ms + value))
            case "back":
                schedule.at_ms = max(0, schedule.at_ms - value)
                take(schedule.timer(schedule.at_ms))
            case "end" if schedule.state.running:
                take(schedule.end(status=value, code="backpressure" if value == "refused" else ""))
            case "crash":  # the next owner: from the log, or from a row
                folded = initial(AGGREGATE)
                for event, at_ms in log:
                    folded = evolve(folded, event, at_ms)
                assert folded == schedule.state
                schedule.state = codec.decode(codec.encode(folded))
            case "run_now":
                take(schedule.run_now())
            case "pause":
                take(schedule.give(PauseSchedule(envelope=ENVELOPE, name="nightly")))
            case "resume":
                take(schedule.give(ResumeSchedule(envelope=ENVELOPE, name="nightly")))
            case "disarm":
                take(schedule.give(DisarmSchedule(envelope=ENVELOPE, name="nightly", revision=arm_count)))
            case "arm":
                arm_count += 1
                again = times if value else "*/3 * * * *"
                take(schedule.arm(again, def_id=f"def_{value}", revision=arm_count, timezone=zone, **fields))
            case "again":  # a clock that is right finds what one that was ahead has decided
                schedule.at_ms = max(0, schedule.at_ms - value)
                is_beyond = is_beyond_rule(schedule.state, schedule.at_ms)
                events = schedule.give(replace(schedule.command, from_now=True))
                take(events)
                if is_beyond and schedule.command.def_id == schedule.state.def_id:
                    assert events
                    assert not is_beyond_rule(schedule.state, schedule.at_ms)
                    last_ms = schedule.state.last_ms
        state = schedule.state
        assert state.last_ms >= last_ms
        assert not state.next_ms or state.next_ms > state.last_ms
        assert len(state.running) <= limits.RUNNING_MAX
        assert len(state.queued) <= limits.CATCH_UP_MAX
        assert state.fires >= 0
        if state.spec is not None and state.spec.max_fires:
            assert state.fires <= state.spec.max_fires
    fires = [event for event, _ in log if isinstance(event, ScheduleFired)]
    instants = [event.instant_ms for event in fires if not event.is_manual]
    assert len(set(instants)) == len(instants)
    assert len({event.run_id for event in fires}) == len(fires)
    assert [event.number for event in fires] == sorted({event.number for event in fires})
