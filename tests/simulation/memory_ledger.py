"""Follows the memory of a user in the log, and the calls of the runs that use it, and checks them after every append.

    causes      every change is of a call whose intent is in the log, and is what that call asks for; one for each call
    reducers    a value that follows from another one follows from the one right before it, so none is lost
    results     what a call returned is what is in the log; a call that failed has changed nothing
    order       the changes of a run's own key have the order of its calls, and its reads see what it wrote before

Before: entity_ledger.py reads the records, the checker the runs. After: the world ends with the first violation.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.history import Event
from tests.simulation.entity_ledger import EntityEvent, EntityLedger, Order

COUNTER, LIST = "count", "list"
"""Keys that all runs change."""
OP, KEY, VALUE, DELTA = "op", "key", "value", "delta"
CAUSE = re.compile(r"(r_\w+):(\d+)\.(\d+)(?:\.\w+)*")
"""Id of a command: the call, and the step of its reducer."""
DEFINITE = ("ok", "error", "timeout")
Place = tuple[str, int, int]
"""Run, turn and index of a call."""


@dataclass(slots=True, kw_only=True)
class RememberingRun(Order):
    """A run that calls Memory. `id` is its run id."""

    turns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A key as the log has it."""

    value: Any
    revision: int


@dataclass(slots=True)
class StoredScope:
    """A scope as the log has it."""

    revision: int = 0
    entries: dict[str, Entry] = field(default_factory=dict)


def calls_of(run_id: str, turn: int) -> Sequence[Mapping[str, Any]]:
    """Return the arguments of the calls of a turn, without their scope."""
    own = f"own/{run_id}"
    return (
        {OP: "incr", KEY: COUNTER, DELTA: turn},
        {OP: "set", KEY: own, VALUE: f"{turn} first"},
        {OP: "get", KEY: own},
        {OP: "append_dedupe", KEY: LIST, VALUE: f"{run_id} {turn}"},
        {OP: "incr", KEY: COUNTER, DELTA: 10},
        {OP: "set", KEY: own, VALUE: f"{turn} last"},
    )


