"""Imports in the core: a history is told again whole, and nothing of it is done."""

from typing import Any

import pytest

from loomlog.schemas.generated.run_commands import ImportRun
from loomlog.schemas.generated.run_events import Event, RunCancelled, RunRestored, RunStarted
from loomlog.schemas.generated.values import ImportOrigin
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import ImportCommand, RunTimerFired
from loomlog.services.core.run.decide import decide
from loomlog.services.core.run.lifecycle.event_import import HISTORY_ONLY, is_importing
from loomlog.services.core.run.state import Ended
from loomlog.services.core.run.tools.waits import find_reported_call
from loomlog.services.runtime.run.family import RunFamily
from tests.services.core.run.given import (
    ENVELOPE,
    NOW,
    RUN,
    Run,
    answered,
    at_tools,
    begun,
    cancel,
    completed,
    kinds,
    parked,
    quarantine,
    recover,
    release,
    returned,
    says,
)
from tests.services.core.run.waiting import UNTIL, WAIT, reports, waiting

ORIGIN = ImportOrigin(
    topic="loom.run.events", partition=3, first_offset=7, tenant="there", events=4, tail_digest="ab", bundle_sha256="cd"
)


def telling(events: list[Event], *, first: int = 1, total: int = 0, seq: int = 0) -> ImportCommand:
    origin = replace(ORIGIN, events=total or len(events))
    command = ImportRun(envelope=ENVELOPE, run_id=RUN, origin=origin, first_seq=first, events=())
    times = tuple(NOW + at for at in range(len(events)))
    return ImportCommand(at_ms=NOW, command=command, events=tuple(events), times=times, next_seq=seq or first)


def test_a_history_is_told_as_it_was_with_where_it_happened() -> None:
    there, here = completed(), Run()
    here.give(telling(there.events))
    assert kinds(here.events) == kinds(there.events)
    assert here.events[1:] == there.events[1:]
    first = here.events[0]
    assert isinstance(first, RunStarted)
    assert first.imported_from == ORIGIN
    assert is_importing(here.state)
    assert not is_importing(there.state)


def test_nothing_of_it_is_done() -> None:
    here = Run()
    here.give(telling(at_tools("Read").events, total=99))
    assert here.effects == []
    for order in (recover(), says("go on"), returned(here.state, 0)):
        assert decide(here.state, order) == []


def test_in_parts_it_gives_the_same_as_at_once() -> None:
    there, once, parts = completed(), Run(), Run()
    once.give(telling(there.events))
    for at, event in enumerate(there.events):
        parts.give(telling([event], first=at + 1, total=len(there.events)))
    assert parts.state == once.state
    assert parts.events == once.events


@pytest.mark.parametrize("seq", [2, 5])
def test_a_part_that_is_not_the_next_one_changes_nothing(seq: int) -> None:
    there, here = completed(), Run()
    here.give(telling(there.events[:2], total=4))
    assert decide(here.state, telling(there.events[2:], first=3, total=4, seq=seq)) == []


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_the_same_file_in_other_parts_goes_on_where_it_broke_off(cut: int) -> None:
    there, once, here = completed(), Run(), Run()
    once.give(telling(there.events))
    here.give(telling(there.events[:cut], total=4))
    here.give(telling(there.events[: cut + 1], total=4, seq=cut + 1))
    here.give(telling(there.events, total=4, seq=len(here.events) + 1))
    assert here.events == once.events
    assert here.state == once.state


@pytest.mark.parametrize("other", [{"tail_digest": "ee"}, {"restored": True}, {"events": 5}])
def test_what_another_file_says_of_a_run_that_is_half_told_is_not_taken(other: dict[str, Any]) -> None:
    """A restore would make it a run of this log, with the tools that whoever told its beginning gave it."""
    there, here = begun(), Run()
    here.give(telling(there.events[:1], total=len(there.events)))
    order = telling(there.events[1:], first=2, total=len(there.events))
    command = replace(order.command, origin=replace(order.command.origin, **other), continues=True)
    assert decide(here.state, replace(order, command=command)) == []
    assert decide(here.state, replace(order, command=replace(command, origin=order.command.origin))) != []


