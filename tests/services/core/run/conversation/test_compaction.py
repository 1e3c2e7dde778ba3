from typing import Any

import pytest

from loomlog.schemas.conversation import TextBlock
from loomlog.schemas.generated.run_commands import ForkRun
from loomlog.schemas.generated.run_events import (
    CallNotBegun,
    CommandRefused,
    CompactionFailed,
    CompactionRequested,
    ContextCompacted,
    ModelCallRequested,
    RunCompleted,
    RunFailed,
    RunParked,
    RunPaused,
    RunRefused,
    RunStarted,
    ToolReturned,
)
from loomlog.schemas.generated.values import AgentDefinition, Compaction, ForkPoint, MemoryBanked, ResultDetails, Usage
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import CallsUnstarted, ForkCommand, ForkOrigin, RunTimerFired
from loomlog.services.core.run.conversation.compaction import (
    AUTO,
    MANUAL,
    SELF,
    due_compaction,
    merge_compaction,
    parse_overrides,
    policy_of,
)
from loomlog.services.core.run.conversation.compaction_split import OVERFLOW, estimate_tokens
from loomlog.services.core.run.conversation.conversation import build_conversation, used_tokens
from loomlog.services.core.run.decide import decide
from loomlog.services.core.run.evolve import evolve
from loomlog.services.core.run.lifecycle.timers import next_timer_at
from loomlog.services.core.run.react import StopCalls, Summarise
from loomlog.services.core.run.state import Absent, AwaitingModel, Compacting, Ended, IllegalEvent, Parked, Paused
from loomlog.services.core.run.subagents.children import inherit_definition
from tests.services.core.run.given import (
    DEFINITION,
    ENVELOPE,
    LONG,
    NOW,
    RUN,
    Run,
    answered,
    assert_legal,
    at_tools,
    begun,
    calls,
    cancel,
    cancelled,
    compact,
    compacting,
    completed,
    erred,
    kinds,
    not_summarised,
    obey,
    parked,
    pause,
    quarantine,
    recover,
    release,
    resume,
    returned,
    says,
    start,
    summarised,
    talked,
    wider,
)

SPENT = Usage(input_tokens=7, output_tokens=2)


def working(used: int, **wishes: Any) -> Run:
    """A run with `used` of 1000 tokens after its third turn's answer, whose one tool is under way."""
    definition = replace(DEFINITION, compaction=Compaction(**{"enabled": True, **wishes}))
    run = begun(definition, prompt=LONG)
    for turn in (1, 2, 3):
        usage = Usage(input_tokens=used if turn == 3 else 10)
        run.give(answered(run.state, LONG, *(replace(one, id=f"{turn}") for one in calls("A")), usage=usage))
        if turn < 3:
            run.give(returned(run.state, 0, "x" * 400))
    return run


# --- how full --------------------------------------------------------------------------------------------------------


