"""Acts: begun once, ended once, and unknown when nothing more is heard of them."""

from collections.abc import Sequence
from typing import Any

import pytest

from loomlog.schemas.generated.act_commands import BeginAct, EndAct, NoteRefusals
from loomlog.schemas.generated.act_events import ActBegun, ActEnded, ActRefused
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.families import TIMER_FIRED, At
from loomlog.services.families.act import FAMILY
from loomlog.services.families.act.limits import NAME_CHARACTERS_MAX, TEXT_BYTES_MAX, UNKNOWN_MS
from loomlog.services.families.act.state import DONE, REFUSED, UNKNOWN, Act
from tests.services.families.act.examples import WHO

ENVELOPE = CommandEnvelope(command_id="c", tenant="acme")
BEGIN_MS = 1_800_000_000_000


def begin(**changes: Any) -> BeginAct:
    return BeginAct(envelope=ENVELOPE, act_id="one", **{**WHO, "request": "{}", **changes})


def end(outcome: str = DONE, **fields: Any) -> EndAct:
    return EndAct(envelope=ENVELOPE, act_id="one", outcome=outcome, **fields)


def refuse(**changes: Any) -> NoteRefusals:
    return NoteRefusals(envelope=ENVELOPE, act_id="one", **{**WHO, "code": "insufficient_scope", "count": 1, **changes})


def given(*commands: Any, at_ms: int = BEGIN_MS) -> tuple[Act, Sequence[Any]]:
    """Return an act after these commands, and the events of the last one."""
    act, events = FAMILY.rules.initial("act:acme/one"), ()
    for command in commands:
        events = FAMILY.rules.decide(act, command, At(at_ms))
        for event in events:
            if not isinstance(event, CommandRefused):
                act = FAMILY.rules.evolve(act, event, at_ms)
    return act, events


def test_an_act_begins_and_ends_with_what_it_has_changed() -> None:
    assert given(begin())[1] == [ActBegun(act_id="one", **WHO, request="{}")]
    act, events = given(begin(), end(before="1", after="2"))
    assert events == [ActEnded(act_id="one", outcome=DONE, before="1", after="2")]
    assert FAMILY.rules.is_over(act)


def test_a_repetition_changes_nothing() -> None:
    assert given(begin(), begin())[1] == []
    assert given(begin(), end(), end(UNKNOWN, code="internal"))[1] == []
    assert given(begin(), end(), begin())[1] == []
    assert given(refuse(), refuse(count=7))[1] == []


def test_an_attempt_that_learns_the_outcome_is_heard() -> None:
    act, events = given(begin(), end(UNKNOWN, code="command_pending"), end(REFUSED, code="not_found"))
    assert events == [ActEnded(act_id="one", outcome=REFUSED, code="not_found")]
    assert act.status == REFUSED


def test_an_act_of_which_nothing_is_heard_is_unknown_after_a_while() -> None:
    act, _ = given(begin())
    due_ms = FAMILY.rules.next_timer_ms(act)
    assert due_ms == BEGIN_MS + UNKNOWN_MS
    assert FAMILY.rules.decide(act, TIMER_FIRED, At(due_ms - 1)) == []
    (event,) = FAMILY.rules.decide(act, TIMER_FIRED, At(due_ms))
    assert event == ActEnded(act_id="one", outcome=UNKNOWN)
    assert FAMILY.rules.next_timer_ms(FAMILY.rules.evolve(act, event, due_ms)) == 0


def test_refusals_are_one_event_with_their_number() -> None:
    assert given(refuse(count=7))[1] == [ActRefused(act_id="one", **WHO, code="insufficient_scope", count=7)]


@pytest.mark.parametrize(
    ("command", "field"),
    [
        (begin(target="a\nb"), "target"),
        (begin(who="a" * (NAME_CHARACTERS_MAX + 1)), "who"),
        (begin(request="a" * (TEXT_BYTES_MAX + 1)), "request"),
        (begin(at_ms=-1), "at_ms"),
        (refuse(count=0), "count"),
    ],
)
def test_what_no_list_could_show_is_refused(command: Any, field: str) -> None:
    (event,) = given(command)[1]
    assert event.message.startswith(f"{field}: expected")


def test_an_act_that_has_not_begun_does_not_end() -> None:
    (event,) = given(end())[1]
    assert event == CommandRefused(code="bad_request", message="the act has not begun: send BeginAct first")
    (event,) = given(begin(), end("lost"))[1]
    assert event.message == "outcome: expected one of done, refused, unknown"
