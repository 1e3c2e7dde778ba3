"""Sub-agents as the core decides them: plans, windows, results, patience, inheritance."""

import json
from typing import Any

import pytest

from loomlog.schemas.generated.run_commands import CloseResident
from loomlog.schemas.generated.run_events import ChildRequested, ChildReturned, RunCancelled, RunStarted, ToolReturned
from loomlog.schemas.generated.values import AgentDefinition, BlobRef, Compaction, ParentCall, Spawn, VolumeGrant
from loomlog.schemas.ids import child_run_id, partition_key
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import (
    ChildrenRequested,
    ChildReported,
    CloseCommand,
    CommandRefusal,
    RunTimerFired,
)
from loomlog.services.core.run.lifecycle.fork import fork_point_error
from loomlog.services.core.run.lifecycle.timers import next_timer_at
from loomlog.services.core.run.react import (
    CallTool,
    CancelChildren,
    EnsureChild,
    EnsureParent,
    NotifyParent,
    StopCalls,
    pending_related_effects,
)
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingModel, AwaitingTools, Ended
from loomlog.services.core.run.subagents.children import (
    INHERITED_VOLUMES,
    child_input_id,
    child_start_command,
    inherit_definition,
    last_output,
    status_for_parent,
)
from loomlog.services.core.run.subagents.delegation import DelegatedChild, Delegation
from loomlog.services.core.run.tools.unknown_outcome import open_call_keys
from tests.services.core.run.asking import stops
from tests.services.core.run.given import (
    DEFINITION,
    ENVELOPE,
    NOW,
    RUN,
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
    returned,
    start,
)

PARENT = ParentCall(run_id="r_tok", agent_id="a_tok", root_run_id="r_tok", turn=1, index=0, number=0, depth=1)


def asked(op: str = "spawn", *agents: str, **more: Any) -> ChildrenRequested:
    spawns = tuple(Spawn(agent=agent, prompt=f"do {agent}") for agent in agents)
    return ChildrenRequested(at_ms=NOW, turn=1, index=0, attempt=1, op=op, spawns=spawns, **more)


def at_agent(order: ChildrenRequested | None = None, **more: Any) -> Run:
    """A run whose first turn called Agent, and whose call was understood."""
    run = at_tools("Agent", classes=("pure",), **more)
    run.effects.clear()
    if order is not None:
        run.give(order)
    return run


def child(number: int = 0, run_id: str = RUN) -> str:
    return child_run_id(run_id, 1, 0, number)


def told(number: int = 0, status: str = "completed", text: str = "done", **more: Any) -> ChildReported:
    name = child(number)
    inputs: dict[str, Any] = {"at_ms": NOW, "child_run_id": name, "child_agent_id": f"a_{name[2:]}", "agent": "x"}
    return ChildReported(**{**inputs, "status": status, "text": text, **more})


def result_of(run: Run) -> ToolReturned:
    return next(event for event in run.events if isinstance(event, ToolReturned))


def running(run: Run) -> list[int]:
    assert isinstance(run.state, AwaitingTools)
    delegation = run.state.open[0].delegation
    assert delegation is not None
    return [one.number for one in delegation.children if one.phase == "running"]


# --- spawn -----------------------------------------------------------------------------------------------------------


def test_a_spawn_names_its_child_before_it_begins() -> None:
    run = at_agent()
    events = run.give(asked("spawn", "helper"))
    assert kinds(events) == ["ChildrenPlanned", "ChildRequested"]
    assert isinstance(events[1], ChildRequested)
    assert events[1].child_run_id == child()
    assert run.effects == [EnsureChild(run_id=RUN, turn=1, index=0, number=0, is_new=True)]


def test_the_id_of_a_child_follows_from_its_place_and_stays_in_the_partition() -> None:
    names = {child_run_id("r_tok", turn, index, number) for turn in (1, 2) for index in (0, 1) for number in (0, 1)}
    assert len(names) == 8
    assert {partition_key(name) for name in names} == {"tok"}
    assert partition_key(child_run_id(child_run_id("r_tok", 1, 0, 0), 1, 0, 0)) == "tok"


