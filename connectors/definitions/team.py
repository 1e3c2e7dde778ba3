"""The kind team: a graph of states, each with a handler, and of labelled transitions between them.

Before: kind.py. After: kinds.py.
"""

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal, NoReturn

from pydantic import Field

from loomlog.connectors.configuration.field_classes import NEUTRAL, Bound, Grant, Order
from loomlog.connectors.configuration.field_types import NonNegativeInt, configuration_block
from loomlog.connectors.definitions.go_json import select_set
from loomlog.connectors.definitions.kind import Content, Kind
from loomlog.connectors.definitions.problems import DefinitionProblem, quote

DEFAULT_ENTRIES = 10
MAX_ITERATIONS = 1_000
"""Largest number of entries per state; the limit of the reference."""
_WAIT = re.compile(r"(all|any|at_least:0*[1-9][0-9]{0,8})?\Z")
_ON = re.compile(r"success\Z|(pushback|conditional):.*\S", re.DOTALL)
_HANDLER = ("agent", "agents", "wait", "consolidator", "input_template", "timeout_ms")


@configuration_block
class TeamHandler:
    """Handler of a state: who acts in it. `wait` all, any or at_least:N; empty: all. `timeout_ms` 0: no limit."""

    kind: Literal["agent", "parallel", "consolidator", "terminal"]
    agent: str = ""
    agents: tuple[str, ...] = ()
    wait: str = ""
    consolidator: str = ""
    input_template: str = ""
    timeout_ms: NonNegativeInt = 0


@configuration_block
class TeamState:
    """A node of the graph."""

    state: str
    handler: TeamHandler


@configuration_block
class TeamTransition:
    """An edge of the graph. `on`: success, pushback:<reason> or conditional:<expression>."""

    from_: Annotated[str, Field(alias="from")]
    to: str
    on: str


@configuration_block
class TeamColors:
    """Colours of a drawing, by state and by label of a transition. They are not hashed."""

    transitions: Mapping[str, str] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)


@configuration_block
class TeamBlock:
    """Content of a team. `max_iterations` 0: 10 entries per state."""

    entry: Annotated[str, NEUTRAL]
    max_iterations: Annotated[NonNegativeInt, Field(le=MAX_ITERATIONS), Bound(absent=DEFAULT_ENTRIES)] = 0
    states: Annotated[tuple[TeamState, ...], Grant(order=Order.HANDLERS, held="agents")]
    transitions: Annotated[tuple[TeamTransition, ...] | None, NEUTRAL] = None
    colors: Annotated[TeamColors | None, NEUTRAL] = None


def _check(team: TeamBlock) -> None:
    states = {state.state: state.handler for state in team.states}
    if not states:
        raise DefinitionProblem("missing_field", "missing required field: states (a team has at least one)")
    seen: set[str] = set()
    for position, state in enumerate(team.states):
        where = f"states[{position}]"
        _require(f"{where}.state", state.state)
        if state.state in seen:
            _refuse(f"{where}.state: {quote(state.state)} is the name of another state")
        seen.add(state.state)
        _check_handler(f"{where}.handler", state.handler)
    if team.entry not in states:
        _refuse(f"entry: there is no state {quote(team.entry)}")
    exits = _check_transitions(team.transitions or (), states)
    for name, handler in states.items():
        if handler.kind != "terminal" and not exits[name]:
            _refuse(f"states: {quote(name)} is a dead end; only a terminal state has no transition")
    reached, waiting = {team.entry}, [team.entry]
    while waiting:
        following = set(exits[waiting.pop()].values()) - reached
        reached |= following
        waiting += following
    if missed := [name for name in states if name not in reached]:
        _refuse(f"states: {quote(missed[0])} cannot be reached from {quote(team.entry)}")


def _check_handler(where: str, handler: TeamHandler) -> None:
    if not _WAIT.match(handler.wait):
        _refuse(f"{where}.wait: expected all, any or at_least:N with N of at least 1")
    match handler.kind:
        case "agent" | "consolidator":
            _require(f"{where}.agent", handler.agent)
            if handler.agents:
                _refuse(f"{where}.agents: a handler of kind {handler.kind} has one agent; name it in agent")
        case "parallel":
            if not handler.agents:
                raise DefinitionProblem("missing_field", f"missing required field: {where}.agents")
            for position, agent in enumerate(handler.agents):
                _require(f"{where}.agents[{position}]", agent)
            _require(f"{where}.consolidator", handler.consolidator)
        case "terminal":
            if handler.agent or handler.agents or handler.consolidator:
                _refuse(f"{where}: a terminal state has no agent, agents or consolidator")


def _check_transitions(
    transitions: tuple[TeamTransition, ...], states: Mapping[str, TeamHandler]
) -> dict[str, dict[str, str]]:
    """Return the exits of every state: label -> state."""
    exits: dict[str, dict[str, str]] = {name: {} for name in states}
    for position, edge in enumerate(transitions):
        where = f"transitions[{position}]"
        for end, name in (("from", edge.from_), ("to", edge.to)):
            if name not in states:
                _refuse(f"{where}.{end}: there is no state {quote(name)}")
        if not _ON.match(edge.on):
            _refuse(f"{where}.on: expected success, pushback:<reason> or conditional:<expression>")
        if states[edge.from_].kind == "terminal":
            _refuse(f"{where}.from: {quote(edge.from_)} is terminal, and the walk ends there")
        if edge.on in exits[edge.from_]:
            _refuse(f"{where}.on: {quote(edge.from_)} has another transition with this label")
        exits[edge.from_][edge.on] = edge.to
    return exits


def _require(field_name: str, text: str) -> None:
    if not text.strip():
        raise DefinitionProblem("missing_field", f"missing required field: {field_name}")


def _refuse(message: str) -> NoReturn:
    raise DefinitionProblem("invalid_definition", message)


def _hashed(name: str, content: Content) -> dict[str, Any]:
    edges = content.get("transitions")
    return {
        "name": name,
        "entry": content["entry"],
        **select_set(content, ("max_iterations",)),
        "states": [
            {
                "state": state["state"],
                "handler": {"kind": state["handler"]["kind"], **select_set(state["handler"], _HANDLER)},
            }
            for state in content["states"]
        ],
        "transitions": edges and [{key: edge[key] for key in ("from", "to", "on")} for edge in edges],
    }


TEAM = Kind(
    name="team",
    tool="TeamDef",
    id_prefix="tdf_",
    forks_promote=False,
    has_verify=True,
    block=TeamBlock,
    check=_check,
    hashed=_hashed,
)