def test_a_conversation_that_nobody_counts_is_estimated_with_what_the_system_says() -> None:
    run = begun(prompt="x" * 400)
    run.give(answered(run.state, "y" * 40, *calls("A"), usage=Usage()))
    options = sum(len(text) for text in run.live.facts.system)
    (prompt, answer) = run.live.facts.messages
    assert used_tokens(run.live.facts) == -(-options // 4) + estimate_tokens((prompt, answer)) > 110


def test_an_answer_without_a_count_leaves_the_last_one_and_adds_an_estimate() -> None:
    run = working(0)
    counted = 10  # by the second turn's answer, whose message is the fourth
    assert used_tokens(run.live.facts) == counted + estimate_tokens(run.live.facts.messages[4:])
    run.give(returned(run.state, 0, "x" * 3_200))
    assert isinstance(run.state, Compacting)


def test_an_answer_of_which_only_the_output_is_counted_says_nothing_of_how_full_the_context_is() -> None:
    run = begun(prompt="x" * 400)
    run.give(answered(run.state, "done", *calls("A"), usage=Usage(output_tokens=3)))
    assert used_tokens(run.live.facts) > 100


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_a_parked_run_is_compacted_and_parks_again() -> None:
    run = talked()
    before = run.live.facts
    (intent,) = run.give(compact())
    assert isinstance(intent, CompactionRequested)
    assert (intent.number, intent.attempt, intent.turn, intent.trigger) == (1, 1, 6, MANUAL)
    assert (intent.keep_n, intent.keep_first) == (4, True)
    assert (intent.provider, intent.model) == ("acme", "large")
    assert run.effects[-1] == Summarise(run_id=RUN, number=1, turn=6, attempt=1, provider="acme", model="large")
    done, after = run.give(summarised(run.state, "they talked"))
    assert isinstance(done, ContextCompacted)
    assert (done.summary, done.trigger, done.keep_n, done.keep_first) == ("they talked", MANUAL, 4, True)
    assert done.after_tokens < done.before_tokens == intent.before_tokens
    assert after == RunParked(since_turn=5)
    assert isinstance(run.state, Parked)
    facts = run.state.facts
    assert facts.messages[0].blocks[0] == before.messages[0].blocks[0]
    assert facts.messages[2:] == before.messages[-4:]
    assert_legal(facts.messages)


def test_what_memory_keeps_is_in_the_event() -> None:
    run = compacting(memory_flush=True)
    banked = MemoryBanked(pending_id="mp_1", messages=2)
    done, _ = run.give(summarised(run.state, memory_banked=banked))
    assert isinstance(done, ContextCompacted)
    assert done.memory_banked == banked
    assert policy_of(run.live.facts.definition).memory_flush


def test_the_summary_call_is_paid_by_the_run() -> None:
    run = compacting()
    before = run.live.facts
    run.give(summarised(run.state))
    facts = run.live.facts
    assert facts.usage.input_tokens == before.usage.input_tokens + 7
    assert facts.usage.output_tokens == before.usage.output_tokens + 2
    assert facts.cost_micros == before.cost_micros + 4
    assert facts.turns == before.turns  # it was no turn


def test_a_compacted_run_goes_on_with_what_is_said_next() -> None:
    run = compacting()
    run.give(summarised(run.state))
    assert kinds(run.give(says("go on"))) == ["InputReceived", "ModelCallRequested"]
    assert run.live.facts.messages[-1].blocks == (TextBlock(text="go on"),)
    assert_legal(run.live.facts.messages)


def test_what_is_said_during_a_compaction_is_answered_right_after_it() -> None:
    run = compacting()
    assert kinds(run.give(says("hurry"))) == ["InputReceived"]
    assert kinds(run.give(summarised(run.state))) == ["ContextCompacted", "ModelCallRequested"]
    assert run.live.facts.messages[-1].blocks == (TextBlock(text="hurry"),)


@pytest.mark.parametrize("make", [begun, lambda: at_tools("A"), compacting])
def test_a_run_in_the_middle_of_something_is_busy(make: Any) -> None:
    (event,) = make().give(compact())
    assert isinstance(event, CommandRefused)
    assert event.code == "run_busy"


def test_a_run_that_is_held_is_busy_because_no_model_is_called_for_it() -> None:
    run = talked()
    run.give(pause())
    (event,) = run.give(compact())
    assert isinstance(event, CommandRefused)
    assert event.code == "run_busy"
    assert "resume" in event.message


@pytest.mark.parametrize("make", [Run, completed, cancelled])
def test_what_is_not_live_is_not_compacted_itself(make: Any) -> None:
    assert make().give(compact()) == []


def test_a_short_conversation_has_nothing_to_compact() -> None:
    (event,) = parked().give(compact())
    assert isinstance(event, CommandRefused)
    assert event.code == "nothing_to_compact"


def test_a_second_compaction_without_a_word_between_has_nothing_to_do() -> None:
    run = compacting()
    run.give(summarised(run.state))
    (event,) = run.give(compact())
    assert isinstance(event, CommandRefused)
    assert event.code == "nothing_to_compact"


# --- failures --------------------------------------------------------------------------------------------------------


def test_a_failed_summary_changes_nothing_and_is_not_retried() -> None:
    run = compacting()
    before = run.live.facts
    failed, after = run.give(not_summarised(run.state))
    assert isinstance(failed, CompactionFailed)
    assert (failed.kind, failed.message, failed.trigger) == ("overloaded", "acme 529: overloaded", MANUAL)
    assert after == RunParked(since_turn=5)
    assert run.live.facts == before
    assert sum(isinstance(effect, Summarise) for effect in run.effects) == 1


@pytest.mark.parametrize(("summary", "kind"), [("", "empty"), ("x" * 20_000, "no_gain")])
def test_a_useless_summary_is_a_failure_that_was_paid(summary: str, kind: str) -> None:
    run = compacting()
    before = run.live.facts
    failed, _ = run.give(summarised(run.state, summary))
    assert isinstance(failed, CompactionFailed)
    assert failed.kind == kind
    assert run.live.facts.messages == before.messages
    assert run.live.facts.cost_micros == before.cost_micros + 4


def test_a_summary_that_was_cut_off_is_not_taken_for_a_whole_one() -> None:
    run = compacting()
    before = run.live.facts
    failed, _ = run.give(summarised(run.state, "they talked and then", is_truncated=True))
    assert isinstance(failed, CompactionFailed)
    assert failed.kind == "cut"
    assert run.live.facts.messages == before.messages
    assert run.live.facts.cost_micros == before.cost_micros + 4


def test_a_late_summary_changes_nothing() -> None:
    run = compacting()
    late = summarised(run.state)
    run.give(not_summarised(run.state))
    assert run.give(late) == []
    run.give(compact())
    assert run.give(late) == []  # of another compaction


# --- by itself -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("used", "compacts"), [(699, False), (700, True)])
def test_a_full_context_is_compacted_before_the_next_turn(used: int, compacts: bool) -> None:
    """The provider counted `used`, and the result since then is estimated: 400 characters are 100 tokens."""
    run = working(used, autocompact_at_pct=80)
    events = run.give(returned(run.state, 0, "x" * 400))
    assert kinds(events) == ["ToolReturned", "CompactionRequested" if compacts else "ModelCallRequested"]
    if compacts:
        assert isinstance(events[1], CompactionRequested)
        assert events[1].trigger == AUTO
        assert kinds(run.give(summarised(run.state))) == ["ContextCompacted", "ModelCallRequested"]
        assert_legal(run.live.facts.messages)
        assert run.live.facts.messages[-1].role == "user"


@pytest.mark.parametrize("wishes", [{"enabled": False}, {"autocompact_at_pct": 95}])
def test_a_context_is_compacted_only_when_the_definition_says_so(wishes: dict[str, Any]) -> None:
    run = working(840, **wishes)
    assert kinds(run.give(returned(run.state, 0, "x" * 400))) == ["ToolReturned", "ModelCallRequested"]


def test_a_run_compacts_by_itself_at_most_every_other_turn() -> None:
    run = working(900)
    run.give(returned(run.state, 0, "x" * 400))
    run.give(not_summarised(run.state))
    for turn, follows in ((4, "ModelCallRequested"), (5, "CompactionRequested")):
        call = replace(calls("A")[0], id=f"{turn}")
        run.give(answered(run.state, LONG, call, usage=Usage(input_tokens=950)))
        assert kinds(run.give(returned(run.state, 0))) == ["ToolReturned", follows]


def test_the_gauge_is_not_stale_after_a_compaction() -> None:
    """Lesson of the reference: the last usage says how full the context was, not how full it is."""
    run = working(900)
    run.give(returned(run.state, 0, "x" * 400))
    full = used_tokens(run.live.facts)
    assert full == 1_000
    done, _ = run.give(summarised(run.state))
    assert isinstance(done, ContextCompacted)
    assert used_tokens(run.live.facts) == full * done.after_tokens // done.before_tokens < full // 2 + full // 4


def test_texts_that_wait_count_and_join_before_the_split() -> None:
    run = working(600, autocompact_at_pct=80)
    run.give(says("y" * 400))
    assert kinds(run.give(returned(run.state, 0, "x" * 400))) == ["ToolReturned", "CompactionRequested"]
    assert run.live.facts.waiting_inputs == ()
    assert run.live.facts.messages[-1].blocks == (TextBlock(text="y" * 400),)


def test_the_window_is_not_known_before_the_first_answer() -> None:
    definition = replace(DEFINITION, compaction=Compaction(enabled=True))
    assert due_compaction(begun(definition, prompt=LONG * 100).live.facts) is None


# --- by the run itself -----------------------------------------------------------------------------------------------


def test_a_run_that_asks_for_it_is_compacted_before_its_next_turn() -> None:
    run = working(10, enabled=False)
    returned_event, intent = run.give(returned(run.state, 0, asks_compaction=True))
    assert isinstance(returned_event, ToolReturned)
    assert returned_event.details == ResultDetails(asks_compaction=True)
    assert isinstance(intent, CompactionRequested)
    assert intent.trigger == SELF
    run.give(summarised(run.state))
    assert not run.live.facts.compactions.is_requested


def test_a_wish_that_cannot_be_met_is_forgotten_at_the_next_turn() -> None:
    run = at_tools("A")
    assert kinds(run.give(returned(run.state, 0, asks_compaction=True))) == ["ToolReturned", "ModelCallRequested"]
    assert not run.live.facts.compactions.is_requested


def test_a_wish_of_one_call_waits_for_the_results_of_the_others() -> None:
    run = working(10, enabled=False)
    run.give(answered_again(run, "A", "B"))
    assert kinds(run.give(returned(run.state, 1, asks_compaction=True))) == ["ToolReturned"]
    assert kinds(run.give(returned(run.state, 0))) == ["ToolReturned", "CompactionRequested"]


def answered_again(run: Run, *names: str) -> Any:
    """The next answer, with calls, after the open call returned."""
    run.give(returned(run.state, 0))
    return answered(run.state, "", *(replace(one, id=f"z{one.id}") for one in calls(*names)))


# --- whatever else happens meanwhile ---------------------------------------------------------------------------------


def test_a_pause_lets_the_summary_be_finished_and_holds_the_turn_after_it() -> None:
    run = working(900)
    run.give(returned(run.state, 0, "x" * 400))
    run.give(pause())
    assert kinds(run.give(summarised(run.state))) == ["ContextCompacted", "RunPaused"]
    assert isinstance(run.state, Paused)
    assert kinds(run.give(resume())) == ["RunResumed", "ModelCallRequested"]


def test_a_held_run_is_compacted_only_when_it_goes_on() -> None:
    run = working(900)
    run.give(pause())
    assert kinds(run.give(returned(run.state, 0, "x" * 400))) == ["ToolReturned", "RunPaused"]
    assert kinds(run.give(resume())) == ["RunResumed", "CompactionRequested"]


def test_the_time_of_a_run_goes_on_while_it_is_compacted_and_stood_still_before() -> None:
    run = begun(interactive=True, prompt=f"task {LONG}", run_timeout_s=60)
    for number in range(4):
        run.give(answered(run.state, f"answer {number} {LONG}"))
        run.give(says(f"text {number} {LONG}"))
    run.give(answered(run.state, "and now?"))
    assert next_timer_at(run.state) == 0
    later = NOW + 600_000
    run.give(replace(compact(), at_ms=later))
    assert next_timer_at(run.state) == later + 60_000
    assert kinds(run.give(RunTimerFired(at_ms=later + 60_000))) == ["RunFailed"]
    assert run.effects[-1] == StopCalls(run_id=RUN)


def test_a_cancel_in_the_middle_stops_the_summary() -> None:
    run = compacting()
    run.give(cancel())
    assert isinstance(run.state, Ended)
    assert run.effects[-1] == StopCalls(run_id=RUN)
    assert_legal(build_conversation(run.state))


def test_a_lost_owner_gets_the_summary_made_again() -> None:
    run = compacting()
    again = run.give(recover())
    assert isinstance(again[0], CompactionRequested)
    assert (again[0].number, again[0].attempt) == (1, 2)
    assert run.effects[-1].key == ("compact", 1, 0, 2)  # type: ignore[union-attr]
    assert kinds(run.give(summarised(run.state))) == ["ContextCompacted", "RunParked"]


def test_a_summary_that_is_still_under_way_is_left_alone() -> None:
    assert compacting().give(recover(("compact", 1, 0, 1))) == []


def test_owners_are_lost_for_a_summary_only_so_often() -> None:
    run = compacting()
    for _ in range(limits.COMPACTION_LOSSES_MAX - 1):
        assert kinds(run.give(recover())) == ["CompactionRequested"]
    failed, _ = run.give(recover())
    assert isinstance(failed, CompactionFailed)
    assert failed.kind == "interrupted"


def test_a_lost_summary_of_a_run_that_is_to_pause_is_given_up() -> None:
    run = working(900)
    run.give(returned(run.state, 0, "x" * 400))
    order = replace(recover(), wide_pauses=obey("tenant"))
    assert kinds(run.give(order)) == ["RunPauseRequested", "CompactionFailed", "RunPaused"]


def test_a_summary_that_was_not_begun_is_begun_by_the_next_owner_without_a_loss() -> None:
    run = compacting()
    (event,) = run.give(CallsUnstarted(at_ms=NOW, keys=frozenset({("compact", 1, 0, 1)})))
    assert event == CallNotBegun(kind="compact", turn=1, index=0, attempt=1)
    run.give(recover())
    assert isinstance(run.state, Compacting)
    assert (run.state.attempt, run.state.losses) == (2, 0)


def test_a_quarantined_run_hears_no_summary_and_makes_it_anew_when_released() -> None:
    run = compacting()
    awaited = summarised(run.state)
    run.give(quarantine())
    assert run.give(awaited) == []
    assert kinds(run.give(release())) == ["RunReleased", "CompactionRequested"]


@pytest.mark.parametrize(
    "event",
    [
        ModelCallRequested(turn=6, attempt=1, provider="acme", model="large"),
        RunParked(since_turn=5),
        RunPaused(turn=6),
    ],
)
def test_nothing_goes_on_beside_a_summary(event: Any) -> None:
    with pytest.raises(IllegalEvent):
        evolve(compacting().state, event, NOW)


def test_calls_without_results_are_never_compacted_away() -> None:
    run = at_tools("A")
    intent = CompactionRequested(
        number=1, turn=2, trigger=AUTO, keep_n=1, keep_first=True, before_tokens=1, provider="a", model="b"
    )
    with pytest.raises(IllegalEvent):
        evolve(run.state, intent, NOW)


# --- what is said about it -------------------------------------------------------------------------------------------


def test_without_a_word_the_defaults_of_the_reference_hold() -> None:
    policy = policy_of(DEFINITION)
    assert (policy.enabled, policy.target_percentage, policy.keep_last_n) == (False, 10, 4)
    assert (policy.keep_first, policy.autocompact_at_pct) == (True, 80)
    assert policy_of(replace(DEFINITION, compaction=Compaction())) == policy


def test_a_run_overrides_its_agent_field_by_field() -> None:
    agent = Compaction(enabled=True, keep_last_n=6, provider="other", model="small", memory_flush=True)
    assert merge_compaction(agent, None) == agent
    assert merge_compaction(None, agent) == agent
    over = merge_compaction(agent, Compaction(enabled=False, autocompact_at_pct=60))
    assert over == replace(agent, enabled=False, autocompact_at_pct=60)
    other_model = merge_compaction(agent, Compaction(model="medium"))
    assert other_model is not None
    assert (other_model.provider, other_model.model) == ("", "medium")


def test_the_summary_may_be_another_models_work() -> None:
    run = talked(provider="cheap", model="small")
    (intent,) = run.give(compact())
    assert isinstance(intent, CompactionRequested)
    assert (intent.provider, intent.model) == ("cheap", "small")


# --- runs of one turn each -------------------------------------------------------------------------------------------

SHORTENS = replace(DEFINITION, compaction=Compaction(enabled=True))


def one_turn(before: Run | None = None, *, used: int = 10, prompt: str = LONG, **more: Any) -> Run:
    """A run of one turn, in the session of another."""
    run = next_run(before, prompt=prompt, **more)
    run.give(answered(run.state, f"answer {LONG}", usage=Usage(input_tokens=used)))
    return run


def next_run(
    before: Run | None, *, definition: AgentDefinition = SHORTENS, prompt: str = "next", pauses: Any = (), **more: Any
) -> Run:
    ended = before.state if before is not None else None
    assert ended is None or isinstance(ended, Ended)
    run = Run(state=Absent(run_id=RUN, history=() if ended is None else build_conversation(ended)))
    order = start(definition=definition, prompt=prompt, **more)
    run.give(replace(order, previous_facts=None if ended is None else ended.facts, pauses=pauses))
    return run


def full_session(used: int = 800) -> Run:
    """A session of three runs, with `used` of 1000 tokens."""
    return one_turn(one_turn(one_turn()), used=used)


def test_a_run_that_begins_with_a_full_context_is_compacted_before_its_first_call() -> None:
    run = next_run(full_session())
    assert kinds(run.events) == ["RunStarted", "CompactionRequested"]
    intent = run.events[1]
    assert isinstance(intent, CompactionRequested)
    assert (intent.trigger, intent.turn, intent.number) == (AUTO, 1, 1)
    assert run.effects == [Summarise(run_id=RUN, number=1, turn=1, attempt=1, provider="acme", model="large")]
    assert kinds(run.give(summarised(run.state))) == ["ContextCompacted", "ModelCallRequested"]
    assert run.live.facts.messages[-1].blocks == (TextBlock(text="next"),)
    assert_legal(run.live.facts.messages)
    assert used_tokens(run.live.facts) < 800
    run.give(answered(run.state, "done"))
    assert isinstance(run.state, Ended)


def test_what_the_session_holds_is_seen_with_what_is_said_next() -> None:
    session = full_session(used=700)
    assert kinds(next_run(session).events) == ["RunStarted", "ModelCallRequested"]
    assert kinds(next_run(session, prompt="x" * 400).events) == ["RunStarted", "CompactionRequested"]


def test_a_session_that_nobody_counts_is_compacted_by_its_estimate() -> None:
    run = one_turn(one_turn(used=0), used=0)
    assert kinds(next_run(run).events) == ["RunStarted", "ModelCallRequested"]
    assert kinds(next_run(run, prompt="x" * 2_400).events) == ["RunStarted", "CompactionRequested"]


def test_a_failed_summary_before_the_first_call_changes_nothing_and_the_call_is_made() -> None:
    run = next_run(full_session())
    before = run.live.facts.messages
    assert kinds(run.give(not_summarised(run.state))) == ["CompactionFailed", "ModelCallRequested"]
    assert run.live.facts.messages == before
    run.give(answered(run.state, "hm", *calls("A"), usage=Usage(input_tokens=900)))
    run.give(returned(run.state, 0))
    assert isinstance(run.state, AwaitingModel)  # not at the very next boundary


def test_a_run_that_begins_paused_is_compacted_when_it_goes_on() -> None:
    run = next_run(full_session(), pauses=wider("all"))
    assert kinds(run.events) == ["RunStarted", "RunPauseRequested", "RunPaused"]
    assert kinds(run.give(obey())) == ["RunResumed", "CompactionRequested"]


def test_without_the_wish_a_full_session_is_left_as_it_is() -> None:
    assert kinds(next_run(full_session(), definition=DEFINITION).events) == ["RunStarted", "ModelCallRequested"]


def test_the_window_of_another_model_says_nothing_until_the_new_one_has_answered() -> None:
    run = next_run(full_session(), definition=replace(SHORTENS, model="huge"))
    assert kinds(run.events) == ["RunStarted", "ModelCallRequested"]
    assert used_tokens(run.live.facts) >= 800


# --- a conversation that is longer than the window -------------------------------------------------------------------


def long_run(definition: AgentDefinition = DEFINITION) -> Run:
    """A run before the answer of its third turn."""
    run = begun(definition, prompt=LONG)
    for turn in (1, 2):
        run.give(answered(run.state, LONG, *(replace(one, id=f"{turn}") for one in calls("A"))))
        run.give(returned(run.state, 0, LONG * 20))
    return run


def overflowing(definition: AgentDefinition = DEFINITION) -> Run:
    """The same, whose call the provider refuses because the conversation is too long."""
    run = long_run(definition)
    run.give(erred(run.state, "context_exceeded"))
    return run


def test_a_conversation_that_is_too_long_is_compacted_and_the_turn_repeated_once() -> None:
    run = overflowing()
    assert kinds(run.events[-2:]) == ["ModelCallFailed", "CompactionRequested"]
    intent = run.events[-1]
    assert isinstance(intent, CompactionRequested)
    assert (intent.trigger, intent.turn, intent.keep_n) == (OVERFLOW, 3, 2)
    done, again = run.give(summarised(run.state))
    assert isinstance(done, ContextCompacted)
    assert isinstance(again, ModelCallRequested)
    assert (again.turn, again.attempt) == (3, 2)  # the attempts of the turn are counted on: no key is used twice
    assert isinstance(run.state, AwaitingModel)
    assert run.state.attempt == 2
    assert kinds(run.give(erred(run.state, "context_exceeded"))) == ["ModelCallFailed", "RunFailed"]


def test_each_turn_may_be_repeated_after_a_compaction() -> None:
    run = overflowing()
    run.give(summarised(run.state))
    run.give(answered(run.state, LONG, *(replace(one, id="3") for one in calls("A"))))
    run.give(returned(run.state, 0, LONG * 20))
    assert kinds(run.give(erred(run.state, "context_exceeded"))) == ["ModelCallFailed", "CompactionRequested"]


def test_a_run_whose_conversation_cannot_be_made_shorter_fails_and_says_why() -> None:
    run = overflowing()
    failed, ended = run.give(not_summarised(run.state))
    assert isinstance(failed, CompactionFailed)
    assert isinstance(ended, RunFailed)
    assert ended.code == "model_error"
    assert "longer than the model's window" in ended.error
    short = begun()
    assert kinds(short.give(erred(short.state, "context_exceeded"))) == ["ModelCallFailed", "RunFailed"]


def test_a_definition_that_switches_compactions_off_has_none_after_an_overflow() -> None:
    run = overflowing(replace(DEFINITION, compaction=Compaction(enabled=False)))
    assert kinds(run.events[-2:]) == ["ModelCallFailed", "RunFailed"]


def test_a_run_that_pauses_during_such_a_compaction_goes_on_with_the_next_attempt() -> None:
    run = overflowing()
    run.give(pause())
    assert kinds(run.give(summarised(run.state))) == ["ContextCompacted", "RunPaused"]
    again = run.give(resume())[-1]
    assert isinstance(again, ModelCallRequested)
    assert (again.turn, again.attempt) == (3, 2)


def test_a_paused_run_that_overflows_is_compacted_when_it_goes_on() -> None:
    run = long_run()
    run.give(pause())
    assert kinds(run.give(erred(run.state, "context_exceeded"))) == ["ModelCallFailed", "RunPaused"]
    run.give(resume())
    assert kinds(run.give(erred(run.state, "context_exceeded"))) == ["ModelCallFailed", "CompactionRequested"]
    again = run.give(summarised(run.state))[-1]
    assert isinstance(again, ModelCallRequested)
    assert (again.turn, again.attempt) == (3, 3)


def test_a_lost_owner_repeats_such_a_compaction_and_the_attempts_are_counted_on() -> None:
    run = overflowing()
    run.give(recover())
    again = run.give(summarised(run.state))[-1]
    assert isinstance(again, ModelCallRequested)
    assert (again.turn, again.attempt) == (3, 2)


def test_a_session_that_ended_with_a_result_that_is_too_long_can_be_compacted() -> None:
    """Three messages, the last of them results that nobody waits for."""
    run = begun()
    run.give(answered(run.state, "", *calls("A")))
    run.give(returned(run.state, 0, LONG * 2_000))
    run.give(erred(run.state, "invalid"))
    history = build_conversation(run.state)
    assert len(history) == 3
    again = seeded("compact", history)
    assert isinstance(again.state, Compacting)
    assert again.give(summarised(again.state))[-1] == RunCompleted(
        stop_reason="compacted", usage=Usage(input_tokens=7, output_tokens=2), cost_micros=4, currency="USD"
    )
    assert estimate_tokens(build_conversation(again.state)) < 200


# --- seeds -----------------------------------------------------------------------------------------------------------


def seeded(seed: str, history: Any = None, **more: Any) -> Run:
    """A seed that goes on with a session."""
    held = build_conversation(talked().state) if history is None else history
    run = Run(state=Absent(run_id=RUN, history=held))
    order = start(prompt="", session_id="s_old", seed=seed)
    run.give(replace(order, **more))
    return run


def test_a_seed_that_compacts_ends_when_the_summary_is_there() -> None:
    run = seeded("compact")
    assert kinds(run.events) == ["RunStarted", "CompactionRequested"]
    done, ended = run.give(summarised(run.state))
    assert isinstance(done, ContextCompacted)
    assert ended == RunCompleted(stop_reason="compacted", usage=SPENT, cost_micros=4, currency="USD")
    history = build_conversation(run.state)
    assert len(history) == 6
    follower = Run(state=Absent(run_id=RUN, history=history))
    follower.give(start(prompt="go on"))
    assert_legal(follower.live.facts.messages)


def test_a_seed_without_a_summary_leaves_the_conversation_as_it_was() -> None:
    run = seeded("compact")
    before = build_conversation(run.state)
    _, ended = run.give(not_summarised(run.state))
    assert isinstance(ended, RunFailed)
    assert ended.code == "compaction_failed"
    assert build_conversation(run.state) == before


def test_a_seed_that_copies_is_over_at_once_and_calls_nothing() -> None:
    run = seeded("copy")
    assert kinds(run.events) == ["RunStarted", "RunCompleted"]
    assert run.effects == []


@pytest.mark.parametrize(
    ("seed", "history", "more", "code"),
    [
        ("compact", (), {}, "empty_source"),
        ("copy", (), {}, "empty_source"),
        ("compact", build_conversation(parked().state), {}, "nothing_to_compact"),
        ("compact", None, {"pauses": wider("all")}, "runtime_paused"),
        ("compact", None, {"session_live_run": "r_other"}, "session_busy"),
        ("other", None, {}, "bad_request"),
    ],
)
def test_a_seed_that_would_be_of_no_use_is_refused(seed: str, history: Any, more: dict[str, Any], code: str) -> None:
    (event,) = seeded(seed, history, **more).events
    assert isinstance(event, RunRefused)
    assert event.code == code


def test_a_seed_for_another_agent_has_no_reasoning_and_none_of_the_texts_of_the_system() -> None:
    origin = begun(prompt="task")
    origin.give(answered(origin.state, "done", reasoning="because", reasoning_signature="signed"))
    held = build_conversation(origin.state)
    assert held[-1].reasoning == "because"
    started = next(event for event in origin.events if isinstance(event, RunStarted))
    point = ForkPoint(run_id=RUN, seq=3, digest=b"x", first_offset=0, last_offset=3)
    command = ForkRun(envelope=ENVELOPE, origin_run_id=RUN, at_seq=3, run_id="r_copy", agent="other", seed="copy")
    order = ForkCommand(
        at_ms=NOW,
        command=command,
        session_id="s_copy",
        agent_id="a_copy",
        origin=ForkOrigin(started=started, state=origin.state, point=point),
        definition=AgentDefinition(name="other", provider="b", model="c"),
    )
    run = Run(state=Absent(run_id="r_copy", history=held))
    assert kinds(run.give(order)) == ["RunStarted", "RunCompleted"]
    assert isinstance(run.state, Ended)
    assert run.state.facts.definition.name == "other"
    assert [(one.reasoning, one.reasoning_signature) for one in build_conversation(run.state)] == [("", ""), ("", "")]
    assert decide(run.state, order) == []


def test_a_run_that_was_compacted_counts_only_what_is_its_own() -> None:
    """`inherited_messages` tells tallies and comparisons where the run's own messages begin."""
    follower = Run(state=Absent(run_id=RUN, history=build_conversation(talked().state)))
    follower.give(start(prompt="next", interactive=True))
    follower.give(answered(follower.state, "done"))
    assert follower.live.facts.inherited_messages == 10
    follower.give(compact())
    follower.give(summarised(follower.state))
    facts = follower.live.facts
    assert facts.messages[facts.inherited_messages].blocks == (TextBlock(text="next"),)
    assert isinstance(follower.state, Parked)
    assert not isinstance(follower.state, AwaitingModel)


# --- children --------------------------------------------------------------------------------------------------------


def test_a_childs_compaction_is_its_own_then_its_parents_then_what_the_spawn_says() -> None:
    child = replace(DEFINITION, compaction=Compaction(enabled=True, keep_last_n=2, target_percentage=30))
    parent = replace(DEFINITION, compaction=Compaction(enabled=False, autocompact_at_pct=70))
    spawned = inherit_definition(child, parent, '{"keep_last_n": 9, "enabled": "yes", "model": "small"}')
    assert spawned.compaction == Compaction(
        enabled=False, keep_last_n=9, target_percentage=30, autocompact_at_pct=70, model="small"
    )
    assert inherit_definition(DEFINITION, DEFINITION).compaction is None


@pytest.mark.parametrize("text", ["", "no json", "[]", "[" * 100_000, "null"])
def test_wishes_that_are_none_are_not_heard(text: str) -> None:
    assert parse_overrides(text) is None
