"""Questions to people: asked, answered, declined, expired, taken back, and what becomes of the turn."""

import json
from typing import Any

import pytest

from loomlog.schemas.generated.run_events import (
    CommandRefused,
    InterruptionClosed,
    InterruptionOpened,
    ModelCallRequested,
    PersonNotified,
    ToolReturned,
)
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import RunCommand, RunTimerFired
from loomlog.services.core.run.interrupts.interruptions import answer_error, interrupt_id_for, parse_request
from loomlog.services.core.run.lifecycle.timers import next_timer_at
from loomlog.services.core.run.react import CallModel
from loomlog.services.core.run.state import AwaitingModel, AwaitingTools, Ended, Paused
from loomlog.services.core.run.tools.unknown_outcome import open_call_keys
from tests.services.core.run.asking import ASKER, QUESTION, TERMS, asking, question, responds, results, turn, waiting
from tests.services.core.run.given import (
    DEFINITION,
    NOW,
    RUN,
    Run,
    begun,
    cancel,
    kinds,
    pause,
    quarantine,
    recover,
    release,
    resume,
    returned,
)


def test_a_question_is_opened_with_the_answer_of_the_model_and_nothing_is_called() -> None:
    run = asking({**QUESTION, "context": "c", "priority": "high", "timeout_ms": 800})
    assert kinds(run.events[-2:]) == ["ModelReplied", "InterruptionOpened"]
    opened = run.events[-1]
    assert isinstance(opened, InterruptionOpened)
    assert (opened.kind, opened.question, opened.options) == ("question", "Shall I?", ("yes", "no"))
    assert (opened.context, opened.priority, opened.expires_at_ms) == ("c", "high", NOW + 800)
    assert [type(effect) for effect in run.effects] == [CallModel]
    assert open_call_keys(run.state) == []


def test_the_id_is_that_of_its_place_and_in_the_known_form() -> None:
    assert waiting(asking()) == [interrupt_id_for(RUN, 1, 0)]
    assert interrupt_id_for(RUN, 1, 0).startswith("intr_")
    assert len(interrupt_id_for(RUN, 1, 0)) == len("intr_") + 24
    assert (
        len(
            {
                interrupt_id_for(RUN, 1, 0),
                interrupt_id_for(RUN, 1, 1),
                interrupt_id_for(RUN, 2, 0),
                interrupt_id_for("r_other", 1, 0),
            }
        )
        == 4
    )


def test_an_answer_ends_it_with_the_result_and_the_next_call_in_one_decision() -> None:
    run = asking()
    events = run.give(responds("yes", resolved_by="Ada"))
    assert kinds(events) == ["InterruptionClosed", "ToolReturned", "ModelCallRequested"]
    closed, result, _ = events
    assert isinstance(closed, InterruptionClosed)
    assert (closed.status, closed.answer, closed.resolved_by, closed.by) == ("resolved", "yes", "Ada", "someone")
    assert isinstance(result, ToolReturned)
    assert not result.is_error
    assert json.loads(result.text) == {
        "interrupt_id": question(),
        "answer": "yes",
        "resolved_at": "2023-11-14T22:13:20.000Z",
        "resolved_by": "Ada",
    }


def test_whoever_sends_the_answer_is_named_when_nobody_else_is() -> None:
    [closed, *_] = asking().give(responds())
    assert isinstance(closed, InterruptionClosed)
    assert closed.resolved_by == "someone"


def test_a_declined_question_is_no_error_for_the_model() -> None:
    run = asking()
    events = run.give(responds("", disposition="declined", resolved_by="Ada"))
    assert kinds(events) == ["InterruptionClosed", "ToolReturned", "ModelCallRequested"]
    [result] = results(run)
    assert (result.is_error, result.outcome) == (False, "ok")
    options = json.loads(result.text)
    assert options["declined"] is True
    assert (options["interrupt_id"], options["resolved_by"]) == (question(), "Ada")
    assert options["note"]


def test_a_question_times_out_with_an_error_at_its_alarm() -> None:
    run = asking({**QUESTION, "timeout_ms": 800})
    assert next_timer_at(run.state) == NOW + 800
    assert run.give(RunTimerFired(at_ms=NOW + 799)) == []
    events = run.give(RunTimerFired(at_ms=NOW + 800))
    assert kinds(events) == ["InterruptionClosed", "ToolReturned", "ModelCallRequested"]
    assert (results(run)[0].is_error, results(run)[0].outcome) == (True, "timeout")
    assert isinstance(events[0], InterruptionClosed)
    assert events[0].status == "timed_out"


