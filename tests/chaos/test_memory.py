"""The part of the checker that judges calls of Memory: a log as it should be, and every way to spoil it."""

import json
from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any

import httpx
import pytest

from loomlog.connectors.models.mock import memory as script
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.memory_events import EntrySet
from loomlog.schemas.generated.run_events import ToolCallRequested, ToolReturned
from loomlog.schemas.generated.values import MemorySource, ToolCall
from tests.chaos.evidence import ENTITY_EVENTS, Record
from tests.chaos.history import accepted
from tests.chaos.memory import AGGREGATE, COUNTER, PAGE, ROUTE, TURNS, ask_memory, prompt_of, remembered_once
from tests.chaos.story_book import RUN, Log, begin, replied

CALLS = (
    {"op": "incr", "key": COUNTER, "delta": 1},
    {"op": "set", "key": "own/1", "value": "a"},
    {"op": "get", "key": "own/1"},
    {"op": "append_dedupe", "key": "turns/1", "value": 1},
)
INCR, SET, GET, APPEND = range(len(CALLS))
REMEMBERED = {COUNTER: 1, "own/1": "a", "turns/1": [1]}


class Book:
    """A run with one turn, and the scope that it changes."""

    def __init__(self) -> None:
        self.runs, self.scope = Log(), Log()
        for log in (self.runs, self.scope):
            log.claim()
        begin(self.runs)
        calls = [ToolCall(id=f"c{at}", name="Memory", input=json.dumps(call)) for at, call in enumerate(CALLS)]
        self.runs.event(replied(1, *calls))
        for index in range(len(CALLS)):
            self.runs.event(
                ToolCallRequested(turn=1, index=index, call_id=f"c{index}", attempt=1, effect_class="idempotent")
            )
        self.revision = 0
        self.revisions: dict[str, int] = {}
        self.remembered: dict[str, Any] | None = None

    def change(self, key: str, value: Any, index: int, *, step: str = "", run_id: str = RUN, **values: Any) -> None:
        self.revision += 1
        event = EntrySet(
            **{
                "scope": "user",
                "scope_id": "ada",
                "key": key,
                "value": json.dumps(value),
                "value_bytes": 1,
                "revision": self.revision,
                "previous_revision": self.revisions.get(key, 0),
                "op": "set",
                "created_at_s": 0,
                "source": MemorySource(origin="agent_explicit"),
                "usage_bytes": 1,
                "usage_keys": 1,
                "quota_bytes": 1,
                **values,
            }
        )
        self.revisions[key] = self.revision
        self.scope.event(event, run_id=AGGREGATE, cause_id=f"{run_id}:1.{index}{step}")

    def refuse(self, index: int, code: str = "revision_conflict") -> None:
        self.scope.event(CommandRefused(code=code, message="no"), run_id=AGGREGATE, cause_id=f"{RUN}:1.{index}")

    def returned(self, index: int, value: Any = None, outcome: str = "ok") -> None:
        event = ToolReturned(
            turn=1,
            index=index,
            call_id=f"c{index}",
            attempt=1,
            text=json.dumps({"value": value}),
            is_error=outcome != "ok",
            outcome=outcome,
            duration_ms=1,
        )
        self.runs.event(event)

    def turn(self) -> None:
        """All calls, each with its effect."""
        self.refuse(INCR)
        self.change(COUNTER, 1, INCR, step=".1")
        self.change("own/1", "a", SET)
        self.change("turns/1", [1], APPEND)
        for index, value in enumerate((1, None, "a", [1])):
            self.returned(index, value)

    def kinds(self) -> list[str]:
        evidence = changed(self.runs.evidence(), entity_events={0: self.scope.events}, remembered=self.remembered)
        _, violations = remembered_once(evidence, {0: accepted(0, self.runs.events)})
        return [violation.kind for violation in violations]


@pytest.fixture
def book() -> Book:
    return Book()


