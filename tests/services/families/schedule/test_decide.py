"""The rules of schedules: instants, overlap, what passed unseen, pauses, versions, ends of runs."""

import pytest

from loomlog.schemas.generated.definition_commands import RetireVersion
from loomlog.schemas.generated.run_commands import CancelRun, StartRun
from loomlog.schemas.generated.schedule_commands import DisarmSchedule, PauseSchedule, ResumeSchedule
from loomlog.schemas.generated.schedule_events import InstantsSkipped, ScheduleFired
from loomlog.schemas.records import replace
from loomlog.services.families.schedule import limits
from loomlog.services.families.schedule.decide import sends
from loomlog.services.families.schedule.state import next_timer_ms
from tests.services.families.schedule.examples import RUN
from tests.services.families.schedule.given import AGGREGATE, ENVELOPE, MINUTE, START, Given, names

EVERY = "*/5 * * * *"
DAY = 86_400_000


# --- instants and runs -----------------------------------------------------------------------------------------------


def test_an_instant_starts_a_run_that_the_schedule_is_told_the_end_of():
    schedule = Given(EVERY)
    (fired,) = schedule.timer()
    assert (fired.instant_ms, fired.next_ms, fired.late_ms) == (START + 5 * MINUTE, START + 10 * MINUTE, 0)
    (send,) = sends(schedule.state, fired)
    start = send.command
    assert isinstance(start, StartRun)
    assert (send.to, start.agent, start.run_id, start.user_id) == ("run", "soaker", fired.run_id, "ada")
    assert start.segments[0].content[0].text == "tick"
    assert start.options.trigger == AGGREGATE
    assert start.options.metadata == {"team": '"red"'}
    assert start.options.credentials == ("github",)
    assert send.credentials_env == {"github": "LOOMLOG_GITHUB"}
    assert schedule.state.last_run_id == fired.run_id
    assert schedule.state.last_status == ""
    (settled,) = schedule.end()
    assert (settled.status, settled.counts, settled.run_id) == ("completed", True, fired.run_id)
    assert schedule.state.running == ()
    assert schedule.state.last_status == "completed"
    assert schedule.end(fired.run_id) == []


def test_what_is_sent_follows_from_the_event_also_when_the_schedule_was_changed_since():
    schedule = Given(EVERY)
    (fired,) = schedule.timer()
    before = sends(schedule.state, fired)
    schedule.give(DisarmSchedule(envelope=ENVELOPE, name="nightly", revision=9))
    assert sends(schedule.state, fired) == before


def test_the_runs_of_two_instants_and_of_two_schedules_are_different_ones():
    schedule = Given("@every 1s", overlap="allow")
    fires = [schedule.timer()[0] for _ in range(3)]
    assert len({fire.run_id for fire in fires}) == 3
    assert [fire.number for fire in fires] == [1, 2, 3]


def test_the_timer_decides_nothing_before_its_time_nor_twice():
    schedule = Given(EVERY)
    assert schedule.timer(START + 5 * MINUTE - 1) == ()
    assert names(schedule.timer(START + 5 * MINUTE)) == ["ScheduleFired"]
    assert schedule.timer(START + 5 * MINUTE) == ()


@pytest.mark.parametrize("back_ms", [MINUTE, 60 * MINUTE, DAY])
def test_a_clock_that_is_set_back_fires_nothing_twice(back_ms: int):
    schedule = Given(EVERY)
    for _ in range(3):
        schedule.timer()
        schedule.end()
    at_ms = schedule.at_ms
    schedule.timer(at_ms - back_ms)
    schedule.arm(EVERY, revision=2, jitter_ms=1)  # armed again, by a clock that is behind
    assert schedule.state.next_ms == at_ms + 5 * MINUTE
    schedule.timer()
    assert schedule.fired == [5, 10, 15, 20]


def test_jitter_is_fixed_for_an_instant_and_within_its_bound():
    schedule, other = Given(EVERY, jitter_ms=60_000), Given(EVERY, jitter_ms=60_000)
    delays = []
    for _ in range(8):
        due_ms = next_timer_ms(schedule.state)
        assert due_ms == next_timer_ms(other.state)
        delays.append(due_ms - schedule.state.next_ms)
        assert schedule.timer()[0].late_ms == 0
        other.timer()
        schedule.end()
        other.end()
    assert all(0 <= delay <= 60_000 for delay in delays)
    assert len(set(delays)) > 4
    assert schedule.fired == [5, 10, 15, 20, 25, 30, 35, 40]