def test_the_last_words_of_a_child_are_the_result_and_the_next_turn_follows_at_once() -> None:
    run = at_agent(asked("spawn", "helper"))
    assert kinds(run.give(told(text="42"))) == ["ChildReturned", "ToolReturned", "ModelCallRequested"]
    result = result_of(run)
    assert result.text == f"[sub-agent agent_id=a_{child()[2:]}]\n42"
    assert not result.is_error
    assert isinstance(run.state, AwaitingModel)


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_child_that_fails_is_an_error_result_of_a_spawn(status: str) -> None:
    run = at_agent(asked("spawn", "helper"))
    run.give(told(status=status, text="broke"))
    assert result_of(run).is_error
    assert result_of(run).text.endswith("\nbroke")


def test_a_child_that_was_never_begun_says_only_why() -> None:
    run = at_agent(asked("spawn", "ghost"))
    run.give(told(status="refused", text="unknown agent: ghost", child_agent_id="", agent=""))
    assert (result_of(run).text, result_of(run).is_error) == ("unknown agent: ghost", True)


def test_a_plan_a_second_time_changes_nothing() -> None:
    run = at_agent(asked("spawn", "helper"))
    assert run.give(asked("spawn", "helper")) == []


def test_a_late_child_changes_nothing() -> None:
    run = at_agent(asked("spawn", "helper"))
    run.give(told())
    assert run.give(told()) == []


def test_a_result_of_the_tool_cannot_overtake_the_children() -> None:
    run = at_agent(asked("spawn", "helper"))
    assert run.give(returned(run.state, 0)) == []


# --- parallel_spawn --------------------------------------------------------------------------------------------------


def test_at_most_so_many_children_run_at_once_and_the_next_begins_when_one_returns() -> None:
    run = at_agent(asked("parallel_spawn", *"abcdef"))
    assert running(run) == [0, 1, 2, 3]
    assert kinds(run.give(told(2))) == ["ChildReturned", "ChildRequested"]
    assert running(run) == [0, 1, 3, 4]


def test_the_window_is_the_one_of_the_definition() -> None:
    run = at_agent(asked("parallel_spawn", *"abc"), definition=replace(DEFINITION, max_concurrent_children=1))
    assert running(run) == [0]


def test_results_are_in_the_order_they_were_asked_for_and_a_failed_child_fails_nothing() -> None:
    run = at_agent(asked("parallel_spawn", "a", "b", "c"))
    run.give(told(2, text="third"))
    run.give(told(0, text="first"))
    run.give(told(1, status="failed", text="broke"))
    result = result_of(run)
    assert not result.is_error
    assert json.loads(result.text) == {
        "results": [
            {"index": 0, "agent": "a", "ok": True, "output": "first", "error": ""},
            {"index": 1, "agent": "b", "ok": False, "output": "", "error": "broke"},
            {"index": 2, "agent": "c", "ok": True, "output": "third", "error": ""},
        ]
    }


def test_two_calls_of_a_turn_have_children_of_their_own() -> None:
    run = at_tools("Agent", "Agent", classes=("pure", "pure"))
    run.give(asked("spawn", "a"))
    run.give(replace(asked("spawn", "a"), index=1))
    run.give(told())
    assert isinstance(run.state, AwaitingTools)
    assert [call.index for call in run.state.open] == [1]


@pytest.mark.parametrize(
    "more",
    [
        {"text": "", "text_blob": BlobRef(sha256="0" * 64, size_bytes=9, media_type="text/plain")},
        {"text": "x" * (limits.INLINE_RESULT_BYTES + 1)},
    ],
)
def test_results_that_are_long_or_elsewhere_are_gathered_outside(more: dict[str, Any]) -> None:
    run = at_agent(asked("parallel_spawn", "a"))
    run.effects.clear()
    assert kinds(run.give(told(**more))) == ["ChildReturned"]
    assert [type(effect) for effect in run.effects] == [CallTool]
    assert kinds(run.give(returned(run.state, 0))) == ["ToolReturned", "ModelCallRequested"]


def test_encrypted_results_are_put_together_outside_unless_they_stand_alone() -> None:
    run = at_agent(asked("parallel_spawn", "a", is_sealed=True))
    assert kinds(run.give(told())) == ["ChildReturned"]
    run = at_agent(asked("spawn", "a", is_sealed=True))
    assert kinds(run.give(told())) == ["ChildReturned", "ToolReturned", "ModelCallRequested"]


