"""docs/RELIABILITY.md from the figures in docs/figures, each written by the command that measured it.

    make figures                 measures everything (about 50 minutes; nothing else should run) and writes the page
    python -m tests.figures      writes the page from what was measured

    chaos.json         python -m tests.chaos.main --minutes 10 --session 3 --json FILE
    simulation.json    python -m tests.simulation.main --seeds 10000 --json FILE
    takeover.json      python -m tests.benchmarks.takeover --json FILE
    projections.json   python -m tests.benchmarks.projections --json FILE
    group.json         python -m tests.chaos.main --minutes 4 --brokers 1 --session 3 --no-standby --json FILE
                           --targets runtime,runtime,runtime,runtime

A file that is not there is a section that says so: no figure is written by hand.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.reliability import page

DOCS = Path(__file__).parents[1] / "docs"
FIGURES = DOCS / "figures"


def measured(figures: Mapping[str, Any]) -> str:
    """When and on what."""
    machine = figures["machine"]
    if "memory_gb" in machine:  # of a campaign (tests/chaos)
        return (
            f"Measured {figures['at']} on {machine['cores']} cores of {machine['processor']}, "
            f"{machine['memory_gb']} GB, {machine['system']}, Python {machine['python']}, Kafka {machine['kafka']}.\n"
        )
    sync = f", fdatasync p50 {machine['fdatasync_ms']['p50']} ms" if "fdatasync_ms" in machine else ""
    return (
        f"Measured {figures['at']} on {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}, "
        f"Python {machine['python']}{sync}.\n"
    )


SEEDS_A_SECOND = 100
"""For each process: what was asked for."""


def simulation(figures: Mapping[str, Any]) -> str:
    """10,000 seeds."""
    seeds, took_s = figures["seeds"], figures["seconds"]
    each = seeds / took_s / figures["processes"]
    broken = "nothing is broken" if figures["broken_seed"] is None else f"**seed {figures['broken_seed']} is broken**"
    return (
        f"Seeds {figures['first']} to {figures['first'] + seeds - 1}: {broken}; {took_s:.0f} s with "
        f"{figures['processes']} processes, {each:.0f} seeds a second and process (goal 100: "
        f"{'met' if each >= SEEDS_A_SECOND else '**missed**'}), where a million steps of a loop take "
        f"{figures['machine']['python_ms']} ms.\n"
    )


def takeover(figures: Mapping[str, Any]) -> str:
    """Kills of a partition with a long past."""
    table = "| kill | claimed | serving | recovered |\n| --- | --- | --- | --- |\n"

    def rows(kills: Sequence[Mapping[str, float]]) -> str:
        return table + "".join(
            f"| {number} | {one['claimed_s']:.2f} s | {one['serving_s']:.2f} s | {one['recovered_s']:.2f} s |\n"
            for number, one in enumerate(kills, start=1)
        )

    beside = figures.get("kills_with_spare", [])
    return (
        f"One partition with {figures['events']:,} past events and {figures['live']:,} live runs, the runtime killed: "
        "until the next Claim, from the Claim to the first event after it, from the Claim until the calls of all live "
        "runs were asked for again (goal 3 s).\n\n"
        f"{rows(figures['kills'])}"
        + (f"\nBeside a spare, which `loomlog up` starts:\n\n{rows(beside)}" if beside else "")
    )


def projections(figures: Mapping[str, Any]) -> str:
    """Rebuild, a lost database, lag."""
    lag = figures["lag"]
    lines = [
        f"* {what}: {one['events']:,} events in {one['seconds']:.1f} s, **{one['events_per_s']:,.0f} events/s**, "
        f"{'rows equal' if one['equal'] else '**ROWS DIFFER**'}\n"
        for what, one in (
            ("rebuild beside the live build (goal 20,000 events/s)", figures["rebuild"]),
            ("every table dropped, the projector starts over", figures["lost"]),
        )
    ]
    lines.append(
        f"* lag at {lag['runs_per_s']:g} runs/s, from append to visible, {lag['records']:,} records: "
        f"p50 {lag['p50_ms']} ms, **p99 {lag['p99_ms']} ms** (goal 50), max {lag['max_ms']} ms\n"
    )
    return "".join(lines)


def group(figures: Mapping[str, Any]) -> str:
    """Owners that are killed while nothing but the broker's group notices it."""
    counts = figures["counts"]
    wrong = counts["lost"] + counts["doubled"] + counts["stuck"] + figures["violations_in_all"]
    lines = [
        f"One of two runtimes killed {counts['strikes']['runtime']} times under {counts['runs']} runs, without a "
        f"standby that sees its socket close; the group's session is {figures['session_s']:g} s. "
        f"{'Nothing was lost, done twice or stuck.' if wrong == 0 else f'**{wrong} violations**.'}\n\n"
    ]
    for what, found in (
        ("claimed again", figures["claimed_ms"]["group"]),
        ("first event of the next owner (goal p99 4,000 ms)", figures["taken_over_ms"]["group"]),
    ):
        if found["count"]:
            lines.append(
                f"* {what}: p50 {found['p50']:,} ms, **p99 {found['p99']:,} ms**, max {found['max']:,} ms "
                f"(of {found['count']})\n"
            )
        else:
            lines.append(f"* {what}: no figure\n")
    return "".join(lines)


SECTIONS: Mapping[str, tuple[str, str, Callable[[Mapping[str, Any]], str]]] = {
    "group": ("Take-over by the group alone", "make figures", group),
    "simulation": ("Simulation", "make simulate SEEDS=10000", simulation),
    "takeover": ("Take-over of a long partition", "make bench-takeover", takeover),
    "projections": ("Read models", "make bench-projections", projections),
}


def sections(folder: Path) -> str:
    """The sections beside chaos."""
    parts = []
    for name, (title, command, text) in SECTIONS.items():
        file = folder / f"{name}.json"
        parts.append(f"\n## {title}\n\n`{command}`. ")
        if file.exists():
            figures = json.loads(file.read_text())
            if isinstance(figures, list):  # a campaign's results, one for each number of brokers
                (figures,) = figures
            parts.append(f"{measured(figures)}\n{text(figures)}")
        else:
            parts.append("Not measured.\n")
    return "".join(parts)


def main() -> int:
    """Writes the page."""
    chaos = FIGURES / "chaos.json"
    if not chaos.exists():
        sys.stderr.write(f"{chaos.relative_to(DOCS.parent)} is missing: measure it first, `make figures`\n")
        return 1
    (DOCS / "RELIABILITY.md").write_text(page(json.loads(chaos.read_text()), sections(FIGURES)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