def test_an_answer_that_comes_after_the_time_but_before_the_alarm_is_too_late() -> None:
    run = asking({**QUESTION, "timeout_ms": 800})
    [closed, *_] = run.give(responds(at_ms=NOW + 800))
    assert isinstance(closed, InterruptionClosed)
    assert (closed.status, closed.answer) == ("timed_out", "")
    assert run.give(RunTimerFired(at_ms=NOW + 800)) == []


@pytest.mark.parametrize(
    ("ended_by", "code"),
    [
        (responds(), "interrupt_closed"),
        (responds("", disposition="declined"), "interrupt_closed"),
        (RunTimerFired(at_ms=NOW + 60_000), "interrupt_expired"),
    ],
)
def test_a_second_answer_is_refused_and_says_why(ended_by: RunCommand, code: str) -> None:
    run = asking()
    run.give(ended_by)
    before = run.state
    [refusal] = run.give(responds("no", command_id="a2"))
    assert isinstance(refusal, CommandRefused)
    assert refusal.code == code
    assert run.state == before


def test_the_same_answer_sent_again_changes_nothing_and_is_not_refused() -> None:
    run = asking()
    run.give(responds(command_id="a1"))
    assert run.give(responds(command_id="a1")) == []


def test_an_answer_that_was_not_offered_is_refused_and_the_question_waits_on() -> None:
    run = asking()
    [refusal] = run.give(responds("maybe", problem=answer_error("maybe", ("yes", "no"))))
    assert isinstance(refusal, CommandRefused)
    assert refusal.code == "invalid_answer"
    assert waiting(run) == [question()]


@pytest.mark.parametrize(
    ("answer", "options", "is_fine"),
    [
        ("yes", ("yes", "no"), True),
        ("Yes", ("yes", "no"), False),
        ("", ("yes", "no"), False),
        ("", (), False),
        ("Ada Lovelace", (), True),
        ("a" * limits.ANSWER_CHARACTERS_MAX, (), True),
        ("a" * (limits.ANSWER_CHARACTERS_MAX + 1), (), False),
    ],
)
def test_which_answers_can_be_taken(answer: str, options: tuple[str, ...], is_fine: bool) -> None:
    assert (answer_error(answer, options) == "") is is_fine


@pytest.mark.parametrize("run", [asking(), begun(), asking({"op": "notify", "question": "so"})])
def test_an_answer_to_a_question_the_run_never_asked_is_refused(run: Run) -> None:
    [refusal] = run.give(responds(to="intr_other"))
    assert isinstance(refusal, CommandRefused)
    assert refusal.code == "not_found"


def test_an_answer_to_a_run_that_is_over_changes_nothing() -> None:
    run = asking()
    run.give(cancel())
    assert run.give(responds()) == []


def test_several_questions_and_another_tool_wait_beside_each_other_and_keep_their_order() -> None:
    run = asking({**QUESTION, "question": "first?"}, "Read", {"op": "ask", "question": "second?"})
    assert waiting(run) == [question(0), question(2)]
    run.give(responds("b", to=question(2), command_id="a1"))
    run.give(returned(run.state, 1))
    events = run.give(responds("yes", to=question(0), command_id="a2"))
    assert kinds(events)[-1] == "ModelCallRequested"
    assert [result.index for result in results(run)] == [2, 1, 0]
    blocks = run.live.facts.messages[-1].blocks
    assert [getattr(block, "tool_use_id", "") for block in blocks] == ["c0", "c1", "c2"]


def test_no_more_questions_wait_at_once_than_the_agent_may_ask() -> None:
    run = asking(*[{"op": "ask", "question": f"{at}?"} for at in range(TERMS.max_pending + 1)])
    assert len(waiting(run)) == TERMS.max_pending
    [refused] = results(run)
    assert refused.is_error
    assert "3 questions" in refused.text


def test_the_next_turn_may_ask_again_when_the_questions_of_the_last_have_ended() -> None:
    run = asking()
    run.give(responds())
    turn(run, QUESTION)
    assert waiting(run) == [question(0, at_turn=2)]


