"""Memory while everything is struck: runs that count with one key of their user, and set, read and list keys of their
own (the synthetic model `mock-memory`).

Every call has an intent in the log of its run, and every change the id of its call; so the log says of each call
whether it had its effect, and how often. In the end the api is asked what it remembers.

Before: load. After: checker.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.chaos.evidence import ENTITY_EVENTS, Evidence, Record
from tests.chaos.history import Accepted, Event, Violation, accepted

USER_ID = "ada"
AGGREGATE = f"memory:default/user/{USER_ID}"
ROUTE = f"/v1/_memory/scopes/user/{USER_ID}/keys"
TOOL = "Memory"
COUNTER = "count"
TURNS = 3
PAGE = 1_000
LOOK_S = 0.2
Place = tuple[str, int, int]
"""Run, turn and index of a call."""


def prompt_of(name: str) -> str:
    """Return what a run is told; no other run has its keys."""
    return f"memory {TURNS} of {name}"


@dataclass(slots=True)
class MemoryFigures:
    """How it went."""

    calls: int = 0
    """That returned ok."""
    changes: int = 0


@dataclass(slots=True)
class MemoryCall:
    """A call of Memory. `outcome` is empty until it is answered."""

    arguments: Mapping[str, Any]
    is_requested: bool = False
    outcome: str = ""
    text: str = ""
    change: Event | None = None
    """The event in which it had its effect."""


@dataclass(slots=True)
class Stored:
    """The memory of the load, as the log has it."""

    revision: int = 0
    values: dict[str, Any] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)
    turns: dict[str, list[tuple[Place, Any]]] = field(default_factory=dict)
    """Values that each key was set to, with the calls, in their order in the log."""


def remembered_once(evidence: Evidence, runs: Mapping[int, Accepted]) -> tuple[MemoryFigures, list[Violation]]:
    """Every call had its effect once, if it returned ok; none that nobody asked for; and the api knows all of it."""
    calls = _calls(runs)
    stored, violations = Stored(), list[Violation]()
    for number, records in evidence.entity_events.items():
        for event in accepted(number, records).events:
            if event.run_id == AGGREGATE:
                violations += _change(event, calls, stored)
    for place, call in calls.items():
        violations += _result(place, call, stored)
    if evidence.remembered is not None and evidence.remembered != stored.values:
        keys = sorted(set(evidence.remembered) | set(stored.values))
        wrong = [key for key in keys if evidence.remembered.get(key) != stored.values.get(key)]
        texts = [f"{key}: {evidence.remembered.get(key)} instead of {stored.values.get(key)}" for key in wrong[:5]]
        violations.append(Violation(kind="memory", text=f"the api says otherwise of {len(wrong)} keys: {texts}"))
    returned = sum(call.outcome == "ok" for call in calls.values())
    changes = sum(call.change is not None for call in calls.values())
    return MemoryFigures(calls=returned, changes=changes), violations


def _calls(runs: Mapping[int, Accepted]) -> dict[Place, MemoryCall]:
    calls: dict[Place, MemoryCall] = {}
    for history in runs.values():
        for event in history.events:
            values = event.values
            if event.name == "ModelReplied":
                for index, call in enumerate(values["tool_calls"]):
                    if call["name"] == TOOL:
                        calls[event.run_id, values["turn"], index] = MemoryCall(json.loads(call["input"]))
                continue
            if event.name not in ("ToolCallRequested", "ToolReturned"):
                continue
            called = calls.get((event.run_id, values["turn"], values["index"]))
            if called is not None and event.name == "ToolCallRequested":
                called.is_requested = True
            elif called is not None:
                called.outcome, called.text = values["outcome"], values["text"]
    return calls


def _change(event: Event, calls: Mapping[Place, MemoryCall], stored: Stored) -> Iterator[Violation]:
    """Follow an event of the scope."""
    place, cause = _place(event.values["envelope"]["cause_id"]), event.values["envelope"]["cause_id"]
    call = calls.get(place)
    where = f"{event.name} at {ENTITY_EVENTS}/{event.partition} offset {event.offset} ({cause})"
    if call is None or not call.is_requested:
        yield Violation(kind="effect without intent", text=f"{where}: no call asked for it")
        return
    if event.name == "CommandRefused" and event.values["code"] == "revision_conflict":
        return
    if event.name != "EntrySet":
        yield Violation(kind="memory", text=f"{where}: {event.values}")
        return
    if call.change is not None:
        yield Violation(kind="doubled effect", text=f"{where}: the call has changed something at {call.change.place}")
    call.change = event
    key, value = event.values["key"], json.loads(event.values["value"])
    numbers = (event.values["revision"], event.values["previous_revision"])
    if numbers != (stored.revision + 1, stored.revisions.get(key, 0)):
        yield Violation(kind="memory", text=f"{where}: revision and the one before are {numbers}; {stored.revision=}")
    if (key, value) != (call.arguments["key"], _after(stored.values.get(key), call.arguments)):
        text = f"{where} sets {key} to {value}; it was {stored.values.get(key)}, the call is {call.arguments}"
        yield Violation(kind="lost effect", text=text)
    stored.revision = stored.revisions[key] = event.values["revision"]
    stored.values[key] = value
    turns = stored.turns.setdefault(key, [])
    before = [one for one, _ in turns if one[0] == place[0]]
    if before and before[-1] > place:
        yield Violation(kind="memory", text=f"{where}: {place} comes after {before[-1]}")
    turns.append((place, value))


def _result(place: Place, call: MemoryCall, stored: Stored) -> Iterator[Violation]:
    """Compare what a call returned with what it did."""
    name, what = f"{place[0]}:{place[1]}.{place[2]}", call.arguments["op"]
    if call.outcome == "error" and call.change is not None:
        text = f"{name}: {what} has failed ({call.text}), and changed something at {call.change.place}"
        yield Violation(kind="memory", text=text)
    if call.outcome != "ok":
        return
    result = json.loads(call.text)
    if what == "get":
        turns = stored.turns.get(call.arguments["key"], [])
        own = [number for number, (one, _) in enumerate(turns) if one[0] == place[0] and one < place]
        readable = [value for _, value in turns[own[-1] :]] if own else [result["value"]]
        if result["value"] not in readable:
            yield Violation(kind="memory", text=f"{name}: read {result['value']}, expected one of {readable}")
    elif call.change is None:
        yield Violation(kind="lost effect", text=f"{name}: {what} returned {call.text}, and nothing has changed")
    elif what != "set" and result["value"] != json.loads(call.change.values["value"]):
        text = f"{name}: {what} returned {call.text}; {call.change.place} says {call.change.values['value']}"
        yield Violation(kind="memory", text=text)


def _after(old: Any, call: Mapping[str, Any]) -> Any:
    """Return the value of a key after a call."""
    match call["op"]:
        case "incr":
            return (old or 0) + call["delta"]
        case "append_dedupe":
            items = old or []
            return items if call["value"] in items else [*items, call["value"]]
    return call["value"]


def _place(cause: str) -> Place:
    """Return the call of a command id: `<run>:<turn>.<index>`, perhaps with the step of a reducer."""
    run_id, _, numbers = cause.rpartition(":")
    turn, _, rest = numbers.partition(".")
    index = rest.partition(".")[0]
    return (run_id, int(turn), int(index)) if turn.isdigit() and index.isdigit() else ("", 0, 0)


async def ask_memory(
    client: httpx.AsyncClient, events: Mapping[int, Sequence[Record]], *, timeout_s: float
) -> dict[str, Any]:
    """Return what the api remembers for the user, by key, once it has read these events; less after the time."""
    ends = [f"{ENTITY_EVENTS}/{number}:{records[-1].offset}" for number, records in events.items() if records]
    values: dict[str, Any] = {}
    after, deadline = "", time.monotonic() + timeout_s
    while True:
        try:
            answer = await client.get(
                ROUTE, params={"limit": PAGE, "after": after}, headers={"x-loomlog-position": ", ".join(ends)}
            )
        except httpx.TransportError:
            answer = httpx.Response(503)
        if answer.status_code == 200:
            page = answer.json()
            values |= {entry["key"]: entry["value"] for entry in page["entries"]}
            if not page["truncated"]:
                return values
            after = page["entries"][-1]["key"]
        elif answer.status_code != 503:
            raise AssertionError(f"GET {ROUTE}: {answer.status_code} {answer.text[:500]}")
        elif time.monotonic() > deadline:
            return values  # which is less than the log has, as the checker says
        else:
            await asyncio.sleep(LOOK_S)