# --- bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("depth", "is_refused"), [(0, False), (1, False), (2, False), (3, True)])
def test_a_tree_is_three_deep(depth: int, is_refused: bool) -> None:
    run = Run()
    run.give(replace(start(), parent=replace(PARENT, depth=depth) if depth else None))
    run.give(answered(run.state, "", *calls("Agent"), classes=("pure",)))
    run.give(asked("spawn", "helper"))
    if is_refused:
        assert "depth limit is 3" in result_of(run).text
        assert result_of(run).is_error
    else:
        assert running(run) == [0]


@pytest.mark.parametrize(("count", "is_refused"), [(1, False), (32, False), (33, True), (0, True)])
def test_a_call_has_1_to_32_spawns(count: int, is_refused: bool) -> None:
    run = at_agent(asked("parallel_spawn", *(["a"] * count)))
    assert ("ToolReturned" in kinds(run.events)) == is_refused


def test_prompts_that_would_not_fit_an_append_are_refused() -> None:
    run = at_agent()
    order = replace(asked(), spawns=(Spawn(agent="a", prompt="x" * (limits.SPAWN_BYTES_MAX + 1)),))
    run.give(order)
    assert result_of(run).is_error


def test_a_run_has_at_most_eight_resident_children() -> None:
    names = ("Agent",) * 9
    run = at_tools(*names, classes=("pure",) * 9)
    for index in range(9):
        run.give(replace(asked("open", "a"), index=index))
    assert "at most 8" in result_of(run).text
    assert len(run.live.facts.residents) == 8


# --- owners that are lost --------------------------------------------------------------------------------------------


def test_children_do_not_go_with_their_parents_owner() -> None:
    run = at_agent(asked("parallel_spawn", "a", "b"))
    assert run.give(recover()) == []
    assert run.live.facts.losses.count == 0
    assert pending_related_effects(run.state) == tuple(
        EnsureChild(run_id=RUN, turn=1, index=0, number=number, is_new=False) for number in (0, 1)
    )


def test_only_the_children_that_are_missing_are_seen_to() -> None:
    run = at_agent(asked("parallel_spawn", "a", "b", "c"))
    run.give(told(1))
    assert [effect.number for effect in pending_related_effects(run.state) if isinstance(effect, EnsureChild)] == [0, 2]


def test_a_plan_that_was_lost_is_read_again() -> None:
    run = at_agent()
    assert kinds(run.give(recover())) == ["ToolCallRequested"]


def test_gathering_that_was_lost_is_done_again() -> None:
    run = at_agent(asked("parallel_spawn", "a", is_sealed=True))
    run.give(told())
    assert open_call_keys(run.state) == [("tool", 1, 0, 1)]
    assert kinds(run.give(recover())) == ["ToolCallRequested"]
    assert [type(effect) for effect in run.effects[-1:]] == [CallTool]
    assert isinstance(run.state, AwaitingTools)
    assert run.state.open[0].delegation is not None


def test_a_run_that_is_released_looks_at_its_children() -> None:
    run = at_agent(asked("spawn", "a"))
    run.give(quarantine())
    assert run.give(told()) == []
    run.effects.clear()
    run.give(release())
    assert EnsureChild(run_id=RUN, turn=1, index=0, number=0, is_new=False) in run.effects


def test_a_pause_of_the_parent_lets_its_children_finish() -> None:
    run = at_agent(asked("spawn", "a"))
    run.give(pause())
    assert kinds(run.give(told())) == ["ChildReturned", "ToolReturned", "RunPaused"]


def test_a_fan_out_under_way_cannot_be_forked() -> None:
    assert fork_point_error(at_agent(asked("spawn", "a")).state)


# --- ends ------------------------------------------------------------------------------------------------------------


def as_child(**more: Any) -> Run:
    run = Run()
    run.give(replace(start(interactive=bool(more.get("is_resident"))), parent=replace(PARENT, **more)))
    return run


def test_a_child_tells_its_parent_how_it_ended() -> None:
    run = as_child()
    run.give(answered(run.state, "bye"))
    assert run.effects[-1] == NotifyParent(run_id=RUN)
    run = as_child()
    run.give(cancel())
    assert run.effects[-2:] == [StopCalls(run_id=RUN), NotifyParent(run_id=RUN)]


def test_the_end_of_a_parent_ends_its_children_and_a_run_without_children_asks_nothing() -> None:
    run = at_agent(asked("spawn", "a"))
    run.give(replace(cancel(), cascaded=("a_tok-1",)))
    assert run.effects[-2:] == [StopCalls(run_id=RUN), CancelChildren(run_id=RUN)]
    assert isinstance(run.events[-1], RunCancelled)
    assert run.events[-1].cascaded == ("a_tok-1",)
    run = begun()
    run.give(cancel())
    assert run.effects[-1:] == [StopCalls(run_id=RUN)]


