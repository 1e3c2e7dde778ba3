"""Calls that wait for channels: nothing of them is under way, and exactly one report or the time completes each."""

import pytest

from loomlog.schemas.generated.run_commands import ReportWait
from loomlog.schemas.generated.run_events import (
    CallWaiting,
    HookActed,
    ModelCallRequested,
    RunCancelled,
    RunPaused,
    ToolCallRequested,
    ToolReturned,
    WaitReported,
)
from loomlog.schemas.generated.values import ChannelUse, HookAct, ResultDetails
from loomlog.schemas.records import replace
from loomlog.services.core.canonical import StateCodec
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import RunTimerFired
from loomlog.services.core.run.evolve import evolve
from loomlog.services.core.run.lifecycle.activity import is_active, may_rest
from loomlog.services.core.run.lifecycle.fork import fork_point_error
from loomlog.services.core.run.lifecycle.timers import next_timer_at
from loomlog.services.core.run.state import AwaitingModel, Ended, Paused, State, Wait
from loomlog.services.core.run.tools.unknown_outcome import costly_call_keys, open_call_keys
from loomlog.services.core.run.tools.waits import (
    find_reported_call,
    is_satisfied,
    reported_wait,
    taken_of_lease,
)
from tests.services.core.run.asking import QUESTION, asking
from tests.services.core.run.given import (
    DEFINITION,
    NOW,
    Run,
    answered,
    at_tools,
    begun,
    calls,
    cancel,
    kinds,
    pause,
    quarantine,
    recover,
    release,
    resume,
    returned,
    start,
)
from tests.services.core.run.waiting import (
    OTHER_QUEUE,
    QUEUE,
    UNTIL,
    WAIT,
    counts,
    opened,
    reports,
    stops_turn,
    takes,
    waiting,
    waits,
)

NET = UNTIL + limits.WAIT_GRACE_MS


def wait_of(run: Run, index: int = 0) -> Wait:
    wait = opened(run, index).wait
    assert wait is not None
    return wait


def awaiting(mode: str, needed: int = 0) -> Run:
    return waiting(mode=mode, queues=(QUEUE, OTHER_QUEUE), needed=needed)


# --- the beginning ---------------------------------------------------------------------------------------------------


def test_a_tool_that_waits_leaves_its_call_open_with_what_it_waits_for() -> None:
    run = waiting()
    event = run.events[-1]
    assert isinstance(event, CallWaiting)
    assert (event.call_id, event.attempt, event.wait_id, event.until_ms) == ("c0", 1, WAIT, UNTIL)
    assert wait_of(run) == Wait(
        wait_id=WAIT, until_ms=UNTIL, queues=(QUEUE,), mode="subscribe", since_ms=NOW, counts=(0,)
    )


def test_what_hooks_did_to_the_call_comes_before_its_wait() -> None:
    run = at_tools("Channel")
    act = HookAct(hook_id="h1", owner="ops", name="guard", phase="pre", act="changed")
    assert [type(event) for event in run.give(waits(hook_acts=(act,)))] == [HookActed, CallWaiting]


@pytest.mark.parametrize("order", [waits(attempt=2), waits(1), waits(turn=2)], ids=["attempt", "call", "turn"])
def test_a_wait_of_an_attempt_that_is_not_open_changes_nothing(order: object) -> None:
    assert at_tools("Channel").give(order) == []  # type: ignore[arg-type]  # parametrize loses the type


def test_a_call_begins_to_wait_once() -> None:
    run = waiting()
    assert run.give(waits()) == []


def test_a_run_that_has_ended_waits_for_nothing() -> None:
    run = at_tools("Channel")
    run.give(cancel())
    assert run.give(waits()) == []


# --- what does not happen meanwhile ----------------------------------------------------------------------------------


def test_a_run_that_only_waits_gives_its_place_back_and_takes_it_again_with_the_result() -> None:
    run = waiting()
    assert not is_active(run.state)
    run.give(returned(run.state, 0))
    assert is_active(run.state)


def test_a_run_with_another_call_under_way_keeps_its_place() -> None:
    run = waiting("Channel", "Read")
    assert is_active(run.state)
    run.give(returned(run.state, 1))
    assert not is_active(run.state)


def test_a_run_that_waits_for_a_person_and_a_channel_gives_its_place_back() -> None:
    run = asking(QUESTION, "Channel")
    run.give(waits(1))
    assert not is_active(run.state)
    assert not may_rest(run.state), "its queue reports to it, and its state is needed then"


