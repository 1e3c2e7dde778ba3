"""A quarantined run stands still until it is released; one that costs its owners is quarantined by itself."""

from loomlog.schemas.generated.run_events import CommandRefused, RunCancelled, RunQuarantined, RunReleased, ToolReturned
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.react import StopCalls
from tests.services.core.run.given import (
    NOW,
    RUN,
    Run,
    answered,
    at_tools,
    begun,
    calls,
    cancel,
    completed,
    kinds,
    obey,
    parked,
    paused,
    quarantine,
    recover,
    release,
    returned,
    says,
)


def test_an_order_parks_the_run_with_its_reason_and_who_and_stops_its_calls() -> None:
    run = at_tools("A")
    assert run.give(quarantine("sends mails")) == [
        RunQuarantined(error="sends mails", record_topic="", record_offset=-1, by="someone")
    ]
    assert run.effects[-1] == StopCalls(run_id=RUN)


def test_nothing_goes_on_in_it_whatever_comes_back_or_is_asked_for() -> None:
    for run in (begun(), at_tools("A", "B"), parked(), paused()):
        before = run.state
        run.give(quarantine())
        stopped = run.state
        late = [recover(), obey("all"), says("hello")]
        if before == begun().state:
            late.append(answered(before, "the answer"))
        elif before == at_tools("A", "B").state:
            late.append(returned(before, 0))
        for order in late:
            assert run.give(order) == []
        assert run.state == stopped


def test_one_that_is_quarantined_is_not_quarantined_again() -> None:
    run = begun()
    run.give(quarantine("the first reason"))
    (refused,) = run.give(quarantine("another"))
    assert isinstance(refused, CommandRefused)
    assert refused.code == "already_quarantined"
    assert "the first reason" in refused.message
    assert kinds(begun().give(quarantine(existing_reason="offset 7: unreadable"))) == ["CommandRefused"]


def test_a_run_that_is_over_hears_neither_order() -> None:
    for order in (quarantine(), release()):
        assert completed().give(order) == []
        assert Run().give(order) == []


def test_a_release_treats_a_model_call_as_after_a_take_over() -> None:
    run = begun()
    run.give(quarantine())
    events = run.give(release("the provider is well again"))
    assert kinds(events) == ["RunReleased", "ModelCallFailed", "ModelCallRequested"]
    assert events[0] == RunReleased(by="someone", reason="the provider is well again")
    run.give(answered(run.state, "done"))
    assert kinds(run.events)[-1] == "RunCompleted"


def test_a_release_repeats_what_may_be_and_says_that_the_rest_is_unknown() -> None:
    run = at_tools("Read", "Send", classes=("read", "unsafe"))
    run.give(quarantine())
    assert kinds(run.give(release())) == ["RunReleased", "ToolCallRequested", "ToolReturned"]
    event = run.events[-1]
    assert isinstance(event, ToolReturned)
    assert event.outcome == "outcome_unknown"


def test_a_release_obeys_the_pauses_of_now() -> None:
    run = begun()
    run.give(quarantine())
    events = run.give(release(wide_pauses=obey("all")))
    assert kinds(events) == ["RunReleased", "RunPauseRequested", "ModelCallFailed", "RunPaused"]


def test_a_release_of_a_run_that_is_well_is_refused() -> None:
    (refused,) = begun().give(release())
    assert isinstance(refused, CommandRefused)
    assert refused.code == "not_quarantined"


def test_a_release_of_a_run_that_still_cannot_be_folded_quarantines_it_with_the_new_error() -> None:
    run = begun()
    run.give(quarantine("the old reason"))
    (again,) = run.give(release(error="ValueError: two replies"))
    assert again == RunQuarantined(error="ValueError: two replies", record_topic="", record_offset=-1, by="someone")
    assert run.live.facts.quarantine_error == "ValueError: two replies"


def test_a_run_whose_state_does_not_say_so_is_released_all_the_same() -> None:
    assert kinds(begun().give(release(existing_reason="offset 7: unknown schema")))[0] == "RunReleased"


def test_a_quarantined_run_can_be_ended() -> None:
    run = at_tools("A")
    run.give(quarantine())
    assert isinstance(run.give(cancel())[-1], RunCancelled)


# --- calls that end their process ------------------------------------------------------------------------------------


def crash(run: Run, number: int) -> list[str]:
    """The next owner takes over; what follows."""
    return kinds(run.give(recover(at_ms=NOW + 1_000 * number)))


def test_a_tool_that_ends_its_process_parks_the_run_also_when_the_model_asks_for_it_again_and_again() -> None:
    run = at_tools("Crash", classes=("unsafe",))
    for number in range(1, limits.LOSSES_MAX + 1):
        assert crash(run, number) == ["ToolReturned", "ModelCallRequested"]
        run.give(answered(run.state, "again", *calls("Crash"), classes=("unsafe",)))
    assert crash(run, limits.LOSSES_MAX + 1) == ["RunQuarantined"]
    assert f"{limits.LOSSES_MAX + 1} processes" in run.live.facts.quarantine_error
    assert "Crash (11.0)" in run.live.facts.quarantine_error
    assert crash(run, 99) == [], "no restart loop: nothing begins at a take-over"


def test_the_same_call_made_again_and_again_parks_the_run_too() -> None:
    run = at_tools("Crash", "Crash")
    for number in range(1, limits.LOSSES_MAX + 1):
        assert crash(run, number) == ["ToolCallRequested", "ToolCallRequested"], "two calls, one lost owner"
    assert crash(run, limits.LOSSES_MAX + 1) == ["RunQuarantined"]


def test_what_was_not_begun_or_has_an_answer_counts_as_no_loss() -> None:
    run = at_tools("A")
    for number in range(1, limits.LOSSES_MAX + 3):
        run.give(returned(run.state, 0))
        crash(run, number)  # during the model's turn
        run.give(answered(run.state, "go on", *calls("A")))
    assert run.live.facts.losses.count == 0


def test_a_release_begins_to_count_anew() -> None:
    run = at_tools("Crash")
    for number in range(1, limits.LOSSES_MAX + 2):
        crash(run, number)
    events = run.give(replace(release(), at_ms=NOW + 60_000))
    assert kinds(events) == ["RunReleased", "ToolCallRequested"]
    assert run.live.facts.losses.count == 1