def test_a_schedule_without_times_or_that_is_off_has_no_instant_and_can_be_fired():
    for given in (Given(""), Given()):
        assert next_timer_ms(given.state) == 0
    for schedule in (Given(), Given(EVERY, is_enabled=False)):
        if not schedule.state.is_armed:
            schedule.arm("")
        assert next_timer_ms(schedule.state) == 0
        assert names(schedule.run_now()) == ["ScheduleFired"]


# --- instants that passed unseen -------------------------------------------------------------------------------------


def test_all_instants_that_passed_unseen_become_one():
    schedule = Given(EVERY)
    events = schedule.timer(START + 31 * MINUTE)
    assert names(events) == ["InstantsSkipped", "ScheduleFired"]
    skipped, fired = events
    assert (skipped.count, skipped.reason, skipped.is_at_least) == (5, "catch_up", False)
    assert (skipped.first_ms, skipped.last_ms) == (START + 5 * MINUTE, START + 30 * MINUTE)
    assert (fired.instant_ms, fired.next_ms, fired.late_ms) == (START + 30 * MINUTE, START + 35 * MINUTE, MINUTE)


def test_none_of_them_fires_if_the_schedule_says_so_but_one_that_is_hardly_late_does():
    schedule = Given(EVERY, catch_up_max=0)
    (skipped,) = schedule.timer(START + 32 * MINUTE)
    assert (skipped.count, skipped.next_ms) == (6, START + 35 * MINUTE)
    assert names(schedule.timer(START + 35 * MINUTE + limits.MISSED_MS)) == ["ScheduleFired"]


def test_the_latest_of_them_fire_in_order_each_after_the_end_of_the_one_before():
    schedule = Given(EVERY, catch_up_max=3)
    schedule.timer(START + 31 * MINUTE)
    assert schedule.fired == [20]
    assert schedule.state.queued == (START + 25 * MINUTE, START + 30 * MINUTE)
    assert names(schedule.end()) == ["FireSettled", "ScheduleFired"]
    schedule.end()
    assert schedule.fired == [20, 25, 30]
    schedule.end()
    assert (schedule.state.queued, schedule.state.next_ms) == ((), START + 35 * MINUTE)


def test_they_fire_together_if_runs_may_overlap():
    schedule = Given(EVERY, catch_up_max=3, overlap="allow")
    events = schedule.timer(START + 31 * MINUTE)
    assert names(events) == ["InstantsSkipped", *["ScheduleFired"] * 3]
    assert schedule.fired == [20, 25, 30]
    assert len(schedule.state.running) == 3


def test_a_year_of_seconds_is_passed_at_once():
    schedule = Given("@every 1s", catch_up_max=2, overlap="allow")
    events = schedule.timer(START + 365 * DAY + 500)
    assert names(events) == ["InstantsSkipped", "ScheduleFired", "ScheduleFired"]
    assert (events[0].count, events[0].is_at_least) == (limits.COUNTED_MAX - 2, True)
    assert [event.instant_ms for event in events[1:]] == [START + 365 * DAY - 1000, START + 365 * DAY]
    assert schedule.state.next_ms == START + 365 * DAY + 1000


# --- overlap ---------------------------------------------------------------------------------------------------------


def test_an_instant_is_skipped_and_told_while_a_run_works_and_the_next_one_after_its_end_fires():
    schedule = Given(EVERY)
    schedule.timer()
    (skipped,) = schedule.timer()
    assert (skipped.reason, skipped.count, skipped.queued) == ("overlap", 1, ())
    schedule.timer()
    assert names(schedule.end()) == ["FireSettled"]
    schedule.timer()
    assert schedule.fired == [5, 20]


def test_one_instant_waits_and_fires_at_the_end_of_the_run():
    schedule = Given(EVERY, overlap="queue_one")
    schedule.timer()
    (queued,) = schedule.timer()
    assert (queued.count, queued.queued) == (0, (START + 10 * MINUTE,))
    (skipped,) = schedule.timer()
    assert (skipped.count, skipped.reason, skipped.queued) == (1, "overlap", (START + 10 * MINUTE,))
    assert names(schedule.end()) == ["FireSettled", "ScheduleFired"]
    assert schedule.fired == [5, 10]
    assert names(schedule.end()) == ["FireSettled"]


def test_the_run_that_works_is_cancelled():
    schedule = Given(EVERY, overlap="cancel")
    (first,) = schedule.timer()
    (second,) = schedule.timer()
    cancel, start = (send.command for send in sends(schedule.state, second))
    assert isinstance(cancel, CancelRun)
    assert (cancel.run_id, start.run_id) == (first.run_id, second.run_id)
    schedule.end(first.run_id, "cancelled")
    assert schedule.state.last_run_id == second.run_id
    assert schedule.state.last_status == ""
    assert [one.run_id for one in schedule.state.running] == [second.run_id]


