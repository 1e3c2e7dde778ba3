"""docs/SCALE.md from the figures in docs/figures; no figure in it is written by hand, but those of recorded changes.

    python -m tests.benchmarks.scale_page

    scaling-*.json    make bench-scale (each with its picture)
    takeover.json     make bench-takeover
    projections.json  make bench-projections
    peers.json        make bench-peers: what a run costs
    profile.json      make flame

A file that is not there is a section that says so, and what needs its figures is "not measured". The arithmetic is
cluster.py, its words are cluster_text.py, those of the curves curve_texts.py.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks.cluster import Assumptions
from tests.benchmarks.cluster_text import on_paper
from tests.benchmarks.curve_texts import SHOWN
from tests.benchmarks.cuts import CUTS
from tests.benchmarks.peers.page import table
from tests.benchmarks.plots import PICTURES
from tests.benchmarks.run_costs import Figures, measured

DOCS = Path(__file__).parents[2] / "docs"
FIGURES = DOCS / "figures"
NAMES = ("peers", "takeover", "projections", "profile", *(f"scaling-{name}" for name in PICTURES))
AREAS_TOLD = 10

HEAD = """\
# Scale

Written by `python -m tests.benchmarks.scale_page` from docs/figures, which `make bench-scale`, `make bench-peers` and
`make flame` measure. Except for the recorded changes at the end no figure here was typed by a person.

Everything was measured on one small machine whose cores are shared by clients, broker, Postgres and all services: no
network, one broker, no replication. The curves show how the parts behave; the clusters are arithmetic on paper, and
they have not been run.

"""


def page(figures: Figures) -> str:
    """The whole page."""
    return HEAD + curves(figures) + on_paper(measured(figures), Assumptions(), figures) + time_goes(figures)


def curves(figures: Figures) -> str:
    """Each curve with its picture and what it shows."""
    return "## The curves\n\n" + "".join(curve(name, figures) for name in PICTURES)


def curve(name: str, figures: Figures) -> str:
    title, text = SHOWN[name]
    result = figures.get(f"scaling-{name}")
    if result is None:
        return f"### {title}\n\nNot measured: `python -m tests.benchmarks.scaling --curves {name}`.\n\n"
    return f"### {title}\n\n{when(result)}\n\n![{title}](figures/scaling-{name}.svg)\n\n{text(result['rows'])}\n\n"


def when(found: Mapping[str, Any]) -> str:
    """When, on what."""
    machine = found["machine"]
    commit = f" at commit {found['commit']}" if "commit" in found else ""
    return (
        f"Measured {found['at']}{commit} on {machine['cores']} cores, {machine['system']}, Python {machine['python']}; "
        f"load before {machine['load']}, a million steps of a loop {machine['python_ms']} ms."
    )


# --- where the time goes ----------------------------------------------------------------------------------------------


def time_goes(figures: Figures) -> str:
    """Flame graphs, areas, and what was taken away."""
    return "## Where the time goes\n\n" + profile(figures.get("profile")) + cuts()


def profile(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "Not measured: `make flame`.\n\n"
    text = (
        f"{when(found)}\n\nA3x2 over HTTP and SSE, {found['in_flight']} in flight, {found['runs_per_s']:,.0f} runs/s, "
        f"while py-spy looked {found['rate']} times a second for {found['seconds']} s. Only samples in which a thread "
        "computes count; what C code does is counted where Python called it.\n\n"
    )
    for name, process in found["processes"].items():
        rows = [[area, f"{percent:.1f} %"] for area, percent in list(process["areas"].items())[:AREAS_TOLD]]
        functions = ", ".join(f"`{one}` {percent:.1f} %" for one, percent in list(process["functions"].items())[:5])
        text += (
            f"### The {name}\n\nBusy {process['busy_percent']:.0f} % of a core.\n\n![flame graph of the {name}]"
            f"(figures/flame-{name}.svg)\n\n" + table(["area", "share of busy samples"], rows)
        )
        text += f"\nFunctions with most samples of their own: {functions}.\n\n"
    return text


def cuts() -> str:
    rows = [[one.change, one.figure, one.source] for one in CUTS]
    return (
        "### What was taken away\n\nChanges that were recorded with a figure, each measured when it was made.\n\n"
        + table(["change", "figure", "recorded in"], rows)
    )


def read(folder: Path) -> dict[str, Any]:
    """The files there are."""
    paths = {name: folder / f"{name}.json" for name in NAMES}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


def main() -> int:
    """Writes the page."""
    (DOCS / "SCALE.md").write_text(page(read(FIGURES)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
