"""What the ledger of memory sees: a log as it should be, and every way to spoil it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos.history import Event
from tests.simulation.entity_ledger import EntityEvent
from tests.simulation.memory_ledger import MemoryLedger, RememberingRun, calls_of

RUN, SCOPE = "r_mem0", "memory:t/user/ada"
INCR, SET, GET, APPEND, INCR_MORE, SET_AGAIN = range(6)
OWN = f"own/{RUN}"


class Story:
    """Events of one run with two turns, and of the scope that it changes."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        order = RememberingRun(name=RUN, id=RUN, at_s=0.0, by_topic=True, turns=2)
        self.ledger = MemoryLedger([order], lambda kind, text: self.kinds.append(kind))
        self.revisions: dict[str, int] = {}
        self.offset = 0
        for turn in (1, 2):
            for index in range(len(calls_of(RUN, turn))):
                self.of_run("ToolCallRequested", turn, index)

    def of_run(self, name: str, turn: int, index: int, **values: Any) -> None:
        event = Event(
            partition=0,
            offset=0,
            name=name,
            term=0,
            seq=1,
            run_id=RUN,
            key=None,
            cause_offset=-1,
            prev=b"",
            digest=b"",
            values={"turn": turn, "index": index, "attempt": 1, **values},
        )
        self.ledger.of_run(event)

    def returned(self, index: int, value: Any = None, *, turn: int = 1, outcome: str = "ok") -> None:
        self.of_run("ToolReturned", turn, index, outcome=outcome, text=json.dumps({"value": value}))

    def changed(self, key: str, value: Any, index: int, *, turn: int = 1, step: str = "", **values: Any) -> None:
        self.offset += 1
        fields = {
            "key": key,
            "value": json.dumps(value),
            "revision": self.offset,
            "previous_revision": self.revisions.get(key, 0),
        }
        self.revisions[key] = self.offset
        self.decided("EntrySet", f"{RUN}:{turn}.{index}{step}", **(fields | values))

    def decided(self, name: str, cause: str, **values: Any) -> None:
        event = EntityEvent(
            partition=0,
            offset=self.offset,
            aggregate=SCOPE,
            seq=self.offset,
            cause=cause,
            at_ms=0,
            name=name,
            values=values,
        )
        self.ledger.decisions.setdefault(cause, []).append(event)
        self.ledger.follow(event)

    def turn(self) -> None:
        """A whole first turn."""
        self.changed("count", 1, INCR)
        self.returned(INCR, 1)
        self.changed(OWN, "1 first", SET)
        self.returned(SET)
        self.returned(GET, "1 first")
        self.changed("list", [f"{RUN} 1"], APPEND)
        self.returned(APPEND, [f"{RUN} 1"])
        self.decided("CommandRefused", f"{RUN}:1.{INCR_MORE}", code="revision_conflict")
        self.changed("count", 11, INCR_MORE, step=".1")
        self.returned(INCR_MORE, 11)
        self.changed(OWN, "1 last", SET_AGAIN)
        self.returned(SET_AGAIN)


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_log_as_it_should_be(story: Story) -> None:
    story.turn()
    story.ledger.finish()
    assert (story.kinds, story.ledger.accepted) == ([], 6)


SPOILED: dict[str, tuple[Callable[[Story], None], str]] = {
    "a result without a change": (lambda story: story.returned(INCR, 12, turn=2), "lost"),
    "a second change of a call": (lambda story: story.changed("count", 12, INCR, step=".1"), "doubled"),
    "a command that is carried out twice": (lambda story: story.changed("count", 12, INCR), "doubled"),
    "a change that no call has asked for": (lambda story: story.decided("EntrySet", "r_other:1.0"), "invented"),
    "a change of another key": (lambda story: story.changed("more", 13, INCR, turn=2), "invented"),
    "a value that does not follow": (lambda story: story.changed("count", 2, INCR, turn=2), "lost update"),
    "a list that lost an item": (lambda story: story.changed("list", [f"{RUN} 2"], APPEND, turn=2), "lost update"),
    "a revision that is left out": (
        lambda story: story.changed("count", 13, INCR, turn=2, revision=9),
        "revision",
    ),
    "a refusal": (lambda story: story.decided("CommandRefused", f"{RUN}:2.1", code="bad_request"), "refused"),
    "a read that misses a write": (lambda story: story.returned(GET, "1 first", turn=2), "stale read"),
    "a read of what never was": (lambda story: story.returned(GET, "odd", turn=2), "stale read"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_what_is_spoiled_is_found(story: Story, name: str) -> None:
    spoil, kind = SPOILED[name]
    story.turn()
    spoil(story)
    assert story.kinds[:1] == [kind]


def test_calls_that_take_effect_in_another_order_are_found(story: Story) -> None:
    story.changed(OWN, "1 last", SET_AGAIN)
    story.changed(OWN, "1 first", SET)
    assert story.kinds == ["order"]


def test_a_process_that_starts_tasks_in_any_order_promises_the_order_of_turns_only(story: Story) -> None:
    story.ledger.is_ordered = False
    story.changed(OWN, "1 last", SET_AGAIN)
    story.changed(OWN, "1 first", SET)
    assert story.kinds == []
    story.changed(OWN, "2 first", SET, turn=2)
    story.changed(OWN, "1 first", SET, step=".1")
    assert "order" in story.kinds


def test_a_failed_call_has_changed_nothing_before_and_changes_nothing_afterwards(story: Story) -> None:
    story.changed("count", 1, INCR)
    story.returned(INCR, outcome="error")
    assert story.kinds == ["invented"]
    other = Story()
    other.returned(INCR, outcome="error")
    other.changed("count", 1, INCR)
    assert other.kinds == ["invented"]


def test_one_whose_outcome_is_unknown_may_have_changed_something(story: Story) -> None:
    story.returned(INCR, outcome="outcome_unknown")
    story.changed("count", 1, INCR)
    assert story.kinds == []