def test_there_is_a_bound_for_runs_at_once():
    schedule = Given("@every 1s", overlap="allow")
    for _ in range(limits.RUNNING_MAX):
        schedule.timer()
    (skipped,) = schedule.timer()
    assert isinstance(skipped, InstantsSkipped)
    assert skipped.reason == "overlap"
    (refused,) = schedule.run_now()
    assert refused.code == "backpressure"


# --- run-now, pauses -------------------------------------------------------------------------------------------------


def test_run_now_fires_at_once_and_moves_no_cadence():
    schedule = Given(EVERY)
    schedule.at_ms += MINUTE
    (fired,) = schedule.run_now("def_1")
    assert (fired.is_manual, fired.instant_ms, fired.next_ms) == (True, START + MINUTE, START + 5 * MINUTE)
    assert schedule.state.last_ms == 0
    schedule.end()
    schedule.timer()
    assert schedule.fired == [5]


def test_run_now_is_for_the_version_that_is_armed():
    (refused,) = Given(EVERY).run_now("def_0")
    assert refused.code == "not_found"
    (refused,) = Given().run_now()
    assert refused.code == "not_found"


def test_while_paused_instants_pass_and_are_told_at_the_end():
    schedule = Given(EVERY)
    (paused,) = schedule.give(PauseSchedule(envelope=ENVELOPE, name="nightly"))
    assert paused.until_ms == START + limits.PAUSED_MS
    assert schedule.give(PauseSchedule(envelope=ENVELOPE, name="nightly")) == []
    assert schedule.timer(START + 12 * MINUTE) == ()
    assert names(schedule.run_now()) == ["ScheduleFired"]
    skipped, resumed = schedule.give(ResumeSchedule(envelope=ENVELOPE, name="nightly"))
    assert (skipped.count, skipped.reason, resumed.next_ms) == (2, "paused", START + 15 * MINUTE)
    assert schedule.give(ResumeSchedule(envelope=ENVELOPE, name="nightly")) == []


def test_a_pause_ends_by_itself():
    schedule = Given(EVERY)
    schedule.give(PauseSchedule(envelope=ENVELOPE, name="nightly", until_ms=START + 7 * MINUTE))
    assert names(schedule.timer()) == ["InstantsSkipped", "ScheduleResumed"]
    schedule.timer()
    assert schedule.fired == [10]
    (refused,) = schedule.give(PauseSchedule(envelope=ENVELOPE, name="nightly", until_ms=START))
    assert refused.code == "invalid_request"


# --- refused starts, max_fires, what cannot start --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status", "counts"),
    [
        ("unknown_agent", "failed", False),
        ("backpressure", "skipped", False),
        ("per_user_quota_exhausted", "skipped", False),
        ("provider_concurrency_exhausted", "skipped", False),
        ("token_limit_exceeded", "skipped", True),
        ("bad_request", "failed", True),
    ],
)
def test_a_start_that_is_refused(code: str, status: str, counts: bool):
    schedule = Given(EVERY, max_fires=5)
    schedule.timer()
    (settled,) = schedule.end(status="refused", code=code, message="no")
    assert (settled.status, settled.counts, settled.error) == (status, counts, f"{code}: no")
    assert schedule.state.fires == (1 if counts else 0)
    (again,) = schedule.timer()
    assert again.attempt == (1 if counts else 2)
    assert again.instant_ms == START + 10 * MINUTE


def test_instants_that_wait_do_not_ask_a_full_installation_again():
    schedule = Given(EVERY, catch_up_max=3)
    schedule.timer(START + 31 * MINUTE)
    assert names(schedule.end(status="refused", code="backpressure")) == ["FireSettled"]
    assert schedule.state.queued == ()


def test_the_last_fire_retires_the_definition_once_its_run_has_ended():
    schedule = Given(EVERY, max_fires=2)
    schedule.timer()
    schedule.end()
    schedule.timer()
    assert next_timer_ms(schedule.state) == 0
    settled, disarmed = schedule.end()
    assert (settled.status, disarmed.reason) == ("completed", "max_fires")
    (send,) = sends(schedule.state, disarmed)
    assert isinstance(send.command, RetireVersion)
    assert (send.to, send.command.def_id, send.command.name, send.command.retired) == (
        "definition",
        "def_1",
        "nightly",
        True,
    )
    # Its own retirement is no reason to begin again; a version that is restored or new is.
    assert schedule.arm(EVERY, max_fires=2) == []
    assert names(schedule.arm(EVERY, revision=3, max_fires=2)) == ["ScheduleArmed"]
    assert schedule.state.fires == 0