def test_a_wait_survives_its_owner_without_a_new_attempt() -> None:
    run = waiting("Channel", "Read")
    assert open_call_keys(run.state) == [("tool", 1, 1, 1)]
    assert costly_call_keys(run.state) == []
    [again] = run.give(recover())
    assert isinstance(again, ToolCallRequested)
    assert again.index == 1, "the other call was under way"
    assert wait_of(run).wait_id == WAIT


def test_a_run_whose_owners_are_lost_again_and_again_while_it_waits_is_not_quarantined() -> None:
    run = waiting()
    for at_ms in range(NOW, NOW + 3 * limits.LOSSES_MAX):
        assert run.give(recover(at_ms=at_ms)) == []


def test_a_call_that_was_lost_before_its_wait_was_recorded_is_made_again_and_waits_then() -> None:
    run = at_tools("Channel", classes=("idempotent",))
    [again] = run.give(recover())
    assert isinstance(again, ToolCallRequested)
    assert run.give(waits(attempt=1)) == [], "of the process that was taken for dead"
    assert kinds(run.give(waits(attempt=2))) == ["CallWaiting"]


def test_time_in_which_a_run_waits_for_channels_does_not_count() -> None:
    run = Run()
    run.give(start(definition=DEFINITION, run_timeout_s=60))
    run.give(answered(run.state, "", *calls("Channel")))
    run.give(waits())
    assert next_timer_at(run.state) == NET, "not its deadline"
    run.give(returned(run.state, 0, at_ms=NOW + 20_000))
    assert next_timer_at(run.state) == NOW + 60_000 + 20_000


def test_a_run_cannot_be_forked_while_a_call_waits() -> None:
    assert "1 of 1 tool calls" in fork_point_error(waiting().state)


def test_a_state_with_a_wait_can_be_written_down() -> None:
    codec = StateCodec(State)
    run = awaiting("at_least", 5)
    run.give(counts(2))
    run.give(returned(waiting("Channel", "Read").state, 1))
    assert codec.decode(codec.encode(run.state)) == run.state


# --- reports ---------------------------------------------------------------------------------------------------------


def test_a_result_completes_a_call_that_waits() -> None:
    run = waiting()
    done = run.give(takes(run.state, text="a message"))
    assert kinds(done) == ["ToolReturned", "ModelCallRequested"]
    assert isinstance(run.state, AwaitingModel)


def test_two_calls_of_a_turn_wait_and_each_has_its_own_result() -> None:
    run = waiting("Channel", "Channel")
    run.give(waits(1))
    assert not is_active(run.state)
    assert kinds(run.give(takes(run.state, 1))) == ["ToolReturned"]
    assert not is_active(run.state), "the first one waits still"
    assert kinds(run.give(takes(run.state, 0))) == ["ToolReturned", "ModelCallRequested"]


@pytest.mark.parametrize(
    ("mode", "needed", "reported", "satisfied"),
    [
        ("any", 0, [(QUEUE, 1)], True),
        ("any", 0, [(QUEUE, 0)], False),
        ("all", 0, [(QUEUE, 3)], False),
        ("all", 0, [(QUEUE, 3), (OTHER_QUEUE, 1)], True),
        ("at_least", 4, [(QUEUE, 3)], False),
        ("at_least", 4, [(QUEUE, 3), (OTHER_QUEUE, 1)], True),
        ("subscribe", 0, [(QUEUE, 3)], False),
    ],
)
def test_when_counts_are_enough(mode: str, needed: int, reported: list[tuple[object, int]], *, satisfied: bool) -> None:
    run = awaiting(mode, needed)
    *earlier, (last_queue, last_count) = reported
    for queue, count in earlier:
        assert kinds(run.give(counts(count, queue=queue))) == ["WaitReported"]
    report = reports(queue=last_queue, count=last_count)
    wait = reported_wait(opened(run), report)
    assert wait is not None
    assert is_satisfied(wait, report) == satisfied


def test_counts_are_recorded_for_each_queue_and_a_repeated_one_is_not() -> None:
    run = awaiting("all")
    [event] = run.give(counts(2, queue=OTHER_QUEUE))
    assert event == WaitReported(turn=1, index=0, wait_id=WAIT, queue=1, count=2)
    assert wait_of(run).counts == (0, 2)
    assert run.give(counts(2, queue=OTHER_QUEUE)) == []
    run.give(counts(3, queue=OTHER_QUEUE))
    assert wait_of(run).counts == (0, 3)