# --- what may not be asked -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ({}, "op"),
        ({"op": "shout"}, "op"),
        ({"op": "ask"}, "question"),
        ({"op": "ask", "question": "  "}, "question"),
        ({"op": "ask", "question": 7}, "question"),
        ({"op": "ask", "question": "q", "kind": "vote"}, "kind"),
        ({"op": "ask", "question": "q", "options": "yes"}, "options"),
        ({"op": "ask", "question": "q", "options": ["yes", ""]}, "options"),
        ({"op": "ask", "question": "q", "options": ["yes", "yes"]}, "twice"),
        ({"op": "ask", "question": "q", "options": [str(n) for n in range(limits.OPTIONS_MAX + 1)]}, "20"),
        ({"op": "ask", "question": "q", "options": ["o" * (limits.OPTION_CHARACTERS_MAX + 1)]}, "500"),
        ({"op": "ask", "question": "q" * (limits.QUESTION_CHARACTERS_MAX + 1)}, "8000"),
        ({"op": "ask", "question": "q", "context": "c" * (limits.CONTEXT_CHARACTERS_MAX + 1)}, "32000"),
        ({"op": "ask", "question": "q", "priority": "urgent"}, "priority"),
        ({"op": "ask", "question": "q", "timeout_ms": -1}, "timeout_ms"),
        ({"op": "ask", "question": "q", "timeout_ms": 1.5}, "timeout_ms"),
        ({"op": "ask", "question": "q", "timeout_ms": True}, "timeout_ms"),
        ({"op": "ask", "question": "q", "timeout_ms": 1 << 60}, "timeout_ms"),
        ({"op": "ask", "question": "q", "timeout_ms": TERMS.max_timeout_ms + 1}, "600000"),
        ({"op": "ask", "question": "q", "deadline": 5}, "deadline"),
        ({"op": "notify"}, "question"),
        ({"op": "notify", "question": "q", "options": ["a"]}, "options"),
        ({"op": "cancel"}, "interrupt_id"),
    ],
)
def test_a_call_that_makes_no_sense_is_told_so_and_the_turn_goes_on(call: dict[str, Any], says: str) -> None:
    run = asking(call)
    [result] = results(run)
    assert result.is_error
    assert says in result.text
    assert isinstance(run.state, AwaitingModel)
    assert run.state.turn == 2


@pytest.mark.parametrize("text", ["", "[]", "{", '{"op":"ask","question":"q","timeout_ms":Infinity}', "nul"])
def test_arguments_nobody_can_read_are_a_problem_and_no_crash(text: str) -> None:
    assert parse_request(0, text).problem


def test_null_and_zero_mean_that_nothing_was_given() -> None:
    wish = parse_request(0, '{"op":"ask","question":"q","options":null,"timeout_ms":0,"priority":null}')
    assert (wish.problem, wish.options, wish.timeout_ms, wish.priority) == ("", (), 0, "normal")
    [*_, opened] = asking({"op": "ask", "question": "q", "timeout_ms": 0}).events
    assert isinstance(opened, InterruptionOpened)
    assert opened.expires_at_ms == NOW + TERMS.default_timeout_ms


@pytest.mark.parametrize("terms", [None, replace(TERMS, enabled=False)])
@pytest.mark.parametrize("op", ["ask", "notify"])
def test_an_agent_without_the_right_asks_nobody(terms: Any, op: str) -> None:
    run = asking({"op": op, "question": "q"}, definition=replace(DEFINITION, interruption=terms))
    [result] = results(run)
    assert result.is_error
    assert "may not interrupt" in result.text


# --- notify and cancel -----------------------------------------------------------------------------------------------


def test_a_notice_is_delivered_and_the_run_goes_on_at_once() -> None:
    run = asking({"op": "notify", "message": "Half done.", "priority": "low"})
    assert kinds(run.events[-4:]) == ["ModelReplied", "PersonNotified", "ToolReturned", "ModelCallRequested"]
    event = run.events[-3]
    assert isinstance(event, PersonNotified)
    assert (event.message, event.priority, event.interrupt_id) == ("Half done.", "low", question())
    assert json.loads(results(run)[0].text) == {"interrupt_id": question(), "status": "delivered"}