def test_a_child_that_is_found_live_is_compared_with_its_parent() -> None:
    assert pending_related_effects(as_child().state) == (EnsureParent(run_id=RUN),)
    assert pending_related_effects(begun().state) == ()


@pytest.mark.parametrize(
    ("finish", "status", "words"),
    [
        (lambda run: run.give(answered(run.state, "bye")), "completed", "bye"),
        (lambda run: run.give(cancel("enough")), "cancelled", "enough"),
        (lambda run: None, "running", ""),
    ],
)
def test_how_a_run_stands_for_its_parent(finish: Any, status: str, words: str) -> None:
    run = as_child()
    finish(run)
    assert (status_for_parent(run.state), last_output(run.state)) == (status, (words, None))


# --- resident children -----------------------------------------------------------------------------------------------


def opened(**more: Any) -> Run:
    """A run that has opened a resident child, which stands still; it is in its second turn and calls Agent again."""
    run = at_agent(asked("open", "a", idle_ttl_s=60), **more)
    run.give(told(status="awaiting_input", text="hello"))
    run.give(answered(run.state, "", *calls("Agent"), classes=("pure",)))
    run.effects.clear()
    return run


def wants(op: str, **more: Any) -> ChildrenRequested:
    return ChildrenRequested(at_ms=NOW, turn=2, index=0, attempt=1, op=op, child_run_id=child(), **more)


def test_a_child_that_is_opened_answers_when_it_stands_still() -> None:
    run = at_agent(asked("open", "a"))
    assert kinds(run.give(told(status="awaiting_input", text="hello"))) == [
        "ChildReturned",
        "ToolReturned",
        "ModelCallRequested",
    ]
    assert json.loads(result_of(run).text) == {"child_run_id": child(), "state": "awaiting_input", "output": "hello"}
    assert run.live.facts.residents == (child(),)


def test_a_text_is_answered_by_a_child_that_has_heard_it() -> None:
    run = opened()
    run.give(wants("send", prompt="more"))
    assert run.effects == [EnsureChild(run_id=RUN, turn=2, index=0, number=0, is_new=True)]
    assert run.give(told(status="awaiting_input", text="of before")) == []
    assert "ToolReturned" in kinds(
        run.give(told(status="awaiting_input", received_input_ids=(child_input_id(RUN, 2, 0),)))
    )


def sending(*, first: str = "send", **more: Any) -> Run:
    """A run that calls Agent twice in its second turn: `first`, and then a text for the same resident child."""
    run = at_agent(asked("open", "a"))
    run.give(told(status="awaiting_input", text="hello"))
    run.give(answered(run.state, "", *calls("Agent", "Agent"), classes=("pure", "pure")))
    run.give(wants(first, prompt="one", **more))
    run.effects.clear()
    return run


def heard(*indexes: int, text: str = "", **more: Any) -> ChildReported:
    """The child stands still after these texts."""
    return told(
        status="awaiting_input",
        text=text,
        received_input_ids=tuple(child_input_id(RUN, 2, index) for index in indexes),
        **more,
    )


def outputs(run: Run) -> list[tuple[int, str]]:
    """Index and output of the results of the second turn, in the order they came in."""
    events = [event for event in run.events if isinstance(event, ToolReturned) and event.turn == 2]
    return [(event.index, json.loads(event.text)["output"]) for event in events]


def test_a_second_text_of_a_turn_waits_until_the_child_has_answered_the_first() -> None:
    run = sending()
    assert kinds(run.give(replace(wants("send", prompt="two"), index=1))) == ["ChildrenPlanned"]
    assert run.effects == []
    assert kinds(run.give(heard(0, text="of one"))) == ["ChildReturned", "ToolReturned", "ChildRequested"]
    assert run.effects == [EnsureChild(run_id=RUN, turn=2, index=1, number=0, is_new=True)]
    assert run.give(heard(0, text="of one")) == []
    assert kinds(run.give(heard(0, 1, text="of two"))) == ["ChildReturned", "ToolReturned", "ModelCallRequested"]
    assert outputs(run) == [(0, "of one"), (1, "of two")]