@pytest.mark.parametrize("make", [begun, parked, lambda: at_tools("Read"), waiting])
def test_a_run_that_was_under_way_ends_here(make: Any) -> None:
    here = Run()
    here.give(telling(make().events))
    assert isinstance(here.state, Ended)
    last = here.events[-1]
    assert isinstance(last, RunCancelled)
    assert "goes on where it came from" in last.reason


def test_between_two_parts_it_can_be_cancelled_and_then_hears_no_more() -> None:
    there, here = completed(), Run()
    here.give(telling(there.events[:2], total=4))
    assert kinds(here.give(cancel())) == ["RunCancelled"]
    assert decide(here.state, telling(there.events[2:], first=3, total=4)) == []


def test_a_history_that_cannot_be_is_refused_or_given_up() -> None:
    there, here = completed(), Run()
    assert kinds(decide(here.state, telling(there.events[1:]))) == ["RunRefused"]
    assert kinds(decide(here.state, telling([there.events[0], there.events[3], there.events[3]]))) == ["RunRefused"]
    assert kinds(decide(here.state, telling(there.events, total=2))) == ["RunRefused"]
    here.give(telling(there.events[:1], total=4))
    given_up = decide(here.state, telling(there.events[2:], first=2, total=4))
    assert kinds(given_up) == ["RunCancelled"]


def test_a_run_of_this_log_takes_in_nothing() -> None:
    run = begun()
    assert decide(run.state, telling(completed().events[2:], first=3, total=4)) == []


def test_an_answer_that_was_awaited_there_is_not_awaited_here() -> None:
    there, here = begun(), Run()
    here.give(telling(there.events, total=9))
    assert decide(here.state, answered(here.state, "late")) == []


def test_a_quarantine_that_was_over_there_keeps_no_later_part_from_being_told() -> None:
    there = begun()
    there.give(quarantine())
    there.give(release())
    there.give(answered(there.state, "done"))
    cut = kinds(there.events).index("RunQuarantined") + 1
    here = Run()
    here.give(telling(there.events[:cut], total=len(there.events)))
    assert RunFamily().quarantined(here.state) == "", "it is told here, and stands still nowhere"
    here.give(telling(there.events[cut:], first=cut + 1, total=len(there.events)))
    assert kinds(here.events) == kinds(there.events)


def test_a_file_that_says_the_run_was_restored_behind_its_end_does_not_begin_it_here() -> None:
    there = begun()
    forged: list[Event] = [there.events[0], RunRestored(events=9), there.events[1]]
    given_up = decide(Run().state, telling(forged, total=9))
    assert kinds(given_up) == ["RunRefused"]
    here = Run()
    here.give(telling(forged[:1], total=9))
    assert kinds(here.give(telling(forged[1:], first=2, total=9))) == ["RunCancelled"]
    assert here.effects == []


def test_a_restored_run_whose_call_waits_is_not_made_again_and_ends_the_call_if_no_queue_reports() -> None:
    """The queue may be restored as well, with its lease: then it reports to the run."""
    order, here = telling(waiting().events), Run()
    origin = replace(order.command.origin, restored=True)
    here.give(replace(order, command=replace(order.command, origin=origin, continues=True)))
    assert kinds(here.events)[-2:] == ["CallWaiting", "RunRestored"]
    assert find_reported_call(here.state, reports(lease_id=WAIT)) is not None
    ended = here.give(RunTimerFired(at_ms=UNTIL + limits.WAIT_GRACE_MS))
    assert kinds(ended) == ["ToolReturned", "ModelCallRequested"]


def test_a_restored_run_that_cannot_go_on_does_not_say_that_it_goes_on_elsewhere() -> None:
    order, here = telling(at_tools("Read").events), Run()
    origin = replace(order.command.origin, restored=True)
    here.give(replace(order, command=replace(order.command, origin=origin)))
    last = here.events[-1]
    assert isinstance(last, RunCancelled)
    assert last.reason == HISTORY_ONLY
    assert "where it came from" not in last.reason