def test_a_count_survives_the_owner() -> None:
    run = awaiting("all")
    run.give(counts(2))
    run.give(recover())
    assert wait_of(run).counts == (2, 0)


def test_a_lease_is_always_enough() -> None:
    report = reports(lease_id=WAIT, positions=(4,))
    wait = reported_wait(opened(waiting()), report)
    assert wait is not None
    assert is_satisfied(wait, report)


def test_a_report_before_the_wait_is_in_the_log_completes_the_call_of_that_key() -> None:
    run = at_tools("Channel", classes=("idempotent",))
    wait = reported_wait(opened(run), reports(lease_id=WAIT, positions=(4,)))
    assert wait == Wait(wait_id=WAIT, until_ms=0, queues=(QUEUE,), mode="subscribe", counts=(0,))
    assert kinds(run.give(takes(run.state))) == ["ToolReturned", "ModelCallRequested"]
    assert run.give(waits()) == [], "the tool comes too late with its wait"


@pytest.mark.parametrize(
    "report",
    [reports(wait_id="other", lease_id="other"), reports(queue=OTHER_QUEUE, lease_id=WAIT)],
    ids=["wait", "queue"],
)
def test_a_report_of_another_wait_or_queue_is_not_for_the_call(report: ReportWait) -> None:
    assert reported_wait(opened(waiting()), report) is None
    assert run_ignores(waiting(), report)


def run_ignores(run: Run, report: ReportWait) -> bool:
    return run.give(replace(counts(), command=report)) == []


def test_a_report_of_another_key_is_not_for_a_call_that_is_under_way() -> None:
    assert reported_wait(opened(at_tools("Channel")), reports(wait_id="other", lease_id="other")) is None
    assert run_ignores(at_tools("Channel"), reports(count=1))


def test_a_report_finds_no_call_that_has_its_result() -> None:
    run = waiting("Channel", "Read")
    assert find_reported_call(run.state, reports()) is not None
    run.give(takes(run.state))
    assert find_reported_call(run.state, reports()) is None
    assert find_reported_call(run.state, reports(1)) is not None
    assert find_reported_call(begun().state, reports()) is None
    assert find_reported_call(run.state, reports(turn=2)) is None


# --- leases ----------------------------------------------------------------------------------------------------------


def test_a_run_remembers_what_it_took_also_when_it_has_ended() -> None:
    run = waiting()
    run.give(takes(run.state, taken=3))
    assert taken_of_lease(run.live.facts, WAIT) == 3
    run.give(cancel())
    assert isinstance(run.state, Ended)
    assert taken_of_lease(run.state.facts, WAIT) == 3
    assert taken_of_lease(run.state.facts, "another") == 0
    assert taken_of_lease(None, WAIT) == 0


def test_the_newest_leases_are_remembered() -> None:
    run = at_tools(*["Channel"] * 3)
    lease = takes(run.state).leases[0]
    for index, count in enumerate((limits.LEASES_KEPT, 1)):
        leases = tuple(replace(lease, lease_id=f"l{index}.{number}") for number in range(count))
        run.give(returned(run.state, index, leases=leases))
    facts = run.live.facts
    assert len(facts.leases) == limits.LEASES_KEPT
    assert taken_of_lease(facts, "l0.0") == 0
    assert taken_of_lease(facts, "l0.1") == taken_of_lease(facts, "l1.0") == 1


def test_leases_and_uses_of_channels_are_in_the_details_of_the_result() -> None:
    run = waiting()
    use = ChannelUse(kind="delivery", channel="news", scope="user", scope_id="alice", message_id="msg_1")
    order = takes(run.state, channels=(use,))
    event = run.give(order)[0]
    assert isinstance(event, ToolReturned)
    assert event.details == ResultDetails(channels=(use,), leases=order.leases)


# --- ends ------------------------------------------------------------------------------------------------------------


def test_a_run_whose_queue_never_reports_ends_the_call_itself() -> None:
    run = waiting()
    assert next_timer_at(run.state) == NET
    assert run.give(RunTimerFired(at_ms=NET - 1)) == []
    result, following = run.give(RunTimerFired(at_ms=NET))
    assert isinstance(result, ToolReturned)
    assert (result.is_error, result.outcome, result.duration_ms) == (True, "timeout", NET - NOW)
    assert "did not answer" in result.text
    assert isinstance(following, ModelCallRequested)
    assert taken_of_lease(run.live.facts, WAIT) == 0, "what the queue leased for it goes back"


