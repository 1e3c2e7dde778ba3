"""A team drawn as a Mermaid state diagram.

Before: the operation render_diagram. After: any renderer of Mermaid.
"""

import re
from collections.abc import Mapping
from typing import Any

from loomlog.connectors.definitions.problems import DefinitionProblem

HIGHLIGHT = "highlight"
HIGHLIGHT_STYLE = "fill:#ffd54f,stroke:#f57f17,stroke-width:3px"
COLOR = re.compile(r"#[0-9A-Fa-f]{3,8}\Z|[A-Za-z]{1,30}\Z")
"""What is passed on as a colour; anything else is left out, because it could be markup."""


def render_diagram(content: Mapping[str, Any], highlight_state: str = "") -> str:
    """Return the diagram. Raises DefinitionProblem for a state to highlight that the team does not have."""
    states = {state["state"]: state["handler"] for state in content["states"]}
    if highlight_state and highlight_state not in states:
        raise DefinitionProblem(
            "invalid_definition", f"highlight_state {highlight_state[:80]!r}: the team has {', '.join(states)}"
        )
    ids = {name: f"s{number}" for number, name in enumerate(states)}
    lines = ["stateDiagram-v2"]
    lines += [f'    state "{_label(name)}" as {ids[name]}' for name in states]
    lines.append(f"    [*] --> {ids[content['entry']]}")
    for edge in content.get("transitions") or ():
        lines.append(f"    {ids[edge['from']]} --> {ids[edge['to']]}: {_label(edge['on'])}")
    lines += [f"    {ids[name]} --> [*]" for name, handler in states.items() if handler["kind"] == "terminal"]
    for name, handler in states.items():
        if handler["kind"] == "parallel":
            agents, wait = ", ".join(handler.get("agents", ())), handler.get("wait") or "all"
            lines.append(f"    note right of {ids[name]}: {_label(f'{agents} at once, waits for {wait}')}")
    colors = (content.get("colors") or {}).get("states", {})
    used = {name: color for name, color in colors.items() if name in ids and COLOR.match(color)}
    classes = {color: f"c{number}" for number, color in enumerate(dict.fromkeys(used.values()))}
    lines += [f"    classDef {name} fill:{color}" for color, name in classes.items()]
    lines += [f"    class {ids[name]} {classes[color]}" for name, color in used.items()]
    if highlight_state:
        lines += [f"    classDef {HIGHLIGHT} {HIGHLIGHT_STYLE}", f"    class {ids[highlight_state]} {HIGHLIGHT}"]
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    """Return a text as a label: what Mermaid reads as markup becomes an entity, a line break a space."""
    flat = " ".join(text.split())
    return re.sub(r'[";#:{}<>\[\]|]', lambda match: f"#{ord(match[0])};", flat)
