"""Teams as state diagrams."""

import pytest

from loomlog.connectors.definitions import KINDS, DefinitionProblem
from loomlog.connectors.definitions.team_diagram import render_diagram

TEAM = KINDS["team"].compose(
    "crew",
    {
        "entry": "draft",
        "states": [
            {"state": "draft", "handler": {"kind": "parallel", "agents": ["a", "b"], "consolidator": "c"}},
            {"state": 'done "so"', "handler": {"kind": "terminal"}},
        ],
        "transitions": [
            {"from": "draft", "to": "draft", "on": "pushback:too short"},
            {"from": "draft", "to": 'done "so"', "on": "success"},
        ],
        "colors": {"states": {"draft": "#0f0", 'done "so"': "red;click s0"}},
    },
)


def test_a_team_is_drawn_with_its_edges_notes_and_colours() -> None:
    assert render_diagram(TEAM, "draft").splitlines() == [
        "stateDiagram-v2",
        '    state "draft" as s0',
        '    state "done #34;so#34;" as s1',
        "    [*] --> s0",
        "    s0 --> s0: pushback#58;too short",
        "    s0 --> s1: success",
        "    s1 --> [*]",
        "    note right of s0: a, b at once, waits for all",
        "    classDef c0 fill:#0f0",
        "    class s0 c0",
        "    classDef highlight fill:#ffd54f,stroke:#f57f17,stroke-width:3px",
        "    class s0 highlight",
    ]


def test_a_state_that_is_not_there_cannot_be_highlighted() -> None:
    with pytest.raises(DefinitionProblem, match="the team has draft"):
        render_diagram(TEAM, "none")