def test_after_a_takeover_queues_have_their_time_to_report_from_then_on() -> None:
    run, late_ms = awaiting("all"), NET + 600_000
    run.give(counts(2))
    [event] = run.give(recover(at_ms=late_ms))
    assert isinstance(event, CallWaiting)
    assert (event.wait_id, event.until_ms, event.attempt) == (WAIT, late_ms, 1)
    assert wait_of(run) == Wait(
        wait_id=WAIT, until_ms=late_ms, queues=(QUEUE, OTHER_QUEUE), mode="all", since_ms=NOW, counts=(2, 0)
    )
    net_ms = late_ms + limits.WAIT_GRACE_MS
    assert next_timer_at(run.state) == net_ms
    assert run.give(RunTimerFired(at_ms=net_ms - 1)) == []
    assert find_reported_call(run.state, reports()) is not None
    assert kinds(run.give(RunTimerFired(at_ms=net_ms))) == ["ToolReturned", "ModelCallRequested"]


def test_a_takeover_before_the_end_of_a_wait_or_for_a_second_time_changes_nothing_of_it() -> None:
    run = waiting()
    assert run.give(recover(at_ms=UNTIL)) == []
    assert kinds(run.give(recover(at_ms=UNTIL + 1))) == ["CallWaiting"]
    assert run.give(recover(at_ms=UNTIL + 1)) == []
    assert next_timer_at(run.state) == UNTIL + 1 + limits.WAIT_GRACE_MS
    assert not is_active(run.state)


def test_the_clock_of_a_new_owner_that_is_behind_ends_no_wait_earlier() -> None:
    run = waiting()
    [again] = run.give(recover(at_ms=UNTIL + 5))
    assert isinstance(again, CallWaiting)
    assert evolve(run.state, replace(again, until_ms=UNTIL), UNTIL) == run.state


def test_only_the_call_whose_time_is_over_ends() -> None:
    run = waiting("Channel", "Channel")
    run.give(waits(1, until_ms=UNTIL + 60_000))
    assert kinds(run.give(RunTimerFired(at_ms=NET))) == ["ToolReturned"]
    assert opened(run, 1).wait is not None


def test_a_question_and_a_wait_that_are_over_at_once_both_end() -> None:
    run = asking({**QUESTION, "timeout_ms": 45_000}, "Channel")
    run.give(waits(1))
    ended = run.give(RunTimerFired(at_ms=NET))
    assert kinds(ended) == ["InterruptionClosed", "ToolReturned", "ToolReturned", "ModelCallRequested"]


def test_a_turn_that_is_cancelled_waits_for_nothing_and_its_call_had_no_effect() -> None:
    run = waiting(run=at_tools("Channel", classes=("unsafe",), interactive=True))
    result = run.give(stops_turn())[0]
    assert isinstance(result, ToolReturned)
    assert (result.text, result.outcome) == ("cancelled by operator", "cancelled")
    assert find_reported_call(run.state, reports()) is None
    assert next_timer_at(run.state) == 0


def test_a_run_that_is_cancelled_waits_for_nothing() -> None:
    run = waiting()
    assert [type(event) for event in run.give(cancel())] == [RunCancelled]
    assert run.give(counts()) == []
    assert next_timer_at(run.state) == 0


def test_a_pause_does_not_touch_a_wait_and_holds_what_follows_it() -> None:
    run = waiting()
    run.give(pause())
    assert wait_of(run).wait_id == WAIT
    assert [type(event) for event in run.give(takes(run.state))] == [ToolReturned, RunPaused]
    assert isinstance(run.state, Paused)
    assert kinds(run.give(resume())) == ["RunResumed", "ModelCallRequested"]


def test_a_quarantined_run_keeps_its_wait_and_is_completed_after_its_release() -> None:
    run = waiting()
    run.give(quarantine())
    assert run.give(takes(waiting().state)) == []
    assert run.give(RunTimerFired(at_ms=NET)) == []
    assert kinds(run.give(release())) == ["RunReleased"]
    assert kinds(run.give(takes(run.state))) == ["ToolReturned", "ModelCallRequested"]