def test_of_three_texts_of_a_turn_each_waits_for_the_one_before_it() -> None:
    run = at_agent(asked("open", "a"))
    run.give(told(status="awaiting_input", text="hello"))
    run.give(answered(run.state, "", *calls("Agent", "Agent", "Agent"), classes=("pure",) * 3))
    for index in range(3):
        run.give(replace(wants("send", prompt=str(index)), index=index))
    for index in range(3):
        requests = [event for event in run.events if isinstance(event, ChildRequested) and event.turn == 2]
        assert [event.index for event in requests] == [*range(index + 1)]
        run.give(heard(*range(index + 1), text=f"of {index}"))
    assert outputs(run) == [(0, "of 0"), (1, "of 1"), (2, "of 2")]


def test_the_next_text_goes_out_though_the_first_answer_has_to_be_fetched() -> None:
    run = sending()
    run.give(replace(wants("send", prompt="two"), index=1))
    run.give(heard(0, text="x" * (limits.INLINE_RESULT_BYTES + 1)))
    assert [type(effect) for effect in run.effects] == [CallTool, EnsureChild]


def test_the_next_text_goes_out_when_the_patience_with_the_first_is_over() -> None:
    run = sending(timeout_ms=500)
    run.give(replace(wants("send", prompt="two"), index=1))
    assert kinds(run.give(RunTimerFired(at_ms=NOW + 500))) == ["ChildRequested"]
    assert kinds(run.give(told(status="running", text="so far"))) == ["ChildReturned", "ToolReturned", "ChildRequested"]


@pytest.mark.parametrize("first", ["poll", "cancel"])
def test_a_text_waits_for_no_call_that_sends_none(first: str) -> None:
    run = sending(first=first)
    assert kinds(run.give(replace(wants("send", prompt="two"), index=1))) == ["ChildrenPlanned", "ChildRequested"]


def test_a_text_for_another_child_waits_for_nobody() -> None:
    run = sending()
    other = replace(wants("send", prompt="two"), index=1, child_run_id=child(7))
    assert kinds(run.give(other)) == ["ChildrenPlanned", "ChildRequested"]


def test_after_a_lost_owner_only_the_text_that_is_under_way_is_seen_to() -> None:
    run = sending()
    run.give(replace(wants("send", prompt="two"), index=1))
    assert run.give(recover()) == []
    assert pending_related_effects(run.state) == (EnsureChild(run_id=RUN, turn=2, index=0, number=0, is_new=False),)


def test_patience_that_is_over_asks_how_the_child_stands() -> None:
    run = opened()
    run.give(wants("send", prompt="more", timeout_ms=500))
    assert next_timer_at(run.state) == NOW + 500
    assert run.give(RunTimerFired(at_ms=NOW + 499)) == []
    assert kinds(run.give(RunTimerFired(at_ms=NOW + 500))) == ["ChildRequested"]
    assert next_timer_at(run.state) == 0
    run.give(told(status="running", text="so far"))
    assert json.loads(run.events[-2].text if isinstance(run.events[-2], ToolReturned) else "") == {
        "child_run_id": child(),
        "state": "running",
        "output": "so far",
    }


def test_a_poll_without_patience_looks_once() -> None:
    run = opened()
    run.give(wants("poll"))
    assert "ToolReturned" in kinds(run.give(told(status="running")))


@pytest.mark.parametrize("status", ["closed", "completed", "failed", "cancelled"])
def test_a_text_for_a_child_that_is_over_is_not_delivered_and_that_is_an_error(status: str) -> None:
    run = opened()
    run.give(wants("send", prompt="more"))
    run.give(told(status=status, text="ok hi"))
    result = run.events[-2]
    assert isinstance(result, ToolReturned)
    assert (result.is_error, result.outcome) == (True, "error")
    assert result.text.startswith(f"not delivered: the sub-agent {child()} is over ({status}")
    assert run.live.facts.residents == ()


def test_a_failed_child_that_could_not_be_sent_a_text_says_why_and_one_that_is_closed_says_no_old_answer() -> None:
    actual = {}
    for status in ("failed", "closed"):
        run = opened()
        run.give(wants("send", prompt="more"))
        run.give(told(status=status, text="the last words"))
        result = run.events[-2]
        assert isinstance(result, ToolReturned)
        actual[status] = "the last words" in result.text
    assert actual == {"failed": True, "closed": False}