def test_a_run_takes_its_own_question_back() -> None:
    run = asking(QUESTION, {"op": "cancel", "interrupt_id": question(0)})
    assert waiting(run) == []
    asked, taken_back = results(run)
    assert (asked.index, asked.is_error) == (0, True)
    assert json.loads(taken_back.text) == {"interrupt_id": question(0), "was_pending": True, "status": "cancelled"}
    assert isinstance(run.state, AwaitingModel)


def test_a_question_that_has_ended_cannot_be_taken_back_any_more() -> None:
    run = asking()
    run.give(responds())
    turn(run, {"op": "cancel", "interrupt_id": question()})
    options = json.loads(results(run)[-1].text)
    assert options == {"interrupt_id": question(), "was_pending": False, "status": "resolved"}


def test_a_run_cannot_take_back_what_another_run_asks() -> None:
    run = asking({"op": "cancel", "interrupt_id": interrupt_id_for("r_other", 1, 0)})
    [result] = results(run)
    assert result.is_error
    assert "no such question" in result.text
    assert not any(isinstance(event, InterruptionClosed) for event in run.events)


# --- what happens meanwhile ------------------------------------------------------------------------------------------


def test_a_lost_owner_changes_nothing_for_a_question() -> None:
    run = asking(QUESTION)
    assert run.give(recover()) == []
    assert waiting(run) == [question()]
    assert kinds(run.give(responds())) == ["InterruptionClosed", "ToolReturned", "ModelCallRequested"]


def test_a_paused_run_takes_the_answer_and_stands_still_before_its_next_call() -> None:
    run = asking()
    run.give(pause())
    run.give(responds())
    assert isinstance(run.state, Paused)
    assert [type(event) for event in run.give(resume())][-1] is ModelCallRequested


def test_a_quarantined_run_neither_hears_an_answer_nor_expires_until_it_is_released() -> None:
    run = asking({**QUESTION, "timeout_ms": 800})
    run.give(quarantine())
    assert run.give(responds()) == []
    assert run.give(RunTimerFired(at_ms=NOW + 800)) == []
    run.give(release())
    assert waiting(run) == [question()]
    assert kinds(run.give(RunTimerFired(at_ms=NOW + 800)))[0] == "InterruptionClosed"


def test_the_end_of_a_run_closes_its_questions_first() -> None:
    run = asking(QUESTION, "Read", QUESTION)
    events = run.give(cancel())
    assert kinds(events) == ["InterruptionClosed", "InterruptionClosed", "RunCancelled"]
    assert {event.status for event in events if isinstance(event, InterruptionClosed)} == {"cancelled"}
    assert isinstance(run.state, Ended)


def test_a_run_out_of_time_closes_its_questions_first() -> None:
    run = asking(QUESTION, "Read", run_timeout_s=1)
    assert kinds(run.give(RunTimerFired(at_ms=NOW + 1_000))) == ["InterruptionClosed", "RunFailed"]


def test_the_time_of_a_run_stands_still_while_only_people_are_waited_for() -> None:
    run = asking(QUESTION, "Read", run_timeout_s=10)
    assert next_timer_at(run.state) == NOW + 10_000
    run.give(replace(returned(run.state, 1), at_ms=NOW + 4_000))
    assert next_timer_at(run.state) == NOW + 60_000
    run.give(responds(at_ms=NOW + 50_000))
    assert next_timer_at(run.state) == NOW + 50_000 + 6_000


def test_a_state_that_asks_comes_back_from_its_bytes() -> None:
    from loomlog.services.core.canonical import StateCodec
    from loomlog.services.core.run.state import State

    run = asking()
    assert isinstance(run.state, AwaitingTools)
    codec = StateCodec(State)
    assert codec.decode(codec.encode(run.state)) == run.state


def test_a_run_remembers_a_bounded_number_of_questions_that_have_ended() -> None:
    run = begun(replace(ASKER, unbounded_iterations=True))
    for number in range(1, limits.CLOSED_QUESTIONS_KEPT + 3):
        turn(run, QUESTION)
        run.give(responds(to=question(at_turn=number), command_id=f"a{number}"))
    assert len(run.live.facts.closed_questions) == limits.CLOSED_QUESTIONS_KEPT
    [refusal] = run.give(responds(to=question(at_turn=1), command_id="late"))
    assert isinstance(refusal, CommandRefused)
    assert refusal.code == "not_found"
