"""The state diagram of a run in docs/ARCHITECTURE.md, drawn from the transitions that the tests of the core take.

`make diagram` (draw_diagram.py) runs those tests, collects every change from one kind of state to another with the
event that caused it, and writes the diagram. given.Run checks each transition of every test against it, so a transition
that the diagram lacks fails the test that takes it.
"""

import re
from functools import cache
from pathlib import Path

from loomlog.services.core.run.state import Absent, Ended, Refused

Transition = tuple[str, str, str]
"""Kind of state before, kind of state after, kind of event."""
ARCHITECTURE = Path(__file__).parents[4] / "docs" / "ARCHITECTURE.md"
BEGIN, END = "```mermaid\nstateDiagram-v2\n", "```\n"
OUTSIDE = "[*]"
FINAL = (Ended.__name__, Refused.__name__)
EDGE = re.compile(r"^    (\S+) --> (\w+): (.+)$", re.MULTILINE)
taken: set[Transition] = set()
"""Transitions of this process so far."""
is_collecting = False
"""Set while the diagram is drawn: transitions that it lacks are noted and not refused."""


def take(before: object, after: object, event: object) -> None:
    """Note the transition. Raises AssertionError when it is not in the diagram."""
    if type(before) is type(after):
        return
    transition = (type(before).__name__, type(after).__name__, type(event).__name__)
    taken.add(transition)
    assert is_collecting or transition in documented(), f"{transition} is not in the diagram; `make diagram` draws it"


@cache
def documented() -> frozenset[Transition]:
    """The transitions of the diagram."""
    text = ARCHITECTURE.read_text()
    drawn = text[text.index(BEGIN) : text.index(END, text.index(BEGIN) + len(BEGIN))]
    return frozenset(
        (Absent.__name__ if before == OUTSIDE else before, after, event)
        for before, after, events in EDGE.findall(drawn)
        for event in events.split(", ")
    )


def drawing(transitions: set[Transition]) -> str:
    """Mermaid text: one edge for each pair of states, labelled with the events that lead there."""
    events: dict[tuple[str, str], set[str]] = {}
    for before, after, event in transitions:
        events.setdefault((OUTSIDE if before == Absent.__name__ else before, after), set()).add(event)
    lines = [
        f"    {before} --> {after}: {', '.join(sorted(names))}" for (before, after), names in sorted(events.items())
    ]
    lines += [f"    {name} --> {OUTSIDE}" for name in FINAL]
    return BEGIN + "\n".join(lines) + "\n" + END