def test_the_answer_of_a_child_that_was_closed_after_it_is_the_result() -> None:
    run = opened()
    run.give(wants("send", prompt="more"))
    run.give(told(status="closed", text="ok more", received_input_ids=(child_input_id(RUN, 2, 0),)))
    result = run.events[-2]
    assert isinstance(result, ToolReturned)
    assert not result.is_error
    assert json.loads(result.text) == {"child_run_id": child(), "state": "closed", "output": "ok more"}


def test_a_close_waits_for_the_end() -> None:
    run = opened()
    run.give(wants("close"))
    assert run.give(told(status="awaiting_input")) == []
    run.give(told(status="closed", text=""))
    assert run.live.facts.residents == ()


def test_a_resident_that_leaves_by_itself_makes_room() -> None:
    run = opened()
    assert kinds(run.give(told(status="closed"))) == ["ResidentLeft"]
    assert run.live.facts.residents == ()


@pytest.mark.parametrize("is_sealed", [False, True])
def test_an_open_that_is_stopped_has_opened_nothing(is_sealed: bool) -> None:
    """The model was not told of the child. A sealed result has to be gathered after the child stands still."""
    run = opened(interactive=True)
    second = child_run_id(RUN, 2, 0, 0)
    run.give(replace(asked("open", "a", is_sealed=is_sealed), turn=2))
    assert run.live.facts.residents == (child(), second)
    if is_sealed:
        assert kinds(run.give(replace(told(status="awaiting_input"), child_run_id=second))) == ["ChildReturned"]
    run.give(stops(run))
    assert CancelChildren(run_id=RUN) in run.effects
    assert run.live.facts.residents == (child(),)


@pytest.mark.parametrize("op", ["send", "poll", "close"])
def test_a_resident_stays_when_a_call_that_asks_it_is_stopped(op: str) -> None:
    run = opened(interactive=True)
    run.give(wants(op, prompt="more", timeout_ms=500))
    run.give(stops(run))
    assert run.live.facts.residents == (child(),)


def test_a_resident_that_can_take_no_further_text_stays() -> None:
    run = opened()
    run.give(wants("send", prompt="more"))
    assert "ToolReturned" in kinds(run.give(told(status="refused", text="it has too many texts to answer")))
    assert run.live.facts.residents == (child(),)


def test_a_child_whose_opening_takes_longer_than_the_patience_counts_once() -> None:
    run = at_agent(asked("open", "a", timeout_ms=500))
    run.give(RunTimerFired(at_ms=NOW + 500))
    run.give(told(status="running"))
    assert result_of(run).outcome == "ok"
    assert (run.live.facts.residents, run.live.facts.spawned) == ((child(),), 1)


def test_an_idle_resident_closes() -> None:
    run = as_child(is_resident=True, idle_ttl_s=60)
    run.give(answered(run.state, "hello"))
    assert run.effects[-1] == NotifyParent(run_id=RUN)
    assert next_timer_at(run.state) == NOW + 60_000
    assert run.give(RunTimerFired(at_ms=NOW + 59_999)) == []
    run.give(RunTimerFired(at_ms=NOW + 60_000))
    assert isinstance(run.state, Ended)
    assert (run.state.status, status_for_parent(run.state)) == ("completed", "closed")


def test_a_resident_is_closed_wherever_it_stands_and_another_run_is_not() -> None:
    order = CloseCommand(at_ms=NOW, command=CloseResident(envelope=ENVELOPE, run_id=RUN))
    run = as_child(is_resident=True)
    run.give(order)
    assert status_for_parent(run.state) == "closed"
    run = as_child()
    assert kinds(run.give(order)) == ["CommandRefused"]


# --- inheritance: reference runtime 1.17 as a table ------------------------------------------------------------------

CHILD_DEFINITION = AgentDefinition(
    name="worker",
    provider="other",
    model="small",
    tools=("Write",),
    max_tokens=7,
    max_iterations=3,
    volumes=(
        VolumeGrant(name="both", mode="rw"),
        VolumeGrant(name="read", mode="rw"),
        VolumeGrant(name="mine", mode="rw"),
    ),
)
PARENT_DEFINITION = replace(
    DEFINITION, volumes=(VolumeGrant(name="both", mode="rw"), VolumeGrant(name="read", mode="ro"))
)