class MemoryLedger(EntityLedger):
    """See the module."""

    def __init__(self, orders: Sequence[RememberingRun], complain: Callable[[str, str], None]) -> None:
        super().__init__(orders, complain)
        self.scopes: dict[str, StoredScope] = {}
        self.is_ordered = True
        """Whether tasks of a process start in the order in which they are made, as those of asyncio do."""
        self.accepted = 0
        """Calls that returned without an error."""
        self._intents: set[Place] = set()
        self._changes: dict[Place, EntityEvent] = {}
        """The change of each call that has made one."""
        self._own: dict[str, list[tuple[Place, Any]]] = {}
        """Values of each run's own key, with the calls that set them."""
        self._failed: dict[Place, str] = {}
        """Calls that returned an error that says that nothing has changed, with their results."""

    # --- the scopes --------------------------------------------------------------------------------------------------

    def follow(self, event: EntityEvent) -> None:
        match = CAUSE.fullmatch(event.cause)
        place = (match[1], int(match[2]), int(match[3])) if match else ("", 0, 0)
        if place not in self._intents:
            self.complain("invented", f"{event.place}: no call leads to it ({event.cause!r})")
            return
        if len(self.decisions[event.cause]) > 1:
            self.complain("doubled", f"{event.place} carries out {event.cause} again")
        if event.name == "CommandRefused" and event.values["code"] == "revision_conflict":
            return
        if event.name != "EntrySet":
            self.complain("refused", f"{event.place}: {event.values}")
            return
        self.delivery_count += 1  # the process that wrote it may die now: its caller does not know
        if place in self._changes:
            self.complain("doubled", f"{event.place} is the second change of {place}: {self._changes[place].place}")
        if place in self._failed:
            self.complain("invented", f"{event.place}: the call {place} has failed before: {self._failed[place]}")
        self._changes[place] = event
        self._change(event, place)

    def _change(self, event: EntityEvent, place: Place) -> None:
        scope = self.scopes.setdefault(event.aggregate, StoredScope())
        values, call = event.values, self._call(place)
        key = values["key"]
        before = scope.entries.get(key)
        numbers = (values["revision"], values["previous_revision"])
        expected = (scope.revision + 1, 0 if before is None else before.revision)
        if numbers != expected:
            self.complain("revision", f"{event.place}: revision and the one before are {numbers}, not {expected}")
        value = json.loads(values["value"])
        follows = _after(None if before is None else before.value, call)
        if (key, value) != (call[KEY], follows):
            text = f"{event.place} sets {key} to {value}; {call} makes {follows} of {before}"
            self.complain("lost update" if key == call[KEY] else "invented", text)
        scope.revision, scope.entries[key] = values["revision"], Entry(value=value, revision=values["revision"])
        if key not in (COUNTER, LIST):
            own = self._own.setdefault(key, [])
            if own and self._order(own[-1][0]) > self._order(place):
                self.complain("order", f"{event.place} of {place} comes after {own[-1]}")
            own.append((place, value))

    def _call(self, place: Place) -> Mapping[str, Any]:
        run_id, turn, index = place
        return calls_of(run_id, turn)[index]

    def _order(self, place: Place) -> Place:
        """Return what the order of calls is compared by."""
        return place if self.is_ordered else (*place[:2], 0)

    # --- the runs ----------------------------------------------------------------------------------------------------

    def of_run(self, event: Event) -> None:
        """Follow an accepted event of any run."""
        if event.run_id not in self.orders or event.name not in ("ToolCallRequested", "ToolReturned"):
            return
        place = (event.run_id, event.values["turn"], event.values["index"])
        if event.name == "ToolCallRequested":
            self._intents.add(place)
        elif event.values["outcome"] in DEFINITE:
            self._returned(event, place)

    def _returned(self, event: Event, place: Place) -> None:
        call, change, text = self._call(place), self._changes.get(place), event.values["text"]
        if event.values["outcome"] != "ok":
            if change is not None:
                self.complain("invented", f"{event.place}: {place} has failed ({text}); {change.place} is its change")
            self._failed[place] = text
            return
        self.accepted += 1
        result = json.loads(text)
        if call[OP] == "get":
            values = self._readable(place)
            if result["value"] not in values:
                self.complain("stale read", f"{event.place}: {place} has read {result['value']}; expected {values}")
        elif change is None:
            self.complain("lost", f"{event.place}: {place} has returned {text}; nothing has changed")
        elif call[OP] != "set" and result["value"] != json.loads(change.values["value"]):
            self.complain("invented", f"{event.place}: {place} has returned {text}; {change.place} has another value")

    def _readable(self, place: Place) -> list[Any]:
        """Return what a read of a run's own key may see: the last value of the calls before it, or a later one."""
        own = self._own.get(self._call(place)[KEY], [])
        before = sum(self._order(one) < self._order(place) for one, _ in own)
        return [None, *(value for _, value in own)][before:]

    # --- the end -----------------------------------------------------------------------------------------------------

    def open_ends(self) -> str:
        return ""  # a run that has not ended is the checker's

    def finish(self) -> None:
        """All has come to its end: is the sum that of all calls that changed it?"""
        for name, scope in self.scopes.items():
            calls = [self._call(place) for place, event in self._changes.items() if event.aggregate == name]
            total = sum(call[DELTA] for call in calls if call[OP] == "incr")
            entry = scope.entries.get(COUNTER)
            if total and (entry is None or entry.value != total):
                self.complain("sum", f"{name}: {COUNTER} is {entry}, the calls add up to {total}")


def _after(old: Any, call: Mapping[str, Any]) -> Any:
    """Return the value after a call."""
    match call[OP]:
        case "incr":
            return (old or 0) + call[DELTA]
        case "append_dedupe":
            return old if old and call[VALUE] in old else [*(old or []), call[VALUE]]
    return call[VALUE]