def test_a_last_fire_that_was_refused_for_now_is_tried_again():
    schedule = Given(EVERY, max_fires=1)
    schedule.timer()
    assert schedule.state.next_ms == 0
    (settled,) = schedule.end(status="refused", code="unknown_agent")
    assert settled.next_ms == START + 10 * MINUTE
    schedule.timer()
    assert names(schedule.end()) == ["FireSettled", "ScheduleDisarmed"]


def test_instants_beyond_the_last_fire_do_not_fire():
    schedule = Given(EVERY, max_fires=2, catch_up_max=5)
    schedule.timer(START + 31 * MINUTE)
    schedule.end()
    assert names(schedule.end()) == ["FireSettled", "ScheduleDisarmed"]
    assert len(schedule.fired) == 2
    (refused,) = schedule.run_now()
    assert refused.code == "not_found"


def test_a_fire_that_cannot_start_fails_with_the_reason_and_goes_on():
    schedule = Given(EVERY, problem="the stored credential $cred:gh cannot be read", max_fires=2)
    (settled,) = schedule.timer()
    assert (settled.status, settled.run_id) == ("failed", "")
    assert "$cred:gh" in schedule.state.last_error
    assert sends(schedule.state, settled) == ()
    assert names(schedule.timer()) == ["FireSettled", "ScheduleDisarmed"]


# --- versions --------------------------------------------------------------------------------------------------------


def test_an_older_version_of_the_definition_changes_nothing():
    schedule = Given(EVERY)
    assert names(schedule.arm("@hourly", def_id="def_2", revision=5)) == ["ScheduleArmed"]
    assert schedule.arm(EVERY, def_id="def_1", revision=4) == []
    assert schedule.give(DisarmSchedule(envelope=ENVELOPE, name="nightly", revision=4)) == []
    assert names(schedule.give(DisarmSchedule(envelope=ENVELOPE, name="nightly", revision=6))) == ["ScheduleDisarmed"]
    assert schedule.give(DisarmSchedule(envelope=ENVELOPE, name="nightly", revision=6)) == []
    assert schedule.arm("@hourly", def_id="def_2", revision=5) == []


def test_the_same_version_is_armed_once_and_other_options_of_the_installation_move_no_cadence():
    schedule = Given("@every 10m", max_fires=9)
    schedule.timer()
    schedule.at_ms += MINUTE
    assert schedule.arm("@every 10m", max_fires=9) == []
    again = replace(RUN, metadata={"k": "the same content is another ciphertext each time"})
    assert schedule.give(replace(schedule.command, run=again)) == []
    schedule.arm("@every 10m", max_fires=9, problem="not allowed any more")
    assert (schedule.state.next_ms, schedule.state.fires) == (START + 20 * MINUTE, 1)


def test_a_run_that_works_while_its_schedule_is_disarmed_is_settled():
    schedule = Given(EVERY)
    (fired,) = schedule.timer()
    schedule.give(DisarmSchedule(envelope=ENVELOPE, name="nightly", revision=2))
    assert names(schedule.end(fired.run_id)) == ["FireSettled"]
    assert next_timer_ms(schedule.state) == 0


def test_a_refusal_of_an_earlier_version_gives_the_new_one_no_fire():
    schedule = Given(EVERY, max_fires=2)
    (fired,) = schedule.timer()
    schedule.arm(EVERY, def_id="def_2", revision=2, max_fires=2)
    schedule.end(fired.run_id, "refused", "unknown_agent")
    assert schedule.state.fires == 0


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"times": "whenever"}, "times: expected five fields"),
        ({"times": "* " * 2_000}, "times: "),
        ({"timezone": "Mars/Base"}, "timezone: "),
        ({"overlap": "both"}, "overlap: "),
        ({"jitter_ms": -1}, "jitter_ms: "),
        ({"catch_up_max": 101}, "catch_up_max: "),
        ({"max_fires": -1}, "max_fires: "),
    ],
)
def test_what_cannot_be_armed(fields: dict[str, object], problem: str):
    schedule = Given()
    (refused,) = schedule.arm(**{"times": EVERY, **fields})  # type: ignore[arg-type]  # one of many
    assert refused.message.startswith(problem)
    assert not schedule.state.is_armed


def test_late_fires_say_so():
    schedule = Given(EVERY)
    fired = schedule.timer(START + 5 * MINUTE + 1_234)[-1]
    assert isinstance(fired, ScheduleFired)
    assert fired.late_ms == 1_234