def parent_facts() -> RunFacts:
    run = begun(
        definition=PARENT_DEFINITION,
        user_id="u1",
        user_tier="gold",
        allowed_hosts=("example.org",),
        parent_context={"function_key": "f"},
        metadata={"secret-free": '"m"'},
        operator_key_restricted=True,
        on_complete=('{"type": "http"}',),
        trigger="schedule:t/nightly",
    )
    return run.live.facts


def child_start(definition: AgentDefinition | CommandRefusal = CHILD_DEFINITION, op: str = "spawn") -> Any:
    one = DelegatedChild(
        number=2, spawn=Spawn(agent="worker", prompt="go"), run_id=child(2), agent_id=f"a_{child(2)[2:]}"
    )
    return child_start_command(
        parent_facts(),
        tenant="t",
        turn=3,
        index=1,
        plan=Delegation(op=op, children=(one,), idle_ttl_s=9),
        child=one,
        definition=definition,
        pauses=(),
        at_ms=NOW,
    )


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("tenant", "t"),
        ("subject", "someone"),
        ("user_id", "u1"),
        ("user_tier", "gold"),
        ("allowed_hosts", ("example.org",)),
        ("parent_context", {"function_key": "f"}),
        ("operator_key_restricted", True),
    ],
)
def test_what_a_child_inherits_unchanged(what: str, value: object) -> None:
    command = child_start().command
    places = [place for place in (command, command.envelope, command.options) if hasattr(place, what)]
    assert [getattr(place, what) for place in places] == [value]


@pytest.mark.parametrize("what", ["provider", "model", "tools", "max_tokens", "max_iterations", "sampling", "name"])
def test_what_a_child_has_of_its_own_definition(what: str) -> None:
    assert getattr(child_start().definition, what) == getattr(CHILD_DEFINITION, what)


def test_what_a_child_has_of_its_own() -> None:
    order = child_start()
    assert order.session_id == f"s_{child(2)[2:]}"
    assert order.agent_id == f"a_{child(2)[2:]}"
    assert not order.command.options.metadata
    assert not order.command.options.on_complete, "what is to happen at its parent's end does not happen twice"
    assert not order.command.options.trigger
    assert not order.command.options.interactive
    assert child_start(op="open").command.options.interactive


def test_volumes_only_ever_narrow() -> None:
    assert inherit_definition(CHILD_DEFINITION, PARENT_DEFINITION).volumes == (
        VolumeGrant(name="both", mode="rw"),
        VolumeGrant(name="read", mode="ro"),
    )


def test_a_child_without_volumes_has_its_parents() -> None:
    assert inherit_definition(replace(CHILD_DEFINITION, volumes=INHERITED_VOLUMES), PARENT_DEFINITION).volumes == (
        PARENT_DEFINITION.volumes
    )
    none = replace(PARENT_DEFINITION, volumes=())
    for volumes in (INHERITED_VOLUMES, CHILD_DEFINITION.volumes):
        assert inherit_definition(replace(CHILD_DEFINITION, volumes=volumes), none).volumes == ()
    assert inherit_definition(replace(CHILD_DEFINITION, volumes=()), PARENT_DEFINITION).volumes == ()


def test_a_child_knows_its_place_in_the_tree() -> None:
    run = Run()
    run.give(child_start())
    assert isinstance(run.events[0], RunStarted)
    assert run.events[0].parent_agent_id == "a_tok"
    assert run.events[0].parent == ParentCall(
        run_id=RUN, agent_id="a_tok", root_run_id=RUN, turn=3, index=1, number=2, depth=1
    )


def test_every_child_returns_under_its_own_number() -> None:
    run = at_agent(asked("parallel_spawn", "a", "b"))
    run.give(told(1))
    run.give(told(0))
    actual = [(event.number, event.child_run_id) for event in run.events if isinstance(event, ChildReturned)]
    assert actual == [(1, child(1)), (0, child(0))]


def test_compaction_is_the_childs_under_the_parents_under_the_wish_of_the_spawn() -> None:
    own = replace(CHILD_DEFINITION, compaction=Compaction(keep_last_n=1, target_percentage=11, autocompact_at_pct=51))
    theirs = replace(PARENT_DEFINITION, compaction=Compaction(keep_last_n=2, target_percentage=12))
    compaction = inherit_definition(own, theirs, '{"keep_last_n": 3}').compaction
    assert compaction is not None
    assert (compaction.keep_last_n, compaction.target_percentage, compaction.autocompact_at_pct) == (3, 12, 51)