def test_a_turn_as_it_should_be(book: Book) -> None:
    book.turn()
    book.remembered = REMEMBERED
    assert book.kinds() == []
    evidence = changed(book.runs.evidence(), entity_events={0: book.scope.events})
    figures, _ = remembered_once(evidence, {0: accepted(0, book.runs.events)})
    assert (figures.calls, figures.changes) == (4, 3)


def test_calls_that_were_not_answered_may_have_had_their_effect_or_not(book: Book) -> None:
    book.change(COUNTER, 1, INCR)
    book.returned(SET, outcome="outcome_unknown")
    assert book.kinds() == []


SPOILED: dict[str, tuple[Callable[[Book], None], str]] = {
    "counted twice": (lambda book: book.change(COUNTER, 2, INCR), "doubled effect"),
    "counted again by a later step": (lambda book: book.change(COUNTER, 2, INCR, step=".2"), "doubled effect"),
    "by a run that did not ask": (lambda book: book.change(COUNTER, 2, INCR, run_id="r_two"), "effect without intent"),
    "by an id that is none": (lambda book: book.change(COUNTER, 2, INCR, run_id=""), "effect without intent"),
    "refused": (lambda book: book.refuse(SET, "bad_request"), "memory"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_change_too_many_is_found(book: Book, name: str) -> None:
    spoil, kind = SPOILED[name]
    book.turn()
    spoil(book)
    assert kind in book.kinds()


def test_a_change_that_another_one_has_overwritten_is_found(book: Book) -> None:
    book.change(COUNTER, 5, INCR)
    assert book.kinds() == ["lost effect"]


def test_a_result_without_its_change_is_found(book: Book) -> None:
    book.returned(INCR, 1)
    assert book.kinds() == ["lost effect"]


def test_a_result_that_is_not_what_has_happened_is_found(book: Book) -> None:
    book.change(COUNTER, 1, INCR)
    book.returned(INCR, 2)
    assert book.kinds() == ["memory"]


def test_a_failure_that_has_happened_is_found(book: Book) -> None:
    book.change(COUNTER, 1, INCR)
    book.returned(INCR, outcome="error")
    assert book.kinds() == ["memory"]


def test_a_read_that_misses_the_write_before_it_is_found(book: Book) -> None:
    book.change("own/1", "a", SET)
    book.returned(SET)
    book.returned(GET, None)
    assert book.kinds() == ["memory"]


def test_a_revision_that_is_left_out_is_found(book: Book) -> None:
    book.change(COUNTER, 1, INCR, revision=7)
    assert book.kinds() == ["memory"]


@pytest.mark.parametrize("remembered", [{}, {**REMEMBERED, COUNTER: 2}, {**REMEMBERED, "more": 1}])
def test_an_api_that_says_otherwise_is_found(book: Book, remembered: dict[str, Any]) -> None:
    book.turn()
    book.remembered = remembered
    assert book.kinds() == ["memory"]


def test_the_load_is_told_what_the_script_understands() -> None:
    assert script.turns_of(prompt_of("x")) == TURNS
    assert script.MEMORY_COUNTER == COUNTER
    assert script.own_key(prompt_of("1-2")) != script.own_key(prompt_of("12"))


async def test_the_api_is_asked_page_by_page_until_it_has_read_everything() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        if len(asked) == 1:
            return httpx.Response(503, json={"code": "not_yet"})
        is_first = not request.url.params["after"]
        entries = [{"key": "a" if is_first else "b", "value": len(asked)}]
        return httpx.Response(200, json={"entries": entries, "truncated": is_first})

    events = {0: [Record(partition=0, offset=7, key=None, value=None)], 1: []}
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://test") as client:
        assert await ask_memory(client, events, timeout_s=30.0) == {"a": 2, "b": 3}
        assert {request.headers["x-loomlog-position"] for request in asked} == {f"{ENTITY_EVENTS}/0:7"}
        assert asked[-1].url.path == ROUTE
        assert (asked[-1].url.params["after"], asked[-1].url.params["limit"]) == ("a", str(PAGE))
